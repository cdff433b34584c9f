//! Durations as users write them: hours, minutes and seconds, such as 1h30m or 45s.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The grammar, as the API server checks it.
const PATTERN: &str = "^([0-9]{1,4}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$";
const REMEDY: &str = "write a duration as hours, minutes and seconds, for example 1h30m, 20m or 45s";

/// A duration in whole seconds, written as hours, minutes and seconds in this order, each optional.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(String);

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: {REMEDY}")]
pub struct DurationError {
    /// What was written.
    pub text: String,
}

impl DurationText {
    /// Takes the text as it is; [`DurationText::duration`] tells whether it has a value.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value.
    ///
    /// # Errors
    /// Where the text is empty or not of the form 1h30m45s.
    pub fn duration(&self) -> Result<Duration, DurationError> {
        parse(&self.0).ok_or_else(|| DurationError { text: self.0.clone() })
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        "DurationText".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "maxLength": 20,
            "x-kubernetes-validations": [{ "rule": format!("self.matches('{PATTERN}')"), "message": REMEDY }],
        })
    }
}

fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0u64;
    for (unit, factor) in [('h', 3600), ('m', 60), ('s', 1)] {
        let Some((number, tail)) = rest.split_once(unit) else {
            continue;
        };
        if number.is_empty() || number.len() > 6 || !number.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        seconds += number.parse::<u64>().ok()? * factor;
        rest = tail;
    }
    (rest.is_empty() && !text.is_empty()).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_order_of_their_units() {
        for (text, seconds) in [
            ("1h30m", 5400),
            ("45s", 45),
            ("20m", 1200),
            ("1h0m1s", 3601),
            ("0s", 0),
        ] {
            assert_eq!(
                DurationText::new(text).duration(),
                Ok(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        for text in ["", "5", "1m1h", "-1s", "1.5h", "1h 2m", "h", "1d"] {
            assert!(DurationText::new(text).duration().is_err(), "{text}");
        }
    }
}
