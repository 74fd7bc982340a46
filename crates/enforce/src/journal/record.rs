//! The contents of a journal: the changing process, the phase of the change, and the state to restore.
//!
//! ```text
//!   header                      read by most commands
//!   policy and state before     megabytes for thousands of classes
//!   change of one class         of `unisono queue change`; up to MAX_CHANGES lines, which are applied to the
//!   change of one class           policy when the journal is read
//!   change of one class, no end     not committed: the policy is that without it
//! ```

use super::senders::SenderNumbers;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs;
use std::ops::{Deref, DerefMut};
use unisono_fairqueue::TermsChange;
use unisono_linux::network_namespace;
use unisono_linux::undo::Author;

pub(super) const FORMAT: &str = "unisono-queue-1";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The most changes of single classes that are appended to a journal before it is written anew. To apply one
/// of them to a policy of 50,000 classes takes a reader some milliseconds; to write such a journal takes some
/// tens.
pub(super) const MAX_CHANGES: usize = 16;

/// A record without the policy itself: the first line of a journal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RecordHeader {
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
    /// The numbers of the control groups that the policy names, as packets of containers carry them.
    #[serde(default, skip_serializing_if = "SenderNumbers::is_empty")]
    pub(crate) senders: SenderNumbers,
}

/// The contents of a journal. `B` is the state that its backend restores. Both the policy and that state grow
/// with the number of classes, so they are a line of their own, which most commands do not read.
#[derive(Clone, PartialEq, Debug)]
pub struct Record<B> {
    header: RecordHeader,
    /// The policy's text.
    pub policy: String,
    pub before: B,
    /// The number of changes that the journal has behind this record, and `policy` has as well; or at least
    /// [`MAX_CHANGES`] if the journal cannot have another one.
    pub(super) changes: usize,
}

/// The second line of a journal.
#[derive(Serialize, Deserialize)]
struct RecordBody<'a, B> {
    policy: Cow<'a, str>,
    before: B,
}

impl<B> Deref for Record<B> {
    type Target = RecordHeader;

    fn deref(&self) -> &RecordHeader {
        &self.header
    }
}

impl<B> DerefMut for Record<B> {
    fn deref_mut(&mut self) -> &mut RecordHeader {
        &mut self.header
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Changing,
    Holds,
}

impl RecordHeader {
    /// Parses the first line of a journal.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let header: Self = serde_json::from_str(line).map_err(|error| error.to_string())?;
        match header.format.as_str() {
            FORMAT => Ok(header),
            other => Err(format!("its format is {other:?}")),
        }
    }

    /// Returns whether the record was written in this boot.
    pub(super) fn is_of_this_boot(&self) -> bool {
        self.boot == boot()
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

impl<B> Record<B> {
    /// Returns the record of a change that this process is about to begin.
    pub fn new(backend: &str, device: &str, index: u32, policy: &str, before: B) -> Self {
        let header = RecordHeader {
            format: FORMAT.to_owned(),
            boot: boot(),
            namespace: network_namespace::cookie(),
            backend: backend.to_owned(),
            device: device.to_owned(),
            index,
            author: Author::this_process(),
            phase: Phase::Changing,
            senders: SenderNumbers::default(),
        };
        Self { header, policy: policy.to_owned(), before, changes: 0 }
    }

    pub(crate) fn with_senders(mut self, senders: &SenderNumbers) -> Self {
        self.senders.clone_from(senders);
        self
    }

    pub fn in_force(mut self) -> Self {
        self.phase = Phase::Holds;
        self
    }

    /// Puts another policy into the record. A journal with it has to be written as a whole.
    pub(crate) fn replace_policy(&mut self, text: &str) {
        text.clone_into(&mut self.policy);
        self.changes = 0;
    }
}

impl<B: Serialize> Record<B> {
    /// Returns the text of a journal with this record, but with this policy.
    pub(super) fn to_text(&self, policy: &str) -> serde_json::Result<String> {
        let body = RecordBody { policy: Cow::Borrowed(policy), before: &self.before };
        Ok(format!("{}\n{}\n", serde_json::to_string(&self.header)?, serde_json::to_string(&body)?))
    }
}

impl<B: DeserializeOwned> Record<B> {
    /// Parses the text of a journal. Earlier versions wrote everything into one line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let header = RecordHeader::parse(first)?;
        let (body, appended) = match rest.split_once('\n') {
            Some((body, appended)) => (body, Some(appended)),
            None if rest.is_empty() => (first, None),
            None => (rest, None),
        };
        let body: RecordBody<'_, B> = serde_json::from_str(body).map_err(|error| error.to_string())?;
        let changes = if appended.is_some() { 0 } else { MAX_CHANGES };
        let (policy, before) = (body.policy.into_owned(), body.before);
        let mut record = Self { header, policy, before, changes };
        // a killed process has not committed what follows the last line end
        let committed = appended.and_then(|appended| appended.rsplit_once('\n'));
        for line in committed.iter().flat_map(|(lines, _)| lines.split('\n')) {
            let change: TermsChange = serde_json::from_str(line).map_err(|error| error.to_string())?;
            change.write_into(&mut record.policy).map_err(|error| error.to_string())?;
            record.changes += 1;
        }
        Ok(record)
    }
}

/// Returns the id of this boot, or an empty text if the kernel does not report it.
pub(super) fn boot() -> String {
    fs::read_to_string(BOOT).map(|text| text.trim().to_owned()).unwrap_or_default()
}
