//! A barrier: its memory, and the places in it.

use crate::algorithm::Algorithm;
use crate::control::{Control, Standing};
use crate::error::Error;
use crate::participant::Participant;
use crate::spec::Spec;
use unisono_linux::futex::Scope;
use unisono_sync::{Lines, SpinBudget, Wait, Wakeups};

/// A barrier, from which its participants are taken.
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
        let count = Control::lines(spec.capacity) + algorithm_lines(spec);
        Self::create(spec, Lines::on_heap(count), Scope::Private)
    }

    #[cfg(not(loom))]
    pub(crate) fn in_shared_memory(spec: &Spec) -> Result<Self, Error> {
        use unisono_linux::shared_memory::SharedMemory;
        let count = Control::lines(spec.capacity) + algorithm_lines(spec);
        let region = SharedMemory::create(count * size_of::<unisono_sync::Line>())
            .map_err(|source| Error::SharedMemory { path: None, source })?;
        Ok(Self::create(spec, Lines::in_region(region), Scope::Shared))
    }

    fn create(spec: &Spec, lines: Lines, scope: Scope) -> Self {
        let control = Control { lines, capacity: spec.capacity, scope };
        for id in 0..spec.participants {
            control.member(id).set_standing(Standing::Reserved);
        }
        let wakeups = match spec.wait {
            Wait::Spin | Wait::Yield => Wakeups::Never,
            Wait::Block => Wakeups::Symmetric(scope),
            Wait::SpinBlock | Wait::Adaptive => Wakeups::for_rare_sleepers(scope),
        };
        Self {
            control,
            participants: spec.participants,
            algorithm: spec.algorithm,
            wait: spec.wait,
            spin_budget: spec.spin_budget,
            wakeups,
        }
    }

    /// Takes all places, in order.
    ///
    /// # Errors
    /// [`Error::Taken`] when somebody has one already.
    pub fn participants(&self) -> Result<Vec<Participant>, Error> {
        (0..self.participants).map(|id| self.participant(id)).collect()
    }

    /// Takes the place `id`: the number errors name this member by.
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
        member.set_process(std::process::id(), 0);
        Ok(Participant::new(self.clone(), id))
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

fn algorithm_lines(spec: &Spec) -> usize {
    use crate::algorithm::Protocol;
    crate::central::Central::lines(spec.capacity)
}
