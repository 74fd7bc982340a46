//! The poll budget of a waiter: how long it polls before it sleeps.
//!
//! A sleep costs a wake-up of tens of microseconds. Polling costs the processor, which another member may
//! need. So a waiter polls only if the members that are known to be on this host do not outnumber its
//! processors, and only while polling pays: a poll in vain halves the budget, a poll that found the awaited
//! bytes restores it, and every [`PROBE`]th sleep without a budget tries a short poll again.
//!
//! Cost: at most [`BUDGET`] of processor time for each wait, the price of a wake-up. The controller of
//! `unisono-sync` is no substitute: it compares elapsed times, and would go on polling where polls are in
//! vain but delay nothing. Reference: Karlin, Li, Manasse, Owicki, SOSP 1991; the policies of `unisono-sync`
//! for the same question in shared memory.

use unisono_linux::clock::{Duration, Ticks, ticks};
use unisono_sync::SpinBudget;

/// The price of a wake-up across processors, the same in all crates.
const BUDGET: Duration = SpinBudget::DEFAULT.duration();
/// The smallest useful budget: below it, polling is not worth its first system call.
const MIN_BUDGET: Duration = Duration::from_micros(5);
/// The number of waits that sleep at once before polling is tried again: a try costs [`MIN_BUDGET`], 0.3 % of
/// 32 sleeps of 50 us.
const PROBE: u32 = 32;

#[derive(Debug)]
pub(super) struct AdaptivePollBudget {
    /// Whether there is a processor for each member on this host.
    has_processors: bool,
    max: Ticks,
    min: Ticks,
    budget: Ticks,
    started: Ticks,
    polling: bool,
    sleeps: u32,
}

impl AdaptivePollBudget {
    /// Creates the budget of a member with `here` members on this host, itself included.
    pub(super) fn new(here: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with(here <= processors)
    }

    fn with(has_processors: bool) -> Self {
        let max = Ticks::from_duration(BUDGET);
        Self {
            has_processors,
            max,
            min: Ticks::from_duration(MIN_BUDGET),
            budget: max,
            started: Ticks(0),
            polling: false,
            sleeps: 0,
        }
    }

    pub(super) fn start_wait(&mut self) {
        if self.budget < self.min {
            self.sleeps += 1;
            if self.sleeps >= PROBE {
                self.sleeps = 0;
                self.budget = self.min;
            }
        }
        self.polling = self.has_processors && self.budget >= self.min;
        if self.polling {
            self.started = ticks();
        }
    }

    pub(super) fn is_left(&self) -> bool {
        self.polling && ticks().since(self.started) < self.budget
    }

    pub(super) fn poll_succeeded(&mut self) {
        self.budget = self.max;
    }

    pub(super) fn slept(&mut self) {
        if self.polling {
            self.budget = Ticks(self.budget.0 / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(budget: &mut AdaptivePollBudget) -> bool {
        budget.start_wait();
        let polled = budget.polling;
        budget.slept();
        polled
    }

    #[test]
    fn polling_in_vain_is_given_up_tried_now_and_then_and_taken_up_when_it_pays() {
        let mut budget = AdaptivePollBudget::with(true);
        let polled = (0..1000).filter(|_| wait(&mut budget)).count();
        assert!((4..50).contains(&polled), "{polled} of 1000 waits in vain polled");
        while !wait(&mut budget) {}
        budget.poll_succeeded();
        assert!(wait(&mut budget) && wait(&mut budget));
    }

    #[test]
    fn no_member_polls_where_others_need_the_processor() {
        let mut budget = AdaptivePollBudget::with(false);
        assert_eq!((0..1000).filter(|_| wait(&mut budget)).count(), 0);
    }
}
