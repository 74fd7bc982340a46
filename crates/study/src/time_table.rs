//! Divides a study's time among its parts, so that it ends in time.
//!
//! On a slow machine runs take longer than estimated, and disturbed runs are repeated. Each study gets a
//! share of the remaining time: its estimate over the sum of all remaining estimates. Time that a study does
//! not use goes to the later ones. Runs that would exceed the study's time are left out, except for the first
//! repetition: an answer from few runs is better than none. So the limit is exceeded only if the first
//! repetitions of all studies together take longer.
//!
//! Cost: a few divisions for each study.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeTable {
    /// The moment by which all runs should be finished. `None`: no limit.
    end: Option<Instant>,
    /// The moment by which the runs of the current study should be finished.
    study_end: Option<Instant>,
}

impl TimeTable {
    pub(crate) fn until(end: Option<Instant>) -> Self {
        Self { end, study_end: end }
    }

    /// Begins a study. `own` is its estimate, `left` the estimate of this and all later studies.
    pub(crate) fn study_begins(&mut self, now: Instant, own: Duration, left: Duration) {
        let share = own.as_secs_f64() / left.as_secs_f64().max(f64::MIN_POSITIVE);
        self.study_end =
            self.end.map(|end| now + end.saturating_duration_since(now).mul_f64(share.clamp(0.0, 1.0)));
    }

    /// Whether at least `needed` is left of the study's time.
    pub(crate) fn has_time_for(&self, now: Instant, needed: Duration) -> bool {
        self.study_end.is_none_or(|end| now + needed <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_study_gets_its_part_of_the_time_left_and_leaves_the_rest() {
        let begin = Instant::now();
        let mut table = TimeTable::until(Some(begin + s(120)));
        table.study_begins(begin, s(10), s(100));
        assert!(table.has_time_for(begin, s(12)) && !table.has_time_for(begin, s(13)), "10 of 100");
        assert!(!table.has_time_for(begin + s(5), s(8)));
        // the study took 30 s: 90 s are left for estimates of 90 s
        table.study_begins(begin + s(30), s(45), s(90));
        assert!(table.has_time_for(begin + s(30), s(45)) && !table.has_time_for(begin + s(30), s(46)));
        table.study_begins(begin + s(130), s(45), s(45));
        assert!(!table.has_time_for(begin + s(130), s(1)), "the time is over");
    }

    #[test]
    fn without_an_end_there_is_always_time() {
        let now = Instant::now();
        let mut table = TimeTable::until(None);
        table.study_begins(now, s(10), s(10));
        assert!(table.has_time_for(now + s(1_000_000), s(1_000_000)));
    }

    #[test]
    fn studies_without_an_estimate_divide_by_nothing() {
        let now = Instant::now();
        let mut table = TimeTable::until(Some(now + s(10)));
        table.study_begins(now, Duration::ZERO, Duration::ZERO);
        assert!(table.has_time_for(now, Duration::ZERO) && !table.has_time_for(now, s(1)));
    }
}
