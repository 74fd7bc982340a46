//! Taking the place of a broker: its listening sockets first, and then its log.
//!
//! ```text
//!   Client::take_over --> the broker serves on --> Predecessor::release --> it waits --> Predecessor::end
//! ```
//! If the value is dropped before its end, the broker serves on.

use super::{Client, Error};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_events_wire::frame::Frame;
use unisono_events_wire::{TakeOverReport, TakeOverStep};

/// The time that a broker gets to end after its successor serves. The successor does not need its end.
/// Chosen, not measured.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A broker whose place this process takes.
#[derive(Debug)]
pub struct Predecessor {
    client: Client,
    sockets: Vec<OwnedFd>,
    log: Option<PathBuf>,
}

impl Client {
    /// Asks the broker for its listening sockets; it serves on. Only root and the broker's own user may ask,
    /// over the broker's Unix socket with shared memory.
    ///
    /// # Errors
    /// The broker refuses or is gone.
    pub fn take_over(mut self) -> Result<Predecessor, Error> {
        let report = self.take_over_step(TakeOverStep::Sockets)?;
        let mut sockets = Vec::new();
        for _ in 0..report.sockets {
            let none = || Error::Strange("it has passed fewer sockets than it says".to_owned());
            sockets.push(self.transport.passed()?.ok_or_else(none)?);
        }
        Ok(Predecessor { client: self, sockets, log: report.log })
    }

    fn take_over_step(&mut self, step: TakeOverStep) -> Result<TakeOverReport, Error> {
        self.send_frame(&Frame::TakeOver { step })?;
        loop {
            if let Some(report) = self.taken_over.take() {
                return match report.refused {
                    Some(why) => Err(Error::Refused(why)),
                    None => Ok(report),
                };
            }
            self.receive_frame(None)?;
        }
    }
}

impl Predecessor {
    /// The listening sockets, at the first call.
    pub fn sockets(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.sockets)
    }

    /// The directory of the broker's log.
    #[must_use]
    pub fn log(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// Makes the broker stop serving clients, sync its log and unlock it.
    ///
    /// # Errors
    /// The broker serves on, or is gone.
    pub fn release(&mut self) -> Result<(), Error> {
        self.client.take_over_step(TakeOverStep::Log).map(drop)
    }

    /// Has the broker end, because this process serves now.
    pub fn end(mut self) {
        // a broker that is gone already has ended
        if self.client.send_frame(&Frame::TakeOver { step: TakeOverStep::Serving }).is_ok()
            && self.client.flush().is_ok()
        {
            while let Ok(true) = self.client.receive_frame(Some(END_TIMEOUT)) {}
        }
    }
}
