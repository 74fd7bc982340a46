//! One participant's algorithm, chosen when the group is made.

use crate::algorithm::{Algorithm, GroupWords, Leadership, Protocol};
use crate::central::Central;
use crate::combining_tree::CombiningTree;
use crate::competitive::Competitive;
use crate::dissemination::Dissemination;
use crate::exchange::PairExchange;
use crate::mcs_tree::McsTree;
use crate::per_core::PerCore;
use crate::static_tree::StaticTree;
use crate::tournament::Tournament;
use unisono_sync::{Glance, Stretch, Unwatched, WaitPolicy, Watch};

/// Some algorithm. A branch on it costs less than an indirect call, and lets the fast path be inlined.
#[derive(Debug)]
pub(crate) enum AnyProtocol {
    Exchange(PairExchange),
    Central(Central),
    Competitive(Competitive),
    CombiningTree(CombiningTree),
    StaticTree(StaticTree),
    Dissemination(Dissemination),
    Tournament(Tournament),
    McsTree(McsTree),
    PerCore(PerCore),
}

macro_rules! dispatch {
    ($any:expr, $one:ident => $answer:expr) => {
        match $any {
            AnyProtocol::Exchange($one) => $answer,
            AnyProtocol::Central($one) => $answer,
            AnyProtocol::Competitive($one) => $answer,
            AnyProtocol::CombiningTree($one) => $answer,
            AnyProtocol::StaticTree($one) => $answer,
            AnyProtocol::Dissemination($one) => $answer,
            AnyProtocol::Tournament($one) => $answer,
            AnyProtocol::McsTree($one) => $answer,
            AnyProtocol::PerCore($one) => $answer,
        }
    };
}

impl AnyProtocol {
    /// How many lines `algorithm` needs for up to `members`.
    pub(crate) fn lines(algorithm: Algorithm, members: usize) -> usize {
        match algorithm {
            Algorithm::Central => Central::lines(members),
            Algorithm::Competitive => Competitive::lines(members),
            Algorithm::CombiningTree => CombiningTree::lines(members),
            Algorithm::StaticTree => StaticTree::lines(members),
            Algorithm::Dissemination => Dissemination::lines(members),
            Algorithm::Tournament => Tournament::lines(members),
            Algorithm::McsTree => McsTree::lines(members),
            Algorithm::PerCore => PerCore::lines(members),
        }
    }

    pub(crate) fn new(algorithm: Algorithm, rank: usize, members: usize) -> Self {
        match algorithm {
            Algorithm::Central => Self::Central(Central::new(rank, members)),
            Algorithm::Competitive => Self::Competitive(Competitive::new(rank, members)),
            Algorithm::CombiningTree => Self::CombiningTree(CombiningTree::new(rank, members)),
            Algorithm::StaticTree => Self::StaticTree(StaticTree::new(rank, members)),
            Algorithm::Dissemination if members == 2 => Self::Exchange(PairExchange::new(rank, members)),
            Algorithm::Dissemination => Self::Dissemination(Dissemination::new(rank, members)),
            Algorithm::Tournament => Self::Tournament(Tournament::new(rank, members)),
            Algorithm::McsTree => Self::McsTree(McsTree::new(rank, members)),
            Algorithm::PerCore => Self::PerCore(PerCore::new(rank, members)),
        }
    }

    #[inline]
    pub(crate) fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        dispatch!(self, one => one.arrive(words, episode));
    }

    /// How episodes of this algorithm are passed with a glance each.
    pub(crate) fn stretch(&self) -> Stretch {
        if matches!(self, Self::Exchange(_)) { Stretch::of_exchange() } else { Stretch::default() }
    }

    /// Arrives, and completes if the signals come within a glance.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        words: &GroupWords<'_>,
        episode: u32,
        glance: Glance,
    ) -> Option<Leadership> {
        // An exchange takes 30 ns, so it alone is inlined into the caller; the others would cost it
        // registers.
        if let Self::Exchange(pair) = self {
            pair.arrive(words, episode);
            return pair.complete(words, episode, &mut { glance }, &mut Unwatched);
        }
        self.pass_others(words, episode, glance)
    }

    #[inline(never)]
    fn pass_others(
        &mut self,
        words: &GroupWords<'_>,
        episode: u32,
        mut glance: Glance,
    ) -> Option<Leadership> {
        self.arrive(words, episode);
        self.complete(words, episode, &mut glance, &mut Unwatched)
    }

    #[inline]
    pub(crate) fn complete<P: WaitPolicy, W: Watch>(
        &mut self,
        words: &GroupWords<'_>,
        episode: u32,
        policy: &mut P,
        watch: &mut W,
    ) -> Option<Leadership> {
        dispatch!(self, one => one.complete(words, episode, policy, watch))
    }
}
