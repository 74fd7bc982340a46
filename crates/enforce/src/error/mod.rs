//! What can go wrong, by what can be done about it.

pub(crate) mod interposed;

use crate::journal::JournalError;
use std::path::PathBuf;
use unisono_fairqueue::{PolicyError, Position};
use unisono_linux::bpf::NotLoaded;
use unisono_linux::cgroup;
use unisono_linux::netlink::Refused;

/// Why a policy is not enforced, not shown or not cleared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such device.
    #[error("there is no device {device} here; there are {}", known.join(", "))]
    NoDevice {
        /// What was asked for.
        device: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Something in the policy is not to be had on this host.
    #[error("{at}: {what}")]
    NotHere {
        /// Where it is written.
        at: Position,
        /// What is not there, and what to do.
        what: String,
    },
    /// Something in the policy cannot be had in this place.
    #[error("{what}")]
    NotByThis {
        /// What, and where it can be had.
        what: String,
    },
    /// Somebody else has set the device up, in a way that could not be put back.
    #[error(
        "{device} has a queueing discipline `{kind}` that could not be put back afterwards; take it away first: tc qdisc \
         del dev {device} root"
    )]
    Occupied {
        device: String,
        /// The discipline's kind.
        kind: String,
    },
    /// Somebody else has what a policy of incoming packets needs.
    #[error("{what}; {remedy}")]
    InTheWay {
        what: String,
        /// What to do.
        remedy: String,
    },
    /// Another place enforces a policy there.
    #[error(
        "{device} has a policy of the backend {backend}; clear it first: unisono queue clear --dev {device}"
    )]
    OtherBackend { device: String, backend: String },
    /// No policy is enforced there.
    #[error("{device} has no policy; apply one: unisono queue apply POLICY --dev {device}")]
    NoPolicy { device: String },
    /// This host lacks something.
    #[error("{what}; {remedy}")]
    Lacks {
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The kernel refused something.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It was stopped half way, and what was there before is there again.
    #[error("stopped by {by}; {device} is as it was")]
    Stopped { by: String, device: String },
    /// It failed half way, and what was there before could not be put back.
    #[error("{error}; and {device} could not be put back: {undo}. Try: unisono queue clear --dev {device}")]
    HalfWay {
        device: String,
        /// What failed first.
        error: Box<Error>,
        /// What failed then.
        undo: Box<Error>,
    },
    /// Another place could not come into force.
    #[error("{error}; the policy before is in force on {device}, with the backend {backend} as before")]
    AsBefore {
        device: String,
        /// The place that is in force.
        backend: String,
        error: Box<Error>,
    },
    /// Another place could not come into force, and the one before could not either.
    #[error(
        "{error}; and the policy before (backend {backend}) could not be put in force again: {again}. {device} has no policy now"
    )]
    WithoutPolicy {
        device: String,
        /// The place before.
        backend: String,
        /// What failed first.
        error: Box<Error>,
        /// What failed then.
        again: Box<Error>,
    },
    /// Another place is in force, but the one before has left something.
    #[error(
        "{device} has this policy now, but what the backend {backend} had there could not be taken away: {error}. Any          `unisono queue` tries it again"
    )]
    Beside {
        device: String,
        /// The place before.
        backend: String,
        error: Box<Error>,
    },
    /// Two commands changed the place in force at the same time.
    #[error(
        "another command has changed the policy of {device} meanwhile; nothing else was changed. Try again"
    )]
    Meanwhile { device: String },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The policy in the journal is none.
    #[error("the policy in the journal: {0}")]
    Policy(#[from] PolicyError),
    /// A control group cannot be read or changed.
    #[error(transparent)]
    Cgroup(#[from] cgroup::Error),
    /// A file says no.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// What was tried.
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// The system says no.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        source: std::io::Error,
    },
    /// The classifier was not loaded.
    #[error(transparent)]
    Classifier(#[from] NotLoaded),
    /// Traffic cannot be interposed.
    #[error(transparent)]
    Interposed(#[from] interposed::Error),
}

/// Who can do something about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// Whoever wrote the policy or the command.
    Input,
    /// Whoever looks after the host.
    Host,
    /// Neither; the work failed.
    Work,
}

impl Error {
    /// This error, or if not even what was there before could be put back, that.
    pub(crate) fn unless_half_way(self, device: &str, undone: Result<(), Self>) -> Self {
        match undone {
            Ok(()) => self,
            Err(undo) => {
                Self::HalfWay { device: device.to_owned(), error: Box::new(self), undo: Box::new(undo) }
            }
        }
    }

    /// Who can do something about it.
    #[must_use]
    pub fn blame(&self) -> Blame {
        const NOT_PERMITTED: [i32; 2] = [1, 13]; // EPERM, EACCES
        let denied = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        match self {
            Self::NoDevice { .. }
            | Self::NotHere { .. }
            | Self::NotByThis { .. }
            | Self::Occupied { .. }
            | Self::InTheWay { .. }
            | Self::OtherBackend { .. }
            | Self::NoPolicy { .. } => Blame::Input,
            Self::Lacks { .. } => Blame::Host,
            Self::Interposed(error) => error.blame(),
            Self::AsBefore { error, .. } => error.blame(),
            Self::Refused(refused) if NOT_PERMITTED.contains(&refused.errno) => Blame::Host,
            Self::Journal(JournalError::System { source, .. }) if denied(source) => Blame::Host,
            Self::Cgroup(error) if denied(&error.source) => Blame::Host,
            _ => Blame::Work,
        }
    }
}
