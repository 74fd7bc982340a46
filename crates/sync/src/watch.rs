//! What a waiter asks on the way: shall I go on waiting?
//!
//! A policy knows how to wait, not why waiting might be in vain. It calls [`Watch::look`] every few dozen
//! polls, after every yield and after every sleep; the caller's implementation checks poison, deadline and
//! whether the awaited still lives. The fast path never calls it.

use unisono_linux::clock::Nanos;

/// An answer to [`Watch::look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Wait on.
    Continue,
    /// Give up; the watch knows why.
    Stop,
}

/// The caller's side of a wait; see the module.
pub trait Watch {
    /// Called now and then while waiting. Should cost a few nanoseconds as a rule.
    fn look(&mut self) -> Verdict;

    /// When a sleeper has to wake to look again.
    fn sleep_until(&mut self) -> Option<Nanos>;

    /// Whether the awaited may be running right now. `false` only when it is known not to be: asleep, or
    /// last seen on this very CPU. Waiting by spinning is then pointless.
    fn awaited_may_run(&self) -> bool {
        true
    }
}

/// Waits for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn look(&mut self) -> Verdict {
        Verdict::Continue
    }

    fn sleep_until(&mut self) -> Option<Nanos> {
        None
    }
}
