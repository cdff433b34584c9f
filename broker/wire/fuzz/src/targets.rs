//! What is fuzzed: each function takes foreign bytes and fails by panicking. Tests replay the corpus through the same.

use bytes::{Bytes, BytesMut};
use felix_wire::{
    Batch, FRAME_HEAD_LEN, Frame, HEADER_LEN, Incarnation, IncomingBatch, MAX_FRAME_BYTES, Offset, Stamp,
    StreamName, take_frame,
};

/// Takes foreign bytes.
pub(crate) type Target = fn(&[u8]);

/// Every target and its name, which is also the name of its corpus.
pub(crate) const TARGETS: [(&str, Target); 4] = [
    ("frames", frames),
    ("hello", hello),
    ("batch", batch),
    ("names", names),
];

/// A stream of frames: what is decoded is what would be encoded.
pub(crate) fn frames(data: &[u8]) {
    let mut buffer = BytesMut::from(data);
    while let Ok(Some((kind, body))) = take_frame(&mut buffer, MAX_FRAME_BYTES) {
        if let Ok(frame) = Frame::decode(kind, body) {
            comes_back(&frame);
            look_inside(&frame);
        }
    }
}

/// The body of a hello, the first thing that a stranger can send; and the same bytes as every other body.
pub(crate) fn hello(data: &[u8]) {
    for number in 0..0x40 {
        let Ok(kind) = felix_wire::FrameKind::from_wire(number) else {
            continue;
        };
        if let Ok(frame) = Frame::decode(kind, Bytes::copy_from_slice(data)) {
            comes_back(&frame);
        }
    }
}

/// A batch whose mark, lengths and checksum are right, as a hostile producer's would be.
pub(crate) fn batch(data: &[u8]) {
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(HEADER_LEN), 0);
    let stored = (bytes.len() - HEADER_LEN) as u32;
    bytes[..5].copy_from_slice(b"FLXB\x01");
    bytes[16..20].copy_from_slice(&stored.to_le_bytes());
    bytes[20..24].copy_from_slice(&stored.to_le_bytes());
    let head = crc32c::crc32c_append(u32::from_be_bytes(*b"flxp"), &bytes[..68]);
    let checksum = crc32c::crc32c_append(head, &bytes[HEADER_LEN..]);
    bytes[68..72].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(incoming) = IncomingBatch::check(BytesMut::from(&bytes[..]), 1 << 20) {
        let base_offset = Offset(7);
        let stamped = incoming.stamp(&Stamp {
            base_offset,
            ..Stamp::default()
        });
        let records = read(&Batch::check(stamped.into_bytes()).expect("a stamped batch is whole"));
        assert!(records.is_some(), "a broker took a batch that cannot be read");
    }
    // What a subscriber might be sent by a hostile broker: a stamp over records that nobody looked at.
    bytes[132..134].copy_from_slice(&(HEADER_LEN as u16).to_le_bytes());
    let checksum = crc32c::crc32c_append(u32::from_be_bytes(*b"flxh"), &bytes[..136]);
    bytes[136..140].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(batch) = Batch::check(bytes.into()) {
        read(&batch);
    }
}

/// Names and ids as texts.
pub(crate) fn names(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(name) = StreamName::new(text) {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(id) = text.parse::<Incarnation>() {
        assert_eq!(id.to_string(), text);
    }
}

fn comes_back(frame: &Frame) {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    let body = bytes.split_off(FRAME_HEAD_LEN).freeze();
    assert_eq!(Frame::decode(frame.kind(), body).as_ref(), Ok(frame));
}

fn look_inside(frame: &Frame) {
    if let Frame::Deliver(deliver) = frame {
        let indices: Vec<_> = deliver.selection.indices().into_iter().flatten().collect();
        assert!(indices.is_sorted_by(|one, next| one < next), "indices rise");
        if let Ok(batch) = Batch::check(deliver.batch.clone()) {
            read(&batch);
        }
    }
}

/// Reads all records; `None` if one is malformed.
fn read(batch: &Batch) -> Option<usize> {
    let mut next = batch.base_offset();
    let mut count = 0;
    for record in batch.records() {
        let record = record.ok()?;
        let offset = record.offset(batch.base_offset());
        assert!(
            offset >= next && offset < batch.next_offset(),
            "offsets rise within the batch"
        );
        next = offset.plus(1);
        let headers = record
            .headers
            .map(|header| header.name.len() + header.value.len());
        assert!(headers.sum::<usize>() <= record.size());
        count += 1;
    }
    assert_eq!(count, batch.record_count() as usize);
    Some(count)
}
