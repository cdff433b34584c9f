//! The client connections: how many there are, and what QUIC has counted on them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use quinn::{Connection, VarInt};

use crate::{
    gauge::{Counted, Gauge},
    lanes::Lane,
    metrics::{LaneTotals, QuicTotals},
};

/// All present connections. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    places: Gauge,
    present: Arc<Mutex<Present>>,
}

#[derive(Debug, Default)]
struct Present {
    by_id: HashMap<usize, (Lane, Connection)>,
    /// What connections had counted that have ended.
    former: Totals,
}

/// What QUIC has counted: on all connections, and on those of each lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) quic: QuicTotals,
    pub(crate) lanes: Vec<LaneTotals>,
}

/// A connection that is among the present ones until this is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    connections: Connections,
    id: usize,
    _place: Counted,
}

impl Connections {
    pub(crate) fn new(limit: usize, lanes: u8) -> Self {
        let mut present = Present::default();
        present
            .former
            .lanes
            .resize(usize::from(lanes), LaneTotals::default());
        Self {
            places: Gauge::new(limit),
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
    pub(crate) fn enter(&self, connection: &Connection, lane: Lane, place: Counted) -> Entered {
        let id = connection.stable_id();
        self.lock().by_id.insert(id, (lane, connection.clone()));
        Entered {
            connections: self.clone(),
            id,
            _place: place,
        }
    }

    /// Closes all with a code and a reason.
    pub(crate) fn close_all(&self, code: VarInt, reason: &str) {
        for (_, connection) in self.lock().by_id.values() {
            connection.close(code, reason.as_bytes());
        }
    }

    /// What QUIC has counted on all connections, present and former.
    pub(crate) fn totals(&self) -> Totals {
        let present = self.lock();
        let mut totals = present.former.clone();
        for (lane, connection) in present.by_id.values() {
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Present> {
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

impl Drop for Entered {
    fn drop(&mut self) {
        let mut present = self.connections.lock();
        if let Some((lane, connection)) = present.by_id.remove(&self.id) {
            add(&mut present.former, lane, &connection);
        }
    }
}
