//! What is compared with what, and the bound that each ratio must keep. Pure.

use clap::ValueEnum;

use crate::case::plan::Middle;

/// A figure of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Figure {
    /// Bytes of values delivered a second.
    Bytes,
    /// Records delivered a second.
    Deliveries,
    /// Publish to delivery, median.
    P50,
    /// Publish to delivery, 99th percentile.
    P99,
}

impl Figure {
    /// Where it stands in what a run prints.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Bytes => "deliveredBytesPerSecond",
            Self::Deliveries => "deliveriesPerSecond",
            Self::P50 => "p50Nanoseconds",
            Self::P99 => "p99Nanoseconds",
        }
    }

    /// For people.
    pub(super) fn describe(self, value: f64) -> String {
        match self {
            Self::Bytes => format!("{:.0} MB/s", value / 1e6),
            Self::Deliveries => format!("{value:.0}/s"),
            Self::P50 => format!("p50 {:.1} us", value / 1e3),
            Self::P99 => format!("p99 {:.1} us", value / 1e3),
        }
    }

    /// Whether a ratio keeps a bound.
    pub(super) fn keeps(self, ratio: f64, bound: f64) -> bool {
        match self {
            Self::Bytes | Self::Deliveries => ratio >= bound,
            Self::P50 | Self::P99 => ratio <= bound,
        }
    }

    /// The bound for people.
    pub(super) fn describe_bound(self, bound: f64) -> String {
        match self {
            Self::Bytes | Self::Deliveries => format!("≥ {bound:.2}"),
            Self::P50 | Self::P99 => format!("≤ {bound:.2}"),
        }
    }
}

/// A case of the table.
pub(super) struct TableCase {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Flags of `felix-bench case`.
    pub(super) flags: &'static str,
    /// Against what, which figure, and the bound of the ratio.
    bounds: &'static [(Middle, Figure, f64)],
}

use Figure::{Bytes, Deliveries, P50, P99};
use Middle::{Nats, NatsPlain, Relay, RelayEnds};

/// Bounds of batches against raw relay, relay with our ends, and NATS.
macro_rules! rates {
    ($relay:literal, $ends:literal, $nats:literal $(, $plain:literal)?) => {
        &[(Relay, Bytes, $relay), (RelayEnds, Bytes, $ends), (Nats, Bytes, $nats) $(, (NatsPlain, Bytes, $plain))?]
    };
}

const LATENCIES: &[(Middle, Figure, f64)] = &[
    (Relay, P50, 1.2),
    (Relay, P99, 1.5),
    (RelayEnds, P50, 1.1),
    (RelayEnds, P99, 1.3),
    (Nats, P50, 1.0),
    (Nats, P99, 1.0),
];

pub(super) const CASES: &[TableCase] = &[
    TableCase {
        name: "1to1-256",
        title: "batch 64, 1 to 1, 256 B",
        flags: "--payload 256 --batch 64",
        bounds: rates!(0.70, 0.92, 2.0),
    },
    TableCase {
        name: "1to1-1024",
        title: "batch 64, 1 to 1, 1 KiB",
        flags: "--payload 1024 --batch 64",
        bounds: rates!(0.80, 0.92, 1.5, 1.0),
    },
    TableCase {
        name: "1to1-4096",
        title: "batch 64, 1 to 1, 4 KiB",
        flags: "--payload 4096 --batch 64",
        bounds: rates!(0.85, 0.92, 1.5),
    },
    TableCase {
        name: "1to10-1024",
        title: "batch 64, 1 to 10, 1 KiB",
        flags: "--payload 1024 --batch 64 --fanout 10",
        bounds: rates!(0.75, 0.92, 1.5),
    },
    TableCase {
        name: "1to10-4096",
        title: "batch 64, 1 to 10, 4 KiB",
        flags: "--payload 4096 --batch 64 --fanout 10",
        bounds: rates!(0.85, 0.92, 1.5),
    },
    TableCase {
        name: "acked-1to1",
        title: "batch 1, acked, 256 B, 1 to 1",
        flags: "--payload 256 --acked --near-shard",
        bounds: LATENCIES,
    },
    TableCase {
        name: "acked-1to10",
        title: "batch 1, acked, 256 B, 1 to 10",
        flags: "--payload 256 --acked --fanout 10 --near-shard",
        bounds: LATENCIES,
    },
    TableCase {
        name: "1to500",
        title: "batch 1, 256 B, 1 to 500",
        flags: "--payload 256 --fanout 500",
        bounds: &[(RelayEnds, Deliveries, 0.8), (Nats, Deliveries, 1.0)],
    },
    TableCase {
        name: "64publishers",
        title: "64 publishers of single records to 1 shard, 256 B",
        flags: "--payload 256 --publishers 64",
        bounds: &[(RelayEnds, Deliveries, 0.9), (Nats, Deliveries, 1.0)],
    },
];

/// Cases behind a path that loses, reorders and doubles datagrams. In layout 2 only: the path has a process of its own there.
const PATHS: &[TableCase] = &[
    TableCase {
        name: "path-0.1",
        title: "batch 64, 1 to 1, 1 KiB; of the datagrams 0.1 % lost, 0.1 % late, 0.1 % twice",
        flags: "--payload 1024 --batch 64 --lost 0.1 --late 0.1 --twice 0.1",
        bounds: THROUGH_PATH,
    },
    TableCase {
        name: "path-1",
        title: "the same, 1 % each",
        flags: "--payload 1024 --batch 64 --lost 1 --late 1 --twice 1",
        bounds: THROUGH_PATH,
    },
    TableCase {
        name: "path-5",
        title: "the same, 5 % each",
        flags: "--payload 1024 --batch 64 --lost 5 --late 5 --twice 5",
        bounds: THROUGH_PATH,
    },
];

const THROUGH_PATH: &[(Middle, Figure, f64)] = &[(Relay, Bytes, 0.9), (RelayEnds, Bytes, 0.9)];

/// One comparison: the broker and one other, in one layout.
pub(super) struct Comparison {
    pub(super) case: &'static TableCase,
    pub(super) layout: u8,
    pub(super) against: Middle,
    /// Figures and the bounds of their ratios.
    pub(super) figures: Vec<(Figure, f64)>,
}

impl Comparison {
    /// For `--only`, and for people.
    pub(super) fn name(&self) -> String {
        format!("layout{}/{}/{}", self.layout, self.case.name, flag(self.against))
    }
}

/// What a middle is called on the command line.
pub(super) fn flag(middle: Middle) -> String {
    middle
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// All comparisons that one of `only` asks for; all where nothing is asked for.
pub(super) fn comparisons(only: &[String]) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for (layout, cases) in [(1, CASES), (2, CASES), (2, PATHS)] {
        for case in cases {
            for against in [Relay, RelayEnds, Nats, NatsPlain] {
                // NATS is a process of its own.
                if layout == 1 && matches!(against, Nats | NatsPlain) {
                    continue;
                }
                let bounds = case.bounds.iter().filter(|(other, ..)| *other == against);
                let figures: Vec<_> = bounds.map(|(_, figure, bound)| (*figure, *bound)).collect();
                let comparison = Comparison {
                    case,
                    layout,
                    against,
                    figures,
                };
                if !comparison.figures.is_empty() && is_asked_for(&comparison.name(), only) {
                    comparisons.push(comparison);
                }
            }
        }
    }
    comparisons
}

/// Whether a name holds all texts of one of the wishes.
pub(super) fn is_asked_for(name: &str, only: &[String]) -> bool {
    let name = format!("{name}/");
    only.is_empty()
        || only
            .iter()
            .any(|wish| wish.split(',').all(|text| name.contains(text)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn every_case_is_one_that_can_be_measured() {
        for comparison in comparisons(&[]) {
            let line = format!(
                "felix-bench case --layout {} --target {} {}",
                comparison.layout,
                flag(comparison.against),
                comparison.case.flags
            );
            let Command::Case(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
                panic!("not a case: {line}")
            };
            assert_eq!(args.check(), Ok(()), "{line}");
        }
    }

    #[test]
    fn the_table_has_two_layouts_and_nats_in_the_second() {
        let all = comparisons(&[]);
        let of = |layout, nats| {
            let is_nats = |one: &&Comparison| matches!(one.against, Nats | NatsPlain) == nats;
            all.iter()
                .filter(|one| one.layout == layout)
                .filter(is_nats)
                .count()
        };
        assert_eq!(
            (of(1, false), of(2, false), of(1, true), of(2, true)),
            (16, 22, 0, 10)
        );
    }

    #[test]
    fn texts_choose() {
        let only = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|&text| text.into()).collect();
            comparisons(&texts)
                .iter()
                .map(Comparison::name)
                .collect::<Vec<_>>()
        };
        assert_eq!(only(&["layout2,1to1-256,nats"]), ["layout2/1to1-256/nats"]);
        assert_eq!(
            only(&["layout1,1to500", "layout1,/relay/,1to10-1"]),
            ["layout1/1to10-1024/relay", "layout1/1to500/relay-ends"]
        );
        assert!(only(&["nothing"]).is_empty());
    }

    #[test]
    fn rates_have_floors_and_latencies_ceilings() {
        assert!(Bytes.keeps(0.7, 0.7) && !Bytes.keeps(0.69, 0.7));
        assert!(P99.keeps(1.5, 1.5) && !P50.keeps(1.21, 1.2));
        assert_eq!(
            (Bytes.describe(5.3e8), P50.describe(21_400.0)),
            ("530 MB/s".into(), "p50 21.4 us".into())
        );
    }
}
