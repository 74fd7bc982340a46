//! One participant's algorithm, chosen when the group is made.

use crate::algorithm::{Algorithm, EpisodeWait, GroupWords, Leadership, Protocol};
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

/// Defines [`AnyProtocol`] of these algorithms, which are named as their types are.
macro_rules! protocols {
    ($($algorithm:ident)*) => {
        /// Some algorithm. A branch on it costs less than an indirect call, and lets the fast path be
        /// inlined.
        #[derive(Debug)]
        pub(crate) enum AnyProtocol {
            Exchange(PairExchange),
            $($algorithm($algorithm),)*
        }

        impl AnyProtocol {
            /// How many lines `algorithm` needs for up to `members`.
            pub(crate) fn lines(algorithm: Algorithm, members: usize) -> usize {
                match algorithm {
                    $(Algorithm::$algorithm => $algorithm::lines(members),)*
                }
            }

            pub(crate) fn new(algorithm: Algorithm, rank: usize, members: usize) -> Self {
                match algorithm {
                    Algorithm::Dissemination if members == 2 => Self::Exchange(PairExchange::new(rank, members)),
                    $(Algorithm::$algorithm => Self::$algorithm($algorithm::new(rank, members)),)*
                }
            }

            #[inline]
            pub(crate) fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
                match self {
                    Self::Exchange(pair) => pair.arrive(words, episode),
                    $(Self::$algorithm(one) => one.arrive(words, episode),)*
                }
            }

            #[inline]
            pub(crate) fn complete(
                &mut self,
                wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>,
            ) -> Option<Leadership> {
                match self {
                    Self::Exchange(pair) => pair.complete(wait),
                    $(Self::$algorithm(one) => one.complete(wait),)*
                }
            }
        }
    };
}

protocols! { Central Competitive CombiningTree StaticTree Dissemination Tournament McsTree PerCore }

impl AnyProtocol {
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
            return pair.complete(EpisodeWait {
                words,
                episode,
                policy: &mut { glance },
                watch: &mut Unwatched,
            });
        }
        self.pass_others(words, episode, glance)
    }

    #[inline(never)]
    fn pass_others(
        &mut self,
        words: &GroupWords<'_>,
        episode: u32,
        mut policy: Glance,
    ) -> Option<Leadership> {
        self.arrive(words, episode);
        self.complete(EpisodeWait { words, episode, policy: &mut policy, watch: &mut Unwatched })
    }
}
