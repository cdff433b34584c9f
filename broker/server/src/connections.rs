//! The client connections: how many there are, what each may have under way, and what QUIC has counted on them.

mod windows;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quinn::{Connection, VarInt};

use crate::{
    gauge::{Counted, Gauge},
    lanes::Lane,
    memory::{Budget, InFlight, OWN_STREAMS},
    metrics::{LaneTotals, QuicTotals},
};
pub(crate) use windows::{FIRST_WINDOW, STREAM_WINDOW};
use windows::{Parking, Windows};

/// All present connections. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    places: Gauge,
    in_flight: InFlight,
    present: Arc<Mutex<Present>>,
}

#[derive(Debug)]
struct Present {
    by_id: HashMap<usize, Member>,
    /// Connections with subscriptions share the send window, those with publishers the receive window.
    send: Windows,
    receive: Windows,
    parking: Parking,
    /// What connections had counted that have ended.
    former: Totals,
}

/// What QUIC has counted: on all connections, and on those of each lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) quic: QuicTotals,
    pub(crate) lanes: Vec<LaneTotals>,
}

#[derive(Debug)]
struct Member {
    lane: Lane,
    connection: Connection,
    subscriptions: usize,
    publishers: usize,
    parked: usize,
}

/// What a stream of a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Publish,
    Subscribe,
}

/// A connection that is among the present ones until this is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    connections: Connections,
    id: usize,
    in_flight: InFlight,
    own_streams: Gauge,
    _place: Counted,
}

impl Connections {
    pub(crate) fn new(limit: usize, lanes: u8, budget: &Budget, in_flight: InFlight) -> Self {
        let parking = budget.receive / 4;
        let mut former = Totals::default();
        former.lanes.resize(usize::from(lanes), LaneTotals::default());
        let present = Present {
            by_id: HashMap::new(),
            send: Windows::new(budget.send, limit),
            receive: Windows::new(budget.receive - parking, limit),
            parking: Parking::new(parking),
            former,
        };
        Self {
            places: Gauge::new(limit),
            in_flight,
            present: Arc::new(Mutex::new(present)),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.places.count()
    }

    /// Takes a place before the handshake, if there is one left.
    pub(crate) fn take_place(&self) -> Option<Counted> {
        self.places.enter()
    }

    /// Adds a connection of a lane after the handshake.
    pub(crate) fn enter(&self, connection: &Connection, lane: Lane, place: Counted) -> Arc<Entered> {
        let id = connection.stable_id();
        let member = Member {
            lane,
            connection: connection.clone(),
            subscriptions: 0,
            publishers: 0,
            parked: 0,
        };
        self.lock().by_id.insert(id, member);
        Arc::new(Entered {
            connections: self.clone(),
            id,
            in_flight: self.in_flight.for_connection(),
            own_streams: Gauge::new(OWN_STREAMS),
            _place: place,
        })
    }

    /// Closes all with a code and a reason.
    pub(crate) fn close_all(&self, code: VarInt, reason: &str) {
        for member in self.lock().by_id.values() {
            member.connection.close(code, reason.as_bytes());
        }
    }

    /// What QUIC has counted on all connections, present and former.
    pub(crate) fn totals(&self) -> Totals {
        let present = self.lock();
        let mut totals = present.former.clone();
        for Member { lane, connection, .. } in present.by_id.values() {
            let mtu = u64::from(add(&mut totals, *lane, connection));
            if let Some(lane) = totals.lanes.get_mut(usize::from(lane.index)) {
                lane.connections += 1;
            }
            let quic = &mut totals.quic;
            quic.largest_mtu = quic.largest_mtu.max(mtu);
            quic.smallest_mtu = if quic.smallest_mtu == 0 {
                mtu
            } else {
                quic.smallest_mtu.min(mtu)
            };
        }
        totals
    }

    /// Bytes that the connections' send and receive windows allow at present.
    pub(crate) fn windows(&self) -> (u64, u64) {
        let present = self.lock();
        let all = present.by_id.len();
        let receive = present.receive.promised(all) + present.parking.promised();
        (present.send.promised(all), receive)
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds what a connection has counted, and gives its largest datagram in bytes.
fn add(totals: &mut Totals, lane: Lane, connection: &Connection) -> u16 {
    let stats = connection.stats();
    let quic = &mut totals.quic;
    quic.sent_packets += stats.path.sent_packets;
    quic.lost_packets += stats.path.lost_packets;
    quic.congestion_events += stats.path.congestion_events;
    quic.black_holes += stats.path.black_holes_detected;
    if let Some(lane) = totals.lanes.get_mut(usize::from(lane.index)) {
        lane.received_bytes += stats.udp_rx.bytes;
        lane.sent_bytes += stats.udp_tx.bytes;
    }
    stats.path.current_mtu
}

impl Present {
    /// A stream of a connection comes or goes.
    fn change(&mut self, id: usize, what: Use, more: bool) {
        let Some(member) = self.by_id.get_mut(&id) else {
            return;
        };
        let (streams, windows) = match what {
            Use::Publish => (&mut member.publishers, &mut self.receive),
            Use::Subscribe => (&mut member.subscriptions, &mut self.send),
        };
        let was_active = *streams > 0;
        *streams = if more {
            *streams + 1
        } else {
            streams.saturating_sub(1)
        };
        let is_active = *streams > 0;
        if was_active == is_active {
            return;
        }
        if windows.change(is_active) {
            // The number of those that share has doubled or halved: all get another part.
            self.by_id.values().for_each(|member| self.set(member, what));
        } else if let Some(member) = self.by_id.get(&id) {
            self.set(member, what);
        }
    }

    fn set(&self, member: &Member, what: Use) {
        match what {
            Use::Publish => {
                let parked = member.parked as u64 * u64::from(STREAM_WINDOW);
                let window = self.receive.of(member.publishers > 0) + parked;
                let window = VarInt::from_u64(window).unwrap_or(VarInt::MAX);
                member.connection.set_receive_window(window);
            }
            Use::Subscribe => {
                let window = self.send.of(member.subscriptions > 0);
                member.connection.set_send_window(window);
            }
        }
    }

    /// A publisher of a connection stops reading, or reads again.
    fn park(&mut self, id: usize, more: bool) {
        let Some(member) = self.by_id.get_mut(&id) else {
            return;
        };
        member.parked = if more {
            member.parked + 1
        } else {
            member.parked.saturating_sub(1)
        };
        if let Some(member) = self.by_id.get(&id) {
            self.set(member, Use::Publish);
        }
    }
}

impl Entered {
    /// The part of the memory for batches being read that this connection may take.
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// A place for a further stream: one of the connection's own, else one of those that all connections share.
    pub(crate) fn stream_place(&self, shared: &Gauge) -> Option<Counted> {
        self.own_streams.enter().or_else(|| shared.enter())
    }

    /// Counts a stream that publishes or subscribes; windows follow.
    pub(crate) fn begin(self: &Arc<Self>, what: Use) -> InUse {
        self.connections.lock().change(self.id, what, true);
        InUse {
            entered: Arc::clone(self),
            what,
        }
    }

    /// Widens the connection's receive window by what a publisher that is not read may take of it, so that others on the
    /// connection have as much as before. `None` when there is no memory for that.
    pub(crate) fn park(self: &Arc<Self>) -> Option<Parked> {
        let mut present = self.connections.lock();
        if !present.parking.enter() {
            return None;
        }
        present.park(self.id, true);
        Some(Parked(Arc::clone(self)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut present = self.connections.lock();
        if let Some(member) = present.by_id.remove(&self.id) {
            add(&mut present.former, member.lane, &member.connection);
        }
    }
}

/// A stream that is counted for its connection until this is dropped.
#[derive(Debug)]
pub(crate) struct InUse {
    entered: Arc<Entered>,
    what: Use,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.entered
            .connections
            .lock()
            .change(self.entered.id, self.what, false);
    }
}

/// A publisher that is not read until this is dropped.
#[derive(Debug)]
pub(crate) struct Parked(Arc<Entered>);

impl Drop for Parked {
    fn drop(&mut self) {
        let mut present = self.0.connections.lock();
        present.parking.leave();
        present.park(self.0.id, false);
    }
}
