//! Measures the delay that a backend adds to a single message. One thread has both ends and polls, so that no
//! wake-up is measured.

use crate::driver::stage::{LinkStage, RECEIVER, SENDER};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};
use unisono_linux::affinity::{CpuSet, restrict_own};
use unisono_measure::Histogram;
use unisono_measure::record::Figure;
use unisono_study::child::Interrupted;
use unisono_study::driver::{NoResult, RunResult};

const PORT: u16 = 5001;
const MESSAGE: [u8; 64] = [1; 64];
/// The time between messages: longer than one of Unisono's spinning queues spins before it sleeps.
const PROBE_INTERVAL: Duration = Duration::from_micros(100);
/// A message that takes longer than this counts as lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(100);
/// The number of messages before the first counted message.
const WARM_UP: usize = 200;

pub(super) fn measure(
    stage: &LinkStage,
    cpus: &[usize],
    seconds: f64,
    interrupted: Interrupted,
) -> Result<RunResult, NoResult> {
    let failed = |error: std::io::Error| NoResult::Failed(format!("a socket: {error}"));
    if let Some(cpu) = cpus.first() {
        // the binding needs no reset, because this thread ends with the run
        restrict_own(&CpuSet::single(*cpu)).map_err(failed)?;
    }
    let bound = |address: Ipv4Addr, port| {
        let socket = UdpSocket::bind((address, port)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok::<_, NoResult>(socket)
    };
    let far = stage.at_the_receiver(|| bound(RECEIVER, PORT))?;
    let near = bound(SENDER, 0)?;
    near.connect((RECEIVER, PORT)).map_err(failed)?;
    let (mut delays, mut sent, mut lost) = (Histogram::new(), 0, 0_u32);
    let mut bytes = MESSAGE;
    let mut until = Instant::now() + Duration::from_secs(3600);
    while Instant::now() < until {
        if let Some(signal) = interrupted() {
            return Err(NoResult::Interrupted(format!("stopped by {signal}")));
        }
        let began = Instant::now();
        near.send(&MESSAGE).map_err(failed)?;
        let mut came = far.recv(&mut bytes).is_ok();
        while !came && began.elapsed() < LOSS_TIMEOUT {
            came = far.recv(&mut bytes).is_ok();
        }
        let took = began.elapsed();
        sent += 1;
        if sent == WARM_UP {
            until = Instant::now() + Duration::from_secs_f64(seconds);
        } else if sent > WARM_UP {
            if came {
                delays.record_nanos(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            } else {
                lost += 1;
            }
        }
        let pause = Instant::now();
        while pause.elapsed() < PROBE_INTERVAL {
            std::hint::spin_loop();
        }
    }
    let mut result = RunResult::default();
    let Some(delay) = delays.distribution(1e3) else {
        return Err(NoResult::Failed(format!("of {sent} messages none arrived")));
    };
    result.figures.push(Figure::from_distribution("delay_us", "us", delay));
    result.figures.push(Figure::new("delay_p99_us", delay.p99, "us"));
    if lost > 0 {
        result.warnings.push(format!("{lost} of {sent} messages did not arrive"));
    }
    Ok(result)
}
