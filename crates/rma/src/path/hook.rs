//! The hook that a waiting member calls, and its pace. A binding's host, such as the MPI library in which the
//! binding runs, may have to make progress meanwhile.
//!
//! The idea: if a sleeper's deadline is nearer than the kernel's next tick, the kernel sets the processor's
//! timer and resets it, which takes 10 us for each sleep on a virtual machine. (A futex round trip between
//! two processes of one core: 6.2 us without a deadline or with a deadline of 5 ms, 16.6 us with 500 us;
//! Linux 6.18, 250 ticks a second.) Where members share processors nearly every wait sleeps, and few waits
//! need the host. So there the first call comes late. A wait that has lasted until its late call may have
//! needed the host; then the calls of the next waits come soon.
//!
//! A host with a message in flight moves one piece of it in each call. So a call returns whether it found
//! work: if it did, the next call comes after [`REPEAT_AFTER_WORK`]. Each call that finds none doubles the
//! pause, up to the period. A message of many pieces then moves as fast as its receiver takes it, and an idle
//! host is called no more often than without this rule.
//!
//! Cost: two loads for each wait. When not to use: without a hook there is nothing to pace.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use unisono_linux::clock::Duration;

/// The time until the first call of a wait where members share processors: beyond the next tick. For a
/// deadline before the tick the kernel sets and resets the processor's timer, which takes 10 us in a virtual
/// machine: a round trip between two sleepers on one processor took 16.6 us with a deadline of 500 us, and
/// 6.2 with 5 ms or none. A fence among 4 ranks on 2 processors took 3.2 to 27.7 us without this delay and
/// 3.1 to 4.8 us with it (medians of 6 runs, AMD EPYC, Linux 6.18). A delay of half this length could end
/// before the next tick of a kernel with 250 ticks a second.
const FIRST_CALL_DELAY: Duration = Duration::from_millis(5);
/// The number of waits whose first call comes after the period, once a wait has lasted until its late call:
/// the host has a message in flight then, and moving it takes some hundred calls. Each of these waits may pay
/// 10 us for its timer (see [`FIRST_CALL_DELAY`]), 5 ms in all, as much as the one late call has cost. Chosen
/// by this sum, not measured.
const PROMPT_WAITS: u32 = 512;

/// The time from a call that found work to the next call: a piece of a long message takes a few microseconds
/// to copy, and the next piece is there then. 16 MB to a rank that waits in a fence took 16 to 25 ms when
/// each call came 500 us after the last, and 1.3 to 1.6 ms with this time (Open MPI without single copy, 2
/// ranks, three interleaved runs of 15). With half of this time, half of the calls would find no work.
const REPEAT_AFTER_WORK: Duration = Duration::from_micros(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookOutcome {
    /// Nothing to do: the next call may come a period later.
    Nothing,
    /// A message in flight has moved, and may move on soon.
    Work,
}

type HookCall = Box<dyn FnMut() -> HookOutcome + Send>;

/// A job's hook, if it has one.
#[derive(Default)]
pub(crate) struct Hook {
    call: Mutex<Option<HookCall>>,
    /// The period in nanoseconds, or zero if there is no hook.
    period: AtomicU64,
    /// Nanoseconds from the last call to the next: the period, or less while a message is in flight.
    pace: AtomicU64,
    crowded: AtomicBool,
    prompt_waits: AtomicU32,
}

impl Hook {
    pub(crate) fn set(&self, period: Duration, crowded: bool, call: HookCall) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
        self.crowded.store(crowded, Ordering::Relaxed);
        let period = period.clamp(Duration::from_micros(1), FIRST_CALL_DELAY).as_nanos();
        self.pace.store(period, Ordering::Relaxed);
        self.period.store(period, Ordering::Relaxed);
    }

    fn period(&self) -> Option<Duration> {
        let period = self.period.load(Ordering::Relaxed);
        (period != 0).then_some(Duration::from_nanos(period))
    }

    fn pace(&self) -> Duration {
        Duration::from_nanos(self.pace.load(Ordering::Relaxed))
    }

    /// Returns the time from the beginning of a wait until the hook is called.
    #[inline]
    pub(crate) fn first_delay(&self) -> Option<Duration> {
        let period = self.period()?;
        let pace = self.pace();
        if pace < period {
            // Otherwise waits that end before their call would keep the pace fast without a message in
            // flight.
            self.pace.store((pace * 2).as_nanos(), Ordering::Relaxed);
            return Some(pace);
        }
        if !self.crowded.load(Ordering::Relaxed) {
            return Some(period);
        }
        // Two threads may count one wait at the same time; the prompt waits then last one wait longer.
        let prompt_waits = self.prompt_waits.load(Ordering::Relaxed);
        if prompt_waits == 0 {
            return Some(FIRST_CALL_DELAY);
        }
        self.prompt_waits.store(prompt_waits - 1, Ordering::Relaxed);
        Some(period)
    }

    /// Calls the hook at the beginning of a wait; returns the time until the next call.
    pub(crate) fn begin(&self) -> Option<Duration> {
        self.call()?;
        self.first_delay()
    }

    /// Calls the hook; returns the time until the next call.
    pub(crate) fn call(&self) -> Option<Duration> {
        let period = self.period()?;
        let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        // Two threads may set the pace at the same time; either pace is right.
        let pace = match (call.as_mut()?)() {
            HookOutcome::Work => REPEAT_AFTER_WORK.min(period),
            HookOutcome::Nothing => (self.pace() * 2).min(period),
        };
        self.pace.store(pace.as_nanos(), Ordering::Relaxed);
        Some(pace)
    }

    /// Calls the hook in a wait that has lasted until the call was due.
    pub(crate) fn call_due(&self) -> Option<Duration> {
        self.prompt_waits.store(PROMPT_WAITS, Ordering::Relaxed);
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
            HookOutcome::Nothing
        };
        hook.set(Duration::from_micros(500), crowded, Box::new(count));
        (hook, calls)
    }

    #[test]
    fn without_a_hook_nobody_has_to_wake_for_it() {
        assert_eq!(Hook::default().first_delay(), None);
        assert_eq!(Hook::default().call_due(), None);
    }

    #[test]
    fn where_everybody_has_a_processor_it_is_called_soon() {
        let (hook, calls) = hook(false);
        assert_eq!(hook.first_delay(), Some(Duration::from_micros(500)));
        assert_eq!(hook.call_due(), Some(Duration::from_micros(500)));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_host_that_moves_something_is_called_soon_again_and_ever_later_when_it_does_not() {
        for crowded in [false, true] {
            let (hook, left) = (Hook::default(), Arc::new(AtomicU32::new(0)));
            let work = Arc::clone(&left);
            let call = move || {
                let some =
                    work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                if some.is_ok() { HookOutcome::Work } else { HookOutcome::Nothing }
            };
            hook.set(Duration::from_micros(500), crowded, Box::new(call));
            let lazy = hook.begin();
            assert_eq!(lazy, Some(if crowded { FIRST_CALL_DELAY } else { Duration::from_micros(500) }));
            left.store(2, Ordering::Relaxed);
            assert_eq!((hook.call_due(), hook.call()), (Some(REPEAT_AFTER_WORK), Some(REPEAT_AFTER_WORK)));
            let waits: Vec<u64> =
                std::iter::from_fn(|| hook.first_delay()).map(|pause| pause.as_micros()).take(8).collect();
            assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256], "short waits, which need no call, forget it");
            left.store(1, Ordering::Relaxed);
            assert_eq!(hook.call(), Some(REPEAT_AFTER_WORK));
            let pauses: Vec<u64> =
                std::iter::from_fn(|| hook.call()).map(|pause| pause.as_micros()).take(9).collect();
            assert_eq!(pauses, [4, 8, 16, 32, 64, 128, 256, 500, 500]);
        }
    }

    #[test]
    fn among_many_it_is_called_late_until_a_wait_has_lasted_so_long() {
        let (hook, _) = hook(true);
        assert_eq!(hook.first_delay(), Some(FIRST_CALL_DELAY));
        assert_eq!(hook.call_due(), Some(Duration::from_micros(500)));
        for wait in 0..PROMPT_WAITS {
            assert_eq!(hook.first_delay(), Some(Duration::from_micros(500)), "wait {wait}");
        }
        assert_eq!(hook.first_delay(), Some(FIRST_CALL_DELAY));
    }
}
