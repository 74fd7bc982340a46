//! Signs that foreign threads take the processors of a group whose members have a processor each.
//!
//! The idea: a waiter sees only that an episode was slow; the reason may be work of a member. The kernel
//! counts how often it preempted a thread. Where each member has a processor of its own, a preemption during
//! a slow episode means that a foreign thread runs there. A second sign: a thread that, before its group's
//! first decision, waited for a processor longer than it ran was started on a processor that other threads
//! use.
//!
//! Cost: `getrusage` (0.3 us for a few threads) in a slow episode and in every 64th decision, a read of 2 us
//! at the first decision. When not to use: members that share processors preempt one another.
//!
//! Reference: getrusage(2), `ru_nivcsw`; Documentation/scheduler/sched-stats.rst.

use unisono_linux::affinity::Tid;
use unisono_linux::clock::{Duration, Instant};
use unisono_linux::{schedstat, usage};

/// An observation that takes longer than this may hide a foreign slice, which lasts 2 to 4 ms.
const SLOW: Duration = Duration::from_millis(1);

/// The number of decisions between two readings of the preemption count while nothing is slow. At this
/// interval, the preemptions by threads that run briefly (about one a second) are seldom counted as signs in
/// a slow episode.
const READ_INTERVAL: u32 = 64;

/// A thread that waited less than this before the first decision may have met a thread that ran briefly.
const MIN_START_WAIT: Duration = Duration::from_millis(1);

/// Where members share processors, a thread that waited less than this before its first wait may have waited
/// for members alone: starting takes each of them some 100 us. A foreign loop keeps a processor for 2 to 4
/// ms, and each loop there does so in turn.
const MIN_CROWD_WAIT: Duration = Duration::from_millis(10);

/// The sources of the signs; a test replaces them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignSource {
    /// The number of preemptions of this process so far.
    pub(crate) preemptions: fn() -> u64,
    /// Whether this thread has waited for a processor longer than it ran.
    pub(crate) waited_at_start: fn() -> bool,
}

impl Default for SignSource {
    fn default() -> Self {
        Self { preemptions: || usage::of_this_process().involuntary_switches, waited_at_start }
    }
}

fn waited_at_start() -> bool {
    waited_longer_than(MIN_START_WAIT)
}

/// Returns whether this thread, whose processor other members share, has waited for foreign threads.
pub(crate) fn waited_in_crowd() -> bool {
    waited_longer_than(MIN_CROWD_WAIT)
}

/// Returns whether this thread has waited for a processor longer than this, and longer than it ran.
fn waited_longer_than(min_wait: Duration) -> bool {
    schedstat::read(Tid::current()).is_ok_and(|times| {
        let [waited, ran] = [times.waited_ns, times.ran_ns].map(Duration::from_nanos);
        waited > min_wait.max(ran)
    })
}

/// Looks for signs of foreign threads at each decision of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct StrangerWatch {
    source: SignSource,
    last: Option<Instant>,
    preemptions: u64,
    decisions: u32,
}

impl StrangerWatch {
    #[cfg(test)]
    pub(crate) fn with_source(source: SignSource) -> Self {
        Self { source, ..Self::default() }
    }

    /// Returns whether foreign threads took processors since the last decision. `shares` says whether members
    /// share processors.
    pub(crate) fn were_here(&mut self, moment: Instant, shares: bool) -> bool {
        let last = self.last.replace(moment);
        self.decisions = self.decisions.wrapping_add(1);
        let Some(last) = last else {
            self.preemptions = (self.source.preemptions)();
            return (self.source.waited_at_start)() && !shares;
        };
        let is_slow = moment - last > SLOW;
        if !is_slow && !self.decisions.is_multiple_of(READ_INTERVAL) {
            return false;
        }
        let before = std::mem::replace(&mut self.preemptions, (self.source.preemptions)());
        is_slow && self.preemptions > before && !shares
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static PREEMPTIONS: Cell<u64> = const { Cell::new(0) };
        static WAITED: Cell<bool> = const { Cell::new(false) };
    }

    fn watch() -> StrangerWatch {
        StrangerWatch::with_source(SignSource {
            preemptions: || PREEMPTIONS.get(),
            waited_at_start: || WAITED.get(),
        })
    }

    #[test]
    fn a_preemption_in_a_slow_episode_is_a_sign_and_each_alone_is_none() {
        let mut watch = watch();
        let mut now = Instant::from_millis(1);
        let mut after = |time: Duration, preemptions: u64, shares: bool| {
            now += time;
            PREEMPTIONS.set(PREEMPTIONS.get() + preemptions);
            watch.were_here(now, shares)
        };
        let (quick, slow) = (Duration::from_micros(250), Duration::from_millis(4));
        assert!(!after(quick, 0, false), "the first decision");
        assert!(!after(slow, 0, false), "a member computed");
        assert!(after(slow, 1, false));
        assert!(!after(slow, 0, false), "the preemption was counted once");
        assert!(!after(slow, 1, true), "members preempt one another");
        assert!(!after(quick, 1, false), "a thread that ran briefly");
        for _ in 0..READ_INTERVAL {
            assert!(!after(quick, 0, false));
        }
        assert!(!after(slow, 0, false), "that preemption is forgotten");
    }

    #[test]
    fn a_thread_that_waited_to_start_has_started_in_a_crowd() {
        WAITED.set(true);
        assert!(watch().were_here(Instant::from_millis(1), false));
        assert!(!watch().were_here(Instant::from_millis(1), true), "its own group may be the crowd");
        WAITED.set(false);
        assert!(!watch().were_here(Instant::from_millis(1), false));
    }
}
