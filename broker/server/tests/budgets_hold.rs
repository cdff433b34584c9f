//! What clients may hold of the broker's memory is bounded, and nobody gets more by not reading or not sending: the share
//! of the rings with what slow subscriptions pin, batches under way, what waits unread in a client.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a failed expectation is how a test fails"
)]

mod support;

use std::time::Duration;

use bytes::BytesMut;
use felix_broker::{
    EmbeddedBroker, OverloadPolicy, StreamSpec,
    settings::{Bytes, Millis, Settings},
};
use felix_client::{Client, Delivery, ErrorCode, Lost, PublishError, Record, SlowPolicy, SubscribeError};
use felix_wire::{Frame, FrameHead, FrameKind};
use support::{
    STREAM, broker_of, broker_with, client_of, metric, next, next_number, number_of, numbered, publish,
    until_metric,
    wire::{answers, batch, encoded, greeted, publisher, publisher_of, read_frame, subscribe},
    within,
};

const RECORD: usize = 32 << 10;
const RINGS: &str = "felix_memory_used_bytes{share=\"rings\"}";
const RINGS_BUDGET: &str = "felix_memory_budget_bytes{share=\"rings\"}";
const IN_FLIGHT: &str = "felix_memory_used_bytes{share=\"in_flight\"}";
const IN_FLIGHT_BUDGET: &str = "felix_memory_budget_bytes{share=\"in_flight\"}";

/// The smallest budget: rings of 12 MiB, 2 MiB in flight.
fn small(settings: &mut Settings) {
    settings.memory_budget = Some(Bytes(32 << 20));
    settings.block_timeout_ms = Millis(Duration::from_millis(200));
}

fn large_window(spec: &mut StreamSpec) {
    spec.ring_bytes = 8 << 20;
    spec.slow_subscriber.window_bytes = 8 << 20;
    spec.slow_subscriber.allow_block = true;
}

fn value(broker: &EmbeddedBroker, series: &str) -> u64 {
    metric(&broker.metrics_text(), series).unwrap()
}

async fn sparing_client(broker: &EmbeddedBroker, unread_bytes: u64) -> Client {
    let builder = Client::builder(&broker.addr().to_string()).ca_pem(broker.ca_pem());
    let builder = builder
        .server_name("localhost")
        .unwrap()
        .unread_bytes(unread_bytes);
    within(builder.connect()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_that_are_not_read_leave_room_for_the_others_and_hold_what_they_were_promised() {
    const UNREAD: u64 = 20;
    const RECORDS: u64 = 512;
    const PROMISED: u64 = 2 << 20;
    let broker = broker_with(large_window).await;
    let client = sparing_client(&broker, PROMISED).await;
    let mut unread = Vec::new();
    for _ in 0..UNREAD {
        unread.push(within(client.subscribe(STREAM).open()).await.unwrap());
    }
    let mut reading = within(client.subscribe(STREAM).policy(SlowPolicy::Block).open())
        .await
        .unwrap();
    let other = client_of(&broker).await;
    let publishing = tokio::spawn(async move { publish(&other, 0..RECORDS, RECORD).await });
    for expected in 0..RECORDS {
        assert_eq!(next_number(&mut reading).await, expected);
    }
    within(publishing).await.unwrap();
    let frame = 300 << 10;
    let read = RECORDS * (RECORD as u64 + 1000);
    let handed_out = value(&broker, "felix_subscribe_bytes_total");
    // Each may have the least of 64 KiB beside the budget, and a frame more.
    assert!(
        handed_out <= read + PROMISED + UNREAD * ((64 << 10) + frame),
        "{handed_out}"
    );
    assert!(handed_out < 3 * read, "it would be {} without credit", 21 * read);
    drop(unread);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_of_many_streams_give_way_within_the_share_and_every_loss_is_told() {
    const STREAMS: u64 = 6;
    const RECORDS: u64 = 256;
    let broker = broker_of(small, large_window).await;
    let mut spec = StreamSpec::default();
    large_window(&mut spec);
    let client = sparing_client(&broker, 0).await;
    let other = client_of(&broker).await;
    let mut slow = Vec::new();
    for number in 0..STREAMS {
        let name = format!("orders-{number}");
        broker.create_stream(&name, spec.clone()).await.unwrap();
        let policy = if number % 2 == 0 {
            SlowPolicy::DropNew
        } else {
            SlowPolicy::DropOld
        };
        let subscription = within(client.subscribe(&name).policy(policy).open())
            .await
            .unwrap();
        slow.push((name, policy, subscription));
    }
    let mut publishers = Vec::new();
    for (name, ..) in &slow {
        publishers.push(within(other.publisher(name).open()).await.unwrap());
    }
    for number in 0..RECORDS {
        for publisher in &publishers {
            let sent = within(publisher.send(Record::new(numbered(number, RECORD))))
                .await
                .unwrap();
            within(sent).await.unwrap();
        }
        let (used, budget) = (value(&broker, RINGS), value(&broker, RINGS_BUDGET));
        // One batch may come before the others have given way.
        assert!(used <= budget + RECORD as u64 + 1000, "{used} of {budget}");
    }
    for (name, policy, mut subscription) in slow {
        let series = format!(
            "felix_subscribe_dropped_total{{stream=\"{name}\",policy=\"{}\"}}",
            policy.as_str()
        );
        let open = value(&broker, &series);
        assert!(open > 0, "six windows of 8 MiB do not fit");
        let (mut seen, mut lost) = (0, 0);
        while seen + lost < RECORDS {
            match next(&mut subscription).await {
                Delivery::Record(record) => {
                    assert_eq!(number_of(&record.value), seen + lost);
                    seen += 1;
                }
                Delivery::Gap(gap) => {
                    let Lost::Exactly(records) = gap.lost else {
                        panic!("{gap:?}")
                    };
                    lost += records;
                }
            }
        }
        assert_eq!((seen + lost, value(&broker, &series)), (RECORDS, lost));
    }
    broker.shutdown().await;
}

/// Fills the rings' share with what subscriptions of policy `block` have not read.
async fn full_of_what_may_not_be_lost(broker: &EmbeddedBroker) -> Vec<felix_client::Subscription> {
    let mut spec = StreamSpec::default();
    large_window(&mut spec);
    let client = sparing_client(broker, 0).await;
    let other = client_of(broker).await;
    let mut held = Vec::new();
    for number in 0..3 {
        let name = format!("held-{number}");
        broker.create_stream(&name, spec.clone()).await.unwrap();
        let subscription = client.subscribe(&name).policy(SlowPolicy::Block).open();
        held.push(within(subscription).await.unwrap());
        let publisher = within(other.publisher(&name).open()).await.unwrap();
        let budget = value(broker, RINGS_BUDGET);
        // 7 MiB each stay below the window.
        for number in 0..7 * (1 << 20) / RECORD as u64 {
            if value(broker, RINGS) > budget {
                return held;
            }
            let sent = within(publisher.send(Record::new(numbered(number, RECORD))))
                .await
                .unwrap();
            within(sent).await.unwrap();
        }
    }
    panic!("three times 7 MiB are more than 12 MiB")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_are_paced_while_memory_is_used_up_and_who_holds_it_is_ended() {
    let broker = broker_of(small, |_| {}).await;
    let good = client_of(&broker).await;
    let held = full_of_what_may_not_be_lost(&broker).await;
    // It waits until the subscriptions that hold all are ended for not reading.
    publish(&good, 0..10, 100).await;
    // Those that were not needed for that go on.
    let mut ended = tokio::task::JoinSet::new();
    for mut subscription in held {
        ended.spawn(async move {
            loop {
                if let Err(error) = subscription.next().await {
                    break error;
                }
            }
        });
    }
    match within(ended.join_next()).await.unwrap().unwrap() {
        SubscribeError::Refused { code, .. } => assert_eq!(code, ErrorCode::TooSlow),
        other => panic!("{other}"),
    }
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_sheds_refuses_while_memory_is_used_up_and_keeps_the_order() {
    let patient = |settings: &mut Settings| {
        small(settings);
        settings.block_timeout_ms = Millis(Duration::from_secs(30));
    };
    let broker = broker_of(patient, |spec| spec.overload = OverloadPolicy::Shed).await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let (mut send, mut recv) = publisher(&connection).await;
    within(send.write_all(&batch(7, 0, b"first"))).await.unwrap();
    assert_eq!(answers(&mut recv, 1).await, [Ok(0)]);
    let (mut newcomer, mut newcomer_recv) = publisher_of(&connection, 8).await;
    let held = full_of_what_may_not_be_lost(&broker).await;
    within(newcomer.write_all(&batch(8, 0, b"its first")))
        .await
        .unwrap();
    assert_eq!(answers(&mut newcomer_recv, 1).await, [Err(ErrorCode::Overloaded)]);
    for sequence in 1..3 {
        within(send.write_all(&batch(7, sequence, b"refused")))
            .await
            .unwrap();
    }
    assert_eq!(answers(&mut recv, 2).await, [Err(ErrorCode::Overloaded); 2]);
    let counted = "felix_publish_requests_total{result=\"Overloaded\"}";
    assert_eq!(value(&broker, counted), 3);
    // Where the client's own publisher is used, its user is told by the kind of the error.
    let good = client_of(&broker).await;
    let publisher = within(good.publisher(STREAM).open()).await.unwrap();
    let sent = within(publisher.send(Record::new("refused"))).await.unwrap();
    let error: PublishError = within(sent).await.unwrap_err();
    assert_eq!(error.kind(), felix_client::ErrorKind::Retry, "{error}");
    drop(held);
    let budget = value(&broker, RINGS_BUDGET);
    until_metric(&broker, RINGS, |used| used <= budget).await;
    // What follows a refused batch is refused until that one comes again.
    for sequence in [2, 1, 2] {
        within(send.write_all(&batch(7, sequence, b"again")))
            .await
            .unwrap();
    }
    assert_eq!(
        answers(&mut recv, 3).await,
        [Err(ErrorCode::SequenceGap), Ok(1), Ok(2)]
    );
    // Also where the refused one was the first that the shard could have known of its producer.
    for sequence in [1, 0, 1] {
        within(newcomer.write_all(&batch(8, sequence, b"again")))
            .await
            .unwrap();
    }
    assert_eq!(
        answers(&mut newcomer_recv, 3).await,
        [Err(ErrorCode::SequenceGap), Ok(3), Ok(4)]
    );
    let sent = within(publisher.send(Record::new("last"))).await.unwrap();
    assert_eq!(within(sent).await.unwrap().offset, 5);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_are_begun_and_not_sent_give_way_to_good_ones() {
    let broker = broker_of(small, |_| {}).await;
    let good = client_of(&broker).await;
    let budget = value(&broker, IN_FLIGHT_BUDGET);
    let half = FrameHead {
        kind: FrameKind::Publish,
        length: u32::try_from(budget / 2).unwrap(),
    };
    let (mut hostile, mut quiet) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (endpoint, connection, control, answers) = greeted(&broker).await;
        // A second one of the same connection gets nothing: a connection has half at most.
        for _ in 0..2 {
            let (mut send, recv) = publisher(&connection).await;
            within(send.write_all(&half.to_bytes())).await.unwrap();
            within(send.write_all(&[0; 1000])).await.unwrap();
            hostile.push((send, recv));
        }
        quiet.push((endpoint, control, answers));
    }
    until_metric(&broker, IN_FLIGHT, |used| used == budget).await;
    publish(&good, 0..10, 100).await;
    // One that held memory was told so, by the floor and not by the time that any batch has.
    let mut told = tokio::task::JoinSet::new();
    for (send, mut recv) in hostile {
        told.spawn(async move {
            let first = read_frame(&mut recv).await;
            drop(send);
            first
        });
    }
    let Frame::Error(error) = within(told.join_next()).await.unwrap().unwrap() else {
        panic!("no error")
    };
    assert_eq!(error.code, ErrorCode::Overloaded);
    assert!(error.message.contains("too slowly"), "{}", error.message);
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_is_not_read_does_not_stop_the_others_of_its_connection() {
    let broker = broker_with(large_window).await;
    for name in ["blocked", "free"] {
        let mut spec = StreamSpec::default();
        large_window(&mut spec);
        spec.ring_bytes = 1 << 20;
        spec.slow_subscriber.window_bytes = 1 << 20;
        broker.create_stream(name, spec).await.unwrap();
    }
    let holding = sparing_client(&broker, 0).await;
    let held = within(holding.subscribe("blocked").policy(SlowPolicy::Block).open())
        .await
        .unwrap();
    let client = client_of(&broker).await;
    let blocked = within(client.publisher("blocked").open()).await.unwrap();
    // As much as its buffer takes: more than its stream's and its connection's windows.
    let mut waiting = Vec::new();
    while let Ok(ack) = blocked.try_send(&Record::new(vec![0; RECORD])) {
        waiting.push(ack);
        tokio::task::yield_now().await;
    }
    let free = within(client.publisher("free").open()).await.unwrap();
    for number in 0..1000 {
        let sent = within(free.send(Record::new(numbered(number, RECORD))))
            .await
            .unwrap();
        within(sent).await.unwrap();
    }
    drop(held);
    for ack in waiting {
        within(ack).await.unwrap();
    }
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_subscription_that_takes_a_byte_now_and_then_is_ended_and_publishers_go_on() {
    let broker = broker_of(
        |settings| settings.block_timeout_ms = Millis(Duration::from_millis(400)),
        |spec| {
            large_window(spec);
            spec.slow_subscriber.window_bytes = 4 << 10;
        },
    )
    .await;
    let good = client_of(&broker).await;
    let (_endpoint, connection, _control, _answers) = greeted(&broker).await;
    let (mut send, mut recv) = within(connection.open_bi()).await.unwrap();
    within(send.write_all(&encoded(&subscribe(Some(SlowPolicy::Block), 1))))
        .await
        .unwrap();
    assert!(matches!(read_frame(&mut recv).await, Frame::Subscribed(_)));
    // It reads what it is sent and asks for one more frame, but only once in a while.
    let trickle = tokio::spawn(async move {
        let mut limit = 1;
        loop {
            match read_frame(&mut recv).await {
                Frame::Deliver(deliver) => limit += 6 + 20 + deliver.batch.len() as u64,
                Frame::Error(error) => return error.code,
                other => panic!("{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut more = BytesMut::new();
            Frame::Credit(felix_wire::Credit { limit }).encode(&mut more);
            if send.write_all(&more).await.is_err() {
                continue;
            }
        }
    });
    // One small batch after the other: what it takes of them in its twenty milliseconds is far below the floor.
    let publisher = within(good.publisher(STREAM).open()).await.unwrap();
    let publishing = tokio::spawn(async move {
        for number in 0..400 {
            let sent = within(publisher.send(Record::new(numbered(number, 8))))
                .await
                .unwrap();
            within(sent).await.unwrap();
        }
    });
    let code = within(trickle).await.unwrap();
    assert_eq!(code, ErrorCode::TooSlow);
    within(publishing).await.unwrap();
    broker.shutdown().await;
}
