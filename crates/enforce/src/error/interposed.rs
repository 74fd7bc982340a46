//! Why traffic cannot be interposed.

use super::Blame;
use crate::journal::JournalError;
use std::io;
use unisono_linux::bpf::NotLoaded;
use unisono_linux::netlink::Refused;

/// Why not. Where nothing else is said, the device is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such device.
    #[error("there is no device {device} in this network namespace; `ip link` lists them")]
    NoDevice { device: String },
    /// The device, or the policy, is not such that it can be interposed.
    #[error("{0}")]
    Unfit(String),
    /// This host cannot; the reason and the remedy.
    #[error("{0}")]
    Host(String),
    /// The system refuses something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        #[source]
        source: io::Error,
    },
    /// The kernel refuses to change a device.
    #[error(transparent)]
    Netlink(#[from] Refused),
    /// The kernel does not take a program.
    #[error(transparent)]
    Program(#[from] NotLoaded),
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another place enforces a policy there.
    #[error(
        "a policy is enforced at {device} by the place `{backend}`; `unisono queue clear --dev {device}` first"
    )]
    Taken { device: String, backend: String },
    /// No policy is enforced there.
    #[error(
        "no policy is interposed at {device}; `unisono queue apply POLICY --backend interposed --dev {device}` does it"
    )]
    NotThere { device: String },
    /// The queue's process could not begin, or ended.
    #[error("the queue's process at {device} {what}")]
    Worker {
        device: String,
        /// What became of it.
        what: String,
    },
    /// The running queue refuses.
    #[error("the queue at {device} refuses: {why}")]
    Refused { device: String, why: String },
}

impl Error {
    /// Who can do something about it.
    pub(crate) fn blame(&self) -> Blame {
        match self {
            Self::NoDevice { .. } | Self::Unfit(_) | Self::Taken { .. } | Self::NotThere { .. } => {
                Blame::Input
            }
            Self::Host(_) => Blame::Host,
            _ => Blame::Work,
        }
    }
}

/// Says what was tried when the system refused.
pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::System { what, source }
}
