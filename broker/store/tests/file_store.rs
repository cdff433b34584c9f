//! The file store on a real directory: what was swapped is there after a new opening, and bad files are refused by kind.

#![allow(clippy::unwrap_used, reason = "a failed expectation is how a test fails")]

use std::{fs, sync::Arc};

use felix_store::{Catalogue, FileStore, OpenError, PutStream, Store, StreamSpec, SwapError};

fn with_stream(catalogue: &Catalogue, name: &str) -> Catalogue {
    let mut next = catalogue.clone();
    next.put_stream(PutStream {
        name,
        owner: "test",
        expected_version: None,
        spec: StreamSpec::default(),
        incarnation: "000102030405060708090a0b0c0d0e0f",
        now_ms: 1,
    })
    .unwrap();
    next
}

fn current(store: &FileStore) -> Arc<Catalogue> {
    store.watch().borrow().clone()
}

#[tokio::test]
async fn a_swap_survives_a_new_opening() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "c1").unwrap();
    let before = current(&store);
    let mut watch = store.watch();
    let next = with_stream(&before, "orders");
    let swapped = store
        .compare_and_swap(before.version(), next.clone())
        .await
        .unwrap();
    assert_eq!(*swapped, next);
    watch.changed().await.unwrap();
    assert_eq!(**watch.borrow(), next);
    drop(store);
    let again = FileStore::open(directory.path(), "c1").unwrap();
    assert_eq!(*current(&again), next);
}

#[tokio::test]
async fn the_second_of_two_writers_is_told_the_version() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "c1").unwrap();
    let seen = current(&store);
    store
        .compare_and_swap(seen.version(), with_stream(&seen, "first"))
        .await
        .unwrap();
    let refused = store
        .compare_and_swap(seen.version(), with_stream(&seen, "second"))
        .await;
    assert!(
        matches!(
            refused,
            Err(SwapError::Conflict {
                expected: 1,
                actual: 2
            })
        ),
        "{refused:?}"
    );
    assert!(!current(&store).streams().contains_key("second"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_each_change_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "c1").unwrap();
    let writers = (0..8).map(|index| {
        let store = store.clone();
        tokio::spawn(async move {
            loop {
                let seen = current(&store);
                let next = with_stream(&seen, &format!("s{index}"));
                match store.compare_and_swap(seen.version(), next).await {
                    Ok(_) => return,
                    Err(SwapError::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let again = FileStore::open(directory.path(), "c1").unwrap();
    assert_eq!(current(&again).streams().len(), 8);
    assert_eq!(current(&again).version(), 9);
}

#[test]
fn another_clusters_catalogue_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    FileStore::open(directory.path(), "c1").unwrap();
    let refused = FileStore::open(directory.path(), "c2").unwrap_err();
    assert!(
        matches!(&refused, OpenError::OtherCluster { found, .. } if found == "c1"),
        "{refused}"
    );
}

#[test]
fn damage_and_a_later_format_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("catalogue.json");
    fs::write(&file, b"{\"format\":1,\"clusterId\":").unwrap();
    assert!(matches!(
        FileStore::open(directory.path(), "c1"),
        Err(OpenError::Damaged { .. })
    ));
    fs::write(&file, b"{\"format\":2,\"anything\":true}").unwrap();
    assert!(matches!(
        FileStore::open(directory.path(), "c1"),
        Err(OpenError::Format { found: 2, .. })
    ));
}

#[tokio::test]
async fn a_failed_write_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "c1").unwrap();
    let seen = current(&store);
    // A directory in the place of the temporary file makes the write fail, also for root.
    fs::create_dir(directory.path().join("catalogue.json.tmp")).unwrap();
    let failed = store
        .compare_and_swap(seen.version(), with_stream(&seen, "orders"))
        .await;
    assert!(matches!(failed, Err(SwapError::Failed(_))), "{failed:?}");
    fs::remove_dir(directory.path().join("catalogue.json.tmp")).unwrap();
    store
        .compare_and_swap(seen.version(), with_stream(&seen, "orders"))
        .await
        .unwrap();
}
