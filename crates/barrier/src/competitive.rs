//! The competitive, preemption-safe barrier of Kontothanassis, Wisniewski and Scott.
//!
//! The idea: the counter of the central barrier also says whether any participant sleeps. A waiter first
//! spins for the budget of its wait policy (50 us by default). Then it sets a bit for sleepers in the
//! counter, by one atomic step, and sleeps unless the counter shows that the last participant has arrived. So
//! the last participant learns from its own arrival whether it has to wake any sleeper. With sleepers a
//! release is one system call; without, a plain store. A preempted waiter delays no other waiter, because all
//! wait for one word and no waiter passes the release on.
//! ```text
//!   counter   [ 1 = a participant sleeps | number of arrivals ]       0 before the first arrival
//! ```
//! Cost per participant: one read-modify-write, and one more for a participant that sleeps; no other fence,
//! and none in the kernel. When not to use: for many threads that each have a core. An episode takes O(n) on
//! one line, as with the central barrier.
//!
//! Reference: Kontothanassis, Wisniewski, Scott, "Scheduler-conscious synchronization", ACM TOCS 15(1), 1997;
//! the barrier that Peter et al. tuned to 50 us. The protocol: `PROTOCOL.md`, "Counted flags".

use crate::algorithm::{EpisodeWait, GroupWords, Leadership, Protocol, count};
use unisono_sync::atomics::Ordering;
use unisono_sync::{Flag, WaitPolicy, Watch};

const COUNTER: usize = 0;
const RELEASE: usize = 1;

#[derive(Debug)]
pub(crate) struct Competitive {
    members: u32,
    last: bool,
}

impl Protocol for Competitive {
    fn lines(_members: usize) -> usize {
        2
    }

    fn new(_rank: usize, members: usize) -> Self {
        Self { members: count(members), last: false }
    }

    #[inline]
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        let counter = words.counter(COUNTER);
        // SYNC(competitive-count) release: publishes this participant's writes to the last to arrive;
        // SYNC(competitive-count) acquire: the last to arrive sees the writes of all others
        let before = counter.fetch_add(1, Ordering::AcqRel);
        self.last = Flag::arrivals(before) + 1 == self.members;
        if self.last {
            // No participant counts again before the release below. A waiter that sets the bit for sleepers
            // after the last arrival reads the full count, zero, or a count of the next episode; in none of
            // these cases does it sleep. A swap, not a store: a late sleeper's read-modify-write comes wholly
            // before it or wholly after.
            counter.swap(0, Ordering::Relaxed);
            self.release(words).signal_counted(episode, Flag::says_sleeping(before), words.wakeups);
        }
    }

    #[inline]
    fn complete(&mut self, mut wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership> {
        let words = wait.words;
        if self.last {
            return Some(Leadership::Leader);
        }
        wait.until(self.release(words))?;
        Some(Leadership::Follower)
    }
}

impl Competitive {
    #[inline]
    fn release<'a>(&self, words: &GroupWords<'a>) -> Flag<'a> {
        words.flag(RELEASE, 0).counted_by(words.counter(COUNTER), self.members)
    }
}
