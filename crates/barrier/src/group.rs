//! A barrier: its memory, and the places in it.

use crate::algorithm::Algorithm;
use crate::control::{Control, Standing};
use crate::error::Error;
use crate::guard::{Guard, Stopped};
use crate::membership::{self, Rank};
use crate::participant::Participant;
use crate::protocols::AnyProtocol;
use crate::spec::Spec;
use unisono_linux::futex::Scope;
use unisono_sync::{Block, Lines, SpinBudget, Wait, Wakeups};

/// A barrier, from which its participants are taken. Clones are the same barrier.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) control: Control,
    pub(crate) participants: usize,
    pub(crate) algorithm: Algorithm,
    pub(crate) wait: Wait,
    pub(crate) spin_budget: SpinBudget,
    pub(crate) wakeups: Wakeups,
}

impl Group {
    pub(crate) fn on_heap(spec: &Spec) -> Self {
        let lines = Lines::on_heap(Self::lines(spec));
        Self::create(spec, lines, Scope::Private)
    }

    pub(crate) fn create(spec: &Spec, lines: Lines, scope: Scope) -> Self {
        let control = Control { lines, capacity: spec.capacity, scope };
        for id in 0..spec.participants {
            control.member(id).set_standing(Standing::Reserved);
        }
        Self::over(spec, control, wakeups(spec.algorithm, spec.wait, scope))
    }

    pub(crate) fn over(spec: &Spec, control: Control, wakeups: Wakeups) -> Self {
        Self {
            control,
            participants: spec.participants,
            algorithm: spec.algorithm,
            wait: spec.wait,
            spin_budget: spec.spin_budget,
            wakeups,
        }
    }

    /// How many lines a group needs.
    pub(crate) fn lines(spec: &Spec) -> usize {
        Control::lines(spec.capacity) + AnyProtocol::lines(spec.algorithm, spec.capacity)
    }

    /// Takes all places that the group was made with, in order.
    ///
    /// # Errors
    /// [`Error::Taken`] when somebody has one already.
    pub fn participants(&self) -> Result<Vec<Participant>, Error> {
        (0..self.participants).map(|id| self.participant(id)).collect()
    }

    /// Takes the place `id` of those that the group was made with: the number errors name this member by.
    ///
    /// # Errors
    /// [`Error::NoSuchPlace`], [`Error::Taken`].
    pub fn participant(&self, id: usize) -> Result<Participant, Error> {
        if id >= self.participants {
            return Err(Error::NoSuchPlace { id, capacity: self.participants });
        }
        let member = self.control.member(id);
        if !member.change_standing(Standing::Reserved, Standing::Member) {
            return Err(Error::Taken { id, process: member.process() });
        }
        self.sign_in(id);
        Ok(Participant::new(self.clone(), id, Rank { rank: id, members: self.participants }, 0))
    }

    /// Joins as a new member: waits until the others have completed the episode they are in, and counts
    /// from the next one on.
    ///
    /// # Errors
    /// [`Error::TooMany`] when no place is left ([`Spec::capacity`]); [`Error::Gone`], [`Error::Disbanded`]
    /// when the others cannot go on or are no more.
    pub fn join(&self) -> Result<Participant, Error> {
        let (wanted, most) = (self.control.capacity + 1, self.control.capacity);
        let takes = |id: &usize| self.control.member(*id).change_standing(Standing::Free, Standing::Claimed);
        let id = (0..most).find(takes).ok_or(Error::TooMany { wanted, most })?;
        self.sign_in(id);
        self.control.member(id).set_standing(Standing::Asking);
        // Whatever episode somebody is gone from, the one after it cannot be joined.
        let mut guard = Guard::for_any_episode(&self.control);
        let mut policy = Block::new(Wakeups::Symmetric(self.control.scope));
        let mut asked = || -> Option<Participant> {
            membership::ask(&self.control, id, &mut guard, &mut policy)?;
            let episode = self.control.member(id).last_episode();
            let mut boundary = membership::boundary(&self.control, id, episode)?;
            let first = Control::lines(self.control.capacity);
            membership::cross(&self.control, first, &mut boundary, &mut policy, &mut guard)?;
            Some(Participant::new(self.clone(), id, boundary.rank?, episode))
        };
        let joined = asked();
        match (joined, guard.stopped) {
            (Some(participant), _) => Ok(participant),
            (None, Some(Stopped::Gone(gone))) => {
                self.control.member(id).set_standing(Standing::Retired);
                Err(Error::Gone(gone))
            }
            (None, _) => Err(Error::Disbanded),
        }
    }

    fn sign_in(&self, id: usize) {
        let process = std::process::id();
        #[cfg(not(loom))]
        let start = if self.control.scope == Scope::Shared {
            unisono_linux::pidfd::start_time(process).unwrap_or(0)
        } else {
            0
        };
        #[cfg(loom)]
        let start = 0;
        self.control.member(id).set_process(process, start);
    }

    /// The algorithm it uses.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The way its participants wait.
    #[must_use]
    pub fn wait_policy(&self) -> Wait {
        self.wait
    }

    /// How its signals find sleepers: decided once, when the group was made.
    #[must_use]
    pub fn wakeups(&self) -> Wakeups {
        self.wakeups
    }
}

/// How signals find sleepers: not at all, cheaply for the signaller, or cheaply for both.
fn wakeups(algorithm: Algorithm, wait: Wait, scope: Scope) -> Wakeups {
    match wait {
        // Made for cores that are shared, where sleeping is the rule.
        Wait::SpinBlock | Wait::Adaptive if algorithm == Algorithm::PerCore => Wakeups::Symmetric(scope),
        Wait::Spin | Wait::Yield => Wakeups::Never,
        Wait::Block => Wakeups::Symmetric(scope),
        Wait::SpinBlock | Wait::Adaptive => Wakeups::for_rare_sleepers(scope),
    }
}
