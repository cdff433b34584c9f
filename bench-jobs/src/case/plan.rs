//! What one measurement is about, and the figures that follow from it. Pure.

use std::sync::Arc;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::payload::{HEADER_BYTES, Pattern};

/// Bytes of values that the publisher may be ahead of the slowest subscriber. One figure for every target, large enough
/// that none of them waits for it on loopback, small enough that nothing is dropped and a run ends soon.
const IN_FLIGHT_BYTES: u64 = 8 << 20;

/// The same for the deliveries of all subscribers together.
const IN_FLIGHT_DELIVERED_BYTES: u64 = 64 << 20;

/// How many times in the whole of what may be in flight subscribers say how far they are.
const REPORTS_IN_FLIGHT: u64 = 8;

/// What stands between publisher and subscribers.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Middle {
    /// A Felix broker, with Felix clients.
    Felix,
    /// Bytes in, bytes out, between bare QUIC ends: no framing, no parsing, no checking.
    Relay,
    /// A forwarder that stamps batches and hands them on, with Felix clients.
    RelayEnds,
    /// NATS core over TLS, with its Rust client.
    Nats,
    /// NATS core without TLS.
    NatsPlain,
}

/// One measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Case {
    pub(crate) middle: Middle,
    /// Bytes asked for a value.
    pub(crate) payload: usize,
    /// Records that are sent in one piece.
    pub(crate) batch: u64,
    /// Subscribers, on a connection each.
    pub(crate) fanout: usize,
    /// Tasks that publish, on one connection.
    pub(crate) publishers: usize,
    /// One record in flight: the next leaves when all subscribers have the last and it is acknowledged.
    pub(crate) acked: bool,
    /// Felix clients ask to meet on the thread of the broker that belongs to the shard.
    pub(crate) near_shard: bool,
    /// NATS: records after which the client's buffer is flushed; 0 leaves it to the client.
    pub(crate) flush_every: u64,
    /// Bytes of values that the publisher may be ahead; `None` for what is usual.
    pub(crate) in_flight_bytes: Option<u64>,
    /// Tells this run's records from all others.
    pub(crate) run: u32,
}

impl Case {
    /// Bytes of a value.
    pub(crate) fn value_bytes(&self) -> usize {
        self.payload.max(HEADER_BYTES)
    }

    /// What its values look like: made before the window opens, for it is work.
    pub(crate) fn pattern(&self) -> Arc<Pattern> {
        Pattern::new(self.run, self.value_bytes(), self.publishers)
    }

    /// Records that the publisher may be ahead of the slowest subscriber.
    pub(crate) fn in_flight(&self) -> u64 {
        if self.acked {
            return 1;
        }
        let usual = IN_FLIGHT_BYTES.min(IN_FLIGHT_DELIVERED_BYTES / (self.fanout as u64).max(1));
        let bytes = self.in_flight_bytes.unwrap_or(usual);
        (bytes / self.value_bytes() as u64).max(2 * self.batch)
    }

    /// Records after which subscribers say how far they are.
    pub(crate) fn step(&self) -> u64 {
        (self.in_flight() / REPORTS_IN_FLIGHT).max(1)
    }

    /// Why it cannot be measured, if it cannot.
    pub(crate) fn check(&self, layout: u8) -> Result<(), String> {
        let nats = matches!(self.middle, Middle::Nats | Middle::NatsPlain);
        if nats && layout == 1 {
            return Err("NATS is a process of its own: measure it with --layout 2".into());
        }
        if self.publishers > 1 && (self.batch > 1 || self.acked) {
            return Err(
                "many publishers send single records in a closed loop each: leave out --batch and --acked"
                    .into(),
            );
        }
        if self.acked && self.batch > 1 {
            return Err("--acked measures single records: leave out --batch".into());
        }
        if self.middle == Middle::Relay && self.publishers > 1 {
            return Err("the raw relay has no records that many publishers could share a stream with".into());
        }
        Ok(())
    }
}

/// When figures are taken, in ns of the machine's monotonic clock, which all processes share.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Window {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
}

impl Window {
    pub(crate) fn contains(&self, now_ns: u64) -> bool {
        (self.begin_ns..self.end_ns).contains(&now_ns)
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.begin_ns) as f64 / 1e9
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn case(middle: Middle) -> Case {
        Case {
            middle,
            payload: 256,
            batch: 64,
            fanout: 1,
            publishers: 1,
            acked: false,
            near_shard: false,
            flush_every: 0,
            in_flight_bytes: None,
            run: 7,
        }
    }

    #[test]
    fn a_publisher_can_always_go_on_once_everything_has_arrived() {
        for (payload, batch, fanout) in [(256, 64, 1), (4096, 64, 10), (256, 1, 500), (1 << 20, 64, 1000)] {
            let case = Case {
                payload,
                batch,
                fanout,
                ..case(Middle::Felix)
            };
            // Of what arrived, less than a step may not have been told.
            assert!(case.step() - 1 + batch <= case.in_flight(), "{case:?}");
        }
    }

    #[test]
    fn one_record_in_flight_is_told_of_each() {
        let case = Case {
            batch: 1,
            acked: true,
            ..case(Middle::Relay)
        };
        assert_eq!((case.in_flight(), case.step()), (1, 1));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let bad = [
            (1, case(Middle::Nats)),
            (
                2,
                Case {
                    publishers: 64,
                    ..case(Middle::Felix)
                },
            ),
            (
                2,
                Case {
                    acked: true,
                    ..case(Middle::Felix)
                },
            ),
            (
                2,
                Case {
                    publishers: 64,
                    batch: 1,
                    ..case(Middle::Relay)
                },
            ),
        ];
        for (layout, case) in bad {
            assert!(case.check(layout).is_err(), "{case:?}");
        }
        assert_eq!(case(Middle::NatsPlain).check(2), Ok(()));
    }

    #[test]
    fn a_window_holds_its_begin_and_not_its_end() {
        let window = Window {
            begin_ns: 10,
            end_ns: 20,
        };
        assert!(window.contains(10) && window.contains(19) && !window.contains(20) && !window.contains(9));
    }
}
