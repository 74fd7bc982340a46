//! A place that enforces a policy on a device: what all places can do.

use crate::error::Error;
use crate::journal::{Journal, LinkSide, Record};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use unisono_fairqueue::{Live, Policy, TrafficDirection};
use unisono_linux::undo::DirectoryLock;

/// One place, on one device.
///
/// ```text
///             apply(A)        apply(B)
///   as it was ------> A holds ------> B holds
///       ^ ^              | clear         | clear
///       | +--------------+               |
///       +--------------------------------+      also by a signal during apply, and after kill -9
/// ```
pub trait EnforcingPlace: fmt::Debug {
    fn kind(&self) -> &'static PlaceKind;

    fn side(&self) -> LinkSide;

    /// What the last call has to say besides its result.
    fn notes(&self) -> &[String];

    /// Checks whether a policy can be enforced here, and changes nothing.
    fn check(&mut self, policy: &Policy) -> Result<(), Error>;

    /// Enforces a policy: all of it or nothing, and then what was there before is there again. Another policy
    /// is replaced, without losing packets where that is possible. If the host cannot do it, or has no such
    /// device, nothing has changed.
    fn apply(&mut self, policy: &Policy) -> Result<(), Error>;

    /// What each class has got until now. Fails if no policy is enforced there, or if the host does not
    /// answer.
    fn live(&mut self) -> Result<Live, Error>;

    /// As [`live`](Self::live), with what the place counts besides the classes, if it counts anything.
    fn figures(&mut self) -> Result<(Live, Option<Counters>), Error> {
        Ok((self.live()?, None))
    }

    /// Puts back what was there before the first policy. Nothing to put back is no error.
    fn clear(&mut self) -> Result<(), Error>;

    /// Restores what killed processes have left. The caller must hold the journal's lock.
    fn mend(&mut self, journal: &Journal) -> Result<(), Error>;

    /// Begins where no policy of this place is in force. The caller must hold the journal's lock.
    fn begin(&mut self, policy: &Policy, lock: &DirectoryLock) -> Result<(), Error>;

    /// Whether the place that is in force has to go before this one can begin.
    fn is_barred_by(&mut self, in_force: &Record<Value>) -> bool {
        in_force.backend != self.kind().name
    }

    /// Ends what a journal that was put aside describes, because another place is in force now. The caller
    /// must hold the journal's lock.
    fn give_way(&mut self, aside: &Journal) -> Result<(), Error>;
}

/// What a place occupies at a device. Two places that occupy nothing in common can be in force at the same
/// time, so one can begin before the other goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceHook {
    /// The queueing discipline of the device.
    Discipline,
    /// The program that sees each packet before that discipline.
    Egress,
}

/// The value of `--backend`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendName {
    Kernel,
    Interposed,
}

impl BackendName {
    /// Each with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 2] = [
        (Self::Kernel, "kernel", "The kernel's own classes (HTB)"),
        (
            Self::Interposed,
            "interposed",
            "A queue of Unisono's, between programs and the device; divides what is left by weight",
        ),
    ];
}

/// The value of `--kernel-queue`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelQueueName {
    Htb,
    Bpf,
}

impl KernelQueueName {
    /// Each with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 2] = [
        (Self::Htb, "htb", "The kernel's token buckets"),
        (
            Self::Bpf,
            "bpf",
            "Unisono's scheduler as a BPF program (Linux 6.16 and later); divides what is left by weight, has no ceilings",
        ),
    ];
}

/// Asked before every step of a change. `Some` says by whom the change is stopped.
pub type StopQuestion = Box<dyn FnMut() -> Option<String> + Send>;

/// One of the places, and by which options a user chooses it.
pub struct PlaceKind {
    /// Its name in journals and answers.
    pub name: &'static str,
    pub backend: BackendName,
    pub kernel_queue: Option<KernelQueueName>,
    pub directions: &'static [TrafficDirection],
    pub hooks: &'static [DeviceHook],
    /// The place on one direction of a device.
    pub at: fn(&LinkSide, StopQuestion) -> Box<dyn EnforcingPlace>,
}

impl fmt::Debug for PlaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a queue in front of a device counts besides its classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Frames that came.
    pub received: u64,
    /// Dropped because they contradict themselves.
    pub malformed: u64,
    /// Dropped because they did not come from the device.
    pub strangers: u64,
    /// Dropped because there was no room for them.
    pub overrun: u64,
    /// Lost because the device did not take them.
    pub unsent: u64,
    /// Handed to the device as parts of larger frames, which the device cuts again.
    #[serde(default)]
    pub merged: u64,
    /// Longer than the queue takes, so they passed by unscheduled.
    #[serde(default)]
    pub too_long: u64,
}
