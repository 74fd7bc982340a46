//! Why a job could not be started or watched.

use std::io;
use std::path::PathBuf;

/// Why a job could not be started or watched. Whatever was started has been ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Input(String),
    /// There is no such program, or it cannot be executed.
    #[error("cannot start {program}: {problem}; nothing was started", program = .program.display())]
    Program {
        /// As it was given.
        program: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The kernel refused.
    #[error("cannot {doing}: {source}{remedy}")]
    System {
        /// What was attempted.
        doing: String,
        /// The reason.
        #[source]
        source: io::Error,
        /// What to do about it, if known; begins with "; ".
        remedy: &'static str,
    },
}

impl Error {
    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| {
            // EMFILE, EAGAIN: the limits that many processes meet first
            let remedy = match source.raw_os_error() {
                Some(24) => "; raise the limit of open files: ulimit -n 65536",
                Some(11) => "; raise the limit of processes: ulimit -u",
                _ => "",
            };
            Self::System { doing, source, remedy }
        }
    }
}
