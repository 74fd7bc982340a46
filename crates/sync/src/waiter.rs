//! One waiter: its wait policy, and the words that it shares with the other members of its group.
//!
//! Barriers, windows and hand-offs hold one [`Waiter`] for each member. The adaptive policy needs three
//! answers, which it reads from words that all members of the group share:
//! - *Is there a processor for each member?* When a member first waits, it adds the processors that it may
//!   use to a common set ([`Regime`]). If there are more members than processors in the set, members share
//!   processors.
//! - *Does an awaited member run now?* Each member notes on which processor it arrives ([`Notes`]).
//! - *Awake or asleep?* One member measures the cost of episodes, and decides for all ([`Learner`]).
//!
//! The answers are hints. A wrong hint costs time, never correctness: every policy returns only when the flag
//! is reached or the watch stops. Cost of an episode: a countdown and a comparison where each member has a
//! processor; a store where members share processors.

use crate::adaptive::{Adaptive, Company};
use crate::atomics::now;
use crate::budget::SpinBudget;
use crate::flag::{Flag, Wakeups};
use crate::policies::{Block, Spin, SpinBlock, Yield};
use crate::regime::{Learner, Regime};
use crate::wait::{Wait, WaitPolicy};
use crate::watch::{Watch, WatchVerdict};
use crate::whereabouts::{Notes, Whereabouts};
use unisono_linux::clock::Nanos;

/// A waiter with any of the five policies.
#[derive(Clone, Debug)]
pub struct Waiter {
    way: WaiterWay,
    learner: Learner,
    announced: bool,
    crowded: bool,
    note: u32,
}

#[derive(Clone, Debug)]
enum WaiterWay {
    Spin(Spin),
    Yield(Yield),
    Block(Block),
    SpinBlock(SpinBlock),
    Adaptive(Adaptive),
}

/// The shared state by which the members of a group find out how to wait for one another.
#[derive(Clone, Copy, Debug)]
pub struct Fellows<'a> {
    pub regime: Regime<'a>,
    pub notes: Notes<'a>,
    pub members: usize,
}

impl<'a> Fellows<'a> {
    /// Hints about the other members, for the member at `place` when it waits for `episode`.
    pub fn company(self, place: usize, episode: u32) -> Company<'a> {
        let Self { regime, notes, members } = self;
        let whereabouts = Some(Whereabouts { notes, place, members, episode });
        Company { regime, crowded: regime.is_crowded(members), whereabouts }
    }
}

/// Episodes between two notes of a member with a processor of its own. In the others the member may take the
/// fast path. After a migration its note is wrong for at most 63 episodes, a few microseconds.
const NOTED_EVERY: u32 = 64;

/// A member checks whether processors are shared in the first four of this many episodes. In episode 0 the
/// common set may lack processors of members that arrive later; afterwards members and masks change rarely.
const REFRESHED_EVERY: u32 = 1024;

impl Waiter {
    /// For flags that are signalled with the same `wakeups`.
    pub fn new(wait: Wait, budget: SpinBudget, wakeups: Wakeups) -> Self {
        let way = match wait {
            Wait::Spin => WaiterWay::Spin(Spin),
            Wait::Yield => WaiterWay::Yield(Yield),
            Wait::Block => WaiterWay::Block(Block::new(wakeups)),
            Wait::SpinBlock => WaiterWay::SpinBlock(SpinBlock::new(budget, wakeups)),
            Wait::Adaptive => WaiterWay::Adaptive(Adaptive::new(budget, wakeups)),
        };
        Self { way, learner: Learner::default(), announced: false, crowded: false, note: 0 }
    }

    /// The policy of this waiter for one wait. Only the adaptive policy calls `company`, once a wait; a fixed
    /// policy does not need the hints and would pay some 30 instructions a wait for them.
    #[inline]
    pub fn among<'a, C: Fn() -> Company<'a>>(&'a mut self, company: C) -> WaiterAmong<'a, C> {
        WaiterAmong { way: &mut self.way, company }
    }

    /// Notes on which processor this member runs, if its last note is out of date. Called before each
    /// arrival.
    #[inline]
    pub fn note(&mut self, fellows: Fellows<'_>, place: usize, episode: u32) {
        // A model has no processors to note.
        if cfg!(loom) || !matches!(self.way, WaiterWay::Adaptive(_)) {
            return;
        }
        let refresh = episode % REFRESHED_EVERY < 4;
        if !refresh && !self.crowded && !episode.is_multiple_of(NOTED_EVERY) {
            return;
        }
        let Fellows { regime, notes, members } = fellows;
        if refresh {
            if !self.announced {
                self.announced = true;
                regime.announce_processors();
            }
            self.crowded = regime.is_crowded(members);
        }
        notes.write(place, self.crowded, episode, &mut self.note);
    }

    /// Whether a wait starts with a [`Glance`](crate::Glance): a few dozen polls before the policy runs.
    #[inline]
    pub fn glances(&self, regime: Regime<'_>) -> bool {
        match &self.way {
            WaiterWay::Spin(_) => true,
            WaiterWay::SpinBlock(policy) => policy.spins(),
            WaiterWay::Adaptive(_) => !self.crowded && !regime.is_asleep(),
            WaiterWay::Yield(_) | WaiterWay::Block(_) => false,
        }
    }

    /// The number of episodes that may pass on the fast path before this waiter has to renew its note or, if
    /// it `decides` for the group, to learn.
    #[inline]
    pub fn to_spare(&self, decides: bool, episode: u32) -> u32 {
        match &self.way {
            WaiterWay::Spin(_) => u32::MAX,
            WaiterWay::SpinBlock(policy) if policy.spins() => u32::MAX,
            WaiterWay::Adaptive(_) if cfg!(loom) => u32::MAX,
            WaiterWay::Adaptive(_) if self.crowded || episode % REFRESHED_EVERY < 4 => 0,
            WaiterWay::Adaptive(_) => {
                let before_note = NOTED_EVERY - 1 - episode % NOTED_EVERY;
                if decides { before_note.min(self.learner.to_spare()) } else { before_note }
            }
            WaiterWay::Yield(_) | WaiterWay::Block(_) | WaiterWay::SpinBlock(_) => 0,
        }
    }

    /// Counts `episodes` that passed on the fast path, where the waiter is not called.
    #[inline]
    pub fn catch_up(&mut self, episodes: u32) {
        self.learner.catch_up(episodes);
    }

    /// Counts a finished episode or wait, and now and then decides how all members wait. Exactly one of the
    /// members that share the regime calls this.
    #[inline]
    pub fn learn(&mut self, regime: Regime<'_>) {
        if !cfg!(loom) && matches!(self.way, WaiterWay::Adaptive(_)) {
            self.learner.learn(regime, self.blocks(), now);
        }
    }

    /// The number of sleeps of this waiter so far.
    pub fn blocks(&self) -> u64 {
        self.way.block().map_or(0, Block::blocks)
    }

    /// The time that this waiter has slept so far.
    pub fn asleep(&self) -> Nanos {
        self.way.block().map_or(Nanos::ZERO, Block::asleep)
    }
}

impl WaiterWay {
    /// The part of the policy that sleeps.
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
pub struct WaiterAmong<'a, C> {
    way: &'a mut WaiterWay,
    company: C,
}

macro_rules! dispatch {
    ($among:expr, $policy:ident => $answer:expr) => {
        match $among.way {
            WaiterWay::Spin($policy) => $answer,
            WaiterWay::Yield($policy) => $answer,
            WaiterWay::Block($policy) => $answer,
            WaiterWay::SpinBlock($policy) => $answer,
            WaiterWay::Adaptive(adaptive) => {
                let mut $policy = adaptive.among(($among.company)());
                $answer
            }
        }
    };
}

impl<'c, C: Fn() -> Company<'c>> WaitPolicy for WaiterAmong<'_, C> {
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
