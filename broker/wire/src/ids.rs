//! The words everyone uses: places, lives and producers, each a type of its own.

use core::fmt;
use core::str::FromStr;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// One ordered log of a stream, counted from 0.
    ShardId(u32)
}
number! {
    /// The place of a record in its shard, counted from 0. Control batches take offsets too.
    Offset(u64)
}
number! {
    /// A leadership generation of a shard; each opening of its log raises it.
    Term(u64)
}
number! {
    /// A generation of one producer: a higher one fences the lower.
    ProducerEpoch(u32)
}
number! {
    /// The number a producer gives to a record of one shard, counted from 0 within an epoch.
    Sequence(u64)
}
number! {
    /// Nanoseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
    Nanos(u64)
}

impl Offset {
    /// The first offset of a shard.
    pub const ZERO: Self = Self(0);

    /// The offset `records` further on; stops at the largest one.
    pub const fn plus(self, records: u64) -> Self {
        Self(self.0.saturating_add(records))
    }

    /// How far this offset lies behind `end`; 0 when it does not.
    pub const fn distance_to(self, end: Self) -> u64 {
        end.0.saturating_sub(self.0)
    }
}

impl Sequence {
    /// The sequence `records` further on; stops at the largest one.
    pub const fn plus(self, records: u64) -> Self {
        Self(self.0.saturating_add(records))
    }
}

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:032x})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
                    return Err(ParseIdError);
                }
                u128::from_str_radix(text, 16).map(Self).map_err(|_| ParseIdError)
            }
        }
    };
}

identity! {
    /// One life of a stream name: 128 random bits, new when the stream is created and, for a memory stream, when its
    /// broker starts. 0 is never used for a life and stands for "any" in a [`Subscribe`](crate::Subscribe).
    Incarnation
}
identity! {
    /// A producer, named by itself with 128 random bits.
    ProducerId
}

/// A text is not an id: 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id is 32 lower-case hexadecimal digits")]
pub struct ParseIdError;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn ids_read_what_they_write() {
        let id = Incarnation(0x00ff_0000_0000_0000_0000_0000_0000_0001);
        assert_eq!(id.to_string(), "00ff0000000000000000000000000001");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "ff",
            "00FF0000000000000000000000000001",
            "+0ff0000000000000000000000000001",
        ] {
            assert_eq!(bad.parse::<Incarnation>(), Err(ParseIdError), "{bad}");
        }
    }
}
