//! Yield: give the core to whoever else is runnable, then look.
//!
//! The idea: where the other runnable threads of this core are one's own fellows, a yield runs exactly
//! those that are awaited, for one context switch (~0.5 us) and no wake-up. Cost: a system call a look.
//! When not to use: beside foreign busy threads - each yield hands them a whole slice (2-20 ms); with a
//! core for every thread - a yield there is a slow poll.

use crate::flag::Flag;
use crate::wait::WaitPolicy;
use crate::watch::{Verdict, Watch};

/// Gives the core away between looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Yield;

impl WaitPolicy for Yield {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Verdict {
        loop {
            if flag.reached(target) {
                return Verdict::Continue;
            }
            give_way();
            if watch.look() == Verdict::Stop {
                return Verdict::Stop;
            }
        }
    }

    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<Verdict> {
        Some(self.wait(flag, target, watch))
    }

    fn blocks(&self) -> u64 {
        0
    }
}

pub(crate) fn give_way() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}
