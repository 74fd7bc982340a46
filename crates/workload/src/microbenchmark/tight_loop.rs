//! The paper's tight loop: threads that only compute and never wait, to measure the overhead of scheduling
//! them.
//!
//! Each thread counts iterations of a fixed computation (a few microseconds); the sum over the measured time
//! is the rate. The difference between two such programs under gangs and the same two under plain Linux is
//! the gang scheduler's overhead: the missing computation was spent on switching.
//!
//! Cost: one clock reading per iteration (below 4 %, the same in every regime). Reference: Peter, Baumann,
//! Anderson, Roscoe, ETH TR 745, section 3.1.

use crate::spin::{FIRST_STATE, compute};
use crate::{Error, Measurement, Options, options};
use std::hint::black_box;
use std::thread;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::usage;

/// Rounds of computation in an iteration: a few microseconds.
const ROUNDS: u64 = 4_000;

pub fn run(options: &Options) -> Result<Measurement, Error> {
    options.check()?;
    let placement = options.pin.placement()?;
    let ready = clock::now();
    let begin = options.start_at.map_or(clock::now() + options.warm_up.into(), Instant::from_nanos);
    let end = begin + Duration::from_nanos((options.seconds * 1e9) as u64);
    let (counts, used) = thread::scope(|scope| {
        let mut threads = Vec::new();
        for index in 0..options.threads {
            let placement = &placement;
            let body = move || {
                options::pin_participant(placement, index)?;
                Ok(count(index as u64, begin, end))
            };
            let started =
                thread::Builder::new().name(format!("tight loop {index}")).spawn_scoped(scope, body);
            threads.push(started.map_err(|source| Error::Start {
                participant: index,
                threads: options.threads,
                source,
            })?);
        }
        // the threads compute already; their processor time before the measured time does not count
        thread::sleep((begin - clock::now()).into());
        let before = usage::of_this_process();
        let join = |(participant, thread): (usize, thread::ScopedJoinHandle<Result<u64, Error>>)| {
            thread.join().unwrap_or(Err(Error::Panicked { participant }))
        };
        let counts = threads.into_iter().enumerate().map(join).collect::<Result<Vec<u64>, Error>>()?;
        Ok::<_, Error>((counts, usage::of_this_process().since(before)))
    })?;
    let elapsed_s = options.seconds;
    let episodes: u64 = counts.iter().sum();
    Ok(Measurement {
        implementation: "tight-loop".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        threads: options.threads,
        seed: options.seed,
        pin: options.pin.to_string(),
        iterations_per_s: episodes as f64 / elapsed_s,
        blocks_per_s: used.voluntary_switches as f64 / elapsed_s,
        preemptions_per_s: used.involuntary_switches as f64 / elapsed_s,
        iterations: counts,
        episodes,
        elapsed_s,
        cpu_s: used.cpu.as_secs_f64(),
        start_ns: begin.as_nanos(),
        end_ns: end.as_nanos(),
        ready_ns: ready.as_nanos(),
        ..Measurement::default()
    })
}

/// Computes until `end`; returns the number of iterations that ended after `begin`.
fn count(seed: u64, begin: Instant, end: Instant) -> u64 {
    let (mut state, mut iterations) = (FIRST_STATE + seed, 0);
    loop {
        state = black_box(compute(state, ROUNDS));
        let now = clock::now();
        if now >= end {
            return iterations;
        }
        iterations += u64::from(now >= begin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_longer_run_counts_more_iterations_at_about_the_same_rate() {
        let of = |seconds| {
            let options = Options { threads: 1, seconds, warm_up: Duration::ZERO, ..Options::default() };
            run(&options).expect("it runs").episodes
        };
        let (short, long) = (of(0.02), of(0.2));
        assert!(short > 0 && long > 2 * short, "{short} and {long} iterations");
    }
}
