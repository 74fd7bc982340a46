//! What a member calls while it waits, and how often: a binding's host may have to make progress meanwhile.
//!
//! The idea: a sleeper with a deadline nearer than the kernel's next tick has the processor's timer set and reset,
//! 10 us a sleep on a virtual machine (a futex round trip between two processes of one core: 6.2 us without a
//! deadline or with one of 5 ms, 16.6 us with one of 500 us; Linux 6.18, 250 ticks a second). Where members share
//! processors nearly every wait sleeps, and few wait for the host. So there the first call comes late, and what a
//! late call may have kept waiting makes the calls of the next waits come soon.
//!
//! Cost: a load a wait. When not to use: without a hook there is nothing to pace.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use unisono_linux::clock::Nanos;

/// The first call of a wait among many, where nothing asks for haste: beyond the next tick.
const LATE: Nanos = Nanos(5_000_000);
/// So many waits are in haste after one that lasted until its call.
const IN_HASTE: u32 = 512;

type Call = Box<dyn FnMut() + Send>;

/// A job's hook, if it has one.
#[derive(Default)]
pub(crate) struct Hook {
    call: Mutex<Option<Call>>,
    /// Its period in nanoseconds; zero: there is none.
    every: AtomicU64,
    /// Whether members outnumber processors.
    crowded: AtomicBool,
    haste: AtomicU32,
}

impl Hook {
    pub(crate) fn set(&self, every: Duration, crowded: bool, call: Call) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
        self.crowded.store(crowded, Ordering::Relaxed);
        let every = Nanos::from(every).0.clamp(1_000, LATE.0);
        self.every.store(every, Ordering::Relaxed);
    }

    fn every(&self) -> Option<Nanos> {
        let every = self.every.load(Ordering::Relaxed);
        (every != 0).then_some(Nanos(every))
    }

    /// How long a wait that begins lasts until the hook is called.
    #[inline]
    pub(crate) fn first(&self) -> Option<Nanos> {
        let every = self.every()?;
        if !self.crowded.load(Ordering::Relaxed) {
            return Some(every);
        }
        // Two threads at once may count one wait: haste ends a wait later.
        let haste = self.haste.load(Ordering::Relaxed);
        if haste == 0 {
            return Some(LATE);
        }
        self.haste.store(haste - 1, Ordering::Relaxed);
        Some(every)
    }

    /// Calls it; how long until it has to be called again.
    pub(crate) fn call(&self) -> Option<Nanos> {
        let every = self.every()?;
        let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        (call.as_mut()?)();
        Some(every)
    }

    /// Calls it in a wait that has lasted until then.
    pub(crate) fn call_due(&self) -> Option<Nanos> {
        self.haste.store(IN_HASTE, Ordering::Relaxed);
        self.call()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn hook(crowded: bool) -> (Hook, Arc<AtomicU32>) {
        let calls = Arc::new(AtomicU32::new(0));
        let (hook, counted) = (Hook::default(), Arc::clone(&calls));
        let count = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        hook.set(Duration::from_micros(500), crowded, Box::new(count));
        (hook, calls)
    }

    #[test]
    fn without_a_hook_nobody_has_to_wake_for_it() {
        assert_eq!(Hook::default().first(), None);
        assert_eq!(Hook::default().call_due(), None);
    }

    #[test]
    fn where_everybody_has_a_processor_it_is_called_soon() {
        let (hook, calls) = hook(false);
        assert_eq!(hook.first(), Some(Nanos(500_000)));
        assert_eq!(hook.call_due(), Some(Nanos(500_000)));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn among_many_it_is_called_late_until_a_wait_has_lasted_so_long() {
        let (hook, _) = hook(true);
        assert_eq!(hook.first(), Some(LATE));
        assert_eq!(hook.call_due(), Some(Nanos(500_000)));
        for wait in 0..IN_HASTE {
            assert_eq!(hook.first(), Some(Nanos(500_000)), "wait {wait}");
        }
        assert_eq!(hook.first(), Some(LATE));
    }
}
