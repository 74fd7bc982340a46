//! Computes the observation of one run from readings of `/proc`.
//!
//! A thread that ends between two readings counts with its figures at the earlier reading. The figures of
//! threads that live shorter than the time between two readings (100 ms or more) may be missing.

use crate::switches::RecordedWork;
use crate::tree::{ThreadReading, TreeReading};
use std::collections::BTreeMap;
use unisono_linux::clock::Duration;
use unisono_measure::noise::coefficient_of_variation;
use unisono_measure::quantile;

/// A thread that worked for less than this share of the run counts as idle and does not belong to the team.
/// Helper threads of runtimes wake a few times a second; a team's thread that works for only 1 % of a run has
/// nothing to wait for. Chosen, not measured.
const MIN_WORK_SHARE: f64 = 0.01;
/// Maximum number of times between two sleeps that are kept for a run. Even then 2,000 of them, a tenth, lie
/// beyond the 90th percentile.
const MAX_WORK_SAMPLES: usize = 20_000;

/// The recorded work of threads between two sleeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkBetweenSleeps {
    pub n: usize,
    /// The 10th percentile.
    pub low: Duration,
    pub median: Duration,
    /// The 90th percentile.
    pub high: Duration,
}

/// One run, observed from outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    pub seconds: f64,
    /// The largest number of threads that worked between two readings.
    pub threads: usize,
    /// Processor time of all threads, in seconds.
    pub ran_s: f64,
    /// Time in which threads were runnable but had no processor, in seconds.
    pub waited_s: f64,
    /// Number of sleeps of all threads per second of their processor time.
    pub sleeps_per_s: f64,
    /// `None` if the work was not recorded.
    pub between_sleeps: Option<WorkBetweenSleeps>,
    /// Why the work between two sleeps was not recorded.
    pub unrecorded: Option<String>,
    /// Processor time of the busiest thread divided by the mean of the largest team; 1 if all are equal.
    pub imbalance: f64,
    /// Variation of the number of used processors between readings: standard deviation divided by mean.
    pub load_variation: f64,
    /// Mean number of processors that other programs used during the run. The kernel counts the machine's
    /// time in ticks of 10 ms: for short runs, only the mean over many runs is meaningful, and the value of
    /// one run may be negative.
    pub others: f64,
}

/// Totals of a whole run, which need no reading in between.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunTotals {
    pub seconds: f64,
    /// Processor time of the programs, in seconds.
    pub ran_s: f64,
    /// Number of sleeps of the programs' threads.
    pub sleeps: u64,
    /// Processor time of all programs on this machine, in seconds.
    pub machine_s: f64,
}

/// Accumulates the readings of a run.
#[derive(Clone, Debug, Default)]
pub struct RunWatch {
    first: Option<TreeReading>,
    last: Option<TreeReading>,
    /// The last reading of every thread ever seen.
    seen: BTreeMap<(i32, i32), ThreadReading>,
    threads: usize,
    /// Processors used between two readings, one value per pair of readings.
    processors_used: Vec<f64>,
    /// Work between two sleeps, in nanoseconds.
    work: Vec<f64>,
    /// Number of pairs of recorded sleeps with work of unknown length between them.
    incomplete_work: usize,
    /// The latest reason why nothing was recorded.
    unrecorded: Option<String>,
}

impl RunWatch {
    pub fn add(&mut self, reading: TreeReading) {
        if let Some(before) = &self.last {
            let seconds = (reading.at - before.at).as_secs_f64();
            let ran = |(key, one): (&(i32, i32), &ThreadReading)| {
                let then = self.seen.get(key).map_or(Duration::ZERO, |then| then.ran);
                (one.ran - then).as_secs_f64()
            };
            let each: Vec<f64> = reading.threads.iter().map(ran).collect();
            if seconds > 0.0 {
                self.threads =
                    self.threads.max(each.iter().filter(|ran| **ran > MIN_WORK_SHARE * seconds).count());
                self.processors_used.push(each.iter().sum::<f64>() / seconds);
            }
        }
        self.seen.extend(reading.threads.iter().map(|(key, one)| (*key, *one)));
        self.first.get_or_insert_with(|| reading.clone());
        self.last = Some(reading);
    }

    /// Adds the recorded work between two sleeps, or the reason why nothing was recorded.
    pub fn add_work(&mut self, recorded: Result<RecordedWork, String>) {
        let room = MAX_WORK_SAMPLES - self.work.len();
        match recorded {
            Ok(_) if room == 0 => {}
            Ok(RecordedWork { whole, incomplete }) => {
                self.work.extend(whole.iter().take(room).map(|time| time.as_nanos() as f64));
                self.incomplete_work += incomplete;
            }
            Err(reason) => self.unrecorded = Some(reason),
        }
    }

    fn between_sleeps(&self) -> Result<WorkBetweenSleeps, String> {
        let (whole, all) = (self.work.len(), self.work.len() + self.incomplete_work);
        // if a kernel records only some of the starts, the known lengths are a biased sample
        if whole < self.incomplete_work {
            return Err(format!(
                "the kernel recorded all starts and ends of a thread between only {whole} of {all} pairs of sleeps"
            ));
        }
        let at = |part| Some(Duration::from_nanos(quantile::quantile(&self.work, part)? as u64));
        let parts = at(0.1).zip(at(0.5)).zip(at(0.9));
        let ((low, median), high) = parts.ok_or_else(|| {
            self.unrecorded.clone().unwrap_or_else(|| "no thread was recorded to sleep twice".into())
        })?;
        Ok(WorkBetweenSleeps { n: whole, low, median, high })
    }

    /// Returns the observation of a run: the totals of its processes and the figures from readings.
    pub fn observation(&self, totals: RunTotals) -> Observation {
        let waited: Duration = self.seen.values().map(|one| one.waited).sum();
        // the totals do not contain the time of a program that was killed together with its parent, but the
        // readings do
        let read: Duration = self.seen.values().map(|one| one.ran).sum();
        let totals = RunTotals { ran_s: totals.ran_s.max(read.as_secs_f64()), ..totals };
        let others = totals.machine_s - totals.ran_s;
        let (between_sleeps, unrecorded) = match self.between_sleeps() {
            Ok(work) => (Some(work), None),
            Err(reason) => (None, Some(reason)),
        };
        Observation {
            seconds: totals.seconds,
            threads: self.threads,
            ran_s: totals.ran_s,
            waited_s: waited.as_secs_f64(),
            sleeps_per_s: if totals.ran_s > 0.0 { totals.sleeps as f64 / totals.ran_s } else { 0.0 },
            between_sleeps,
            unrecorded,
            imbalance: self.imbalance(totals.seconds),
            load_variation: coefficient_of_variation(&self.processors_used).unwrap_or(0.0),
            others: if totals.seconds > 0.0 { others / totals.seconds } else { 0.0 },
        }
    }

    /// Returns the observation between the first reading and the last, for processes that go on running.
    pub fn since_first(&self) -> Observation {
        let (Some(first), Some(last)) = (&self.first, &self.last) else { return Observation::default() };
        let mut later = self.clone();
        for (key, one) in &mut later.seen {
            let before = first.threads.get(key).copied().unwrap_or_default();
            one.ran -= before.ran;
            one.waited -= before.waited;
            one.sleeps = one.sleeps.saturating_sub(before.sleeps);
        }
        later.observation(RunTotals {
            seconds: (last.at - first.at).as_secs_f64(),
            ran_s: later.seen.values().map(|one| one.ran).sum::<Duration>().as_secs_f64(),
            sleeps: later.seen.values().map(|one| one.sleeps).sum(),
            machine_s: (last.machine_time - first.machine_time).as_secs_f64(),
        })
    }

    /// Returns the imbalance of the largest team: the process with the most working threads.
    fn imbalance(&self, seconds: f64) -> f64 {
        let mut teams: BTreeMap<i32, Vec<f64>> = BTreeMap::new();
        for ((process, _), one) in &self.seen {
            let ran = one.ran.as_secs_f64();
            if ran > MIN_WORK_SHARE * seconds {
                teams.entry(*process).or_default().push(ran);
            }
        }
        let Some(team) = teams.into_values().max_by_key(Vec::len) else { return 1.0 };
        let mean = team.iter().sum::<f64>() / team.len() as f64;
        team.iter().fold(0.0, |most: f64, ran| most.max(*ran)) / mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::clock::Instant;

    fn reading(at_ms: u64, machine_ms: u64, threads: &[(i32, i32, u64, u64, u64)]) -> TreeReading {
        let ms = Duration::from_millis;
        let one = |(process, thread, ran, waited, sleeps): &(i32, i32, u64, u64, u64)| {
            ((*process, *thread), ThreadReading { ran: ms(*ran), waited: ms(*waited), sleeps: *sleeps })
        };
        TreeReading {
            at: Instant::from_millis(at_ms),
            threads: threads.iter().map(one).collect(),
            machine_time: Duration::from_millis(machine_ms),
        }
    }

    #[test]
    fn a_thread_that_has_ended_counts_with_what_it_had_done() {
        let mut watch = RunWatch::default();
        watch.add(reading(0, 5_000, &[(1, 1, 0, 0, 0), (1, 2, 0, 0, 0)]));
        watch.add(reading(100, 5_250, &[(1, 1, 100, 0, 10), (1, 2, 50, 50, 20)]));
        watch.add(reading(200, 5_400, &[(1, 1, 150, 50, 30)]));
        let seen = watch.observation(RunTotals { seconds: 0.2, ran_s: 0.2, sleeps: 50, machine_s: 0.4 });
        assert_eq!((seen.threads, seen.waited_s, seen.sleeps_per_s), (2, 0.1, 250.0));
        assert_eq!(seen.ran_s, 0.2);
        assert!((seen.others - 1.0).abs() < 1e-9, "{seen:?}");
        assert!((seen.imbalance - 1.5).abs() < 1e-9, "{seen:?}");
    }

    #[test]
    fn a_program_that_was_killed_with_its_parent_counts_with_what_it_was_seen_to_do() {
        let mut watch = RunWatch::default();
        watch.add(reading(0, 5_000, &[(1, 1, 0, 0, 0), (2, 2, 0, 0, 0)]));
        watch.add(reading(100, 5_250, &[(1, 1, 10, 0, 1), (2, 2, 90, 10, 0)]));
        let seen = watch.observation(RunTotals { seconds: 0.1, ran_s: 0.01, sleeps: 1, machine_s: 0.15 });
        assert_eq!(seen.ran_s, 0.1);
        assert!((seen.others - 0.5).abs() < 1e-9, "{seen:?}");
    }

    #[test]
    fn what_a_thread_did_before_it_was_watched_is_left_out() {
        let mut watch = RunWatch::default();
        watch.add(reading(0, 5_000, &[(1, 1, 9_000, 700, 50)]));
        watch.add(reading(200, 5_300, &[(1, 1, 9_100, 750, 60)]));
        let seen = watch.since_first();
        assert_eq!((seen.threads, seen.ran_s, seen.waited_s, seen.sleeps_per_s), (1, 0.1, 0.05, 100.0));
        assert!((seen.others - 1.0).abs() < 1e-9, "{seen:?}");
    }

    #[test]
    fn work_that_the_kernel_did_not_record_has_a_reason_and_no_figure() {
        let us = Duration::from_micros;
        let seen = |recorded: &[Result<RecordedWork, String>]| {
            let mut watch = RunWatch::default();
            recorded.iter().for_each(|one| watch.add_work(one.clone()));
            watch.observation(RunTotals::default())
        };
        let whole = seen(&[Ok(RecordedWork { whole: vec![us(30), us(50), us(70)], incomplete: 2 })]);
        let work = whole.between_sleeps.expect("most of it is known");
        assert_eq!((work.n, work.median, whole.unrecorded), (3, us(50), None));
        let few = seen(&[Ok(RecordedWork { whole: vec![us(30)], incomplete: 463 })]);
        assert_eq!(few.between_sleeps, None);
        assert!(few.unrecorded.expect("a reason").contains("only 1 of 464 pairs of sleeps"));
        let none = seen(&[Ok(RecordedWork::default())]);
        assert_eq!(none.unrecorded.as_deref(), Some("no thread was recorded to sleep twice"));
        let refused = seen(&[Ok(RecordedWork::default()), Err("refused".into())]);
        assert_eq!((refused.between_sleeps, refused.unrecorded), (None, Some("refused".into())));
    }

    #[test]
    fn a_run_that_nobody_read_has_no_figures_that_are_no_numbers() {
        for seen in [RunWatch::default().observation(RunTotals::default()), RunWatch::default().since_first()]
        {
            assert_eq!((seen.threads, seen.ran_s, seen.waited_s), (0, 0.0, 0.0));
            assert!(seen.load_variation.is_finite() && seen.imbalance.is_finite() && seen.others.is_finite());
        }
    }
}
