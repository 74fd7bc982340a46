//! The data that the deployment and its members' processes share.

use unisono_btin::{BarrierGroup, ReductionOperator, SwitchNetwork, TurnPoint};

#[derive(Clone, Debug)]
pub struct BarrierJob {
    pub group: BarrierGroup,
    pub turn: TurnPoint,
    pub operation: ReductionOperator,
}

impl BarrierJob {
    /// Returns whether the operation is idempotent: equal values combine to the same value.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.operation != ReductionOperator::Sum
    }
}

#[derive(Clone, Copy)]
pub(crate) struct NodeContext<'a> {
    pub(crate) network: &'a SwitchNetwork,
    pub(crate) jobs: &'a [BarrierJob],
}
