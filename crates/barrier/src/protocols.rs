//! One participant's side of the group's algorithm, as an enum of all algorithms.

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
use unisono_sync::{EpisodeBatch, InitialPoll, Unwatched, WaitPolicy, Watch};

/// Defines [`AnyProtocol`] from the names of the algorithms; each type has its algorithm's name.
macro_rules! protocols {
    ($($algorithm:ident)*) => {
        /// Any of the algorithms. A branch on the variant costs less than an indirect call, and lets the
        /// compiler inline the fast path.
        #[derive(Debug)]
        pub(crate) enum AnyProtocol {
            Exchange(PairExchange),
            $($algorithm($algorithm),)*
        }

        impl AnyProtocol {
            /// Returns the number of lines that `algorithm` needs for up to `members` members.
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
    /// Returns a batch of the kind for this algorithm, without episodes yet.
    pub(crate) fn batch(&self) -> EpisodeBatch {
        if matches!(self, Self::Exchange(_)) { EpisodeBatch::for_exchange() } else { EpisodeBatch::default() }
    }

    /// Arrives, and completes the episode if the signals come within the initial polls.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        words: &GroupWords<'_>,
        episode: u32,
        initial_poll: InitialPoll,
    ) -> Option<Leadership> {
        // An exchange takes 30 ns, so only the exchange is inlined into the caller; inlining the other
        // algorithms would leave it fewer registers.
        if let Self::Exchange(pair) = self {
            pair.arrive(words, episode);
            return pair.complete(EpisodeWait {
                words,
                episode,
                policy: &mut { initial_poll },
                watch: &mut Unwatched,
            });
        }
        self.pass_others(words, episode, initial_poll)
    }

    #[inline(never)]
    fn pass_others(
        &mut self,
        words: &GroupWords<'_>,
        episode: u32,
        mut policy: InitialPoll,
    ) -> Option<Leadership> {
        self.arrive(words, episode);
        self.complete(EpisodeWait { words, episode, policy: &mut policy, watch: &mut Unwatched })
    }
}
