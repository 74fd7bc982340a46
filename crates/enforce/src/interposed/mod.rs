//! The interposed backend: a queue between unmodified programs and a device. Every frame that the device
//! would send passes through a process that schedules it.
//!
//! ```text
//!   programs -> network stack -> | device |--> its queueing discipline, if the queue is not alive
//!                                    | program at its egress: tags the sender, hands over
//!                                    v
//!                          the queue's own device       (kernel cuts segments, fills in checksums)
//!                                    | TAP, or a pair of devices and AF_XDP
//!                                    v
//!                     worker: parse, classify, H-SFQ, pace --> device's driver, past its discipline
//! ```
//! Addresses and routes stay as they are, and programs see no difference. Large segments (GSO) are cut into
//! frames before they are queued, because 64 KiB in one piece would occupy a link of 100 Mbit/s for 5 ms. The
//! rate counts whole Ethernet frames without preamble, checksum and gap, as HTB does. Frames that may leave
//! at the same moment are passed to the device as one large frame if the device segments it into the same
//! frames again ([`merge`]).
//!
//! If the worker dies, the program lets the traffic pass unscheduled: at once with TUN; with `AF_XDP` after
//! some ten milliseconds, when the kernel has taken the queue's device down. If the worker hangs, the program
//! does so half a second after the worker's last report. The worker gives up root; after that it can only
//! receive and send through its open sockets.
//!
//! Cost: one more pass of each frame through a device, two copies, and a process; the processor also computes
//! the checksums and does the segmentation that a hardware device would do. The studies `queue-*` have
//! figures. When not to use it: if the kernel's own classes are sufficient, at rates above some Gbit/s, on
//! devices that are not Ethernet. Reference: Pruthi et al., on the reasons to put a queue in front of the
//! device.

mod classify;
mod congestion;
mod connections;
mod control;
mod control_channel;
mod engine;
mod flows;
mod followed_device;
mod frame_path;
mod guard;
pub mod merge;
mod namespace;
mod options;
pub mod parse;
mod queue_device;
mod redirect;
mod request_thread;
mod restore;
mod sandbox;
mod sender;
mod translations;
mod urgency;
mod worker;

pub use crate::background::READY;
pub use classify::{Classifier, Named, NoClass, TAG, TAG_AT, TAG_TYPE, untag};
pub use engine::{Engine, EngineChange, EngineChangeError, EngineDiscipline, NextFrame, ReplacedParts};
pub use flows::FlowNumber;
pub use guard::serve;
pub use options::Options;
pub(crate) use restore::socket_path;
pub use worker::WaitStrategy;

pub use crate::backend::Counters;
use crate::backend::{Backend, BackendKind, BackendName, DeviceHook, refuse_receiving, refuse_sockets};
use crate::background;
use crate::containers;
pub use crate::error::interposed::Error;
use crate::error::interposed::failed;
use crate::foreign_programs;
use crate::journal::{Journal, LinkSide, Record, RecordHeader};
use control::{QueueReply, QueueRequest, request};
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::time::Duration;
use translations::Translations;
use unisono_fairqueue::{ClassTerms, Live, Policy, TermsChange, TrafficDirection};
use unisono_linux::netlink::filter::TrafficHook;
use unisono_linux::netlink::{NetlinkSocket, link};
use unisono_linux::undo::DirectoryLock;

/// The backend's name in journals and on the command line.
pub const INTERPOSED_BACKEND: &str = "interposed";
pub static KIND: BackendKind = BackendKind {
    name: INTERPOSED_BACKEND,
    backend: BackendName::Interposed,
    kernel_queue: None,
    directions: &[TrafficDirection::Out],
    hooks: &[DeviceHook::Egress],
    at: |side, _| Box::new(Interposed::at(&side.device)),
};
/// The time limit for a queue to send its waiting frames and to end: the worker sends for at most 2 s, and
/// the guard waits at most 4 s for it and then restores the device. The rest is a margin for a busy host.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The frame path of a queue: how frames come to it and leave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum FramePathName {
    #[default]
    Tun,
    AfXdp,
}

impl FramePathName {
    /// All values, each with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 2] = [
        (Self::Tun, "tun", "A TAP device: simple, and everywhere"),
        (Self::AfXdp, "af-xdp", "AF_XDP sockets: fast"),
    ];
}

/// The options that the user gave for a queue. A running queue keeps its options that the user did not give.
#[derive(Clone, Debug, Default)]
pub struct RequestedOptions {
    pub way: Option<FramePathName>,
    pub choice: Option<EngineDiscipline>,
    pub wait: Option<WaitStrategy>,
    /// The only processor that the queue may use.
    pub processor: Option<usize>,
}

impl RequestedOptions {
    /// Returns the options of a running queue, changed as the user asked.
    pub fn applied_to(&self, options: &Options) -> Options {
        Options {
            device: options.device.clone(),
            way: self.way.unwrap_or(options.way),
            choice: self.choice.unwrap_or(options.choice),
            wait: self.wait.unwrap_or(options.wait),
            processor: self.processor.or(options.processor),
            lock: options.lock,
        }
    }
}

/// Makes the command of a program that calls [`serve`] with these options, reads the policy from standard
/// input, and writes the line [`READY`] when the policy holds. [`Interposed`] adds the option `--lock
/// NUMBER`; the program puts the number into [`Options::lock`].
pub type ServerCommand = fn(&Options) -> Command;

pub struct Interposed {
    options: Options,
    requested_options: RequestedOptions,
    server: Option<ServerCommand>,
    notes: Vec<String>,
}

impl std::fmt::Debug for Interposed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interposed").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Interposed {
    /// Returns the backend for a device. A queue that runs already keeps the options that `requested_options`
    /// does not set.
    pub fn new(device: &str, requested_options: RequestedOptions, server: ServerCommand) -> Self {
        let options = requested_options.applied_to(&Options::at(device));
        Self { options, requested_options, server: Some(server), notes: Vec::new() }
    }

    /// Returns a backend that begins a queue with exactly these options of an earlier queue.
    pub(crate) fn with_options(options: Options, server: ServerCommand) -> Self {
        Self {
            options,
            requested_options: RequestedOptions::default(),
            server: Some(server),
            notes: Vec::new(),
        }
    }

    /// Returns a backend that can show, change and remove a queue, but not begin one.
    pub fn at(device: &str) -> Self {
        Self {
            options: Options::at(device),
            requested_options: RequestedOptions::default(),
            server: None,
            notes: Vec::new(),
        }
    }

    /// Ends the queue. If the queue was killed, restores the device.
    fn end(&mut self) -> Result<(), crate::Error> {
        self.notes.clear();
        let lock = Journal::lock_if_used()?;
        let Some(record) = self.in_force()? else {
            return self.recover(&Journal::for_device(&self.options.device)?);
        };
        drop(lock); // the guard of the queue takes the lock
        match self.request(&QueueRequest::End) {
            Ok(QueueReply::Done) if record.author.has_ended(STOP_TIMEOUT) => Ok(()),
            Ok(QueueReply::Refused { why }) => Err(Error::Refused { device: self.device_name(), why }.into()),
            _ => {
                self.note_force();
                let journal = Journal::for_device(&self.options.device)?;
                // a guard that works holds the lock for less than the time limit of `lock`
                let _lock = journal.lock()?;
                Ok(restore::kill_and_restore(&journal, &self.options.device)?)
            }
        }
    }

    /// Returns a note about programs of others at the device's egress that keep packets from this queue.
    fn earlier_note(&self) -> Result<Option<String>, crate::Error> {
        let system = |source| crate::Error::System { what: "list the filters of the device", source };
        let mut netlink = NetlinkSocket::open().map_err(system)?;
        let device = &self.options.device;
        let found = link::all(&mut netlink)?.into_iter().find(|link| link.name == *device);
        let Some(found) = found else { return Ok(None) };
        Ok(foreign_programs::note(&mut netlink, found.index, device, TrafficHook::Egress)?)
    }

    fn note(&mut self, policy: &Policy) {
        self.notes.clear();
        if policy.cpu.is_some() {
            self.notes.push(
                "[cpu]: processor time is not changed; have the core keep its shares: --cpu-shares core"
                    .to_owned(),
            );
        }
        if policy.io.is_some() {
            self.notes.push(
                "[io]: the weights of disks are not changed; the kernel's backend does it: --backend kernel"
                    .to_owned(),
            );
        }
        if policy.class_of_hosts().is_some() {
            self.notes.extend(Translations::unlisted_note());
        }
    }

    fn device_name(&self) -> String {
        self.options.device.clone()
    }

    /// Reads the header of the journal's record: with thousands of classes, the rest has megabytes. Fails if
    /// the policy is of another backend.
    fn record(&self) -> Result<Option<RecordHeader>, Error> {
        let record = Journal::for_device(&self.options.device)?.header()?;
        match record {
            Some(record) if record.backend != INTERPOSED_BACKEND => {
                Err(Error::Taken { device: self.device_name(), backend: record.backend.clone() })
            }
            record => Ok(record),
        }
    }

    /// Returns the header of the journal's record, if the queue is in force.
    fn in_force(&self) -> Result<Option<RecordHeader>, Error> {
        Ok(self.record()?.filter(|record| record.is_in_force()))
    }

    /// Returns the options of the queue in a record, or `None` if an earlier version wrote the record.
    pub(crate) fn options_of(record: &Record<serde_json::Value>) -> Option<Options> {
        serde_json::from_value::<restore::BeforeQueue>(record.before.clone()).ok()?.options
    }

    fn request(&self, question: &QueueRequest) -> Result<QueueReply, Error> {
        if self.in_force()?.is_none() {
            return Err(Error::NotThere { device: self.device_name() });
        }
        let path = restore::socket_path(&Journal::for_device(&self.options.device)?);
        request(&path, question).map_err(failed(format!("ask the queue at {}", self.options.device)))
    }

    fn note_force(&mut self) {
        let device = &self.options.device;
        self.notes = vec![format!("the queue at {device} did not answer; its processes were ended")];
    }

    fn unexpected(&self, answer: QueueReply) -> Error {
        let why = match answer {
            QueueReply::Refused { why } => why,
            _ => "it answers something else, as another version would; clear it and apply the policy again"
                .to_owned(),
        };
        Error::Refused { device: self.device_name(), why }
    }
}

impl Backend for Interposed {
    fn kind(&self) -> &'static BackendKind {
        &KIND
    }

    fn side(&self) -> LinkSide {
        LinkSide::out(&self.options.device)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn check(&mut self, policy: &Policy) -> Result<(), crate::Error> {
        guard::find(&self.options)?;
        refuse_sockets(policy, "the kernel's own classes (--backend kernel)")?;
        refuse_receiving(policy)?;
        sender::named_values(policy)?;
        self.note(policy);
        self.notes.extend(containers::unreachable_notes(policy));
        self.notes.extend(self.earlier_note()?);
        Ok(())
    }

    fn apply(&mut self, policy: &Policy) -> Result<(), crate::Error> {
        self.check(policy)?;
        let lock = Journal::for_device(&self.options.device)?.lock()?;
        if self.in_force()?.is_none() {
            return self.install(policy, &lock);
        }
        drop(lock); // the guard of the queue takes the lock
        match self.request(&QueueRequest::Apply { policy: policy.text.clone() })? {
            QueueReply::Done => {
                // done here because the guard may not list devices
                containers::refresh();
                Ok(())
            }
            answer => Err(self.unexpected(answer).into()),
        }
    }

    fn change_class(&mut self, change: &TermsChange) -> Result<ClassTerms, crate::Error> {
        self.notes.clear();
        match self.request(&QueueRequest::Change { change: change.clone() })? {
            QueueReply::Changed { terms } => Ok(terms),
            QueueReply::Unfit { why } => Err(Error::Unfit(why).into()),
            answer => Err(self.unexpected(answer).into()),
        }
    }

    fn live(&mut self) -> Result<Live, crate::Error> {
        Ok(self.figures()?.0)
    }

    fn figures(&mut self) -> Result<(Live, Option<Counters>), crate::Error> {
        match self.request(&QueueRequest::Live)? {
            QueueReply::Live { live, counters } => Ok((live, Some(counters))),
            answer => Err(self.unexpected(answer).into()),
        }
    }

    fn remove(&mut self) -> Result<(), crate::Error> {
        self.end()?;
        containers::refresh();
        Ok(())
    }

    fn recover(&mut self, journal: &Journal) -> Result<(), crate::Error> {
        self.notes.clear();
        if let Some(record) = self.record()?.filter(|record| !record.is_in_force()) {
            restore::kill_and_restore(journal, &self.options.device)?;
            self.notes.push(format!(
                "put back what the queue at {} had left, whose processes ({} and its child) were killed",
                self.options.device, record.author.process
            ));
        }
        Ok(())
    }

    fn install(&mut self, policy: &Policy, lock: &DirectoryLock) -> Result<(), crate::Error> {
        let device = self.device_name();
        let Some(server) = &self.server else { return Err(Error::NotThere { device }.into()) };
        let begun = background::start(server(&self.options), Some(lock), policy.text.as_bytes())
            .map_err(failed("start the queue's program"))?;
        let background::StartOutcome::Ended { code, why } = begun else { return Ok(()) };
        Err(match code {
            Some(2) => Error::Unfit(why),
            Some(3) => Error::Host(why),
            _ => Error::Worker { device, what: format!("could not begin: {why}") },
        }
        .into())
    }

    /// Returns whether the policy in force has to end: if it is another backend's, or if the user asked for
    /// other options than the running queue has. Also sets this backend's options to the options of the
    /// running queue, changed as the user asked.
    fn conflicts_with(&mut self, in_force: &Record<serde_json::Value>) -> bool {
        if in_force.backend != INTERPOSED_BACKEND {
            return true;
        }
        // a record that an earlier version wrote has no options, so they cannot be compared
        let Some(running) = Self::options_of(in_force) else { return false };
        self.options = self.requested_options.applied_to(&running);
        self.options != running
    }

    fn retire(&mut self, pending: &Journal) -> Result<(), crate::Error> {
        self.notes.clear();
        let Some(record) = pending.read::<serde_json::Value>()? else { return Ok(()) };
        if record.author.lives() {
            match request(&restore::socket_path(pending), &QueueRequest::Retire) {
                Ok(QueueReply::Done) if record.author.has_ended(STOP_TIMEOUT) => {}
                _ => self.note_force(),
            }
        }
        Ok(restore::kill_and_restore(pending, &self.options.device)?)
    }
}
