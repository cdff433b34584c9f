//! Quantities as users write them (`10Gi`, `500m`): checked text that has one value and one canonical spelling.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The longest text of a quantity, in bytes.
const MAX_TEXT: u32 = 24;

/// The grammar of an amount of bytes, as the API server checks it.
const BYTES_PATTERN: &str = r"^[0-9]{1,18}([.][0-9]{1,3})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$";

/// The grammar of an amount of processor time, as the API server checks it.
const CPU_PATTERN: &str = r"^([0-9]{1,4}([.][0-9]{1,3})?|[0-9]{1,7}m)$";

/// An amount of bytes: digits, optionally a fraction, optionally k, M, G, T, P (powers of 1000) or Ki, Mi, Gi,
/// Ti, Pi (powers of 1024).
///
/// A lower-case `m`, which Kubernetes reads as thousandths of a byte, is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteQuantity(String);

/// An amount of processor time: cores with up to three decimals (`0.5`, `2`) or thousandths of a core (`500m`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuQuantity(String);

/// A text that is not a quantity of the kind that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a quantity: {remedy}")]
pub struct QuantityError {
    /// What was written.
    pub text: String,
    /// What to write instead.
    pub remedy: &'static str,
}

const BYTES_REMEDY: &str = "write bytes as a number with Ki, Mi, Gi, Ti or Pi (or k, M, G, T, P), for example 10Gi; \
     a lower-case m would mean thousandths of a byte";
const CPU_REMEDY: &str =
    "write cores as a number such as 2 or \"0.5\", or thousandths of a core such as 500m";

impl ByteQuantity {
    /// Takes the text as it is; [`ByteQuantity::bytes`] tells whether it has a value.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value in bytes, rounded up to a whole byte.
    ///
    /// # Errors
    /// Where the text is not an amount of bytes, or more than fits 63 bits.
    pub fn bytes(&self) -> Result<i64, QuantityError> {
        parse_bytes(&self.0).ok_or_else(|| QuantityError {
            text: self.0.clone(),
            remedy: BYTES_REMEDY,
        })
    }

    /// The one spelling of this value that Kubernetes keeps as it is, so that two spellings of one amount never
    /// look like a change.
    ///
    /// # Errors
    /// As [`ByteQuantity::bytes`].
    pub fn canonical(&self) -> Result<String, QuantityError> {
        self.bytes().map(canonical_bytes)
    }
}

impl CpuQuantity {
    /// Takes the text as it is; [`CpuQuantity::millicores`] tells whether it has a value.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value in thousandths of a core.
    ///
    /// # Errors
    /// Where the text is not an amount of processor time.
    pub fn millicores(&self) -> Result<i64, QuantityError> {
        parse_millicores(&self.0).ok_or_else(|| QuantityError {
            text: self.0.clone(),
            remedy: CPU_REMEDY,
        })
    }

    /// The one spelling of this value that Kubernetes keeps as it is.
    ///
    /// # Errors
    /// As [`CpuQuantity::millicores`].
    pub fn canonical(&self) -> Result<String, QuantityError> {
        self.millicores().map(|milli| {
            if milli % 1_000_000 == 0 && milli > 0 {
                format!("{}k", milli / 1_000_000)
            } else if milli % 1000 == 0 {
                format!("{}", milli / 1000)
            } else {
                format!("{milli}m")
            }
        })
    }
}

impl fmt::Display for ByteQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for CpuQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for ByteQuantity {
    fn schema_name() -> Cow<'static, str> {
        "ByteQuantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        quantity_schema(BYTES_PATTERN, BYTES_REMEDY)
    }
}

impl JsonSchema for CpuQuantity {
    fn schema_name() -> Cow<'static, str> {
        "CpuQuantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        quantity_schema(CPU_PATTERN, CPU_REMEDY)
    }
}

/// A CEL rule rather than a `pattern`: its message says what to write instead.
fn quantity_schema(pattern: &str, remedy: &str) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": MAX_TEXT,
        "x-kubernetes-validations": [{ "rule": format!("self.matches(r'{pattern}')"), "message": remedy }],
    })
}

fn parse_bytes(text: &str) -> Option<i64> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let unit: i128 = match suffix {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "P" => 1_000_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        _ => return None,
    };
    let thousandths = parse_thousandths(number)?.checked_mul(unit)?;
    i64::try_from((thousandths + 999) / 1000).ok()
}

fn parse_millicores(text: &str) -> Option<i64> {
    if let Some(milli) = text.strip_suffix('m') {
        let all_digits = !milli.is_empty() && milli.bytes().all(|b| b.is_ascii_digit());
        return if all_digits { milli.parse().ok() } else { None };
    }
    i64::try_from(parse_thousandths(text)?).ok()
}

/// A plain decimal with at most three decimals, in thousandths.
fn parse_thousandths(number: &str) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits_only = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits_only(whole) || !digits_only(fraction) || fraction.len() > 3 || whole.len() > 18 {
        return None;
    }
    let fraction: i128 = format!("{fraction:0<3}").parse().ok()?;
    Some(whole.parse::<i128>().ok()? * 1000 + fraction)
}

/// The spelling that the API server itself would choose: the largest unit that divides the value, binary first.
fn canonical_bytes(bytes: i64) -> String {
    const BINARY: [(&str, u32); 5] = [("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    const DECIMAL: [(&str, i64); 5] = [
        ("P", 1_000_000_000_000_000),
        ("T", 1_000_000_000_000),
        ("G", 1_000_000_000),
        ("M", 1_000_000),
        ("k", 1000),
    ];
    if bytes == 0 {
        return "0".to_owned();
    }
    let binary = BINARY.iter().map(|(suffix, shift)| (*suffix, 1i64 << shift));
    binary
        .chain(DECIMAL)
        .find(|(_, unit)| bytes % unit == 0)
        .map_or_else(
            || bytes.to_string(),
            |(suffix, unit)| format!("{}{suffix}", bytes / unit),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_amount_share_one_canonical_form() {
        for (spellings, canonical) in [
            (vec!["1536Mi", "1.5Gi", "1610612736"], "1536Mi"),
            (vec!["2048Mi", "2Gi", "2147483648"], "2Gi"),
            (vec!["1G", "1000M", "1000000000"], "1G"),
            (vec!["0", "0Gi"], "0"),
            (vec!["1001"], "1001"),
        ] {
            for spelling in spellings {
                assert_eq!(
                    ByteQuantity::new(spelling).canonical().as_deref(),
                    Ok(canonical),
                    "{spelling}"
                );
            }
        }
        for (spellings, canonical) in [
            (vec!["0.5", "500m", "0.500"], "500m"),
            (vec!["2", "2000m", "2.0"], "2"),
            (vec!["1000"], "1k"),
        ] {
            for spelling in spellings {
                assert_eq!(
                    CpuQuantity::new(spelling).canonical().as_deref(),
                    Ok(canonical),
                    "{spelling}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_refused_with_the_remedy() {
        for text in [
            "512m",
            "2g",
            "",
            "1.Gi",
            "-1Gi",
            "1e3",
            " 1Gi",
            "1.2345Gi",
            "9999999999999999999",
            "1Mib",
        ] {
            let error = ByteQuantity::new(text).bytes().unwrap_err();
            assert!(error.to_string().contains("10Gi"), "{error}");
        }
        for text in ["", "1.", "m", "0.5m", "-1", "2cores"] {
            assert!(CpuQuantity::new(text).millicores().is_err(), "{text}");
        }
    }

    #[test]
    fn fractions_of_a_byte_round_up() {
        assert_eq!(ByteQuantity::new("0.5").bytes(), Ok(1));
        assert_eq!(ByteQuantity::new("0.001Ki").bytes(), Ok(2));
    }
}
