//! The algorithms by name, and the trait they implement.

use std::fmt;
use std::str::FromStr;
use unisono_sync::atomics::AtomicU32;
use unisono_sync::{Flag, Lines, WaitPolicy, Wakeups, Watch, WatchVerdict};

/// The barrier algorithms by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// One counter, one word that everybody polls.
    Central,
    /// One counter that also counts who sleeps: the paper's competitive barrier.
    Competitive,
    /// Counters in a tree: the last at each node climbs on.
    CombiningTree,
    /// A fixed tree: a parent waits for its children, all wait for the root.
    StaticTree,
    /// Everybody signals somebody in each of log2 n rounds; no root.
    Dissemination,
    /// Pairs whose winner is known beforehand.
    Tournament,
    /// The last of each core's to come waits for the other cores, its fellows wait for it.
    PerCore,
    /// Two fixed trees, four to arrive, two to wake (Mellor-Crummey and Scott).
    McsTree,
}

impl Algorithm {
    /// Every algorithm, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Central,
        Self::Competitive,
        Self::CombiningTree,
        Self::StaticTree,
        Self::Dissemination,
        Self::Tournament,
        Self::McsTree,
        Self::PerCore,
    ];

    /// The name used on the command line and in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Central => "central",
            Self::Competitive => "competitive",
            Self::CombiningTree => "combining-tree",
            Self::StaticTree => "static-tree",
            Self::Dissemination => "dissemination",
            Self::Tournament => "tournament",
            Self::McsTree => "mcs-tree",
            Self::PerCore => "per-core",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No algorithm has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no barrier algorithm is called '{name}': one of central, competitive, combining-tree, static-tree, \
     dissemination, tournament, mcs-tree, per-core"
)]
pub struct BadAlgorithm {
    name: String,
}

impl FromStr for Algorithm {
    type Err = BadAlgorithm;

    fn from_str(name: &str) -> Result<Self, BadAlgorithm> {
        let named = |algorithm: &Self| algorithm.name() == name;
        Self::ALL.into_iter().find(named).ok_or_else(|| BadAlgorithm { name: name.to_owned() })
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
    fn complete<P: WaitPolicy, W: Watch>(
        &mut self,
        words: &GroupWords<'_>,
        episode: u32,
        policy: &mut P,
        watch: &mut W,
    ) -> Option<Leadership>;
}

/// What a participant is after an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leadership {
    /// The one of its episode.
    Leader,
    /// One of the others.
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

    /// Waits for a flag of the algorithm; `None` when the watch stopped it.
    #[inline]
    pub(crate) fn wait<P: WaitPolicy, W: Watch>(
        &self,
        flag: Flag<'_>,
        episode: u32,
        policy: &mut P,
        watch: &mut W,
    ) -> Option<()> {
        (policy.wait(flag, episode, watch) == WatchVerdict::Continue).then_some(())
    }

    /// As [`wait`](Self::wait), for a flag whose signaller needs this core.
    pub(crate) fn wait_behind<P: WaitPolicy, W: Watch>(
        &self,
        flag: Flag<'_>,
        episode: u32,
        policy: &mut P,
        watch: &mut W,
    ) -> Option<()> {
        (policy.wait_behind(flag, episode, watch) == WatchVerdict::Continue).then_some(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_and_a_wrong_one_lists_the_right_ones() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        let wrong = "centralised".parse::<Algorithm>().expect_err("not a name");
        for algorithm in Algorithm::ALL {
            assert!(wrong.to_string().contains(algorithm.name()), "{wrong} lacks {algorithm}");
        }
    }
}
