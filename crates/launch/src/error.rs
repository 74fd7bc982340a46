//! Why a job could not be started or watched.

use std::io;
use std::path::{Path, PathBuf};
use unisono_linux::Errno;

/// Why a job could not be started or watched. Whatever was started has been ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Input(String),
    /// There is no such program, or it cannot be executed.
    #[error("cannot start {program}: {problem}; nothing was started", program = .program.display())]
    Program { program: PathBuf, problem: String },
    #[error("cannot {doing}: {source}{remedy}")]
    System {
        doing: String,
        #[source]
        source: io::Error,
        /// What to do about it, if known; begins with "; ".
        remedy: &'static str,
    },
}

impl Error {
    /// Why a program could not be started, in words where the reason is its file; `doing` is what the kernel
    /// refused otherwise.
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
            // the limits that many processes meet first
            let remedy = match Errno::from_io_error(&source) {
                Some(Errno::MFILE) => "; raise the limit of open files: ulimit -n 65536",
                Some(Errno::AGAIN) => "; raise the limit of processes: ulimit -u",
                _ => "",
            };
            Self::System { doing, source, remedy }
        }
    }
}
