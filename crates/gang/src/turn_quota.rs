//! The turns of a gang with a quota: the gang is stopped as a whole before the kernel stops its threads one
//! by one.
//!
//! ```text
//! kernel      |time used up: this thread stops .....|  the others spin for it until their slices are used up
//! as a unit   |A A A . . . A A A . . . |               all threads run, or none does
//! ```
//! The kernel refills a group's time once per period, 100 ms as a rule. A gang that runs on `c` processors
//! uses up a quota of `q` in `q/c` of the period. So it gets turns of that total length, evenly spread over
//! the period. Any interval as long as a period then holds the same number of turns, wherever the kernel's
//! own period begins.
//!
//! Pure. Cost: a division when a turn begins. When not to use: a quota that the gang's processors cannot use
//! up has no effect. A gang that leaves processors idle gets less than its quota.
//!
//! Reference: Documentation/scheduler/sched-bwc.rst.

use unisono_linux::clock::Duration;
use unisono_linux::quota::Quota;

/// Processor time per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnQuota {
    pub time: Duration,
    pub period: Duration,
}

/// A turn of a gang that keeps to its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaTurn {
    pub length: Duration,
    /// Minimum time from the beginning of this turn to the beginning of the next.
    pub again: Duration,
}

/// Part of the quota used by turns. The rest is for late switches, and for the processes in the same group
/// that start the programs. Chosen, not measured.
const USED: f64 = 0.95;

/// The shortest turn to which a quota leads. A user who chooses the period of a quota also chooses how often
/// the machine would have to switch; a switch costs up to 70 us on every core, 1.4 % of this length. The
/// kernel, too, hands quotas out in slices of 5 ms (`sched_cfs_bandwidth_slice_us`). Where turns are longer
/// than the quota of one period, the kernel stops the threads one by one, as it does without gangs.
pub const MIN_TURN: Duration = Duration::from_millis(5);

impl From<&Quota> for TurnQuota {
    fn from(quota: &Quota) -> TurnQuota {
        TurnQuota {
            time: Duration::from_micros(quota.time_us),
            period: Duration::from_micros(quota.period_us),
        }
    }
}

impl TurnQuota {
    /// Returns an equal part for each of `gangs` gangs.
    #[must_use]
    pub fn shared_by(self, gangs: usize) -> TurnQuota {
        TurnQuota { time: self.time / gangs.max(1) as u64, ..self }
    }

    /// Returns the turn of a gang that runs on this many processors. Its length is at most `longest`, and at
    /// least the lesser of `shortest` and `longest`. `None`: the gang cannot use its quota up.
    pub fn turn(self, cores: usize, longest: Duration, shortest: Duration) -> Option<QuotaTurn> {
        let (time, period) = (self.time.as_nanos() as f64, self.period.as_nanos() as f64);
        let length_of = |nanos: f64| Duration::from_nanos(nanos as u64);
        let all = period * cores as f64;
        if time >= all || self.period.is_zero() {
            return None;
        }
        let on = period * (time * USED / all);
        let turns = (on / longest.as_nanos().max(1) as f64).ceil().max(1.0);
        let length = length_of(on / turns).max(Duration::from_nanos(1));
        let shortest = shortest.min(longest);
        if length < shortest {
            // longer turns come less often in the same proportion, so that the quota holds over many periods
            let again = length_of(shortest.as_nanos() as f64 * period / on.max(1.0));
            return Some(QuotaTurn { length: shortest, again: again.max(shortest) });
        }
        Some(QuotaTurn { length, again: length_of(period / turns).max(length) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_threads_in_a_quota_of_one_processor_run_less_than_half_of_the_time() {
        let quota = TurnQuota { time: Duration::from_millis(100), period: Duration::from_millis(100) };
        let turn = quota.turn(2, Duration::from_millis(20), MIN_TURN).expect("two processors use it up");
        // 47.5 ms in 100, in three turns
        assert_eq!((turn.length.as_micros(), turn.again.as_micros()), (15_833, 33_333));
        assert_eq!(quota.turn(1, Duration::from_millis(20), MIN_TURN), None);
        assert_eq!(
            quota.shared_by(2).turn(1, Duration::from_millis(100), MIN_TURN).map(|turn| turn.length),
            Some(Duration::from_micros(47_500))
        );
    }

    #[test]
    fn a_quota_in_tiny_periods_makes_no_tiny_turns_and_holds_over_many_periods() {
        let quota =
            TurnQuota { time: Duration::from_millis(1), period: Duration::from_millis(1) }.shared_by(16);
        let turn = quota.turn(2, Duration::from_millis(20), MIN_TURN).expect("two processors use it up");
        assert_eq!(turn.length, MIN_TURN);
        let used = 2.0 * turn.length.as_nanos() as f64 / turn.again.as_nanos() as f64;
        assert!((used - USED / 16.0).abs() < 1e-6, "{used} processors");
        let short = quota.turn(2, Duration::from_millis(2), MIN_TURN).expect("two processors use it up");
        assert_eq!(short.length, Duration::from_millis(2), "root has asked for turns as short as that");
    }

    proptest! {
        /// In any interval as long as a period, consecutive turns use no more than the quota.
        #[test]
        fn no_period_of_the_kernel_sees_more_than_the_quota(
            time_ms in 1u64..400, period_ms in 1u64..200, cores in 1usize..9, slice_ms in 1u64..200,
            phase in 0.0f64..1.0,
        ) {
            let quota = TurnQuota { time: Duration::from_millis(time_ms), period: Duration::from_millis(period_ms) };
            let Some(turn) = quota.turn(cores, Duration::from_millis(slice_ms), Duration::ZERO) else {
                prop_assert!(time_ms >= period_ms * cores as u64);
                return Ok(());
            };
            prop_assert!(turn.length <= Duration::from_millis(slice_ms) && turn.length <= turn.again);
            let (length, again) = (turn.length.as_nanos() as f64, turn.again.as_nanos() as f64);
            let (time, period) = (quota.time.as_nanos() as f64, quota.period.as_nanos() as f64);
            let begin = phase * again;
            let end = begin + period;
            let overlap = |number: u64| {
                let from = number as f64 * again;
                (end.min(from + length) - begin.max(from)).max(0.0)
            };
            let ran: f64 = (0..(period / again) as u64 + 3).map(overlap).sum();
            let used = ran * cores as f64;
            prop_assert!(used <= time * 1.0001, "{used} of {time} ns");
            prop_assert!(used >= time * 0.9 - 10.0, "{used} of {time} ns");
        }
    }
}
