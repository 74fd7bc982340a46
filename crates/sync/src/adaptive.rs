//! Adaptive: stay awake only while that is believed to help, and find out what helps.
//!
//! The idea: no way of waiting wins everywhere. Spinning wins on cores of one's own; yielding when the only
//! other runnable threads are one's own fellows; sleeping beside foreign load. What decides is known only
//! outside this policy, so it asks its [`Watch`] at each wait: [`Watch::advice`] for the way, and
//! [`Watch::awaited_may_run`] for whether an awaited thread was last seen on this very core - then it
//! cannot be running, and spinning would only keep it from running. While giving way it times its yields:
//! one that takes longer than [`LONG_YIELD`] handed a foreign thread its slice, and is reported.
//! Who advises learns by [`crate::Controller`].
//!
//! Cost: that of the way chosen; on the fast path nothing. When not to use: where the regime is known and
//! fixed, the policy for it saves the probes (at most about 1 %).
//! Reference: Karlin et al., SOSP 1991 (adaptive budgets); Kontothanassis et al., TOCS 1997 (know who runs).

use crate::block::Block;
use crate::flag::{Flag, Wakeups};
use crate::spin::poll;
use crate::spin_block::spin_for;
use crate::wait::{SpinBudget, WaitPolicy};
use crate::watch::{Advice, Verdict, Watch};
use crate::yielding::give_way;
#[cfg(not(loom))]
use unisono_linux::clock;
use unisono_linux::clock::{Nanos, Ticks};

/// No fellow keeps a core this long between two yields of a barrier's; a foreign thread does.
pub const LONG_YIELD: Nanos = Nanos(1_000_000);

/// How long one spins when all fellows of this core have come: about two context switches. Whoever is
/// awaited runs elsewhere and is near, or something else is wrong.
const NEAR: Nanos = Nanos(1_500);

/// Chooses among the others.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    budget: Ticks,
    near: Ticks,
    long_yield: Ticks,
    block: Block,
}

impl Adaptive {
    /// For flags that are signalled with the same `wakeups`, which must not be [`Wakeups::Never`].
    #[must_use]
    pub fn new(budget: SpinBudget, wakeups: Wakeups) -> Self {
        #[cfg(not(loom))]
        let ticks = Nanos::to_ticks;
        #[cfg(loom)]
        let ticks = |nanos: Nanos| Ticks(nanos.0);
        Self {
            budget: ticks(budget.nanos()),
            near: ticks(NEAR),
            long_yield: ticks(LONG_YIELD),
            block: Block::new(wakeups),
        }
    }

    #[cold]
    fn spin_then_sleep<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Verdict {
        if watch.awaited_may_run() {
            if let Some(verdict) = spin_for(self.budget, flag, target, watch) {
                return verdict;
            }
        } else {
            // Stacked on one core: let the fellow run; it may be enough.
            give_way();
        }
        self.block.wait(flag, target, watch)
    }

    fn give_way_until_reached<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Verdict {
        let mut before = ticks();
        loop {
            if watch.awaited_may_run()
                && let Some(verdict) = spin_for(self.near, flag, target, watch)
            {
                return verdict;
            }
            give_way();
            let after = ticks();
            if after.since(before) > self.long_yield {
                watch.yield_took_long();
            }
            before = after;
            if flag.reached(target) {
                return Verdict::Continue;
            }
            if watch.look() == Verdict::Stop {
                return Verdict::Stop;
            }
            if watch.advice() == Advice::Sleep {
                return self.block.wait(flag, target, watch);
            }
        }
    }
}

impl WaitPolicy for Adaptive {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Verdict {
        match watch.advice() {
            Advice::Spin if poll(flag, target) => Verdict::Continue,
            Advice::Spin => self.spin_then_sleep(flag, target, watch),
            Advice::GiveWay => self.give_way_until_reached(flag, target, watch),
            Advice::Sleep => self.block.wait(flag, target, watch),
        }
    }

    #[inline]
    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<Verdict> {
        if poll(flag, target) { Some(Verdict::Continue) } else { spin_for(self.budget, flag, target, watch) }
    }

    fn blocks(&self) -> u64 {
        self.block.blocks()
    }

    fn asleep(&self) -> Nanos {
        self.block.asleep()
    }
}

fn ticks() -> Ticks {
    #[cfg(not(loom))]
    return clock::ticks();
    #[cfg(loom)]
    return Ticks(0);
}
