//! `felix-bench report`: result lines to one self-contained HTML page. Nothing is fetched, no script runs.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail};

use crate::chart::{self, Chart, escape};
use crate::cli::ReportArgs;
use crate::outcome::{ResultLine, SCHEMA};
use crate::table::grouped;

/// Largest results file that is read, in bytes: far above any run, and no surprise for the memory.
const FILE_BYTES_MAX: u64 = 256 << 20;

const STYLE: &str = include_str!("report.css");

/// Reads the files, writes the page.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for path in &args.results {
        lines.extend(read(path)?);
    }
    let shown = if args.all_sessions {
        lines
    } else {
        latest_session(lines)
    };
    if shown.is_empty() {
        bail!("no result lines in {:?}", args.results);
    }
    std::fs::write(&args.output, page(&shown))
        .with_context(|| format!("writing {}", args.output.display()))?;
    println!("{} rows -> {}", shown.len(), args.output.display());
    Ok(())
}

/// The result lines of a file. A line that cannot be read is an error that names it: a report never leaves runs out.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<ResultLine>> {
    let size = std::fs::metadata(path)
        .with_context(|| format!("reading {}", path.display()))?
        .len();
    if size > FILE_BYTES_MAX {
        bail!(
            "{} has {size} bytes; results files above {FILE_BYTES_MAX} are not read",
            path.display()
        );
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let numbered = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    numbered
        .map(|(number, line)| {
            let line: ResultLine = serde_json::from_str(line)
                .with_context(|| format!("{} line {} is no result line", path.display(), number + 1))?;
            if line.schema != SCHEMA {
                bail!(
                    "{} line {} has schema {}, not {SCHEMA}",
                    path.display(),
                    number + 1,
                    line.schema
                );
            }
            Ok(line)
        })
        .collect()
}

/// Files are appended to, so mixing sessions would draw different code states as one.
fn latest_session(lines: Vec<ResultLine>) -> Vec<ResultLine> {
    let Some(latest) = lines.last().map(|line| line.session.clone()) else {
        return lines;
    };
    lines.into_iter().filter(|line| line.session == latest).collect()
}

/// The whole page.
pub(crate) fn page(lines: &[ResultLine]) -> String {
    let failed = lines.iter().filter(|line| !line.result.passed).count();
    let verdict = if failed == 0 {
        format!(
            r#"<p class="ok">All {} rows passed: every record came once, in order, unchanged.</p>"#,
            lines.len()
        )
    } else {
        format!(r#"<p class="bad">{failed} of {} rows failed.</p>"#, lines.len())
    };
    let parts = [
        "<h1>Felix benchmark</h1>".to_owned(),
        headline(lines),
        verdict,
        latency_charts(lines),
        throughput_charts(lines),
        percentile_chart(lines),
        table(lines),
        environment(lines),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Felix benchmark</title><style>{STYLE}</style></head>\n<body><main>\n{}\n</main></body></html>\n",
        parts.join("\n")
    )
}

/// The answer first: the best of both profiles in a sentence.
fn headline(lines: &[ResultLine]) -> String {
    let latency = lines
        .iter()
        .filter(|line| line.result.batch == 1 && line.result.passed);
    let rate = lines
        .iter()
        .filter(|line| line.result.batch > 1 && line.result.passed);
    let mut parts = Vec::new();
    if let Some(best) = latency.min_by_key(|line| line.result.p50_nanoseconds) {
        parts.push(format!(
            "p50 {:.1} us and p99 {:.1} us from publish to delivery at {} bytes to {}",
            best.result.p50_nanoseconds as f64 / 1e3,
            best.result.p99_nanoseconds as f64 / 1e3,
            best.workload.value_bytes,
            best.result.fanout
        ));
    }
    if let Some(best) = rate.max_by_key(|line| line.result.delivered_bytes_per_second) {
        parts.push(format!(
            "{} deliveries or {:.0} MB a second at {} bytes to {}",
            grouped(best.result.delivered_per_second),
            best.result.delivered_bytes_per_second as f64 / 1e6,
            best.workload.value_bytes,
            best.result.fanout
        ));
    }
    format!(r#"<p class="lead">{}</p>"#, escape(&parts.join("; ")))
}

fn latency_charts(lines: &[ResultLine]) -> String {
    let rows: Vec<_> = lines.iter().filter(|line| line.result.batch == 1).collect();
    let fanouts: BTreeSet<_> = rows.iter().map(|line| line.result.fanout).collect();
    fanouts
        .into_iter()
        .map(|fanout| {
            let rows: Vec<_> = rows
                .iter()
                .filter(|line| line.result.fanout == fanout)
                .copied()
                .collect();
            let series = |name: &str, of: fn(&ResultLine) -> u64| {
                let values = rows
                    .iter()
                    .map(|line| measured(line, of(line) as f64 / 1e3))
                    .collect();
                (name.to_owned(), values)
            };
            let title = format!("Latency, fan-out {fanout}");
            figure(
                &title,
                chart::bars(&Chart {
                    title: &title,
                    description: "Publish to delivery by payload, one record in flight, acknowledged".into(),
                    unit: "us",
                    groups: rows.iter().map(|line| payload_name(line)).collect(),
                    series: vec![
                        series("p50", |line| line.result.p50_nanoseconds),
                        series("p99", |line| line.result.p99_nanoseconds),
                        series("p999", |line| line.result.p999_nanoseconds),
                    ],
                    log: true,
                }),
            )
        })
        .collect()
}

fn throughput_charts(lines: &[ResultLine]) -> String {
    let rows: Vec<_> = lines.iter().filter(|line| line.result.batch > 1).collect();
    if rows.is_empty() {
        return String::new();
    }
    let groups = || {
        rows.iter()
            .map(|line| format!("{} x {}", payload_name(line), line.result.fanout))
            .collect()
    };
    let one = |title: &str, unit: &str, of: fn(&ResultLine) -> f64| {
        let values = rows.iter().map(|line| measured(line, of(line))).collect();
        let svg = chart::bars(&Chart {
            title,
            description: format!("{title} by payload and fan-out, saturated, lossless"),
            unit,
            groups: groups(),
            series: vec![("delivered, all subscribers".to_owned(), values)],
            log: false,
        });
        figure(title, svg)
    };
    let records = one("Delivered records a second", "records/s", |line| {
        line.result.delivered_per_second as f64
    });
    let bytes = one("Delivered bytes a second", "MB/s", |line| {
        line.result.delivered_bytes_per_second as f64 / 1e6
    });
    records + &bytes
}

/// The tail of each latency row, from p50 on.
fn percentile_chart(lines: &[ResultLine]) -> String {
    let rows: Vec<_> = lines
        .iter()
        .filter(|line| line.result.batch == 1 && line.result.passed)
        .take(6)
        .collect();
    let Some(first) = rows.first() else {
        return String::new();
    };
    let quantiles: Vec<f64> = first
        .detail
        .percentiles
        .iter()
        .map(|(q, _)| *q)
        .filter(|q| *q >= 0.5 && *q < 1.0)
        .collect();
    let series = rows
        .iter()
        .map(|line| {
            let at = |quantile: &f64| {
                let found = line.detail.percentiles.iter().find(|(q, _)| q == quantile);
                found.map(|(_, nanoseconds)| *nanoseconds as f64 / 1e3)
            };
            let name = format!("{} x {}", payload_name(line), line.result.fanout);
            (name, quantiles.iter().map(at).collect())
        })
        .collect();
    let svg = chart::lines(&Chart {
        title: "Latency by percentile",
        description: "Publish to delivery of the latency rows, from the median to the far tail".into(),
        unit: "us",
        groups: quantiles
            .iter()
            .map(|q| format!("p{}", (q * 1e7).round() / 1e5))
            .collect(),
        series,
        log: true,
    });
    figure("Latency by percentile", svg)
}

fn table(lines: &[ResultLine]) -> String {
    const NAMES: [&str; 14] = [
        "payload",
        "fan-out",
        "batch",
        "records",
        "p50 us",
        "p99 us",
        "p999 us",
        "delivered/s",
        "per subscriber/s",
        "MB/s",
        "submit/s",
        "drops",
        "verdict",
        "notes",
    ];
    let head: String = NAMES
        .iter()
        .map(|name| format!(r#"<th scope="col">{name}</th>"#))
        .collect();
    let body: String = lines.iter().map(table_row).collect();
    format!(
        "<h2>Rows</h2><div class=\"scroll\"><table><caption>p50, p99, p999: publish to delivery; in rows with a \
         batch above 1 they are queueing delay. Delivered: all subscribers. Submit: handed to the client, an upper \
         bound.</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
}

fn table_row(line: &ResultLine) -> String {
    let (row, detail) = (&line.result, &line.detail);
    let us = |nanoseconds: u64| format!("{:.1}", nanoseconds as f64 / 1e3);
    let mut notes = detail.warnings.clone();
    notes.extend(detail.failure.clone());
    let faults = [
        ("lost", row.lost),
        ("duplicates", row.duplicates),
        ("reordered", row.reordered),
        ("corrupt", detail.corrupt),
    ];
    notes.extend(
        faults
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(name, n)| format!("{name} {n}")),
    );
    let cells = [
        payload_name(line),
        row.fanout.to_string(),
        row.batch.to_string(),
        grouped(row.records),
        us(row.p50_nanoseconds),
        us(row.p99_nanoseconds),
        us(row.p999_nanoseconds),
        grouped(row.delivered_per_second),
        grouped(detail.delivered_per_subscriber_per_second),
        format!("{:.1}", row.delivered_bytes_per_second as f64 / 1e6),
        grouped(row.published_per_second),
        grouped(row.dropped),
        if row.passed { "passed" } else { "FAILED" }.to_owned(),
        notes.join("; "),
    ];
    let class = if row.passed { "" } else { r#" class="bad""# };
    let cells: String = cells
        .iter()
        .map(|cell| format!("<td>{}</td>", escape(cell)))
        .collect();
    format!("<tr{class}>{cells}</tr>\n")
}

fn environment(lines: &[ResultLine]) -> String {
    let Some(line) = lines.last() else {
        return String::new();
    };
    let env = &line.environment;
    let facts = [
        ("Session", line.session.clone()),
        (
            "Started",
            lines
                .first()
                .map(|line| line.started_at.clone())
                .unwrap_or_default(),
        ),
        ("Broker", line.target.clone()),
        (
            "felix-bench",
            format!("{} ({})", line.tool.version, line.tool.commit),
        ),
        ("Processor", format!("{} x {}", env.cpus, env.cpu_model)),
        ("Kernel", env.kernel.clone()),
        ("Node", env.node.clone()),
        (
            "UDP buffers granted",
            format!(
                "{} bytes receive, {} bytes send",
                grouped(env.udp_receive_granted_bytes),
                grouped(env.udp_send_granted_bytes)
            ),
        ),
        ("QUIC datagram", format!("{} bytes", env.mtu)),
        ("Build", env.profile.clone()),
    ];
    let facts: String = facts
        .iter()
        .map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>", escape(value)))
        .collect();
    format!("<h2>Where it was measured</h2><dl>{facts}</dl>")
}

fn figure(title: &str, svg: String) -> String {
    format!(
        "<figure><figcaption>{}</figcaption>{svg}</figure>\n",
        escape(title)
    )
}

fn payload_name(line: &ResultLine) -> String {
    format!("{} B", line.result.payload_bytes)
}

/// A row that failed has no figure worth drawing.
fn measured(line: &ResultLine, value: f64) -> Option<f64> {
    line.result.passed.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{Environment, Tool};
    use crate::outcome::{Detail, RowSummary, Workload};

    fn result(session: &str, batch: u64, passed: bool) -> ResultLine {
        ResultLine {
            schema: SCHEMA,
            kind: "latency".into(),
            session: session.into(),
            started_at: "2026-01-01T00:00:00Z".into(),
            tool: Tool {
                version: "0.1.0".into(),
                commit: "abc".into(),
            },
            environment: Environment {
                cpu_model: "<script>x</script>".into(),
                ..Environment::default()
            },
            target: "embedded".into(),
            workload: Workload {
                warmup_records: 1,
                value_bytes: 256,
                subscriber_connections: 1,
                pacing: "ack".into(),
                policy: "block".into(),
            },
            result: RowSummary {
                payload_bytes: 256,
                fanout: 1,
                batch,
                records: 10,
                p50_nanoseconds: 20_000,
                p99_nanoseconds: 40_000,
                p999_nanoseconds: 90_000,
                delivered_per_second: 1_000,
                delivered_bytes_per_second: 256_000,
                passed,
                ..RowSummary::default()
            },
            detail: Detail {
                percentiles: vec![(0.5, 20_000), (0.99, 40_000)],
                ..Detail::default()
            },
        }
    }

    #[test]
    fn a_page_stands_alone_and_escapes_what_it_was_given() {
        let page = page(&[result("a", 1, true), result("a", 64, true)]);
        assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("https://"));
        assert!(page.contains("&lt;script&gt;"));
        assert!(page.contains("All 2 rows passed"));
        assert_eq!(page.matches("<svg").count(), 4, "latency, two rates, percentiles");
    }

    #[test]
    fn a_failed_row_is_said_and_not_drawn() {
        let page = page(&[result("a", 64, false)]);
        assert!(page.contains("1 of 1 rows failed") && page.contains("no data"));
    }

    #[test]
    fn only_the_latest_session_is_shown() {
        let shown = latest_session(vec![
            result("old", 1, true),
            result("new", 1, true),
            result("new", 64, true),
        ]);
        assert_eq!(shown.len(), 2);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let good = serde_json::to_string(&result("a", 1, true)).unwrap();
        std::fs::write(file.path(), format!("{good}\n\nnot json\n")).unwrap();
        assert!(format!("{:#}", read(file.path()).unwrap_err()).contains("line 3"));
        std::fs::write(file.path(), format!("{good}\n{good}\n")).unwrap();
        assert_eq!(read(file.path()).unwrap().len(), 2);
    }
}
