//! The client connections: how many there are, and what QUIC has counted on them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use quinn::{Connection, VarInt};

use crate::{
    gauge::{Counted, Gauge},
    metrics::QuicTotals,
};

/// All present connections. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    places: Gauge,
    present: Arc<Mutex<Present>>,
}

#[derive(Debug, Default)]
struct Present {
    by_id: HashMap<usize, Connection>,
    /// What connections had counted that have ended.
    former: QuicTotals,
}

/// A connection that is among the present ones until this is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    connections: Connections,
    id: usize,
    _place: Counted,
}

impl Connections {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            places: Gauge::new(limit),
            present: Arc::default(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.places.count()
    }

    /// Takes a place before the handshake, if there is one left.
    pub(crate) fn take_place(&self) -> Option<Counted> {
        self.places.enter()
    }

    /// Adds a connection after the handshake.
    pub(crate) fn enter(&self, connection: &Connection, place: Counted) -> Entered {
        let id = connection.stable_id();
        self.lock().by_id.insert(id, connection.clone());
        Entered {
            connections: self.clone(),
            id,
            _place: place,
        }
    }

    /// Closes all with a code and a reason.
    pub(crate) fn close_all(&self, code: VarInt, reason: &str) {
        for connection in self.lock().by_id.values() {
            connection.close(code, reason.as_bytes());
        }
    }

    /// What QUIC has counted on all connections.
    pub(crate) fn totals(&self) -> QuicTotals {
        let present = self.lock();
        let mut totals = present.former;
        for connection in present.by_id.values() {
            add(&mut totals, connection);
            let mtu = u64::from(connection.stats().path.current_mtu);
            totals.largest_mtu = totals.largest_mtu.max(mtu);
            totals.smallest_mtu = if totals.smallest_mtu == 0 {
                mtu
            } else {
                totals.smallest_mtu.min(mtu)
            };
        }
        totals
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(totals: &mut QuicTotals, connection: &Connection) {
    let path = connection.stats().path;
    totals.sent_packets += path.sent_packets;
    totals.lost_packets += path.lost_packets;
    totals.congestion_events += path.congestion_events;
    totals.black_holes += path.black_holes_detected;
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut present = self.connections.lock();
        if let Some(connection) = present.by_id.remove(&self.id) {
            add(&mut present.former, &connection);
        }
    }
}
