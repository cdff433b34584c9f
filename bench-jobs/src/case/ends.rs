//! Publishers and subscribers of whatever stands in the middle, as one.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::meter::{Delivered, Meter, Shared};
use super::pace::{Marks, Pace, Report, STALL};
use super::plan::{Case, Middle, Window};
use super::{felix, nats, raw};
use crate::arrivals::Arrivals;
use crate::payload::Pattern;
use crate::progress::Progress;

/// Records for which one look at the clock serves: they came in one piece.
pub(super) const RECORDS_PER_CLOCK: u32 = 64;

/// Subscribers that connect at the same time: handshakes are work.
const CONNECTING: usize = 16;

/// After the last expected record, a moment in which a duplicate would still be seen.
const SETTLE: Duration = Duration::from_millis(20);

/// How the ends reach the middle.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Access {
    pub(super) address: SocketAddr,
    /// PEM file with the certificate that they trust.
    pub(super) ca: PathBuf,
}

impl Access {
    pub(super) fn ca_pem(&self) -> anyhow::Result<Vec<u8>> {
        std::fs::read(&self.ca).with_context(|| format!("reading {}", self.ca.display()))
    }
}

/// What each of many publishers sent, in the order of their numbers.
pub(super) async fn counts(
    mut tasks: JoinSet<anyhow::Result<(usize, u64)>>,
    publishers: usize,
) -> anyhow::Result<Vec<u64>> {
    let mut counts = vec![0; publishers];
    while let Some(done) = tasks.join_next().await {
        let (number, sent) = done.context("a publisher's task died")??;
        counts[number] = sent;
    }
    Ok(counts)
}

/// A publisher that is connected.
pub(super) struct Publisher {
    pattern: Arc<Pattern>,
    end: End,
}

enum End {
    Felix(felix_client::Publisher),
    Raw(raw::Publisher),
    Nats(nats::Publisher),
}

impl Publisher {
    pub(super) async fn open(case: &Case, access: &Access) -> anyhow::Result<Self> {
        let end = match case.middle {
            Middle::Felix | Middle::RelayEnds => End::Felix(felix::open(case, access).await?),
            Middle::Relay => End::Raw(raw::open(access).await?),
            Middle::Nats | Middle::NatsPlain => End::Nats(nats::open(case, access).await?),
        };
        Ok(Self {
            pattern: case.pattern(),
            end,
        })
    }

    /// Publishes until the window ends. How many records each publisher sent.
    pub(super) async fn publish(
        &mut self,
        case: &Case,
        window: Window,
        pace: &Arc<Pace>,
    ) -> anyhow::Result<Vec<u64>> {
        let pattern = &self.pattern;
        let published = match &mut self.end {
            End::Felix(publisher) => felix::publish(publisher, pattern, case, window, pace).await,
            End::Raw(publisher) => {
                let sent = raw::publish(publisher, case, window, pace).await;
                sent.map(|sent| vec![sent])
            }
            End::Nats(publisher) => nats::publish(publisher, pattern, case, window, pace).await,
        };
        published.context("publishing")
    }
}

enum Subscriber {
    Felix(felix_client::Subscription),
    Raw(raw::Subscriber),
    Nats(nats::Subscriber),
}

impl Subscriber {
    async fn open(case: &Case, access: &Access) -> anyhow::Result<Self> {
        Ok(match case.middle {
            Middle::Felix | Middle::RelayEnds => Self::Felix(felix::subscribe(case, access).await?),
            Middle::Relay => Self::Raw(raw::subscribe(access).await?),
            Middle::Nats | Middle::NatsPlain => Self::Nats(nats::subscribe(case, access).await?),
        })
    }

    /// Follows until there is no more, or until it fails.
    async fn follow(&mut self, case: &Case, meter: &mut Meter) -> anyhow::Result<()> {
        match self {
            Self::Felix(subscription) => Err(felix::follow(subscription, meter).await),
            Self::Raw(subscriber) => raw::follow(subscriber, case, meter).await,
            Self::Nats(subscriber) => Err(nats::follow(subscriber, meter).await),
        }
    }
}

/// Subscribers that are connected, and get nothing yet.
pub(super) struct Subscribers(Vec<Subscriber>);

/// Subscribers that count.
pub(super) struct Following {
    case: Case,
    shared: Arc<Shared>,
    tasks: JoinSet<(Meter, Subscriber)>,
}

impl Subscribers {
    /// Connects all. Once this returns, the middle knows of every one.
    pub(super) async fn open(case: &Case, access: &Access) -> anyhow::Result<Self> {
        let places = Arc::new(Semaphore::new(CONNECTING));
        let mut opening = JoinSet::new();
        for _ in 0..case.fanout {
            let (case, access, places) = (case.clone(), access.clone(), places.clone());
            opening.spawn(async move {
                let _place = places.acquire().await?;
                Subscriber::open(&case, &access).await
            });
        }
        let mut subscribers = Vec::with_capacity(case.fanout);
        while let Some(opened) = opening.join_next().await {
            subscribers.push(opened??);
        }
        Ok(Self(subscribers))
    }

    /// Begins to read.
    pub(super) fn begin(self, case: &Case, window: Window, report: Report) -> Following {
        let shared = Arc::new(Shared {
            window,
            marks: Marks::new(case.fanout, case.step(), report),
            arrivals: Arrivals::new(Arc::new(Progress::new())),
            pattern: case.pattern(),
            stop: CancellationToken::new(),
        });
        let mut tasks = JoinSet::new();
        for subscriber in self.0 {
            tasks.spawn(follow(case.clone(), subscriber, Meter::new(case, shared.clone())));
        }
        Following {
            case: case.clone(),
            shared,
            tasks,
        }
    }
}

async fn follow(case: Case, mut subscriber: Subscriber, mut meter: Meter) -> (Meter, Subscriber) {
    let shared = meter.shared();
    tokio::select! {
        ended = subscriber.follow(&case, &mut meter) => if let Err(error) = ended {
            shared.arrivals.fail(format!("{error:#}"));
        },
        () = shared.stop.cancelled() => {}
    }
    (meter, subscriber)
}

impl Following {
    /// Waits for what was published, by publisher, and gives the verdict. Fails where a subscriber failed; records that
    /// do not come are in the verdict.
    pub(super) async fn finish(mut self, published: &[u64]) -> anyhow::Result<Delivered> {
        let expected = published.iter().sum::<u64>() * self.case.fanout as u64;
        let waited = self.shared.arrivals.wait_for(expected, STALL).await;
        if let Some(why) = self.shared.arrivals.failure() {
            anyhow::bail!("{why}");
        }
        match waited {
            Ok(()) => tokio::time::sleep(SETTLE).await,
            Err(why) => tracing::warn!(why, "not everything arrived"),
        }
        self.shared.stop.cancel();
        let mut meters = Vec::with_capacity(self.case.fanout);
        let mut subscribers = Vec::with_capacity(self.case.fanout);
        while let Some(ended) = self.tasks.join_next().await {
            let (meter, subscriber) = ended.context("a subscriber's task died")?;
            meters.push(meter);
            subscribers.push(subscriber);
        }
        Ok(Delivered::of(&meters, published))
    }
}
