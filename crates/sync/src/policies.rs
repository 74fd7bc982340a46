//! The four fixed wait policies, and their costs.
//!
//! | policy | idea | cost of a wait | when not to use |
//! |---|---|---|---|
//! | [`Spin`] | poll the word | one line transfer after the signal (~30 ns), and a whole core | whenever the awaited thread might need this core: with more threads than cores each wait lasts until the scheduler's tick (4-13 ms) |
//! | [`Yield`] | let another runnable thread run, then poll | a system call a poll (~0.5 us), no wake-up | beside foreign busy threads (each yield hands them a slice of 2-20 ms); with a core for every thread, where a yield is a slow poll |
//! | [`Block`] | sleep in the kernel until woken | ~5 us on one CPU, 28-60 us across halted CPUs | for waits shorter than that where each thread has its own core |
//! | [`SpinBlock`] | spin as long as a sleep costs, then sleep | at most twice that of the better choice in hindsight | with more threads than cores, where the spin delays the awaited thread |
//!
//! Times were measured on two virtual CPUs (AMD EPYC, Linux 6.18). A spin budget is a time and not a number
//! of polls, because a `pause` takes 20 to 140 cycles depending on the processor.
//!
//! Reference: Karlin, Li, Manasse, Owicki, "Empirical studies of competitive spinning for a shared-memory
//! multiprocessor", SOSP 1991; Kontothanassis, Wisniewski, Scott, "Scheduler-conscious synchronization",
//! ACM TOCS 15(1), 1997.

use crate::atomics::{now, pause, ticks, yield_now};
use crate::budget::SpinBudget;
use crate::flag::{Flag, Sleep, Wakeups};
use crate::wait::WaitPolicy;
use crate::watch::{Watch, WatchVerdict};
use unisono_linux::clock::{Duration, Ticks};

/// The number of polls between two calls of the watch. In a model, where each poll is a branch, it is one.
const POLLS_PER_CLOCK_READ: u32 = if cfg!(loom) { 1 } else { 64 };

/// Polls and never gives the core away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin;

impl WaitPolicy for Spin {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        loop {
            if poll(flag, target) {
                return WatchVerdict::Continue;
            }
            if watch.check() == WatchVerdict::Stop {
                return WatchVerdict::Stop;
            }
        }
    }
}

/// Yields the core between polls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Yield;

impl WaitPolicy for Yield {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        loop {
            if flag.reached(target) {
                return WatchVerdict::Continue;
            }
            yield_now();
            if watch.check() == WatchVerdict::Stop {
                return WatchVerdict::Stop;
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Block {
    wakeups: Wakeups,
    blocks: u64,
    asleep: Duration,
}

impl Block {
    /// Creates the policy for flags that are signalled with the same `wakeups`. [`Wakeups::Never`] is not
    /// allowed.
    pub fn new(wakeups: Wakeups) -> Self {
        Self { wakeups, blocks: 0, asleep: Duration::ZERO }
    }

    /// Returns the number of sleeps of this waiter so far.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the time that this waiter has slept so far.
    pub fn asleep(&self) -> Duration {
        self.asleep
    }
}

impl WaitPolicy for Block {
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        loop {
            if flag.reached(target) {
                return WatchVerdict::Continue;
            }
            let before = now();
            match flag.sleep(target, self.wakeups, watch) {
                Sleep::Unneeded => {}
                Sleep::Woken | Sleep::TimedOut => {
                    self.blocks += 1;
                    // Compared with a sleep, two readings of the clock cost next to nothing.
                    self.asleep += now() - before;
                }
                Sleep::Stopped => return WatchVerdict::Stop,
            }
        }
    }

    fn wait_briefly<W: Watch>(
        &mut self,
        flag: Flag<'_>,
        target: u32,
        _watch: &mut W,
    ) -> Option<WatchVerdict> {
        flag.reached(target).then_some(WatchVerdict::Continue)
    }
}

/// Spins for its budget of time, then sleeps.
#[derive(Clone, Copy, Debug)]
pub struct SpinBlock {
    budget: Ticks,
    block: Block,
}

impl SpinBlock {
    /// Creates the policy for flags that are signalled with the same `wakeups`. [`Wakeups::Never`] is not
    /// allowed.
    pub fn new(budget: SpinBudget, wakeups: Wakeups) -> Self {
        Self { budget: Ticks::from_duration(budget.duration()), block: Block::new(wakeups) }
    }

    #[inline]
    pub(crate) fn spins(&self) -> bool {
        self.budget > Ticks(0)
    }

    pub(crate) fn block(&self) -> &Block {
        &self.block
    }
}

impl WaitPolicy for SpinBlock {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        match self.wait_briefly(flag, target, watch) {
            Some(verdict) => verdict,
            None => self.block.wait(flag, target, watch),
        }
    }

    #[inline]
    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<WatchVerdict> {
        if self.spins() && poll(flag, target) {
            return Some(WatchVerdict::Continue);
        }
        spin_for(self.budget, flag, target, watch)
    }
}

/// Polls [`POLLS_PER_CLOCK_READ`] times; returns whether the target was reached.
#[inline]
pub(crate) fn poll(flag: Flag<'_>, target: u32) -> bool {
    for _ in 0..POLLS_PER_CLOCK_READ {
        if flag.reached(target) {
            return true;
        }
        pause();
    }
    false
}

/// Spins until the target is reached or the watch stops the wait; returns `None` when the budget is spent. In
/// a model time does not pass, and the budget counts as spent at once.
pub(crate) fn spin_for<W: Watch>(
    budget: Ticks,
    flag: Flag<'_>,
    target: u32,
    watch: &mut W,
) -> Option<WatchVerdict> {
    let start = ticks();
    while !cfg!(loom) && ticks().since(start) < budget {
        if poll(flag, target) {
            return Some(WatchVerdict::Continue);
        }
        if watch.check() == WatchVerdict::Stop {
            return Some(WatchVerdict::Stop);
        }
    }
    None
}
