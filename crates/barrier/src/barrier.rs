//! A barrier with the interface of `std::sync::Barrier`: one value that all threads share, and `wait()`.
//!
//! The idea: every arrival takes the next number of one counter. Of the numbers `k*n` to `k*n + n-1` each is
//! an arrival in episode `k`; the last of them signals the episode and leads, the others wait for the signal.
//! The counter is never reset, so a thread that arrives for the next episode cannot be mistaken for one of
//! this, even when more than `n` threads use the barrier. With more than `n`, the leader of the next episode
//! may be ready before this episode is signalled; the leader therefore waits for the signal before its own,
//! so that signals keep their order.
//!
//! Threads have no places here, so what is learnt about waiting (see [`Regime`]) belongs to the barrier: the
//! leader of an episode learns for all.
//!
//! Cost per participant: one atomic addition to a contended line, a division, and one transfer of the
//! signal's line; an episode of n takes O(n). When not to use: where an episode has to fail instead of hang
//! when a thread panics or dies, where processes meet, or where a hundred nanoseconds matter: a
//! [`Group`](crate::Group) does all of that.
//!
//! Reference: std::sync::Barrier; Hensgen, Finkel, Manber 1988 for the central counter.

use std::sync::{Mutex, TryLockError};
use std::{fmt, num::NonZeroU64};
use unisono_linux::futex::Scope;
use unisono_sync::atomics::{AtomicU64, Ordering, now};
use unisono_sync::{
    Adaptive, Company, Flag, Learner, Lines, Regime, SpinBudget, Unwatched, WaitPolicy, Wakeups,
};

/// A barrier for `n` threads at a time, to be shared by reference or in an `Arc`.
///
/// ```
/// use unisono_barrier::Barrier;
///
/// let barrier = Barrier::new(3);
/// let leaders = std::thread::scope(|threads| {
///     let running: Vec<_> = (0..3).map(|_| threads.spawn(|| barrier.wait().is_leader())).collect();
///     running.into_iter().filter_map(|thread| thread.join().ok()).filter(|leads| *leads).count()
/// });
/// assert_eq!(leaders, 1);
/// ```
pub struct Barrier {
    /// How many threads have arrived since the barrier was made.
    arrivals: Counter,
    /// How many make an episode.
    threads: NonZeroU64,
    /// Whether these outnumber the processors that the maker of the barrier may use.
    crowded: bool,
    /// The signal, and how threads wait for it.
    lines: Lines,
    wakeups: Wakeups,
    /// A thread's policy before its first wait.
    policy: Adaptive,
    learner: Mutex<Learner>,
    /// How often threads slept here; what the learner decides by.
    sleeps: AtomicU64,
}

const SIGNAL: usize = 0;
const REGIME: usize = 1;

/// On a line of its own: every arrival writes here.
#[repr(align(128))]
struct Counter(AtomicU64);

impl Barrier {
    /// A barrier that lets threads go on in groups of `n`; 0 counts as 1, as in the standard library. Whether
    /// `n` threads have a processor each is asked here, once.
    pub fn new(n: usize) -> Self {
        let threads = NonZeroU64::new(n as u64).unwrap_or(NonZeroU64::MIN);
        let lines = Lines::on_heap(2);
        let regime = Regime::new(lines.line(REGIME));
        regime.announce_processors();
        let crowded = regime.is_crowded(n);
        let wakeups = if crowded {
            Wakeups::Symmetric(Scope::Private)
        } else {
            Wakeups::for_rare_sleepers(Scope::Private)
        };
        Self {
            arrivals: Counter(AtomicU64::new(0)),
            threads,
            crowded,
            lines,
            wakeups,
            policy: Adaptive::new(SpinBudget::DEFAULT, wakeups),
            learner: Mutex::new(Learner::default()),
            sleeps: AtomicU64::new(0),
        }
    }

    /// Arrives, and waits until `n` threads have. What each did before, all see after.
    pub fn wait(&self) -> BarrierWaitResult {
        // SYNC(tickets) release: publishes this thread's writes to the last of its episode;
        // SYNC(tickets) acquire: the last sees everybody's
        let number = self.arrivals.0.fetch_add(1, Ordering::AcqRel);
        let (episode, place) = (number / self.threads, number % self.threads);
        // A flag's word wraps, and is compared so: an episode is never half of all numbers behind another.
        let before = episode as u32;
        let leads = place == self.threads.get() - 1;
        if leads {
            if !self.signal().reached(before) {
                self.wait_for(before);
            }
            self.learn();
            self.signal().signal(before.wrapping_add(1), self.wakeups);
        } else {
            self.wait_for(before.wrapping_add(1));
        }
        BarrierWaitResult { leads }
    }

    /// Holds the number of the last episode that is complete.
    fn signal(&self) -> Flag<'_> {
        self.lines.line(SIGNAL).flag(0)
    }

    fn regime(&self) -> Regime<'_> {
        Regime::new(self.lines.line(REGIME))
    }

    fn wait_for(&self, episode: u32) {
        let mut policy = self.policy;
        let company = Company { regime: self.regime(), crowded: self.crowded, whereabouts: None };
        // the verdict is to go on: nobody watches who could stop it
        let _ = policy.among(company).wait(self.signal(), episode, &mut Unwatched);
        if policy.blocks() > 0 {
            self.sleeps.fetch_add(policy.blocks(), Ordering::Relaxed);
        }
    }

    /// Counts an episode for what is learnt. Leaders come one after the other, unless more threads use the
    /// barrier than make an episode. A leader that finds another one here leaves its episode uncounted.
    fn learn(&self) {
        if cfg!(loom) {
            return; // in a model there is no clock to learn from
        }
        let mut learner = match self.learner.try_lock() {
            Ok(learner) => learner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        learner.learn(self.regime(), self.sleeps.load(Ordering::Relaxed), now);
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("threads", &self.threads).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult {
    leads: bool,
}

impl BarrierWaitResult {
    /// Whether this thread is the one of its episode that is told so.
    pub fn is_leader(&self) -> bool {
        self.leads
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    /// The standard library's barrier, as far as this one has its interface.
    trait Meeting: Sync {
        fn meet(&self) -> bool;
    }

    impl Meeting for Barrier {
        fn meet(&self) -> bool {
            self.wait().is_leader()
        }
    }

    impl Meeting for std::sync::Barrier {
        fn meet(&self) -> bool {
            self.wait().is_leader()
        }
    }

    /// How many lead in all when so many threads meet so often; each checks that nobody is an episode away.
    fn leaders(barrier: &dyn Meeting, threads: usize, times: usize) -> usize {
        let (come, led) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for time in 1..=times {
                        come.fetch_add(1, Ordering::Relaxed);
                        led.fetch_add(usize::from(barrier.meet()), Ordering::Relaxed);
                        let come = come.load(Ordering::Relaxed);
                        assert!(come >= time * threads, "{come} arrivals after episode {time} of {threads}");
                        barrier.meet();
                    }
                });
            }
        });
        led.into_inner()
    }

    #[test]
    fn it_does_what_the_standard_librarys_barrier_does() {
        for threads in [1, 2, 3, 8] {
            let expected = leaders(&std::sync::Barrier::new(threads), threads, 200);
            assert_eq!(leaders(&Barrier::new(threads), threads, 200), expected, "{threads} threads");
        }
    }

    #[test]
    fn a_barrier_of_none_lets_each_go_on_alone_as_the_standard_librarys_does() {
        assert!(std::sync::Barrier::new(0).wait().is_leader());
        assert!(Barrier::new(0).wait().is_leader());
    }

    #[test]
    fn more_threads_than_make_an_episode_are_served_in_groups() {
        const ARRIVALS: usize = 3_000;
        let (barrier, led, begun) = (Barrier::new(3), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..6 {
                // any thread makes the next arrival: at most two of the six wait for a third at the end
                scope.spawn(|| {
                    while begun.fetch_add(1, Ordering::Relaxed) < ARRIVALS {
                        led.fetch_add(usize::from(barrier.wait().is_leader()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(led.into_inner(), ARRIVALS / 3);
    }
}
