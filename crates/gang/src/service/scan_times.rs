//! Schedules the daemon's scans of its gangs.
//!
//! ```text
//!   round        reads files of every thread: births, cores, intervals; then judges
//!   judgement    reads two small files of every gang: does it block, or want its cores again?
//! ```
//! A round over ten gangs of four threads computes for 5 to 9 ms on a busy machine, so rounds come 10 to 18 s
//! apart. Sleeping gangs would take turns for all that time, and a gang that wakes would wait for them, so
//! judgements come in between. Pure: times are arguments.

use unisono_linux::clock::{Duration, Instant};

/// Time from a scan to the next of its kind, in multiples of the scan's processor time. So rounds take at
/// most a two-thousandth of a core while no gang comes and no number of threads changes, and judgements as
/// much again. Processor time counts, because on a busy machine a scan lasts longer than it computes.
const INTERVAL_FACTOR: u64 = 2000;
/// Bounds of the time between two scans of a kind.
const MIN_SCAN_INTERVAL: Duration = Duration::SECOND;
const MAX_SCAN_INTERVAL: Duration = Duration::from_secs(20);
/// Time to the next round after a gang came: most threads are created early.
const NEW_GANG_DELAY: Duration = Duration::from_millis(100);
/// Time to the next round after the number of threads changed.
const CHANGED_THREADS_DELAY: Duration = Duration::from_millis(500);

/// Returns the time to wait after a scan that took this much processor time.
pub(super) fn scan_interval(took: Duration) -> Duration {
    (took * INTERVAL_FACTOR).clamp(MIN_SCAN_INTERVAL, MAX_SCAN_INTERVAL)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GangScan {
    Round,
    Judgement,
}

/// The times of the next round and the next judgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanTimes {
    round: Instant,
    judgement: Instant,
}

impl ScanTimes {
    pub(super) fn new(now: Instant) -> ScanTimes {
        ScanTimes { round: now, judgement: now }
    }

    pub(super) fn next(self) -> Instant {
        self.round.min(self.judgement)
    }

    pub(super) fn due(self, now: Instant) -> Option<GangScan> {
        if now >= self.round {
            return Some(GangScan::Round);
        }
        (now >= self.judgement).then_some(GangScan::Judgement)
    }

    /// Records that a gang has come: the next round is due soon.
    pub(super) fn gang_came(&mut self, now: Instant) {
        self.round = self.round.min(now + NEW_GANG_DELAY);
    }

    /// Records the end of a round. `changed`: threads were created or have ended.
    pub(super) fn went_round(&mut self, took: Duration, changed: bool, now: Instant) {
        self.round = now + if changed { CHANGED_THREADS_DELAY } else { scan_interval(took) };
        self.judgement = now + MIN_SCAN_INTERVAL;
    }

    pub(super) fn judged(&mut self, took: Duration, now: Instant) {
        self.judgement = now + scan_interval(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TOOK: Duration = Duration::from_millis(9);

    #[test]
    fn gangs_are_judged_every_second_while_rounds_that_compute_for_long_are_rare() {
        let mut times = ScanTimes::new(Instant::ZERO);
        let (mut rounds, mut judgements) = (Vec::new(), 0);
        for ms in 0..40_000 {
            let now = Instant::from_millis(ms);
            match times.due(now) {
                Some(GangScan::Round) => {
                    rounds.push(ms);
                    times.went_round(ROUND_TOOK, false, now);
                }
                Some(GangScan::Judgement) => {
                    judgements += 1;
                    times.judged(Duration::from_micros(200), now);
                }
                None => assert!(times.next() > now),
            }
        }
        assert_eq!((rounds, judgements), (vec![0, 18_000, 36_000], 17 + 17 + 3));
    }

    #[test]
    fn a_round_follows_soon_when_a_gang_comes_or_its_threads_change() {
        let mut times = ScanTimes::new(Instant::ZERO);
        times.went_round(ROUND_TOOK, true, Instant::ZERO);
        assert_eq!(times.due(Instant::from_millis(500)), Some(GangScan::Round));
        times.went_round(ROUND_TOOK, false, Instant::from_millis(500));
        times.gang_came(Instant::from_millis(700));
        assert_eq!(
            (times.due(Instant::from_millis(799)), times.due(Instant::from_millis(800))),
            (None, Some(GangScan::Round))
        );
    }
}
