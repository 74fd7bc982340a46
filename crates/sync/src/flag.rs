//! A word to wait on, and the handshake between the one who signals and the ones who sleep.
//!
//! The word only grows (modulo 2^32). It holds the number of the last episode signalled, so a waiter asks
//! whether it has *reached* an episode and never takes an old value for a new one. Beside the word lie the
//! number of sleepers and a count of wake-ups. A wake-up could be lost as follows. The signaller stores the
//! word and then reads `sleepers`; the sleeper counts itself and then reads the word. If both reads happen
//! before both writes are visible, the sleeper sleeps and nobody wakes it. So both sides have a full fence
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
//! One of the two fences comes first. If it is the signaller's, the sleeper reads the new word and does not
//! sleep. If it is the sleeper's, the signaller reads the count and wakes. That wake-up may come before or
//! after the sleeper reads `woken`. Before: the sleeper acquires the signaller's writes, and sees the word.
//! After: the kernel compares `woken`, finds it changed, and refuses the sleep.
//!
//! A thread can also *disturb* sleepers, to make them look at something other than the word. That is the same
//! handshake with the other thing in the word's place. Therefore sleepers sleep on `woken` and not on the
//! word.
//!
//! [`Wakeups`] says which fences these are. *Asymmetric*: the signaller's is a compiler fence only, and the
//! sleeper's is membarrier(2), which runs a real fence on every CPU where a signaller runs - right when
//! sleeping is rare. *Symmetric*: both execute a fence instruction - right when sleeping is the rule.
//!
//! *Several flags* ([`sleep_at_any`]): a sleeper counts itself at each of them, fences, and looks at what it
//! awaits of each. The kernel then compares all their `woken` in one system call, futex_waitv(2).
//!
//! *Counted* ([`Flag::counted_by`]): where a counter of arrivals decides who signals, the sleeper sets a bit
//! in that counter, and no fence is needed. Both sides change one word in one atomic step, so one comes
//! first. If the sleeper does, the last arrival reads the bit and wakes. If the last arrival does, the
//! sleeper reads a count that no waiting group has (nobody, or everybody) and does not sleep.
//!
//! Cost of a signal: a store and a load of the same line; nothing is woken that does not sleep, and all
//! sleepers of a word by one system call. Reference: futex(2), membarrier(2).

use crate::atomics::{AtomicU32, Ordering, fence, give_way, light_fence};
use crate::watch::{Watch, WatchVerdict};
#[cfg(not(loom))]
use std::io;
#[cfg(not(loom))]
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
    /// The word had reached the target: no sleep was needed.
    Unneeded,
    /// Slept, and was woken or disturbed; look again.
    Woken,
    /// Slept until the time to look again.
    TimedOut,
    /// The watch said to stop, and knows why.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Sleepers {
    pub(crate) count: AtomicU32,
    /// How often sleepers were woken: what they sleep on.
    woken: AtomicU32,
}

impl Sleepers {
    pub(crate) fn none() -> Self {
        Self { count: AtomicU32::new(0), woken: AtomicU32::new(0) }
    }
}

/// A growing word with its count of sleepers; see the module.
#[derive(Clone, Copy, Debug)]
pub struct Flag<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) sleepers: &'a Sleepers,
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

impl<'a> Flag<'a> {
    #[inline]
    pub fn reached(self, target: u32) -> bool {
        // SYNC(flag) acquire: sees what the signaller did before its signal
        reached(self.word.load(Ordering::Acquire), target)
    }

    /// As [`reached`](Self::reached), and takes the line for writing on the way: for a waiter that is going
    /// to store into this very line next, which then need not ask for it once more. For one waiter only;
    /// several would tear the line from one another.
    #[inline]
    pub fn reached_taking(self, target: u32) -> bool {
        // Compares with a value that the word is half the numbers away from, so that nothing is ever written;
        // the processor takes the line before it knows.
        let never = target ^ 1 << 31;
        // SYNC(flag) acquire: sees what the signaller did before its signal
        let found = self.word.compare_exchange(never, never, Ordering::Acquire, Ordering::Acquire);
        let (Ok(word) | Err(word)) = found;
        reached(word, target)
    }

    /// The last value signalled, for diagnosis; orders nothing.
    pub fn value(self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }

    /// Whether somebody sleeps here, or is about to; a hint that orders nothing.
    #[inline]
    pub fn has_sleepers(self) -> bool {
        self.sleepers.count.load(Ordering::Relaxed) != 0
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

    /// This flag, for a signal by the member that completes `counter`, which then holds `full` arrivals; see
    /// [`signal_counted`](Self::signal_counted).
    #[inline]
    pub fn counted_by<'b>(self, counter: &'b AtomicU32, full: u32) -> Flag<'b>
    where
        Self: 'b,
    {
        Flag { counter: Some((counter, full)), ..self }
    }

    /// The sleepers of this flag, waiting for a word that lies elsewhere: in memory that they may only read.
    /// The word is then signalled by storing it and [`disturb`](Self::disturb).
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

    /// Whether a counter's value says that somebody sleeps.
    #[inline]
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

    /// Makes every sleeper look around although the word has not moved. What it is to see has to be written
    /// before, and a full fence to stand between.
    pub fn disturb(self, scope: Scope) {
        self.wake_if_sleeping(scope);
    }

    /// Sleeps once, unless `target` is reached or `watch` says to stop, until a signal, a disturbance, or the
    /// watch's time to look again.
    ///
    /// A flag whose signallers use [`Wakeups::Never`] cannot be slept on: this then only looks, and the
    /// caller polls.
    #[cold]
    pub fn sleep<W: Watch>(self, target: u32, wakeups: Wakeups, watch: &mut W) -> Sleep {
        let scope = match wakeups {
            Wakeups::Never if watch.look() == WatchVerdict::Stop => return Sleep::Stopped,
            Wakeups::Never => return Sleep::Woken,
            Wakeups::Asymmetric(scope) | Wakeups::Symmetric(scope) => scope,
        };
        let sleepers = &self.sleepers.count;
        sleepers.fetch_add(1, Ordering::Relaxed);
        match self.counter {
            None => heavy_fence(wakeups),
            Some((counter, full)) => {
                // SYNC(counted) release: before or after the last arrival, never beside it;
                // SYNC(counted) acquire: a count of the next episode shows the signal of this one
                let arrivals = Self::arrivals(counter.fetch_or(SLEEPING, Ordering::AcqRel));
                if arrivals == 0 || arrivals == full {
                    // The last has come and is about to signal; it may have lost its core just now, or died.
                    sleepers.fetch_sub(1, Ordering::Relaxed);
                    if watch.look() == WatchVerdict::Stop {
                        return Sleep::Stopped;
                    }
                    give_way();
                    return Sleep::Unneeded;
                }
                // SYNC(sleepers) fence: sleepers before what `watch` looks at
                fence(Ordering::SeqCst);
            }
        }
        // SYNC(woken) acquire: what was done before the last wake-up, the word and all that `watch` looks at
        let woken = self.sleepers.woken.load(Ordering::Acquire);
        let slept = if self.reached(target) {
            Sleep::Unneeded
        } else if watch.look() == WatchVerdict::Stop {
            // What stopped it may have come after the signal.
            if self.reached(target) { Sleep::Unneeded } else { Sleep::Stopped }
        } else {
            self.wait(woken, watch, scope)
        };
        sleepers.fetch_sub(1, Ordering::Relaxed);
        slept
    }

    /// Counts the caller as a sleeper here until the answer is dropped, for a [sleep at several
    /// flags](sleep_at_any) whose signallers and disturbers fence ([`Wakeups::Symmetric`]). Look at what is
    /// awaited after this, and sleep only if it is not there.
    #[cfg(not(loom))]
    #[must_use]
    pub fn count_sleeper(self) -> CountedSleeper<'a> {
        self.sleepers.count.fetch_add(1, Ordering::Relaxed);
        // SYNC(sleepers) fence: sleepers before what is awaited, as in `sleep`
        fence(Ordering::SeqCst);
        // SYNC(woken) acquire: what was done before the last wake-up
        CountedSleeper { sleepers: self.sleepers, woken: self.sleepers.woken.load(Ordering::Acquire) }
    }

    #[cold]
    fn wake(self, scope: Scope) {
        // SYNC(woken) release: the word, or what else is to be seen, before the wake-up
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
            futex::Wakened::Changed => Sleep::Unneeded,
            futex::Wakened::Woken => Sleep::Woken,
            futex::Wakened::TimedOut => Sleep::TimedOut,
        }
    }
}

/// A sleeper that is counted at a flag; see [`Flag::count_sleeper`].
#[cfg(not(loom))]
#[derive(Debug)]
pub struct CountedSleeper<'a> {
    sleepers: &'a Sleepers,
    /// The count of wake-ups when it was counted.
    woken: u32,
}

#[cfg(not(loom))]
impl Drop for CountedSleeper<'_> {
    fn drop(&mut self) {
        self.sleepers.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sleeps until one of the flags at which the caller is counted is signalled or disturbed, or until a moment.
/// One that was since it was counted there ends the sleep at once. Anything may be true afterwards.
///
/// # Errors
/// There are more than [`futex::MOST_WORDS`], or the kernel cannot (Linux before 5.16).
#[cfg(not(loom))]
pub fn sleep_at_any(counted: &[CountedSleeper<'_>], until: Option<Nanos>, scope: Scope) -> io::Result<Sleep> {
    let words: Vec<_> = counted.iter().map(|one| (&one.sleepers.woken, one.woken)).collect();
    Ok(match futex::wait_any(&words, until, scope)? {
        futex::Wakened::Changed => Sleep::Unneeded,
        futex::Wakened::Woken => Sleep::Woken,
        futex::Wakened::TimedOut => Sleep::TimedOut,
    })
}

fn heavy_fence(wakeups: Wakeups) {
    #[cfg(not(loom))]
    if let Wakeups::Asymmetric(scope) = wakeups {
        // SYNC(sleepers) fence: membarrier fences here and wherever a signaller runs. It cannot fail once
        // registered (membarrier(2)), unless a filter installed later refuses it.
        if membarrier::fence_all(scope).is_ok() {
            return;
        }
        // Then nothing fences for a signaller that is in the middle of its two instructions; by the time this
        // thread has been away for a scheduler's tick its store is out.
        std::thread::sleep(std::time::Duration::from_millis(10));
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
                            let _ = lines.line(0).flag(2).sleep(1, wakeups, &mut Unwatched);
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
    fn a_sleeper_at_several_flags_is_woken_by_each_and_by_one_that_was_signalled_before_it_slept() {
        let kind = Wakeups::Symmetric(Scope::Shared);
        for at in 0..2 {
            let lines = Lines::on_heap(1);
            let flags = [0, 1].map(|flag| lines.line(0).flag(flag));
            thread::scope(|threads| {
                threads.spawn(|| {
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
                while !flags[at].has_sleepers() {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(5));
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
        let mut soon = Until { time: Nanos(5_000_000).after(now()), verdict: WatchVerdict::Continue };
        assert_eq!(flag.sleep(3, kind, &mut soon), Sleep::Unneeded);
        assert_eq!(flag.sleep(4, kind, &mut soon), Sleep::TimedOut);
        assert_eq!(flag.sleep(4, Wakeups::Never, &mut soon), Sleep::Woken);
        soon.verdict = WatchVerdict::Stop;
        assert_eq!(flag.sleep(4, kind, &mut soon), Sleep::Stopped);
        assert!(!flag.has_sleepers());
    }

    struct Until {
        time: Nanos,
        verdict: WatchVerdict,
    }

    impl Watch for Until {
        fn look(&mut self) -> WatchVerdict {
            self.verdict
        }

        fn sleep_until(&mut self) -> Option<Nanos> {
            Some(self.time)
        }
    }
}
