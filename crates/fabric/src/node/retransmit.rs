//! The retransmission timeout of a node.
//!
//! A node waits eight times as long as a fast barrier takes, so that it rarely repeats a message when none is
//! lost. It waits at least 30 ms, because processes that share a processor wait for each other, and at most
//! 500 ms. It doubles the time after each timeout.
//!
//! The estimate of a barrier's time follows shorter times at once, but longer ones slowly: if other members
//! lose frames, barriers are slow, and a longer timeout would make them even slower. If this node repeated a
//! message, the barrier's time is no sample, because the answer may belong to either message (Karn's rule).
//! But the node may have repeated the message only because barriers are slower than its estimate. So it
//! raises the estimate a little each time, and times the next barrier: the first barrier without a repetition
//! corrects the estimate. This happens in practice: some barriers of a thousand members on two processors
//! take 0.2 s.

use std::time::Duration;

/// The estimate before the first barrier: this long, or [`ESTIMATE_PER_MEMBER`] for each member if that is
/// longer.
const INITIAL_ESTIMATE: Duration = Duration::from_millis(10);
const ESTIMATE_PER_MEMBER: Duration = Duration::from_micros(50);
const MIN_TIMEOUT: Duration = Duration::from_millis(30);
const MAX_TIMEOUT: Duration = Duration::from_millis(500);
/// The number of barriers between two timed ones.
const BARRIERS_PER_CLOCK_READ: u32 = 15;

#[derive(Clone, Debug)]
pub(crate) struct RetransmitTimer {
    estimate: Duration,
    now: Duration,
    /// The number of barriers until the next timed one.
    untimed_left: u32,
}

impl RetransmitTimer {
    /// Makes the timer before the first barrier of a group of `members` members.
    pub(crate) fn for_members(members: usize) -> Self {
        let estimate = ESTIMATE_PER_MEMBER
            .saturating_mul(u32::try_from(members).unwrap_or(u32::MAX))
            .max(INITIAL_ESTIMATE);
        Self { estimate, now: (estimate * 8).clamp(MIN_TIMEOUT, MAX_TIMEOUT), untimed_left: 0 }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.now
    }

    /// Doubles the timeout after it has expired. The next wait is at most `left`, because the member has to
    /// report then, or [`MIN_TIMEOUT`] if that is longer.
    pub(crate) fn back_off(&mut self, left: Duration) {
        self.now = (self.now * 2).min(MAX_TIMEOUT).min(left.max(MIN_TIMEOUT));
    }

    /// Shortens the timeout while the node waits for something other than a release.
    pub(crate) fn shorten(&mut self) {
        self.now = MIN_TIMEOUT;
    }

    /// Returns whether to time the next barrier. Only one in [`BARRIERS_PER_CLOCK_READ`] + 1 is timed,
    /// because it takes time to read the clock.
    pub(crate) fn time_next(&mut self) -> bool {
        self.untimed_left = self.untimed_left.checked_sub(1).unwrap_or(BARRIERS_PER_CLOCK_READ);
        self.untimed_left == BARRIERS_PER_CLOCK_READ
    }

    /// Updates the estimate after a barrier, which took `took` if it was timed and in which this node
    /// repeated messages `repeated` times. Returns whether the timeout has changed.
    pub(crate) fn sample(&mut self, took: Option<Duration>, repeated: u64) -> bool {
        match (took, repeated) {
            (Some(took), 0) => {
                self.estimate = took.min(self.estimate + self.estimate / 8).max(Duration::from_micros(10));
            }
            (None, 0) => {}
            _ => {
                self.estimate = (self.estimate + self.estimate / 4).min(MAX_TIMEOUT / 8);
                self.untimed_left = 0;
            }
        }
        let wanted = (self.estimate * 8).clamp(MIN_TIMEOUT, MAX_TIMEOUT);
        // a change costs a system call, so only large changes are made
        let changes = repeated > 0 || wanted > self.now || wanted * 2 < self.now;
        if changes {
            self.now = wanted;
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_while_nothing_comes_and_returns_to_what_is_usual() {
        let mut timer = RetransmitTimer::for_members(8);
        (0..20).for_each(|_| {
            timer.sample(Some(Duration::from_millis(10)), 0);
        });
        let estimate = timer.timeout();
        timer.back_off(MAX_TIMEOUT);
        assert_eq!(timer.timeout(), estimate * 2);
        (0..20).for_each(|_| timer.back_off(MAX_TIMEOUT));
        assert_eq!(timer.timeout(), MAX_TIMEOUT);
        timer.sample(Some(Duration::from_secs(9)), 21);
        assert_eq!(
            timer.timeout(),
            estimate + estimate / 4,
            "how long it took teaches nothing, that it did a little"
        );
        timer.sample(Some(Duration::from_millis(10)), 0);
        timer.sample(None, 1);
        assert_eq!(timer.timeout(), estimate + estimate / 4, "the first without a repetition corrects it");
    }

    #[test]
    fn barriers_that_are_slower_than_believed_are_believed_in_the_end() {
        // no message is lost, but each barrier takes longer than the timeout that results from earlier, fast
        // barriers
        let (took, mut timer) = (Duration::from_millis(200), RetransmitTimer::for_members(8));
        timer.sample(Some(Duration::from_millis(3)), 0);
        let mut timers = 0;
        for _ in 0..100 {
            let repeated = u64::from(timer.timeout() < took);
            timers += repeated;
            timer.sample(Some(took), repeated);
        }
        assert!((1..15).contains(&timers), "{timers}");
    }

    #[test]
    fn a_slow_barrier_among_fast_ones_hardly_counts() {
        let mut timer = RetransmitTimer::for_members(8);
        (0..99).for_each(|_| {
            timer.sample(Some(Duration::from_millis(10)), 0);
        });
        {
            timer.sample(Some(Duration::from_secs(1)), 0);
        };
        assert_eq!(timer.timeout(), Duration::from_millis(90));
    }

    #[test]
    fn fast_barriers_do_not_make_it_shorter_than_sharing_a_processor_takes() {
        let mut timer = RetransmitTimer::for_members(8);
        (0..99).for_each(|_| {
            timer.sample(Some(Duration::from_micros(20)), 0);
        });
        assert!(timer.timeout() >= MIN_TIMEOUT && timer.timeout() < 2 * MIN_TIMEOUT);
    }
}
