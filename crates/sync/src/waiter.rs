//! One waiter: its wait policy, and the words that it shares with the other members of its group.
//!
//! Barriers, windows and hand-offs hold one [`Waiter`] for each member. The adaptive policy needs three
//! answers, which it reads from words that all members of the group share:
//! - *Is there a processor for each member?* When a member first waits, it adds the processors that it may
//!   use to a common set ([`Regime`]). If there are more members than processors in the set, members share
//!   processors.
//! - *Does an awaited member run now?* Each member notes on which processor it arrives ([`LastCpus`]).
//! - *Awake or asleep?* One member measures the cost of episodes, and decides for all ([`RegimeLearner`]).
//!
//! The answers are hints. A wrong hint costs time, never correctness: every policy returns only when the flag
//! is reached or the watch stops. Cost of an episode: a countdown and a comparison where each member has a
//! processor; a store where members share processors.

use crate::adaptive::{Adaptive, WaitHints};
use crate::atomics::now;
use crate::budget::SpinBudget;
use crate::flag::{Flag, Wakeups};
use crate::last_cpu::{LastCpuQuery, LastCpus};
use crate::policies::{Block, Spin, SpinBlock, Yield};
use crate::regime::{Regime, RegimeLearner};
use crate::wait::{Wait, WaitPolicy};
use crate::watch::{Watch, WatchVerdict};
use unisono_linux::clock::Duration;

/// A waiter with any of the five policies.
#[derive(Clone, Debug)]
pub struct Waiter {
    policy: AnyPolicy,
    learner: RegimeLearner,
    announced: bool,
    crowded: bool,
    note: u32,
}

#[derive(Clone, Debug)]
enum AnyPolicy {
    Spin(Spin),
    Yield(Yield),
    Block(Block),
    SpinBlock(SpinBlock),
    Adaptive(Adaptive),
}

/// The shared state by which the members of a group find out how to wait for one another.
#[derive(Clone, Copy, Debug)]
pub struct GroupState<'a> {
    pub regime: Regime<'a>,
    pub last_cpus: LastCpus<'a>,
    pub members: usize,
}

impl<'a> GroupState<'a> {
    /// Returns hints about the other members, for the member at `place` when it waits for `episode`.
    pub fn hints(self, place: usize, episode: u32) -> WaitHints<'a> {
        let Self { regime, last_cpus, members } = self;
        let last_cpus = Some(LastCpuQuery { last_cpus, place, members, episode });
        WaitHints { regime, crowded: regime.is_crowded(members), last_cpus }
    }
}

/// The number of episodes between two notes of a member with a processor of its own. In the episodes between,
/// the member may take the fast path. After a migration its note is wrong for at most 63 episodes, a few
/// microseconds.
const RECORD_INTERVAL: u32 = 64;

/// A member checks whether processors are shared in the first four of every `REFRESH_INTERVAL` episodes. In
/// episode 0 the common set may lack processors of members that arrive later; afterwards members and affinity
/// masks change rarely.
const REFRESH_INTERVAL: u32 = 1024;

impl Waiter {
    /// Creates a waiter for flags that are signalled with the same `wakeups`.
    pub fn new(wait: Wait, budget: SpinBudget, wakeups: Wakeups) -> Self {
        let policy = match wait {
            Wait::Spin => AnyPolicy::Spin(Spin),
            Wait::Yield => AnyPolicy::Yield(Yield),
            Wait::Block => AnyPolicy::Block(Block::new(wakeups)),
            Wait::SpinBlock => AnyPolicy::SpinBlock(SpinBlock::new(budget, wakeups)),
            Wait::Adaptive => AnyPolicy::Adaptive(Adaptive::new(budget, wakeups)),
        };
        Self { policy, learner: RegimeLearner::default(), announced: false, crowded: false, note: 0 }
    }

    /// Returns the policy of this waiter for one wait. Only the adaptive policy calls `hints`, once a wait; a
    /// fixed policy does not need the hints and would pay some 30 instructions a wait for them.
    #[inline]
    pub fn policy<'a, C: Fn() -> WaitHints<'a>>(&'a mut self, hints: C) -> WaiterPolicy<'a, C> {
        WaiterPolicy { policy: &mut self.policy, hints }
    }

    /// Notes on which processor this member runs, if its last note is out of date. Called before each
    /// arrival.
    #[inline]
    pub fn record_cpu(&mut self, group: GroupState<'_>, place: usize, episode: u32) {
        // A model has no processors to note.
        if cfg!(loom) || !matches!(self.policy, AnyPolicy::Adaptive(_)) {
            return;
        }
        let refresh = episode % REFRESH_INTERVAL < 4;
        if !refresh && !self.crowded && !episode.is_multiple_of(RECORD_INTERVAL) {
            return;
        }
        let GroupState { regime, last_cpus, members } = group;
        if refresh {
            if !self.announced {
                self.announced = true;
                regime.enter(members);
            }
            self.crowded = regime.is_crowded(members);
        }
        last_cpus.write(place, self.crowded, episode, &mut self.note);
    }

    /// Returns whether a wait starts with an [`InitialPoll`](crate::InitialPoll): a few dozen polls before
    /// the policy runs.
    #[inline]
    pub fn polls_first(&self, regime: Regime<'_>) -> bool {
        match &self.policy {
            AnyPolicy::Spin(_) => true,
            AnyPolicy::SpinBlock(policy) => policy.spins(),
            AnyPolicy::Adaptive(_) => !self.crowded && !regime.is_asleep(),
            AnyPolicy::Yield(_) | AnyPolicy::Block(_) => false,
        }
    }

    /// Returns the number of episodes that may pass on the fast path before this waiter has to renew its note
    /// or, if it `decides` for the group, to learn.
    #[inline]
    pub fn uncounted_remaining(&self, decides: bool, episode: u32) -> u32 {
        match &self.policy {
            AnyPolicy::Spin(_) => u32::MAX,
            AnyPolicy::SpinBlock(policy) if policy.spins() => u32::MAX,
            AnyPolicy::Adaptive(_) if cfg!(loom) => u32::MAX,
            AnyPolicy::Adaptive(_) if self.crowded || episode % REFRESH_INTERVAL < 4 => 0,
            AnyPolicy::Adaptive(_) => {
                let before_note = RECORD_INTERVAL - 1 - episode % RECORD_INTERVAL;
                if decides { before_note.min(self.learner.uncounted_remaining()) } else { before_note }
            }
            AnyPolicy::Yield(_) | AnyPolicy::Block(_) | AnyPolicy::SpinBlock(_) => 0,
        }
    }

    /// Counts `episodes` that passed on the fast path, where the waiter is not called.
    #[inline]
    pub fn add_uncounted(&mut self, episodes: u32) {
        self.learner.add_uncounted(episodes);
    }

    /// Counts a finished episode or wait, and now and then decides how all members wait. Exactly one of the
    /// members that share the regime calls this.
    #[inline]
    pub fn learn(&mut self, regime: Regime<'_>) {
        if !cfg!(loom) && matches!(self.policy, AnyPolicy::Adaptive(_)) {
            let (sleeps, shares) = (self.blocks(), self.crowded);
            self.learner.learn(regime, sleeps, now, || shares);
        }
    }

    /// Returns the number of sleeps of this waiter so far.
    pub fn blocks(&self) -> u64 {
        self.policy.block().map_or(0, Block::blocks)
    }

    /// Returns the time that this waiter has slept so far.
    pub fn asleep(&self) -> Duration {
        self.policy.block().map_or(Duration::ZERO, Block::asleep)
    }
}

impl AnyPolicy {
    /// Returns the part of the policy that sleeps.
    fn block(&self) -> Option<&Block> {
        match self {
            Self::Spin(_) | Self::Yield(_) => None,
            Self::Block(block) => Some(block),
            Self::SpinBlock(policy) => Some(policy.block()),
            Self::Adaptive(policy) => Some(policy.block()),
        }
    }
}

/// A waiter's policy for one wait, with a way to ask for the hints about the other members.
#[derive(Debug)]
pub struct WaiterPolicy<'a, C> {
    policy: &'a mut AnyPolicy,
    hints: C,
}

macro_rules! dispatch {
    ($waiter:expr, $policy:ident => $answer:expr) => {
        match $waiter.policy {
            AnyPolicy::Spin($policy) => $answer,
            AnyPolicy::Yield($policy) => $answer,
            AnyPolicy::Block($policy) => $answer,
            AnyPolicy::SpinBlock($policy) => $answer,
            AnyPolicy::Adaptive(adaptive) => {
                let mut $policy = adaptive.with_hints(($waiter.hints)());
                $answer
            }
        }
    };
}

impl<'c, C: Fn() -> WaitHints<'c>> WaitPolicy for WaiterPolicy<'_, C> {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        dispatch!(self, policy => policy.wait(flag, target, watch))
    }

    #[inline]
    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<WatchVerdict> {
        dispatch!(self, policy => policy.wait_briefly(flag, target, watch))
    }

    fn wait_behind<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        dispatch!(self, policy => policy.wait_behind(flag, target, watch))
    }
}
