//! A word to wait on, and the handshake between the one who signals and the ones who sleep.
//!
//! The word only grows (modulo 2^32): it holds the number of the last episode signalled, so that a waiter
//! asks "reached?" and never mistakes an old value for a new one. Beside it lies the number of sleepers.
//! The danger is the classic one: the signaller stores the word and then reads `sleepers`; the sleeper
//! counts itself and then reads the word. If both reads may pass both writes, the sleeper sleeps and
//! nobody wakes it. Hence a full fence between write and read on both sides:
//!
//! ```text
//!   signaller                      sleeper
//!   word := e   (release)          sleepers += 1
//!   ---- fence ----                ---- fence ----
//!   sleepers > 0 ? wake            word reached ? return : futex_wait(word, seen)
//! ```
//! Either fence comes first in the single order of fences. If the signaller's: the sleeper's read sees the
//! word, and it does not sleep. If the sleeper's: the signaller's read sees the count and wakes; should
//! the wake come before the sleep, the kernel's own comparison of the word refuses the sleep.
//!
//! [`Wakeups`] says which fences these are. *Asymmetric*: the signaller's is a compiler fence only, and the
//! sleeper's is membarrier(2), which runs a real fence on every CPU where a signaller runs - right when
//! sleeping is rare. *Symmetric*: both execute a fence instruction - right when sleeping is the rule.
//!
//! *Counted*: where a counter decides who signals anyway ([`Flag::counted_by`]), the sleeper announces
//! itself in that counter, and no fence is needed: both are read-modify-writes of one word, so one comes
//! first. If the sleeper's, the last arrival reads it and wakes; if the last arrival's, the sleeper reads
//! a count that no waiting group has (nobody, or everybody) and does not sleep.
//!
//! Cost of a signal: a store and a load of the same line; nothing is woken that does not sleep, and all
//! sleepers of a word by one system call. Reference: futex(2), membarrier(2).

use crate::atomics::{AtomicU32, Ordering, fence, light_fence};
use crate::yielding::give_way;
use unisono_linux::clock::Nanos;
use unisono_linux::futex::Scope;
#[cfg(not(loom))]
use unisono_linux::{futex, membarrier};

/// How sleepers and signallers find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeups {
    /// Nobody ever sleeps: a signal is a store.
    Never,
    /// Signals are free, sleepers make everybody fence.
    Asymmetric(Scope),
    /// Signallers and sleepers fence.
    Symmetric(Scope),
}

impl Wakeups {
    /// The cheapest kind for rare sleepers that this host offers: asymmetric where membarrier works,
    /// symmetric otherwise. Registers this process.
    #[must_use]
    pub fn for_rare_sleepers(scope: Scope) -> Self {
        #[cfg(not(loom))]
        if membarrier::register(scope).is_ok() && membarrier::fence_all(scope).is_ok() {
            return Self::Asymmetric(scope);
        }
        Self::Symmetric(scope)
    }
}

/// How a call of [`Flag::sleep`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// The word had reached the target: no sleep was needed.
    Unneeded,
    /// Slept, and was woken or disturbed; look again.
    Woken,
    /// Slept until the deadline.
    TimedOut,
}

/// A growing word with its count of sleepers; see the module.
#[derive(Clone, Copy, Debug)]
pub struct Flag<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) sleepers: &'a AtomicU32,
    /// The counter that decides who signals, and its value when everybody has come.
    pub(crate) counter: Option<(&'a AtomicU32, u32)>,
    #[cfg(loom)]
    pub(crate) kernel: &'a ModelKernel,
}

/// In a counter: somebody sleeps, or is about to.
const SLEEPING: u32 = 1 << 31;

/// Whether a growing word that wraps has reached `target`.
#[inline]
const fn reached(word: u32, target: u32) -> bool {
    word.wrapping_sub(target).cast_signed() >= 0
}

impl Flag<'_> {
    /// Whether `target` has been signalled.
    #[inline]
    #[must_use]
    pub fn reached(self, target: u32) -> bool {
        // SYNC(flag) acquire: sees what the signaller did before its signal
        reached(self.word.load(Ordering::Acquire), target)
    }

    /// The last value signalled, for diagnosis; orders nothing.
    #[must_use]
    pub fn value(self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }

    /// Whether somebody sleeps here, or is about to; a hint that orders nothing.
    #[inline]
    #[must_use]
    pub fn has_sleepers(self) -> bool {
        self.sleepers.load(Ordering::Relaxed) != 0
    }

    /// Lets everybody who waits for `value` or less go on. Only one thread may signal a flag at a time.
    #[inline]
    pub fn signal(self, value: u32, wakeups: Wakeups) {
        // SYNC(flag) release: publishes what this thread did before
        self.word.store(value, Ordering::Release);
        match wakeups {
            Wakeups::Never => {}
            Wakeups::Asymmetric(scope) => {
                // SYNC(sleepers) light: the sleeper's membarrier is the fence here
                light_fence();
                self.wake_if_sleeping(scope);
            }
            Wakeups::Symmetric(scope) => {
                // SYNC(sleepers) fence: word before sleepers, see the module
                fence(Ordering::SeqCst);
                self.wake_if_sleeping(scope);
            }
        }
    }

    /// This flag, signalled by whoever completes `counter`, which then holds `full` arrivals; see
    /// [`signal_counted`](Self::signal_counted).
    #[inline]
    #[must_use]
    pub fn counted_by<'b>(self, counter: &'b AtomicU32, full: u32) -> Flag<'b>
    where
        Self: 'b,
    {
        Flag { counter: Some((counter, full)), ..self }
    }

    /// The arrivals in a counter's value.
    #[inline]
    #[must_use]
    pub const fn arrivals(counter: u32) -> u32 {
        counter & !SLEEPING
    }

    /// Whether a counter's value says that somebody sleeps.
    #[inline]
    #[must_use]
    pub const fn says_sleeping(counter: u32) -> bool {
        counter & SLEEPING != 0
    }

    /// As [`signal`](Self::signal), by the one whose own arrival read the whole counter: `sleeping` is what
    /// that value said, and no fence is needed.
    #[inline]
    pub fn signal_counted(self, value: u32, sleeping: bool, wakeups: Wakeups) {
        // SYNC(flag) release: publishes what this thread did before
        self.word.store(value, Ordering::Release);
        if sleeping && let Wakeups::Asymmetric(scope) | Wakeups::Symmetric(scope) = wakeups {
            self.wake(scope);
        }
    }

    /// Wakes every sleeper although the word has not moved, to make it look around.
    pub fn disturb(self, scope: Scope) {
        self.wake(scope);
    }

    /// Sleeps once, unless `target` is reached, until a signal, a disturbance or `until`.
    ///
    /// A flag whose signallers use [`Wakeups::Never`] cannot be slept on: this then returns
    /// [`Sleep::Woken`] at once, and the caller polls.
    #[cold]
    pub fn sleep(self, target: u32, wakeups: Wakeups, until: Option<Nanos>) -> Sleep {
        let scope = match wakeups {
            Wakeups::Never => return Sleep::Woken,
            Wakeups::Asymmetric(scope) | Wakeups::Symmetric(scope) => scope,
        };
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        match self.counter {
            None => heavy_fence(wakeups),
            Some((counter, full)) => {
                // SYNC(counted) release: before or after the last arrival, never beside it;
                // SYNC(counted) acquire: a count of the next episode shows the signal of this one
                let arrivals = Self::arrivals(counter.fetch_or(SLEEPING, Ordering::AcqRel));
                if arrivals == 0 || arrivals == full {
                    // The last has come and is about to signal; it may have lost its core just now.
                    self.sleepers.fetch_sub(1, Ordering::Relaxed);
                    give_way();
                    return Sleep::Unneeded;
                }
            }
        }
        // SYNC(flag) acquire: sees what the signaller did before its signal
        let seen = self.word.load(Ordering::Acquire);
        let slept = if reached(seen, target) { Sleep::Unneeded } else { self.wait(seen, until, scope) };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        slept
    }

    #[inline]
    fn wake_if_sleeping(self, scope: Scope) {
        if self.has_sleepers() {
            self.wake(scope);
        }
    }
}

#[cfg(not(loom))]
impl Flag<'_> {
    #[cold]
    fn wake(self, scope: Scope) {
        futex::wake(self.word, futex::Count::All, scope);
    }

    fn wait(self, seen: u32, until: Option<Nanos>, scope: Scope) -> Sleep {
        match futex::wait(self.word, seen, until, scope) {
            futex::Wakened::Changed => Sleep::Unneeded,
            futex::Wakened::Woken => Sleep::Woken,
            futex::Wakened::TimedOut => Sleep::TimedOut,
        }
    }
}

/// The sleeper's fence.
fn heavy_fence(wakeups: Wakeups) {
    #[cfg(not(loom))]
    if let Wakeups::Asymmetric(scope) = wakeups {
        // SYNC(sleepers) fence: membarrier fences here and wherever a signaller runs. It cannot fail once
        // registered (membarrier(2)); if a filter installed later refuses it, sleeping stays correct
        // because sleepers look again after every slice, only late.
        let _ = membarrier::fence_all(scope);
        return;
    }
    let _ = wakeups;
    // SYNC(sleepers) fence: sleepers before word, see the module
    fence(Ordering::SeqCst);
}

/// A futex for the model checker: a lock held between comparing and sleeping.
#[cfg(loom)]
#[derive(Debug, Default)]
pub(crate) struct ModelKernel {
    lock: loom::sync::Mutex<()>,
    sleepers: loom::sync::Condvar,
}

#[cfg(loom)]
impl Flag<'_> {
    fn wake(self, _scope: Scope) {
        let _kernel = self.kernel.lock.lock().expect("no model thread panics with the lock");
        self.kernel.sleepers.notify_all();
    }

    fn wait(self, seen: u32, _until: Option<Nanos>, _scope: Scope) -> Sleep {
        let kernel = self.kernel.lock.lock().expect("no model thread panics with the lock");
        if self.word.load(Ordering::Relaxed) != seen {
            return Sleep::Unneeded;
        }
        drop(self.kernel.sleepers.wait(kernel).expect("no model thread panics with the lock"));
        Sleep::Woken
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::line::Lines;
    use std::thread;
    use std::time::Duration;
    use unisono_linux::clock::now;

    #[test]
    fn a_word_that_wrapped_is_still_past_its_targets() {
        assert!(reached(5, 5) && reached(6, 5) && !reached(4, 5));
        assert!(reached(2, u32::MAX) && !reached(u32::MAX, 2));
    }

    #[test]
    fn a_sleeper_is_woken_by_the_signal_in_every_kind_and_scope() {
        for scope in [Scope::Private, Scope::Shared] {
            for wakeups in [Wakeups::for_rare_sleepers(scope), Wakeups::Symmetric(scope)] {
                let lines = Lines::on_heap(1);
                thread::scope(|threads| {
                    threads.spawn(|| {
                        while !lines.line(0).flag(2).reached(1) {
                            let _ = lines.line(0).flag(2).sleep(1, wakeups, None);
                        }
                    });
                    while !lines.line(0).flag(2).has_sleepers() {
                        thread::yield_now();
                    }
                    thread::sleep(Duration::from_millis(5));
                    lines.line(0).flag(2).signal(1, wakeups);
                });
                assert!(!lines.line(0).flag(2).has_sleepers());
            }
        }
    }

    #[test]
    fn a_reached_flag_needs_no_sleep_and_a_deadline_ends_one() {
        let lines = Lines::on_heap(1);
        let flag = lines.line(0).flag(0);
        let kind = Wakeups::Symmetric(Scope::Private);
        flag.signal(3, kind);
        assert_eq!(flag.sleep(3, kind, None), Sleep::Unneeded);
        assert_eq!(flag.sleep(4, kind, Some(Nanos(5_000_000).after(now()))), Sleep::TimedOut);
        assert_eq!(flag.sleep(4, Wakeups::Never, None), Sleep::Woken);
    }
}
