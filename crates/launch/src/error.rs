//! Errors in starting or supervising a job.

use std::io;
use std::path::{Path, PathBuf};
use unisono_linux::Errno;

/// The reason why a job could not be started or supervised. All processes that were started have been ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments are invalid.
    #[error("{0}")]
    Input(String),
    /// The program does not exist, or it cannot be executed.
    #[error("cannot start {program}: {problem}; nothing was started", program = .program.display())]
    Program { program: PathBuf, problem: String },
    #[error("cannot {doing}: {source}{remedy}")]
    System {
        doing: String,
        #[source]
        source: io::Error,
        /// How to correct the problem, if known; it begins with "; ".
        remedy: &'static str,
    },
}

impl Error {
    /// Makes the error for a program that cannot be started, with an explanation if the program's file is the
    /// cause. For other causes, `doing` describes the refused operation.
    pub fn start(program: &Path, doing: String) -> impl FnOnce(io::Error) -> Self {
        move |error| {
            let problem = match error.kind() {
                io::ErrorKind::NotFound if program.exists() && program.components().count() > 1 => {
                    "the interpreter that it names does not exist".to_owned()
                }
                io::ErrorKind::NotFound if program.components().count() > 1 => {
                    "there is no such file".to_owned()
                }
                io::ErrorKind::NotFound => format!(
                    "there is no such program on PATH (for one in this directory write ./{})",
                    program.display()
                ),
                io::ErrorKind::PermissionDenied => "it is not executable (try: chmod +x)".to_owned(),
                io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
                _ if Errno::from_io_error(&error) == Some(Errno::NOEXEC) => {
                    "it is no program (the format is unknown)".to_owned()
                }
                _ => return Error::system(doing)(error),
            };
            Self::Program { program: program.to_owned(), problem }
        }
    }

    pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| {
            // the limits that a job with many processes reaches first
            let remedy = match Errno::from_io_error(&source) {
                Some(Errno::MFILE) => "; raise the limit of open files: ulimit -n 65536",
                Some(Errno::AGAIN) => "; raise the limit of processes: ulimit -u",
                _ => "",
            };
            Self::System { doing, source, remedy }
        }
    }
}
