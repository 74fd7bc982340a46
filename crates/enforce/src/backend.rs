//! The trait of all backends that enforce a policy on a device.
//!
//! The verbs of this crate; each has one meaning, from the command to the system call:
//!
//! | verb | meaning | of what |
//! |---|---|---|
//! | `apply` | bring a policy into force, whatever is in force now (`queue apply`) | policy |
//! | `change_class` | change one class of the policy in force (`queue change`) | class |
//! | `install` | bring a policy into force where no policy of this backend is | policy |
//! | `remove` | end the policy in force, and restore the previous state (`queue clear`) | policy |
//! | `recover` | undo or finish the change of a killed process | one device; `recover_all`: all |
//! | `retire` | end the policy of the old backend once a new one is in force | pending journal |
//! | `restore` | set an object back to its recorded state | qdisc, weight, `gso_max_size`, device |
//! | `roll_back` | return to the previous policy after a failed change | policy, shares |
//! | `rename_to` | rename a journal: it is *pending* while another backend comes into force | journal |
//! | `prepare`, `commit` | write the next record beside the journal; replace the journal by it | journal |

use crate::error::Error;
use crate::journal::{Journal, LinkSide, Record};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use unisono_fairqueue::{ClassTerms, Live, Policy, TermsChange, TrafficDirection};
use unisono_linux::undo::DirectoryLock;

/// One backend, on one device.
///
/// ```text
///             apply(A)        apply(B)
///   as it was ------> A holds ------> B holds
///       ^ ^              | clear         | clear
///       | +--------------+               |
///       +--------------------------------+      also by a signal during apply, and after kill -9
/// ```
pub trait Backend: fmt::Debug {
    fn kind(&self) -> &'static BackendKind;

    fn side(&self) -> LinkSide;

    /// Returns the notes of the last call for the user, in addition to the call's result.
    fn notes(&self) -> &[String];

    /// Checks whether this backend can enforce a policy on this device. Changes nothing.
    fn check(&mut self, policy: &Policy) -> Result<(), Error>;

    /// Enforces a policy completely; on an error, restores the previous state. Replaces an existing policy,
    /// without losing packets if possible. If the host does not support the policy, or has no such device,
    /// nothing has changed.
    fn apply(&mut self, policy: &Policy) -> Result<(), Error>;

    /// Changes the terms of one class of the policy in force, and records them. The result equals the result
    /// of [`apply`](Self::apply) with the changed policy, but matches are neither read nor sent. On error,
    /// the class has its previous terms. If the command is killed, the class has the previous or the new
    /// terms, and the record may still have the previous ones: both are put right by any later change or
    /// `apply`.
    fn change_class(&mut self, change: &TermsChange) -> Result<ClassTerms, Error>;

    /// Reads the counters of each class. Fails if no policy is in force on the device, or if the kernel or
    /// the queue's process does not answer.
    fn live(&mut self) -> Result<Live, Error>;

    /// Reads the counters as [`live`](Self::live) does, and the backend's own counters besides the classes,
    /// if it has any.
    fn figures(&mut self) -> Result<(Live, Option<Counters>), Error> {
        Ok((self.live()?, None))
    }

    /// Reads the sockets that have leaves of their own. Places without such leaves have none.
    fn sockets(&mut self) -> Result<Vec<SocketShare>, Error> {
        Ok(Vec::new())
    }

    /// Restores the state before the first policy. It is no error if there is no policy.
    fn remove(&mut self) -> Result<(), Error>;

    /// Restores the state that killed processes have changed. The caller must hold the journal's lock.
    fn recover(&mut self, journal: &Journal) -> Result<(), Error>;

    /// Enforces a policy while no policy of this backend is in force. The caller must hold the journal's
    /// lock.
    fn install(&mut self, policy: &Policy, lock: &DirectoryLock) -> Result<(), Error>;

    /// Returns whether the record `in_force` is of another backend, or of this backend with other options, so
    /// that [`apply`](Self::apply) cannot just replace its policy.
    fn conflicts_with(&mut self, in_force: &Record<Value>) -> bool {
        in_force.backend != self.kind().name
    }

    /// Ends the policy of a pending journal, because another backend is in force now. The caller must
    /// hold the journal's lock.
    fn retire(&mut self, pending: &Journal) -> Result<(), Error>;
}

/// The hooks of a device that a backend occupies. Two backends without a common hook can be in force at the
/// same time, so one can begin before the other ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceHook {
    /// The queueing discipline of the device.
    Discipline,
    /// The egress hook, whose programs see each packet before that discipline does.
    Egress,
}

/// The value of `--backend`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendName {
    Kernel,
    Interposed,
}

impl BackendName {
    /// All values, each with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 2] = [
        (Self::Kernel, "kernel", "The kernel's own classes (HTB)"),
        (
            Self::Interposed,
            "interposed",
            "A queue of Unisono's, between programs and the device; divides unused bandwidth by weight",
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
    /// All values, each with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 2] = [
        (Self::Htb, "htb", "The kernel's token buckets"),
        (
            Self::Bpf,
            "bpf",
            "Unisono's scheduler as a BPF program (Linux 6.16 and later); divides unused bandwidth by weight, has no ceilings",
        ),
    ];
}

/// A check that is called before every step of a change. It returns the cause if the change is to be
/// interrupted.
pub type InterruptCheck = Box<dyn FnMut() -> Option<String> + Send>;

/// A kind of backend, and the options that select it.
pub struct BackendKind {
    /// The backend's name in journals and answers.
    pub name: &'static str,
    pub backend: BackendName,
    pub kernel_queue: Option<KernelQueueName>,
    pub directions: &'static [TrafficDirection],
    pub hooks: &'static [DeviceHook],
    /// Makes the backend for one direction of a device.
    pub at: fn(&LinkSide, InterruptCheck) -> Box<dyn Backend>,
}

impl fmt::Debug for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A socket that weighs itself: it has a leaf of its own below a class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SocketShare {
    /// The number of the leaf at its device; another socket may get it later.
    pub leaf: u16,
    pub class: String,
    /// The name of the program that asked for the share, as the kernel knew it then; at most 16 bytes. The
    /// program may have passed the socket on since.
    pub program: String,
    /// The user who asked.
    pub user: u32,
    /// Relative to the other sockets of the class.
    pub weight: f64,
    pub packets: u64,
    pub bytes: u64,
}

/// Counters of an interposed queue in addition to the counters of its classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Frames that the queue received.
    pub received: u64,
    /// Frames dropped because they are malformed.
    pub malformed: u64,
    /// Frames dropped because they did not come from the device.
    pub strangers: u64,
    /// Frames dropped because there was no room for them.
    pub overrun: u64,
    /// Frames lost because the device did not take them.
    pub unsent: u64,
    /// Frames sent to the device as parts of larger frames, which the device segments again.
    #[serde(default)]
    pub merged: u64,
    /// Frames that were longer than the queue's maximum, so that they passed unscheduled.
    #[serde(default)]
    pub too_long: u64,
    /// Frames that bypassed the queue, unscheduled, while its worker did not report that it is alive.
    #[serde(default)]
    pub unattended: u64,
}

/// Fails if sockets have leaves of their own in the policy, for a backend that cannot give them any. `place`
/// is the place where they can have leaves, for the message.
pub(crate) fn refuse_sockets(policy: &Policy, place: &str) -> Result<(), Error> {
    let Some(sockets) = policy.sockets.first() else { return Ok(()) };
    let class = &policy.hierarchy.class(sockets.class).name;
    let what = format!(
        "class `{class}`: sockets have leaves of their own in {place} only; take `sockets` out, or apply the policy there"
    );
    Err(Error::BackendUnsupported { what })
}

/// Fails if the policy says how packets that come in are received, for a backend that cannot do so.
pub(crate) fn refuse_receiving(policy: &Policy) -> Result<(), Error> {
    if policy.receiving.is_none() {
        return Ok(());
    }
    let what = "receive = \"by-class\" comes with --direction in, --backend kernel and --kernel-queue htb only; take `receive` out, \
                or apply the policy there";
    Err(Error::BackendUnsupported { what: what.to_owned() })
}

/// Fails if hosts take turns in a class of the policy, for a backend that cannot have them do so.
pub(crate) fn refuse_hosts(policy: &Policy) -> Result<(), Error> {
    let Some(class) = policy.class_of_hosts() else { return Ok(()) };
    let what = format!(
        "class `{class}`: hosts take turns (`fair`) with --backend interposed only; apply the policy there, or have flows \
         take turns: flows = \"fair\""
    );
    Err(Error::BackendUnsupported { what })
}
