//! Errors of the data plane.

use std::io;
use unisono_linux::bpf::NotLoaded;
use unisono_linux::bpf::compile::ProgramError;
use unisono_linux::netlink::Refused;

/// What can go wrong, by what a caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This host lacks something: what, and how to get it.
    #[error("{0}")]
    Host(String),
    /// The network or the group does not fit a data plane.
    #[error("{0}")]
    Input(String),
    /// The kernel refused something that a host with the capabilities should do.
    #[error(transparent)]
    Netlink(#[from] Refused),
    #[error(transparent)]
    Program(#[from] NotLoaded),
    #[error(transparent)]
    NotCompiled(ProgramError),
    /// A cable that barriers need is down and there is a way around it; names the cable.
    #[error("{0}")]
    Cable(String),
    /// The barrier did not end, or a node ended; says which.
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
    /// Adds to a system error what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::System { what, error }
    }
}
