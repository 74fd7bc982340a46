//! What a waiter asks on the way: shall I go on waiting?
//!
//! A policy knows how to wait, not why waiting might be in vain. It calls [`Watch::look`] every few dozen
//! polls, after every yield and before every sleep - after the fence by which whoever disturbs sleepers
//! ([`crate::Flag::disturb`]) knows of this one, so that what was disturbed for is seen; the caller's implementation checks poison, deadline and
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

    /// When a sleeper has to wake to look again, for what nobody disturbs it for.
    fn sleep_until(&mut self) -> Option<Nanos>;

    /// How to wait now; for a policy that leaves the choice to its watch.
    fn advice(&self) -> Advice {
        Advice::Spin
    }

    /// Whether the awaited may be running right now: `false` only when one of them was last seen on this
    /// very core. Waiting by spinning then keeps it from running.
    fn awaited_may_run(&self) -> bool {
        true
    }

    /// Giving way took so long that a foreign thread must have had the core.
    fn yield_took_long(&mut self) {}
}

/// A way to wait, as advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// There is a core for everybody.
    Spin,
    /// The cores are shared, but only with fellows.
    GiveWay,
    /// The cores are shared with others.
    Sleep,
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

/// Sleeps until a moment at most, and stops for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Until(pub Option<Nanos>);

impl Watch for Until {
    fn look(&mut self) -> Verdict {
        Verdict::Continue
    }

    fn sleep_until(&mut self) -> Option<Nanos> {
        self.0
    }
}
