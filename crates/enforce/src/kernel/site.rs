//! The common parts of the two backends in the kernel: the device, the notes for the user, and the undoing of
//! an unfinished change.

use crate::containers;
use crate::device_kind;
use crate::error::Error;
use crate::journal::{Journal, LinkSide, Phase, Record, RecordHeader, SenderNumbers};
use serde::de::DeserializeOwned;
use unisono_fairqueue::{ClassReceiving, Policy, TrafficDirection};
use unisono_linux::netlink::NetlinkSocket;
use unisono_linux::netlink::link::{self, Index, NetworkDevice};

/// The first number of our own devices. The kernel numbers devices up from 1, and a number that is requested
/// has to be free. No host makes a billion devices, so numbers from here on are free for ours, and the number
/// of a device's IFB follows from the device's number.
pub(super) const FIRST_NUMBER: u32 = 1 << 30;

/// Returns the number of the IFB for a device's incoming packets.
pub(super) fn ifb_index(device: Index) -> Index {
    Index(device.0 | FIRST_NUMBER)
}

pub(super) fn ifb_name(device: Index) -> String {
    format!("ifb-u{}", device.0)
}

pub(crate) struct HostDevice {
    pub(super) socket: NetlinkSocket,
    pub(super) link: NetworkDevice,
    /// The device whose queueing discipline schedules the packets.
    pub(super) queue: Index,
    /// Whether that device exists.
    pub(super) has_queue: bool,
    /// All devices of the namespace.
    links: Vec<NetworkDevice>,
}

impl HostDevice {
    /// Returns whether a record describes this device and no command has left it half way.
    pub(super) fn is_settled(&self, record: &RecordHeader) -> bool {
        record.phase == Phase::Holds && record.index == self.link.index.0 && self.has_queue
    }

    /// Returns whether the device may send packets of other hosts.
    pub(super) fn forwards(&self) -> bool {
        device_kind::forwards(&self.link, &self.links)
    }

    /// Fails for a device whose frames cannot be received by class.
    pub(super) fn check_receiving(&self, terms: &ClassReceiving) -> Result<(), Error> {
        device_kind::check_receiving(&self.link, &self.links, terms)
    }
}

/// One direction of a device, and the data that a backend collects for it while it checks and applies a
/// policy.
pub(crate) struct KernelSite {
    pub(super) side: LinkSide,
    pub(super) interrupted: Box<dyn FnMut() -> Option<String> + Send>,
    pub(super) notes: Vec<String>,
    /// The numbers of the policy's control groups, as packets of containers carry them.
    pub(super) senders: SenderNumbers,
}

impl KernelSite {
    pub(super) fn at(side: LinkSide) -> Self {
        Self { side, interrupted: Box::new(|| None), notes: Vec::new(), senders: SenderNumbers::default() }
    }

    pub(super) fn device(&self) -> String {
        self.side.device.clone()
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(super) fn journal(&self) -> Result<Journal, Error> {
        Ok(Journal::for_side(&self.side)?)
    }

    /// Fails if the change is to be interrupted.
    pub(super) fn check_interrupted(&mut self) -> Result<(), Error> {
        match (self.interrupted)() {
            Some(by) => Err(Error::Stopped { by, device: self.device() }),
            None => Ok(()),
        }
    }

    pub(super) fn host(&self) -> Result<HostDevice, Error> {
        let mut socket =
            NetlinkSocket::open().map_err(|source| Error::System { what: "ask the kernel", source })?;
        let links = link::all(&mut socket)?;
        let Some(link) = links.iter().find(|link| link.name == self.side.device).cloned() else {
            let known = links.into_iter().map(|link| link.name).collect();
            return Err(Error::NoDevice { device: self.device(), known });
        };
        let queue = match self.side.direction {
            TrafficDirection::Out => link.index,
            TrafficDirection::In => ifb_index(link.index),
        };
        let has_queue = links.iter().any(|link| link.index == queue);
        Ok(HostDevice { socket, link, queue, has_queue, links })
    }

    /// Fails for a device whose queue does not see all its packets. Numbers the control groups of the policy,
    /// and adds a note for each group from which no packet can come here.
    pub(super) fn check_senders(&mut self, host: &HostDevice, policy: &Policy) -> Result<(), Error> {
        device_kind::check(&host.link, &host.links, self.side.direction)?;
        if let Some(rule) = policy.rules.iter().find(|rule| rule.matcher.mac.is_some())
            && !host.link.has_ethernet
        {
            let what =
                format!("packets of {} have no MAC address; match by address instead", self.side.device);
            return Err(Error::NotHere { at: rule.at, what });
        }
        self.senders = containers::numbers(policy)?;
        self.notes.extend(containers::unreachable_notes(policy));
        Ok(())
    }

    pub(super) fn no_policy(&self) -> Error {
        Error::NoPolicy { device: self.device() }
    }

    pub(super) fn removed(&self, what: &str) -> Error {
        Error::Lacks {
            what: format!("somebody else has removed {what} from {}", self.side.device),
            remedy: format!(
                "apply the policy again, or forget it: unisono queue clear {}",
                self.side.options()
            ),
        }
    }
}

/// The undo operations of a backend in the kernel.
pub(crate) trait KernelBackend {
    const BACKEND: &'static str;
    type Before: DeserializeOwned;

    fn site(&mut self) -> &mut KernelSite;

    /// Restores the device as it was before the policy of a record.
    fn restore(&mut self, host: &mut HostDevice, record: &Record<Self::Before>) -> Result<(), Error>;

    /// Restores the state that a policy changed outside its device, because the device itself is gone.
    fn restore_outside_device(&mut self, record: &Record<Self::Before>) -> Result<(), Error>;

    /// Reads the record of a policy of this backend. Fails if the policy is of another backend.
    fn record(&mut self, journal: &Journal) -> Result<Option<Record<Self::Before>>, Error> {
        match journal.header()?.map(|record| record.backend) {
            None => Ok(None),
            Some(backend) if backend == Self::BACKEND => Ok(journal.read()?),
            Some(backend) => Err(Error::OtherBackend { device: self.site().device(), backend }),
        }
    }

    /// Returns the record of the policy in force, if there is one, after undoing an unfinished change. The
    /// caller must hold the journal's lock.
    fn recovered(
        &mut self,
        host: &mut HostDevice,
        journal: &Journal,
    ) -> Result<Option<Record<Self::Before>>, Error> {
        let Some(record) = self.record(journal)? else { return Ok(None) };
        let device = self.site().device();
        let note = if record.index != host.link.index.0 {
            self.restore_outside_device(&record)?;
            format!("{device} is another device than the one that had a policy")
        } else if record.phase == Phase::Changing {
            self.restore(host, &record)?;
            let process = record.author.process;
            format!("put back what `unisono queue` (process {process}) had left half way on {device}")
        } else if host.has_queue {
            return Ok(Some(record));
        } else {
            self.restore(host, &record)?;
            format!(
                "somebody else has removed {}, where packets waited that {device} receives; they have no policy now",
                ifb_name(host.link.index)
            )
        };
        self.site().note(note);
        *host = self.site().host()?;
        journal.remove()?;
        Ok(None)
    }

    /// Removes the journal of a policy whose device no longer exists. The kernel has removed the classes with
    /// the device.
    fn forget_device(&mut self, journal: &Journal) -> Result<(), Error> {
        if let Some(record) = self.record(journal)? {
            self.restore_outside_device(&record)?;
        }
        let device = self.site().device();
        self.site().note(format!("the device {device} is gone, and its classes with it"));
        Ok(journal.remove()?)
    }

    /// Undoes the unfinished change of a killed process, or removes the journal of a device that is gone. The
    /// caller must hold the journal's lock.
    fn recover(&mut self, journal: &Journal) -> Result<(), Error> {
        self.site().notes.clear();
        match self.site().host() {
            // the rest of the record of thousands of classes takes milliseconds to read
            Ok(host) if journal.header()?.is_some_and(|header| host.is_settled(&header)) => Ok(()),
            Ok(mut host) => self.recovered(&mut host, journal).map(drop),
            Err(Error::NoDevice { .. }) => self.forget_device(journal),
            Err(error) => Err(error),
        }
    }

    /// Restores the state before the first policy, or adds a note that there is nothing to restore.
    fn remove_policy(&mut self) -> Result<(), Error> {
        self.site().notes.clear();
        let journal = self.site().journal()?;
        let _lock = Journal::lock_if_used()?;
        let record = self.record(&journal)?;
        match self.site().host() {
            Ok(_) if record.is_none() => {
                let device = self.site().device();
                self.site().note(format!("{device} has no policy: nothing to put back"));
                Ok(())
            }
            Ok(mut host) => {
                if let Some(record) = self.recovered(&mut host, &journal)? {
                    self.restore(&mut host, &record)?;
                    journal.remove()?;
                }
                Ok(())
            }
            Err(Error::NoDevice { .. }) if record.is_some() => self.forget_device(&journal),
            Err(error) => Err(error),
        }
    }
}
