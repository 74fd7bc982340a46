//! The path a window's operations take.

use crate::model::{Error, Rank, Waits};
use crate::path::mapped::Direct;
use crate::path::message::{Memory, Shared};
use std::sync::Arc;
use unisono_sync::Waited;

/// Messages, or shared memory.
#[derive(Debug)]
pub(crate) enum Backend {
    /// The message path; the window's number within its job.
    Message { shared: Arc<Shared>, number: u32 },
    /// The direct path.
    Direct(Box<Direct>),
}

impl Backend {
    pub(crate) fn mapped(&self, rank: Rank) -> Option<*mut u8> {
        match self {
            Self::Message { .. } => None,
            Self::Direct(direct) => Some(direct.peers[rank.index()].base).filter(|base| !base.is_null()),
        }
    }

    /// What all windows of the job share.
    pub(crate) fn shared(&self) -> &Shared {
        match self {
            Self::Message { shared, .. } => shared,
            Self::Direct(direct) => direct.shared(),
        }
    }

    /// How long this member has waited for flags of the window's; what it waited for messages is counted by call.
    pub(crate) fn waits(&self) -> Waits {
        match self {
            Self::Message { .. } => Waits::default(),
            Self::Direct(direct) => direct.waits(),
        }
    }

    /// How long this member has waited to combine elements, since the last time.
    #[inline]
    pub(crate) fn take_gate_waits(&mut self) -> Waited {
        match self {
            Self::Message { .. } => Waited::default(),
            Self::Direct(direct) => direct.take_gate_waits(),
        }
    }

    pub(crate) fn free(&mut self) -> Result<(), Error> {
        match self {
            Self::Message { shared, number } => {
                shared.complete_everywhere(*number)?;
                shared.barrier(*number)?;
                let mut core = shared.core();
                core.forget_unlocks(*number);
                core.forget_window(*number);
                core.ports.remove(number);
                Ok(())
            }
            Self::Direct(direct) => direct.free(),
        }
    }

    /// Whether nothing asked of `target` is still to come.
    pub(crate) fn is_settled(&self, target: Rank) -> bool {
        match self {
            Self::Message { shared, number } => {
                let mut core = shared.core();
                let peer = &core.port(*number).peers[target.index()];
                peer.queue.is_empty() && peer.outstanding == 0
            }
            Self::Direct(direct) => direct.is_settled(target),
        }
    }

    /// The window goes away without the others: its memory is out of reach from now on.
    pub(crate) fn abandon(&mut self) {
        match self {
            Self::Message { shared, number } => {
                let mut core = shared.core();
                core.forget_unlocks(*number);
                if let Some(port) = core.ports.get_mut(number) {
                    port.memory = Memory::Attached(Vec::new());
                    port.forget();
                }
            }
            // Its barrier tells the others when it is dropped; its memory is the segment's.
            Self::Direct(_) => {}
        }
    }
}
