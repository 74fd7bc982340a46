//! Replaces the classes of a policy in force by another policy's, while packets wait.
//!
//! ```text
//!   plan beside the classes --> a packet that starts the change --> classifier of the new ones --> holds
//!                                        |  (old numbers are valid until then)       | failed
//!                                        +-------- the old classes, the same way <---+
//! ```
//! The packet that starts the change has no content, and the discipline drops it.

use super::{FairQueue, classifier, rooms, setup};
use crate::containers;
use crate::error::Error;
use crate::journal::{Journal, Record};
use crate::kernel::discipline::layout::GENERATIONS;
use crate::kernel::discipline::{self, Attached};
use crate::kernel::site::{HostDevice, KernelBackend};
use std::os::fd::AsFd;
use unisono_fairqueue::Policy;
use unisono_linux::bpf::ClassifierProgram;
use unisono_linux::netlink::filter::{self, TrafficHook};
use unisono_linux::netlink::{egress, qdisc};
use unisono_linux::packet::PacketSocket;

/// The frame of the packet that starts a change: an EtherType for experiments, and zeroes for the header of
/// any kind of device.
const TYPE: u16 = 0x88b5;
const FRAME: [u8; 60] = [0; 60];

/// The device's discipline, and its major number.
struct AttachedDiscipline {
    maps: Attached,
    major: u16,
}

impl FairQueue {
    /// Replaces the classes by the classes of `policy`, which this backend must support. Returns whether the
    /// change was possible.
    pub(super) fn change(
        &mut self,
        host: &mut HostDevice,
        journal: &Journal,
        held: &Record<super::BeforeFair>,
        policy: &Policy,
    ) -> Result<bool, Error> {
        let now = qdisc::of_device(&mut host.socket, host.link.index)?;
        let Some(root) = now.iter().find(|qdisc| qdisc.parent == qdisc::ROOT) else { return Ok(false) };
        let Some(Ok(maps)) = Attached::open(&root.kind) else { return Ok(false) };
        let there = AttachedDiscipline { maps, major: (root.handle >> 16) as u16 };
        let old = Policy::parse(&held.policy)?;
        // first everything that can be refused, before any change
        let generation = there.maps.generation()?;
        let later = |generations: u32| (generation + generations) % GENERATIONS;
        let new_classes = classifier(policy, &self.site.senders, there.major, later(1))?;
        let old_classes = classifier(&old, &held.senders, there.major, later(2));
        self.site.check_interrupted()?;

        let note = containers::attach_to_all(&self.site.senders)?;
        self.site.notes.extend(note);
        let device = self.site.device();
        let record =
            Record::new(Self::BPF_BACKEND, &device, host.link.index.0, &policy.text, held.before.clone())
                .with_senders(&self.site.senders);
        // write both possible final records now, so that no later step needs space in the file system
        let as_wanted = journal.prepare(&record.clone().in_force())?;
        let as_before = journal.prepare(held)?;
        journal.write(&record)?;
        match there.put(host, &old, policy) {
            Ok(true) => {}
            not_yet => {
                there.maps.withdraw()?;
                journal.commit(as_before)?;
                return not_yet;
            }
        }
        if let Err(error) = attach(host, &new_classes).and_then(|()| self.site.check_interrupted()) {
            let back = there.put(host, policy, &old).and_then(|_| attach(host, &old_classes?));
            let undone = match back {
                Ok(()) => journal.commit(as_before).map_err(Error::from),
                Err(_) => {
                    self.site.note(format!("{device} has no policy now"));
                    self.restore(host, held).and_then(|()| Ok(journal.remove()?))
                }
            };
            return Err(error.or_not_restored(&device, undone));
        }
        journal.commit(as_wanted)?;
        Ok(true)
    }
}

impl AttachedDiscipline {
    /// Replaces the classes. Returns whether this was done: at a device that is down no packet arrives, so
    /// the plan is not executed.
    fn put(&self, host: &HostDevice, old: &Policy, new: &Policy) -> Result<bool, Error> {
        self.maps.propose(&old.hierarchy, &setup(new, &rooms(new)))?;
        let kick = || {
            let socket = PacketSocket::open_queued(host.link.index, TYPE)?;
            socket.queue_with_priority(discipline::kick(self.major))?;
            socket.send(&FRAME)
        };
        // the send fails if the drop of the packet is reported; only the state afterwards counts
        let _ = kick();
        Ok(!self.maps.is_pending()?)
    }
}

fn attach(host: &mut HostDevice, classifier: &ClassifierProgram) -> Result<(), Error> {
    let device = host.link.index;
    let preference = filter::our_preference(&mut host.socket, device, TrafficHook::Egress)?;
    let request = egress::attach(device, preference, classifier.as_fd(), "unisono_queue");
    Ok(host.socket.run(&[request])?)
}
