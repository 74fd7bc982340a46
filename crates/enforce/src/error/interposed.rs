//! The errors of the interposed backend.

use super::Blame;
use crate::journal::JournalError;
use std::io;
use unisono_linux::bpf::NotLoaded;
use unisono_linux::netlink::Refused;
use unisono_linux::next_step::next_step;

/// Why an interposed queue cannot begin, change or answer. Unless the message says otherwise, the device is
/// as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("there is no device {device} in this network namespace; list the devices: ip link")]
    NoDevice { device: String },
    /// This device or this policy cannot be interposed; the text gives the reason and the remedy.
    #[error("{0}")]
    Unfit(String),
    /// This host lacks a feature; the text gives the remedy.
    #[error("{0}")]
    Host(String),
    #[error("cannot {what}: {source}; {}", next_step(source))]
    System {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("{}; {}", .0, next_step(&.0.error()))]
    Netlink(#[from] Refused),
    #[error(transparent)]
    Program(#[from] NotLoaded),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(
        "a policy is enforced at {device} by the place `{backend}`; `unisono queue clear --dev {device}` first"
    )]
    Taken { device: String, backend: String },
    #[error(
        "no policy is interposed at {device}; `unisono queue apply POLICY --backend interposed --dev {device}` does it"
    )]
    NotThere { device: String },
    #[error(
        "the process of the queue at {device} {what}. Take away what is left of it: unisono queue clear --dev {device}"
    )]
    Worker {
        device: String,
        /// The failure of the process in words, such as `could not begin: ...`.
        what: String,
    },
    #[error("the queue at {device} refuses: {why}")]
    Refused { device: String, why: String },
}

impl Error {
    /// Returns who can remove the cause of the error.
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

/// Returns a function that adds the failed action to a system error.
pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::System { what, source }
}
