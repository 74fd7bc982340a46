//! One participant's algorithm, chosen when the group is made.

use crate::algorithm::{Algorithm, Place, Protocol, Role};
use crate::central::Central;
use crate::combining_tree::CombiningTree;
use crate::competitive::Competitive;
use crate::dissemination::Dissemination;
use crate::mcs_tree::McsTree;
use crate::per_core::PerCore;
use crate::static_tree::StaticTree;
use crate::tournament::Tournament;
use unisono_sync::{Brief, Exchange, Unwatched, WaitPolicy, Watch};

/// Some algorithm. A branch on it costs less than an indirect call, and lets the fast path be inlined.
#[derive(Debug)]
pub(crate) enum AnyProtocol {
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
            Algorithm::Dissemination => Self::Dissemination(Dissemination::new(rank, members)),
            Algorithm::Tournament => Self::Tournament(Tournament::new(rank, members)),
            Algorithm::McsTree => Self::McsTree(McsTree::new(rank, members)),
            Algorithm::PerCore => Self::PerCore(PerCore::new(rank, members)),
        }
    }

    #[inline]
    pub(crate) fn arrive(&mut self, place: &Place<'_>, episode: u32) {
        dispatch!(self, one => one.arrive(place, episode));
    }

    /// Whether this is the exchange of two, for which there is a quick way.
    #[inline]
    pub(crate) const fn is_exchange(&self) -> bool {
        matches!(self, Self::Dissemination(pair) if pair.is_exchange())
    }

    /// Takes up an exchange after an arrival that was made elsewhere.
    pub(crate) const fn has_arrived(&mut self) {
        if let Self::Dissemination(pair) = self {
            pair.has_arrived();
        }
    }

    /// The first moment of [`complete`](Self::complete), by polling only.
    #[inline]
    pub(crate) fn complete_briefly(&mut self, place: &Place<'_>, episode: u32) -> Option<Role> {
        match self {
            Self::Dissemination(pair) if pair.is_exchange() => {
                pair.complete(place, episode, &mut Exchange::default(), &mut Unwatched)
            }
            any => any.complete(place, episode, &mut Brief, &mut Unwatched),
        }
    }

    #[inline]
    pub(crate) fn complete<P: WaitPolicy, W: Watch>(
        &mut self,
        place: &Place<'_>,
        episode: u32,
        policy: &mut P,
        watch: &mut W,
    ) -> Option<Role> {
        dispatch!(self, one => one.complete(place, episode, policy, watch))
    }
}
