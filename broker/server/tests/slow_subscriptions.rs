//! A subscription that does not read loses what its policy says, is told so, and the counter says the same; or, where the
//! stream permits it, makes publishers wait.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation is how a test fails"
)]

mod support;

use felix_broker::StreamSpec;
use felix_client::{GapReason, Lost, Record, SlowPolicy, Start};
use support::{STREAM, broker_with, client_of, metric, next_number, numbered, publish, read_until, within};

const WINDOW: u64 = 256 << 10;
const RECORD: usize = 4 << 10;
/// What QUIC and the client hold beside the window at most: send window, stream window, one write.
const OUTSIDE: u64 = 40 << 20;
const RECORDS: u64 = 2 * OUTSIDE / RECORD as u64;

fn small_ring(spec: &mut StreamSpec) {
    spec.ring_bytes = 4 << 20;
    spec.slow_subscriber.window_bytes = WINDOW;
    spec.slow_subscriber.allow_block = true;
}

async fn loses_and_counts(policy: SlowPolicy, reason: GapReason) {
    let broker = broker_with(small_ring).await;
    let client = client_of(&broker).await;
    let series = format!(
        "felix_subscribe_dropped_total{{stream=\"{STREAM}\",policy=\"{}\"}}",
        policy.as_str()
    );
    let mut slow = within(
        client
            .subscribe(STREAM)
            .policy(policy)
            .window_bytes(WINDOW)
            .open(),
    )
    .await
    .unwrap();
    assert_eq!(
        metric(&broker.metrics_text(), &series),
        Some(0),
        "the series begins at 0"
    );
    publish(&client, 0..RECORDS, RECORD).await;
    let open = metric(&broker.metrics_text(), &series).unwrap();
    assert!(open > 0, "the counter grows while nobody reads");
    // Under `drop_new` the tail itself is lost, and told without a later record.
    let mut seen = 0;
    let mut lost = 0;
    while seen + lost < RECORDS {
        let (numbers, gap) = read_until(&mut slow, RECORDS - 1).await;
        seen += numbers.len() as u64;
        if let Some(gap) = gap {
            assert_eq!(gap.reason, reason);
            let Lost::Exactly(records) = gap.lost else {
                panic!("{gap:?} is not exact")
            };
            lost += records;
        }
    }
    assert_eq!(seen + lost, RECORDS);
    assert_eq!(
        metric(&broker.metrics_text(), &series),
        Some(lost),
        "the counter is the sum of the gaps"
    );
    publish(&client, RECORDS..RECORDS + 1, RECORD).await;
    assert_eq!(
        next_number(&mut slow).await,
        RECORDS,
        "and it goes on from the tail"
    );
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drop_new_keeps_the_oldest_and_tells_the_rest() {
    loses_and_counts(SlowPolicy::DropNew, GapReason::DropNew).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drop_old_keeps_the_newest_and_tells_the_rest() {
    loses_and_counts(SlowPolicy::DropOld, GapReason::DropOld).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_gap_stays_counted_when_the_subscription_leaves() {
    let broker = broker_with(small_ring).await;
    let client = client_of(&broker).await;
    let series = format!("felix_subscribe_dropped_total{{stream=\"{STREAM}\",policy=\"drop_old\"}}");
    let leaving = client_of(&broker).await;
    let slow = within(leaving.subscribe(STREAM).policy(SlowPolicy::DropOld).open())
        .await
        .unwrap();
    publish(&client, 0..RECORDS, RECORD).await;
    let open = metric(&broker.metrics_text(), &series).unwrap();
    assert!(open > 0);
    drop(slow);
    within(leaving.close()).await;
    within(async {
        while metric(&broker.metrics_text(), "felix_subscriptions") != Some(0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(metric(&broker.metrics_text(), &series), Some(open));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn block_makes_publishers_wait_and_loses_nothing() {
    let broker = broker_with(small_ring).await;
    let client = client_of(&broker).await;
    let reading = client_of(&broker).await;
    let slow = reading
        .subscribe(STREAM)
        .policy(SlowPolicy::Block)
        .window_bytes(WINDOW)
        .start(Start::Latest);
    let mut slow = within(slow.open()).await.unwrap();
    let publisher = within(client.publisher(STREAM).open()).await.unwrap();
    let publishing = tokio::spawn(async move {
        for number in 0..RECORDS {
            let ack = within(publisher.send(Record::new(numbered(number, RECORD))))
                .await
                .unwrap();
            // The last ack comes after all others.
            if number + 1 == RECORDS {
                within(ack).await.unwrap();
            }
        }
    });
    // Far more than fits anywhere is sent, so the publisher has to wait for this reader, which then gets all of it.
    for expected in 0..RECORDS {
        assert_eq!(next_number(&mut slow).await, expected);
    }
    within(publishing).await.unwrap();
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn block_is_refused_where_the_stream_does_not_permit_it() {
    let broker = broker_with(|_| {}).await;
    let client = client_of(&broker).await;
    let refused = within(client.subscribe(STREAM).policy(SlowPolicy::Block).open())
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), felix_client::ErrorKind::DoNotRetry);
    broker.shutdown().await;
}
