//! The backend of our own scheduler in the kernel: a queueing discipline made of a BPF program (Linux 6.16
//! and later).
//!
//! ```text
//!   packet --> classifier (clsact, egress) --> its class as its priority --> our discipline --> device
//! ```
//! It decides packet by packet as `unisono-fairqueue` does (docs/decisions/0011), so unused capacity is lent
//! by weight. A policy that is applied over another one replaces the classes in the existing discipline
//! ([`change`]): no waiting packet is lost, and at each moment the classifier's class numbers are valid. If
//! that is not possible (another version of Unisono made the discipline, or the device is down), the
//! discipline is replaced, and [`FairQueue::notes`] report the number of packets that were waiting in it.
//!
//! When not to use it: for ceilings and weights of control groups, which the backend with the kernel's token
//! buckets supports. A segment of 64 KiB that a program passes down in one piece is scheduled as one packet.

mod change;
mod figures;

use super::cgroups::{self, GroupNumbers};
use super::discipline::{self, Attached, KIND, LoadedDiscipline, PRIORITIES, Setup};
use super::saved::{self, Root, root_qdisc};
use super::site::{HostDevice, KernelBackend, KernelSite};
use super::{classifier, ingress_redirect};
use crate::backend::{
    Backend, BackendKind, BackendName, DeviceHook, KernelQueueName, refuse_hosts, refuse_receiving,
    refuse_sockets,
};
use crate::containers;
use crate::error::Error;
use crate::interposed;
use crate::journal::{Journal, LinkSide, Phase, Record, SenderNumbers};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::AsFd;
use unisono_fairqueue::{ClassId, ClassTerms, Live, Order, Policy, TermsChange, TrafficDirection};
use unisono_linux::bpf::ClassifierProgram;
use unisono_linux::bpf::compile::ProgramError;
use unisono_linux::netlink::filter::{self, TrafficHook};
use unisono_linux::netlink::qdisc::{self, Qdisc};
use unisono_linux::netlink::{egress, traffic};
use unisono_linux::undo::DirectoryLock;

/// The discipline's major number: `Un` in ASCII, or `Uo` for a discipline that replaces one of ours.
const MAJORS: [u16; 2] = [0x556e, 0x556f];
const CLSACT: &str = "clsact";
/// The most backlog of a class, unless the policy limits it, as time at the class's guaranteed rate (ns).
const QUEUE_NS: f64 = 20e6;
/// The least room of a class: two of the longest packets.
const MIN_ROOM: u64 = 2 * (65_536 + 1514);

pub static BPF: BackendKind = BackendKind {
    name: FairQueue::BPF_BACKEND,
    backend: BackendName::Kernel,
    kernel_queue: Some(KernelQueueName::Bpf),
    directions: &[TrafficDirection::Out],
    // its classifier runs at the egress
    hooks: &[DeviceHook::Discipline, DeviceHook::Egress],
    at: |side, interrupted| Box::new(FairQueue::new(&side.device).with_interrupt_check(interrupted)),
};

pub struct FairQueue {
    site: KernelSite,
}

impl fmt::Debug for FairQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairQueue").field("side", &self.site.side).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct BeforeFair {
    /// The device's earlier discipline. `None`: the kernel's default.
    root: Option<Qdisc>,
    /// Whether the device had a clsact discipline.
    clsact: bool,
}

/// A policy that is checked and loaded, but not in force.
struct LoadedPolicy {
    discipline: LoadedDiscipline,
    classifier: ClassifierProgram,
}

impl FairQueue {
    pub const BPF_BACKEND: &str = "kernel-bpf";

    /// Returns the backend for a device of this thread's network namespace.
    pub fn new(device: &str) -> Self {
        Self { site: KernelSite::at(LinkSide::out(device)) }
    }

    /// Sets the check for interruptions. `interrupted` is called before each change of the device and returns
    /// the cause of an interruption.
    pub fn with_interrupt_check(
        mut self,
        interrupted: impl FnMut() -> Option<String> + Send + 'static,
    ) -> Self {
        self.site.interrupted = Box::new(interrupted);
        self
    }

    /// Returns the present discipline of a device without a policy.
    fn root_before(&self, host: &mut HostDevice) -> Result<Option<Qdisc>, Error> {
        let device = self.site.device();
        match root_qdisc(&mut host.socket, &device, host.queue)? {
            Root::Ours => Err(Error::Occupied { device, kind: "htb".to_owned() }),
            Root::Theirs(root) => Ok(root),
        }
    }

    /// Checks whether this backend can enforce a policy. Adds notes about the parts that it ignores.
    fn check_policy(&mut self, host: &HostDevice, policy: &Policy) -> Result<(), Error> {
        self.site.check_senders(host, policy)?;
        let tree = &policy.hierarchy;
        if policy.cpu.is_some() {
            let what = "[cpu]: weights of control groups come with --kernel-queue htb only; or have the core keep the shares: \
                        --cpu-shares core".to_owned();
            return Err(Error::BackendUnsupported { what });
        }
        if policy.io.is_some() {
            let what = "[io]: weights of control groups come with --kernel-queue htb only; leave that option out, or [io]"
                .to_owned();
            return Err(Error::BackendUnsupported { what });
        }
        if !policy.framing.is_plain() {
            let what =
                "`overhead` and `atm` are kept by --kernel-queue htb and by the interposed backend only"
                    .to_owned();
            return Err(Error::BackendUnsupported { what });
        }
        refuse_hosts(policy)?;
        refuse_receiving(policy)?;
        refuse_sockets(policy, "the kernel's own classes (--kernel-queue htb)")?;
        self.site.notes.extend(super::htb_classes::ignored_notes(policy));
        for (id, class) in tree.classes() {
            if policy.ceiling(id) != policy.rate {
                let what = format!(
                    "class `{}`: ceilings are kept by --kernel-queue htb and by the interposed backend only",
                    class.name
                );
                return Err(Error::BackendUnsupported { what });
            }
            if class.order == Order::Deadline {
                self.site.note(format!(
                    "class `{}`: packets of the kernel have no deadlines; they leave in the order in which they come",
                    class.name
                ));
            }
        }
        Ok(())
    }

    fn replace(
        &self,
        host: &mut HostDevice,
        wanted: &LoadedPolicy,
        major: u16,
        has_clsact: bool,
    ) -> Result<(), Error> {
        let device = host.link.index;
        if !has_clsact {
            host.socket.run(&[traffic::clsact(device)])?;
        }
        let preference = filter::our_preference(&mut host.socket, device, TrafficHook::Egress)?;
        host.socket.run(&[
            qdisc::root(device, wanted.discipline.kind(), major),
            egress::attach(device, preference, wanted.classifier.as_fd(), "unisono_queue"),
        ])?;
        Ok(())
    }
}

impl KernelBackend for FairQueue {
    const BACKEND: &'static str = Self::BPF_BACKEND;
    type Before = BeforeFair;

    fn site(&mut self) -> &mut KernelSite {
        &mut self.site
    }

    fn restore(&mut self, host: &mut HostDevice, record: &Record<BeforeFair>) -> Result<(), Error> {
        let (device, before) = (host.link.index, &record.before);
        let now = qdisc::of_device(&mut host.socket, device)?;
        match now.iter().find(|qdisc| qdisc.parent == qdisc::ROOT) {
            Some(root) if root.kind.starts_with(KIND) => {
                saved::restore(&mut host.socket, before.root.as_ref(), device)?;
            }
            // the discipline is still the earlier one if the change failed before this step
            Some(root) if root.handle != 0 && Some(root) != before.root.as_ref() => {
                self.site.note(saved::replaced_note(&self.site.side.device));
            }
            _ => {}
        }
        if now.iter().any(|qdisc| qdisc.kind == CLSACT) {
            let _ = filter::remove_ours(&mut host.socket, device, TrafficHook::Egress);
            if !before.clsact {
                ingress_redirect::remove_clsact(host, &self.site.side, &mut self.site.notes)?;
            }
        }
        Ok(())
    }

    fn restore_outside_device(&mut self, _record: &Record<BeforeFair>) -> Result<(), Error> {
        Ok(())
    }
}

impl From<discipline::Error> for Error {
    fn from(error: discipline::Error) -> Self {
        match error {
            discipline::Error::Classes(error) => Self::BackendUnsupported { what: error.to_string() },
            discipline::Error::Program(error) => error.into(),
        }
    }
}

impl From<ProgramError> for Error {
    fn from(error: ProgramError) -> Self {
        match error {
            ProgramError::Refused(error) => Self::Classifier(error),
            error => Self::Lacks {
                what: error.to_string(),
                remedy: "--kernel-queue htb shares a link without it, almost equally".to_owned(),
            },
        }
    }
}

impl Backend for FairQueue {
    fn kind(&self) -> &'static BackendKind {
        &BPF
    }

    fn side(&self) -> LinkSide {
        self.site.side.clone()
    }

    fn notes(&self) -> &[String] {
        &self.site.notes
    }

    fn check(&mut self, policy: &Policy) -> Result<(), Error> {
        self.site.notes.clear();
        let mut host = self.site.host()?;
        let record = self.site.journal()?.header()?;
        // under an interposed queue, the device still has its earlier discipline
        if record.is_none_or(|record| record.backend == interposed::INTERPOSED_BACKEND) {
            self.root_before(&mut host)?;
        }
        self.check_policy(&host, policy)?;
        wanted(policy, &self.site.senders, MAJORS[0]).map(drop)
    }

    fn apply(&mut self, policy: &Policy) -> Result<(), Error> {
        self.site.host()?;
        let lock = self.site.journal()?.lock()?;
        self.install(policy, &lock)
    }

    fn install(&mut self, policy: &Policy, _lock: &DirectoryLock) -> Result<(), Error> {
        self.site.notes.clear();
        let journal = self.site.journal()?;
        // read only now, under the lock: another command may have changed the device before
        let mut host = self.site.host()?;
        cgroups::make_own(policy)?;
        let held = self.recovered(&mut host, &journal)?;
        if let Some(held) = &held {
            self.check_policy(&host, policy)?;
            if self.change(&mut host, &journal, held, policy)? {
                containers::refresh();
                return Ok(());
            }
        }
        let now = qdisc::of_device(&mut host.socket, host.link.index)?;
        let has = |major: u16| now.iter().any(|qdisc| qdisc.handle == u32::from(major) << 16);
        let major = if has(MAJORS[0]) { MAJORS[1] } else { MAJORS[0] };
        let has_clsact = now.iter().any(|qdisc| qdisc.kind == CLSACT);
        let before = match &held {
            Some(held) => held.before.clone(),
            None => {
                let root = self.root_before(&mut host)?;
                self.check_policy(&host, policy)?;
                // a clsact that the policy of incoming packets made is removed with the last of the two
                // policies
                let is_theirs = !journal.other_direction_made_clsact()?;
                BeforeFair { root, clsact: has_clsact && is_theirs }
            }
        };
        let wanted = wanted(policy, &self.site.senders, major)?;
        self.site.check_interrupted()?;
        let device = self.site.device();
        let waiting = held.as_ref().map_or(0, |held| waiting(&held.policy, &now));
        let record = Record::new(Self::BPF_BACKEND, &device, host.link.index.0, &policy.text, before)
            .with_senders(&self.site.senders);
        let as_wanted = journal.prepare(&record.clone().in_force())?;
        journal.write(&record)?;
        let attached = containers::attach_to_all(&self.site.senders).map(|note| self.site.notes.extend(note));
        let done = attached
            .and_then(|()| self.replace(&mut host, &wanted, major, has_clsact))
            .and_then(|()| self.site.check_interrupted());
        if let Err(error) = done {
            if held.is_some() {
                self.site.note(format!("{device} has no policy now"));
            }
            let undone = self.restore(&mut host, &record).and_then(|()| Ok(journal.remove()?));
            containers::refresh();
            return Err(error.or_not_restored(&device, undone));
        }
        if waiting > 0 {
            self.site.note(format!(
                "{waiting} packets that waited under the policy before were dropped with its discipline, whose classes could \
                 not be changed: another version of Unisono had made it, or {device} is down"
            ));
        }
        journal.commit(as_wanted)?;
        containers::refresh();
        Ok(())
    }

    /// Replaces all classes: this discipline has few of them, and keeps their packets.
    fn change_class(&mut self, change: &TermsChange) -> Result<ClassTerms, Error> {
        self.site.notes.clear();
        let mut host = self.site.host()?;
        let journal = self.site.journal()?;
        let lock = journal.lock()?;
        let record = self.recovered(&mut host, &journal)?.ok_or_else(|| self.site.no_policy())?;
        let changed = change.apply_to(&record.policy)?;
        let mut policy = Policy::parse(&changed.policy.text)?;
        (policy.cpu, policy.io) = (None, None); // other processes keep them, if any does
        self.install(&policy, &lock)?;
        Ok(changed.terms)
    }

    fn live(&mut self) -> Result<Live, Error> {
        self.site.notes.clear();
        let mut host = self.site.host()?;
        let journal = self.site.journal()?;
        loop {
            let mut record = self.record(&journal)?;
            if record.as_ref().is_some_and(|record| record.phase == Phase::Changing) {
                let _lock = journal.lock()?; // waits until the command that changes the policy is done
                record = self.recovered(&mut host, &journal)?;
            }
            let record = record.ok_or_else(|| self.site.no_policy())?;
            let now = qdisc::of_device(&mut host.socket, host.link.index)?;
            let root = now.iter().find(|qdisc| qdisc.parent == qdisc::ROOT);
            let Some(attached) = root.and_then(|root| Attached::open(&root.kind)) else {
                return Err(self.site.removed("our queueing discipline"));
            };
            let counted = attached?.figures()?;
            // if the policy has changed meanwhile, the counters may belong to newer classes: read again
            if self.record(&journal)?.is_some_and(|after| after.policy == record.policy) {
                return Ok(figures::live(&self.site.side.device, &Policy::parse(&record.policy)?, counted));
            }
        }
    }

    fn remove(&mut self) -> Result<(), Error> {
        self.remove_policy()?;
        containers::refresh();
        Ok(())
    }

    fn recover(&mut self, journal: &Journal) -> Result<(), Error> {
        KernelBackend::recover(self, journal)
    }

    /// Does nothing: a journal of this backend is never pending, because this backend has a hook in common
    /// with each other one, so it ends before another one begins.
    fn retire(&mut self, _pending: &Journal) -> Result<(), Error> {
        Ok(())
    }
}

fn setup<'a>(policy: &'a Policy, room: &'a [u64]) -> Setup<'a> {
    Setup {
        hierarchy: &policy.hierarchy,
        rate: Some(policy.rate),
        others: policy.default,
        by_priority: [None; PRIORITIES],
        room: Some(room),
    }
}

/// Returns the most bytes in each class, unless the policy limits them.
fn rooms(policy: &Policy) -> Vec<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; `as` saturates")]
    let room = |guarantee: f64| ((guarantee / 8.0 * QUEUE_NS / 1e9) as u64).max(MIN_ROOM);
    policy.guarantees().into_iter().map(room).collect()
}

fn wanted(policy: &Policy, senders: &SenderNumbers, major: u16) -> Result<LoadedPolicy, Error> {
    let discipline = LoadedDiscipline::load(&setup(policy, &rooms(policy)))?;
    Ok(LoadedPolicy { discipline, classifier: classifier(policy, senders, major, 0)? })
}

fn classifier(
    policy: &Policy,
    senders: &SenderNumbers,
    major: u16,
    generation: u32,
) -> Result<ClassifierProgram, Error> {
    let number = |class: ClassId| discipline::priority(major, generation, class);
    let sources = super::sources(policy, senders, &GroupNumbers::new(), number)?;
    let program = classifier::write_marking(policy, &sources, discipline::kick(major), number);
    let program = program.ok_or_else(|| Error::BackendUnsupported {
        what: "the rules make a program that is too long for the kernel".to_owned(),
    })?;
    Ok(ClassifierProgram::load("unisono_queue", &program)?)
}

/// Returns the number of packets in the device's discipline, under the policy in force.
fn waiting(policy: &str, now: &[Qdisc]) -> u64 {
    let root = now.iter().find(|qdisc| qdisc.parent == qdisc::ROOT);
    let counted = root.and_then(|root| Attached::open(&root.kind)).and_then(|open| open.ok()?.counted().ok());
    let (Some(counted), Ok(policy)) = (counted, Policy::parse(policy)) else { return 0 };
    let tree = &policy.hierarchy;
    let leaves = tree.classes().map(|(id, _)| id).filter(|id| tree.is_leaf(*id));
    leaves.filter_map(|leaf| counted.get(leaf.index())).map(|leaf| u64::from(leaf.packets)).sum()
}
