//! The network monitor of the paper's section 4: clusters the packets of TCP streams while they arrive.
//!
//! ```text
//!   packets of a stream  ||||  |||||||   ||||      in bursts
//!   a chunk of them           |-------16,000------|
//!   its clusters                                  [local search by a team]
//!   latency                                       |---- waiting, then this ----|
//! ```
//! Each stream has a process of its own, so that it can be a gang. [`run`] is the program that studies
//! measure: synthetic packets, converted to points in advance, arrive in chunks at the times of their last
//! packets. The example `network-monitor` reads captures and reports new kinds of packets ([`alert`]).
//!
//! Cost in addition to the clustering: two clock readings for each barrier (50 ns), and a sleep for each
//! chunk. A run stops its work after twice its length. A chunk whose clustering has not begun by then is not
//! clustered. Its waiting time until then counts as its latency, because otherwise a regime that drops slow
//! chunks would look fast.
//!
//! Reference: Peter, Baumann, Anderson, Roscoe: Gang scheduling isn't worth it... yet, ETH TR 745, section 4
//! and Figure 4.

pub mod alert;
pub mod generator;
pub mod packet;

use super::stream_cluster::{CentreRange, ClusterTeam, WeightedPoints};
use crossbeam_utils::CachePadded;
use generator::{PacketTimes, StreamPackets, StreamRate};
use packet::coordinates;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use unisono_barrier::Group;
use unisono_linux::clock::{self, Instant};
use unisono_linux::pthread_barrier::PthreadBarrier;
use unisono_measure::quantile;
use unisono_workload::barrier::run_iterations;
use unisono_workload::barrier_choice::{BarrierChoice, BarrierMember};
use unisono_workload::{Error, Measurement, Options};

/// The number of different chunks; a run uses them in turn.
const CHUNKS: usize = 2;

/// The arrival times of chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ChunkTimes {
    /// A chunk arrives with its last packet.
    Packets(StreamRate),
    /// A chunk arrives as soon as the previous one is clustered.
    BackToBack,
}

/// The load of a stream's process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MonitorLoad {
    pub stream: u32,
    /// The number of packets between two updates of the clusters.
    pub chunk: usize,
    pub centres: CentreRange,
    pub times: ChunkTimes,
}

/// The barrier of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorBarrier {
    Unisono(BarrierChoice),
    /// The C library's barrier.
    Pthread,
}

impl MonitorLoad {
    pub fn check(&self) -> Result<(), Error> {
        if self.chunk == 0 || self.chunk > 1 << 20 {
            return Err(Error::Options(format!("chunks of {} packets: write 1 to 2^20", self.chunk)));
        }
        if self.centres.fewest == 0 || self.centres.fewest > self.centres.most {
            let CentreRange { fewest, most } = self.centres;
            return Err(Error::Options(format!("{fewest} to {most} centres: write at least 1")));
        }
        match self.times {
            ChunkTimes::Packets(rate) => rate.check(),
            ChunkTimes::BackToBack => Ok(()),
        }
    }

    /// Returns the times within `seconds` at which chunks are complete. `None`: chunks arrive back to back.
    fn arrivals(&self, seconds: f64, seed: u64) -> Option<Vec<Duration>> {
        let ChunkTimes::Packets(rate) = self.times else { return None };
        let end = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let packets = PacketTimes::new(rate, self.stream, seed).take_while(|at| *at < end);
        Some(packets.skip(self.chunk - 1).step_by(self.chunk).collect())
    }

    fn points(&self, seed: u64) -> Vec<Arc<WeightedPoints>> {
        let rate = StreamRate { packets_per_s: 50_000.0, burst: 4.0, burst_packets: 500.0 };
        let rate = if let ChunkTimes::Packets(rate) = self.times { rate } else { rate };
        let mut packets = StreamPackets::new(rate, self.stream, seed, None);
        let mut last = Duration::ZERO;
        let mut chunk = || {
            let mut points = WeightedPoints::default();
            for packet in packets.by_ref().take(self.chunk) {
                points.push(coordinates(&packet, packet.at.saturating_sub(last)), 1);
                last = packet.at;
            }
            Arc::new(points)
        };
        (0..CHUNKS).map(|_| chunk()).collect()
    }
}

pub fn run(load: &MonitorLoad, barrier: MonitorBarrier, options: &Options) -> Result<Measurement, Error> {
    let max_delay = Duration::try_from_secs_f64(options.seconds * 2.0).unwrap_or_default();
    serve(load, barrier, options, max_delay)
}

/// Clusters the chunks. Chunks whose clustering has not begun at `max_delay` after the start are not
/// clustered.
fn serve(
    load: &MonitorLoad,
    barrier: MonitorBarrier,
    options: &Options,
    max_delay: Duration,
) -> Result<Measurement, Error> {
    options.check()?;
    load.check()?;
    let place = MonitorMeeting::new(barrier, options)?;
    let team = ClusterTeam::new(options.threads, load.centres, options.seed);
    let points = load.points(options.seed);
    let arrivals = load.arrivals(options.seconds, options.seed);
    if arrivals.as_ref().is_some_and(Vec::is_empty) {
        // a stream may be silent, or end in the middle of a chunk; if no stream has a complete chunk, the run
        // reports that
        let silent = Measurement { requests: Some(0), unfinished: Some(0), ..Measurement::default() };
        return Ok(place.label(barrier, silent));
    }
    let origin = options.start_at.map_or(clock::now() + options.warm_up.into(), Instant::from_nanos);
    let too_late = origin + max_delay.into();
    let (latencies, updates) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let meters: Vec<_> = (0..options.threads).map(|_| CachePadded::new(SharedWaits::default())).collect();
    let iterations = arrivals.as_ref().map(|arrivals| arrivals.len() as u64).or(options.iterations);
    let serving = Options { iterations, ..options.clone() };
    let measured = run_iterations(&serving, 1, |index| {
        let mut seat = place.seat(index);
        let (team, points, arrivals, latencies) = (&team, &points, &arrivals, &latencies);
        let (meters, updates) = (&meters, &updates);
        let mut waits = TimedWaits::default();
        move |number| {
            let mut arrival = clock::now();
            let next = || {
                if let Some(arrivals) = arrivals {
                    arrival = origin + (arrivals[number as usize - 1]).into();
                    thread::sleep(Duration::from(arrival - clock::now()));
                    if clock::now() > too_late {
                        return None;
                    }
                }
                Some(points[number as usize % CHUNKS].clone())
            };
            waits.begin();
            let updated = team.update(index, || waits.timed(|| seat.wait()), next)?;
            meters[index].note(&waits);
            if index == 0 {
                let latency = (clock::now() - arrival).as_nanos() as f64 / 1e3;
                let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
                latencies.push(latency);
                updates.fetch_add(u64::from(updated.is_some()), Relaxed);
            }
            Ok(())
        }
    })?;
    let latencies = latencies.into_inner().unwrap_or_else(PoisonError::into_inner);
    let updates = updates.into_inner();
    let measured = Measurement {
        latency_us: quantile::distribution(&latencies),
        requests: Some(updates),
        unfinished: arrivals.map(|arrivals| arrivals.len() as u64 - updates),
        ..together(&meters, measured).with_interval(origin, clock::now())
    };
    Ok(place.label(barrier, measured))
}

/// Computes the barriers per second while clusters are computed, and the time before and in a barrier, over
/// all members.
fn together(meters: &[CachePadded<SharedWaits>], measured: Measurement) -> Measurement {
    let sum = |of: fn(&SharedWaits) -> &AtomicU64| meters.iter().map(|m| of(m).load(Relaxed)).sum::<u64>();
    let waits = sum(|meter| &meter.count) as f64;
    if waits == 0.0 {
        return measured;
    }
    let processing = sum(|meter| &meter.processing) as f64 / waits;
    let waiting = sum(|meter| &meter.waiting) as f64 / waits;
    Measurement {
        barriers_per_s: 1e9 / (processing + waiting),
        processing_us: Some(processing / 1e3),
        waiting_us: Some(waiting / 1e3),
        ..measured
    }
}

/// The times of one member's waits, which are read after the run.
#[derive(Debug, Default)]
struct SharedWaits {
    count: AtomicU64,
    processing: AtomicU64,
    waiting: AtomicU64,
}

impl SharedWaits {
    fn note(&self, waits: &TimedWaits) {
        self.count.store(waits.count, Relaxed);
        self.processing.store(waits.processing.as_nanos(), Relaxed);
        self.waiting.store(waits.waiting.as_nanos(), Relaxed);
    }
}

/// Measures the time in barriers and between them. The first barrier of an update waits for packets, so it
/// does not count.
#[derive(Debug, Default)]
struct TimedWaits {
    last: Option<Instant>,
    count: u64,
    processing: clock::Duration,
    waiting: clock::Duration,
}

impl TimedWaits {
    fn begin(&mut self) {
        self.last = None;
    }

    fn timed(&mut self, wait: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let arrived = clock::now();
        wait()?;
        let left = clock::now();
        if let Some(last) = self.last {
            self.count += 1;
            self.processing += arrived - last;
            self.waiting += left - arrived;
        }
        self.last = Some(left);
        Ok(())
    }
}

enum MonitorMeeting {
    Own { group: Group, chosen_because: Option<String> },
    Pthread(PthreadBarrier),
}

enum MonitorSeat<'a> {
    Own(Box<BarrierMember>),
    Pthread(&'a PthreadBarrier),
}

impl MonitorMeeting {
    fn new(barrier: MonitorBarrier, options: &Options) -> Result<Self, Error> {
        match barrier {
            MonitorBarrier::Unisono(choice) => {
                let (group, chosen_because) = choice.group(options)?;
                Ok(Self::Own { group, chosen_because })
            }
            MonitorBarrier::Pthread => {
                let made = PthreadBarrier::new(options.threads as u32);
                made.map(Self::Pthread)
                    .map_err(|error| Error::Options(format!("no barrier of the C library: {error}")))
            }
        }
    }

    fn seat(&self, index: usize) -> MonitorSeat<'_> {
        match self {
            Self::Own { group, .. } => MonitorSeat::Own(Box::new(BarrierMember::join(group, index))),
            Self::Pthread(barrier) => MonitorSeat::Pthread(barrier),
        }
    }

    fn label(&self, barrier: MonitorBarrier, measured: Measurement) -> Measurement {
        match (self, barrier) {
            (Self::Own { group, chosen_because }, MonitorBarrier::Unisono(choice)) => {
                choice.label(group, chosen_because.clone(), measured, "monitor-unisono")
            }
            _ => Measurement {
                implementation: "monitor-pthread".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                algorithm: "pthread_barrier_wait".into(),
                wait: "block".into(),
                ..measured
            },
        }
    }
}

impl MonitorSeat<'_> {
    fn wait(&mut self) -> Result<(), String> {
        match self {
            Self::Own(seat) => seat.wait(),
            Self::Pthread(barrier) => barrier.wait().map_err(|error| error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(packets_per_s: f64) -> MonitorLoad {
        let rate = StreamRate { packets_per_s, burst: 4.0, burst_packets: 40.0 };
        let centres = CentreRange { fewest: 2, most: 4 };
        MonitorLoad { stream: 0, chunk: 60, centres, times: ChunkTimes::Packets(rate) }
    }

    const BARRIERS: [MonitorBarrier; 2] = [
        MonitorBarrier::Unisono(BarrierChoice { algorithm: None, wait: None, spin_budget: None }),
        MonitorBarrier::Pthread,
    ];

    #[test]
    fn every_chunk_is_clustered_and_none_before_its_last_packet() {
        let load = load(600.0);
        let options = Options { threads: 2, seconds: 0.5, ..Options::default() };
        let arrivals = load.arrivals(options.seconds, options.seed).expect("packets arrive");
        let mut packets: Vec<_> = match load.times {
            ChunkTimes::Packets(rate) => PacketTimes::new(rate, 0, options.seed).take(10_000).collect(),
            ChunkTimes::BackToBack => Vec::new(),
        };
        packets.retain(|at| at.as_secs_f64() < options.seconds);
        assert_eq!(arrivals.len(), packets.len() / load.chunk);
        assert_eq!(arrivals[0], packets[load.chunk - 1]);
        for barrier in BARRIERS {
            // a busy machine may take long, so the test gives up no chunk
            let measured = serve(&load, barrier, &options, Duration::from_secs(3600)).expect("measured");
            let wanted = (Some(arrivals.len() as u64), Some(0));
            assert_eq!((measured.requests, measured.unfinished), wanted, "{barrier:?}");
            assert!(measured.latency_us.is_some_and(|latency| latency.min > 0.0));
            let each = measured.processing_us.zip(measured.waiting_us).map(|(p, w)| p + w);
            assert!(each.is_some_and(|us| (measured.barriers_per_s - 1e6 / us).abs() < 1.0), "{measured:?}");
        }
    }

    #[test]
    fn a_stream_without_a_whole_chunk_has_nothing_to_cluster_and_fails_nobody() {
        let load = load(60.0);
        let silent = |seed: &u64| load.arrivals(0.5, *seed).is_some_and(|arrivals| arrivals.is_empty());
        let seed = (0..100).find(silent).expect("of a hundred streams one has fewer than 60 packets");
        let options = Options { threads: 2, seconds: 0.5, seed, ..Options::default() };
        for barrier in BARRIERS {
            let measured = serve(&load, barrier, &options, Duration::from_secs(3600)).expect("measured");
            assert_eq!((measured.requests, measured.unfinished), (Some(0), Some(0)), "{barrier:?}");
            assert!(measured.latency_us.is_none() && !measured.implementation.is_empty(), "{measured:?}");
        }
    }

    #[test]
    fn chunks_that_are_too_late_count_as_long_as_they_waited_and_are_not_clustered() {
        let options = Options { threads: 2, seconds: 0.5, ..Options::default() };
        let measured = serve(&load(600.0), BARRIERS[0], &options, Duration::ZERO).expect("measured");
        assert_eq!(measured.requests, Some(0));
        assert!(measured.unfinished.is_some_and(|n| n > 0));
        assert_eq!(measured.latency_us.map(|latency| latency.n), measured.unfinished);
    }

    #[test]
    fn a_stream_with_a_single_chunk_is_measured_too() {
        let options = Options { threads: 2, seconds: 0.2, ..Options::default() };
        let many = load(600.0);
        let ChunkTimes::Packets(rate) = many.times else { unreachable!("load() says so") };
        let in_time = |at: &Duration| at.as_secs_f64() < options.seconds;
        let packets = PacketTimes::new(rate, 0, options.seed).take_while(in_time).count();
        let one = MonitorLoad { chunk: packets, ..many };
        for max_delay in [Duration::from_secs(3600), Duration::ZERO] {
            let measured = serve(&one, BARRIERS[0], &options, max_delay).expect("measured");
            assert_eq!(measured.latency_us.map(|latency| latency.n), Some(1), "{measured:?}");
            // the measured time extends to the end of the last chunk, which is after its last packet
            let last = PacketTimes::new(rate, 0, options.seed).nth(packets - 1).expect("it came");
            assert!(measured.elapsed_s >= last.as_secs_f64(), "{measured:?}");
        }
    }

    #[test]
    fn chunks_without_pauses_fill_the_time() {
        let load = MonitorLoad { times: ChunkTimes::BackToBack, ..load(1.0) };
        let options = Options { threads: 2, iterations: Some(3), ..Options::default() };
        let measured = serve(&load, BARRIERS[0], &options, Duration::MAX).expect("measured");
        assert_eq!((measured.requests, measured.unfinished), (Some(3), None));
    }

    #[test]
    fn a_load_that_makes_no_sense_is_refused() {
        assert!(MonitorLoad { chunk: 0, ..load(1.0) }.check().is_err());
        assert!(load(-1.0).check().is_err());
        assert!(MonitorLoad { centres: CentreRange { fewest: 0, most: 3 }, ..load(1.0) }.check().is_err());
    }
}
