//! How a caller stops a wait that is in vain.
//!
//! A policy knows how to wait. Only its caller knows about deadlines and dead members. So the policy calls
//! [`Watch::look`] after every few dozen polls, after every yield and before every sleep, and stops when told
//! to. Before a sleep the look comes after the fence that announces the sleeper. A thread that disturbs
//! sleepers ([`crate::Flag::disturb`]) therefore either finds this sleeper or is seen by its look. A wait
//! that ends within its first polls never looks.

use unisono_linux::clock::Nanos;

/// The caller's side of a wait; see the module.
pub trait Watch {
    /// Called now and then while waiting. Should cost a few nanoseconds as a rule.
    fn look(&mut self) -> WatchVerdict;

    /// When a sleeper has to wake by itself, to look for what nobody disturbs it for.
    fn sleep_until(&mut self) -> Option<Nanos>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchVerdict {
    Continue,
    /// Give up; the watch knows why.
    Stop,
}

/// Waits for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn look(&mut self) -> WatchVerdict {
        WatchVerdict::Continue
    }

    fn sleep_until(&mut self) -> Option<Nanos> {
        None
    }
}

/// Sleeps until a moment at most, and stops for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Until(pub Option<Nanos>);

impl Watch for Until {
    fn look(&mut self) -> WatchVerdict {
        WatchVerdict::Continue
    }

    fn sleep_until(&mut self) -> Option<Nanos> {
        self.0
    }
}
