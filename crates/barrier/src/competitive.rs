//! The competitive, preemption-safe barrier of Kontothanassis, Wisniewski and Scott.
//!
//! The idea: the counter of the central barrier also says whether any participant sleeps. A waiter first
//! spins for the budget of its wait policy (50 us by default). Then it sets the bit "somebody sleeps" in the
//! counter, by one atomic step, unless the counter shows that the last participant has come already. So the
//! last participant learns from its own arrival whether it has to wake anybody. With sleepers a release is
//! one system call; without, a plain store. A preempted waiter delays nobody, because all wait for one word
//! and no waiter hands it on.
//! ```text
//!   counter   [ 1 = somebody sleeps | how many have come ]       0 while nobody has come
//! ```
//! Cost per participant: one read-modify-write, and one more for a participant that sleeps; no other fence,
//! and none in the kernel. When not to use: for many threads on cores of their own. An episode takes O(n) on
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
        // SYNC(competitive-count) release: publishes this participant's writes to the last to come;
        // SYNC(competitive-count) acquire: the last to come sees everybody's
        let before = counter.fetch_add(1, Ordering::AcqRel);
        self.last = Flag::arrivals(before) + 1 == self.members;
        if self.last {
            // Nobody counts again before the release below; who says "I sleep" from here on sees that the
            // count is not that of a waiting group, and does not.
            // A swap, not a store: late sleepers' read-modify-writes come wholly before it or wholly after.
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
