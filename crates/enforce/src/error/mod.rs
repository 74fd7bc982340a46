//! The errors of this crate, and who can remove their causes.

pub(crate) mod interposed;

use crate::journal::JournalError;
use std::path::PathBuf;
use unisono_fairqueue::{PolicyError, Position, TermsChangeError};
use unisono_linux::Errno;
use unisono_linux::bpf::NotLoaded;
use unisono_linux::cgroup;
use unisono_linux::netlink::Refused;
use unisono_linux::next_step::next_step;

/// Why a policy cannot be enforced, shown or cleared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("there is no device {device} here; there are {}", known.join(", "))]
    NoDevice { device: String, known: Vec<String> },
    /// This host lacks something that the policy names.
    #[error("{at}: {what}")]
    NotHere {
        at: Position,
        /// The missing object, and the remedy.
        what: String,
    },
    /// This backend cannot enforce the policy; the text names a backend that can.
    #[error("{what}")]
    BackendUnsupported { what: String },
    #[error(
        "{device} has a queueing discipline `{kind}` that could not be put back afterwards; take it away first: tc qdisc \
         del dev {device} root"
    )]
    Occupied { device: String, kind: String },
    /// Another program uses a resource that a policy of incoming packets needs.
    #[error("{what}; {remedy}")]
    InTheWay { what: String, remedy: String },
    #[error(
        "{device} has a policy of the backend {backend}; clear it first: unisono queue clear --dev {device}"
    )]
    OtherBackend { device: String, backend: String },
    #[error("{device} has no policy; apply one: unisono queue apply POLICY --dev {device}")]
    NoPolicy { device: String },
    #[error("{what}; {remedy}")]
    Lacks { what: String, remedy: String },
    #[error("{}; {}", .0, next_step(&.0.error()))]
    Refused(#[from] Refused),
    #[error("stopped by {by}; {device} is as it was")]
    Stopped { by: String, device: String },
    /// The change failed, and the previous state could not be restored.
    #[error("{error}; and {device} could not be put back: {undo}. Try: unisono queue clear --dev {device}")]
    NotRestored { device: String, error: Box<Error>, undo: Box<Error> },
    /// The new backend could not come into force; the old one is in force again.
    #[error("{error}; the policy before is in force on {device}, with the backend {backend} as before")]
    RolledBack { device: String, backend: String, error: Box<Error> },
    /// Neither the new backend nor the old one could come into force.
    #[error(
        "{error}; and the policy before (backend {backend}) could not be put in force again: {again}. {device} has no policy now; apply one: unisono queue apply POLICY --dev {device}"
    )]
    WithoutPolicy { device: String, backend: String, error: Box<Error>, again: Box<Error> },
    /// The new backend is in force, but the old one has left something behind.
    #[error(
        "{device} has this policy now, but what the backend {backend} had there could not be taken away: {error}. Any `unisono queue` command tries it again"
    )]
    OldBackendRemains { device: String, backend: String, error: Box<Error> },
    #[error(
        "another command has changed the policy of {device} meanwhile; nothing else was changed. Try again"
    )]
    ChangedMeanwhile { device: String },
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("cannot read the policy in the journal: {0}; remove it: unisono queue clear")]
    Policy(#[from] PolicyError),
    #[error("{}; {}", .0, next_step(&.0.source))]
    Cgroup(#[from] cgroup::Error),
    #[error("cannot {what} {path}: {source}; {}", next_step(source))]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot {what}: {source}; {}", next_step(source))]
    System { what: &'static str, source: std::io::Error },
    /// The policy in force has no such class, or cannot keep these terms.
    #[error(transparent)]
    TermsChange(#[from] TermsChangeError),
    #[error(transparent)]
    Classifier(#[from] NotLoaded),
    #[error(transparent)]
    Interposed(#[from] interposed::Error),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// The author of the policy or the command.
    Input,
    /// The administrator of the host.
    Host,
    /// No person: the work failed.
    Work,
}

impl Error {
    /// Returns this error, or, if undoing the change failed, too, an error that names both.
    pub(crate) fn or_not_restored(self, device: &str, undone: Result<(), Self>) -> Self {
        match undone {
            Ok(()) => self,
            Err(undo) => {
                Self::NotRestored { device: device.to_owned(), error: Box::new(self), undo: Box::new(undo) }
            }
        }
    }

    pub fn blame(&self) -> Blame {
        const NOT_PERMITTED: [i32; 2] = [Errno::PERM.raw_os_error(), Errno::ACCESS.raw_os_error()];
        let denied = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        match self {
            Self::NoDevice { .. }
            | Self::NotHere { .. }
            | Self::BackendUnsupported { .. }
            | Self::Occupied { .. }
            | Self::InTheWay { .. }
            | Self::OtherBackend { .. }
            | Self::TermsChange(_)
            | Self::NoPolicy { .. } => Blame::Input,
            Self::Lacks { .. } => Blame::Host,
            Self::Interposed(error) => error.blame(),
            Self::RolledBack { error, .. } => error.blame(),
            Self::Refused(refused) if NOT_PERMITTED.contains(&refused.errno) => Blame::Host,
            Self::Journal(JournalError::System { source, .. }) if denied(source) => Blame::Host,
            Self::System { source, .. } if denied(source) => Blame::Host,
            Self::Cgroup(error) if denied(&error.source) => Blame::Host,
            _ => Blame::Work,
        }
    }
}
