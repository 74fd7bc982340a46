//! The means by which the caller of a wait stops the wait.
//!
//! A policy knows how to wait. Only its caller knows about deadlines and dead members. So the policy calls
//! [`Watch::check`] after every few dozen polls, after every yield and before every sleep, and stops if the
//! watch says so. Before a sleep this call comes after the fence that announces the sleeper. A thread that
//! disturbs sleepers ([`crate::Flag::disturb`]) therefore either finds this sleeper counted, or its writes
//! are visible to the call. A wait that ends within its first polls never calls the watch.

use unisono_linux::clock::{Duration, Instant};

/// The caller's side of a wait; see the module.
///
/// ```
/// use unisono_sync::{Instant, Lines, Scope, Watch, WatchVerdict, WaitPolicy, Wakeups, Block};
///
/// /// Gives up at its first call.
/// struct Impatient;
///
/// impl Watch for Impatient {
///     fn check(&mut self) -> WatchVerdict {
///         WatchVerdict::Stop
///     }
///
///     fn sleep_until(&mut self) -> Option<Instant> {
///         None
///     }
/// }
///
/// let lines = Lines::on_heap(1);
/// let mut policy = Block::new(Wakeups::Symmetric(Scope::Private));
/// assert_eq!(policy.wait(lines.line(0).flag(0), 1, &mut Impatient), WatchVerdict::Stop);
/// ```
pub trait Watch {
    /// Decides whether the wait goes on. A waiter calls this now and then, so it should usually cost a few
    /// nanoseconds.
    fn check(&mut self) -> WatchVerdict;

    /// Returns when a sleeper has to wake by itself, to check for events for which no thread disturbs it.
    fn sleep_until(&mut self) -> Option<Instant>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchVerdict {
    Continue,
    /// Give up; the watch knows the reason.
    Stop,
}

/// A watch that never stops a wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn check(&mut self) -> WatchVerdict {
        WatchVerdict::Continue
    }

    fn sleep_until(&mut self) -> Option<Instant> {
        None
    }
}

/// A watch that limits each sleep to a moment, and never stops a wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Until(pub Option<Instant>);

impl Watch for Until {
    fn check(&mut self) -> WatchVerdict {
        WatchVerdict::Continue
    }

    fn sleep_until(&mut self) -> Option<Instant> {
        self.0
    }
}

/// The longest sleep of a waiter before it checks whether the awaited processes are still alive: a killed
/// process wakes no thread. A tenth of a second, because barriers promise to name a killed process within a
/// second, and ten wake-ups a second cost less than a thousandth of a processor. Twice as much would still
/// keep the promise on an idle host; half as much would double the wake-ups without any gain. Chosen by this
/// arithmetic, not measured.
pub const MAX_SLEEP: Duration = Duration::from_millis(100);

/// Decides which calls of a watch are thorough: one in `EVERY`, and the first after each sleep. `EVERY` is a
/// power of 2.
///
/// A watch is called about once a microsecond while its waiter polls. Reading the clock takes 20 to 40 ns and
/// a system call 300 ns, so most calls do neither.
#[derive(Clone, Copy, Debug, Default)]
pub struct SparseChecks<const EVERY: u32>(u32);

impl<const EVERY: u32> SparseChecks<EVERY> {
    /// Counts a call; returns whether it has to be thorough.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0.is_multiple_of(EVERY)
    }

    /// Returns when a sleeper has to wake: at `until`, or earlier to check the members. A sleeper calls its
    /// watch rarely, so its next call will be thorough.
    pub fn sleep_until(&mut self, now: Instant, until: Option<Instant>) -> Instant {
        self.0 |= EVERY - 1;
        let slice = now + MAX_SLEEP;
        until.map_or(slice, |until| until.min(slice))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_look_in_so_many_is_thorough_and_each_after_a_sleep() {
        let mut checks = SparseChecks::<4>::default();
        let thorough: Vec<bool> = (0..8).map(|_| checks.is_due()).collect();
        assert_eq!(thorough, [false, false, false, true, false, false, false, true]);
        assert!(!checks.is_due());
        let slice = Instant::from_nanos(5) + MAX_SLEEP;
        assert_eq!(checks.sleep_until(Instant::from_nanos(5), None), slice);
        assert!(checks.is_due());
        assert_eq!(
            checks.sleep_until(Instant::from_nanos(5), Some(Instant::from_nanos(7))),
            Instant::from_nanos(7)
        );
        assert_eq!(checks.sleep_until(Instant::from_nanos(5), Some(Instant::NEVER)), slice);
    }
}
