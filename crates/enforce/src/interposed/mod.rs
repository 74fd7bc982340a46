//! A queue of our own between unmodified programs and a device: all that the device would send passes through a process
//! that schedules it.
//!
//! ```text
//!   programs -> network stack -> | device |--> its queueing discipline, if the queue is not alive
//!                                    | program at its egress: tags the sender, hands over
//!                                    v
//!                          the queue's own device       (kernel cuts segments, fills in checksums)
//!                                    | TAP, or a pair of devices and AF_XDP
//!                                    v
//!                     worker: parse, classify, H-SFQ, pace   -> past the queueing discipline -> device's driver
//! ```
//! No address and no route changes, and programs notice nothing. Super-packets are cut into frames before they are
//! queued: 64 KiB at once at 100 Mbit/s would be a turn of 5 ms. The rate is that of whole Ethernet frames without preamble,
//! checksum and gap, as HTB counts. Frames that may leave at the same moment are handed to the device as one where it
//! makes of that one the same frames again ([`merge`]).
//!
//! If the worker dies, hangs or is killed, the program lets the traffic pass unscheduled (at once with TUN; with
//! `AF_XDP` as soon as the kernel has taken its device down, some ten milliseconds). What the worker may still do after
//! it has given root away: receive and send through the sockets it has.
//!
//! What it costs: one more pass through a device, two copies and a process; the figures are in the study. When not to
//! use it: where the kernel's own classes do, at rates above some Gbit/s, on devices that are not Ethernet. What a
//! hardware device would have computed (checksums, segments) the processor computes.
//! Reference: DESIGN of the places in [`crate`]; Pruthi et al. for why a queue belongs in front of the device.

mod classify;
mod confine;
mod congestion;
mod control;
mod engine;
mod error;
mod flows;
pub mod merge;
mod pace;
pub mod parse;
mod plumbing;
mod program;
mod restore;
mod sender;
mod service;
mod visitors;
mod way;
mod worker;

pub use crate::background::READY;
pub use classify::{Classifier, Named, NoClass, TAG, TAG_AT, TAG_TYPE, untag};
pub use control::Counters;
pub use engine::{ChangeError, Choice, Engine, Next};
pub use error::Error;
pub use flows::FlowNumber;
pub use service::{Options, serve};
pub use worker::Patience;

use crate::background;
use crate::journal::Journal;
use control::{Answer, Question, ask_at};
use error::failed;
use std::process::Command;
use std::time::Duration;
use unisono_fairqueue::{Backend, Live, Policy};

/// As on the command line.
pub const NAME: &str = "interposed";
/// How long a queue may take to send what waits and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How frames come to the queue and go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WayName {
    /// A TAP device: simple, and everywhere.
    #[default]
    Tun,
    /// `AF_XDP` sockets: fast.
    AfXdp,
}

/// The place: a queue at one device.
pub struct Interposed {
    options: Options,
    policy: String,
    /// Starts the program that calls [`serve`].
    server: Option<Box<dyn Fn() -> Command>>,
    notes: Vec<String>,
}

impl std::fmt::Debug for Interposed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interposed").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Interposed {
    /// The place at a device. `policy` is the text of what will be applied. `server` makes a command that calls
    /// [`serve`] with the policy that it reads from standard input, and writes a line [`READY`] when that is.
    #[must_use]
    pub fn new(options: Options, policy: String, server: impl Fn() -> Command + 'static) -> Self {
        Self { options, policy, server: Some(Box::new(server)), notes: Vec::new() }
    }

    /// The place at a device with a queue, to look at it or to take it away.
    #[must_use]
    pub fn at(device: &str) -> Self {
        let options = Options { device: device.to_owned(), ..Options::default() };
        Self { options, policy: String::new(), server: None, notes: Vec::new() }
    }

    /// Checks whether a policy can be enforced by this place, and changes nothing.
    ///
    /// # Errors
    /// As [`Backend::apply`].
    pub fn check(&mut self, policy: &Policy) -> Result<(), crate::Error> {
        service::find(&self.options)?;
        sender::named(policy)?;
        self.owner()?;
        self.note(policy);
        Ok(())
    }

    /// What the last call has to say besides its result.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn note(&mut self, policy: &Policy) {
        self.notes.clear();
        if policy.cpu.is_some() {
            self.notes.push(
                "[cpu]: processor time is not changed; have the core keep its shares: --cpu-shares core"
                    .to_owned(),
            );
        }
    }

    /// What the classes have got, and what else was counted.
    ///
    /// # Errors
    /// No queue is there, or it does not answer.
    pub fn figures(&self) -> Result<(Live, Counters), Error> {
        match self.ask(&Question::Live)? {
            Answer::Live { live, counters } => Ok((live, counters)),
            answer => Err(self.unexpected(answer)),
        }
    }

    fn device(&self) -> String {
        self.options.device.clone()
    }

    /// The process that looks after a queue there, if there is one.
    fn owner(&self) -> Result<Option<u32>, Error> {
        let record = Journal::of(&self.options.device)?.read::<serde_json::Value>()?;
        match record {
            Some(record) if record.backend != NAME => {
                Err(Error::Taken { device: self.device(), backend: record.backend })
            }
            Some(record) if record.owner_lives() => Ok(Some(record.process)),
            _ => Ok(None),
        }
    }

    fn ask(&self, question: &Question) -> Result<Answer, Error> {
        if self.owner()?.is_none() {
            return Err(Error::NotThere { device: self.device() });
        }
        let path = restore::socket_of(&Journal::of(&self.options.device)?);
        ask_at(&path, question).map_err(failed(format!("ask the queue at {}", self.options.device)))
    }

    fn unexpected(&self, answer: Answer) -> Error {
        let why = match answer {
            Answer::Refused { why } => why,
            _ => "it answers something else".to_owned(),
        };
        Error::Refused { device: self.device(), why }
    }

    fn begin(&self) -> Result<(), Error> {
        let device = self.device();
        let Some(server) = &self.server else { return Err(Error::NotThere { device }) };
        let begun = background::begin(server(), self.policy.as_bytes())
            .map_err(failed("start the queue's program"))?;
        let background::Begun::Ended { code, why } = begun else { return Ok(()) };
        Err(match code {
            Some(2) => Error::Unfit(why),
            Some(3) => Error::Host(why),
            _ => Error::Worker { device, what: format!("could not begin: {why}") },
        })
    }
}

impl Backend for Interposed {
    type Error = crate::Error;

    fn name(&self) -> &'static str {
        NAME
    }

    fn apply(&mut self, policy: &Policy) -> Result<(), crate::Error> {
        self.check(policy)?;
        if self.owner()?.is_none() {
            return Ok(self.begin()?);
        }
        match self.ask(&Question::Apply { policy: self.policy.clone() })? {
            Answer::Done => Ok(()),
            answer => Err(self.unexpected(answer).into()),
        }
    }

    fn live(&mut self) -> Result<Live, crate::Error> {
        Ok(self.figures()?.0)
    }

    fn clear(&mut self) -> Result<(), crate::Error> {
        let Some(process) = self.owner()? else {
            let journal = Journal::of(&self.options.device)?;
            let _lock = journal.lock()?;
            return Ok(restore::put_back_leftovers(&journal, &self.options.device)?);
        };
        match self.ask(&Question::End)? {
            Answer::Done if service::wait_for_end(process, PATIENCE) => Ok(()),
            Answer::Done => {
                Err(Error::Worker { device: self.device(), what: "does not end".to_owned() }.into())
            }
            answer => Err(self.unexpected(answer).into()),
        }
    }
}
