//! Sleeps on a 32-bit word until another thread wakes it: futex(2).
//!
//! The kernel compares the word with `expected` under its own lock, so a waiter never misses a change
//! followed by a [`wake`] between its last check and its sleep. Deadlines are absolute times of
//! `CLOCK_MONOTONIC` (`FUTEX_WAIT_BITSET`): a waiter need not recompute them after a spurious wake-up.
//!
//! Cost: a wait that sleeps and is woken ~5 us on one CPU, 28-60 us if the other CPU was halted; a wake
//! without waiters ~0.1-0.3 us. When not to use: if the event will come soon from a running thread.
//! [`Scope::Private`] is cheaper (no page lookup) but only reaches threads of this process.

use crate::clock::Instant;
use rustix::io::Errno;
use rustix::thread::futex::{self, ClockId, Timespec, WaitFlags, WaitPtr, WaitvFlags};
use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;

/// The threads that may wait on a word and wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Threads of one process.
    Private,
    /// All processes that map the page.
    Shared,
}

/// How a wait ended. No variant promises that the awaited condition holds: check it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexWait {
    /// A wake-up, or a spurious one (a signal handler ran).
    Woken,
    /// The word did not hold the expected value: no sleep took place.
    Changed,
    TimedOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeCount {
    /// Every waiter, in a single system call.
    All,
    AtMost(u32),
}

/// Sleeps while `word` holds `expected`, until a [`wake`] or the `deadline` (a time of
/// [`crate::clock::now`]).
pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>, scope: Scope) -> FutexWait {
    let time = deadline.map(|moment| timespec(moment.as_nanos()));
    match futex::wait_bitset(word, flags(scope), expected, time.as_ref(), NonZeroU32::MAX) {
        Ok(()) => FutexWait::Woken,
        Err(Errno::AGAIN) => FutexWait::Changed,
        Err(Errno::TIMEDOUT) => FutexWait::TimedOut,
        // EINTR: a signal handler ran; the caller checks again, as after any wake-up.
        _ => FutexWait::Woken,
    }
}

/// The maximum number of words for [`wait_any`] (`FUTEX_WAITV_MAX`).
pub const MAX_WORDS: usize = 128;

/// Sleeps while each of up to [`MAX_WORDS`] words holds the value beside it, until a [`wake`] of any of them
/// or the `deadline`: futex_waitv.
///
/// # Errors
/// `ENOSYS` before Linux 5.16; `EPERM` or `ENOSYS` if a system call filter refuses it.
pub fn wait_any(
    words: &[(&AtomicU32, u32)],
    deadline: Option<Instant>,
    scope: Scope,
) -> io::Result<FutexWait> {
    let size = match scope {
        Scope::Private => WaitFlags::SIZE_U32 | WaitFlags::PRIVATE,
        Scope::Shared => WaitFlags::SIZE_U32,
    };
    let waits: Vec<futex::Wait> = words
        .iter()
        .map(|(word, expected)| {
            let mut wait = futex::Wait::new();
            wait.val = u64::from(*expected);
            wait.uaddr = WaitPtr::new(word.as_ptr().cast());
            wait.flags = size;
            wait
        })
        .collect();
    let time = deadline.map(|moment| timespec(moment.as_nanos()));
    match futex::waitv(&waits, WaitvFlags::empty(), time.as_ref(), ClockId::Monotonic) {
        Ok(_) => Ok(FutexWait::Woken),
        Err(Errno::AGAIN) => Ok(FutexWait::Changed),
        Err(Errno::TIMEDOUT) => Ok(FutexWait::TimedOut),
        Err(Errno::INTR) => Ok(FutexWait::Woken),
        Err(error) => Err(error.into()),
    }
}

/// Wakes waiters of `word`; returns their number.
pub fn wake(word: &AtomicU32, count: WakeCount, scope: Scope) -> u32 {
    let max = match count {
        WakeCount::All => i32::MAX as u32,
        WakeCount::AtMost(n) => n.min(i32::MAX as u32),
    };
    futex::wake(word, flags(scope), max).map_or(0, |woken| woken as u32)
}

const fn flags(scope: Scope) -> futex::Flags {
    match scope {
        Scope::Private => futex::Flags::PRIVATE,
        Scope::Shared => futex::Flags::empty(),
    }
}

pub(crate) const fn timespec(nanos: u64) -> Timespec {
    // u64::MAX nanoseconds are 584 years, which fit
    Timespec { tv_sec: (nanos / 1_000_000_000).cast_signed(), tv_nsec: (nanos % 1_000_000_000).cast_signed() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Duration, now};
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;

    #[test]
    fn a_changed_word_does_not_sleep() {
        assert_eq!(wait(&AtomicU32::new(1), 0, None, Scope::Private), FutexWait::Changed);
    }

    #[test]
    fn a_deadline_ends_the_sleep_and_not_early() {
        let deadline = now() + Duration::from_millis(20);
        assert_eq!(wait(&AtomicU32::new(0), 0, Some(deadline), Scope::Shared), FutexWait::TimedOut);
        assert!(now() >= deadline);
    }

    #[test]
    fn a_wake_of_any_word_ends_a_sleep_at_all_of_them() {
        for scope in [Scope::Private, Scope::Shared] {
            let words = [const { AtomicU32::new(0) }; 3];
            let pairs: Vec<_> = words.iter().map(|word| (word, 0)).collect();
            match wait_any(&pairs, Some(now() + Duration::from_millis(1)), scope) {
                Ok(ended) => assert_eq!(ended, FutexWait::TimedOut),
                // Linux before 5.16, or a system call filter
                Err(error) => return eprintln!("skipped: futex_waitv: {error}"),
            }
            for word in &words {
                thread::scope(|threads| {
                    let sleeper = threads.spawn(|| {
                        while word.load(SeqCst) == 0 {
                            let _ = wait_any(&pairs, None, scope);
                        }
                    });
                    thread::sleep(std::time::Duration::from_millis(5));
                    word.store(1, SeqCst);
                    wake(word, WakeCount::All, scope);
                    sleeper.join().expect("no panic");
                });
                assert_eq!(wait_any(&pairs, None, scope).expect("it did before"), FutexWait::Changed);
                word.store(0, SeqCst);
            }
        }
    }

    #[test]
    fn waking_nobody_wakes_nobody() {
        assert_eq!(wake(&AtomicU32::new(0), WakeCount::All, Scope::Private), 0);
    }

    #[test]
    fn one_wake_of_all_reaches_every_sleeper_in_both_scopes() {
        for scope in [Scope::Private, Scope::Shared] {
            let word = AtomicU32::new(0);
            thread::scope(|threads| {
                for _ in 0..3 {
                    threads.spawn(|| {
                        while word.load(SeqCst) == 0 {
                            let _ = wait(&word, 0, None, scope);
                        }
                    });
                }
                thread::sleep(std::time::Duration::from_millis(20));
                word.store(1, SeqCst);
                wake(&word, WakeCount::All, scope);
            });
        }
    }
}
