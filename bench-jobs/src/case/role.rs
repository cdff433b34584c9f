//! One role of a measurement as a process of its own, and the lines of JSON that it exchanges with the one that started it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::net::UdpSocket;

use super::ends::{Access, Publisher, Subscribers};
use super::meter::Delivered;
use super::middle;
use super::pace::{Pace, Report};
use super::plan::{Case, Window};

/// What a role is asked, one line each.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Ask {
    /// Be the middle; files go into the directory. It serves until its input ends.
    Serve { case: Case, directory: PathBuf },
    /// Be the publisher.
    Publish { case: Case, access: Access },
    /// Be all subscribers.
    Subscribe { case: Case, access: Access },
    /// Begin; subscribers tell the publisher at the address how far they are.
    Begin {
        window: Window,
        report_to: Option<SocketAddr>,
    },
    /// This was published, by publisher: what of it has arrived?
    Finish { published: Vec<u64> },
}

/// What a role answers, one line each.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Answer {
    /// The middle serves.
    Serving(Access),
    /// Connected. A publisher says where it is told how far subscribers are.
    Ready { report_to: Option<SocketAddr> },
    /// Subscribers read.
    Begun,
    /// All is sent, and acknowledged where there are acknowledgements: records by publisher.
    Published(Vec<u64>),
    /// What arrived.
    Delivered(Delivered),
    /// It did not work.
    Failed(String),
}

/// The questions, as they come.
struct Asked(Lines<BufReader<Stdin>>);

impl Asked {
    async fn next(&mut self) -> anyhow::Result<Option<Ask>> {
        let Some(line) = self.0.next_line().await.context("reading a question")? else {
            return Ok(None);
        };
        let ask = serde_json::from_str(&line).with_context(|| format!("reading {line:?}"))?;
        Ok(Some(ask))
    }
}

/// Runs the role that the first line names.
pub(crate) async fn run() -> anyhow::Result<()> {
    let mut asked = Asked(BufReader::new(tokio::io::stdin()).lines());
    let done = play(&mut asked).await;
    if let Err(error) = &done {
        answer(&Answer::Failed(format!("{error:#}")))?;
    }
    done
}

async fn play(asked: &mut Asked) -> anyhow::Result<()> {
    match asked.next().await? {
        Some(Ask::Serve { case, directory }) => {
            let (access, running) = middle::start(&case, &directory).await?;
            answer(&Answer::Serving(access))?;
            while asked.next().await?.is_some() {}
            running.stop().await;
        }
        Some(Ask::Publish { case, access }) => publish(asked, &case, &access).await?,
        Some(Ask::Subscribe { case, access }) => subscribe(asked, &case, &access).await?,
        Some(Ask::Begin { .. } | Ask::Finish { .. }) | None => bail!("no role was named"),
    }
    Ok(())
}

async fn publish(asked: &mut Asked, case: &Case, access: &Access) -> anyhow::Result<()> {
    let mut publisher = Publisher::open(case, access).await?;
    let socket = UdpSocket::bind(("127.0.0.1", 0)).await?;
    answer(&Answer::Ready {
        report_to: Some(socket.local_addr()?),
    })?;
    let Some(Ask::Begin { window, .. }) = asked.next().await? else {
        bail!("the publisher was not told to begin");
    };
    let pace = Arc::new(Pace::new(case.in_flight()));
    let listening = tokio::spawn(listen(socket, pace.clone()));
    let published = publisher.publish(case, window, &pace).await?;
    answer(&Answer::Published(published))?;
    // Connected until subscribers have read what is on the way.
    while asked.next().await?.is_some() {}
    listening.abort();
    Ok(())
}

/// Takes the datagrams that say how far subscribers are.
async fn listen(socket: UdpSocket, pace: Arc<Pace>) {
    let mut records = [0; 8];
    while let Ok(length) = socket.recv(&mut records).await {
        if length == records.len() {
            pace.reached(u64::from_le_bytes(records));
        }
    }
}

async fn subscribe(asked: &mut Asked, case: &Case, access: &Access) -> anyhow::Result<()> {
    let subscribers = Subscribers::open(case, access).await?;
    answer(&Answer::Ready { report_to: None })?;
    let Some(Ask::Begin {
        window,
        report_to: Some(report_to),
    }) = asked.next().await?
    else {
        bail!("the subscribers were not told to begin");
    };
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0))?;
    socket.connect(report_to)?;
    let following = subscribers.begin(case, window, Report::There(socket));
    answer(&Answer::Begun)?;
    let Some(Ask::Finish { published }) = asked.next().await? else {
        bail!("the subscribers were not told what to expect");
    };
    answer(&Answer::Delivered(following.finish(&published).await?))
}

fn answer(answer: &Answer) -> anyhow::Result<()> {
    // One line: whoever reads it waits for its end.
    println!("{}", serde_json::to_string(answer)?);
    Ok(())
}
