//! Block: sleep in the kernel until woken.
//!
//! The idea: a sleeper holds nothing, and being woken it runs soon even beside busy threads, because it
//! has used less than its share. Cost: ~5 us on one CPU, 28-60 us across halted CPUs. When not to use:
//! for waits shorter than that on cores of one's own.

use crate::flag::{Flag, Sleep, Wakeups};
use crate::wait::WaitPolicy;
use crate::watch::{Verdict, Watch};

/// Sleeps at once.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    wakeups: Wakeups,
    blocks: u64,
}

impl Block {
    /// For flags that are signalled with the same `wakeups`, which must not be [`Wakeups::Never`].
    #[must_use]
    pub fn new(wakeups: Wakeups) -> Self {
        Self { wakeups, blocks: 0 }
    }
}

impl WaitPolicy for Block {
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Verdict {
        loop {
            if flag.reached(target) {
                return Verdict::Continue;
            }
            match flag.sleep(target, self.wakeups, watch) {
                Sleep::Unneeded => {}
                Sleep::Woken | Sleep::TimedOut => self.blocks += 1,
                Sleep::Stopped => return Verdict::Stop,
            }
        }
    }

    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, _watch: &mut W) -> Option<Verdict> {
        flag.reached(target).then_some(Verdict::Continue)
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }
}
