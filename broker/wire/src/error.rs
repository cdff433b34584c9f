//! The table of errors that a peer can be told, and the three kinds of answer to them.

use core::fmt;

/// What a client does about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Nothing was done; the same again may succeed.
    Retry,
    /// Nothing was done; the same again will fail.
    DoNotRetry,
    /// It may or may not have been done. Safe to try again with the same producer sequence.
    Unknown,
}

impl ErrorKind {
    /// The kind's name as it stands in documents and API answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::DoNotRetry => "do-not-retry",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Makes [`ErrorCode`], its numbers and its documentation from one table.
macro_rules! errors {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal;)+) => {
        /// An error that a peer can be told. The number's high byte is its kind (1 retry, 2 do not retry, 3 unknown), so
        /// a code from a newer peer still says what to do. Used in frames and as the close code of streams and connections.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ $name,)+
            /// A code that this version does not know.
            Unlisted(u16),
        }

        impl ErrorCode {
            /// Every code of this version, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The code's number on the wire.
            pub const fn to_wire(self) -> u16 {
                match self {
                    $(Self::$name => $code,)+
                    Self::Unlisted(code) => code,
                }
            }

            /// The code of a number.
            pub const fn from_wire(code: u16) -> Self {
                match code {
                    $($code => Self::$name,)+
                    other => Self::Unlisted(other),
                }
            }

            /// The code's name, as in the documentation.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                    Self::Unlisted(_) => "Unlisted",
                }
            }

            /// What the code means and what to do about it.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+),)+
                    Self::Unlisted(_) => " An error that this version does not know.",
                }
            }
        }
    };
}

errors! {
    /// The broker stops; connect again, preferably to another one.
    ShuttingDown = 0x0101;
    /// The broker has as many connections as it may; try again later.
    TooManyConnections = 0x0102;
    /// The broker or the stream has as many subscriptions as it may; try again later.
    TooManySubscriptions = 0x0103;
    /// The broker or the stream has as many publishers as it may; try again later.
    TooManyPublishers = 0x0104;
    /// The broker is out of memory for this; slow down.
    Overloaded = 0x0105;
    /// This broker does not lead the shard; ask for the stream's metadata.
    NotLeader = 0x0106;
    /// The sequence is higher than the expected one, which is the detail: an earlier batch was refused. Send from there.
    SequenceGap = 0x0107;
    /// The subscription was ended because it read too slowly for a policy that makes publishers wait.
    TooSlow = 0x0108;
    /// The stream was deleted or began a new life; open it again.
    StreamEnded = 0x0109;

    /// The peer broke the protocol: a frame that has no place here, or one that cannot be decoded.
    ProtocolViolation = 0x0201;
    /// No version is spoken by both sides.
    UnsupportedVersion = 0x0202;
    /// A frame of an unknown kind that must be understood.
    UnknownFrame = 0x0203;
    /// A frame longer than the receiver takes.
    FrameTooLarge = 0x0204;
    /// The connection has not said who it is, or not credibly.
    Unauthenticated = 0x0205;
    /// The connection may not do this.
    Forbidden = 0x0206;
    /// There is no stream of this name.
    UnknownStream = 0x0210;
    /// The stream has no shard of this number.
    UnknownShard = 0x0211;
    /// The batch is malformed or its checksum is wrong.
    InvalidBatch = 0x0220;
    /// The batch is larger than the stream takes, which is the detail in bytes.
    BatchTooLarge = 0x0221;
    /// A record is larger than the broker takes, which is the detail in bytes.
    RecordTooLarge = 0x0222;
    /// The batch is encoded by a codec that this broker does not take.
    UnsupportedCodec = 0x0223;
    /// Some of the batch's sequences are known and some are not: it is not the batch that was sent before.
    SequenceOverlap = 0x0224;
    /// The batch was stored long ago, its offset is no longer remembered.
    DuplicateForgotten = 0x0225;
    /// A publisher with the same producer id and a higher epoch, which is the detail, has taken over.
    Fenced = 0x0226;
    /// The stream does not permit this policy for slow subscriptions.
    PolicyNotAllowed = 0x0230;
    /// The start lies beyond the shard's end, which is the detail.
    StartBeyondEnd = 0x0231;

    /// The shard does not know the producer and the sequence is not 0: an earlier try may have been stored.
    UnknownProducer = 0x0301;
    /// The log failed; what was not acknowledged may or may not be stored.
    LogFailed = 0x0302;
    /// The shard changed hands; what was not acknowledged may or may not be stored.
    OutcomeUnknown = 0x0303;
    /// A fault of the broker's.
    Internal = 0x0304;
}

impl ErrorCode {
    /// What a client does about it. A number outside the three ranges counts as unknown.
    pub const fn kind(self) -> ErrorKind {
        match self.to_wire() >> 8 {
            1 => ErrorKind::Retry,
            2 => ErrorKind::DoNotRetry,
            _ => ErrorKind::Unknown,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Unlisted(code) = self {
            write!(f, "error {code:#06x}")
        } else {
            f.write_str(self.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_keep_their_kind() {
        for (at, code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!(ErrorCode::from_wire(code.to_wire()), *code);
            assert!(matches!(code.to_wire() >> 8, 1..=3), "{code} has no kind");
            assert!(
                !ErrorCode::ALL[..at]
                    .iter()
                    .any(|other| other.to_wire() == code.to_wire())
            );
        }
        assert_eq!(ErrorCode::from_wire(0x01ff).kind(), ErrorKind::Retry);
        assert_eq!(ErrorCode::from_wire(0xffff).kind(), ErrorKind::Unknown);
    }
}
