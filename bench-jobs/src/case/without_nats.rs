//! Stands in for the NATS client in a build without it.

use std::sync::Arc;

use super::ends::Access;
use super::meter::Meter;
use super::pace::Pace;
use super::plan::{Case, Window};
use crate::payload::Pattern;

/// Whether this program can measure NATS.
pub(super) const AVAILABLE: bool = false;

/// There is none.
pub(super) enum Publisher {}

/// There is none.
pub(super) enum Subscriber {}

pub(super) async fn open(_: &Case, _: &Access) -> anyhow::Result<Publisher> {
    Err(missing())
}

pub(super) async fn subscribe(_: &Case, _: &Access) -> anyhow::Result<Subscriber> {
    Err(missing())
}

pub(super) async fn follow(subscriber: &mut Subscriber, _: &mut Meter) -> anyhow::Error {
    match *subscriber {}
}

pub(super) async fn publish(
    publisher: &mut Publisher,
    _: &Arc<Pattern>,
    _: &Case,
    _: Window,
    _: &Arc<Pace>,
) -> anyhow::Result<Vec<u64>> {
    match *publisher {}
}

fn missing() -> anyhow::Error {
    anyhow::anyhow!("this felix-bench was built without NATS: build it with --features nats")
}
