//! A word to wait on, and the handshake between its signaller and its sleepers.
//!
//! The word only grows (modulo 2^32). It holds the number of the last episode signalled, so a waiter asks
//! whether it has *reached* an episode and never takes an old value for a new one. Beside the word lie the
//! number of sleepers and a count of wake-ups. A wake-up could be lost as follows. The signaller stores the
//! word and then reads `sleepers`; the sleeper counts itself and then reads the word. If both reads happen
//! before both writes are visible, the sleeper sleeps and no thread wakes it. So both sides have a full fence
//! between their write and their read:
//!
//! ```text
//!   signaller                      sleeper
//!   word := e   (release)          sleepers += 1
//!   ---- fence ----                ---- fence ----
//!   sleepers > 0 ?                 w := woken  (acquire)
//!     woken += 1  (release)        word reached, or told to stop ? return
//!     futex_wake(woken)            futex_wait(woken, w)
//! ```
//! The two fences have an order. If the signaller's fence comes first, the sleeper reads the new word and
//! does not sleep. If the sleeper's fence comes first, the signaller reads the count and wakes the sleeper.
//! That wake-up may come before or after the sleeper reads `woken`. If it comes before, the sleeper acquires
//! the signaller's writes, and sees the word. If it comes after, the kernel compares `woken`, finds it
//! changed, and refuses the sleep.
//!
//! A thread can also *disturb* sleepers, to make them check a condition other than the word. The handshake is
//! the same, with that condition in the word's place. This is why sleepers sleep on `woken` and not on the
//! word.
//!
//! [`Wakeups`] chooses the fences. *Asymmetric*: the signaller has only a compiler fence, and the sleeper
//! calls membarrier(2), which runs a full fence on every CPU that runs a signaller; cheaper where sleeping is
//! rare. *Symmetric*: both sides execute a fence instruction; cheaper where sleeping is the rule.
//!
//! *Several flags* ([`sleep_at_any`]): a sleeper counts itself at each flag, fences, and checks the
//! condition of each. The kernel then compares all their `woken` in one system call, futex_waitv(2).
//!
//! *Counted* ([`Flag::counted_by`]): in a barrier where a counter of arrivals decides which member signals,
//! the sleeper sets a bit in that counter, and no fence is needed. Both sides change the same word, each in
//! one atomic step, so one of the two steps comes first. If the sleeper comes first, the last arrival reads
//! the bit and wakes it. If the last arrival comes first, the sleeper reads a count that no waiting group has
//! (zero or full) and does not sleep.
//!
//! Cost of a signal: a store and a load of the same line. A signal makes a system call only if a thread
//! sleeps, and one call wakes all sleepers of a word. Reference: futex(2), membarrier(2).

use crate::atomics::{AtomicU32, Ordering, fence, light_fence, yield_now};
use crate::watch::{Watch, WatchVerdict};
#[cfg(not(loom))]
use std::io;
#[cfg(not(loom))]
use unisono_linux::clock::Instant;
use unisono_linux::futex::Scope;
#[cfg(not(loom))]
use unisono_linux::{futex, membarrier};

/// The fences that the signallers and the sleepers of a flag execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeups {
    /// No thread ever sleeps: a signal is only a store.
    Never,
    /// A signal needs no fence instruction; a sleeper fences for every thread by membarrier(2).
    Asymmetric(Scope),
    /// Signaller and sleeper each execute a fence instruction.
    Symmetric(Scope),
}

impl Wakeups {
    /// Chooses the cheaper kind where sleeping is rare: asymmetric if membarrier works on this host,
    /// symmetric otherwise. Registers this process for membarrier.
    pub fn for_rare_sleepers(scope: Scope) -> Self {
        #[cfg(not(loom))]
        if membarrier::register(scope).is_ok() && membarrier::fence_all(scope).is_ok() {
            return Self::Asymmetric(scope);
        }
        #[cfg(loom)]
        return Self::Asymmetric(scope);
        #[cfg(not(loom))]
        Self::Symmetric(scope)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// The caller did not sleep: the word has reached the target or is about to, or a wake-up came before the
    /// sleep. Check again.
    Unneeded,
    /// Slept, and was woken or disturbed; check again.
    Woken,
    /// Slept until the watch's time to wake.
    TimedOut,
    /// The watch said to stop; it knows the reason.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Sleepers {
    pub(crate) count: AtomicU32,
    /// The number of wake-ups so far, modulo 2^32; sleepers sleep on this word.
    woken: AtomicU32,
}

impl Sleepers {
    pub(crate) fn none() -> Self {
        Self { count: AtomicU32::new(0), woken: AtomicU32::new(0) }
    }
}

/// A growing word with its count of sleepers, by reference; see the module.
#[derive(Clone, Copy, Debug)]
pub struct Flag<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) sleepers: &'a Sleepers,
    /// The counter that decides which member signals, and its value when all members have arrived.
    pub(crate) counter: Option<(&'a AtomicU32, u32)>,
    #[cfg(loom)]
    pub(crate) kernel: &'a ModelKernel,
}

/// A bit in a counter: a member sleeps, or is about to.
const SLEEPING: u32 = 1 << 31;

/// Returns whether a growing word that wraps has reached `target`, which means that it is at most 2^31 - 1
/// beyond it.
#[inline]
const fn reached(word: u32, target: u32) -> bool {
    word.wrapping_sub(target).cast_signed() >= 0
}

impl<'a> Flag<'a> {
    #[inline]
    pub fn reached(self, target: u32) -> bool {
        // SYNC(flag) acquire: sees all writes of the signaller before its signal
        reached(self.word.load(Ordering::Acquire), target)
    }

    /// Returns what [`reached`](Self::reached) returns, and also takes the cache line for writing. Use it in
    /// a waiter that stores into this line next: it then need not request the line a second time. Only one
    /// waiter may do so; several would take the line from one another.
    #[inline]
    pub fn reached_taking(self, target: u32) -> bool {
        // The expected value is 2^31 away from the target and the word never has it, so the exchange never
        // writes. The processor takes the line for writing before it compares.
        let never = target ^ 1 << 31;
        // SYNC(flag) acquire: sees all writes of the signaller before its signal
        let found = self.word.compare_exchange(never, never, Ordering::Acquire, Ordering::Acquire);
        let (Ok(word) | Err(word)) = found;
        reached(word, target)
    }

    /// Returns the last value signalled, by a relaxed load; for diagnosis only.
    pub fn value(self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }

    /// Returns whether a thread sleeps here, or is about to. The answer is a hint from a relaxed load.
    #[inline]
    pub fn has_sleepers(self) -> bool {
        self.sleepers.count.load(Ordering::Relaxed) != 0
    }

    /// Releases every waiter for `value` or less. Only one thread may signal a flag at a time.
    #[inline]
    pub fn signal(self, value: u32, wakeups: Wakeups) {
        // SYNC(flag) release: publishes all writes of this thread before the signal
        self.word.store(value, Ordering::Release);
        match wakeups {
            Wakeups::Never => {}
            Wakeups::Asymmetric(scope) => {
                // SYNC(sleepers) light: the sleeper's membarrier is the fence here
                light_fence();
                self.wake_if_sleeping(scope);
            }
            Wakeups::Symmetric(scope) => {
                // SYNC(sleepers) fence: the word is written before `sleepers` is read, see the module
                fence(Ordering::SeqCst);
                self.wake_if_sleeping(scope);
            }
        }
    }

    /// Returns this flag as a flag that is signalled by the member whose arrival completes `counter`, which
    /// then holds `full` arrivals; see [`signal_counted`](Self::signal_counted).
    #[inline]
    pub fn counted_by<'b>(self, counter: &'b AtomicU32, full: u32) -> Flag<'b>
    where
        Self: 'b,
    {
        Flag { counter: Some((counter, full)), ..self }
    }

    /// Returns a flag with the sleepers of this flag and a word elsewhere, in memory that the sleepers may
    /// only read. The signaller stores that word and then [disturbs](Self::disturb) the sleepers.
    #[inline]
    pub fn over<'b>(self, word: &'b AtomicU32) -> Flag<'b>
    where
        Self: 'b,
    {
        Flag { word, ..self }
    }

    #[inline]
    pub const fn arrivals(counter: u32) -> u32 {
        counter & !SLEEPING
    }

    /// Returns whether a counter's value has the bit of a sleeper.
    #[inline]
    pub const fn says_sleeping(counter: u32) -> bool {
        counter & SLEEPING != 0
    }

    /// Releases every waiter as [`signal`](Self::signal) does; called by the member whose own arrival
    /// completed the counter. `sleeping` says whether the value that this member read there had the bit of a
    /// sleeper. No fence is needed.
    #[inline]
    pub fn signal_counted(self, value: u32, sleeping: bool, wakeups: Wakeups) {
        // SYNC(flag) release: publishes all writes of this thread before the signal
        self.word.store(value, Ordering::Release);
        if sleeping && let Wakeups::Asymmetric(scope) | Wakeups::Symmetric(scope) = wakeups {
            self.wake(scope);
        }
    }

    /// Wakes every sleeper, so that it checks its condition although the word has not changed. The caller
    /// must have written the condition, and then executed a full fence, before this call.
    pub fn disturb(self, scope: Scope) {
        self.wake_if_sleeping(scope);
    }

    /// Sleeps once: until a signal, a disturbance, or the watch's time to wake. Does not sleep if `target` is
    /// reached or `watch` says to stop.
    ///
    /// Signallers that use [`Wakeups::Never`] wake no sleeper. With it, this function only asks the watch,
    /// and the caller polls.
    #[cold]
    pub fn sleep<W: Watch>(self, target: u32, wakeups: Wakeups, watch: &mut W) -> Sleep {
        let scope = match wakeups {
            Wakeups::Never if watch.check() == WatchVerdict::Stop => return Sleep::Stopped,
            Wakeups::Never => return Sleep::Woken,
            Wakeups::Asymmetric(scope) | Wakeups::Symmetric(scope) => scope,
        };
        let sleepers = &self.sleepers.count;
        sleepers.fetch_add(1, Ordering::Relaxed);
        match self.counter {
            None => heavy_fence(wakeups),
            Some((counter, full)) => {
                // SYNC(counted) release: ordered before or after the last arrival, never at the same time;
                // SYNC(counted) acquire: a count of the next episode implies that this one's signal is
                // visible
                let arrivals = Self::arrivals(counter.fetch_or(SLEEPING, Ordering::AcqRel));
                if arrivals == 0 || arrivals == full {
                    // The last member has arrived and is about to signal; it may have lost its core, or died.
                    sleepers.fetch_sub(1, Ordering::Relaxed);
                    if watch.check() == WatchVerdict::Stop {
                        return Sleep::Stopped;
                    }
                    yield_now();
                    return Sleep::Unneeded;
                }
                // SYNC(sleepers) fence: the sleeper is counted before `watch` checks its condition
                fence(Ordering::SeqCst);
            }
        }
        // SYNC(woken) acquire: sees all writes before the last wake-up: the word and the watch's condition
        let woken = self.sleepers.woken.load(Ordering::Acquire);
        let slept = if self.reached(target) {
            Sleep::Unneeded
        } else if watch.check() == WatchVerdict::Stop {
            // The condition that stopped the watch may have become true after the signal.
            if self.reached(target) { Sleep::Unneeded } else { Sleep::Stopped }
        } else {
            self.wait(woken, watch, scope)
        };
        sleepers.fetch_sub(1, Ordering::Relaxed);
        slept
    }

    /// Counts the caller as a sleeper here until the returned value is dropped, for a [sleep at several
    /// flags](sleep_at_any) whose signallers and disturbers fence ([`Wakeups::Symmetric`]). The caller checks
    /// its condition after this call, and sleeps only if the condition is false.
    #[cfg(not(loom))]
    #[must_use]
    pub fn count_sleeper(self) -> CountedSleeper<'a> {
        self.sleepers.count.fetch_add(1, Ordering::Relaxed);
        // SYNC(sleepers) fence: the sleeper is counted before the caller checks its condition, as in `sleep`
        fence(Ordering::SeqCst);
        // SYNC(woken) acquire: sees all writes before the last wake-up
        CountedSleeper { sleepers: self.sleepers, woken: self.sleepers.woken.load(Ordering::Acquire) }
    }

    #[cold]
    fn wake(self, scope: Scope) {
        // SYNC(woken) release: the word, or another condition, is written before the wake-up
        self.sleepers.woken.fetch_add(1, Ordering::Release);
        self.wake_all(scope);
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
    fn wake_all(self, scope: Scope) {
        futex::wake(&self.sleepers.woken, futex::WakeCount::All, scope);
    }

    fn wait<W: Watch>(self, woken: u32, watch: &mut W, scope: Scope) -> Sleep {
        match futex::wait(&self.sleepers.woken, woken, watch.sleep_until(), scope) {
            futex::FutexWait::Changed => Sleep::Unneeded,
            futex::FutexWait::Woken => Sleep::Woken,
            futex::FutexWait::TimedOut => Sleep::TimedOut,
        }
    }
}

/// A sleeper that is counted at a flag until this is dropped; see [`Flag::count_sleeper`].
#[cfg(not(loom))]
#[derive(Debug)]
pub struct CountedSleeper<'a> {
    sleepers: &'a Sleepers,
    /// The flag's count of wake-ups when the sleeper was counted.
    woken: u32,
}

#[cfg(not(loom))]
impl Drop for CountedSleeper<'_> {
    fn drop(&mut self) {
        self.sleepers.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sleeps until any flag at which the caller is counted is signalled or disturbed, or until a moment.
/// A wake-up since the caller was counted ends the sleep at once. The caller checks its conditions again
/// afterwards.
///
/// # Errors
/// Fails if there are more flags than [`futex::MAX_WORDS`], or on a kernel without futex_waitv(2) (Linux
/// before 5.16).
#[cfg(not(loom))]
pub fn sleep_at_any(
    counted: &[CountedSleeper<'_>],
    until: Option<Instant>,
    scope: Scope,
) -> io::Result<Sleep> {
    let words: Vec<_> = counted.iter().map(|one| (&one.sleepers.woken, one.woken)).collect();
    Ok(match futex::wait_any(&words, until, scope)? {
        futex::FutexWait::Changed => Sleep::Unneeded,
        futex::FutexWait::Woken => Sleep::Woken,
        futex::FutexWait::TimedOut => Sleep::TimedOut,
    })
}

fn heavy_fence(wakeups: Wakeups) {
    #[cfg(not(loom))]
    if let Wakeups::Asymmetric(scope) = wakeups {
        // SYNC(sleepers) fence: membarrier runs a fence here and on each CPU of a signaller. After the
        // registration it cannot fail (membarrier(2)), unless a seccomp filter installed later refuses it.
        if membarrier::fence_all(scope).is_ok() {
            return;
        }
        // Without membarrier no fence runs for a signaller between its store and its load. After 10 ms (about
        // a scheduler tick) its store is visible.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let _ = wakeups;
    // SYNC(sleepers) fence: the sleeper is counted before the word is read, see the module
    fence(Ordering::SeqCst);
}

/// A futex for the model checker: a lock that is held from the comparison until the sleep.
#[cfg(loom)]
#[derive(Debug, Default)]
pub(crate) struct ModelKernel {
    lock: loom::sync::Mutex<()>,
    sleepers: loom::sync::Condvar,
}

#[cfg(loom)]
impl Flag<'_> {
    fn wake_all(self, _scope: Scope) {
        let _kernel = self.kernel.lock.lock().expect("no model thread panics with the lock");
        self.kernel.sleepers.notify_all();
    }

    fn wait<W: Watch>(self, woken: u32, _watch: &mut W, _scope: Scope) -> Sleep {
        let kernel = self.kernel.lock.lock().expect("no model thread panics with the lock");
        if self.sleepers.woken.load(Ordering::Relaxed) != woken {
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
    use crate::watch::Unwatched;
    use std::thread;
    use std::time::Duration as StdDuration;
    use unisono_linux::clock::{Duration, now};

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
                            let _ = lines.line(0).flag(2).sleep(1, wakeups, &mut Unwatched);
                        }
                    });
                    while !lines.line(0).flag(2).has_sleepers() {
                        thread::yield_now();
                    }
                    thread::sleep(StdDuration::from_millis(5));
                    lines.line(0).flag(2).signal(1, wakeups);
                });
                assert!(!lines.line(0).flag(2).has_sleepers());
            }
        }
    }

    #[test]
    fn a_sleeper_at_several_flags_is_woken_by_each_and_by_one_that_was_signalled_before_it_slept() {
        let kind = Wakeups::Symmetric(Scope::Shared);
        for at in 0..2 {
            let lines = Lines::on_heap(1);
            let flags = [0, 1].map(|flag| lines.line(0).flag(flag));
            thread::scope(|threads| {
                let sleeper = threads.spawn(|| {
                    while !flags[at].reached(1) {
                        let counted = flags.map(Flag::count_sleeper);
                        if !flags[at].reached(1)
                            && let Err(error) = sleep_at_any(&counted, None, Scope::Shared)
                        {
                            eprintln!("skipped: {error}");
                            return;
                        }
                    }
                });
                // without futex_waitv the thread has ended
                while !flags[at].has_sleepers() && !sleeper.is_finished() {
                    thread::yield_now();
                }
                thread::sleep(StdDuration::from_millis(5));
                flags[at].signal(1, kind);
            });
            let counted = flags.map(Flag::count_sleeper);
            flags[at].signal(2, kind);
            if let Ok(slept) = sleep_at_any(&counted, None, Scope::Shared) {
                assert_eq!(slept, Sleep::Unneeded);
            }
            drop(counted);
            assert!(flags.iter().all(|flag| !flag.has_sleepers()));
        }
    }

    #[test]
    fn a_reached_flag_needs_no_sleep_and_a_deadline_ends_one() {
        let lines = Lines::on_heap(1);
        let flag = lines.line(0).flag(0);
        let kind = Wakeups::Symmetric(Scope::Private);
        flag.signal(3, kind);
        let mut soon = Until { time: now() + Duration::from_millis(5), verdict: WatchVerdict::Continue };
        assert_eq!(flag.sleep(3, kind, &mut soon), Sleep::Unneeded);
        assert_eq!(flag.sleep(4, kind, &mut soon), Sleep::TimedOut);
        assert_eq!(flag.sleep(4, Wakeups::Never, &mut soon), Sleep::Woken);
        soon.verdict = WatchVerdict::Stop;
        assert_eq!(flag.sleep(4, kind, &mut soon), Sleep::Stopped);
        assert!(!flag.has_sleepers());
    }

    struct Until {
        time: Instant,
        verdict: WatchVerdict,
    }

    impl Watch for Until {
        fn check(&mut self) -> WatchVerdict {
            self.verdict
        }

        fn sleep_until(&mut self) -> Option<Instant> {
            Some(self.time)
        }
    }
}
