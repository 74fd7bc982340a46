//! Block: sleep in the kernel until woken.
//!
//! The idea: a sleeper holds nothing, and being woken it runs soon even beside busy threads, because it
//! has used less than its share. Cost: ~5 us on one CPU, 28-60 us across halted CPUs. When not to use:
//! for waits shorter than that on cores of one's own.

use crate::flag::{Flag, Sleep, Wakeups};
use crate::wait::WaitPolicy;
use crate::watch::{Verdict, Watch};
use unisono_linux::clock::Nanos;
#[cfg(not(loom))]
use unisono_linux::clock::now;

/// Sleeps at once.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    wakeups: Wakeups,
    blocks: u64,
    asleep: Nanos,
}

impl Block {
    /// For flags that are signalled with the same `wakeups`, which must not be [`Wakeups::Never`].
    #[must_use]
    pub fn new(wakeups: Wakeups) -> Self {
        Self { wakeups, blocks: 0, asleep: Nanos::ZERO }
    }
}

impl WaitPolicy for Block {
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Verdict {
        loop {
            if flag.reached(target) {
                return Verdict::Continue;
            }
            let before = moment();
            match flag.sleep(target, self.wakeups, watch) {
                Sleep::Unneeded => {}
                Sleep::Woken | Sleep::TimedOut => {
                    self.blocks += 1;
                    // Beside a sleep two looks at the clock are nothing.
                    self.asleep = moment().since(before).after(self.asleep);
                }
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

    fn asleep(&self) -> Nanos {
        self.asleep
    }
}

/// Now; in a model time does not pass.
fn moment() -> Nanos {
    #[cfg(not(loom))]
    return now();
    #[cfg(loom)]
    return Nanos::ZERO;
}
