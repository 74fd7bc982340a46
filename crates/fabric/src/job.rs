//! What the deployment and the processes of its members both know.

use unisono_btin::{Group, Network, Operation, Turn};

/// A group, and how it synchronizes.
#[derive(Clone, Debug)]
pub struct Job {
    /// Who.
    pub group: Group,
    /// Where messages turn around.
    pub turn: Turn,
    /// How data are combined.
    pub operation: Operation,
}

impl Job {
    /// Whether many equal contributions are one.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.operation != Operation::Sum
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) network: &'a Network,
    pub(crate) jobs: &'a [Job],
}
