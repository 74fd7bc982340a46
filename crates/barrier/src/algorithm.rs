//! The algorithms by name, and the trait that they implement.

use unisono_sync::atomics::AtomicU32;
use unisono_sync::{Flag, Lines, WaitPolicy, Wakeups, Watch, WatchVerdict};
use unisono_text::named;

named! {
    "barrier algorithm";
    /// The barrier algorithms by name. A shared group stores an algorithm as its index in this list.
    pub enum Algorithm {
        /// One counter, and one word that all participants poll.
        Central = "central",
        /// One counter with a bit for sleepers: the paper's competitive barrier.
        Competitive = "competitive",
        /// Counters in a tree: the last member at each node climbs on.
        CombiningTree = "combining-tree",
        /// A fixed tree: a parent waits for its children, all participants wait for the root.
        StaticTree = "static-tree",
        /// Each member signals one other member in each of ceil(log2 n) rounds; no root.
        Dissemination = "dissemination",
        /// Rounds of pairs whose winner is fixed beforehand.
        Tournament = "tournament",
        /// Two fixed trees, 4-ary for arrivals, binary for wake-ups (Mellor-Crummey and Scott).
        McsTree = "mcs-tree",
        /// The last member to arrive on a core waits for the other cores; the core's other members wait for
        /// it.
        PerCore = "per-core",
    }
}

/// One participant's side of a barrier algorithm.
///
/// The contract, checked by the conformance suite: for each episode (numbers that grow by one, modulo 2^32)
/// the participant calls `arrive` once and then `complete` until it returns an answer. No `complete` returns
/// an answer before all participants' `arrive`; everything done before any `arrive` happens before everything
/// after any answer; exactly one participant's answer is [`Leadership::Leader`]. If the watch stops a
/// `complete`, the next call resumes where that call stopped. All flags only grow, so that no algorithm
/// resets them between episodes; a change of membership sets them to the current episode.
pub(crate) trait Protocol {
    /// Returns the number of cache lines that the algorithm needs for `members` participants.
    fn lines(members: usize) -> usize;

    /// Creates the participant of rank `rank` among `members`.
    fn new(rank: usize, members: usize) -> Self;

    /// Announces this participant's arrival; never waits.
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32);

    /// Waits until all participants have arrived; `None` if the watch stopped the wait.
    fn complete(&mut self, wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership>;
}

/// The role of a participant in a completed episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leadership {
    Leader,
    Follower,
}

impl Leadership {
    /// Returns the role of `rank` in an algorithm whose leader is always the member of rank 0.
    pub(crate) const fn of_first(rank: usize) -> Self {
        if rank == 0 { Self::Leader } else { Self::Follower }
    }
}

/// The cache lines of the algorithm's shared words, and the way in which its signals wake sleepers.
#[derive(Clone, Copy)]
pub(crate) struct GroupWords<'a> {
    pub(crate) lines: &'a Lines,
    pub(crate) first: usize,
    pub(crate) wakeups: Wakeups,
}

impl<'a> GroupWords<'a> {
    /// Returns flag `flag` of the algorithm's line `line`.
    #[inline]
    pub(crate) fn flag(&self, line: usize, flag: usize) -> Flag<'a> {
        self.lines.line(self.first + line).flag(flag)
    }

    /// Returns the counter of the algorithm's line `line`.
    #[inline]
    pub(crate) fn counter(&self, line: usize) -> &'a AtomicU32 {
        self.lines.line(self.first + line).counter()
    }

    /// Returns an odd word of the algorithm's line `line`, which holds no flag, for the algorithm's own use.
    /// `index` is 0 to 6, and 6 is the counter. A change of membership sets these words to zero.
    #[inline]
    pub(crate) fn own_word(&self, line: usize, index: usize) -> &'a AtomicU32 {
        self.lines.line(self.first + line).word(2 * index + 3)
    }
}

/// Converts a number of members to the type of a counter.
pub(crate) fn count(members: usize) -> u32 {
    u32::try_from(members).expect("a group has at most 2^12 members because GroupSpec says so")
}

/// Returns the number of rounds in which `members` participants meet in pairs.
pub(crate) const fn rounds(members: usize) -> usize {
    members.next_power_of_two().trailing_zeros() as usize
}

/// The parameters of one participant's wait in one episode.
pub(crate) struct EpisodeWait<'a, P, W> {
    pub(crate) words: &'a GroupWords<'a>,
    pub(crate) episode: u32,
    pub(crate) policy: &'a mut P,
    pub(crate) watch: &'a mut W,
}

impl<P: WaitPolicy, W: Watch> EpisodeWait<'_, P, W> {
    /// Waits for a flag of the algorithm; `None` if the watch stopped the wait.
    #[inline]
    pub(crate) fn until(&mut self, flag: Flag<'_>) -> Option<()> {
        (self.policy.wait(flag, self.episode, self.watch) == WatchVerdict::Continue).then_some(())
    }
}
