//! The adaptive wait policy: spins, yields or sleeps, whichever is cheapest now.
//!
//! No fixed policy wins everywhere. Spinning wins where each thread has a core. Yielding wins where all other
//! runnable threads belong to the same group. Sleeping wins beside foreign load. One wait cannot tell these
//! cases apart, so each wait gets a [`WaitHints`]: the regime of the group ([`Regime`]), whether its members
//! outnumber the processors, and where they last ran. An awaited member that last ran on the waiter's own
//! core does not run now, and spinning would keep it from running. The policy times its own yields. A yield
//! longer than [`LONG_YIELD`] gave a slice to a foreign thread; the policy reports it to the regime.
//!
//! Cost: the chosen policy's; nothing on the fast path. When not to use: where one fixed policy is known to
//! win, because it saves the probes ([`crate::Controller`] says what they cost). Reference: Karlin et al.,
//! SOSP 1991 (adaptive budgets); Kontothanassis et al., TOCS 1997 (use of scheduling information).

use crate::atomics::{now, ticks, yield_now};
use crate::budget::SpinBudget;
use crate::flag::{Flag, Wakeups};
use crate::last_cpu::LastCpuQuery;
use crate::policies::{Block, poll, spin_for};
use crate::regime::{Regime, RegimeAdvice};
use crate::wait::WaitPolicy;
use crate::watch::{Watch, WatchVerdict};
use unisono_linux::clock::{Duration, Ticks};

/// A yield that takes longer than this let a foreign thread run: a slice of the fair scheduler lasts 2 to 4
/// ms, while a member of the group yields back within microseconds (a switch between members takes 0.5 us,
/// measured).
pub(crate) const LONG_YIELD: Duration = Duration::from_millis(1);

/// The spin when all members that last ran on this core have arrived: three context switches (0.5 us each).
/// The awaited members then run on other cores and arrive within this time, or yielding is cheaper.
const NEAR: Duration = Duration::from_nanos(1_500);

/// Hints for one wait about the awaited members.
#[derive(Clone, Copy, Debug)]
pub struct WaitHints<'a> {
    pub regime: Regime<'a>,
    /// Whether the members outnumber the processors that they may use.
    pub crowded: bool,
    /// The members' notes of their processors; `None` if the group keeps no notes.
    pub last_cpus: Option<LastCpuQuery<'a>>,
}

impl WaitHints<'_> {
    fn advice(&self) -> RegimeAdvice {
        self.regime.advice(self.crowded)
    }

    /// Returns whether the awaited members may be running right now.
    fn awaited_may_run(&self) -> bool {
        self.last_cpus.map_or(!self.crowded, |last_cpus| last_cpus.awaited_may_run(self.crowded))
    }
}

/// Spins, yields or sleeps, as the [`WaitHints`] of each wait advises; see the module.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    budget: Ticks,
    near: Ticks,
    long_yield: Ticks,
    block: Block,
}

impl Adaptive {
    /// Creates the policy for flags that are signalled with the same `wakeups`. [`Wakeups::Never`] is not
    /// allowed.
    pub fn new(budget: SpinBudget, wakeups: Wakeups) -> Self {
        Self {
            budget: Ticks::from_duration(budget.duration()),
            near: Ticks::from_duration(NEAR),
            long_yield: Ticks::from_duration(LONG_YIELD),
            block: Block::new(wakeups),
        }
    }

    /// Returns this policy for one wait, with these hints.
    #[inline]
    pub fn with_hints<'a>(&'a mut self, hints: WaitHints<'a>) -> AdaptiveWait<'a> {
        AdaptiveWait { policy: self, hints }
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    /// Returns the number of sleeps of this waiter so far.
    pub fn blocks(&self) -> u64 {
        self.block.blocks()
    }
}

/// The adaptive policy with its hints for one wait.
#[derive(Debug)]
pub struct AdaptiveWait<'a> {
    policy: &'a mut Adaptive,
    hints: WaitHints<'a>,
}

impl AdaptiveWait<'_> {
    #[cold]
    fn spin_then_sleep<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        if self.hints.awaited_may_run() {
            if let Some(verdict) = spin_for(self.policy.budget, flag, target, watch) {
                return verdict;
            }
        } else {
            // The awaited member shares this core: let it run. One yield may be enough for it to arrive.
            yield_now();
        }
        self.policy.block.wait(flag, target, watch)
    }

    /// Yields until the flag is reached. If `behind`, the awaited member needs this core, whatever the notes
    /// say, so the waiter does not spin.
    fn yield_until_reached<W: Watch>(
        &mut self,
        flag: Flag<'_>,
        target: u32,
        watch: &mut W,
        behind: bool,
    ) -> WatchVerdict {
        let mut before = ticks();
        loop {
            if !behind
                && self.hints.awaited_may_run()
                && let Some(verdict) = spin_for(self.policy.near, flag, target, watch)
            {
                return verdict;
            }
            yield_now();
            let after = ticks();
            if after.since(before) > self.policy.long_yield {
                self.hints.regime.yield_took_long(now());
            }
            before = after;
            if flag.reached(target) {
                return WatchVerdict::Continue;
            }
            if watch.check() == WatchVerdict::Stop {
                return WatchVerdict::Stop;
            }
            if self.hints.advice() == RegimeAdvice::Sleep {
                return self.policy.block.wait(flag, target, watch);
            }
        }
    }
}

impl WaitPolicy for AdaptiveWait<'_> {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        match self.hints.advice() {
            RegimeAdvice::Spin if poll(flag, target) => WatchVerdict::Continue,
            RegimeAdvice::Spin => self.spin_then_sleep(flag, target, watch),
            RegimeAdvice::Yield => self.yield_until_reached(flag, target, watch, false),
            RegimeAdvice::Sleep => self.policy.block.wait(flag, target, watch),
        }
    }

    #[inline]
    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<WatchVerdict> {
        if poll(flag, target) {
            return Some(WatchVerdict::Continue);
        }
        spin_for(self.policy.budget, flag, target, watch)
    }

    fn wait_behind<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        if self.hints.advice() == RegimeAdvice::Sleep {
            return self.policy.block.wait(flag, target, watch);
        }
        self.yield_until_reached(flag, target, watch, true)
    }
}
