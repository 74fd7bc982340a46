//! What a place adds to a message that is alone, and nothing else: one thread holds both ends and asks again
//! and again, so that nobody has to be woken to send or to receive.

use super::stage::{LinkStage, RECEIVER, SENDER};
use crate::child::Interrupted;
use crate::driver::{NoOutcome, Outcome};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};
use unisono_linux::affinity::{CpuSet, Tid, restrict};
use unisono_measure::Histogram;
use unisono_measure::record::Figure;

const PORT: u16 = 5001;
const MESSAGE: [u8; 64] = [1; 64];
/// From one message to the next, longer than a queue of ours spins before it sleeps.
const PAUSE: Duration = Duration::from_micros(100);
/// A message that takes longer is lost.
const LOST: Duration = Duration::from_millis(100);
/// Messages before the first that counts.
const WARM_UP: usize = 200;

pub(super) fn measure(
    stage: &LinkStage,
    cpus: &[usize],
    seconds: f64,
    interrupted: Interrupted,
) -> Result<Outcome, NoOutcome> {
    let failed = |error: std::io::Error| NoOutcome::Failed(format!("a socket: {error}"));
    if let Some(cpu) = cpus.first() {
        // this thread ends with the run
        restrict(Tid::SELF, &CpuSet::single(*cpu)).map_err(failed)?;
    }
    let bound = |address: Ipv4Addr, port| {
        let socket = UdpSocket::bind((address, port)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok::<_, NoOutcome>(socket)
    };
    let far = stage.at_the_receiver(|| bound(RECEIVER, PORT))?;
    let near = bound(SENDER, 0)?;
    near.connect((RECEIVER, PORT)).map_err(failed)?;
    let (mut delays, mut sent, mut lost) = (Histogram::new(), 0, 0_u32);
    let mut bytes = MESSAGE;
    let mut until = Instant::now() + Duration::from_secs(3600);
    while Instant::now() < until {
        if let Some(signal) = interrupted() {
            return Err(NoOutcome::Interrupted(format!("stopped by {signal}")));
        }
        let began = Instant::now();
        near.send(&MESSAGE).map_err(failed)?;
        let mut came = far.recv(&mut bytes).is_ok();
        while !came && began.elapsed() < LOST {
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
        while pause.elapsed() < PAUSE {
            std::hint::spin_loop();
        }
    }
    let mut outcome = Outcome::default();
    let Some(delay) = delays.distribution(1e3) else {
        return Err(NoOutcome::Failed(format!("of {sent} messages none arrived")));
    };
    outcome.figures.push(Figure {
        name: "delay_us".to_owned(),
        value: delay.median,
        unit: "us".to_owned(),
        distribution: Some(delay),
    });
    outcome.figures.push(crate::driver::figures::figure("delay_p99_us", delay.p99, "us"));
    if lost > 0 {
        outcome.warnings.push(format!("{lost} of {sent} messages did not arrive"));
    }
    Ok(outcome)
}
