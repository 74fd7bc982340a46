//! A barrier with the interface of `std::sync::Barrier`: one value shared by all threads, with a method
//! `wait`.
//!
//! The idea: every arrival takes the next number of one counter. The numbers `k*n` to `k*n + n-1` are the
//! arrivals of episode `k`. The last of them leads the episode and signals it; the others wait for the
//! signal. The counter is never reset, so an arrival for the next episode is never counted in this episode,
//! even when more than `n` threads use the barrier. With more than `n` threads, the leader of the next
//! episode may be ready before this episode is signalled. It therefore waits for this signal before its own,
//! so that signals keep their order.
//!
//! Threads have no places here, so the learned regime of waiting ([`Regime`]) is kept in the barrier: the
//! leader of each episode runs the learner for all threads.
//!
//! Cost per participant: one atomic addition to a contended line, a division, and one transfer of the
//! signal's line; an episode of n threads takes O(n). When not to use: where an episode has to fail instead
//! of hang when a thread panics or dies; between processes; or where a hundred nanoseconds matter. A
//! [`Group`](crate::Group) serves all these cases.
//!
//! Reference: std::sync::Barrier; Hensgen, Finkel, Manber 1988 for the central counter.

use std::sync::{Mutex, TryLockError};
use std::{fmt, num::NonZeroU64};
use unisono_linux::futex::Scope;
use unisono_sync::atomics::{AtomicU64, Ordering, now};
use unisono_sync::{
    Adaptive, Flag, Lines, Regime, RegimeLearner, SpinBudget, Unwatched, WaitHints, WaitPolicy, Wakeups,
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
    /// The number of arrivals since the barrier was made.
    arrivals: Counter,
    /// The number of arrivals in an episode.
    threads: NonZeroU64,
    /// Whether an episode has more threads than there are processors for the barrier's creator.
    crowded: bool,
    /// The line of the signal and the line of the regime.
    lines: Lines,
    wakeups: Wakeups,
    /// The initial state of the wait policy; each wait starts with a copy of it.
    policy: Adaptive,
    learner: Mutex<RegimeLearner>,
    /// The total of sleeps at this barrier; the learner's input.
    sleeps: AtomicU64,
}

const SIGNAL: usize = 0;
const REGIME: usize = 1;

/// The counter of arrivals, on a line of its own because every arrival writes it.
#[repr(align(128))]
struct Counter(AtomicU64);

impl Barrier {
    /// Creates a barrier that releases threads in groups of `n`; 0 counts as 1, as in the standard library.
    /// Only this call checks whether there are at least `n` processors.
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
            learner: Mutex::new(RegimeLearner::default()),
            sleeps: AtomicU64::new(0),
        }
    }

    /// Arrives, and waits until `n` threads have arrived. All writes of each thread before its arrival are
    /// visible to every thread of the episode afterwards.
    pub fn wait(&self) -> BarrierWaitResult {
        // SYNC(tickets) release: publishes this thread's writes to the last arrival of its episode;
        // SYNC(tickets) acquire: the last arrival sees the writes of all others
        let number = self.arrivals.0.fetch_add(1, Ordering::AcqRel);
        let (episode, place) = (number / self.threads, number % self.threads);
        // A flag's word wraps; the comparison is valid because two episodes in use are never 2^31 apart.
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

    /// Returns the flag with the number of complete episodes.
    fn signal(&self) -> Flag<'_> {
        self.lines.line(SIGNAL).flag(0)
    }

    fn regime(&self) -> Regime<'_> {
        Regime::new(self.lines.line(REGIME))
    }

    fn wait_for(&self, episode: u32) {
        let mut policy = self.policy;
        let hints = WaitHints { regime: self.regime(), crowded: self.crowded, last_cpus: None };
        // the verdict is always to continue: `Unwatched` never stops a wait
        let _ = policy.with_hints(hints).wait(self.signal(), episode, &mut Unwatched);
        if policy.blocks() > 0 {
            self.sleeps.fetch_add(policy.blocks(), Ordering::Relaxed);
        }
    }

    /// Counts an episode for the learner. Leaders call this one after the other, unless more threads use the
    /// barrier than an episode has. A leader that finds another leader in this method does not count its own
    /// episode.
    fn learn(&self) {
        if cfg!(loom) {
            return; // in a model there is no clock to learn from
        }
        let mut learner = match self.learner.try_lock() {
            Ok(learner) => learner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        learner.learn(self.regime(), self.sleeps.load(Ordering::Relaxed), now, || self.crowded);
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
    /// Returns whether this thread leads its episode: exactly one thread of each episode does.
    pub fn is_leader(&self) -> bool {
        self.leads
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    /// The interface that both barriers have.
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

    /// Returns the number of leaders in `times` episodes of `threads` threads. Each thread checks that no
    /// thread leaves an episode before all have arrived.
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
                // Any thread may make the next arrival; at the end at most two of the six wait for a third.
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
