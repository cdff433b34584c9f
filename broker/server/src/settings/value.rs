//! How the text of a setting becomes a value, and how a value is printed.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde_yaml::Value;

/// What kind of YAML scalar a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text only.
    Text,
    /// A whole number.
    Number,
    /// A whole number of bytes, or text such as `8MiB`.
    Size,
}

impl Kind {
    pub(crate) const fn placeholder(self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::Number => "NUMBER",
            Self::Size => "BYTES",
        }
    }
}

/// A type that a setting may have.
pub(crate) trait SettingValue: Sized {
    const KIND: Kind;

    /// Reads a text; `None` where none was given. The error says what is expected.
    fn from_text(text: Option<&str>) -> Result<Self, String>;

    /// The value as it may stand in a configuration file.
    fn to_yaml(&self) -> Value;
}

/// A number of bytes. Text may end in `KiB`, `MiB` or `GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// A time in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub Duration);

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The least severe log lines to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLevel(pub tracing::Level);

impl SettingValue for Bytes {
    const KIND: Kind = Kind::Size;

    fn from_text(text: Option<&str>) -> Result<Self, String> {
        let expected = || "a number of bytes, such as 8388608 or 8MiB".to_owned();
        let text = text.ok_or_else(expected)?.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit: u64 = match &text[digits.len()..] {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(expected()),
        };
        let number = whole(digits.trim_end()).ok_or_else(expected)?;
        number.checked_mul(unit).map(Self).ok_or_else(expected)
    }

    fn to_yaml(&self) -> Value {
        self.0.into()
    }
}

impl SettingValue for Millis {
    const KIND: Kind = Kind::Number;

    fn from_text(text: Option<&str>) -> Result<Self, String> {
        let millis = text.and_then(whole).ok_or("a whole number of milliseconds")?;
        Ok(Self(Duration::from_millis(millis)))
    }

    fn to_yaml(&self) -> Value {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX).into()
    }
}

impl SettingValue for u32 {
    const KIND: Kind = Kind::Number;

    fn from_text(text: Option<&str>) -> Result<Self, String> {
        let number = text
            .and_then(whole)
            .and_then(|number| Self::try_from(number).ok());
        number.ok_or_else(|| "a whole number".to_owned())
    }

    fn to_yaml(&self) -> Value {
        (*self).into()
    }
}

impl SettingValue for SocketAddr {
    const KIND: Kind = Kind::Text;

    fn from_text(text: Option<&str>) -> Result<Self, String> {
        let address = text.and_then(|text| text.parse().ok());
        address.ok_or_else(|| "an address and a port, such as 0.0.0.0:5000 or [::]:5000".to_owned())
    }

    fn to_yaml(&self) -> Value {
        self.to_string().into()
    }
}

impl SettingValue for PathBuf {
    const KIND: Kind = Kind::Text;

    fn from_text(text: Option<&str>) -> Result<Self, String> {
        let path = text.filter(|text| !text.is_empty()).map(Self::from);
        path.ok_or_else(|| "a path".to_owned())
    }

    fn to_yaml(&self) -> Value {
        self.display().to_string().into()
    }
}

impl SettingValue for String {
    const KIND: Kind = Kind::Text;

    fn from_text(text: Option<&str>) -> Result<Self, String> {
        text.map(str::to_owned).ok_or_else(|| "a text".to_owned())
    }

    fn to_yaml(&self) -> Value {
        self.clone().into()
    }
}

impl<T: SettingValue> SettingValue for Option<T> {
    const KIND: Kind = T::KIND;

    fn from_text(text: Option<&str>) -> Result<Self, String> {
        text.map(|text| T::from_text(Some(text))).transpose()
    }

    fn to_yaml(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_yaml)
    }
}

impl SettingValue for LogFormat {
    const KIND: Kind = Kind::Text;

    fn from_text(text: Option<&str>) -> Result<Self, String> {
        match text {
            Some("text") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            Some(_) | None => Err("text or json".to_owned()),
        }
    }

    fn to_yaml(&self) -> Value {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
        .into()
    }
}

impl SettingValue for LogLevel {
    const KIND: Kind = Kind::Text;

    fn from_text(text: Option<&str>) -> Result<Self, String> {
        use tracing::Level;
        let named = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        let level = named
            .into_iter()
            .find(|level| Some(level.as_str().to_ascii_lowercase().as_str()) == text);
        level
            .map(Self)
            .ok_or_else(|| "error, warn, info, debug or trace".to_owned())
    }

    fn to_yaml(&self) -> Value {
        self.0.as_str().to_ascii_lowercase().into()
    }
}

/// A whole number. Also takes `8.388608e+06`, which template engines make of large numbers.
fn whole(text: &str) -> Option<u64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let float: f64 = text.parse().ok()?;
    let exact = float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&float);
    exact.then_some(float as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_suffixes_only() {
        let read = |text| Bytes::from_text(Some(text)).map(|bytes| bytes.0);
        assert_eq!(read("8388608"), Ok(8 << 20));
        assert_eq!(read("8MiB"), Ok(8 << 20));
        assert_eq!(read("64 KiB"), Ok(64 << 10));
        assert_eq!(read("1GiB"), Ok(1 << 30));
        assert_eq!(read("8.388608e+06"), Ok(8 << 20));
        for wrong in [
            "8MB",
            "8m",
            "-1",
            "",
            "MiB",
            "1.5",
            "99999999999GiB",
            "nan",
            "8 M iB",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn levels_and_formats_are_lower_case_words() {
        assert_eq!(
            LogLevel::from_text(Some("debug")).unwrap().0,
            tracing::Level::DEBUG
        );
        assert!(LogLevel::from_text(Some("DEBUG")).is_err());
        assert!(LogFormat::from_text(Some("xml")).is_err());
    }
}
