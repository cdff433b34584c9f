//! `felix-bench pairs`: two commands compared on a machine whose speed drifts.
//!
//! Both run shortly after one another, in random order, many times. The figure is the median of the pairs' ratios with a
//! bootstrap interval: what changes from minute to minute hits both of a pair. Ratios of medians mislead on such a machine.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::Serialize;
use serde_json::Value;
use tokio::process::Command;

use crate::cli::PairsArgs;

/// Resamples behind an interval.
const RESAMPLES: usize = 10_000;

/// Share of the resamples that lies below, and above, the interval of 95 %.
const TAIL: f64 = 0.025;

/// What is read of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    figure: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
}

/// Two runs that belong together.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pair {
    a_first: bool,
    a: Run,
    b: Run,
}

/// A median and the interval that holds it in 95 of 100 resamples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Runs the pairs and prints the verdict.
pub(crate) async fn run(args: &PairsArgs) -> anyhow::Result<()> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let mut random = StdRng::seed_from_u64(seed);
    let mut pairs = Vec::with_capacity(args.pairs);
    for number in 1..=args.pairs {
        let pair = run_pair(args, random.random())
            .await
            .with_context(|| format!("pair {number}"))?;
        eprintln!(
            "pair {number} of {}: {:.4} / {:.4} = {:.3}",
            args.pairs,
            pair.a.figure,
            pair.b.figure,
            ratio(&pair)
        );
        if let Some(path) = &args.json {
            keep(path, &pair)?;
        }
        pairs.push(pair);
    }
    let ratios: Vec<_> = pairs.iter().map(ratio).collect();
    println!(
        "{} over {}: {}",
        args.a,
        args.b,
        describe(estimate(&ratios, &mut random))
    );
    let costs: Option<Vec<_>> = pairs
        .iter()
        .map(|pair| Some(pair.a.cost? / pair.b.cost?))
        .collect();
    if let Some(costs) = costs {
        println!("cost: {}", describe(estimate(&costs, &mut random)));
    }
    println!(
        "{} pairs, {} ({}), seed {seed}",
        args.pairs,
        args.field,
        if args.json.is_some() {
            "runs kept"
        } else {
            "runs not kept"
        }
    );
    Ok(())
}

async fn run_pair(args: &PairsArgs, a_first: bool) -> anyhow::Result<Pair> {
    let outputs = run_both(&args.a, &args.b, a_first).await?;
    let read = |command: &str, output: &str| {
        read(output, &args.field, args.cost.as_deref()).with_context(|| format!("output of {command:?}"))
    };
    Ok(Pair {
        a_first,
        a: read(&args.a, &outputs.a)?,
        b: read(&args.b, &outputs.b)?,
    })
}

/// What two commands printed.
pub(crate) struct Outputs {
    pub(crate) a: String,
    pub(crate) b: String,
}

/// Runs two commands, one after the other.
pub(crate) async fn run_both(a: &str, b: &str, a_first: bool) -> anyhow::Result<Outputs> {
    if a_first {
        let a = run_one(a).await?;
        Ok(Outputs {
            a,
            b: run_one(b).await?,
        })
    } else {
        let b = run_one(b).await?;
        Ok(Outputs {
            a: run_one(a).await?,
            b,
        })
    }
}

/// Runs a command by the shell; gives what it printed.
async fn run_one(command: &str) -> anyhow::Result<String> {
    let output = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn read(output: &str, field: &str, cost: Option<&str>) -> anyhow::Result<Run> {
    let object = last_object(output)?;
    Ok(Run {
        figure: figure(&object, field)?,
        cost: cost.map(|path| figure(&object, path)).transpose()?,
    })
}

/// The last line of an output that is a JSON object.
pub(crate) fn last_object(output: &str) -> anyhow::Result<Value> {
    let mut lines = output.lines().rev();
    let object = lines.find_map(|line| serde_json::from_str(line).ok().filter(Value::is_object));
    object.context("no line of it is a JSON object")
}

/// The number above 0 at a path of an object, for example `result.rate`: a ratio needs one.
pub(crate) fn figure(object: &Value, path: &str) -> anyhow::Result<f64> {
    let number = object.pointer(&format!("/{}", path.replace('.', "/")));
    let number = number.and_then(Value::as_f64).filter(|number| *number > 0.0);
    number.with_context(|| format!("{path} is no number above 0"))
}

fn keep(path: &Path, pair: &Pair) -> anyhow::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "{}", serde_json::to_string(pair)?).with_context(|| format!("writing {}", path.display()))
}

fn ratio(pair: &Pair) -> f64 {
    pair.a.figure / pair.b.figure
}

/// The median with its bootstrap interval. There must be at least one value.
pub(crate) fn estimate(values: &[f64], random: &mut StdRng) -> Estimate {
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            median(
                (0..values.len())
                    .filter_map(|_| values.choose(random).copied())
                    .collect(),
            )
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share).round() as usize];
    Estimate {
        median: median(values.to_vec()),
        low: at(TAIL),
        high: at(1.0 - TAIL),
    }
}

/// The middle of the values; NaN where there are none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.get(middle) {
        Some(upper) if values.len().is_multiple_of(2) => (upper + values[middle - 1]) / 2.0,
        Some(middle) => *middle,
        None => f64::NAN,
    }
}

fn describe(estimate: Estimate) -> String {
    let Estimate { median, low, high } = estimate;
    let verdict = if low <= 1.0 && 1.0 <= high {
        ", no difference seen"
    } else {
        ""
    };
    format!("median ratio {median:.3}, 95 % interval {low:.3} to {high:.3}{verdict}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random() -> StdRng {
        StdRng::seed_from_u64(7)
    }

    #[test]
    fn the_interval_holds_the_median_and_narrows_with_agreement() {
        let noisy: Vec<_> = (0..21).map(|n| 0.8 + f64::from(n) * 0.02).collect();
        let wide = estimate(&noisy, &mut random());
        assert!((wide.median - 1.0).abs() < 1e-9 && wide.low < wide.median && wide.median < wide.high);
        let calm = estimate(&[0.9; 21], &mut random());
        assert_eq!((calm.low, calm.median, calm.high), (0.9, 0.9, 0.9));
        assert!(describe(wide).contains("no difference seen") && !describe(calm).contains("no difference"));
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn figures_come_from_the_last_json_object() {
        let output = "table\n{\"result\":{\"rate\":1}}\n{\"result\":{\"rate\":5},\"cpu\":2}\n17\nlegend\n";
        assert_eq!(
            read(output, "result.rate", Some("cpu")).unwrap(),
            Run {
                figure: 5.0,
                cost: Some(2.0)
            }
        );
        assert!(read(output, "result.none", None).is_err());
        assert!(read("no json", "x", None).is_err());
        assert!(
            read("{\"x\":0}", "x", None).is_err(),
            "a ratio needs a figure above 0"
        );
    }

    #[tokio::test]
    async fn commands_run_in_pairs_and_a_failing_one_ends_the_comparison() {
        let args = |a: &str| PairsArgs {
            a: a.into(),
            b: "echo '{\"rate\": 4}'".into(),
            field: "rate".into(),
            cost: None,
            pairs: 1,
            json: None,
            seed: Some(1),
        };
        for a_first in [true, false] {
            let pair = run_pair(&args("echo '{\"rate\": 3}'"), a_first).await.unwrap();
            assert_eq!(ratio(&pair), 0.75);
        }
        let failed = run_pair(&args("exit 3"), true).await.unwrap_err();
        assert!(format!("{failed:#}").contains("exit status: 3"), "{failed:#}");
    }
}
