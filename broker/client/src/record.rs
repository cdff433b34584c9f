//! Records as users see them: what is sent borrows or owns its bytes; what is received are slices of the batch it came in.

use std::ops::Deref;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use felix_wire::{BatchBuilder, GapReason, Header, Headers, Lost, Nanos, PushError, Reached};

/// Bytes of a record to send, borrowed or owned. Made by `into()` from slices, arrays, texts, `Vec<u8>` and [`Bytes`].
#[derive(Clone, Debug)]
pub enum Payload<'a> {
    /// Borrowed from the caller.
    Borrowed(&'a [u8]),
    /// Owned, as a vector.
    Vec(Vec<u8>),
    /// Owned and shared.
    Shared(Bytes),
}

impl Deref for Payload<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Vec(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Borrowed(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Borrowed(bytes)
    }
}

impl<'a> From<&'a str> for Payload<'a> {
    fn from(text: &'a str) -> Self {
        Self::Borrowed(text.as_bytes())
    }
}

impl<'a> From<&'a Vec<u8>> for Payload<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Borrowed(bytes)
    }
}

impl<'a> From<&'a String> for Payload<'a> {
    fn from(text: &'a String) -> Self {
        Self::Borrowed(text.as_bytes())
    }
}

impl From<Vec<u8>> for Payload<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Vec(bytes)
    }
}

impl From<String> for Payload<'_> {
    fn from(text: String) -> Self {
        Self::Vec(text.into_bytes())
    }
}

impl From<Bytes> for Payload<'_> {
    fn from(bytes: Bytes) -> Self {
        Self::Shared(bytes)
    }
}

/// A record to send.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    value: Payload<'a>,
    /// There is no value, and there is a key.
    deletes: bool,
    key: Option<Payload<'a>>,
    /// Those that were given one by one; they come after the listed ones.
    headers: Vec<(&'a str, Payload<'a>)>,
    listed: &'a [Header<'a>],
    timestamp: Option<Nanos>,
}

impl<'a> Record<'a> {
    /// A record with a value alone.
    pub fn new(value: impl Into<Payload<'a>>) -> Self {
        Self {
            value: value.into(),
            deletes: false,
            key: None,
            headers: Vec::new(),
            listed: &[],
            timestamp: None,
        }
    }

    /// A record without a value, which is not one with an empty value: it says that its key is deleted. It goes to the key's
    /// shard, behind what was sent for the key before; subscribers get it with [`Received::deletes`] set.
    pub fn deletion(key: impl Into<Payload<'a>>) -> Self {
        Self {
            deletes: true,
            ..Self::new(Payload::Borrowed(&[])).key(key)
        }
    }

    /// Gives it a key: records of one key keep their order, whatever the number of shards.
    #[must_use]
    pub fn key(mut self, key: impl Into<Payload<'a>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a header. Names may repeat.
    #[must_use]
    pub fn header(mut self, name: &'a str, value: impl Into<Payload<'a>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sets a list of headers, which takes no allocation; those added one by one come after it.
    #[must_use]
    pub fn headers(mut self, headers: &'a [Header<'a>]) -> Self {
        self.listed = headers;
        self
    }

    /// Sets the time it was made. Without it, the time of sending is taken.
    #[must_use]
    pub fn timestamp(mut self, timestamp: Nanos) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    pub(crate) fn key_bytes(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// Appends it to a batch; its index there.
    pub(crate) fn push_to(&self, batch: &mut BatchBuilder) -> Result<u32, PushError> {
        let (timestamp, headers) = (self.timestamp_or_now(), self.wire_headers());
        match self.key_bytes() {
            Some(key) if self.deletes => batch.push_deletion(timestamp, key, headers),
            key => batch.push(timestamp, key, headers, &self.value),
        }
    }

    fn wire_headers(&self) -> impl ExactSizeIterator<Item = Header<'_>> + Clone {
        WireHeaders {
            listed: self.listed.iter(),
            others: self.headers.iter(),
        }
    }

    fn timestamp_or_now(&self) -> Nanos {
        self.timestamp.unwrap_or_else(now)
    }

    /// Bytes of key, headers and value: what limits and budgets are about.
    pub(crate) fn size(&self) -> usize {
        let headers: usize = self
            .wire_headers()
            .map(|header| header.name.len() + header.value.len())
            .sum();
        self.key.as_ref().map_or(0, |key| key.len()) + headers + self.value.len()
    }
}

/// All headers of a record to send.
#[derive(Clone)]
struct WireHeaders<'a> {
    listed: std::slice::Iter<'a, Header<'a>>,
    others: std::slice::Iter<'a, (&'a str, Payload<'a>)>,
}

impl<'a> Iterator for WireHeaders<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        let listed = self.listed.next().copied();
        listed.or_else(|| self.others.next().map(|(name, value)| Header { name, value }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.listed.len() + self.others.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for WireHeaders<'_> {}

/// The wall clock. A clock before 1970 counts as 1970.
pub(crate) fn now() -> Nanos {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Where a record was stored, and how safely.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Receipt {
    /// The shard that took it.
    pub shard: u32,
    /// Its offset there; of a batch, that of its first record.
    pub offset: u64,
    /// What the acknowledgement promises.
    pub reached: Reached,
}

/// What a subscription yields.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A record.
    Record(Received),
    /// Records that were not delivered.
    Gap(Gap),
}

/// A delivered record. Key, value and headers are slices of the batch it came in: keeping one keeps the whole batch.
#[derive(Clone, Debug)]
pub struct Received {
    /// The shard it is in.
    pub shard: u32,
    /// Its place there.
    pub offset: u64,
    /// When it was made, by its publisher's clock.
    pub timestamp: Nanos,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Bytes,
    /// It has no value, not even an empty one: it says that its key is deleted.
    pub deletes: bool,
    /// Its headers, in order.
    pub headers: ReceivedHeaders,
}

/// The headers of a delivered record, a slice of the batch it came in like the rest of it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReceivedHeaders {
    count: usize,
    encoded: Bytes,
}

impl ReceivedHeaders {
    /// Headers that were checked when their record was read.
    pub(crate) fn new(count: usize, encoded: Bytes) -> Self {
        Self { count, encoded }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = Header<'_>> {
        Headers::from_encoded(self.count, &self.encoded)
    }

    /// The value of the first header of this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find(|header| header.name == name)
            .map(|header| header.value)
    }
}

/// Records that a subscription was not given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Gap {
    /// The shard.
    pub shard: u32,
    /// The first offset of the gap.
    pub from: u64,
    /// The offset behind it. `None` where it ends with a former life of the stream: offsets begin anew after it.
    pub to: Option<u64>,
    /// Why.
    pub reason: GapReason,
    /// How many records, exactly or at most.
    pub lost: Lost,
}

impl Gap {
    /// The number of records lost: exact, or the most that it can be; `None` where nobody knows.
    pub fn records(&self) -> Option<u64> {
        match self.lost {
            Lost::Exactly(records) | Lost::AtMost(records) => Some(records),
            Lost::Unknown => None,
        }
    }
}
