//! The contents of a journal: the changing process, the phase of the change, and the state to restore.

use serde::{Deserialize, Serialize};
use std::fs;
use unisono_linux::undo::Author;

pub(super) const FORMAT: &str = "unisono-queue-1";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The contents of a journal. `B` is the state that its backend restores.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record<B> {
    pub(super) format: String,
    /// The boot that it was written in; after another boot there is nothing to restore.
    pub(super) boot: String,
    pub backend: String,
    /// The device's name when the policy was applied.
    pub device: String,
    pub index: u32,
    /// The process that changes the device, or has changed it.
    #[serde(flatten)]
    pub author: Author,
    pub phase: Phase,
    /// The policy's text.
    pub policy: String,
    pub before: B,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Changing,
    Holds,
}

impl<B> Record<B> {
    /// A record of a change that this process is about to begin.
    pub fn new(backend: &str, device: &str, index: u32, policy: &str, before: B) -> Self {
        Self {
            format: FORMAT.to_owned(),
            boot: boot(),
            backend: backend.to_owned(),
            device: device.to_owned(),
            index,
            author: Author::this_process(),
            phase: Phase::Changing,
            policy: policy.to_owned(),
            before,
        }
    }

    pub fn in_force(mut self) -> Self {
        self.phase = Phase::Holds;
        self
    }

    /// Whether the policy holds and its process lives. If the caller holds the lock, a record in the phase
    /// [`Phase::Changing`] comes from a killed process, because a living one would hold the lock
    /// (PROTOCOL.md).
    pub(crate) fn is_in_force(&self) -> bool {
        self.phase == Phase::Holds && self.author.lives()
    }
}

/// The id of this boot; empty if the kernel does not report it.
pub(super) fn boot() -> String {
    fs::read_to_string(BOOT).map(|text| text.trim().to_owned()).unwrap_or_default()
}
