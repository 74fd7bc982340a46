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

use unisono_linux::clock::{Nanos, Ticks, ticks};
use unisono_sync::SpinBudget;

/// The price of a wake-up across processors, the same in all crates.
const BUDGET: Nanos = SpinBudget::DEFAULT.nanos();
/// The smallest useful budget: below it, polling is not worth its first system call.
const MIN_BUDGET: Nanos = Nanos(5_000);
/// Waits that sleep at once before polling is tried again: a try costs [`MIN_BUDGET`], 0.3 % of 32 sleeps of
/// 50 us.
const PROBE: u32 = 32;

#[derive(Debug)]
pub(super) struct LearntPatience {
    /// Whether there is a processor for each member on this host.
    roomy: bool,
    most: Ticks,
    least: Ticks,
    budget: Ticks,
    started: Ticks,
    polling: bool,
    slept: u32,
}

impl LearntPatience {
    /// For a member with `here` members on this host, itself included.
    pub(super) fn new(here: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with(here <= processors)
    }

    fn with(roomy: bool) -> Self {
        let most = BUDGET.to_ticks();
        Self {
            roomy,
            most,
            least: MIN_BUDGET.to_ticks(),
            budget: most,
            started: Ticks(0),
            polling: false,
            slept: 0,
        }
    }

    pub(super) fn begin(&mut self) {
        if self.budget < self.least {
            self.slept += 1;
            if self.slept >= PROBE {
                self.slept = 0;
                self.budget = self.least;
            }
        }
        self.polling = self.roomy && self.budget >= self.least;
        if self.polling {
            self.started = ticks();
        }
    }

    pub(super) fn polls(&self) -> bool {
        self.polling && ticks().since(self.started) < self.budget
    }

    pub(super) fn paid(&mut self) {
        self.budget = self.most;
    }

    pub(super) fn ended(&mut self) {
        if self.polling {
            self.budget = Ticks(self.budget.0 / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(patience: &mut LearntPatience) -> bool {
        patience.begin();
        let polled = patience.polling;
        patience.ended();
        polled
    }

    #[test]
    fn polling_in_vain_is_given_up_tried_now_and_then_and_taken_up_when_it_pays() {
        let mut patience = LearntPatience::with(true);
        let polled = (0..1000).filter(|_| wait(&mut patience)).count();
        assert!((4..50).contains(&polled), "{polled} of 1000 waits in vain polled");
        while !wait(&mut patience) {}
        patience.paid();
        assert!(wait(&mut patience) && wait(&mut patience));
    }

    #[test]
    fn nobody_polls_where_fellows_need_the_processor() {
        let mut patience = LearntPatience::with(false);
        assert_eq!((0..1000).filter(|_| wait(&mut patience)).count(), 0);
    }
}
