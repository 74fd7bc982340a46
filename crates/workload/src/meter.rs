//! The records of participant 0 during a run, and the measurement computed from them.
//!
//! Participant 0 reads the clock before it arrives at every k-th episode. k follows the pace, so that a batch
//! takes about 4 to 10 us: the reading (some 25 ns) stays below a percent, and an episode of more than a few
//! microseconds has a batch of its own. The longest single episode is estimated as the longest batch minus
//! the usual time of its other episodes.
//!
//! If a moment to begin was given ([`Options::start_at`]), the measured time *is* the seconds after that
//! moment, even if participant 0 did not run at its ends. So programs that take turns are compared over the
//! same time, and none is measured after the others have ended. An episode that crosses an end of that time
//! counts by the part of its length inside. If it counted as one, every rate would be at least one episode in
//! the measured time, however slow the barriers are.
//!
//! Cost: one comparison per episode, one clock reading and one histogram count per batch.

use super::histogram::BatchHistogram;
use super::options::Options;
use serde::{Deserialize, Serialize};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::usage::{self, Usage};
use unisono_measure::record::Distribution;

const MIN_SAMPLE_TIME: Duration = Duration::from_micros(4);
const MAX_SAMPLE_TIME: Duration = Duration::from_micros(10);
const MAX_THREADS: u64 = 4096;

#[derive(Debug)]
pub(crate) struct LeaderMeter {
    begin_at: Instant,
    ready_at: Instant,
    is_appointed: bool,
    seconds: f64,
    iterations: Option<u64>,
    batch: u64,
    next: u64,
    last: (u64, Instant),
    phase: MeterPhase,
    histogram: BatchHistogram,
    least: f64,
    longest: (Duration, u64),
}

#[derive(Clone, Copy, Debug)]
enum MeterPhase {
    WarmingUp,
    /// `head`: the part inside the measured time of the episodes that were running at its start.
    Measuring {
        first: u64,
        head: f64,
        start: Instant,
        usage: Usage,
        until: Instant,
    },
    Over {
        episodes: f64,
        start: Instant,
        end: Instant,
        used: Usage,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    Continue,
    Stop,
}

impl LeaderMeter {
    pub(crate) fn start(options: &Options) -> Self {
        let now = clock::now();
        Self {
            begin_at: options.start_at.map_or(now + options.warm_up.into(), Instant::from_nanos),
            ready_at: now,
            is_appointed: options.start_at.is_some() && options.iterations.is_none(),
            seconds: options.seconds,
            iterations: options.iterations,
            batch: 1,
            next: 1,
            last: (0, now),
            phase: MeterPhase::WarmingUp,
            histogram: BatchHistogram::default(),
            least: f64::INFINITY,
            longest: (Duration::ZERO, 1),
        }
    }

    /// Records the beginning of an episode, and returns whether to stop. Call this once before each episode's
    /// first barrier; episodes are numbered from 1.
    #[inline]
    pub(crate) fn episode(&mut self, episode: u64) -> NextStep {
        if episode < self.next { NextStep::Continue } else { self.read(episode) }
    }

    #[inline(never)]
    fn read(&mut self, episode: u64) -> NextStep {
        let now = clock::now();
        let (took, episodes) = (now - self.last.1, episode - self.last.0);
        let mut last = (episode, now);
        match self.phase {
            MeterPhase::Measuring { first, head, start, usage, until } => {
                self.count(took, episodes);
                if self.iterations.map_or(now >= until, |last| episode >= last) {
                    let used = usage::of_this_process().since(usage);
                    let end = if self.is_appointed { until } else { now };
                    let outside = part(episodes, now - end, took);
                    let episodes = head + (episode - first) as f64 - outside;
                    self.phase = MeterPhase::Over { episodes, start, end, used };
                    return NextStep::Stop;
                }
            }
            MeterPhase::WarmingUp if now >= self.begin_at || self.iterations.is_some() => {
                let usage = usage::of_this_process();
                last.1 = clock::now();
                let start = if self.is_appointed { self.begin_at } else { last.1 };
                let length = Duration::from_nanos((self.seconds * 1e9) as u64);
                // before episode 1 the program got ready
                let runs = self.is_appointed && self.last.0 > 0;
                let head = if runs { part(episodes, length.min(now - start), took) } else { 0.0 };
                let until = start + length;
                self.phase = MeterPhase::Measuring { first: episode, head, start, usage, until };
                if self.iterations.is_some_and(|last| episode >= last) {
                    let used = Usage::default();
                    self.phase = MeterPhase::Over { episodes: 0.0, start, end: start, used };
                    return NextStep::Stop;
                }
            }
            MeterPhase::WarmingUp => {}
            MeterPhase::Over { .. } => return NextStep::Stop,
        }
        self.batch = match self.batch {
            _ if self.iterations.is_some() => 1,
            batch if took < MIN_SAMPLE_TIME && batch < MAX_THREADS => batch * 2,
            batch if took > MAX_SAMPLE_TIME && batch > 1 => batch / 2,
            batch => batch,
        };
        self.last = last;
        self.next = episode + self.batch;
        NextStep::Continue
    }

    fn count(&mut self, took: Duration, episodes: u64) {
        let each = took.as_nanos() as f64 / episodes as f64;
        self.histogram.add(each, episodes);
        self.least = self.least.min(each);
        if took > self.longest.0 {
            self.longest = (took, episodes);
        }
    }

    /// Computes the measurement from the `iterations` of each participant and the number of `barriers` in
    /// each iteration.
    pub(crate) fn measurement(&self, options: &Options, iterations: Vec<u64>, barriers: u32) -> Measurement {
        let (episodes, start, end, used) = match self.phase {
            MeterPhase::Over { episodes, start, end, used } => (episodes, start, end, used),
            _ => (0.0, Instant::ZERO, Instant::ZERO, Usage::default()),
        };
        let elapsed_s = (end - start).as_nanos() as f64 / 1e9;
        let per_s = |count: f64| if elapsed_s > 0.0 { count / elapsed_s } else { 0.0 };
        let each = if episodes > 0.0 { elapsed_s * 1e9 / episodes } else { 0.0 };
        let b = f64::from(barriers.max(1));
        let quantile = |q| self.histogram.quantile(q) / b;
        let (took, batch) = (self.longest.0.as_nanos() as f64, self.longest.1 as f64);
        let longest = (took - (batch - 1.0) * self.histogram.quantile(0.5)).max(took / batch);
        Measurement {
            threads: options.threads,
            interval_ns: Duration::from(options.interval).as_nanos(),
            variance_ns: Duration::from(options.variance).as_nanos(),
            seed: options.seed,
            pin: options.pin.to_string(),
            ns_per_barrier: NsPerBarrier {
                n: self.histogram.total() * u64::from(barriers),
                min: if self.least.is_finite() { self.least / b } else { 0.0 },
                p25: quantile(0.25),
                median: quantile(0.5),
                p75: quantile(0.75),
                p99: quantile(0.99),
                max: longest / b,
                mean: each / b,
            },
            barriers_per_s: per_s(episodes) * f64::from(barriers),
            iterations_per_s: per_s(episodes),
            blocks_per_s: per_s(used.voluntary_switches as f64),
            preemptions_per_s: per_s(used.involuntary_switches as f64),
            iterations,
            episodes: episodes.round() as u64,
            elapsed_s,
            cpu_s: used.cpu.as_secs_f64(),
            start_ns: start.as_nanos(),
            end_ns: end.as_nanos(),
            ready_ns: self.ready_at.as_nanos(),
            ..Measurement::default()
        }
    }
}

/// Returns the number of episodes that `time` holds, if `episodes` lasted `took`.
fn part(episodes: u64, time: Duration, took: Duration) -> f64 {
    if took == Duration::ZERO {
        return 0.0;
    }
    episodes as f64 * time.min(took).as_nanos() as f64 / took.as_nanos() as f64
}

/// The measurement of one run of a workload or a peer: the JSON object written to `--result`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measurement {
    /// `unisono`, `std`, `pthread`, `cxx`, `libgomp`, ...
    pub implementation: String,
    pub version: String,
    pub algorithm: String,
    /// The wait policy, for example `spin-block`.
    pub wait: String,
    /// The reason for this algorithm, if it was chosen automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen_because: Option<String>,
    pub threads: usize,
    pub interval_ns: u64,
    /// The maximum of the additional computation.
    pub variance_ns: u64,
    pub seed: u64,
    pub pin: String,
    /// `None` if the wait policy has no spin budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_budget_ns: Option<u64>,
    /// Busy loops beside the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub competitors: Option<usize>,
    /// Time from barrier to barrier, computation included.
    pub ns_per_barrier: NsPerBarrier,
    /// Mean rate over the whole measured time.
    pub barriers_per_s: f64,
    pub iterations_per_s: f64,
    /// Voluntary context switches of all threads per second.
    pub blocks_per_s: f64,
    /// Preemptions and yields of all threads per second.
    pub preemptions_per_s: f64,
    /// Iterations of each participant, warm-up included.
    pub iterations: Vec<u64>,
    /// Iterations in the measured time, rounded; the rates use the exact number.
    pub episodes: u64,
    pub elapsed_s: f64,
    /// Processor time of all threads in the measured time.
    pub cpu_s: f64,
    /// The first moment of the measurement (`CLOCK_MONOTONIC`, nanoseconds).
    pub start_ns: u64,
    pub end_ns: u64,
    /// The moment when the program was ready to begin. If it is later than `start_ns`, the program was late.
    pub ready_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<f64>,
    /// Time from a request's arrival to the end of its computation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Distribution>,
    /// Number of requests served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Number of requests still queued after twice the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<u64>,
    /// Mean time before each barrier, over all participants; `waiting_us`: mean time in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processing_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_us: Option<f64>,
    pub rounds_per_ns: f64,
}

impl Measurement {
    /// Returns the measurement with another measured time, from `start` to `end`. Use it for work that is
    /// counted from its first arrival to its last end: the meter's own time ends when the last iteration
    /// begins, so with a single iteration it is zero.
    #[must_use]
    pub fn with_interval(self, start: Instant, end: Instant) -> Self {
        let elapsed_s = (end - start).as_nanos() as f64 / 1e9;
        Self { start_ns: start.as_nanos(), end_ns: end.as_nanos(), elapsed_s, ..self }
    }

    /// Returns the mean number of processors used in the measured time.
    pub fn cpu_share(&self) -> f64 {
        if self.elapsed_s > 0.0 { self.cpu_s / self.elapsed_s } else { 0.0 }
    }
}

/// Distribution of the time from barrier to barrier, in nanoseconds. Samples are batches of a few
/// microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NsPerBarrier {
    pub n: u64,
    pub min: f64,
    pub p25: f64,
    pub median: f64,
    pub p75: f64,
    pub p99: f64,
    /// Longest single episode.
    pub max: f64,
    /// Measured time divided by barriers.
    pub mean: f64,
}

impl NsPerBarrier {
    pub fn distribution(&self) -> Distribution {
        let Self { n, min, p25, median, p75, p99, max, .. } = *self;
        Distribution { n, min, p25, median, p75, p99, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_so_many_iterations_stops_after_exactly_as_many() {
        let options = Options { iterations: Some(10), ..Options::default() };
        let mut meter = LeaderMeter::start(&options);
        let last = (1..).find(|episode| meter.episode(*episode) == NextStep::Stop);
        assert_eq!(last, Some(10));
        let measured = meter.measurement(&options, vec![10], 3);
        assert_eq!((measured.episodes, measured.ns_per_barrier.n), (9, 27));
    }

    #[test]
    fn batches_grow_while_episodes_are_short_and_rates_match_the_clock() {
        let options = Options { seconds: 0.02, warm_up: std::time::Duration::ZERO, ..Options::default() };
        let mut meter = LeaderMeter::start(&options);
        let episodes = (1..).find(|episode| meter.episode(*episode) == NextStep::Stop).unwrap_or(0);
        assert!(meter.batch > 1 && episodes > 1000, "{} episodes, batch {}", episodes, meter.batch);
        let measured = meter.measurement(&options, vec![episodes], 1);
        assert!(measured.elapsed_s >= 0.02 && measured.end_ns > measured.start_ns);
        assert!((measured.barriers_per_s * measured.elapsed_s - measured.episodes as f64).abs() < 1.0);
        assert!(measured.ns_per_barrier.median <= measured.ns_per_barrier.max);
    }

    #[test]
    fn an_appointed_time_is_kept_whatever_happens_at_its_ends() {
        let begin = clock::now().as_nanos() + 1_000_000;
        let options = Options { seconds: 0.01, start_at: Some(begin), ..Options::default() };
        let mut meter = LeaderMeter::start(&options);
        std::thread::sleep(std::time::Duration::from_millis(3));
        meter.episode(1);
        std::thread::sleep(std::time::Duration::from_millis(12));
        let last = (2..).find(|episode| meter.episode(*episode) == NextStep::Stop).expect("it stops");
        let measured = meter.measurement(&options, vec![last], 1);
        assert_eq!((measured.start_ns, measured.end_ns), (begin, begin + 10_000_000));
        assert!(measured.ready_ns < begin);
    }

    #[test]
    fn an_episode_that_crosses_the_ends_of_an_appointed_time_counts_by_its_part_inside() {
        let begin = clock::now().as_nanos() + 20_000_000;
        let options = Options { seconds: 0.01, start_at: Some(begin), ..Options::default() };
        let mut meter = LeaderMeter::start(&options);
        assert_eq!(meter.episode(1), NextStep::Continue);
        let mut last = 1;
        loop {
            std::thread::sleep(std::time::Duration::from_millis(50));
            last += 1;
            if meter.episode(last) == NextStep::Stop {
                break;
            }
        }
        // The measured 10 ms lie inside of the first episode, or of the first two, each of 50 ms or longer.
        let measured = meter.measurement(&options, vec![last], 1);
        assert!(measured.barriers_per_s > 0.0 && measured.barriers_per_s <= 20.0, "{measured:?}");
        assert!(measured.ns_per_barrier.mean >= 50e6, "{measured:?}");
    }

    #[test]
    fn a_pause_shows_as_the_longest_episode() {
        let options = Options { seconds: 0.02, warm_up: std::time::Duration::ZERO, ..Options::default() };
        let mut meter = LeaderMeter::start(&options);
        for episode in 1.. {
            if episode == 5000 {
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            if meter.episode(episode) == NextStep::Stop {
                break;
            }
        }
        let measured = meter.measurement(&options, Vec::new(), 1);
        assert!(measured.ns_per_barrier.max >= 2.9e6, "{:?}", measured.ns_per_barrier);
        assert!(measured.ns_per_barrier.median < 1e5);
    }
}
