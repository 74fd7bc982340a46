//! The path a window's operations take.

use crate::error::Error;
use crate::message::{Memory, Shared};
use crate::rank::Rank;
use std::sync::Arc;

/// Messages, or shared memory.
#[derive(Debug)]
pub(crate) enum Backend {
    /// The message path; the window's number within its job.
    Message { shared: Arc<Shared>, number: u32 },
}

impl Backend {
    pub(crate) fn mapped(&self, _rank: Rank) -> Option<*mut u8> {
        match self {
            Self::Message { .. } => None,
        }
    }

    pub(crate) fn free(&mut self) -> Result<(), Error> {
        match self {
            Self::Message { shared, number } => {
                shared.complete_everywhere(*number)?;
                shared.barrier(*number)?;
                shared.core().ports.remove(number);
                Ok(())
            }
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
        }
    }

    /// The window goes away without the others: its memory is out of reach from now on.
    pub(crate) fn abandon(&mut self) {
        match self {
            Self::Message { shared, number } => {
                if let Some(port) = shared.core().ports.get_mut(number) {
                    port.memory = Memory::Attached(Vec::new());
                    port.forget();
                }
            }
        }
    }
}
