//! One row, measured: subscribers are registered, the warm-up runs, then the window opens and every delivery is verified.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use felix_client::{
    Ack, Client, Delivery, ErrorCode, Publisher, Record, SlowPolicy, SubscribeError, Subscription,
};
use hdrhistogram::Histogram;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::arrivals::Arrivals;
use crate::clock::now_ns;
use crate::cpu;
use crate::outcome::Measured;
use crate::payload::Pattern;
use crate::progress::Progress;
use crate::row::Row;
use crate::verify::{Faults, Verifier};

/// Batches that the saturating publisher leaves unanswered before it looks at the oldest answer.
const UNANSWERED_BATCHES: usize = 512;

/// After the last expected record, a moment in which a duplicate would still be seen.
const SETTLE: Duration = Duration::from_millis(20);

/// Longest latency that is told apart, in ns: ten minutes. Above it, the figure is this.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// Records for which one look at the clock serves: they came in one piece.
const RECORDS_PER_CLOCK: u32 = 64;

/// Where and how a row is measured.
pub(crate) struct Bench {
    /// The publisher's client: a connection of its own.
    pub(crate) publisher: Client,
    /// The subscribers' clients; subscribers are dealt out to them in turn.
    pub(crate) subscribers: Vec<Client>,
    /// The stream.
    pub(crate) stream: String,
    /// What subscribers ask for when they are slow; `None` for what the stream says.
    pub(crate) policy: Option<SlowPolicy>,
    /// At batch 1, wait for the deliveries too.
    pub(crate) await_delivery: bool,
    /// Silence after which a row has failed.
    pub(crate) stall: Duration,
    /// Told about every delivery.
    pub(crate) progress: Arc<Progress>,
}

/// A histogram of nanoseconds with three significant digits.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    // The bounds are constants that the library takes.
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
        .unwrap_or_else(|_| Histogram::new(3).expect("3 digits are allowed"))
}

/// What one subscriber saw.
struct Seen {
    verifier: Verifier,
    latency: Histogram<u64>,
    last_ns: u64,
}

/// Everything that a row needs while it runs.
struct Run<'a> {
    row: &'a Row,
    bench: &'a Bench,
    pattern: Arc<Pattern>,
    arrivals: Arc<Arrivals>,
    stop: CancellationToken,
}

/// When the measured part was published, in ns of the clock.
struct Published {
    first_ns: u64,
    last_ns: u64,
    /// Processor time of the process from the first publish to the last delivery.
    cpu: Duration,
}

impl Bench {
    /// Measures a row. An error means that it could not begin; whatever happens later is in the result.
    pub(crate) async fn measure(&self, row: &Row, cancel: &CancellationToken) -> anyhow::Result<Measured> {
        let expected = (row.warmup + row.total) * u64::from(row.fanout);
        let label = format!(
            "payload {} fanout {} batch {}",
            row.payload, row.fanout, row.batch
        );
        self.progress.begin(&label, expected);
        let mut run = Run {
            row,
            bench: self,
            pattern: Pattern::new(rand::random(), row.value_bytes(), 1),
            arrivals: Arc::new(Arrivals::new(self.progress.clone())),
            stop: CancellationToken::new(),
        };
        let mut warnings: Vec<String> = row.guard_warning().into_iter().collect();
        let subscriptions = self.subscribe(row, &mut warnings).await?;
        let publisher = self
            .publisher
            .publisher(&self.stream)
            .open()
            .await
            .context("opening the publisher")?;
        let readers = subscriptions
            .into_iter()
            .map(|one| run.spawn_reader(one))
            .collect();
        let lost_before = self.lost_packets().await;
        let published = tokio::select! {
            published = run.publish_all(&publisher) => published,
            () = cancel.cancelled() => Err("stopped before it was finished".into()),
        };
        run.finish(published, readers, warnings, lost_before).await
    }

    /// Closes all connections.
    pub(crate) async fn close(self) {
        for client in self.subscribers.iter().chain([&self.publisher]) {
            client.close().await;
        }
    }

    async fn lost_packets(&self) -> u64 {
        self.publisher
            .transport_stats()
            .await
            .map_or(0, |stats| stats.lost_packets)
    }

    async fn subscribe(&self, row: &Row, warnings: &mut Vec<String>) -> anyhow::Result<Vec<Subscription>> {
        let mut subscriptions = Vec::with_capacity(row.fanout as usize);
        let mut policy = self.policy;
        for client in self.subscribers.iter().cycle().take(row.fanout as usize) {
            let one = match self.subscribe_one(client, policy).await {
                Err(SubscribeError::Refused {
                    code: ErrorCode::PolicyNotAllowed,
                    ..
                }) if policy.is_some() => {
                    warnings.push("the stream does not permit block: its own policy is used".into());
                    policy = None;
                    self.subscribe_one(client, None).await
                }
                other => other,
            };
            subscriptions.push(one.context("opening a subscription")?);
        }
        Ok(subscriptions)
    }

    async fn subscribe_one(
        &self,
        client: &Client,
        policy: Option<SlowPolicy>,
    ) -> Result<Subscription, SubscribeError> {
        let builder = client.subscribe(&self.stream);
        match policy {
            Some(policy) => builder.policy(policy).open().await,
            None => builder.open().await,
        }
    }
}

impl Run<'_> {
    fn spawn_reader(&mut self, mut subscription: Subscription) -> JoinHandle<Seen> {
        let mut seen = Seen {
            verifier: Verifier::new(self.pattern.clone(), self.row.warmup + self.row.total),
            latency: latency_histogram(),
            last_ns: 0,
        };
        let (arrivals, stop, warmup) = (self.arrivals.clone(), self.stop.clone(), self.row.warmup);
        tokio::spawn(async move {
            tokio::select! {
                failure = seen.follow(&mut subscription, warmup, &arrivals) => arrivals.fail(failure),
                () = stop.cancelled() => {}
            }
            seen
        })
    }

    /// Warm-up, wait until it is all delivered, then the measured part, wait likewise.
    async fn publish_all(&self, publisher: &Publisher) -> Result<Published, String> {
        let Row {
            warmup,
            total,
            fanout,
            ..
        } = *self.row;
        self.publish(publisher, 0..warmup).await?;
        self.arrivals
            .wait_for(warmup * u64::from(fanout), self.bench.stall)
            .await?;
        let cpu_before = cpu::time();
        let mut published = self.publish(publisher, warmup..warmup + total).await?;
        self.arrivals
            .wait_for((warmup + total) * u64::from(fanout), self.bench.stall)
            .await?;
        published.cpu = cpu::time() - cpu_before;
        Ok(published)
    }

    async fn publish(&self, publisher: &Publisher, range: std::ops::Range<u64>) -> Result<Published, String> {
        let first_ns = now_ns();
        if self.row.is_latency() {
            self.publish_singly(publisher, range).await?;
        } else {
            self.publish_batches(publisher, range).await?;
        }
        Ok(Published {
            first_ns,
            last_ns: now_ns(),
            cpu: Duration::ZERO,
        })
    }

    /// One record in flight: the next leaves when the last is acknowledged (and, where asked, delivered to all).
    async fn publish_singly(&self, publisher: &Publisher, range: std::ops::Range<u64>) -> Result<(), String> {
        let mut values = self.pattern.values(0);
        for sequence in range {
            let ack = publisher
                .send(Record::new(values.write(sequence, now_ns())))
                .await
                .map_err(|error| error.to_string())?;
            ack.await.map_err(|error| error.to_string())?;
            if self.bench.await_delivery {
                let due = (sequence + 1) * u64::from(self.row.fanout);
                self.arrivals.wait_for(due, self.bench.stall).await?;
            }
        }
        Ok(())
    }

    /// Saturation: batches leave as fast as the client takes them, and every one must be acknowledged.
    async fn publish_batches(
        &self,
        publisher: &Publisher,
        range: std::ops::Range<u64>,
    ) -> Result<(), String> {
        let mut values = self.pattern.values(0);
        let mut unanswered: VecDeque<Ack> = VecDeque::with_capacity(UNANSWERED_BATCHES);
        let mut sequence = range.start;
        while sequence < range.end {
            let end = (sequence + u64::from(self.row.batch)).min(range.end);
            let mut batch = publisher.batch();
            let intended = now_ns();
            for sequence in sequence..end {
                let record = Record::new(values.write(sequence, intended));
                let sent = publisher.fill(&mut batch, &record).await;
                if let Some(ack) = sent.map_err(|error| error.to_string())? {
                    await_all_but(UNANSWERED_BATCHES - 1, &mut unanswered).await?;
                    unanswered.push_back(ack);
                }
            }
            sequence = end;
            await_all_but(UNANSWERED_BATCHES - 1, &mut unanswered).await?;
            unanswered.push_back(
                publisher
                    .send_batch(batch)
                    .await
                    .map_err(|error| error.to_string())?,
            );
        }
        await_all_but(0, &mut unanswered).await
    }

    /// Stops the readers and sums up what they saw.
    async fn finish(
        self,
        published: Result<Published, String>,
        readers: Vec<JoinHandle<Seen>>,
        mut warnings: Vec<String>,
        lost_before: u64,
    ) -> anyhow::Result<Measured> {
        if published.is_ok() {
            tokio::time::sleep(SETTLE).await;
        }
        self.stop.cancel();
        let mut latency = latency_histogram();
        let (mut faults, mut received, mut last_ns, mut foreign) = (Faults::default(), 0, 0, 0);
        for reader in readers {
            let seen = reader.await.context("a subscriber's task died")?;
            latency.add(&seen.latency).context("adding up latencies")?;
            faults = faults.plus(seen.verifier.finish());
            received += seen.verifier.received();
            foreign += seen.verifier.foreign();
            last_ns = last_ns.max(seen.last_ns);
        }
        if foreign > 0 {
            warnings.push(format!(
                "{foreign} records of other publishers were on the stream"
            ));
        }
        let failure = published
            .as_ref()
            .err()
            .cloned()
            .or_else(|| self.arrivals.failure().cloned());
        let published = published.unwrap_or(Published {
            first_ns: 0,
            last_ns: 0,
            cpu: Duration::ZERO,
        });
        // The warm-up was waited for, so all of it is among what was received.
        let warmup = self.row.warmup * u64::from(self.row.fanout);
        Ok(Measured {
            latency,
            faults,
            delivered: received.saturating_sub(warmup),
            window_ns: if failure.is_some() {
                0
            } else {
                last_ns.saturating_sub(published.first_ns)
            },
            publish_ns: published.last_ns - published.first_ns,
            cpu_ns: u64::try_from(published.cpu.as_nanos()).unwrap_or(u64::MAX),
            lost_packets: self.bench.lost_packets().await.saturating_sub(lost_before),
            warnings,
            failure,
        })
    }
}

impl Seen {
    /// Reads until the subscription ends, which is a failure.
    async fn follow(&mut self, subscription: &mut Subscription, warmup: u64, arrivals: &Arrivals) -> String {
        loop {
            let mut delivery = match subscription.next().await {
                Ok(Some(delivery)) => delivery,
                Ok(None) => return "a subscription was closed".into(),
                Err(error) => return format!("a subscription failed: {error}"),
            };
            let before = self.verifier.accounted();
            let (mut now, mut age) = (now_ns(), 0);
            loop {
                self.take(delivery, warmup, now);
                match subscription.next_buffered() {
                    Some(more) => delivery = more,
                    None => break,
                }
                age += 1;
                if age == RECORDS_PER_CLOCK {
                    (now, age) = (now_ns(), 0);
                }
            }
            arrivals.add(self.verifier.accounted() - before);
        }
    }

    fn take(&mut self, delivery: Delivery, warmup: u64, now: u64) {
        match delivery {
            Delivery::Record(record) => {
                let Some(stamp) = self.verifier.take(record.shard, &record.value) else {
                    return;
                };
                if stamp.sequence >= warmup {
                    self.latency
                        .saturating_record(now.saturating_sub(stamp.intended_ns).max(1));
                    self.last_ns = now;
                }
            }
            // Where nobody knows how many, those that do not come count as lost.
            Delivery::Gap(gap) => self.verifier.gap(gap.records().unwrap_or(0)),
        }
    }
}

/// Awaits the oldest answers until no more than so many are left.
async fn await_all_but(left: usize, unanswered: &mut VecDeque<Ack>) -> Result<(), String> {
    while unanswered.len() > left
        && let Some(oldest) = unanswered.pop_front()
    {
        oldest.await.map_err(|error| error.to_string())?;
    }
    Ok(())
}
