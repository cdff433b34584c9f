//! Stream names and their grammar.

use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;
use core::str::FromStr;

use crate::limits::MAX_STREAM_NAME_BYTES;

/// The name of a stream: 1 to 253 ASCII letters, digits, `.`, `_` and `-`, the first and the last a letter or a digit.
/// Names are compared byte by byte. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamName(Arc<str>);

impl StreamName {
    /// Checks `name` against the grammar.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > MAX_STREAM_NAME_BYTES {
            return Err(NameError::TooLong { bytes: name.len() });
        }
        if let Some((at, _)) = name.bytes().enumerate().find(|(_, byte)| !is_inner(*byte)) {
            return Err(NameError::Character { at });
        }
        let ends = [name.bytes().next(), name.bytes().next_back()];
        if ends.iter().flatten().all(u8::is_ascii_alphanumeric) {
            Ok(Self(name.into()))
        } else {
            Err(NameError::Edge)
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_inner(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

impl FromStr for StreamName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

impl AsRef<str> for StreamName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for StreamName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamName({:?})", &*self.0)
    }
}

/// Why a text is not a stream name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty.
    #[error("a stream name must not be empty")]
    Empty,
    /// It is too long.
    #[error("a stream name has at most {MAX_STREAM_NAME_BYTES} bytes, this one has {bytes}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It holds a character that names do not have.
    #[error("a stream name has only letters, digits, '.', '_' and '-'; byte {at} is another")]
    Character {
        /// Where, in bytes from 0.
        at: usize,
    },
    /// It begins or ends with punctuation.
    #[error("a stream name begins and ends with a letter or a digit")]
    Edge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar() {
        for good in ["a", "orders", "Orders.eu-1_x", "0", &"n".repeat(253)] {
            assert_eq!(StreamName::new(good).unwrap().as_str(), good);
        }
        for (bad, why) in [
            ("", NameError::Empty),
            (&*"n".repeat(254), NameError::TooLong { bytes: 254 }),
            ("a b", NameError::Character { at: 1 }),
            ("a/b", NameError::Character { at: 1 }),
            ("ä", NameError::Character { at: 0 }),
            ("a\0", NameError::Character { at: 1 }),
            (".", NameError::Edge),
            ("..", NameError::Edge),
            ("-a", NameError::Edge),
            ("a.", NameError::Edge),
        ] {
            assert_eq!(StreamName::new(bad), Err(why), "{bad:?}");
        }
    }
}
