//! A group: the memory of a barrier, and the places in it.

use crate::algorithm::Algorithm;
use crate::control::{Control, PlaceStanding};
use crate::error::Error;
use crate::protocols::AnyProtocol;
use crate::spec::GroupSpec;
use unisono_linux::futex::Scope;
use unisono_sync::{Lines, SpinBudget, Wait, Wakeups};

/// A barrier with places for its participants. Clones share the same barrier.
#[derive(Clone, Debug)]
pub struct Group {
    pub(crate) control: Control,
    pub(crate) participants: usize,
    pub(crate) algorithm: Algorithm,
    pub(crate) wait: Wait,
    pub(crate) spin_budget: SpinBudget,
    pub(crate) wakeups: Wakeups,
}

impl GroupSpec {
    /// Makes a barrier for threads of this process. Never fails today; the result type leaves room
    /// for hosts on which the call can fail.
    pub fn for_threads(&self) -> Result<Group, Error> {
        Ok(Group::create(self, Lines::on_heap(Group::lines(self)), Scope::Private))
    }
}

impl Group {
    pub(crate) fn create(spec: &GroupSpec, lines: Lines, scope: Scope) -> Self {
        let control = Control::new(lines, spec.capacity, scope);
        for id in 0..spec.participants {
            control.member(id).set_standing(PlaceStanding::Reserved);
        }
        Self::over(spec, control, wakeups(spec.algorithm, spec.wait, scope))
    }

    pub(crate) fn over(spec: &GroupSpec, control: Control, wakeups: Wakeups) -> Self {
        Self {
            control,
            participants: spec.participants,
            algorithm: spec.algorithm,
            wait: spec.wait,
            spin_budget: spec.spin_budget,
            wakeups,
        }
    }

    pub(crate) fn lines(spec: &GroupSpec) -> usize {
        Control::lines(spec.capacity) + AnyProtocol::lines(spec.algorithm, spec.capacity)
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub fn wait_policy(&self) -> Wait {
        self.wait
    }

    /// Returns how the group's signals find sleepers. This was chosen once, when the group was made.
    pub fn wakeups(&self) -> Wakeups {
        self.wakeups
    }
}

/// Chooses how signals wake sleepers: never, without a fence instruction in the signaller, or with fences on
/// both sides.
fn wakeups(algorithm: Algorithm, wait: Wait, scope: Scope) -> Wakeups {
    match wait {
        // The per-core algorithm is for shared cores, where sleeping is the rule.
        Wait::SpinBlock | Wait::Adaptive if algorithm == Algorithm::PerCore => Wakeups::Symmetric(scope),
        Wait::Spin | Wait::Yield => Wakeups::Never,
        Wait::Block => Wakeups::Symmetric(scope),
        Wait::SpinBlock | Wait::Adaptive => Wakeups::for_rare_sleepers(scope),
    }
}
