//! One subscription's stream: asks its cursor, hands the same bytes that lie in the ring to QUIC, waits for more.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use felix_core::{Attach, Delivery, MAX_BATCHES_PER_POLL};
use felix_store::{MIN_WINDOW_BYTES, SlowSubscriberPolicy, StreamSpec};
use felix_wire::{
    Deliver, ErrorCode, Frame, MAX_REQUEST_BYTES, Nanos, Refusal, Selection, SlowPolicy, Subscribe,
    Subscribed,
};
use quinn::SendStream;
use tokio::time;

use crate::{
    broker::{Broker, Phase},
    connection::{Refused, encode, refuse, unknown_stream},
    frames::{FrameError, FrameReader},
    metrics::Limit,
    shard::{Attached, Ended},
};

/// Bytes of batches that are handed to QUIC at once. While QUIC has no room they are pinned beside the window.
const MAX_WRITE_BYTES: u64 = 256 << 10;
/// About what stands before a batch: frame head, range, selection length.
const HEAD_BYTES: usize = 32;
/// What stands before the batches of one write at most.
const MAX_HEADS_BYTES: u64 = (MAX_BATCHES_PER_POLL * HEAD_BYTES) as u64;
/// Batches below this many bytes are copied into the write: about a packet, whose encryption costs ten times as much.
const COPIED_BELOW: usize = 4 << 10;
/// A subscription that makes publishers wait has to take so many bytes a second.
const BLOCK_FLOOR: u64 = 16 << 10;
/// How often it is looked at whether it does, as a part of the time that it is given.
const BLOCK_CHECKS: u32 = 4;

/// Serves a subscription until its stream ends.
pub(crate) async fn serve(
    broker: Arc<Broker>,
    request: Subscribe,
    mut send: SendStream,
    mut reader: FrameReader,
) {
    let opened = Subscription::open(&broker, &request);
    let (mut subscription, subscribed) = match opened {
        Ok(opened) => opened,
        Err(refused) => return refuse(send, reader.stream(), refused).await,
    };
    let Some(_counted) = broker.subscriptions.enter() else {
        broker.metrics.observe_limit(Limit::Subscriptions);
        let refused = Refused::new(
            ErrorCode::TooManySubscriptions,
            "the broker has as many subscriptions as it may",
        );
        return refuse(send, reader.stream(), refused).await;
    };
    if send
        .write_chunk(encode(&Frame::Subscribed(subscribed)))
        .await
        .is_err()
    {
        return;
    }
    let patience = subscription.patience();
    let served = tokio::select! {
        served = subscription.serve(&mut send, &mut reader) => served,
        () = patience => Err(Refused::new(
            ErrorCode::TooSlow,
            "the subscription reads too slowly for a policy that makes publishers wait",
        )),
    };
    // The place in the shard is given up first: publishers may be waiting for it.
    drop(subscription);
    match served {
        Ok(()) => {
            send.finish().ok();
        }
        Err(refused) => {
            let draining = refused.refusal.code == ErrorCode::ShuttingDown;
            send.write_chunk(encode(&refused.frame())).await.ok();
            send.finish().ok();
            if draining {
                // What was delivered shall arrive before the connection is closed.
                send.stopped().await.ok();
            }
        }
    }
}

/// A subscription on one shard.
struct Subscription {
    broker: Arc<Broker>,
    attached: Arc<Attached>,
    policy: SlowPolicy,
    /// Bytes that QUIC has taken.
    taken: Arc<AtomicU64>,
    /// Bytes that may be sent in all; `None` for no limit but QUIC's.
    credit: Option<u64>,
    sent: u64,
    /// Kept for its allocation.
    deliveries: Vec<Delivery>,
}

impl Subscription {
    fn open(broker: &Arc<Broker>, request: &Subscribe) -> Result<(Self, Subscribed), Refused> {
        if broker.stopping.has_reached(Phase::Draining) {
            return Err(Refused::new(ErrorCode::ShuttingDown, "the broker stops"));
        }
        let stream = broker
            .catalogue
            .streams()
            .get(&request.stream)
            .ok_or_else(|| unknown_stream(&request.stream))?;
        let unknown_shard = || {
            let message = format!("stream {} has {} shards", request.stream, stream.shards().len());
            Refused::new(ErrorCode::UnknownShard, message)
        };
        let shard = stream.shard(request.shard).ok_or_else(unknown_shard)?;
        let (policy, window) = terms(request, &stream.spec())?;
        let attach = Attach {
            start: request.start,
            incarnation: request.incarnation,
            policy,
            window,
        };
        let (attached, from) = shard.attach(attach).map_err(|error| {
            let message = error.to_string();
            Refused::with_detail(Refusal::from(error), message)
        })?;
        stream.note_policy(policy);
        let subscribed = Subscribed {
            incarnation: stream.incarnation(),
            from,
            policy: Some(policy),
            window,
        };
        let subscription = Self {
            broker: Arc::clone(broker),
            attached: Arc::new(attached),
            policy,
            taken: Arc::default(),
            credit: (request.credit > 0).then_some(request.credit),
            sent: 0,
            deliveries: Vec::new(),
        };
        Ok((subscription, subscribed))
    }

    /// Delivers until the subscriber leaves or the broker stops.
    async fn serve(&mut self, send: &mut SendStream, reader: &mut FrameReader) -> Result<(), Refused> {
        let shard = Arc::clone(self.attached.shard());
        let draining = self.broker.stopping.reached(Phase::Draining);
        tokio::pin!(draining);
        loop {
            let frame = reader.control(MAX_REQUEST_BYTES);
            tokio::pin!(frame);
            let frame = loop {
                // Wakes for all that comes from here on, so nothing falls between looking and waiting.
                let woken = shard.readers.notified();
                if self.deliver(send).await?.is_some() {
                    continue;
                }
                tokio::select! {
                    () = woken => {}
                    frame = &mut frame => break frame,
                    () = &mut draining => {
                        // The last records and the end may come at once, from other lanes: the records go first.
                        while self.deliver(send).await?.is_some() {}
                        return Err(Refused::new(ErrorCode::ShuttingDown, "the broker stops"));
                    }
                }
            };
            match frame {
                Ok(Frame::Credit(more)) => self.credit = self.credit.map(|limit| limit.max(more.limit)),
                Ok(other) => {
                    let message = format!(
                        "a {:?} frame has no place on a subscription's stream",
                        other.kind()
                    );
                    return Err(Refused::new(ErrorCode::ProtocolViolation, message));
                }
                Err(FrameError::End | FrameError::Read(_)) => return Ok(()),
                Err(error @ (FrameError::Cut | FrameError::Decode(_))) => return Err(error.into()),
            }
        }
    }

    /// Sends what can be sent at once; `None` if there was nothing.
    async fn deliver(&mut self, send: &mut SendStream) -> Result<Option<()>, Refused> {
        let credit = self
            .credit
            .map_or(u64::MAX, |limit| limit.saturating_sub(self.sent));
        if credit > 0 {
            // Heads count as well. While there is any credit, one frame may go beyond it.
            let for_batches = credit.saturating_sub(MAX_HEADS_BYTES).clamp(1, MAX_WRITE_BYTES);
            self.attached
                .poll(for_batches, &mut self.deliveries)
                .map_err(|Ended| ended())?;
        }
        if self.deliveries.is_empty() {
            return Ok(None);
        }
        let write = Write::of(&mut self.deliveries);
        self.sent += write.deliver_bytes;
        self.write(send, write).await?;
        tokio::task::consume_budget().await;
        Ok(Some(()))
    }

    async fn write(&self, send: &mut SendStream, mut write: Write) -> Result<(), Refused> {
        let mut rest = &mut write.chunks[..];
        while !rest.is_empty() {
            let written = send.write_chunks(rest).await;
            let written =
                written.map_err(|error| Refused::new(ErrorCode::ProtocolViolation, error.to_string()))?;
            // Only compared with itself.
            self.taken.fetch_add(written.bytes as u64, Relaxed);
            rest = &mut rest[written.chunks..];
        }
        if let Some(oldest) = write.oldest {
            let latency = self.broker.clock.now().0.saturating_sub(oldest.0);
            self.broker
                .metrics
                .observe_delivered(write.records, write.bytes, latency);
        }
        Ok(())
    }

    /// Ends when the subscription has made publishers wait for too long.
    fn patience(&self) -> impl Future<Output = ()> + use<> {
        let (attached, taken) = (Arc::clone(&self.attached), Arc::clone(&self.taken));
        let blocks = self.policy == SlowPolicy::Block;
        let mut patience = Patience::new(self.broker.block_timeout);
        async move {
            if !blocks {
                std::future::pending::<()>().await;
            }
            let mut waits = 0;
            loop {
                time::sleep(patience.timeout / BLOCK_CHECKS).await;
                let holds_back = attached.holds_back(&mut waits);
                if patience.is_over(time::Instant::now(), holds_back, taken.load(Relaxed)) {
                    return;
                }
            }
        }
    }
}

/// How long a subscription may make publishers wait. It is not enough that it takes a byte now and then.
#[derive(Debug)]
struct Patience {
    timeout: Duration,
    /// Since when it has been seen to make them wait, and how much it had taken by then.
    since: Option<(time::Instant, u64)>,
}

impl Patience {
    const fn new(timeout: Duration) -> Self {
        Self { timeout, since: None }
    }

    /// Whether it is over, as seen now.
    fn is_over(&mut self, now: time::Instant, holds_back: bool, taken: u64) -> bool {
        let Some((since, before)) = self.since.filter(|_| holds_back) else {
            self.since = holds_back.then_some((now, taken));
            return false;
        };
        let held = now.duration_since(since);
        if held < self.timeout {
            return false;
        }
        let owed = (held.as_secs_f64() * BLOCK_FLOOR as f64) as u64;
        self.since = Some((now, taken));
        taken - before < owed
    }
}

/// What a write is made of.
#[derive(Default)]
struct Write {
    chunks: Vec<Bytes>,
    /// Of deliver frames, heads included: what uses up credit.
    deliver_bytes: u64,
    records: u64,
    bytes: u64,
    oldest: Option<Nanos>,
}

impl Write {
    /// Large batches go as they lie in the ring, behind their heads. Small ones are copied behind each other: QUIC looks
    /// for each packet's bytes from the first unacknowledged chunk on, so many small chunks would cost more than a copy.
    fn of(deliveries: &mut Vec<Delivery>) -> Self {
        let mut write = Self {
            chunks: Vec::with_capacity(2 * deliveries.len()),
            ..Self::default()
        };
        let mut joined = BytesMut::with_capacity(deliveries.iter().map(joined_bytes).sum());
        for delivery in deliveries.drain(..) {
            match delivery {
                Delivery::Batch { from, to, batch } => {
                    write.oldest.get_or_insert_with(|| batch.append_time());
                    write.records += to.0 - from.0;
                    write.bytes += batch.len() as u64;
                    let before = joined.len();
                    Deliver::encode_head(from, to, &Selection::All, batch.len(), &mut joined);
                    write.deliver_bytes += (joined.len() - before + batch.len()) as u64;
                    if batch.len() < COPIED_BELOW {
                        joined.extend_from_slice(batch.bytes());
                    } else {
                        write.chunks.push(joined.split().freeze());
                        write.chunks.push(batch.into_bytes());
                    }
                }
                Delivery::Gap(gap) => Frame::Gap(gap).encode(&mut joined),
            }
        }
        if !joined.is_empty() {
            write.chunks.push(joined.freeze());
        }
        write
    }
}

/// About what a delivery adds to the bytes that are not shared.
fn joined_bytes(delivery: &Delivery) -> usize {
    match delivery {
        Delivery::Batch { batch, .. } if batch.len() < COPIED_BELOW => HEAD_BYTES + batch.len(),
        Delivery::Batch { .. } | Delivery::Gap(_) => HEAD_BYTES,
    }
}

fn ended() -> Refused {
    Refused::new(ErrorCode::StreamEnded, "the stream was deleted")
}

/// Policy and window in force: the subscription's own where it has some, else the stream's.
fn terms(request: &Subscribe, spec: &StreamSpec) -> Result<(SlowPolicy, u64), Refused> {
    let default = match spec.slow_subscriber.policy {
        SlowSubscriberPolicy::DropNew => SlowPolicy::DropNew,
        SlowSubscriberPolicy::DropOld => SlowPolicy::DropOld,
        SlowSubscriberPolicy::Block => SlowPolicy::Block,
    };
    let policy = request.policy.unwrap_or(default);
    if policy == SlowPolicy::Block && !spec.slow_subscriber.allow_block {
        let message =
            "the stream does not let subscriptions make publishers wait; set slowSubscriber.allowBlock";
        return Err(Refused::new(ErrorCode::PolicyNotAllowed, message));
    }
    let window = if request.window == 0 {
        spec.slow_subscriber.window_bytes
    } else {
        request.window
    };
    Ok((
        policy,
        window.clamp(MIN_WINDOW_BYTES.min(spec.ring_bytes), spec.ring_bytes),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_when_too_little_was_taken_and_not_before() {
        let start = time::Instant::now();
        let second = |seconds| start + Duration::from_secs(seconds);
        let mut patience = Patience::new(Duration::from_secs(10));
        assert!(!patience.is_over(second(0), true, 0));
        assert!(!patience.is_over(second(9), true, 0));
        assert!(
            !patience.is_over(second(10), true, 160 << 10),
            "it keeps the floor"
        );
        assert!(!patience.is_over(second(15), true, 160 << 10));
        assert!(
            patience.is_over(second(20), true, (160 << 10) + 1),
            "a byte is not enough"
        );
    }

    #[test]
    fn patience_begins_anew_when_publishers_go_on() {
        let start = time::Instant::now();
        let second = |seconds| start + Duration::from_secs(seconds);
        let mut patience = Patience::new(Duration::from_secs(10));
        assert!(!patience.is_over(second(0), true, 0));
        assert!(!patience.is_over(second(9), false, 0));
        assert!(!patience.is_over(second(11), true, 0));
        assert!(!patience.is_over(second(20), true, 0));
        assert!(patience.is_over(second(21), true, 0));
    }
}
