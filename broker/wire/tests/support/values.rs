//! The values of a frame as JSON, under the names that the page on the wire gives to its fields: numbers as numbers, ids and
//! bytes as hexadecimal digits, what is absent as null.

use felix_wire::{
    AckEntry, AuthMethod, Batch, Deliver, Frame, GapReason, Hello, IncomingBatch, Lost, Record, SlowPolicy,
    Stamp, Start, StreamClass, Subscribe,
};
use serde_json::{Value, json};

pub(crate) fn of(frame: &Frame) -> Value {
    match frame {
        Frame::Hello(_)
        | Frame::Welcome(_)
        | Frame::MetadataRequest(_)
        | Frame::Metadata(_)
        | Frame::Error(_)
        | Frame::GoAway(_)
        | Frame::Optional { .. } => session(frame),
        Frame::OpenPublish(_) | Frame::PublishOpened(_) | Frame::Publish(_) | Frame::Acks(_) => {
            publishing(frame)
        }
        Frame::Subscribe(_) | Frame::Subscribed(_) | Frame::Deliver(_) | Frame::Gap(_) | Frame::Credit(_) => {
            subscribing(frame)
        }
    }
}

fn session(frame: &Frame) -> Value {
    match frame {
        Frame::Hello(hello) => self::hello(hello),
        Frame::Welcome(welcome) => json!({
            "frame": "welcome",
            "version": welcome.version,
            "features": welcome.features,
            "cluster id": welcome.cluster_id,
            "broker id": welcome.broker_id,
        }),
        Frame::MetadataRequest(request) => json!({
            "frame": "metadata request",
            "stream name": request.stream.as_str(),
        }),
        Frame::Metadata(metadata) => json!({
            "frame": "metadata",
            "stream name": metadata.stream.as_str(),
            "incarnation": id(metadata.incarnation.0),
            "class": match metadata.class {
                StreamClass::Memory => 0,
                StreamClass::Durable => 1,
                StreamClass::Quorum => 2,
                StreamClass::Unlisted(number) => number,
            },
            "shards": metadata.shards,
        }),
        Frame::Error(error) => json!({
            "frame": "error",
            "code": error.code.to_wire(),
            "detail": error.detail,
            "message": error.message,
        }),
        Frame::GoAway(go_away) => json!({
            "frame": "go away",
            "code": go_away.code.to_wire(),
            "message": go_away.message,
        }),
        Frame::Optional { kind, body } => json!({ "frame": "skipped", "kind": kind, "body": hex(body) }),
        _ => panic!("{:?} is not about the connection", frame.kind()),
    }
}

fn hello(hello: &Hello) -> Value {
    json!({
        "frame": "hello",
        "lowest version": hello.min_version,
        "highest version": hello.max_version,
        "features": hello.features,
        "agent": hello.agent,
        "authentication method": match hello.auth {
            AuthMethod::None => 0,
            AuthMethod::Token => 1,
            AuthMethod::Unlisted(number) => number,
        },
        "token": hex(&hello.token),
    })
}

fn publishing(frame: &Frame) -> Value {
    match frame {
        Frame::OpenPublish(open) => json!({
            "frame": "open publish",
            "stream name": open.stream.as_str(),
            "shard": open.shard.0,
            "producer id": id(open.producer.0),
            "producer epoch": open.epoch.0,
        }),
        Frame::PublishOpened(opened) => json!({
            "frame": "publish opened",
            "incarnation": id(opened.incarnation.0),
            "largest batch in bytes": opened.max_batch_bytes,
            "largest record in bytes": opened.max_record_bytes,
        }),
        Frame::Publish(bytes) => {
            // A stamp is needed to read the records; it is not a part of what was sent.
            let sent = IncomingBatch::check(bytes[..].into(), 1 << 20).unwrap();
            let mut batch = batch(&sent.stamp(&Stamp::default()));
            batch["stamp"] = Value::Null;
            json!({ "frame": "publish", "batch": batch })
        }
        Frame::Acks(acks) => {
            let entries: Vec<_> = acks.clone().into_entries().iter().map(entry).collect();
            json!({ "frame": "acks", "entries": entries })
        }
        _ => panic!("{:?} is not about publishing", frame.kind()),
    }
}

fn entry(entry: &AckEntry) -> Value {
    match entry {
        Ok(ack) => json!({ "error": 0, "reached": ack.reached as u8 + 1, "number": ack.base_offset.0 }),
        Err(refusal) => json!({ "error": refusal.code.to_wire(), "reached": 0, "number": refusal.detail }),
    }
}

fn subscribing(frame: &Frame) -> Value {
    match frame {
        Frame::Subscribe(subscribe) => self::subscribe(subscribe),
        Frame::Subscribed(subscribed) => json!({
            "frame": "subscribed",
            "incarnation": id(subscribed.incarnation.0),
            "from": subscribed.from.0,
            "policy": policy(subscribed.policy),
            "window": subscribed.window,
        }),
        Frame::Deliver(deliver) => self::deliver(deliver),
        Frame::Gap(gap) => {
            let (precision, lost) = match gap.lost {
                Lost::Exactly(lost) => (0, lost),
                Lost::AtMost(lost) => (1, lost),
                Lost::Unknown => (2, 0),
            };
            json!({
                "frame": "gap",
                "from": gap.from.0,
                "to": gap.to.map(|to| to.0),
                "reason": match gap.reason {
                    GapReason::DropNew => 1,
                    GapReason::DropOld => 2,
                    GapReason::NotKept => 3,
                    GapReason::FormerIncarnation => 4,
                    GapReason::Damaged => 5,
                    GapReason::Unlisted(number) => number,
                },
                "precision": precision,
                "lost": lost,
            })
        }
        Frame::Credit(credit) => json!({ "frame": "credit", "limit": credit.limit }),
        _ => panic!("{:?} is not about subscribing", frame.kind()),
    }
}

fn subscribe(subscribe: &Subscribe) -> Value {
    let (kind, number) = match subscribe.start {
        Start::Latest => (0, 0),
        Start::Earliest => (1, 0),
        Start::Offset(offset) => (2, offset.0),
        Start::Time(time) => (3, time.0),
    };
    json!({
        "frame": "subscribe",
        "stream name": subscribe.stream.as_str(),
        "shard": subscribe.shard.0,
        "start kind": kind,
        "number": number,
        "incarnation": id(subscribe.incarnation.0),
        "policy": policy(subscribe.policy),
        "window": subscribe.window,
        "credit": subscribe.credit,
    })
}

fn policy(policy: Option<SlowPolicy>) -> u8 {
    match policy {
        None => 0,
        Some(SlowPolicy::Block) => 1,
        Some(SlowPolicy::DropNew) => 2,
        Some(SlowPolicy::DropOld) => 3,
    }
}

fn deliver(deliver: &Deliver) -> Value {
    let selection = deliver.selection.indices().map(Iterator::collect::<Vec<_>>);
    let batch = (!deliver.batch.is_empty()).then(|| batch(&Batch::check(deliver.batch.clone()).unwrap()));
    json!({
        "frame": "deliver",
        "from": deliver.from.0,
        "to": deliver.to.0,
        "selection": selection,
        "batch": batch,
    })
}

fn batch(batch: &Batch) -> Value {
    let (header, stamp) = (batch.header(), batch.stamp());
    let records: Vec<_> = batch
        .records()
        .map(|record| self::record(&record.unwrap()))
        .collect();
    json!({
        "codec": 0,
        "control": header.control,
        "dense": header.dense,
        "last offset delta": header.last_offset_delta,
        "uncompressed length": header.uncompressed_len,
        "first timestamp": header.first_timestamp.0,
        "highest timestamp": header.max_timestamp.0,
        "producer id": id(header.origin.producer.0),
        "sequence": header.origin.sequence.0,
        "producer epoch": header.origin.epoch.0,
        "stamp": {
            "incarnation": id(stamp.incarnation.0),
            "term": stamp.term.0,
            "previous term": stamp.previous_term.0,
            "base offset": stamp.base_offset.0,
            "append time": stamp.append_time.0,
            "synced": stamp.synced.0,
            "shard": stamp.shard.0,
        },
        "records": records,
    })
}

fn record(record: &Record<'_>) -> Value {
    let headers: Vec<_> = record
        .headers
        .map(|header| json!([header.name, hex(header.value)]))
        .collect();
    json!({
        "offset delta": record.offset_delta,
        "timestamp": record.timestamp.0,
        "key": record.key.map(hex),
        "headers": headers,
        "value": (!record.deletes).then(|| hex(record.value)),
    })
}

fn id(number: u128) -> String {
    format!("{number:032x}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
