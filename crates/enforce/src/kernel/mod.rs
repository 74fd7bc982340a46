//! The kernel's own mechanism: token buckets for the link, weights of control groups for the processor.
//!
//! ```text
//!   Policy --> tree: classes with rates     --\
//!          --> program: whose packet is whose  >-- steps, one by one, each may be the last --> the policy holds
//!          --> cgroups: weights             --/            |
//!                                                          +-- failed, stopped, killed --> what was there before
//! ```
//! A first policy is put in the place of what the device began with. Another policy changes the classes that
//! are there; the classifier changes from the old one to the new one in one step, and classes that are gone
//! are served until nothing waits in them, so that no packet is lost. (Packets of a class that has moved may
//! leave before some that wait in its old place.)
//!
//! What it cannot do is said ([`Kernel::notes`]): deadlines, limits at inner classes, dropping from the
//! longest queue. What nobody uses is lent by weight among the leaves of one class only roughly where weights
//! differ by more than some tens. A class begins to hold at the moment in which the classifier is there, a
//! millisecond or so after the first step; packets that wait in the discipline that is replaced are lost.
//!
//! Cost: about a microsecond a packet. When not: where packets have deadlines, or delays have to be seen.
//! Reference: tc-htb(8), tc-bpf(8), Documentation/admin-guide/cgroup-v2.rst.

mod cgroups;
pub mod discipline;
mod fair;
mod figures;
mod program;
mod saved;
mod steps;
mod tree;

pub use fair::FairQueue;

use crate::cpu::controller::{self, GroupWeight};
use crate::error::Error;
use crate::interposed;
use crate::journal::{Journal, Phase, Record};
use saved::{BeforeKernel, Root, SegmentSize, root_of};
use std::fmt;
use steps::steps;
pub use tree::Tuning;
use tree::{ClassNumbers, PlannedClass};
use unisono_fairqueue::{Backend, ClassId, Live, Policy};
use unisono_linux::bpf::Classifier;
use unisono_linux::netlink::link::{self, Link};
use unisono_linux::netlink::{Socket, htb, qdisc};
use unisono_linux::undo::{DirectoryLock, PreparedFile};

/// The name on the command line.
pub const NAME: &str = "kernel";

/// The kernel's classes on one device.
pub struct Kernel {
    device: String,
    tuning: Tuning,
    stopped: Box<dyn FnMut() -> Option<String> + Send>,
    notes: Vec<String>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("device", &self.device).finish_non_exhaustive()
    }
}

/// The kernel, and the device as it is now.
struct HostDevice {
    socket: Socket,
    link: Link,
}

/// The record of a policy of this place; of another, it is an error.
fn record_of<B: for<'a> serde::Deserialize<'a>>(
    place: &str,
    device: &str,
    journal: &Journal,
) -> Result<Option<Record<B>>, Error> {
    match journal.read::<serde_json::Value>()?.map(|record| record.backend) {
        None => Ok(None),
        Some(backend) if backend == place => Ok(journal.read()?),
        Some(backend) => Err(Error::OtherBackend { device: device.to_owned(), backend }),
    }
}

/// What the classifier of a policy refers to in the kernel.
fn sources(policy: &Policy) -> Result<program::ProgramSources, Error> {
    program::ProgramSources::of(policy, cgroups::places(policy)?)
        .map_err(|source| Error::System { what: "make the map of fragments", source })
}

/// All that a policy means on this host, checked, with nothing changed.
struct PlannedPolicy {
    numbers: ClassNumbers,
    plan: Vec<PlannedClass>,
    classifier: Classifier,
    pieces: Option<SegmentSize>,
    weights: Vec<GroupWeight>,
    default: u16,
}

impl Kernel {
    /// The classes of a device of this thread's network namespace.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            tuning: Tuning::default(),
            stopped: Box::new(|| None),
            notes: Vec::new(),
        }
    }

    /// The same told otherwise, to compare with.
    #[must_use]
    pub fn tuned(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Asks before every step of a change whether to stop there, and by whom.
    #[must_use]
    pub fn until(mut self, stopped: impl FnMut() -> Option<String> + Send + 'static) -> Self {
        self.stopped = Box::new(stopped);
        self
    }

    fn host(&self) -> Result<HostDevice, Error> {
        let mut socket = Socket::open().map_err(|source| Error::System { what: "ask the kernel", source })?;
        let links = link::all(&mut socket)?;
        let known = links.iter().map(|link| link.name.clone()).collect();
        match links.into_iter().find(|link| link.name == self.device) {
            Some(link) => Ok(HostDevice { socket, link }),
            None => Err(Error::NoDevice { device: self.device.clone(), known }),
        }
    }

    fn record(&self, journal: &Journal) -> Result<Option<Record<BeforeKernel>>, Error> {
        record_of(NAME, &self.device, journal)
    }

    /// Classes of ours that no journal tells of.
    fn without_journal(&self) -> Error {
        Error::Occupied { device: self.device.clone(), kind: "htb".to_owned() }
    }

    fn wanted(
        &mut self,
        host: &HostDevice,
        policy: &Policy,
        before: &ClassNumbers,
        pieces: Option<SegmentSize>,
    ) -> Result<PlannedPolicy, Error> {
        let tree = &policy.hierarchy;
        if tree::levels(tree) > htb::MOST_LEVELS {
            let most = htb::MOST_LEVELS - 1;
            let what = format!(
                "the kernel nests classes at most {most} deep; the interposed backend has no such limit"
            );
            return Err(Error::NotByThis { what });
        }
        let Some(numbers) = tree::number(tree, before) else {
            return Err(Error::NotByThis {
                what: "more classes than the kernel has numbers, 65535".to_owned(),
            });
        };
        let sources = sources(policy)?;
        let weights = controller::weights(policy)?;
        let number = |class: ClassId| numbers[&tree.class(class).name].own;
        let program = program::write(policy, &sources, |class| tree::whole(number(class)));
        let Some(program) = program else {
            return Err(Error::NotByThis {
                what: "the rules make a program that is too long for the kernel".to_owned(),
            });
        };
        let classifier = Classifier::load("unisono_queue", &program).map_err(|error| {
            if !sources.have_cgroups() || !error.is_refused_by_verifier() {
                return Error::Classifier(error);
            }
            Error::Lacks {
                what: format!("this kernel does not let a classifier compare control groups: {error}"),
                remedy: "match by port, address or priority; or take a kernel of 4.19 or later".to_owned(),
            }
        })?;
        self.notes.extend(tree::not_done(policy));
        let now = pieces.map_or(host.link.most_at_once, SegmentSize::before);
        let longest = self.tuning.longest(policy, now);
        let pieces = match pieces {
            Some(pieces) => Some(pieces.but(longest)),
            None => SegmentSize::of(&host.link, longest),
        };
        let plan = tree::plan(policy, &numbers, longest, self.tuning);
        let default = number(policy.default);
        Ok(PlannedPolicy { numbers, plan, classifier, pieces, weights, default })
    }

    /// The record of a policy that holds. What was left half way is put back first.
    fn settled(
        &mut self,
        host: &mut HostDevice,
        journal: &Journal,
    ) -> Result<Option<Record<BeforeKernel>>, Error> {
        let Some(record) = self.record(journal)? else { return Ok(None) };
        if record.index != host.link.index.0 {
            self.notes.push(format!("{} is another device than the one that had a policy", self.device));
            self.put_weights_back(&record)?;
        } else if record.phase == Phase::Changing {
            self.put_back(host, &record)?;
            *host = self.host()?;
            self.notes.push(format!(
                "put back what `unisono queue` (process {}) had left half way on {}",
                record.process, self.device
            ));
        } else {
            return Ok(Some(record));
        }
        journal.remove()?;
        Ok(None)
    }

    fn put_back(&mut self, host: &mut HostDevice, record: &Record<BeforeKernel>) -> Result<(), Error> {
        let before = record.before.root.as_ref();
        match root_of(&mut host.socket, &self.device, host.link.index) {
            Ok(Root::Ours) => {
                host.socket.run(&[saved::put_back(before, host.link.index)])?;
                let now = qdisc::of_device(&mut host.socket, host.link.index)?;
                let is_there = |wanted| now.contains(wanted);
                if let Some(wanted) = before.filter(|wanted| !is_there(wanted)) {
                    self.notes.push(format!(
                        "{} begins with {} again, but the kernel describes it otherwise than before: look at it",
                        self.device, wanted.kind
                    ));
                }
            }
            Ok(Root::Theirs(_)) | Err(Error::Occupied { .. }) if record.phase == Phase::Changing => {}
            Ok(Root::Theirs(_)) | Err(Error::Occupied { .. }) => self.notes.push(format!(
                "somebody else has replaced the queueing discipline of {} since; it stays",
                self.device
            )),
            Err(error) => return Err(error),
        }
        if let Some(pieces) = record.before.pieces {
            if pieces.holds(&host.link) || record.phase == Phase::Changing {
                host.socket.run(&[pieces.put_back(host.link.index)])?;
            } else {
                self.notes.push(format!(
                    "somebody else has changed gso_max_size of {} since; it stays",
                    self.device
                ));
            }
        }
        self.put_weights_back(record)
    }

    /// The device is gone, and its classes with it; control groups are the host's.
    fn forget(&mut self, journal: &Journal) -> Result<(), Error> {
        if let Some(record) = self.record(journal)? {
            self.put_weights_back(&record)?;
        }
        self.notes.push(gone(&self.device));
        Ok(journal.remove()?)
    }

    /// Puts back what a process that was killed has left half way, and forgets a device that is gone. Only
    /// with the journal's lock.
    pub(crate) fn mend(&mut self, journal: &Journal) -> Result<(), Error> {
        self.notes.clear();
        match self.host() {
            Ok(mut host) => self.settled(&mut host, journal).map(drop),
            Err(Error::NoDevice { .. }) => self.forget(journal),
            Err(error) => Err(error),
        }
    }

    /// Takes away the classes of a journal that was put aside, because another place is in force by now. Only
    /// with the journal's lock.
    pub(crate) fn give_way(&mut self, aside: &Journal) -> Result<(), Error> {
        self.notes.clear();
        let Some(record) = self.record(aside)? else { return Ok(()) };
        self.put_back(&mut self.host()?, &record)?;
        Ok(aside.remove()?)
    }

    fn put_weights_back(&mut self, record: &Record<BeforeKernel>) -> Result<(), Error> {
        for weight in &record.before.weights {
            if !controller::put_back(weight, record.phase)? {
                let file = weight.file.display();
                self.notes.push(format!("somebody else has changed {file} since; it stays"));
            }
        }
        Ok(())
    }

    /// See [`Backend::apply`]; the caller has the journal's lock.
    pub(crate) fn apply_with(&mut self, policy: &Policy, _lock: &DirectoryLock) -> Result<(), Error> {
        self.notes.clear();
        // another command may have changed the device until it was locked
        let journal = Journal::of(&self.device)?;
        let mut host = self.host()?;
        let held = self.settled(&mut host, &journal)?;
        let root = root_of(&mut host.socket, &self.device, host.link.index)?;
        let (held, root) = match (held, root) {
            (Some(held), Root::Ours) => {
                let root = held.before.root.clone();
                (Some(held), root)
            }
            (None, Root::Ours) => return Err(self.without_journal()),
            (None, Root::Theirs(root)) => (None, root),
            (Some(held), Root::Theirs(root)) => {
                self.put_back(&mut host, &held)?;
                journal.remove()?;
                host = self.host()?;
                (None, root)
            }
        };
        let none = ClassNumbers::new();
        let before = held.as_ref().map(|held| &held.before);
        let numbers = before.map_or(&none, |before| &before.numbers);
        let wanted = self.wanted(&host, policy, numbers, before.and_then(|before| before.pieces))?;
        let mut then = BeforeKernel {
            root,
            pieces: wanted.pieces,
            weights: wanted.weights.clone(),
            numbers: wanted.numbers.clone(),
        };
        let known = held.iter().flat_map(|held| &held.before.weights);
        for weight in known.clone() {
            if let Some(same) = then.weights.iter_mut().find(|same| same.file == weight.file) {
                same.before.clone_from(&weight.before);
            }
        }
        let mut changing = Record::new(NAME, &self.device, host.link.index.0, &policy.text, then.clone());
        // whoever finds it half done has to know what both policies have changed
        let dropped = known.filter(|weight| then.weights.iter().all(|other| other.file != weight.file));
        changing.before.weights.extend(dropped.cloned());
        if let Some(held) = &held {
            let both = held.before.numbers.iter().map(|(name, number)| (format!("{name} before"), *number));
            changing.before.numbers.extend(both);
        }
        // whatever comes of it, there is room to write it down
        let mut holds = changing.clone().that_holds();
        holds.before.clone_from(&then);
        let as_wanted = journal.prepare(&holds)?;
        let as_before = held.as_ref().map(|held| journal.prepare(held)).transpose()?;
        journal.write(&changing)?;
        let steps = steps(&host, &wanted, held.as_ref().map(|held| &held.before), &then);
        if let Err(error) = self.carry_out(&mut host, steps) {
            let undone = self.undo(&mut host, &journal, &changing, held.as_ref().zip(as_before));
            return Err(error.unless_half_way(&self.device, undone));
        }
        Ok(journal.commit(as_wanted)?)
    }

    /// After a failure: the state of the record, or of no policy at all.
    fn undo(
        &mut self,
        host: &mut HostDevice,
        journal: &Journal,
        changing: &Record<BeforeKernel>,
        held: Option<(&Record<BeforeKernel>, PreparedFile)>,
    ) -> Result<(), Error> {
        let Some((held, as_before)) = held else {
            self.put_back(host, changing)?;
            return Ok(journal.remove()?);
        };
        let stopped = std::mem::replace(&mut self.stopped, Box::new(|| None));
        let notes = std::mem::take(&mut self.notes);
        let again = Policy::parse(&held.policy).map_err(Error::from).and_then(|mut policy| {
            policy.cpu = None; // which weights it had set, if any, the record says
            let wanted = self.wanted(host, &policy, &held.before.numbers, held.before.pieces)?;
            let steps = steps(host, &wanted, Some(&changing.before), &held.before);
            self.carry_out(host, steps)
        });
        (self.stopped, self.notes) = (stopped, notes);
        again?;
        Ok(journal.commit(as_before)?)
    }
}

impl Backend for Kernel {
    type Error = Error;

    fn name(&self) -> &'static str {
        NAME
    }

    fn device(&self) -> &str {
        &self.device
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn check(&mut self, policy: &Policy) -> Result<(), Error> {
        self.notes.clear();
        let mut host = self.host()?;
        self.wanted(&host, policy, &ClassNumbers::new(), None)?;
        let journal = Journal::of(&self.device)?;
        let record = journal.read::<serde_json::Value>()?;
        // a queue in front of the device leaves the discipline what it was
        if record.is_some_and(|record| record.backend != interposed::NAME) {
            return Ok(());
        }
        match root_of(&mut host.socket, &self.device, host.link.index)? {
            Root::Ours => Err(self.without_journal()),
            Root::Theirs(_) => Ok(()),
        }
    }

    fn apply(&mut self, policy: &Policy) -> Result<(), Error> {
        self.host()?;
        let lock = Journal::of(&self.device)?.lock()?;
        self.apply_with(policy, &lock)
    }

    fn live(&mut self) -> Result<Live, Error> {
        self.notes.clear();
        let mut host = self.host()?;
        let journal = Journal::of(&self.device)?;
        let no_policy = || Error::NoPolicy { device: self.device.clone() };
        let mut record = self.record(&journal)?.ok_or_else(no_policy)?;
        if record.phase == Phase::Changing || record.index != host.link.index.0 {
            let _lock = journal.lock()?;
            let settled = self.settled(&mut host, &journal)?;
            record = settled.ok_or_else(|| Error::NoPolicy { device: self.device.clone() })?;
        }
        let policy = Policy::parse(&record.policy)?;
        let statistics = htb::statistics(&mut host.socket, host.link.index)?;
        let at_ns = unisono_linux::clock::now().0;
        if statistics.is_empty() {
            return Err(Error::Lacks {
                what: format!("somebody else has removed the classes of {}", self.device),
                remedy: format!(
                    "apply the policy again, or forget it: unisono queue clear --dev {}",
                    self.device
                ),
            });
        }
        Ok(figures::live(&self.device, at_ns, &policy, &record.before.numbers, &statistics))
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.notes.clear();
        let journal = Journal::of(&self.device)?;
        let _lock = Journal::lock_what_is_there()?;
        let record = journal.read::<serde_json::Value>()?;
        let mut host = match (self.host(), record) {
            (Ok(host), Some(_)) => host,
            (Ok(_), None) => {
                self.notes.push(format!("{} has no policy: nothing to put back", self.device));
                return Ok(());
            }
            (Err(Error::NoDevice { .. }), Some(_)) => return self.forget(&journal),
            (Err(error), _) => return Err(error),
        };
        if let Some(record) = self.settled(&mut host, &journal)? {
            self.put_back(&mut host, &record)?;
            journal.remove()?;
        }
        Ok(())
    }
}

/// What is said of a device that had a policy and is not here any more.
fn gone(device: &str) -> String {
    format!("the device {device} is gone, and its classes with it")
}
