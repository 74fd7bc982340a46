//! What the deployment and the processes of its members both know.

use unisono_btin::{BarrierGroup, Network, ReductionOperator, TurnPoint};

/// A group, and how it synchronizes.
#[derive(Clone, Debug)]
pub struct BarrierJob {
    pub group: BarrierGroup,
    /// Where messages turn around.
    pub turn: TurnPoint,
    /// How data are combined.
    pub operation: ReductionOperator,
}

impl BarrierJob {
    /// Whether many equal contributions are one.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.operation != ReductionOperator::Sum
    }
}

#[derive(Clone, Copy)]
pub(crate) struct NodeContext<'a> {
    pub(crate) network: &'a Network,
    pub(crate) jobs: &'a [BarrierJob],
}
