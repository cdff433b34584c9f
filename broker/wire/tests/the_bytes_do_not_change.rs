//! Stored bytes of every frame and of four kinds of batch: what was written once is read for ever, and written the same.
//! The files hold hexadecimal digits; those of a new frame are made by running this test with FELIX_GOLDEN=write.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking"
)]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use felix_wire::{
    Batch, BatchError, DecodeError, FRAME_HEAD_LEN, Frame, FrameHead, FrameKind, HEADER_LEN, IncomingBatch,
    MAX_BATCH_RECORDS, MAX_FRAME_BYTES, Offset, RecordError, Selection,
};

#[path = "support/frames.rs"]
mod made;
#[path = "support/values.rs"]
mod values;

use made::{again_checked, control, deliver, frames, sealed, with_holes};

/// CRC-32C of every file of bytes.
const FROZEN: &[(&str, u32)] = &[
    ("acks", 0x088b0ef8),
    ("credit", 0x064ed1f9),
    ("deliver-control", 0x431f35b4),
    ("deliver-filtered", 0xd550dd7e),
    ("deliver-nothing", 0x968e1b90),
    ("deliver-with-holes", 0x4be47c59),
    ("deliver", 0xcc3248d2),
    ("error", 0x569be2dd),
    ("gap-at-most", 0x96b97189),
    ("gap-former-life", 0xba17edd5),
    ("gap", 0x3596c6b4),
    ("go-away", 0xba89631f),
    ("hello", 0xb3c9c467),
    ("metadata-request", 0xf6c97399),
    ("metadata", 0x8a7b5668),
    ("open-publish", 0xfff2a25b),
    ("publish-opened", 0x20e50f52),
    ("publish", 0xb0dae30b),
    ("subscribe-latest", 0xf700fe11),
    ("subscribe", 0xfe7d490a),
    ("subscribed", 0x3ae6df3b),
    ("unknown-optional", 0x77735c63),
    ("welcome", 0x4008f1f9),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn files(extension: &str) -> usize {
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|this| this == extension))
        .count()
}

/// What a file holds, which has to be `expected`. A file that is not there is written if the person who runs this wants it.
fn stored(path: &Path, expected: &str) -> String {
    if !path.exists() && std::env::var("FELIX_GOLDEN").is_ok_and(|wish| wish == "write") {
        fs::write(path, expected).unwrap();
    }
    let stored = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(expected, stored, "{} holds something else", path.display());
    stored
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn bytes(hex: &str) -> Bytes {
    let digits: String = hex.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn every_frame_is_written_and_read_as_ever() {
    let folder = folder();
    let frames = frames();
    for (name, frame) in &frames {
        let mut written = BytesMut::new();
        frame.encode(&mut written);
        let stored = stored(&folder.join(name).with_extension("hex"), &hex(&written));

        let mut body = bytes(&stored);
        let head = body.split_to(FRAME_HEAD_LEN);
        let head = FrameHead::decode(head[..].try_into().unwrap(), MAX_FRAME_BYTES).unwrap();
        assert_eq!(head.length as usize, body.len());
        assert_eq!(
            Frame::decode(head.kind, body).as_ref(),
            Ok(frame),
            "{name} is read differently"
        );
    }
    assert_eq!(files("hex"), frames.len(), "each file has its frame");
}

/// The decoder in Python compares what it reads with the same files.
#[test]
fn the_values_stored_beside_are_those_of_the_frames() {
    let frames = frames();
    for (name, frame) in &frames {
        let path = folder().join(name).with_extension("json");
        stored(&path, &format!("{:#}\n", values::of(frame)));
    }
    assert_eq!(files("json"), frames.len(), "each file has its frame");
}

/// The formats are frozen: a sum below changes only by mistake. What is added gets a line of its own.
#[test]
fn the_golden_files_are_those_of_the_first_release() {
    let mut known = FROZEN.to_vec();
    for (name, _) in frames() {
        let text = fs::read(folder().join(name).with_extension("hex")).unwrap();
        let sum = crc32c::crc32c(&text);
        let at = known.iter().position(|line| *line == (name, sum));
        let at = at.unwrap_or_else(|| panic!("(\"{name}\", {sum:#010x}) is not as it was frozen"));
        known.remove(at);
    }
    assert!(known.is_empty(), "these are gone: {known:?}");
}

#[test]
fn the_publish_frame_of_a_sealed_batch_is_that_frame() {
    let mut written = BytesMut::new();
    Frame::Publish(sealed(false).slice(FRAME_HEAD_LEN..)).encode(&mut written);
    assert_eq!(sealed(false), written);
}

#[test]
fn holes_and_control_batches_are_read() {
    let batch = Batch::check(with_holes()).unwrap();
    let offsets = batch
        .records()
        .map(|record| record.unwrap().offset(batch.base_offset()).0);
    assert_eq!(offsets.collect::<Vec<_>>(), [1000, 1002, 1006]);
    assert_eq!((batch.record_count(), batch.next_offset()), (3, Offset(1008)));
    assert!(!batch.is_control() && Batch::check(control()).unwrap().is_control());
    // No producer may send either.
    for bytes in [with_holes(), control()] {
        assert!(IncomingBatch::check(BytesMut::from(&bytes[..]), 1 << 16).is_err());
    }
}

#[test]
fn counts_and_offsets_that_contradict_each_other_are_refused() {
    let read = |bytes: Bytes| {
        let batch = Batch::check(bytes)?;
        batch.records().try_for_each(|record| {
            let error = |error| BatchError::Record { index: 0, error };
            record.map(|_| ()).map_err(error)
        })
    };
    let with = |at: usize, value: u8| {
        let mut bytes = with_holes().to_vec();
        bytes[at] = value;
        read(again_checked(bytes))
    };
    let offset = Err(BatchError::Record {
        index: 0,
        error: RecordError::Offset,
    });
    assert_eq!(read(with_holes()), Ok(()));
    assert_eq!(with(8, 0), Err(BatchError::Count), "no records");
    assert_eq!(with(12, 1), Err(BatchError::Count), "more records than offsets");
    assert_eq!(with(12, 5), offset, "the last record lies beyond the batch");
    assert_eq!(
        with(HEADER_LEN, 3),
        offset,
        "the second record lies before the first"
    );
}

#[test]
fn a_selection_of_more_records_than_a_batch_has_is_refused() {
    let decode = |indices: &[u32]| {
        let mut written = BytesMut::new();
        deliver(with_holes(), Selection::of(indices.iter().copied())).encode(&mut written);
        Frame::decode(FrameKind::Deliver, written.split_off(FRAME_HEAD_LEN).freeze()).map(|_| ())
    };
    assert_eq!(decode(&[0, MAX_BATCH_RECORDS - 1]), Ok(()));
    let refused = Err(DecodeError::Value { field: "selection" });
    assert_eq!(decode(&[MAX_BATCH_RECORDS]), refused);
    assert_eq!(decode(&[1, MAX_BATCH_RECORDS]), refused);
}
