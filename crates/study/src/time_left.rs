//! The time that a study still takes: the estimates of the runs that are left, corrected by the runs so far.
//!
//! The idea: each attempt at a run counts, also an attempt that was disturbed and is repeated, so on a busy
//! machine the ratio of the time taken to the estimates rises with the first disturbed run. The answer never
//! exceeds the end of the time table, after which only first repetitions are made.
//!
//! Cost: a few divisions for each run.

use std::time::{Duration, Instant};

/// The time left, from the ratio of the runs' time on this host to their estimates.
#[derive(Debug)]
pub(crate) struct TimeLeft {
    estimated: Duration,
    taken: Duration,
    /// The moment by which all runs but first repetitions are finished. `None`: no limit.
    end: Option<Instant>,
}

impl TimeLeft {
    /// Weight of the prior: the ratio begins as if runs of this total estimate had taken exactly their
    /// estimates.
    const PRIOR: Duration = Duration::from_secs(5);

    /// An attempt counts at most this multiple of its estimate, because a hang says nothing about other runs.
    const MAX_ESTIMATE_FACTOR: u32 = 4;

    pub(crate) fn until(end: Option<Instant>) -> Self {
        Self { estimated: Duration::ZERO, taken: Duration::ZERO, end }
    }

    /// Records that a run begins; `estimate` is the estimate of its first attempt.
    pub(crate) fn add_run(&mut self, estimate: Duration) {
        self.estimated += estimate;
    }

    /// Records that an attempt at the run that began last has ended.
    pub(crate) fn add_attempt(&mut self, estimate: Duration, taken: Duration) {
        self.taken += taken.min(estimate * Self::MAX_ESTIMATE_FACTOR);
    }

    /// Returns the time for runs with the estimate `all`, of which first repetitions have the estimate
    /// `first`.
    pub(crate) fn after(&self, now: Instant, all: Duration, first: Duration) -> Duration {
        let corrected = self.correct(all);
        match self.end {
            Some(end) => corrected.min(end.saturating_duration_since(now).max(self.correct(first))),
            None => corrected,
        }
    }

    fn correct(&self, estimate: Duration) -> Duration {
        let taken = (self.taken + Self::PRIOR).as_secs_f64();
        estimate.mul_f64(taken / (self.estimated + Self::PRIOR).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Makes a study of runs of one second, after `runs` runs with that many attempts each, which took
    /// `taken` each.
    fn after_runs(runs: u32, attempts: u32, taken: Duration) -> TimeLeft {
        let mut left = TimeLeft::until(None);
        for _ in 0..runs {
            left.add_run(s(1));
            (0..attempts).for_each(|_| left.add_attempt(s(1), taken));
        }
        left
    }

    #[test]
    fn the_time_left_follows_the_runs_and_forgives_one_that_hangs() {
        let (now, hundred) = (Instant::now(), s(100));
        assert_eq!(after_runs(0, 0, s(1)).after(now, hundred, s(0)), hundred);
        let slow = after_runs(15, 1, s(2)).after(now, hundred, s(0));
        assert_eq!(slow, s(175), "30 + 5 seconds instead of 15 + 5");
        let hung = after_runs(1, 1, s(20)).after(now, hundred, s(0));
        assert_eq!(hung, s(150), "4 + 5 seconds instead of 1 + 5");
    }

    #[test]
    fn a_disturbed_run_that_is_made_again_counts_while_it_is_repeated() {
        let now = Instant::now();
        let mut left = TimeLeft::until(None);
        left.add_run(s(1));
        let mut last = left.after(now, s(12), s(0));
        for _ in 0..4 {
            left.add_attempt(s(1), s(1));
            let next = left.after(now, s(12), s(0));
            assert!(next > last || last == s(12), "{last:?}, {next:?}");
            last = next;
        }
        assert_eq!(last, s(18), "4 + 5 seconds instead of 1 + 5");
    }

    #[test]
    fn the_time_left_ends_with_the_time_table_except_for_first_repetitions() {
        let now = Instant::now();
        let left = TimeLeft::until(Some(now + s(30)));
        assert_eq!(left.after(now, s(40), s(5)), s(30));
        assert_eq!(left.after(now, s(12), s(5)), s(12));
        assert_eq!(left.after(now + s(60), s(40), s(5)), s(5), "each variant is still measured once");
    }
}
