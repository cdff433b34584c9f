//! The three policies, in the plain case: a subscription that does not read while much is published.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use felix_core::{Attach, CursorId, Delivery, Effect, Publish, PublisherId, Room, Shard, answer_at_once};
use felix_wire::{Gap, GapReason, Incarnation, Lost, Nanos, Offset, SlowPolicy, Start};
use support::{LIFE, batch, cost, origin, shard};

/// Batches in the window and in the ring.
const WINDOW: u64 = 4;
const RING: u64 = 8;

fn batch_cost() -> u64 {
    cost(&batch(origin(1, 0, 0), 2, 50))
}

struct Stage {
    shard: Shard,
    published: u64,
}

impl Stage {
    fn new() -> Self {
        Self {
            shard: shard(RING * batch_cost()),
            published: 0,
        }
    }

    fn attach(&mut self, policy: SlowPolicy, start: Start) -> CursorId {
        let window = WINDOW * batch_cost();
        self.shard
            .attach(Attach {
                start,
                incarnation: Incarnation(0),
                policy,
                window,
            })
            .unwrap()
            .0
    }

    /// Publishes batches of two records each while there is room; says whether there was for all.
    fn publish(&mut self, batches: u64) -> bool {
        for _ in 0..batches {
            if self.shard.room() == Room::Wait {
                return false;
            }
            let mut effects = Vec::new();
            let batch = batch(origin(1, 0, 2 * self.published), 2, 50);
            let publish = self
                .shard
                .publish(PublisherId(1), batch, Nanos(self.published), &mut effects);
            assert!(matches!(publish, Publish::Taken));
            answer_at_once(&mut self.shard, &mut effects);
            self.published += 1;
        }
        true
    }

    fn poll(&mut self, cursor: CursorId, credit: u64) -> (Vec<String>, Vec<Effect>) {
        let (mut out, mut effects) = (Vec::new(), Vec::new());
        self.shard.poll(cursor, credit, &mut out, &mut effects);
        (out.iter().map(show).collect(), effects)
    }

    /// Whether publishers have ever waited for it and it still lags.
    fn holds_back(&self, cursor: CursorId, memory_is_short: bool) -> bool {
        self.shard.holds_back(cursor, &mut 0, memory_is_short)
    }

    fn read(&mut self, cursor: CursorId) -> Vec<String> {
        self.poll(cursor, u64::MAX).0
    }
}

fn show(delivery: &Delivery) -> String {
    match delivery {
        Delivery::Batch { from, to, .. } => format!("{from}..{to}"),
        Delivery::Gap(Gap {
            from,
            to: Some(to),
            lost: Lost::Exactly(lost),
            reason,
        }) => {
            format!("{reason:?} {from}..{to} ({lost})")
        }
        Delivery::Gap(gap) => format!("{gap:?}"),
    }
}

#[test]
fn drop_new_keeps_the_oldest_then_tells_one_gap() {
    let mut stage = Stage::new();
    let cursor = stage.attach(SlowPolicy::DropNew, Start::Latest);
    stage.publish(100);
    assert_eq!(stage.shard.dropped().drop_new, 192, "counted before it is told");
    assert_eq!(stage.shard.pinned_bytes(), WINDOW * batch_cost());
    assert_eq!(stage.poll(cursor, 1).0, ["0..2"]);
    stage.publish(1);
    // The gap is told although nothing follows it.
    assert_eq!(
        stage.read(cursor),
        ["2..4", "4..6", "6..8", "DropNew 8..202 (194)"]
    );
    assert_eq!(stage.read(cursor), [""; 0]);
    assert_eq!(
        (stage.shard.dropped().drop_new, stage.shard.pinned_bytes()),
        (194, 0)
    );
    stage.publish(2);
    assert_eq!(stage.read(cursor), ["202..204", "204..206"]);
}

#[test]
fn a_batch_that_many_hold_is_counted_once() {
    let mut stage = Stage::new();
    for _ in 0..10 {
        stage.attach(SlowPolicy::DropNew, Start::Latest);
    }
    stage.publish(100);
    let alone = WINDOW * batch_cost();
    let entries = 9 * WINDOW * 192;
    assert_eq!(stage.shard.pinned_bytes(), alone + entries);
}

#[test]
fn when_memory_is_short_windows_give_way_and_say_so() {
    for policy in [SlowPolicy::DropNew, SlowPolicy::DropOld] {
        let mut stage = Stage::new();
        let cursor = stage.attach(policy, Start::Latest);
        stage.publish(3);
        stage.shard.give_way(u64::MAX);
        assert_eq!(stage.shard.ring_bytes(), 0);
        assert!(stage.shard.pinned_bytes() <= batch_cost(), "{policy:?}");
        let kept = stage.shard.pinned_bytes() / batch_cost();
        let lost = 6 - 2 * kept;
        let counted = stage.shard.dropped();
        assert_eq!(counted.drop_new + counted.drop_old, lost);
        let read = stage.read(cursor);
        let gap = format!("{policy:?} 0..{lost} ({lost})");
        assert_eq!((read.len() as u64, &read[0]), (1 + kept, &gap));
        assert_eq!(stage.shard.pinned_bytes(), 0);
        // The window is as before.
        stage.publish(WINDOW);
        assert_eq!(stage.read(cursor).len() as u64, WINDOW);
        assert_eq!(stage.shard.dropped(), counted);
    }
}

#[test]
fn when_memory_is_short_a_window_gives_way_no_further_than_it_must() {
    let mut stage = Stage::new();
    let cursor = stage.attach(SlowPolicy::DropNew, Start::Latest);
    stage.publish(WINDOW);
    // The ring goes into the cursor's hands, and one of four batches has to go; half of them do.
    stage.shard.give_way(1);
    assert_eq!(stage.shard.pinned_bytes(), WINDOW / 2 * batch_cost());
    assert_eq!(stage.read(cursor), ["0..2", "2..4", "DropNew 4..8 (4)"]);
}

#[test]
fn when_memory_is_short_a_blocking_subscription_keeps_all_and_is_known() {
    let mut stage = Stage::new();
    let cursor = stage.attach(SlowPolicy::Block, Start::Latest);
    assert!(stage.publish(WINDOW));
    assert!(!stage.holds_back(cursor, true), "the ring holds all");
    stage.shard.give_way(u64::MAX);
    assert_eq!(stage.shard.pinned_bytes(), WINDOW * batch_cost());
    assert!(stage.holds_back(cursor, true) && !stage.holds_back(cursor, false));
    assert!(!stage.publish(1));
    assert!(stage.holds_back(cursor, false), "a publisher waits for it");
    let caught_up = stage.attach(SlowPolicy::Block, Start::Latest);
    assert!(!stage.holds_back(caught_up, true), "it is not its fault");
    assert_eq!(stage.poll(cursor, 1).0.len(), 1);
    assert!(stage.holds_back(cursor, false), "one batch is not enough");
    assert_eq!(stage.read(cursor).len() as u64, WINDOW - 1);
    assert!(!stage.holds_back(cursor, true));
}

#[test]
fn drop_old_keeps_the_newest_after_one_gap() {
    let mut stage = Stage::new();
    let cursor = stage.attach(SlowPolicy::DropOld, Start::Latest);
    stage.publish(100);
    assert_eq!(stage.shard.dropped().drop_old, 192);
    let gap = stage.shard.open_gap(cursor).unwrap();
    assert_eq!(
        (gap.from, gap.to, gap.lost),
        (Offset(0), Some(Offset(192)), Lost::Exactly(192))
    );
    assert_eq!(
        stage.read(cursor),
        [
            "DropOld 0..192 (192)",
            "192..194",
            "194..196",
            "196..198",
            "198..200"
        ]
    );
    assert_eq!(
        (stage.shard.open_gap(cursor), stage.shard.dropped().drop_old),
        (None, 192)
    );
}

#[test]
fn block_makes_publishers_wait_and_lets_them_on() {
    let mut stage = Stage::new();
    let cursor = stage.attach(SlowPolicy::Block, Start::Latest);
    assert!(!stage.publish(100));
    assert_eq!(stage.published, WINDOW);
    assert_eq!(stage.shard.room(), Room::Wait);
    assert_eq!(
        stage.poll(cursor, 1),
        (vec!["0..2".to_owned()], vec![Effect::WakePublishers])
    );
    assert!(!stage.publish(100));
    assert_eq!(stage.published, WINDOW + 1);
    let mut effects = Vec::new();
    stage.shard.detach(cursor, &mut effects);
    assert_eq!(effects, [Effect::WakePublishers]);
    assert!(stage.publish(100));
}

#[test]
fn who_leaves_keeps_its_loss_counted() {
    let mut stage = Stage::new();
    let new = stage.attach(SlowPolicy::DropNew, Start::Latest);
    let old = stage.attach(SlowPolicy::DropOld, Start::Latest);
    stage.publish(100);
    let before = stage.shard.dropped();
    assert_eq!((before.drop_new, before.drop_old), (192, 192));
    stage.shard.detach(new, &mut Vec::new());
    stage.shard.detach(old, &mut Vec::new());
    stage.publish(1);
    assert_eq!(stage.shard.dropped(), before);
}

#[test]
fn beginning_in_the_past_is_no_slowness() {
    let mut stage = Stage::new();
    stage.publish(100);
    for policy in [SlowPolicy::DropNew, SlowPolicy::DropOld, SlowPolicy::Block] {
        let cursor = stage.attach(policy, Start::Earliest);
        // The ring holds 8 batches, the window 4: the ring lets these go unread, the window keeps them.
        let first = 2 * stage.published - 16;
        assert!(stage.publish(WINDOW - 1), "{policy:?}");
        let read = stage.read(cursor);
        assert_eq!(read.len() as u64, RING + WINDOW - 1, "{policy:?}");
        assert_eq!(read[0], format!("{first}..{}", first + 2));
        stage.shard.detach(cursor, &mut Vec::new());
    }
}

#[test]
fn what_no_window_covers_is_let_go() {
    let mut stage = Stage::new();
    stage.publish(RING);
    let cursor = stage.attach(SlowPolicy::DropNew, Start::Earliest);
    stage.shard.set_ring_bytes(2 * batch_cost());
    assert_eq!(
        stage.shard.pinned_bytes(),
        (RING - 2) * batch_cost(),
        "nothing is lost by a smaller ring"
    );
    stage.publish(WINDOW + 2);
    assert_eq!(
        stage.shard.pinned_bytes(),
        WINDOW * batch_cost(),
        "a slow reader holds its window"
    );
    let read = stage.read(cursor);
    assert_eq!(read.last().unwrap(), "DropNew 8..28 (20)");
}

#[test]
fn a_window_smaller_than_a_batch_keeps_one() {
    let mut stage = Stage::new();
    let attach = |policy| Attach {
        start: Start::Latest,
        incarnation: Incarnation(0),
        policy,
        window: 1,
    };
    let new = stage.shard.attach(attach(SlowPolicy::DropNew)).unwrap().0;
    let old = stage.shard.attach(attach(SlowPolicy::DropOld)).unwrap().0;
    stage.publish(10);
    assert_eq!(stage.read(new), ["0..2", "DropNew 2..20 (18)"]);
    assert_eq!(stage.read(old), ["DropOld 0..18 (18)", "18..20"]);
    stage.publish(1);
    assert_eq!(stage.read(old), ["20..22"], "one batch is never too much");
}

#[test]
fn starts_are_found_in_the_ring() {
    let mut stage = Stage::new();
    stage.publish(20);
    let cursor = stage.attach(SlowPolicy::DropNew, Start::Offset(Offset(35)));
    assert_eq!(stage.read(cursor), ["35..36", "36..38", "38..40"]);
    let cursor = stage.attach(SlowPolicy::DropNew, Start::Time(Nanos(18)));
    assert_eq!(stage.read(cursor), ["36..38", "38..40"]);
    let cursor = stage.attach(SlowPolicy::DropNew, Start::Time(Nanos(99)));
    assert_eq!(stage.read(cursor), [""; 0]);
    let cursor = stage.attach(SlowPolicy::DropNew, Start::Offset(Offset(3)));
    let gap = Gap {
        from: Offset(3),
        to: Some(Offset(24)),
        reason: GapReason::NotKept,
        lost: Lost::AtMost(21),
    };
    assert_eq!(stage.read(cursor)[..2], [format!("{gap:?}"), "24..26".to_owned()]);
}

#[test]
fn an_offset_of_a_former_life_begins_the_present_one() {
    let mut stage = Stage::new();
    stage.publish(2);
    let thousand = Start::Offset(Offset(1000));
    let attach = |start, incarnation| Attach {
        start,
        incarnation,
        policy: SlowPolicy::DropNew,
        window: 1 << 16,
    };
    assert!(stage.shard.attach(attach(thousand, LIFE)).is_err());
    for (start, gap_from) in [(thousand, 1000), (Start::Earliest, 0), (Start::Latest, 0)] {
        let (cursor, from) = stage.shard.attach(attach(start, Incarnation(6))).unwrap();
        assert_eq!(from, Offset(0));
        let gap = Gap {
            from: Offset(gap_from),
            to: None,
            reason: GapReason::FormerIncarnation,
            lost: Lost::Unknown,
        };
        let told = [format!("{gap:?}"), "0..2".to_owned(), "2..4".to_owned()];
        assert_eq!(stage.read(cursor), told);
    }
}
