//! The algorithms by name, and the trait they implement.

use unisono_linux::named::named;
use unisono_sync::atomics::AtomicU32;
use unisono_sync::{Flag, Lines, WaitPolicy, Wakeups, Watch, WatchVerdict};

named! {
    "barrier algorithm";
    /// The barrier algorithms by name. A shared group stores the place in this order.
    pub enum Algorithm {
        /// One counter, and one word that all poll.
        Central = "central",
        /// One counter that also says whether anybody sleeps: the paper's competitive barrier.
        Competitive = "competitive",
        /// Counters in a tree: the last member at each node climbs on.
        CombiningTree = "combining-tree",
        /// A fixed tree: a parent waits for its children, all wait for the root.
        StaticTree = "static-tree",
        /// Each member signals one other in each of log2 n rounds; no root.
        Dissemination = "dissemination",
        /// Pairs whose winner is known beforehand.
        Tournament = "tournament",
        /// Two fixed trees, four to arrive, two to wake (Mellor-Crummey and Scott).
        McsTree = "mcs-tree",
        /// The last member to arrive on a core waits for the other cores; its fellows there wait for it.
        PerCore = "per-core",
    }
}

/// One participant's side of a barrier algorithm.
///
/// The contract, which the conformance suite checks: for each episode (numbers that grow by one, modulo 2^32)
/// the participant calls `arrive` once and then `complete` until it returns an answer. No `complete` returns
/// an answer before all participants' `arrive`; everything done before any `arrive` happens before everything
/// after any answer; exactly one participant's answer is [`Leadership::Leader`]. A `complete` that was
/// stopped resumes where it was. All words only grow, so that nothing has to be reset when the membership
/// changes between episodes.
pub(crate) trait Protocol {
    /// How many lines the algorithm needs for `members` participants.
    fn lines(members: usize) -> usize;

    /// The participant `rank` of `members`.
    fn new(rank: usize, members: usize) -> Self;

    /// Announces that this participant has come; never waits.
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32);

    /// Waits until everybody has come; `None` when the watch stopped it.
    fn complete(&mut self, wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership>;
}

/// What a participant is after an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leadership {
    Leader,
    Follower,
}

impl Leadership {
    /// Where the member of rank 0 leads.
    pub(crate) const fn of_first(rank: usize) -> Self {
        if rank == 0 { Self::Leader } else { Self::Follower }
    }
}

/// Where an algorithm's lines are, and how its signals find sleepers.
#[derive(Clone, Copy)]
pub(crate) struct GroupWords<'a> {
    pub(crate) lines: &'a Lines,
    pub(crate) first: usize,
    pub(crate) wakeups: Wakeups,
}

impl<'a> GroupWords<'a> {
    /// A flag of the algorithm's line `line`.
    #[inline]
    pub(crate) fn flag(&self, line: usize, flag: usize) -> Flag<'a> {
        self.lines.line(self.first + line).flag(flag)
    }

    /// The counter of the algorithm's line `line`.
    #[inline]
    pub(crate) fn counter(&self, line: usize) -> &'a AtomicU32 {
        self.lines.line(self.first + line).counter()
    }

    /// A word of the algorithm's line `line` for its own use: the `index`-th of those that a change of
    /// membership sets to zero, from flag 1's sleepers to the counter: seven.
    #[inline]
    pub(crate) fn own_word(&self, line: usize, index: usize) -> &'a AtomicU32 {
        self.lines.line(self.first + line).word(2 * index + 3)
    }
}

/// The members as a counter counts them.
pub(crate) fn count(members: usize) -> u32 {
    u32::try_from(members).expect("a group has at most 2^12 members because GroupSpec says so")
}

/// How one participant waits in one episode.
pub(crate) struct EpisodeWait<'a, P, W> {
    pub(crate) words: &'a GroupWords<'a>,
    pub(crate) episode: u32,
    pub(crate) policy: &'a mut P,
    pub(crate) watch: &'a mut W,
}

impl<P: WaitPolicy, W: Watch> EpisodeWait<'_, P, W> {
    /// Waits for a flag of the algorithm; `None` when the watch stopped it.
    #[inline]
    pub(crate) fn until(&mut self, flag: Flag<'_>) -> Option<()> {
        (self.policy.wait(flag, self.episode, self.watch) == WatchVerdict::Continue).then_some(())
    }
}
