//! Raw samples of one scrape, in the text format of Prometheus.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// One line of a scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name of the series, with `_total`, `_bucket` and so on.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// One scrape.
#[derive(Clone, Debug, Default)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// Reads the text format; comments and time stamps are left out.
    ///
    /// # Errors
    /// If a line is not of that format.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| sample(line).with_context(|| format!("not a sample: {line}")))
            .collect::<Result<_>>()
            .map(Self)
    }

    /// The value of the one series with this name and, among others, these labels.
    #[must_use]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = self.0.iter().filter(|sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value))
        });
        let value = found.next()?.value;
        found.next().is_none().then_some(value)
    }

    /// The sum of all series with this name.
    #[must_use]
    pub fn sum(&self, name: &str) -> f64 {
        self.0
            .iter()
            .filter(|sample| sample.name == name)
            .map(|sample| sample.value)
            .sum()
    }
}

fn sample(line: &str) -> Option<Sample> {
    let name_end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.insert(key.trim().to_owned(), value);
            rest = after.trim_start_matches(',').trim_start();
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

/// What stands before the closing quote, without its escapes, and what follows the quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_labels_escapes_and_special_values() {
        let samples = Samples::parse(concat!(
            "# TYPE a counter\n",
            "a_total{x=\"1,}\",y=\"q\\\"\\\\\\n\"} 3 1700000000\n",
            "b 1e3\nc{} +Inf\n",
        ))
        .unwrap();
        assert_eq!(
            samples.value("a_total", &[("x", "1,}"), ("y", "q\"\\\n")]),
            Some(3.0)
        );
        assert_eq!(samples.value("b", &[]), Some(1000.0));
        assert_eq!(samples.value("c", &[]), Some(f64::INFINITY));
        assert_eq!(samples.value("missing", &[]), None);
    }

    #[test]
    fn a_name_without_enough_labels_is_not_one_series() {
        let samples = Samples::parse("a{p=\"x\"} 1\na{p=\"y\"} 2\n").unwrap();
        assert_eq!(samples.value("a", &[]), None);
        assert_eq!(samples.sum("a"), 3.0);
        assert!(Samples::parse("a{p=\"x\" 1").is_err());
    }
}
