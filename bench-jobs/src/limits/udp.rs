//! A datagram there and back between two threads: the floor under everything else.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::{Found, Load, WARMUP_ROUNDS};
use crate::measure::latency_histogram;

/// Loopback loses nothing at this rate; a lost datagram ends the probe instead of hanging it.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn echo(load: Load) -> std::io::Result<Found> {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    near.set_read_timeout(Some(PATIENCE))?;
    far.set_read_timeout(Some(PATIENCE))?;
    let message = vec![7; load.message.max(1)];
    let length = message.len();
    std::thread::scope(|scope| {
        // It ends when nothing has come for a while.
        scope.spawn(move || {
            let mut buffer = vec![0; length];
            while let Ok(read) = far.recv(&mut buffer) {
                if read == 1 && length != 1 || far.send(&buffer[..read]).is_err() {
                    return;
                }
            }
        });
        let mut histogram = latency_histogram();
        let mut buffer = vec![0; length];
        let (begin, mut round) = (Instant::now(), 0);
        while begin.elapsed() < load.time || histogram.is_empty() {
            let sent = Instant::now();
            near.send(&message)?;
            near.recv(&mut buffer)?;
            round += 1;
            if round > WARMUP_ROUNDS {
                histogram.saturating_record(sent.elapsed().as_nanos() as u64);
            }
        }
        // One byte ends the echo at once.
        near.send(&[0])?;
        Ok(Found::Latency(histogram))
    })
}
