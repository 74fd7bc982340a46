//! Centralized sense-reversing barrier.
//!
//! The idea: everybody increments one counter; whoever completes it resets it and changes one word that
//! all others poll. The word holds the episode's number, of which the classic sense is the last bit.
//! Cost per participant: one atomic read-modify-write of a contended line and one line transfer; n
//! read-modify-writes queue up on the line, so an episode takes O(n). When not to use: with many threads
//! on cores of their own; it is the right one where threads share cores anyway.
//! Reference: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", Int. J. Parallel
//! Programming 17(1), 1988; Mellor-Crummey, Scott, ACM TOCS 9(1), 1991, section 3.1.

use crate::algorithm::{GroupWords, Leadership, Protocol};
use unisono_sync::atomics::Ordering;
use unisono_sync::{WaitPolicy, Watch};

const COUNTER: usize = 0;
const RELEASE: usize = 1;

/// One participant's side.
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
        let members =
            u32::try_from(members).expect("a group has at most 2^12 members because GroupSpec says so");
        Self { members, last: false }
    }

    #[inline]
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        let counter = words.counter(COUNTER);
        // SYNC(central-count) release: publishes this participant's writes to the last to come;
        // SYNC(central-count) acquire: the last to come sees everybody's
        self.last = counter.fetch_add(1, Ordering::AcqRel) + 1 == self.members;
        if self.last {
            // Nobody counts again before the release below.
            counter.store(0, Ordering::Relaxed);
            words.flag(RELEASE, 0).signal(episode, words.wakeups);
        }
    }

    #[inline]
    fn complete<P: WaitPolicy, W: Watch>(
        &mut self,
        words: &GroupWords<'_>,
        episode: u32,
        policy: &mut P,
        watch: &mut W,
    ) -> Option<Leadership> {
        if self.last {
            return Some(Leadership::Leader);
        }
        words.wait(words.flag(RELEASE, 0), episode, policy, watch)?;
        Some(Leadership::Follower)
    }
}
