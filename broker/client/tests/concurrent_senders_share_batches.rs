//! Batches form by themselves: one sender alone sends at once, many together fill batches, without a timer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use felix_client::Record;
use support::{Broker, STREAM};

#[tokio::test]
async fn one_sender_alone_sends_each_record_at_once() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    for n in 0..50_u8 {
        publisher.send(Record::new(&[n])).await.unwrap().await.unwrap();
    }
    assert_eq!(broker.batch_sizes(0), [1; 50]);
}

#[tokio::test]
async fn sixty_four_senders_make_batches_of_sixteen_or_more() {
    sixty_four_senders().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_senders_on_two_threads_do_so_too() {
    sixty_four_senders().await;
}

async fn sixty_four_senders() {
    let broker = Broker::start(1).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let senders: Vec<_> = (0..64_u8)
        .map(|n| {
            let publisher = publisher.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    publisher
                        .send(Record::new(&[n; 256]))
                        .await
                        .unwrap()
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    let sizes = broker.batch_sizes(0);
    let mean = sizes.iter().sum::<u32>() as usize / sizes.len();
    assert!(mean >= 16, "{} batches of {mean} records: {sizes:?}", sizes.len());
}

#[tokio::test]
async fn a_batch_made_by_hand_is_stored_in_one_piece() {
    let broker = Broker::start(2).await;
    let publisher = broker.client().await.publisher(STREAM).open().await.unwrap();
    let mut acks = Vec::new();
    for _ in 0..2 {
        let mut batch = publisher.batch();
        for n in 0..64_u8 {
            batch.push(&Record::new(&[n; 100])).unwrap();
        }
        acks.push(publisher.send_batch(batch).await.unwrap());
    }
    for ack in acks {
        assert_eq!(ack.await.unwrap().offset, 0);
    }
    assert_eq!(
        (broker.batch_sizes(0), broker.batch_sizes(1)),
        (vec![64], vec![64]),
        "shards take turns"
    );
    assert!(
        publisher.send_batch(publisher.batch()).await.is_err(),
        "an empty batch is no batch"
    );
}
