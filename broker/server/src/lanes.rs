//! Lanes: how many there are, what their connection ids look like, and the threads that they run on. A lane is one socket of
//! the broker's port, its QUIC endpoint, and the tasks of the connections that come in there.

use std::{cell::Cell, io, num::NonZero, thread, time::Duration};

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use ring::hmac;
use tokio::runtime::{self, Handle};
use tokio_util::sync::CancellationToken;

use crate::settings::MAX_LANES;

/// Most lanes where nobody asked for a number: each has socket buffers of its own, 16 MiB of kernel memory at the defaults.
const MOST_BY_DEFAULT: u8 = 16;
/// Length of a connection id in bytes.
pub(crate) const ID_BYTES: usize = 8;
/// Bytes of a connection id that are its own; the rest says that a broker with this key made them.
const NONCE_BYTES: usize = 4;

/// How many lanes to open: as many as asked for, or one for each core that the process may use. The limits of control groups
/// and affinity masks count.
pub(crate) fn count(asked: Option<u32>) -> u8 {
    let by_default = || {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        u8::try_from(cores).unwrap_or(u8::MAX).min(MOST_BY_DEFAULT)
    };
    asked.map_or_else(by_default, |asked| {
        bounded(usize::try_from(asked).unwrap_or(usize::MAX))
    })
}

/// A number of lanes within the bounds.
pub(crate) fn bounded(lanes: usize) -> u8 {
    u8::try_from(lanes).unwrap_or(u8::MAX).clamp(1, MAX_LANES)
}

/// One of the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) index: u8,
    /// How many there are, at least one.
    pub(crate) of: u8,
}

impl Lane {
    /// All lanes in order.
    pub(crate) fn all(of: u8) -> impl Iterator<Item = Self> {
        (0..of).map(move |index| Self { index, of })
    }

    /// Whether the kernel steers datagrams here whose connection id begins with this byte.
    fn takes(self, first: u8) -> bool {
        first % self.of == self.index
    }

    /// A first byte that is steered here, as random as `random` is otherwise.
    fn first_byte(self, random: u8) -> u8 {
        let even = random - random % self.of;
        even.checked_add(self.index).unwrap_or(self.index)
    }
}

thread_local! {
    /// The id that was made last on this thread.
    static LATEST: Cell<Option<ConnectionId>> = const { Cell::new(None) };
}

/// Does something on this thread and says which id it made, the last if there are several. QUIC makes one while it accepts a
/// connection: the client sends to that id and, unless it moves of its own accord, to no other.
pub(crate) fn with_id_made<T>(act: impl FnOnce() -> T) -> (T, Option<ConnectionId>) {
    LATEST.take();
    let result = act();
    (result, LATEST.take())
}

/// Makes the connection ids of a lane: four random bytes, of which the first leads to the lane, and four that prove that a
/// broker with the same key made them.
pub(crate) struct LaneIds {
    key: hmac::Key,
    lane: Lane,
}

impl LaneIds {
    /// All lanes of a broker share the key, and so do the processes that it has been.
    pub(crate) fn new(key: hmac::Key, lane: Lane) -> Self {
        Self { key, lane }
    }

    fn proof(&self, nonce: &[u8]) -> [u8; ID_BYTES - NONCE_BYTES] {
        let mut proof = [0; ID_BYTES - NONCE_BYTES];
        proof.copy_from_slice(&hmac::sign(&self.key, nonce).as_ref()[..ID_BYTES - NONCE_BYTES]);
        proof
    }
}

impl ConnectionIdGenerator for LaneIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut nonce: [u8; NONCE_BYTES] = rand::random();
        nonce[0] = self.lane.first_byte(nonce[0]);
        let mut id = [0; ID_BYTES];
        id[..NONCE_BYTES].copy_from_slice(&nonce);
        id[NONCE_BYTES..].copy_from_slice(&self.proof(&nonce));
        let id = ConnectionId::new(&id);
        LATEST.set(Some(id));
        id
    }

    /// Takes an id of this lane that any process with the key has made: the connection is gone, and its client is told so.
    /// An id of another lane is not taken. Its connection may well live there, and the datagram has only lost its way; an
    /// answer would end a good connection.
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let Some((nonce, proof)) = id.split_at_checked(NONCE_BYTES) else {
            return Err(InvalidCid);
        };
        if self.lane.takes(nonce[0]) && self.proof(nonce) == proof {
            Ok(())
        } else {
            Err(InvalidCid)
        }
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// One thread for each lane, with a runtime of its own that no other thread helps.
pub struct LaneThreads {
    handles: Vec<Handle>,
    stop: CancellationToken,
}

impl LaneThreads {
    /// Starts as many threads as the setting `lanes` asks for, or one for each core that the process may use.
    ///
    /// # Errors
    /// What the system says when it refuses a thread or a runtime.
    pub fn start(asked: Option<u32>) -> io::Result<Self> {
        let mut threads = Self {
            handles: Vec::new(),
            stop: CancellationToken::new(),
        };
        for index in 0..count(asked) {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            threads.handles.push(runtime.handle().clone());
            let stop = threads.stop.clone();
            thread::Builder::new()
                .name(format!("felix-lane-{index}"))
                .spawn(move || runtime.block_on(stop.cancelled()))?;
        }
        Ok(threads)
    }

    /// The runtimes, one a lane.
    pub fn handles(&self) -> &[Handle] {
        &self.handles
    }
}

impl Drop for LaneThreads {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[7; 32])
    }

    #[test]
    fn ids_lead_to_their_lane_whatever_the_number_of_lanes() {
        for of in [1, 2, 3, 5, 16, MAX_LANES] {
            for lane in Lane::all(of) {
                for random in 0..=u8::MAX {
                    assert_eq!(lane.first_byte(random) % of, lane.index, "{lane:?} {random}");
                }
                let mut ids = LaneIds::new(key(), lane);
                let id = ids.generate_cid();
                assert_eq!(id[0] % of, lane.index);
                assert!(ids.validate(&id).is_ok());
            }
        }
    }

    #[test]
    fn an_id_is_taken_by_its_lane_alone() {
        let lanes: Vec<_> = Lane::all(3).collect();
        let id = LaneIds::new(key(), lanes[1]).generate_cid();
        let taken = lanes
            .iter()
            .map(|lane| LaneIds::new(key(), *lane).validate(&id).is_ok());
        assert_eq!(taken.collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn a_process_with_other_lanes_takes_the_ids_of_a_former_one_where_they_arrive() {
        let id = LaneIds::new(key(), Lane { index: 6, of: 8 }).generate_cid();
        let index = id[0] % 3;
        assert!(LaneIds::new(key(), Lane { index, of: 3 }).validate(&id).is_ok());
        assert!(
            LaneIds::new(key(), Lane { index: 0, of: 1 })
                .validate(&id)
                .is_ok()
        );
    }

    #[test]
    fn ids_of_others_are_refused() {
        let lane = Lane { index: 0, of: 1 };
        let other = hmac::Key::new(hmac::HMAC_SHA256, &[8; 32]);
        let id = LaneIds::new(other, lane).generate_cid();
        let ids = LaneIds::new(key(), lane);
        assert!(ids.validate(&id).is_err());
        assert!(ids.validate(&ConnectionId::new(&[])).is_err());
        assert!(ids.validate(&ConnectionId::new(&[0; 3])).is_err());
    }

    #[test]
    fn what_makes_an_id_is_told_which() {
        let mut ids = LaneIds::new(key(), Lane { index: 0, of: 1 });
        ids.generate_cid();
        assert_eq!(with_id_made(|| ()), ((), None));
        let (id, told) = with_id_made(|| ids.generate_cid());
        assert_eq!(told, Some(id));
    }

    #[test]
    fn what_is_asked_for_goes_before_the_number_of_cores() {
        assert_eq!(count(Some(3)), 3);
        assert!((1..=MOST_BY_DEFAULT).contains(&count(None)));
    }
}
