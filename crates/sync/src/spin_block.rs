//! Spin-block: spin for a fixed time, then sleep (competitive waiting).
//!
//! The idea: who spins as long as a sleep would cost, and then sleeps, pays at most twice what the better
//! choice would have cost in hindsight. The budget is a time, not an iteration count: a `pause` takes 20
//! to 140 cycles depending on the processor. Cost: spin's when the awaited is near, spin's budget plus
//! block's when not. When not to use: with more threads than cores, where the spin only delays those who
//! are awaited - see [`crate::Adaptive`].
//! Reference: Karlin, Li, Manasse, Owicki, "Empirical studies of competitive spinning for a shared-memory
//! multiprocessor", SOSP 1991; Kontothanassis, Wisniewski, Scott, "Scheduler-conscious synchronization",
//! ACM TOCS 15(1), 1997.

use crate::block::Block;
use crate::flag::{Flag, Wakeups};
use crate::spin::poll;
use crate::wait::{SpinBudget, WaitPolicy};
use crate::watch::{Verdict, Watch};
#[cfg(not(loom))]
use unisono_linux::clock;
use unisono_linux::clock::{Nanos, Ticks};

/// Spins for its budget, then sleeps.
#[derive(Clone, Copy, Debug)]
pub struct SpinBlock {
    budget: Ticks,
    block: Block,
}

impl SpinBlock {
    /// For flags that are signalled with the same `wakeups`, which must not be [`Wakeups::Never`].
    #[must_use]
    pub fn new(budget: SpinBudget, wakeups: Wakeups) -> Self {
        #[cfg(not(loom))]
        let budget = budget.nanos().to_ticks();
        #[cfg(loom)]
        let budget = Ticks(budget.nanos().0);
        Self { budget, block: Block::new(wakeups) }
    }
}

impl WaitPolicy for SpinBlock {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Verdict {
        match self.wait_briefly(flag, target, watch) {
            Some(verdict) => verdict,
            None => self.block.wait(flag, target, watch),
        }
    }

    #[inline]
    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<Verdict> {
        if self.budget > Ticks(0) && poll(flag, target) {
            return Some(Verdict::Continue);
        }
        spin_for(self.budget, flag, target, watch)
    }

    fn blocks(&self) -> u64 {
        self.block.blocks()
    }

    fn asleep(&self) -> Nanos {
        self.block.asleep()
    }
}

/// Spins until reached or stopped, or `None` when the budget is spent.
#[cfg(not(loom))]
pub(crate) fn spin_for<W: Watch>(
    budget: Ticks,
    flag: Flag<'_>,
    target: u32,
    watch: &mut W,
) -> Option<Verdict> {
    let start = clock::ticks();
    while clock::ticks().since(start) < budget {
        if poll(flag, target) {
            return Some(Verdict::Continue);
        }
        if watch.look() == Verdict::Stop {
            return Some(Verdict::Stop);
        }
    }
    None
}

/// In a model time does not pass: the budget is spent at once.
#[cfg(loom)]
pub(crate) fn spin_for<W: Watch>(
    _budget: Ticks,
    _flag: Flag<'_>,
    _target: u32,
    _watch: &mut W,
) -> Option<Verdict> {
    None
}
