//! One direction of a path: what becomes of each datagram, decided by the seed and the datagram's number alone, so that a seed
//! repeats it. Pure.

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// A datagram that is late comes behind at most so many that were sent after it. QUIC takes a packet for lost once one that
/// was sent three later is acknowledged, so both sides of that are met.
pub const REACH: u64 = 8;

/// How often a path does what, as shares of all datagrams from 0 to 1; the three together are at most 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Datagrams that vanish.
    pub lost: f64,
    /// Datagrams that come behind later ones.
    pub late: f64,
    /// Datagrams that come twice.
    pub twice: f64,
}

impl Faults {
    /// A path that does nothing to anyone.
    pub const NONE: Self = Self {
        lost: 0.0,
        late: 0.0,
        twice: 0.0,
    };

    /// All three faults, each in this many of a hundred datagrams.
    pub const fn of_each(percent: f64) -> Self {
        let share = percent / 100.0;
        Self {
            lost: share,
            late: share,
            twice: share,
        }
    }

    /// What becomes of a datagram for which `place` was drawn, evenly from 0 to 1.
    fn fate(self, place: f64, behind: u64) -> Fate {
        if place < self.lost {
            Fate::Lost
        } else if place < self.lost + self.late {
            Fate::Late { behind }
        } else if place < self.lost + self.late + self.twice {
            Fate::Twice
        } else {
            Fate::Passes
        }
    }
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Passes,
    /// It vanishes.
    Lost,
    /// It goes on after so many that came later, 1 to [`REACH`].
    Late {
        /// How many.
        behind: u64,
    },
    /// It goes on two times.
    Twice,
}

impl Fate {
    /// How many times the datagram goes on at once.
    pub const fn times(self) -> usize {
        match self {
            Self::Passes => 1,
            Self::Lost | Self::Late { .. } => 0,
            Self::Twice => 2,
        }
    }
}

/// What is to be done when a datagram has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// With this datagram.
    pub fate: Fate,
    /// Datagrams that were held back and go on behind it.
    pub held: Vec<Vec<u8>>,
}

/// One direction. It holds at most [`REACH`] datagrams, since each leaves when so many came later.
#[derive(Debug)]
pub struct Line {
    faults: Faults,
    random: StdRng,
    taken: u64,
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    datagram: Vec<u8>,
    /// It leaves when so many have come in all.
    until: u64,
}

impl Line {
    /// A direction on which nothing has come yet.
    pub fn new(faults: Faults, seed: u64) -> Self {
        Self {
            faults,
            random: StdRng::seed_from_u64(seed),
            taken: 0,
            held: Vec::new(),
        }
    }

    /// A datagram has come.
    pub fn take(&mut self, datagram: &[u8]) -> Step {
        self.taken += 1;
        // Both are drawn for each, so that what becomes of a datagram does not depend on what became of others.
        let (place, behind) = (self.random.random(), self.random.random_range(1..=REACH));
        let fate = self.faults.fate(place, behind);
        let taken = self.taken;
        let due = self.held.extract_if(.., |held| held.until <= taken);
        let held = due.map(|held| held.datagram).collect();
        if let Fate::Late { behind } = fate {
            self.held.push(Held {
                datagram: datagram.to_vec(),
                until: taken + behind,
            });
        }
        Step { fate, held }
    }

    /// Whether something is held back.
    pub const fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Gives back what is held: nothing more comes that it could be behind.
    pub fn release(&mut self) -> impl Iterator<Item = Vec<u8>> {
        self.held.drain(..).map(|held| held.datagram)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The numbers of the datagrams that come out, in order, when so many go in.
    fn out(faults: Faults, seed: u64, count: u64) -> (Vec<u64>, Vec<Fate>) {
        let mut line = Line::new(faults, seed);
        let number = |datagram: Vec<u8>| u64::from_le_bytes(datagram.try_into().unwrap());
        let (mut out, mut fates) = (Vec::new(), Vec::new());
        for n in 0..count {
            let step = line.take(&n.to_le_bytes());
            out.extend(std::iter::repeat_n(n, step.fate.times()));
            out.extend(step.held.into_iter().map(number));
            fates.push(step.fate);
            assert!(line.held.len() as u64 <= REACH);
        }
        out.extend(line.release().map(number));
        assert!(!line.holds());
        (out, fates)
    }

    fn faults() -> impl Strategy<Value = Faults> {
        (0.0..0.34, 0.0..0.33, 0.0..0.33).prop_map(|(lost, late, twice)| Faults { lost, late, twice })
    }

    proptest! {
        #[test]
        fn each_comes_as_often_as_its_fate_says_and_not_later(faults in faults(), seed: u64, count in 0_u64..400) {
            let (out, fates) = out(faults, seed, count);
            for (n, fate) in (0..count).zip(&fates) {
                let times = out.iter().filter(|other| **other == n).count();
                let expected = match fate {
                    Fate::Late { .. } => 1,
                    Fate::Passes | Fate::Lost | Fate::Twice => fate.times(),
                };
                prop_assert_eq!(times, expected);
            }
            for (place, n) in out.iter().enumerate() {
                let later = out[..place].iter().filter(|other| *other > n);
                // Each of those that overtook it may have come twice.
                prop_assert!(later.count() as u64 <= 2 * REACH);
            }
        }

        #[test]
        fn a_seed_repeats_it(faults in faults(), seed: u64) {
            prop_assert_eq!(out(faults, seed, 100), out(faults, seed, 100));
        }

        #[test]
        fn what_becomes_of_a_datagram_does_not_depend_on_other_faults(late in 0.0..0.5, twice in 0.0..0.4, seed: u64) {
            let lost = |late, twice| {
                let (_, fates) = out(Faults { lost: 0.1, late, twice }, seed, 200);
                fates.into_iter().map(|fate| fate == Fate::Lost).collect::<Vec<_>>()
            };
            prop_assert_eq!(lost(0.0, 0.0), lost(late, twice));
        }
    }

    #[test]
    fn without_faults_all_pass_in_order() {
        assert_eq!(out(Faults::NONE, 1, 100).0, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn faults_come_as_often_as_asked_for_and_late_ones_at_every_distance() {
        const COUNT: u64 = 100_000;
        let (_, fates) = out(Faults::of_each(5.0), 7, COUNT);
        let share = |wanted: fn(&Fate) -> bool| {
            fates.iter().filter(|fate| wanted(fate)).count() as f64 / COUNT as f64
        };
        for share in [
            share(|fate| *fate == Fate::Lost),
            share(|fate| matches!(fate, Fate::Late { .. })),
            share(|fate| *fate == Fate::Twice),
        ] {
            assert!((0.045..0.055).contains(&share), "{share}");
        }
        for distance in 1..=REACH {
            assert!(fates.contains(&Fate::Late { behind: distance }));
        }
    }

    #[test]
    fn one_that_is_late_comes_behind_as_many_as_were_drawn() {
        let late = Faults {
            late: 0.02,
            ..Faults::NONE
        };
        let (out, fates) = out(late, 3, 1000);
        let alone = |n: usize| {
            let near = n.saturating_sub(REACH as usize)..(n + 1 + REACH as usize).min(1000);
            near.filter(|other| fates[*other] != Fate::Passes).count() == 1
        };
        let mut seen = 0;
        for (n, fate) in fates.iter().enumerate() {
            let Fate::Late { behind } = fate else { continue };
            if alone(n) && n + (REACH as usize) < 1000 {
                seen += 1;
                let place = out.iter().position(|other| *other == n as u64).unwrap();
                assert_eq!(place as u64, n as u64 + behind);
            }
        }
        assert!(seen > 0);
    }
}
