//! Centralized sense-reversing barrier.
//!
//! The idea: all members increment one counter. The last one resets the counter to zero and changes one word,
//! which all others poll. The word holds the number of the episode; the classic sense is that number's last
//! bit.
//!
//! Cost per participant: one atomic read-modify-write of a contended line, and one line transfer. The n
//! read-modify-writes queue up on the line, so an episode takes O(n). When not to use: with many threads that
//! each have a core. Where threads share cores, it is among the three fastest (table in `recommended.rs`).
//!
//! Reference: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", Int. J. Parallel
//! Programming 17(1), 1988; Mellor-Crummey, Scott, ACM TOCS 9(1), 1991, section 3.1.

use crate::algorithm::{EpisodeWait, GroupWords, Leadership, Protocol, count};
use unisono_sync::atomics::Ordering;
use unisono_sync::{WaitPolicy, Watch};

const COUNTER: usize = 0;
const RELEASE: usize = 1;

#[derive(Debug)]
pub(crate) struct Central {
    members: u32,
    last: bool,
}

impl Protocol for Central {
    fn lines(_members: usize) -> usize {
        2
    }

    fn new(_rank: usize, members: usize) -> Self {
        Self { members: count(members), last: false }
    }

    #[inline]
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        let counter = words.counter(COUNTER);
        // SYNC(central-count) release: publishes this participant's writes to the last to arrive;
        // SYNC(central-count) acquire: the last to arrive sees the writes of all others
        self.last = counter.fetch_add(1, Ordering::AcqRel) + 1 == self.members;
        if self.last {
            // No participant counts again before the release below.
            counter.store(0, Ordering::Relaxed);
            words.flag(RELEASE, 0).signal(episode, words.wakeups);
        }
    }

    #[inline]
    fn complete(&mut self, mut wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership> {
        let words = wait.words;
        if self.last {
            return Some(Leadership::Leader);
        }
        wait.until(words.flag(RELEASE, 0))?;
        Some(Leadership::Follower)
    }
}
