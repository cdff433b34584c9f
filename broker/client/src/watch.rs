//! Notices that a broker does not answer what it was sent, long before a connection is given up for its silence. Looks at what
//! QUIC has counted now and then: data that is not acknowledged is sent again and again.

use std::time::Duration;

use quinn::{Connection, ConnectionStats, VarInt};
use tokio::time::{MissedTickBehavior, interval};

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(2);

/// Looks in a row at data that nothing at all has answered, after which the broker is dead: 4 to 6 s. As with every sign of
/// death, the cost of an error is a new connection.
const LOOKS: u32 = 3;

/// What was seen last.
#[derive(Debug, Default)]
struct Watch {
    received: u64,
    /// Pieces of data sent when something was received last.
    answered: u64,
    looks: u32,
}

impl Watch {
    /// Takes datagrams received and pieces of data sent so far, repetitions included, and says whether the broker is dead.
    fn look(&mut self, received: u64, sent: u64) -> bool {
        if received != self.received {
            (self.received, self.answered) = (received, sent);
        }
        // Nothing else that is sent calls for an answer for certain: probes for the path's datagram size may be lost for good.
        let waits = sent != self.answered;
        self.looks = if waits { self.looks + 1 } else { 0 };
        self.looks >= LOOKS
    }
}

/// Closes a connection whose broker does not answer. Ends with the connection.
pub(crate) async fn watch(connection: Connection) {
    let mut watch = Watch::default();
    let mut looks = interval(LOOK);
    // After a pause of the whole process the broker's answers are read first.
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while connection.close_reason().is_none() {
        looks.tick().await;
        let ConnectionStats { udp_rx, frame_tx, .. } = connection.stats();
        if watch.look(udp_rx.datagrams, frame_tx.stream) {
            tracing::debug!(broker = %connection.remote_address(), "the broker does not answer");
            connection.close(VarInt::from_u32(0), b"no answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the broker is dead after looks at so much received and sent.
    fn dead_after(looks: &[(u64, u64)]) -> bool {
        let mut watch = Watch::default();
        looks
            .iter()
            .map(|(received, sent)| watch.look(*received, *sent))
            .fold(false, |_, dead| dead)
    }

    #[test]
    fn data_without_any_answer_means_death_but_not_at_once() {
        assert!(!dead_after(&[(5, 5), (5, 6), (5, 7)]));
        // Repetitions come ever more seldom.
        assert!(dead_after(&[(5, 5), (5, 6), (5, 6), (5, 6)]));
    }

    #[test]
    fn silence_on_both_sides_is_no_death() {
        assert!(!dead_after(&[(5, 5); 10]));
    }

    #[test]
    fn any_answer_begins_anew() {
        assert!(!dead_after(&[(5, 5), (5, 6), (5, 7), (6, 7), (6, 8), (6, 9)]));
    }
}
