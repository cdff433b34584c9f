//! `felix-bench table`: the broker against relays that do nothing else and against NATS, case by case, as ratios of pairs
//! with their intervals and the bound that each must keep.

mod cases;

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;

use anyhow::{Context, bail};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use crate::case::plan::Middle;
use crate::cli::TableArgs;
use crate::environment::{Environment, LONG_VERSION};
use crate::pairs::{self, Estimate};
use cases::{Comparison, Figure, comparisons, flag};

/// Where processor time stands in what a run prints.
const COST: &str = "cpuSecondsPerGigabyte";

/// Share of another program's relay that this one's must reach.
const REFERENCE_BOUND: f64 = 0.95;

/// Bytes of a write of the relay that is held against another program's.
const REFERENCE_CHUNK: usize = 64 << 10;

const HEAD: &str = "\
| case | layout | against | Felix | the other | ratio | 95 % interval | processor time a GB, ratio | must be | reached |
|---|---|---|---|---|---|---|---|---|---|
";

/// Runs the comparisons asked for and writes the table. Fails where one could not be measured or a bound is not kept.
pub(crate) async fn run(args: &TableArgs) -> anyhow::Result<()> {
    let comparisons = comparisons(&args.only);
    if args.list {
        comparisons.iter().for_each(|one| println!("{}", one.name()));
        return Ok(());
    }
    let seed = args.seed.unwrap_or_else(rand::random);
    let mut table = Table {
        args,
        program: std::env::current_exe()
            .context("finding this program")?
            .display()
            .to_string(),
        random: StdRng::seed_from_u64(seed),
        text: format!("{}\n\n{HEAD}", describe_run(args, seed)),
        measured: 0,
        kept: 0,
        failed: Vec::new(),
    };
    table.references().await?;
    for comparison in &comparisons {
        table.compare(comparison).await?;
    }
    table.verdict()
}

/// Where and how it was measured: a figure without these cannot be compared with another.
fn describe_run(args: &TableArgs, seed: u64) -> String {
    let Environment {
        kernel,
        cpus,
        cpu_model,
        profile,
        ..
    } = Environment::read();
    format!(
        "felix-bench {LONG_VERSION}, {profile} build; {cpus} processors ({cpu_model}), kernel {kernel}; {} pairs of {} s; seed {seed}",
        args.pairs, args.seconds
    )
}

/// The table as it grows.
struct Table<'a> {
    args: &'a TableArgs,
    program: String,
    random: StdRng,
    text: String,
    measured: usize,
    kept: usize,
    failed: Vec<String>,
}

/// What many pairs of runs printed.
struct Runs {
    a: Vec<Value>,
    b: Vec<Value>,
}

impl Table<'_> {
    /// This program's relay and fan-out against another program's, where one is named.
    async fn references(&mut self) -> anyhow::Result<()> {
        let probes = [
            (
                "relay-bulk",
                "raw relay, 1 to 1, 64 KiB writes",
                &self.args.reference,
            ),
            (
                "fanout-bulk",
                "raw fan-out, 1 to 10, 64 KiB writes",
                &self.args.reference_fanout,
            ),
        ];
        for (probe, title, reference) in probes {
            let Some(reference) = reference else { continue };
            let own = format!(
                "{} limits --json --probe {probe} --chunk {REFERENCE_CHUNK} --seconds {}",
                quoted(&self.program),
                self.args.seconds
            );
            let figures = [(Figure::Bytes, REFERENCE_BOUND)];
            let runs = self.run_pairs(probe, &own, reference, rate_of).await;
            let names = [title, "1", "the reference"];
            self.note(probe, names, &figures, runs)?;
        }
        Ok(())
    }

    async fn compare(&mut self, comparison: &Comparison) -> anyhow::Result<()> {
        let name = comparison.name();
        let own = self.command(comparison, Middle::Felix);
        let other = self.command(comparison, comparison.against);
        let runs = self.run_pairs(&name, &own, &other, pairs::last_object).await;
        let layout = comparison.layout.to_string();
        let names = [comparison.case.title, &layout, &flag(comparison.against)];
        self.note(&name, names, &comparison.figures, runs)
    }

    fn command(&self, comparison: &Comparison, middle: Middle) -> String {
        let mut command = format!(
            "{} case --target {} --layout {} --seconds {} {}",
            quoted(&self.program),
            flag(middle),
            comparison.layout,
            self.args.seconds,
            comparison.case.flags
        );
        let programs = [
            ("--broker", &self.args.broker),
            ("--nats-server", &self.args.nats_server),
        ];
        for (option, program) in programs {
            if let Some(program) = program {
                command.push_str(&format!(" {option} {}", quoted(&program.display().to_string())));
            }
        }
        command
    }

    /// Runs the pairs and keeps what they printed.
    async fn run_pairs(
        &mut self,
        name: &str,
        a: &str,
        b: &str,
        read: impl Fn(&str) -> anyhow::Result<Value>,
    ) -> anyhow::Result<Runs> {
        let mut runs = Runs {
            a: Vec::new(),
            b: Vec::new(),
        };
        for number in 1..=self.args.pairs {
            eprint!("\r{name}: pair {number} of {}  ", self.args.pairs);
            let a_first = self.random.random();
            let outputs = pairs::run_both(a, b, a_first).await?;
            let (a, b) = (pairs::last_object(&outputs.a)?, read(&outputs.b)?);
            self.keep(&json!({"comparison": name, "pair": number, "aFirst": a_first, "a": a, "b": b}))?;
            runs.a.push(a);
            runs.b.push(b);
        }
        eprintln!();
        Ok(runs)
    }

    fn keep(&self, line: &Value) -> anyhow::Result<()> {
        let path = &self.args.json;
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(file, "{line}").with_context(|| format!("writing {}", path.display()))
    }

    /// Adds a comparison's lines to the table, or why there are none.
    fn note(
        &mut self,
        name: &str,
        [title, layout, against]: [&str; 3],
        figures: &[(Figure, f64)],
        runs: anyhow::Result<Runs>,
    ) -> anyhow::Result<()> {
        let before = self.text.len();
        let lines = runs.and_then(|runs| self.lines([title, layout, against], figures, &runs));
        match lines {
            Ok(lines) => self.text.push_str(&lines),
            Err(error) => {
                eprintln!("\n{name}: {error:#}");
                self.failed.push(name.to_owned());
                writeln!(
                    self.text,
                    "| {title} | {layout} | {against} | not measured: {error:#} | | | | | | no |"
                )?;
            }
        }
        print!("{}", &self.text[before..]);
        let path = &self.args.output;
        std::fs::write(path, &self.text).with_context(|| format!("writing {}", path.display()))
    }

    fn lines(
        &mut self,
        [title, layout, against]: [&str; 3],
        figures: &[(Figure, f64)],
        runs: &Runs,
    ) -> anyhow::Result<String> {
        let cost = self
            .ratio(runs, COST)
            .map_or_else(|_| "unknown".into(), |cost| describe(&cost));
        let mut lines = String::new();
        for &(figure, bound) in figures {
            let ratio = self.ratio(runs, figure.path())?;
            let middle = |runs| anyhow::Ok(figure.describe(pairs::median(values(runs, figure.path())?)));
            let (own, other) = (middle(&runs.a)?, middle(&runs.b)?);
            let keeps = figure.keeps(ratio.median, bound);
            self.measured += 1;
            self.kept += usize::from(keeps);
            writeln!(
                lines,
                "| {title} | {layout} | {against} | {own} | {other} | {:.3} | {:.3} to {:.3} | {cost} | {} | {} |",
                ratio.median,
                ratio.low,
                ratio.high,
                figure.describe_bound(bound),
                if keeps { "yes" } else { "no" }
            )?;
        }
        Ok(lines)
    }

    /// The median of the pairs' ratios.
    fn ratio(&mut self, runs: &Runs, path: &str) -> anyhow::Result<Estimate> {
        let (a, b) = (values(&runs.a, path)?, values(&runs.b, path)?);
        let ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a / b).collect();
        Ok(pairs::estimate(&ratios, &mut self.random))
    }

    fn verdict(self) -> anyhow::Result<()> {
        let Self {
            args,
            measured,
            kept,
            failed,
            ..
        } = self;
        println!(
            "{kept} of {measured} bounds kept; table in {}",
            args.output.display()
        );
        if !failed.is_empty() {
            bail!("not measured: {}", failed.join(", "));
        }
        if kept < measured {
            bail!("{} bounds are not kept", measured - kept);
        }
        Ok(())
    }
}

fn values(runs: &[Value], path: &str) -> anyhow::Result<Vec<f64>> {
    runs.iter().map(|run| pairs::figure(run, path)).collect()
}

fn describe(Estimate { median, low, high }: &Estimate) -> String {
    format!("{median:.3} ({low:.3} to {high:.3})")
}

/// As the shell takes it for one word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The rate that a reference prints: in a JSON object, or as a number before `MB/s`.
fn rate_of(output: &str) -> anyhow::Result<Value> {
    pairs::last_object(output).or_else(|_| {
        let (before, _) = output
            .rsplit_once(" MB/s")
            .context("neither a JSON object nor a rate in MB/s")?;
        let number = before.rsplit(' ').next().unwrap_or(before);
        let rate: f64 = number
            .parse()
            .with_context(|| format!("{number:?} before MB/s"))?;
        Ok(json!({Figure::Bytes.path(): rate * 1e6}))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(directory: &std::path::Path) -> TableArgs {
        TableArgs {
            only: Vec::new(),
            list: false,
            pairs: 3,
            seconds: 1.0,
            output: directory.join("table.md"),
            json: directory.join("table.jsonl"),
            reference: None,
            reference_fanout: None,
            broker: None,
            nats_server: None,
            seed: Some(1),
        }
    }

    fn table(args: &TableArgs) -> Table<'_> {
        Table {
            args,
            program: "felix-bench".into(),
            random: StdRng::seed_from_u64(1),
            text: HEAD.into(),
            measured: 0,
            kept: 0,
            failed: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_comparison_becomes_a_line_with_its_bound_and_keeps_its_runs() {
        let directory = tempfile::tempdir().unwrap();
        let args = args(directory.path());
        let mut table = table(&args);
        let a = r#"echo '{"deliveredBytesPerSecond": 9e8, "cpuSecondsPerGigabyte": 2}'"#;
        let b = r#"echo '{"deliveredBytesPerSecond": 1e9, "cpuSecondsPerGigabyte": 1}'"#;
        let runs = table.run_pairs("x", a, b, pairs::last_object).await;
        table
            .note("x", ["a case", "2", "relay"], &[(Figure::Bytes, 0.8)], runs)
            .unwrap();
        let runs = table.run_pairs("y", a, "exit 1", pairs::last_object).await;
        table
            .note("y", ["another", "2", "nats"], &[(Figure::Bytes, 0.8)], runs)
            .unwrap();
        let text = std::fs::read_to_string(&args.output).unwrap();
        let line = "| a case | 2 | relay | 900 MB/s | 1000 MB/s | 0.900 | 0.900 to 0.900 | 2.000 (2.000 to 2.000) | ≥ 0.80 | yes |";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("| another | 2 | nats | not measured"), "{text}");
        assert_eq!(std::fs::read_to_string(&args.json).unwrap().lines().count(), 3);
        assert!(
            table
                .verdict()
                .unwrap_err()
                .to_string()
                .contains("not measured: y")
        );
    }

    #[test]
    fn a_missed_bound_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let args = args(directory.path());
        let mut table = table(&args);
        let run = |ns: u64| vec![json!({"p50Nanoseconds": ns}); 3];
        let runs = Runs {
            a: run(130),
            b: run(100),
        };
        table
            .note("x", ["a", "1", "relay"], &[(Figure::P50, 1.2)], Ok(runs))
            .unwrap();
        assert!(table.text.contains("| ≤ 1.20 | no |"), "{}", table.text);
        assert!(table.verdict().is_err());
    }

    #[test]
    fn references_print_json_or_a_rate() {
        let rate =
            |output| rate_of(output).map(|object| pairs::figure(&object, Figure::Bytes.path()).unwrap());
        assert_eq!(rate("relay bulk chunk=65536 mtu=4096 525 MB/s\n").unwrap(), 525e6);
        assert_eq!(rate("text\n{\"deliveredBytesPerSecond\": 7}\n").unwrap(), 7.0);
        assert!(rate("nothing").is_err());
    }

    #[test]
    fn programs_are_one_word_for_the_shell() {
        assert_eq!(quoted("a b'c"), r"'a b'\''c'");
    }
}
