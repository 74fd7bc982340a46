//! Requests in bursts: the interactive application of the paper's section 4, for the study of changing
//! conditions (section 3.6, Figure 4).
//!
//! ```text
//!   arrivals   |||          |||                |||        bursts at exponential intervals
//!   stream 0   [== ==]        [==]             [==]       a request is a parallel computation of many rounds
//!   stream 1     [==]      [== ==]          [== ==]       with two barriers each (the clustering kernel)
//! ```
//! A stream is a process, so that each can be a gang. All streams draw the whole schedule from the same seed
//! and serve their own requests, so they agree without communication; they need the same `start_at`. The mean
//! rate does not depend on the size of bursts. A request's latency runs from its arrival to the end of its
//! computation, waiting included.
//!
//! Cost in addition to the computation: one sleep and one more barrier for each request. Between requests all
//! threads but one wait in a barrier. Requests that are still queued after twice the time are counted, not
//! computed.

use super::barrier::run_iterations;
use super::barrier_choice::{BarrierChoice, BarrierMember};
use super::kernel::clustering::{Batch, BatchPart};
use super::{Error, Measurement, Options};
use crossbeam_utils::CachePadded;
use rand::RngCore;
use rand_pcg::Pcg32;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use unisono_linux::clock::{self, Instant};
use unisono_measure::quantile;

/// The number of points of a request's batch by default.
pub(crate) const DEFAULT_SIZE: usize = 4000;

/// The requests of all streams, and this stream's number among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstLoad {
    pub stream: u32,
    pub streams: u32,
    /// Requests per second of all streams together.
    pub rate: f64,
    /// The number of requests that arrive together.
    pub burst: u32,
    /// Rounds of a request, two barriers each.
    pub rounds: u32,
}

impl Default for BurstLoad {
    fn default() -> Self {
        Self { stream: 0, streams: 1, rate: 50.0, burst: 1, rounds: 64 }
    }
}

impl BurstLoad {
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Options(text));
        if self.stream >= self.streams {
            return refuse(format!("stream {} of {} streams: they count from 0", self.stream, self.streams));
        }
        if !(self.rate > 0.0 && self.rate <= 1e6) {
            return refuse(format!("{} requests a second: more than 0, at most a million", self.rate));
        }
        if self.burst == 0 || self.rounds == 0 {
            return refuse("a burst has at least one request and a request at least one round".into());
        }
        Ok(())
    }

    /// Returns the arrival times of this stream's requests within `seconds`.
    pub fn arrivals(&self, seconds: f64, seed: u64) -> Vec<Duration> {
        // a generator stream that no participant's arrival times use
        let mut generator = Pcg32::new(seed, 1 << 20);
        let mut moment = 0.0;
        let mut own = Vec::new();
        loop {
            let uniform = (f64::from(generator.next_u32()) + 1.0) / 4_294_967_296.0;
            moment -= uniform.ln() * f64::from(self.burst) / self.rate;
            if moment >= seconds {
                return own;
            }
            for _ in 0..self.burst {
                let stream = (u64::from(generator.next_u32()) * u64::from(self.streams)) >> 32;
                if stream == u64::from(self.stream) {
                    own.push(Duration::from_secs_f64(moment));
                }
            }
        }
    }
}

pub fn run(load: &BurstLoad, choice: &BarrierChoice, options: &Options) -> Result<Measurement, Error> {
    serve(
        load,
        choice,
        options,
        Duration::try_from_secs_f64(options.seconds * 2.0).unwrap_or_default(),
    )
}

/// Serves the requests. A request that has not begun `max_delay` after the start is counted, not served.
fn serve(
    load: &BurstLoad,
    choice: &BarrierChoice,
    options: &Options,
    max_delay: Duration,
) -> Result<Measurement, Error> {
    options.check()?;
    load.check()?;
    let (group, chosen_because) = choice.group(options)?;
    let batch = Batch::new(options.size.unwrap_or(DEFAULT_SIZE), options.seed);
    let savings: Vec<_> = (0..options.threads).map(|_| CachePadded::new(AtomicI64::new(0))).collect();
    let arrivals = load.arrivals(options.seconds, options.seed);
    if arrivals.is_empty() {
        return Err(Error::Options(format!(
            "no request of stream {} arrives within {} s; raise the rate or the seconds",
            load.stream, options.seconds
        )));
    }
    let origin = options.start_at.map_or(clock::now() + options.warm_up.into(), Instant::from_nanos);
    let too_late = origin + max_delay.into();
    let given_up = AtomicBool::new(false);
    let latencies = Mutex::new(Vec::with_capacity(arrivals.len()));
    let serving = Options { iterations: Some(arrivals.len() as u64), ..options.clone() };
    let barriers = 1 + 2 * load.rounds;
    let measured = run_iterations(&serving, barriers, |index| {
        let mut share = BatchPart::new(&batch, index, options.threads);
        let mut seat = BarrierMember::join(&group, index);
        let (savings, given_up, latencies, arrivals) = (&savings, &given_up, &latencies, &arrivals);
        let rounds = u64::from(load.rounds);
        move |request| {
            let arrival = origin + (arrivals[request as usize - 1]).into();
            if index == 0 {
                thread::sleep(Duration::from(arrival - clock::now()));
                // SYNC(given-up) release: arriving at the next barrier publishes it
                given_up.store(clock::now() > too_late, Relaxed);
            }
            seat.wait()?;
            // SYNC(given-up) acquire: leaving the barrier orders this load after the store
            if given_up.load(Relaxed) {
                return Ok(());
            }
            share.reset();
            for round in (request * rounds..).take(load.rounds as usize) {
                savings[index].store(share.saving(round), Relaxed);
                seat.wait()?;
                share.decide(round, savings.iter().map(|saving| saving.load(Relaxed)).sum());
                seat.wait()?;
            }
            if index == 0 {
                let latency = (clock::now() - arrival).as_nanos() as f64 / 1e3;
                latencies.lock().unwrap_or_else(PoisonError::into_inner).push(latency);
            }
            Ok(())
        }
    })?;
    let latencies = latencies.into_inner().unwrap_or_else(PoisonError::into_inner);
    let measured = Measurement {
        latency_us: quantile::distribution(&latencies),
        requests: Some(latencies.len() as u64),
        unfinished: Some((arrivals.len() - latencies.len()) as u64),
        ..measured.with_interval(origin, clock::now())
    };
    Ok(choice.label(&group, chosen_because, measured, "bursts-unisono"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_out_every_request_and_a_seed_repeats_them() {
        let load = |stream| BurstLoad { stream, streams: 4, rate: 1000.0, burst: 8, ..BurstLoad::default() };
        let of = |stream| load(stream).arrivals(10.0, 3);
        let all = BurstLoad { stream: 0, streams: 1, ..load(0) }.arrivals(10.0, 3).len();
        assert_eq!((0..4).map(|stream| of(stream).len()).sum::<usize>(), all);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert!(of(2).is_sorted());
    }

    #[test]
    fn the_mean_rate_does_not_depend_on_the_burst() {
        for burst in [1, 4, 16] {
            let count =
                BurstLoad { burst, rate: 1000.0, ..BurstLoad::default() }.arrivals(100.0, 9).len() as f64;
            // the number of bursts has a Poisson distribution: the deviation of the count is the root of the
            // number of bursts, times their size
            let deviation = (100_000.0 / f64::from(burst)).sqrt() * f64::from(burst);
            assert!((count - 100_000.0).abs() < 5.0 * deviation, "{count} requests in bursts of {burst}");
        }
    }

    #[test]
    fn every_request_is_served_and_none_before_it_arrives() {
        let load = BurstLoad { rate: 200.0, burst: 4, rounds: 4, ..BurstLoad::default() };
        let options = Options { threads: 3, seconds: 0.2, size: Some(100), ..Options::default() };
        // a busy machine may take long: no request is given up here
        let max_delay = Duration::from_secs(3600);
        let measured = serve(&load, &BarrierChoice::default(), &options, max_delay).expect("measured");
        let expected = load.arrivals(0.2, options.seed).len() as u64;
        assert_eq!((measured.requests, measured.unfinished), (Some(expected), Some(0)));
        let latency = measured.latency_us.expect("latencies");
        assert!(latency.min > 0.0 && latency.median <= latency.p99 && latency.p99 <= latency.max);
    }

    #[test]
    fn requests_that_are_too_late_are_counted_and_not_served() {
        let load = BurstLoad { rate: 200.0, ..BurstLoad::default() };
        let options = Options { threads: 2, seconds: 0.2, size: Some(100), ..Options::default() };
        let measured = serve(&load, &BarrierChoice::default(), &options, Duration::ZERO).expect("measured");
        let expected = load.arrivals(0.2, options.seed).len() as u64;
        assert_eq!((measured.requests, measured.unfinished), (Some(0), Some(expected)));
        assert!(measured.latency_us.is_none());
    }

    #[test]
    fn a_stream_with_a_single_request_is_measured_too() {
        let one = |load: &BurstLoad| load.arrivals(0.2, 7).len() == 1;
        let rates =
            (1..100).map(|rate| BurstLoad { rate: f64::from(rate), rounds: 1, ..BurstLoad::default() });
        let load = rates.into_iter().find(one).expect("a rate at which one request comes");
        let options = Options { threads: 2, seconds: 0.2, seed: 7, size: Some(100), ..Options::default() };
        let max_delay = Duration::from_secs(3600);
        let measured = serve(&load, &BarrierChoice::default(), &options, max_delay).expect("measured");
        let arrival = load.arrivals(0.2, 7)[0].as_secs_f64();
        assert!(measured.requests == Some(1) && measured.elapsed_s >= arrival, "{measured:?}");
    }

    #[test]
    fn a_load_that_makes_no_sense_is_refused() {
        assert!(BurstLoad { stream: 2, streams: 2, ..BurstLoad::default() }.check().is_err());
        assert!(BurstLoad { rate: f64::NAN, ..BurstLoad::default() }.check().is_err());
        assert!(BurstLoad { burst: 0, ..BurstLoad::default() }.check().is_err());
    }
}
