//! The backend of the kernel's own mechanisms: token buckets (HTB) for the link, and weights of control
//! groups for processor time and disks.
//!
//! ```text
//!   Policy --> tree: classes with rates     --\
//!          --> program: the classifier        >-- steps, each may be the last --> the policy holds
//!          --> cgroups: weights             --/            |
//!                                                          +-- failed, killed --> the previous state
//! ```
//! A first policy replaces the device's discipline; packets that wait there are lost. A further policy
//! changes the existing classes that differ (`in_force.rs`): the classifier is replaced in one step, and
//! removed classes are served until they are empty, for at most 3 s, so normally no packet is lost. (Packets
//! of a class that has moved may leave before packets that wait in its old place.) A policy takes effect when
//! the classifier is attached, about a millisecond after the first step.
//!
//! [`Kernel::notes`] lists the parts of a policy that this backend cannot enforce: deadlines, limits at inner
//! classes, dropping from the longest queue. Unused capacity is lent by weight among the leaves below one
//! class, but only roughly if their weights differ by more than a factor of some tens.
//!
//! Cost: about a microsecond a packet. When not to use it: if packets have deadlines, or delays have to be
//! measured. Reference: tc-htb(8), tc-bpf(8), Documentation/admin-guide/cgroup-v2.rst.

mod cgroups;
mod class_change;
mod classifier;
pub mod discipline;
mod fair;
mod figures;
mod htb_classes;
mod in_force;
mod ingress_redirect;
mod own_priority;
mod receiving;
mod saved;
mod site;
mod socket_leaves;
mod sockets;
mod steps;

pub use fair::{BPF, FairQueue};

use crate::backend::{
    Backend, BackendKind, BackendName, DeviceHook, KernelQueueName, SocketShare, refuse_hosts, refuse_sockets,
};
use crate::containers;
use crate::error::Error;
use crate::group_weights::{self, GroupWeight};
use crate::interposed;
use crate::journal::{Journal, LinkSide, Phase, Record, SenderNumbers};
use cgroups::GroupNumbers;
pub use htb_classes::Tuning;
use htb_classes::{ClassNumbers, FlowTurns, Longest, PlannedClass};
use in_force::ClassesInForce;
use receiving::{PlannedReceiving, ReceivingPrograms};
use saved::{BeforeKernel, GsoMaxSize, Root, root_qdisc};
pub(crate) use site::KernelBackend;
use site::{HostDevice, KernelSite};
pub(crate) use socket_leaves::ProgramName;
pub use sockets::ShareError;
pub(crate) use sockets::{AppliedPlan, LeafRequest};
use std::fmt;
use std::os::fd::AsFd;
use steps::steps;
use unisono_fairqueue::{ClassId, ClassTerms, Live, Policy, TermsChange, TrafficDirection};
use unisono_linux::bpf::{ClassifierProgram, LoadedProgram, SocketStorage};
use unisono_linux::netlink::link::Index;
use unisono_linux::netlink::qdisc::CountedSize;
use unisono_linux::netlink::{NetlinkSocket, htb, qdisc, traffic};
use unisono_linux::undo::{DirectoryLock, PreparedFile};

/// The name of the classifier's program.
const CLASSIFIER: &str = "unisono_queue";

/// The backend's name in journals and on the command line.
pub const HTB_BACKEND: &str = "kernel";
pub static HTB: BackendKind = BackendKind {
    name: HTB_BACKEND,
    backend: BackendName::Kernel,
    kernel_queue: Some(KernelQueueName::Htb),
    directions: &[TrafficDirection::Out, TrafficDirection::In],
    hooks: &[DeviceHook::Discipline],
    at: |side, interrupted| Box::new(Kernel::at(side.clone()).with_interrupt_check(interrupted)),
};

pub struct Kernel {
    site: KernelSite,
    tuning: Tuning,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("side", &self.site.side).finish_non_exhaustive()
    }
}

fn sources(
    policy: &Policy,
    senders: &SenderNumbers,
    known: &GroupNumbers,
    number: impl Fn(ClassId) -> u32,
) -> Result<classifier::ProgramSources, Error> {
    let groups = cgroups::group_positions(policy, senders, known)?;
    classifier::ProgramSources::for_policy(policy, groups, number)
        .map_err(|source| Error::System { what: "make the maps of the classifier", source })
}

/// A policy that is checked and loaded, but not in force.
struct PlannedPolicy {
    numbers: ClassNumbers,
    plan: Vec<PlannedClass>,
    /// The classes that the device has. Empty without a policy in force.
    in_force: ClassesInForce,
    counted_size: Option<CountedSize>,
    classifier: ClassifierProgram,
    gso_max_size: Option<GsoMaxSize>,
    weights: Vec<GroupWeight>,
    default: u16,
    /// For a policy of incoming packets: the program of the filter that redirects them to their queue.
    ingress_redirect: Option<ClassifierProgram>,
    /// For a policy of outgoing packets: the program that keeps sockets from choosing their class.
    own_priority: Option<ClassifierProgram>,
    /// For a policy of incoming packets: the program that passes them to the threads of their classes.
    receiving: Option<PlannedReceiving>,
    /// The kernel's number of the map with the leaves of sockets.
    sockets: Option<u32>,
    /// The numbers of the control groups that the classifier compares.
    groups: GroupNumbers,
}

impl Kernel {
    /// Returns the backend for the outgoing packets of a device in this thread's network namespace.
    pub fn new(device: &str) -> Self {
        Self::at(LinkSide::out(device))
    }

    /// Returns the backend for one direction of a device in this thread's network namespace.
    pub fn at(side: LinkSide) -> Self {
        Self { site: KernelSite::at(side), tuning: Tuning::default() }
    }

    pub fn with_tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Sets the check for interruptions. `interrupted` is called before every step of a change and returns
    /// the cause of an interruption.
    pub fn with_interrupt_check(
        mut self,
        interrupted: impl FnMut() -> Option<String> + Send + 'static,
    ) -> Self {
        self.site.interrupted = Box::new(interrupted);
        self
    }

    /// Returns the error for classes of ours that no journal mentions.
    fn without_journal(&self) -> Error {
        Error::Occupied { device: self.site.device(), kind: "htb".to_owned() }
    }

    /// Returns the lengths of the longest packets, and the limit to set at the device. `set` is the limit
    /// that a policy has already set.
    fn longest(
        &self,
        host: &HostDevice,
        policy: &Policy,
        set: Option<GsoMaxSize>,
    ) -> (Longest, Option<GsoMaxSize>) {
        let now = set.map_or(host.link.gso_max_size, GsoMaxSize::before);
        let is_incoming = self.site.side.direction == TrafficDirection::In;
        let segments = htb_classes::max_segments(policy);
        let (longest, gso_max_size) = match (is_incoming, self.tuning.longest(policy, now), set) {
            (true, ..) => (ingress_redirect::MAX_GRO_BYTES, None),
            (false, longest, Some(set)) => (longest, Some(set.with_limits(longest, segments))),
            (false, longest, None) => (longest, GsoMaxSize::for_device(&host.link, longest, segments)),
        };
        // packets of other hosts come as long as the receiving device has merged them
        let arriving = if host.forwards() { longest.max(ingress_redirect::MAX_GRO_BYTES) } else { longest };
        (Longest { sent: longest, arriving }, gso_max_size)
    }

    /// Checks a policy and prepares everything that can be prepared before the change. `before` is the state
    /// that the policy in force has recorded. `known` has the numbers of control groups that may be absent.
    fn plan_policy(
        &mut self,
        host: &mut HostDevice,
        policy: &Policy,
        before: Option<&BeforeKernel>,
        known: &GroupNumbers,
    ) -> Result<PlannedPolicy, Error> {
        refuse_hosts(policy)?;
        let tree = &policy.hierarchy;
        if htb_classes::levels(policy) > htb::MAX_LEVELS {
            let max_depth = htb::MAX_LEVELS - 1;
            let what = format!(
                "the kernel nests classes at most {max_depth} deep, leaves of sockets included; the interposed backend \
                 has no such limit"
            );
            return Err(Error::BackendUnsupported { what });
        }
        let can = match qdisc::knows(&mut host.socket, "fq_codel")? {
            true => FlowTurns::Known,
            false => FlowTurns::Unknown,
        };
        let none = ClassNumbers::new();
        let numbers_before = before.map_or(&none, |before| &before.numbers);
        let Some(numbers) = htb_classes::number(policy, numbers_before, can) else {
            return Err(Error::BackendUnsupported {
                what: format!("more than {} classes", socket_leaves::FIRST_LEAF - 2),
            });
        };
        let is_incoming = self.site.side.direction == TrafficDirection::In;
        let ingress_redirect = is_incoming.then(ingress_redirect::redirect_all).transpose()?;
        if is_incoming {
            refuse_sockets(policy, "policies of packets that are sent")?;
            ingress_redirect::check_matchers(policy)?;
            self.site.notes.extend(ingress_redirect::earlier_notes(host, &self.site.side.device)?);
        }
        let own_priority = (!is_incoming).then(own_priority::program).transpose()?;
        let number = |class: ClassId| htb_classes::packet_class(&numbers, &tree.class(class).name);
        let handle = |class: ClassId| htb_classes::class_handle(number(class));
        let mut sources = sources(policy, &self.site.senders, known, handle)?;
        let stored = sockets::stored(policy, &numbers, before.and_then(|before| before.sockets))?;
        let (mut leaves, mut sockets) = (Vec::new(), None);
        if let Some(stored) = stored {
            (leaves, sockets) = (stored.leaves, Some(stored.id));
            sources = sources.with_sockets(stored.storage, stored.classes);
        }
        let (weights, io_note) = group_weights::weights(policy)?;
        self.site.notes.extend(io_note);
        let program = classifier::write(policy, &sources, handle);
        let Some(program) = program else {
            return Err(Error::BackendUnsupported {
                what: "the rules make a program that is too long for the kernel".to_owned(),
            });
        };
        let classifier = ClassifierProgram::load(CLASSIFIER, &program).map_err(|error| {
            if !sources.have_cgroups() || !error.is_refused_by_verifier() {
                return Error::Classifier(error);
            }
            Error::Lacks {
                what: format!("this kernel does not let a classifier compare control groups: {error}"),
                remedy: "match by port, address or priority; or take a kernel of 4.19 or later".to_owned(),
            }
        })?;
        let receiving = self.plan_receiving(host, policy, &sources, handle)?;
        self.site.notes.extend(htb_classes::unsupported_notes(policy, can));
        let (longest, gso_max_size) =
            self.longest(host, policy, before.and_then(|before| before.gso_max_size));
        if !policy.framing.is_plain() && (is_incoming || host.forwards()) {
            self.site.note(htb_classes::MERGED_NOTE);
        }
        self.site.notes.extend(htb_classes::too_long_notes(policy, longest.arriving));
        let in_force = match before {
            Some(_) => ClassesInForce::read(host, htb_classes::HANDLE)?,
            None => ClassesInForce::default(),
        };
        let plan = htb_classes::plan(policy, &numbers, longest, self.tuning, &leaves, &in_force);
        let default = number(policy.default);
        Ok(PlannedPolicy {
            numbers,
            plan,
            in_force,
            counted_size: htb_classes::counted_size(policy),
            classifier,
            gso_max_size,
            weights,
            default,
            ingress_redirect,
            own_priority,
            receiving,
            sockets,
            groups: sources.group_numbers(),
        })
    }

    /// Attaches the classifier again if control groups of the policy were made anew since, such as the group
    /// of a restarted service: the kernel gives them other numbers.
    fn follow_groups(
        &mut self,
        host: &mut HostDevice,
        journal: &Journal,
        policy: &Policy,
    ) -> Result<(), Error> {
        let present = cgroups::present_numbers(policy);
        if present.is_empty() {
            return Ok(());
        }
        let is_followed = |before: &BeforeKernel| {
            present.iter().all(|(path, number)| before.groups.get(path) == Some(number))
        };
        if self.record(journal)?.is_none_or(|record| is_followed(&record.before)) {
            return Ok(());
        }
        let _lock = journal.lock()?;
        // another command may have changed the policy before this one got the lock
        let record = self.record(journal)?.filter(|record| record.phase == Phase::Holds);
        let Some(mut record) = record.filter(|record| record.policy == policy.text) else { return Ok(()) };
        self.site.senders.clone_from(&record.senders);
        let notes = std::mem::take(&mut self.site.notes);
        let planned = self.plan_policy(host, policy, Some(&record.before), &record.before.groups);
        self.site.notes = notes;
        let planned = planned?;
        host.socket.run(&[traffic::classify(
            host.queue,
            htb_classes::HANDLE,
            planned.classifier.as_fd(),
            CLASSIFIER,
        )])?;
        record.before.groups = planned.groups;
        Ok(journal.write(&record)?)
    }

    /// Restores the weights of a policy whose network namespace, with its devices, no longer exists.
    pub(crate) fn forget(&mut self, journal: &Journal) -> Result<(), Error> {
        if let Some(record) = journal.read_any::<BeforeKernel>()? {
            self.restore_weights(&record)?;
        }
        Ok(())
    }

    fn restore_weights(&mut self, record: &Record<BeforeKernel>) -> Result<(), Error> {
        for weight in &record.before.weights {
            if !group_weights::restore(weight, record.phase)? {
                let file = weight.file.display();
                self.site.note(format!("somebody else has changed {file} since; it stays"));
            }
        }
        Ok(())
    }

    /// Returns the device's present discipline. Fails if a policy may not replace it.
    fn root(&self, host: &mut HostDevice, has_policy: bool) -> Result<Root, Error> {
        if self.site.side.direction == TrafficDirection::In && !has_policy {
            ingress_redirect::check_free(host, &self.site.side)?;
            return Ok(Root::Theirs(None));
        }
        root_qdisc(&mut host.socket, &self.site.side.device, host.queue)
    }

    /// Restores, after a failed change, the policy that was `held`, or the state of the device without a
    /// policy.
    fn roll_back(
        &mut self,
        host: &mut HostDevice,
        journal: &Journal,
        changing: &Record<BeforeKernel>,
        held: Option<(&Record<BeforeKernel>, PreparedFile)>,
    ) -> Result<(), Error> {
        let Some((held, as_before)) = held else {
            self.restore(host, changing)?;
            return Ok(journal.remove()?);
        };
        let interrupted = std::mem::replace(&mut self.site.interrupted, Box::new(|| None));
        let notes = std::mem::take(&mut self.site.notes);
        self.site.senders.clone_from(&held.senders);
        let again = Policy::parse(&held.policy).map_err(Error::from).and_then(|mut policy| {
            // its weights and its XDP program are restored from its record
            (policy.cpu, policy.io, policy.receiving) = (None, None, None);
            let wanted = self.plan_policy(host, &policy, Some(&held.before), &held.before.groups)?;
            let steps = steps(host, &wanted, Some(&changing.before), &held.before)?;
            self.execute(host, steps)
        });
        (self.site.interrupted, self.site.notes) = (interrupted, notes);
        again?;
        Ok(journal.commit(as_before)?)
    }
}

impl KernelBackend for Kernel {
    const BACKEND: &'static str = HTB_BACKEND;
    type Before = BeforeKernel;

    fn site(&mut self) -> &mut KernelSite {
        &mut self.site
    }

    fn restore(&mut self, host: &mut HostDevice, record: &Record<BeforeKernel>) -> Result<(), Error> {
        let device = self.site.device();
        if self.site.side.direction == TrafficDirection::In {
            let had_clsact = record.before.had_clsact;
            if let Some(programs) = &record.before.receiving {
                let note = receiving::detach(host, programs)?;
                self.site.notes.extend(note.filter(|_| record.phase == Phase::Holds));
            }
            return ingress_redirect::restore(host, &self.site.side, had_clsact, &mut self.site.notes);
        }
        own_priority::detach(host.link.index);
        let before = record.before.root.as_ref();
        match root_qdisc(&mut host.socket, &device, host.queue) {
            Ok(Root::Ours) => {
                saved::restore(&mut host.socket, before, host.queue)?;
                let now = qdisc::of_device(&mut host.socket, host.queue)?;
                let is_there = |wanted| now.contains(wanted);
                if let Some(wanted) = before.filter(|wanted| !is_there(wanted)) {
                    self.site.note(format!(
                        "{device} begins with {} again, but the kernel describes it otherwise than before: look at it",
                        wanted.kind
                    ));
                }
            }
            Ok(Root::Theirs(_)) | Err(Error::Occupied { .. }) if record.phase == Phase::Changing => {}
            Ok(Root::Theirs(_)) | Err(Error::Occupied { .. }) => {
                self.site.note(saved::replaced_note(&device));
            }
            Err(error) => return Err(error),
        }
        if let Some(gso_max_size) = record.before.gso_max_size {
            if gso_max_size.holds(&host.link) || record.phase == Phase::Changing {
                host.socket.run(&[gso_max_size.restore(host.queue)])?;
            } else {
                self.site.note(format!("somebody else has changed gso_max_size of {device} since; it stays"));
            }
        }
        self.restore_weights(record)
    }

    fn restore_outside_device(&mut self, record: &Record<BeforeKernel>) -> Result<(), Error> {
        if self.site.side.direction == TrafficDirection::In {
            let mut socket =
                NetlinkSocket::open().map_err(|source| Error::System { what: "ask the kernel", source })?;
            return ingress_redirect::remove_ifb(&mut socket, Index(record.index));
        }
        self.restore_weights(record)
    }
}

impl Backend for Kernel {
    fn kind(&self) -> &'static BackendKind {
        &HTB
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
        self.site.check_senders(&host, policy)?;
        self.plan_policy(&mut host, policy, None, &GroupNumbers::new())?;
        let record = self.site.journal()?.header()?;
        // under an interposed queue, the device still has its earlier discipline
        if record.is_some_and(|record| record.backend != interposed::INTERPOSED_BACKEND) {
            return Ok(());
        }
        match self.root(&mut host, false)? {
            Root::Ours => Err(self.without_journal()),
            Root::Theirs(_) => Ok(()),
        }
    }

    fn apply(&mut self, policy: &Policy) -> Result<(), Error> {
        self.site.host()?;
        let lock = self.site.journal()?.lock()?;
        self.install(policy, &lock)
    }

    fn change_class(&mut self, change: &TermsChange) -> Result<ClassTerms, Error> {
        class_change::change(self, change)
    }

    fn live(&mut self) -> Result<Live, Error> {
        self.site.notes.clear();
        let mut host = self.site.host()?;
        let journal = self.site.journal()?;
        let record = self.record(&journal)?.ok_or_else(|| self.site.no_policy())?;
        let record = if host.is_settled(&record) {
            record
        } else {
            let _lock = journal.lock()?;
            self.recovered(&mut host, &journal)?.ok_or_else(|| self.site.no_policy())?
        };
        let policy = Policy::parse(&record.policy)?;
        self.follow_groups(&mut host, &journal, &policy)?;
        let statistics = htb::statistics(&mut host.socket, host.queue)?;
        let at = unisono_linux::clock::now();
        if statistics.is_empty() {
            return Err(self.site.removed("the classes"));
        }
        let receiving = record.before.receiving.as_ref();
        let receiving = receiving.map(|programs| {
            programs.figures()?.ok_or_else(|| self.site.removed("the XDP program that receives by class"))
        });
        let receiving = receiving.transpose()?.unwrap_or_default();
        let counted = (&record.before.numbers, statistics.as_slice());
        Ok(figures::live(&self.site.side, at, &policy, counted, &receiving))
    }

    fn sockets(&mut self) -> Result<Vec<SocketShare>, Error> {
        self.socket_shares()
    }

    fn remove(&mut self) -> Result<(), Error> {
        self.remove_policy()?;
        containers::refresh();
        Ok(())
    }

    fn recover(&mut self, journal: &Journal) -> Result<(), Error> {
        KernelBackend::recover(self, journal)
    }

    fn install(&mut self, policy: &Policy, _lock: &DirectoryLock) -> Result<(), Error> {
        self.site.notes.clear();
        // read only now, under the lock: another command may have changed the device before
        let journal = self.site.journal()?;
        let mut host = self.site.host()?;
        cgroups::make_own(policy)?;
        let held = self.recovered(&mut host, &journal)?;
        let root = self.root(&mut host, held.is_some())?;
        let (held, root) = match (held, root) {
            (Some(held), Root::Ours) => {
                let root = held.before.root.clone();
                (Some(held), root)
            }
            (None, Root::Ours) => return Err(self.without_journal()),
            (None, Root::Theirs(root)) => (None, root),
            (Some(held), Root::Theirs(root)) => {
                self.restore(&mut host, &held)?;
                journal.remove()?;
                host = self.site.host()?;
                (None, root)
            }
        };
        self.site.check_senders(&host, policy)?;
        let before = held.as_ref().map(|held| &held.before);
        // keeps the storage of the previous classifier open, because that classifier is attached again if the
        // change fails
        let _sockets_before = before.and_then(|before| SocketStorage::open(before.sockets?).ok());
        let wanted = self.plan_policy(&mut host, policy, before, &GroupNumbers::new())?;
        // for the same reason
        let programs_before = before.and_then(|before| before.receiving.as_ref());
        let _program_before =
            programs_before.and_then(|held| LoadedProgram::by_id(held.program).ok().flatten());
        let had_clsact = match (before, self.site.side.direction) {
            (Some(before), _) => before.had_clsact,
            (None, TrafficDirection::In) => ingress_redirect::has_foreign_clsact(&mut host, &self.site.side)?,
            (None, TrafficDirection::Out) => false,
        };
        let mut then = BeforeKernel {
            root,
            gso_max_size: wanted.gso_max_size,
            weights: wanted.weights.clone(),
            numbers: wanted.numbers.clone(),
            had_clsact,
            sockets: wanted.sockets,
            groups: wanted.groups.clone(),
            receiving: wanted.receiving.as_ref().map(|planned| planned.programs.clone()),
        };
        let known = held.iter().flat_map(|held| &held.before.weights);
        for weight in known.clone() {
            if let Some(same) = then.weights.iter_mut().find(|same| same.file == weight.file) {
                same.before.clone_from(&weight.before);
            }
        }
        let device = self.site.device();
        let mut changing = Record::new(HTB_BACKEND, &device, host.link.index.0, &policy.text, then.clone())
            .with_senders(&self.site.senders);
        // a process that finds this unfinished change has to know what both policies have changed
        let dropped = known.filter(|weight| then.weights.iter().all(|other| other.file != weight.file));
        changing.before.weights.extend(dropped.cloned());
        changing.before.receiving =
            ReceivingPrograms::while_changing(then.receiving.as_ref(), programs_before);
        if let Some(held) = &held {
            let numbers = held.before.numbers.iter();
            let other = numbers.filter(|(name, number)| then.numbers.get(*name) != Some(*number));
            let other = other.map(|(name, number)| (format!("{name} before"), *number));
            changing.before.numbers.extend(other);
        }
        // writes the final record now, so that no later step needs space in the file system
        let mut holds = changing.clone().in_force();
        holds.before.clone_from(&then);
        let as_wanted = journal.prepare(&holds)?;
        let as_before = held.as_ref().map(|_| journal.prepare_present()).transpose()?;
        journal.write(&changing)?;
        let steps = steps(&mut host, &wanted, held.as_ref().map(|held| &held.before), &then)?;
        let attached = containers::attach_to_all(&self.site.senders).map(|note| self.site.notes.extend(note));
        if let Err(error) = attached.and_then(|()| self.execute(&mut host, steps)) {
            let undone = self.roll_back(&mut host, &journal, &changing, held.as_ref().zip(as_before));
            containers::refresh();
            return Err(error.or_not_restored(&device, undone));
        }
        journal.commit(as_wanted)?;
        sockets::forget_gone(policy, &then)?;
        containers::refresh();
        Ok(())
    }

    fn retire(&mut self, pending: &Journal) -> Result<(), Error> {
        self.site.notes.clear();
        let Some(record) = self.record(pending)? else { return Ok(()) };
        self.restore(&mut self.site.host()?, &record)?;
        Ok(pending.remove()?)
    }
}
