//! The frames of a connection as a whole: who speaks, what streams there are, and why it ends.

use alloc::string::String;

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{Fields, put_bytes, put_text};
use crate::error::ErrorCode;
use crate::frame::DecodeError;
use crate::ids::Incarnation;
use crate::limits::{MAX_SHARDS, MAX_TOKEN_BYTES};
use crate::name::StreamName;

/// What both sides name in the TLS handshake.
pub const ALPN: &[u8] = b"felix/1";

/// The protocol version of this crate. Its bytes are frozen.
pub const VERSION: u16 = 1;

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMethod {
    /// Not at all.
    #[default]
    None,
    /// By a bearer token.
    Token,
    /// By a way that this version does not know.
    Unlisted(u16),
}

impl AuthMethod {
    const fn to_wire(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Token => 1,
            Self::Unlisted(number) => number,
        }
    }

    const fn from_wire(number: u16) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Token,
            other => Self::Unlisted(other),
        }
    }
}

/// The first frame on the first stream of a client. Further streams may be opened without waiting for the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The lowest version that the client speaks.
    pub min_version: u16,
    /// The highest version that the client speaks.
    pub max_version: u16,
    /// Abilities of the client, one bit each; none are defined yet.
    pub features: u64,
    /// Program and version, for logs.
    pub agent: String,
    /// How the client proves who it is.
    pub auth: AuthMethod,
    /// What the method needs.
    pub token: Bytes,
}

impl Hello {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        Ok(Self {
            min_version: fields.u16("min version")?,
            max_version: fields.u16("max version")?,
            features: fields.u64("features")?,
            agent: fields.text("agent")?,
            auth: AuthMethod::from_wire(fields.u16("auth method")?),
            token: fields.bytes("token", MAX_TOKEN_BYTES)?,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u16_le(self.min_version);
        out.put_u16_le(self.max_version);
        out.put_u64_le(self.features);
        put_text(out, &self.agent);
        out.put_u16_le(self.auth.to_wire());
        put_bytes(out, &self.token, MAX_TOKEN_BYTES);
    }
}

/// The broker's answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that is spoken from here on.
    pub version: u16,
    /// Abilities that both sides have.
    pub features: u64,
    /// The cluster that the broker belongs to.
    pub cluster_id: String,
    /// The broker.
    pub broker_id: String,
}

impl Welcome {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        Ok(Self {
            version: fields.u16("version")?,
            features: fields.u64("features")?,
            cluster_id: fields.text("cluster id")?,
            broker_id: fields.text("broker id")?,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u16_le(self.version);
        out.put_u64_le(self.features);
        put_text(out, &self.cluster_id);
        put_text(out, &self.broker_id);
    }
}

/// Asks what a stream is made of. Answered by [`Metadata`] or [`ErrorFrame`], in the order of the requests; such an
/// error does not end the stream that it comes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataRequest {
    /// The stream.
    pub stream: StreamName,
}

impl MetadataRequest {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        Ok(Self {
            stream: Fields::new(body).stream_name()?,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        put_text(out, self.stream.as_str());
    }
}

/// What an ack of a stream means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamClass {
    /// In the leader's memory.
    Memory,
    /// Synced to the leader's disk.
    Durable,
    /// Synced by the leader and a follower.
    Quorum,
    /// A class that this version does not know.
    Unlisted(u8),
}

impl StreamClass {
    const fn to_wire(self) -> u8 {
        match self {
            Self::Memory => 0,
            Self::Durable => 1,
            Self::Quorum => 2,
            Self::Unlisted(number) => number,
        }
    }

    const fn from_wire(number: u8) -> Self {
        match number {
            0 => Self::Memory,
            1 => Self::Durable,
            2 => Self::Quorum,
            other => Self::Unlisted(other),
        }
    }
}

/// What a stream is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The stream.
    pub stream: StreamName,
    /// Its present life.
    pub incarnation: Incarnation,
    /// What an ack means.
    pub class: StreamClass,
    /// How many shards it has, numbered from 0.
    pub shards: u32,
}

impl Metadata {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        let stream = fields.stream_name()?;
        let incarnation = Incarnation(fields.u128("incarnation")?);
        let class = StreamClass::from_wire(fields.u8("class")?);
        let shards = fields.u32("shards")?;
        if !(1..=MAX_SHARDS).contains(&shards) {
            return Err(DecodeError::Value { field: "shards" });
        }
        Ok(Self {
            stream,
            incarnation,
            class,
            shards,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        put_text(out, self.stream.as_str());
        out.put_u128_le(self.incarnation.0);
        out.put_u8(self.class.to_wire());
        out.put_u32_le(self.shards);
    }
}

/// Why a stream ends: nothing follows on it. On the first stream it may also answer a [`MetadataRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFrame {
    /// Why.
    pub code: ErrorCode,
    /// A number that the code's meaning names, else 0.
    pub detail: u64,
    /// For people.
    pub message: String,
}

impl ErrorFrame {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        Ok(Self {
            code: ErrorCode::from_wire(fields.u16("code")?),
            detail: fields.u64("detail")?,
            message: fields.text("message")?,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u16_le(self.code.to_wire());
        out.put_u64_le(self.detail);
        put_text(out, &self.message);
    }
}

/// The broker will close the connection: open nothing new here, finish what is under way, go elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// Why.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
}

impl GoAway {
    pub(crate) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut fields = Fields::new(body);
        Ok(Self {
            code: ErrorCode::from_wire(fields.u16("code")?),
            message: fields.text("message")?,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u16_le(self.code.to_wire());
        put_text(out, &self.message);
    }
}
