//! What can go wrong for a user of the client, an enum per operation. Each says what to do: retry, do not, or unknown.

use std::time::Duration;

use felix_wire::{ErrorCode, ErrorKind, NameError};
use thiserror::Error;

/// Why a connection could not be made.
#[derive(Clone, Debug, Error)]
pub enum ConnectError {
    /// The address is not `host:port`.
    #[error("address {address:?} is not host:port")]
    Address {
        /// What was given.
        address: String,
    },
    /// The server name cannot stand in a certificate.
    #[error("server name {name:?} is neither a DNS name nor an IP address")]
    ServerName {
        /// What was given.
        name: String,
    },
    /// The certificate authority could not be read.
    #[error("the CA certificates cannot be used: {reason}; give PEM with at least one certificate")]
    Ca {
        /// What is wrong with it.
        reason: String,
    },
    /// The host name did not resolve.
    #[error("{address} does not resolve: {reason}")]
    Resolve {
        /// The address.
        address: String,
        /// What the resolver said.
        reason: String,
    },
    /// No socket could be made.
    #[error("no UDP socket: {reason}")]
    Socket {
        /// What the system said.
        reason: String,
    },
    /// The TLS handshake failed: wrong certificate authority, wrong name, expired.
    #[error(
        "the TLS handshake with {address} failed: {reason}; check CA, server name and the certificate's dates"
    )]
    Tls {
        /// The address.
        address: String,
        /// The alert or the verifier's complaint.
        reason: String,
    },
    /// Nobody answered in time.
    #[error("{address} did not answer within {waited:?}")]
    TimedOut {
        /// The address.
        address: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The connection failed before or after it stood.
    #[error("the connection to {address} failed: {reason}")]
    Lost {
        /// The address.
        address: String,
        /// What happened to it.
        reason: String,
    },
    /// The broker refused.
    #[error("the broker refused: {code}: {message}")]
    Refused {
        /// The code, which has a kind.
        code: ErrorCode,
        /// The broker's explanation.
        message: String,
    },
    /// The broker said something that the protocol does not have at this place.
    #[error("the broker broke the protocol: {reason}")]
    Protocol {
        /// What it said.
        reason: String,
    },
    /// The client was closed by its user.
    #[error("the client is closed")]
    Closed,
}

impl ConnectError {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Resolve { .. } | Self::Socket { .. } | Self::TimedOut { .. } | Self::Lost { .. } => {
                ErrorKind::Retry
            }
            Self::Address { .. }
            | Self::ServerName { .. }
            | Self::Ca { .. }
            | Self::Tls { .. }
            | Self::Protocol { .. }
            | Self::Closed => ErrorKind::DoNotRetry,
            Self::Refused { code, .. } => code.kind(),
        }
    }
}

/// Why a record was not, or may not have been, published.
#[derive(Clone, Debug, Error)]
pub enum PublishError {
    /// The stream's name is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no connection, and waiting longer makes no sense.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The broker refused the publisher or the batch.
    #[error("the broker refused: {code} (detail {detail})")]
    Refused {
        /// The code, which has a kind.
        code: ErrorCode,
        /// A number that goes with the code: a limit, an offset, an epoch.
        detail: u64,
    },
    /// The record is larger than the broker takes.
    #[error("the record has {bytes} bytes of key, headers and value; the broker takes {limit}")]
    RecordTooLarge {
        /// The record's size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The record cannot be encoded.
    #[error("the record cannot be encoded: {reason}")]
    Record {
        /// What is wrong with it.
        reason: String,
    },
    /// The record was sent and no answer came in time: it may or may not be stored.
    #[error("no acknowledgement within {waited:?}: the record may or may not be stored")]
    TimedOut {
        /// The delivery time-out.
        waited: Duration,
    },
    /// The record was sent, then the stream began a new life: it may have been stored in the former one.
    #[error(
        "the stream began a new life after the record was sent: it may have been stored in the former one"
    )]
    NewIncarnation,
    /// The record never left this client and is not stored.
    #[error("the record was not sent: {reason}")]
    NotSent {
        /// Why it did not leave.
        reason: String,
    },
    /// The publisher or its client was closed.
    #[error("the publisher is closed")]
    Closed,
}

impl PublishError {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect(error) => error.kind(),
            Self::Refused { code, .. } => code.kind(),
            Self::TimedOut { .. } | Self::NewIncarnation => ErrorKind::Unknown,
            Self::NotSent { .. } => ErrorKind::Retry,
            Self::Name(_) | Self::RecordTooLarge { .. } | Self::Record { .. } | Self::Closed => {
                ErrorKind::DoNotRetry
            }
        }
    }
}

/// Why a subscription could not be opened, or ended.
#[derive(Clone, Debug, Error)]
pub enum SubscribeError {
    /// The stream's name is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no connection, and waiting longer makes no sense.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The broker refused or ended the subscription.
    #[error("the broker refused: {code}: {message}")]
    Refused {
        /// The code, which has a kind.
        code: ErrorCode,
        /// The broker's explanation.
        message: String,
    },
    /// A batch or a frame from the broker is damaged.
    #[error("the broker sent something that cannot be read: {reason}")]
    Damaged {
        /// What is wrong with it.
        reason: String,
    },
}

impl SubscribeError {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect(error) => error.kind(),
            Self::Refused { code, .. } => code.kind(),
            Self::Name(_) | Self::Damaged { .. } => ErrorKind::DoNotRetry,
        }
    }
}

/// Why a stream's metadata could not be had.
#[derive(Clone, Debug, Error)]
pub enum MetadataError {
    /// The stream's name is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The broker refused.
    #[error("the broker refused: {code}: {message}")]
    Refused {
        /// The code, which has a kind.
        code: ErrorCode,
        /// The broker's explanation.
        message: String,
    },
}

impl MetadataError {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name(_) => ErrorKind::DoNotRetry,
            Self::Connect(error) => error.kind(),
            Self::Refused { code, .. } => code.kind(),
        }
    }
}
