//! Errors of the data plane.

use std::io;
use unisono_linux::bpf::NotLoaded;
use unisono_linux::bpf::compile::ProgramError;
use unisono_linux::netlink::Refused;

/// The errors of this crate, by the possible reactions of a caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This host lacks a feature. The text names it, and how to get it.
    #[error("{0}")]
    Host(String),
    /// The data plane cannot serve the network or the group.
    #[error("{0}")]
    Input(String),
    /// The kernel refused a request that it should grant to a process with the required capabilities.
    #[error(transparent)]
    Netlink(#[from] Refused),
    #[error(transparent)]
    Program(#[from] NotLoaded),
    #[error(transparent)]
    NotCompiled(ProgramError),
    /// A cable that barriers need is down, and there is a way around it. The text names the cable.
    #[error("{0}")]
    Cable(String),
    /// The barrier did not end, or a node has ended. The text names the node or link.
    #[error("{0}")]
    Barrier(String),
    #[error("cannot {what}: {error}")]
    System {
        what: String,
        #[source]
        error: io::Error,
    },
}

impl From<ProgramError> for Error {
    fn from(error: ProgramError) -> Self {
        match error {
            ProgramError::Host(what) => Self::Host(what),
            ProgramError::Refused(refused) => Self::Program(refused),
            error => Self::NotCompiled(error),
        }
    }
}

impl Error {
    /// Adds the failed action to a system error.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::System { what, error }
    }
}
