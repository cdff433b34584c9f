//! What fuzzing learned, replayed: every file of the corpus goes through its target.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::path::Path;

#[path = "../fuzz/src/targets.rs"]
mod targets;

#[test]
fn every_file_of_the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    for (name, target) in targets::TARGETS {
        let files = fs::read_dir(corpus.join(name)).unwrap();
        let replayed = files
            .map(|file| target(&fs::read(file.unwrap().path()).unwrap()))
            .count();
        assert!(replayed > 0, "the corpus of {name} is empty");
    }
}
