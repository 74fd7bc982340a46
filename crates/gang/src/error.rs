//! What can go wrong with gangs, by what a caller can do about it.

use std::io;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request itself is wrong: change the command line.
    #[error("{0}")]
    Input(String),
    /// This host cannot do it; the text names what is missing and the remedy.
    #[error("{0}")]
    Host(String),
    /// A program could not be started.
    #[error("cannot start {program:?}: {source}")]
    Start {
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A control group refused an operation.
    #[error(transparent)]
    Group(#[from] unisono_linux::cgroup::Error),
    /// Another system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { action, source }
}
