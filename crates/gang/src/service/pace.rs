//! The length of the daemon's slices: as long as its gangs tolerate.
//!
//! A program whose threads meet often needs short turns, because a process or person that waits for the
//! program's next result also waits for its turn. If its threads meet only every few milliseconds, no result
//! can come sooner than that, and longer turns cost less: the scheduler's own time falls from 0.5 % at 20 ms
//! to a fifth of that (docs/decisions/0008). So a slice lasts `MEETINGS` times the longest interval of the
//! gangs that take turns, from 20 to 100 ms. The paper's programs gain by gangs up to an interval of 15 ms
//! (ETH TR 745, section 3.2); above 12.5 ms the slice does not grow any more.
//!
//! The interval is the time that a thread runs between two sleeps. A switch makes each thread sleep once, so
//! that sleep is subtracted. Threads that only spin have no visible interval; for them the shortest slice
//! stays. Pure.

use crate::host::threads::ThreadSleeps;
use unisono_linux::clock::Duration;

pub const MIN_SLICE: Duration = Duration::from_millis(20);
const MAX_SLICE: Duration = Duration::from_millis(100);
/// Meetings per slice. With few of them, the first meeting after a switch, with cold caches, would count for
/// much of the slice. Chosen, not measured.
const MEETINGS: u64 = 8;
/// A new slice within this factor of the present one is ignored, unless it is the shortest or the longest, so
/// that the slice does not follow noise.
const NOTEWORTHY: f64 = 1.5;
/// The least number of sleeps per thread, as a part of the number of the gang's turns, from which an interval
/// is computed. Fewer sleeps may be due to other programs, which wake threads, too.
const MIN_SHARE: f64 = 0.5;

/// Totals over the threads of a gang that want to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GangSleeps {
    pub(crate) threads: ThreadSleeps,
    /// Number of turns of the gang.
    pub(crate) turns: u64,
}

impl GangSleeps {
    /// Returns the mean time that a thread ran between two sleeps since `before`. `None`: no interval is
    /// visible.
    pub(crate) fn interval(self, before: GangSleeps) -> Option<Duration> {
        let (now, then) = (self.threads, before.threads);
        if now.threads != then.threads || now.threads == 0 {
            return None;
        }
        let turns = self.turns.saturating_sub(before.turns) as f64;
        let each = now.sleeps.checked_sub(then.sleeps)? as f64 / now.threads as f64 - turns;
        let ran = (now.ran - then.ran).as_nanos() as f64 / now.threads as f64;
        (each >= (MIN_SHARE * turns).max(1.0)).then(|| Duration::from_nanos((ran / each) as u64))
    }
}

/// Returns the slice for gangs with these known intervals. `None`: the present slice stays.
pub(crate) fn slice(now: Duration, intervals: impl Iterator<Item = Duration>) -> Option<Duration> {
    let wanted = intervals.max().map_or(MIN_SLICE, |longest| longest * MEETINGS);
    let wanted = wanted.clamp(MIN_SLICE, MAX_SLICE);
    let ratio = wanted.as_secs_f64() / now.as_secs_f64();
    let ends = wanted == MIN_SLICE || wanted == MAX_SLICE;
    (wanted != now && (ends || !(1.0 / NOTEWORTHY..=NOTEWORTHY).contains(&ratio))).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn after(ran_ms: u64, sleeps: u64, turns: u64) -> GangSleeps {
        GangSleeps { threads: ThreadSleeps { threads: 2, ran: Duration::from_millis(ran_ms), sleeps }, turns }
    }

    #[test]
    fn threads_that_sleep_every_ten_milliseconds_have_that_interval_and_spinning_ones_have_none() {
        let begin = after(1000, 500, 100);
        // each thread ran half a second in 25 turns: 50 meetings and 25 stops each
        assert_eq!(after(2000, 650, 125).interval(begin), Some(MS * 10));
        assert_eq!(after(2000, 550, 125).interval(begin), None, "stopped 25 times, and never asleep");
        let mut more = after(2000, 650, 125);
        more.threads.threads = 3;
        assert_eq!(more.interval(begin), None, "a thread was born");
        assert_eq!(begin.interval(begin), None);
    }

    #[test]
    fn a_slice_is_eight_intervals_between_its_bounds() {
        let of = |now, intervals: &[u64]| slice(now, intervals.iter().map(|ms| MS * *ms));
        assert_eq!(of(MS * 20, &[]), None);
        assert_eq!(of(MS * 20, &[1]), None);
        assert_eq!(of(MS * 20, &[1, 6]), Some(MS * 48));
        assert_eq!(of(MS * 48, &[7]), None, "hardly longer");
        assert_eq!(of(MS * 48, &[15]), Some(MS * 100));
        assert_eq!(of(MS * 100, &[]), Some(MS * 20), "the gang that met seldom has left");
    }
}
