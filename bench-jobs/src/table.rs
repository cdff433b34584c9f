//! Results for people: one line a row as it finishes, under a heading with the fields that Felix users know.

use crate::outcome::{Detail, RowSummary};

/// Width of each column, heading above.
const COLUMNS: [(&str, usize); 13] = [
    ("payload", 8),
    ("fanout", 6),
    ("batch", 5),
    ("records", 9),
    ("p50", 9),
    ("p99", 9),
    ("p999", 9),
    ("delivered/s", 11),
    ("per sub/s", 10),
    ("MB/s", 8),
    ("CPU s/GB", 8),
    ("submit/s", 10),
    ("drops", 6),
];

/// The heading, two lines.
pub(crate) fn heading() -> String {
    let names: Vec<_> = COLUMNS
        .iter()
        .map(|(name, width)| format!("{name:>width$}"))
        .collect();
    let names = format!("{}  verdict", names.join("  "));
    let rule = "-".repeat(names.len() + 4);
    format!("{names}\n{rule}")
}

/// One row.
pub(crate) fn line(row: &RowSummary, detail: &Detail) -> String {
    let queueing = row.batch > 1;
    let cells = [
        bytes(row.payload_bytes),
        row.fanout.to_string(),
        row.batch.to_string(),
        grouped(row.records),
        latency(row.p50_nanoseconds, queueing),
        latency(row.p99_nanoseconds, queueing),
        latency(row.p999_nanoseconds, queueing),
        grouped(row.delivered_per_second),
        grouped(detail.delivered_per_subscriber_per_second),
        format!("{:.1}", row.delivered_bytes_per_second as f64 / 1e6),
        price(row, detail),
        grouped(row.published_per_second),
        grouped(row.dropped),
    ];
    let cells: Vec<_> = cells
        .iter()
        .zip(COLUMNS)
        .map(|(cell, (_, width))| format!("{cell:>width$}"))
        .collect();
    format!("{}  {}", cells.join("  "), verdict(row, detail))
}

/// What the columns mean.
pub(crate) fn legend() -> &'static str {
    "payload: bytes of a value (0: the 32-byte verification header alone). p50/p99/p999: publish to delivery, all\n\
     deliveries; ~ marks a saturated row, where they are queueing delay and say nothing about one message.\n\
     delivered/s: delivered throughput, all subscribers; per sub/s: for one. CPU s/GB: processor seconds of this process\n\
     for a delivered gigabyte (an embedded broker included). submit/s: publish submit throughput,\n\
     what the publisher handed over: an upper bound, not a delivery claim. drops: delivery drops, must be 0."
}

fn verdict(row: &RowSummary, detail: &Detail) -> String {
    if row.passed {
        return "ok".into();
    }
    let counts = [
        ("dropped", row.dropped),
        ("lost", row.lost),
        ("duplicates", row.duplicates),
        ("reordered", row.reordered),
        ("corrupt", detail.corrupt),
    ];
    let mut reasons: Vec<_> = counts
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{name} {}", grouped(*n)))
        .collect();
    reasons.extend(detail.failure.clone());
    format!("FAILED: {}", reasons.join(", "))
}

/// Processor seconds for a delivered gigabyte. Nothing for latency rows, whose cost is that of waiting.
fn price(row: &RowSummary, detail: &Detail) -> String {
    let price = detail.cpu_nanoseconds_per_gigabyte;
    if row.batch > 1 && price > 0 {
        format!("{:.2}", price as f64 / 1e9)
    } else {
        "-".into()
    }
}

/// Nanoseconds as people read them; `~` in front where the figure is queueing.
fn latency(nanoseconds: u64, queueing: bool) -> String {
    let mark = if queueing { "~" } else { "" };
    let ns = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{mark}{nanoseconds} ns"),
        1_000..1_000_000 => format!("{mark}{:.1} us", ns / 1e3),
        1_000_000..1_000_000_000 => format!("{mark}{:.1} ms", ns / 1e6),
        _ => format!("{mark}{:.2} s", ns / 1e9),
    }
}

fn bytes(count: u64) -> String {
    if count >= 1024 && count.is_multiple_of(1024) {
        format!("{} KiB", count / 1024)
    } else {
        format!("{count} B")
    }
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(passed: bool) -> RowSummary {
        RowSummary {
            payload_bytes: 1024,
            fanout: 10,
            batch: 64,
            records: 200_000,
            p50_nanoseconds: 1_234_567,
            p99_nanoseconds: 2_000_000,
            p999_nanoseconds: 3_000_000,
            delivered_per_second: 1_500_000,
            delivered_bytes_per_second: 1_536_000_000,
            published_per_second: 150_500,
            lost: u64::from(!passed) * 1_300,
            passed,
            ..RowSummary::default()
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }

    #[test]
    fn a_row_stands_under_its_heading() {
        let heading = heading();
        let names = heading.lines().next().unwrap();
        let line = line(&row(true), &Detail::default());
        let end_of = |text: &str, word: &str| text.find(word).unwrap() + word.len();
        assert_eq!(end_of(names, "delivered/s"), end_of(&line, "1,500,000"));
        assert_eq!(end_of(names, "p50"), end_of(&line, "~1.2 ms"));
        assert!(line.ends_with("ok"));
    }

    #[test]
    fn a_failed_row_says_why() {
        let detail = Detail {
            failure: Some("no delivery for 15 s".into()),
            ..Detail::default()
        };
        assert!(line(&row(false), &detail).ends_with("FAILED: lost 1,300, no delivery for 15 s"));
    }

    #[test]
    fn latencies_carry_their_unit_and_mark() {
        assert_eq!(latency(999, false), "999 ns");
        assert_eq!(latency(21_340, false), "21.3 us");
        assert_eq!(latency(2_500_000_000, true), "~2.50 s");
    }
}
