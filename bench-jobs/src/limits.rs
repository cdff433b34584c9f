//! `felix-bench limits`: what this machine allows, so that a figure of the broker's can be read as a share of it.
//!
//! Nothing here parses, stores or checks anything: a UDP echo, a QUIC echo, a relay (publisher, relay, subscriber) and a
//! fan-out, with the transport settings that the broker uses between loopback peers.

pub(crate) mod quic;
pub(crate) mod relay;
mod udp;

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::cli::{LimitsArgs, Probe};
use crate::cpu;

/// Round trips that are not counted: handshake, allocations, the congestion ramp.
const WARMUP_ROUNDS: u64 = 500;

/// How much is asked of a probe.
#[derive(Clone, Copy)]
struct Load {
    time: Duration,
    /// Bytes of a message of the latency probes.
    message: usize,
    /// Bytes of a write of the bulk probes.
    chunk: usize,
    fanout: usize,
}

/// What a probe found.
enum Found {
    /// Round trips, or publish to delivery, in ns.
    Latency(Histogram<u64>),
    /// Bytes delivered in this time, at this price.
    Rate {
        bytes: u64,
        time: Duration,
        cpu: Duration,
    },
}

const ALL: [Probe; 6] = [
    Probe::UdpEcho,
    Probe::QuicEcho,
    Probe::RelayLatency,
    Probe::FanoutLatency,
    Probe::RelayBulk,
    Probe::FanoutBulk,
];

/// Runs the probes asked for, one after the other.
pub(crate) async fn run(args: &LimitsArgs) -> anyhow::Result<()> {
    let load = Load {
        time: Duration::from_secs_f64(args.seconds),
        message: args.payload,
        chunk: args.chunk,
        fanout: args.fanout,
    };
    for probe in ALL
        .into_iter()
        .filter(|probe| args.probe.is_none_or(|wanted| wanted == *probe))
    {
        let (name, found) = measure(probe, load).await?;
        if args.json {
            println!("{}", object(&name, &found));
        } else {
            println!("{name:<44} {}", describe(&found));
        }
    }
    Ok(())
}

async fn measure(probe: Probe, load: Load) -> anyhow::Result<(String, Found)> {
    let Load {
        message,
        chunk,
        fanout,
        ..
    } = load;
    Ok(match probe {
        Probe::UdpEcho => {
            let found = tokio::task::spawn_blocking(move || udp::echo(load)).await??;
            (format!("UDP echo, {message} B, two threads"), found)
        }
        Probe::QuicEcho => (format!("QUIC echo, {message} B"), quic::echo(load).await?),
        Probe::RelayLatency => (
            format!("relay 1 to 1, {message} B, acknowledged"),
            relay::latency(load, 1).await?,
        ),
        Probe::FanoutLatency => (
            format!("relay 1 to {fanout}, {message} B, acknowledged"),
            relay::latency(load, fanout).await?,
        ),
        Probe::RelayBulk => (
            format!("relay 1 to 1, {chunk} B writes"),
            relay::bulk(load, 1).await?,
        ),
        Probe::FanoutBulk => (
            format!("relay 1 to {fanout}, {chunk} B writes"),
            relay::bulk(load, fanout).await?,
        ),
    })
}

/// For programs: the same names as in a row's result where they mean the same.
fn object(name: &str, found: &Found) -> serde_json::Value {
    match found {
        Found::Latency(histogram) => serde_json::json!({
            "probe": name,
            "p50Nanoseconds": histogram.value_at_quantile(0.5),
            "p99Nanoseconds": histogram.value_at_quantile(0.99),
            "p999Nanoseconds": histogram.value_at_quantile(0.999),
            "records": histogram.len(),
        }),
        Found::Rate { bytes, time, cpu } => serde_json::json!({
            "probe": name,
            "deliveredBytesPerSecond": *bytes as f64 / time.as_secs_f64(),
            "cpuNanosecondsPerGigabyte": cpu::seconds_per_gigabyte(*cpu, *bytes).unwrap_or_default() * 1e9,
        }),
    }
}

fn describe(found: &Found) -> String {
    match found {
        Found::Latency(histogram) => {
            let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
            format!(
                "p50 {:.1} us, p99 {:.1} us, p999 {:.1} us ({} times)",
                us(0.5),
                us(0.99),
                us(0.999),
                histogram.len()
            )
        }
        Found::Rate { bytes, time, cpu } => {
            let rate = *bytes as f64 / 1e6 / time.as_secs_f64();
            let price = cpu::seconds_per_gigabyte(*cpu, *bytes).unwrap_or_default();
            format!("{rate:.0} MB/s delivered, {price:.2} processor seconds a GB")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load {
        time: Duration::from_millis(50),
        message: 256,
        chunk: 16 << 10,
        fanout: 3,
    };

    fn latencies(found: Found) -> u64 {
        match found {
            Found::Latency(histogram) => histogram.len(),
            Found::Rate { .. } => panic!("not a latency"),
        }
    }

    fn delivered(found: Found) -> u64 {
        match found {
            Found::Rate { bytes, .. } => bytes,
            Found::Latency(_) => panic!("not a rate"),
        }
    }

    #[tokio::test]
    async fn every_probe_moves_something() {
        assert!(
            latencies(
                tokio::task::spawn_blocking(|| udp::echo(LOAD))
                    .await
                    .unwrap()
                    .unwrap()
            ) > 0
        );
        assert!(latencies(quic::echo(LOAD).await.unwrap()) > 0);
        assert!(latencies(relay::latency(LOAD, 1).await.unwrap()) > 0);
        assert_eq!(
            latencies(relay::latency(LOAD, 3).await.unwrap()) % 3,
            0,
            "every subscriber is counted"
        );
    }

    #[tokio::test]
    async fn a_fan_out_delivers_everything_to_everybody() {
        let bytes = delivered(relay::bulk(LOAD, 3).await.unwrap());
        assert!(
            bytes > 0 && bytes.is_multiple_of(3 * LOAD.chunk as u64),
            "{bytes}"
        );
    }
}
