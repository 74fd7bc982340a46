//! What can go wrong with gangs, by what a caller can do about it.

use std::io;
use unisono_linux::next_step::next_step;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request itself is wrong: change the command line.
    #[error("{0}")]
    Input(String),
    /// This host cannot do it; the text names what is missing and the remedy.
    #[error("{0}")]
    Host(String),
    #[error("cannot start {program:?}: {source}; is its name right? look for it: command -v {program}")]
    Start { program: String, source: io::Error },
    #[error("{}; {}", .0, next_step(&.0.source))]
    Group(#[from] unisono_linux::cgroup::Error),
    #[error("cannot {action}: {source}; {}", next_step(source))]
    System { action: &'static str, source: io::Error },
}

pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { action, source }
}
