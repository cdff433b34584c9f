//! A subscription that does not read while 2 GB are published past it, under each policy.

use felix_client::{
    Client, Delivery, ErrorCode, Gap, GapReason, Lost, Record, SlowPolicy, SubscribeError, Subscription,
};
use serde_json::json;

use crate::{
    pod::Pod,
    support::{STREAM, next, next_number, number_of, numbered, within},
};

const RECORD: usize = 16 << 10;
/// 2 GB in all.
const RECORDS: u64 = (2 << 30) / RECORD as u64;
const WINDOW: u64 = 8 << 20;
/// What a client that is to have little unread holds at most: the least credit and a frame, in records.
const IN_CLIENT: u64 = 64;

async fn pod() -> Pod {
    let pod = Pod::start(&["--block-timeout-ms", "2000"]).await;
    let slow = json!({ "windowBytes": WINDOW, "allowBlock": true });
    pod.create_stream(STREAM, json!({ "ringBytes": 16 << 20, "slowSubscriber": slow }))
        .await;
    pod
}

async fn slow(client: &Client, policy: SlowPolicy) -> Subscription {
    within(client.subscribe(STREAM).policy(policy).open())
        .await
        .unwrap()
}

/// Publishes all, with a good subscription beside, which reads all.
async fn publish_past(pod: &Pod) {
    let client = pod.client(64 << 20).await;
    let mut good = slow(&client, SlowPolicy::Block).await;
    let reading = tokio::spawn(async move {
        for number in 0..RECORDS {
            assert_eq!(next_number(&mut good).await, number);
        }
    });
    let publisher = within(pod.client(0).await.publisher(STREAM).open())
        .await
        .unwrap();
    let mut value = numbered(0, RECORD);
    let mut last = None;
    for number in 0..RECORDS {
        value[..8].copy_from_slice(&number.to_le_bytes());
        last = Some(within(publisher.send(Record::new(&value))).await.unwrap());
    }
    within(last.unwrap()).await.unwrap();
    within(reading).await.unwrap();
}

/// Reads on to the last record: the records before the gap, the gap, those behind it.
async fn read_on(subscription: &mut Subscription) -> (u64, Gap, u64) {
    let (mut before, mut gap, mut expected) = (0, None, 0);
    while expected < RECORDS {
        match next(subscription).await {
            Delivery::Record(record) => {
                assert_eq!(number_of(&record.value), expected);
                expected += 1;
                before += u64::from(gap.is_none());
            }
            Delivery::Gap(found) => {
                let Lost::Exactly(lost) = found.lost else {
                    panic!("{found:?}")
                };
                expected += lost;
                assert!(gap.replace(found).is_none(), "one gap and no more");
            }
        }
    }
    let gap = gap.unwrap();
    (before, gap, RECORDS - gap.to.unwrap())
}

fn counter(policy: SlowPolicy) -> String {
    let policy = policy.as_str();
    format!("felix_subscribe_dropped_total{{stream=\"{STREAM}\",policy=\"{policy}\"}}")
}

fn lost(gap: &Gap) -> u64 {
    match gap.lost {
        Lost::Exactly(records) => records,
        Lost::AtMost(_) | Lost::Unknown => panic!("{gap:?} is not exact"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drop_new_gives_the_first_window_one_gap_and_the_tail() {
    let pod = pod().await;
    let client = pod.client(0).await;
    let mut subscription = slow(&client, SlowPolicy::DropNew).await;
    publish_past(&pod).await;
    let open = pod.metric(&counter(SlowPolicy::DropNew)).await;
    assert!(open > 0, "counted while nobody reads");
    let (before, gap, behind) = read_on(&mut subscription).await;
    let window = WINDOW / RECORD as u64;
    assert!(
        before > window / 2 && before <= window + IN_CLIENT,
        "{before} of {window}"
    );
    assert_eq!((gap.reason, gap.from, behind), (GapReason::DropNew, before, 0));
    assert_eq!(pod.metric(&counter(SlowPolicy::DropNew)).await, lost(&gap));
    pod.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drop_old_gives_one_gap_and_the_newest_window() {
    let pod = pod().await;
    let client = pod.client(0).await;
    let mut subscription = slow(&client, SlowPolicy::DropOld).await;
    let leaving = pod.client(0).await;
    let left = slow(&leaving, SlowPolicy::DropOld).await;
    publish_past(&pod).await;
    let (before, gap, behind) = read_on(&mut subscription).await;
    let window = WINDOW / RECORD as u64;
    assert!(before <= IN_CLIENT, "{before}");
    assert!(
        behind > window / 2 && behind <= window + IN_CLIENT,
        "{behind} of {window}"
    );
    assert_eq!(gap.reason, GapReason::DropOld);
    // The other one leaves without having been told: the counter keeps its gap.
    let both = pod.metric(&counter(SlowPolicy::DropOld)).await;
    assert!(both > lost(&gap));
    drop(left);
    leaving.close().await;
    pod.until_metric("felix_subscriptions", |present| present <= 1)
        .await;
    assert_eq!(pod.metric(&counter(SlowPolicy::DropOld)).await, both);
    pod.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn block_paces_publishers_until_its_deadline_and_then_they_go_on() {
    let pod = pod().await;
    let client = pod.client(0).await;
    let mut subscription = slow(&client, SlowPolicy::Block).await;
    publish_past(&pod).await;
    let mut expected = 0;
    let error = loop {
        match within(subscription.next()).await {
            Ok(Some(Delivery::Record(record))) => {
                assert_eq!(number_of(&record.value), expected);
                expected += 1;
            }
            Ok(other) => panic!("{other:?} before it was told why it ended"),
            Err(error) => break error,
        }
    };
    let SubscribeError::Refused { code, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(code, ErrorCode::TooSlow);
    assert!(expected <= IN_CLIENT, "{expected}");
    pod.check().await;
}
