//! Spin: poll the word until it is reached.
//!
//! The idea: on a core of one's own nothing is faster. Cost: one line transfer after the signal (~30 ns),
//! and a whole core. When not to use: whenever the awaited might need this core - with more threads than
//! cores each wait then lasts until the scheduler's tick (4-13 ms).

use crate::atomics::pause;
use crate::flag::Flag;
use crate::wait::WaitPolicy;
use crate::watch::{Verdict, Watch};

/// Polls between two looks around.
#[cfg(not(loom))]
const POLLS_PER_LOOK: u32 = 64;
#[cfg(loom)]
const POLLS_PER_LOOK: u32 = 1; // each poll is a branch of the model

/// Never gives the core away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin;

impl WaitPolicy for Spin {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Verdict {
        loop {
            if poll(flag, target) {
                return Verdict::Continue;
            }
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

/// Polls a while; whether the target was reached.
#[inline]
pub(crate) fn poll(flag: Flag<'_>, target: u32) -> bool {
    for _ in 0..POLLS_PER_LOOK {
        if flag.reached(target) {
            return true;
        }
        pause();
    }
    false
}
