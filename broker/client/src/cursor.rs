//! Where a subscription of one shard stands, and what it asks for when it comes back. Pure.

use felix_wire::{Deliver, Gap, Incarnation, Offset, Start, Subscribed};

/// The frame does not continue where the last one ended: the broker would be hiding records.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the broker answers from offset {found} on, expected was {expected}")]
pub(crate) struct OutOfPlace {
    found: Offset,
    expected: Offset,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    first: Start,
    incarnation: Option<Incarnation>,
    /// The next offset that must be answered for; `None` before the first answer and at the edge of two lives.
    next: Option<Offset>,
}

impl Cursor {
    pub(crate) fn new(first: Start) -> Self {
        Self {
            first,
            incarnation: None,
            next: None,
        }
    }

    /// What to subscribe from: the user's start at first, later the place reached in the life it was reached in.
    pub(crate) fn request(&self) -> (Start, Incarnation) {
        match (self.next, self.incarnation) {
            (Some(next), Some(incarnation)) => (Start::Offset(next), incarnation),
            // Between two lives: the present one from its beginning, nothing of it has been seen.
            (None, Some(incarnation)) => (Start::Earliest, incarnation),
            (_, None) => (self.first, Incarnation(0)),
        }
    }

    /// The broker has registered the subscription.
    pub(crate) fn subscribed(&mut self, subscribed: &Subscribed) {
        let same_life = self
            .incarnation
            .is_none_or(|known| known == subscribed.incarnation);
        if same_life && self.next.is_none() {
            self.next = Some(subscribed.from);
        }
        if !same_life {
            // A gap that says so comes next; then offsets begin anew.
            self.next = None;
        }
        self.incarnation = Some(subscribed.incarnation);
    }

    /// A range was answered with records.
    pub(crate) fn delivered(&mut self, deliver: &Deliver) -> Result<(), OutOfPlace> {
        self.advance(deliver.from, Some(deliver.to))
    }

    /// A range was answered with a gap.
    pub(crate) fn skipped(&mut self, gap: &Gap) -> Result<(), OutOfPlace> {
        self.advance(gap.from, gap.to)
    }

    fn advance(&mut self, from: Offset, to: Option<Offset>) -> Result<(), OutOfPlace> {
        match self.next {
            Some(expected) if expected != from => Err(OutOfPlace {
                found: from,
                expected,
            }),
            Some(_) | None => {
                self.next = to;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use felix_wire::{GapReason, Lost, Selection, SlowPolicy};

    use super::*;

    const LIFE: Incarnation = Incarnation(7);
    const NEXT_LIFE: Incarnation = Incarnation(8);

    fn subscribed(incarnation: Incarnation, from: u64) -> Subscribed {
        Subscribed {
            incarnation,
            from: Offset(from),
            policy: Some(SlowPolicy::DropNew),
            window: 1,
        }
    }

    fn deliver(from: u64, to: u64) -> Deliver {
        Deliver {
            from: Offset(from),
            to: Offset(to),
            selection: Selection::All,
            batch: Default::default(),
        }
    }

    fn gap(from: u64, to: Option<u64>) -> Gap {
        let reason = if to.is_some() {
            GapReason::DropNew
        } else {
            GapReason::FormerIncarnation
        };
        Gap {
            from: Offset(from),
            to: to.map(Offset),
            reason,
            lost: Lost::AtMost(1),
        }
    }

    #[test]
    fn it_comes_back_where_it_was() {
        let mut cursor = Cursor::new(Start::Latest);
        assert_eq!(cursor.request(), (Start::Latest, Incarnation(0)));
        cursor.subscribed(&subscribed(LIFE, 100));
        assert_eq!(
            cursor.request(),
            (Start::Offset(Offset(100)), LIFE),
            "latest is asked for once only"
        );
        cursor.delivered(&deliver(100, 110)).unwrap();
        cursor.skipped(&gap(110, Some(150))).unwrap();
        assert_eq!(cursor.request(), (Start::Offset(Offset(150)), LIFE));
        cursor.subscribed(&subscribed(LIFE, 150));
        cursor.delivered(&deliver(150, 151)).unwrap();
    }

    #[test]
    fn a_hole_that_nobody_explains_is_found() {
        let mut cursor = Cursor::new(Start::Earliest);
        cursor.subscribed(&subscribed(LIFE, 0));
        cursor.delivered(&deliver(0, 10)).unwrap();
        let found = cursor.delivered(&deliver(11, 12)).unwrap_err();
        assert_eq!(
            found,
            OutOfPlace {
                found: Offset(11),
                expected: Offset(10)
            }
        );
        assert!(cursor.skipped(&gap(9, Some(11))).is_err());
    }

    #[test]
    fn a_new_life_begins_with_a_gap_and_any_offset() {
        let mut cursor = Cursor::new(Start::Earliest);
        cursor.subscribed(&subscribed(LIFE, 0));
        cursor.delivered(&deliver(0, 10)).unwrap();
        cursor.subscribed(&subscribed(NEXT_LIFE, 0));
        cursor.skipped(&gap(10, None)).unwrap();
        assert_eq!(cursor.request(), (Start::Earliest, NEXT_LIFE));
        cursor.delivered(&deliver(0, 3)).unwrap();
        assert_eq!(cursor.request(), (Start::Offset(Offset(3)), NEXT_LIFE));
    }
}
