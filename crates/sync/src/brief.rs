//! Brief: the first moment of a wait, before anything else is decided.
//!
//! The idea: on cores of one's own the awaited signal is a line transfer away; whoever first sets up a
//! watch or reads a clock has already lost it. So poll a few dozen times with nothing but a pause between two
//! loads, and give up: the caller then waits in earnest. (The pause is no courtesy: polling without it
//! takes the line away from the one who is about to store into it.) Cost: at most a few microseconds of a
//! core. When not to use: where the awaited needs this core.

use crate::atomics::pause;
use crate::flag::Flag;
use crate::wait::WaitPolicy;
use crate::watch::{Verdict, Watch};

/// Loads in a row: several times a transfer of a line between far cores.
#[cfg(not(loom))]
const POLLS: u32 = 64;
#[cfg(loom)]
const POLLS: u32 = 1; // each poll is a branch of the model

/// Polls a moment, then stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brief;

/// The same for two that exchange signals through one line, in either of two ways to look at it.
///
/// Measured on two virtual processors (AMD EPYC, Linux 6.18), a bare exchange, 31 runs of 15 ms of each,
/// interleaved, ns an episode: where the host has put them near one another (the first quartile) reading
/// after a pause costs 51, reading first 28, taking 42; where it has put them far apart (the median) 243, 216
/// and 129. So which is better is not known beforehand, and may change while a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Exchange {
    /// Each look takes the line for writing, because the next thing that is done to it, by whoever goes on first,
    /// is a store. A look that only reads makes every episode move the line twice, once to be read and once to
    /// be written.
    #[default]
    Taking,
    /// Each look only reads, the first one at once.
    Reading,
}

impl WaitPolicy for Exchange {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, _watch: &mut W) -> Verdict {
        for _ in 0..POLLS {
            let reached = match self {
                Self::Taking => flag.reached_taking(target),
                Self::Reading => flag.reached(target),
            };
            if reached {
                return Verdict::Continue;
            }
            pause();
        }
        Verdict::Stop
    }

    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<Verdict> {
        Some(self.wait(flag, target, watch))
    }

    fn blocks(&self) -> u64 {
        0
    }
}

impl WaitPolicy for Brief {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, _watch: &mut W) -> Verdict {
        for _ in 0..POLLS {
            pause();
            if flag.reached(target) {
                return Verdict::Continue;
            }
        }
        Verdict::Stop
    }

    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<Verdict> {
        Some(self.wait(flag, target, watch))
    }

    fn blocks(&self) -> u64 {
        0
    }
}
