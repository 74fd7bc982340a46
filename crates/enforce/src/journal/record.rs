//! The contents of a journal: the changing process, the phase of the change, and the state to restore.

use super::senders::SenderNumbers;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::fs;
use unisono_linux::network_namespace;
use unisono_linux::undo::Author;

pub(super) const FORMAT: &str = "unisono-queue-1";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The contents of a journal. `B` is the state that its backend restores.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record<B> {
    pub(super) format: String,
    /// The id of the boot in which the record was written. After a reboot there is nothing to restore.
    pub(super) boot: String,
    /// The cookie of the network namespace, unique in this boot. `None`: an earlier version wrote the record,
    /// or the kernel has no such cookies.
    #[serde(default)]
    pub(super) namespace: Option<u64>,
    pub backend: String,
    /// The device's name when the policy was applied.
    pub device: String,
    pub index: u32,
    /// The process that is changing the device or has changed it.
    #[serde(flatten)]
    pub author: Author,
    pub phase: Phase,
    /// The policy's text.
    pub policy: String,
    /// The numbers of the control groups that the policy names, as packets of containers carry them.
    #[serde(default, skip_serializing_if = "SenderNumbers::is_empty")]
    pub(crate) senders: SenderNumbers,
    pub before: B,
}

/// A record without the state that its backend restores.
pub type RecordHeader = Record<IgnoredAny>;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Changing,
    Holds,
}

impl<B> Record<B> {
    /// Returns the record of a change that this process is about to begin.
    pub fn new(backend: &str, device: &str, index: u32, policy: &str, before: B) -> Self {
        Self {
            format: FORMAT.to_owned(),
            boot: boot(),
            namespace: network_namespace::cookie(),
            backend: backend.to_owned(),
            device: device.to_owned(),
            index,
            author: Author::this_process(),
            phase: Phase::Changing,
            policy: policy.to_owned(),
            senders: SenderNumbers::default(),
            before,
        }
    }

    pub(crate) fn with_senders(mut self, senders: &SenderNumbers) -> Self {
        self.senders.clone_from(senders);
        self
    }

    pub fn in_force(mut self) -> Self {
        self.phase = Phase::Holds;
        self
    }

    /// Returns whether the record was written in another network namespace than this thread's.
    pub(super) fn is_of_other_namespace(&self) -> bool {
        let here = network_namespace::cookie();
        self.namespace.is_some() && here.is_some() && self.namespace != here
    }

    /// Returns whether the policy holds and the process that keeps it lives. If the caller holds the lock, a
    /// record in the phase [`Phase::Changing`] comes from a killed process, because a living one would hold
    /// the lock (PROTOCOL.md).
    pub(crate) fn is_in_force(&self) -> bool {
        self.phase == Phase::Holds && self.author.lives()
    }
}

/// Returns the id of this boot, or an empty text if the kernel does not report it.
pub(super) fn boot() -> String {
    fs::read_to_string(BOOT).map(|text| text.trim().to_owned()).unwrap_or_default()
}
