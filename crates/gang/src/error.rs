//! Errors of gang scheduling, one variant for each action that the caller can take.

use std::io;
use std::path::{Path, PathBuf};
use unisono_linux::next_step::next_step;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is wrong: change the command line.
    #[error("{0}")]
    Input(String),
    /// This host lacks a prerequisite; the text names it and the remedy.
    #[error("{0}")]
    Host(String),
    /// The error in `error`, with an action of the user that would help. A program that offers the action
    /// adds its command to the message.
    #[error("{error}")]
    Hinted { error: Box<Error>, hint: GangHint },
    /// The program's file was found before.
    #[error("cannot start {program}: {}", start_problem(source))]
    Start { program: String, source: io::Error },
    #[error("{}; {}", .0, next_step(&.0.source))]
    Group(#[from] unisono_linux::cgroup::Error),
    #[error("cannot {action}: {source}; {}", next_step(source))]
    System { action: &'static str, source: io::Error },
    #[error("cannot {action} {}: {source}; {}", path.display(), next_step(source))]
    Journal { action: &'static str, path: PathBuf, source: io::Error },
}

/// An action of the user that would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GangHint {
    StartDaemon,
    /// Let users other than root connect to the daemon.
    OpenDaemon,
    ListGangs,
    /// Run gangs without control groups, by stop signals.
    RunUnprivileged,
    /// Give each gang a command.
    NameCommands,
}

impl Error {
    pub(crate) fn hinting(self, hint: GangHint) -> Self {
        Self::Hinted { error: Box::new(self), hint }
    }
}

fn start_problem(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => "the interpreter that it names does not exist".to_owned(),
        _ => format!("{source}; {}", next_step(source)),
    }
}

pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { action, source }
}

/// Returns the error of an action on a journal or on the directory of journals.
pub(crate) fn journal_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Journal { action, path, source }
}
