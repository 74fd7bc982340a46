//! Adaptive: spin only while the awaited is believed to run.

use crate::flag::{Flag, Wakeups};
use crate::spin_block::SpinBlock;
use crate::wait::{SpinBudget, WaitPolicy};
use crate::watch::{Verdict, Watch};

/// Chooses among the others.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    spin_block: SpinBlock,
}

impl Adaptive {
    /// For flags that are signalled with the same `wakeups`, which must not be [`Wakeups::Never`].
    #[must_use]
    pub fn new(budget: SpinBudget, wakeups: Wakeups) -> Self {
        Self { spin_block: SpinBlock::new(budget, wakeups) }
    }
}

impl WaitPolicy for Adaptive {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Verdict {
        self.spin_block.wait(flag, target, watch)
    }

    fn blocks(&self) -> u64 {
        self.spin_block.blocks()
    }
}
