//! The leaves of sockets at a device: they are made on request, changed whenever another leaf of their class
//! comes or goes, and removed after their sockets are closed.
//!
//! ```text
//!   request --> permitted? --> a free number --> class at the device --> words at the socket --> its packets
//!   socket gone --> its words are gone --> a class without words, and empty --> removed
//! ```
//! The kernel stores the list of leaves at the sockets ([`socket_leaves`]), so a later process finds there
//! all leaves that a killed process has made. The rates and turns of a class's leaves are computed from that
//! list, as the rates and turns of the classes are computed from the policy.
//!
//! Cost: a request changes the other leaves of its class, about 10 us each.

use super::htb_classes::{self, ClassNumbers, HANDLE, PlannedClass};
use super::in_force::ClassesInForce;
use super::saved::BeforeKernel;
use super::site::{HostDevice, KernelBackend};
use super::socket_leaves::{CLASS_WORD, FIRST_LEAF, MAX_LEAVES, ProgramName, SocketLeaf, free_number};
use super::{HTB_BACKEND, Kernel};
use crate::backend::SocketShare;
use crate::error::Error;
use crate::journal::{Journal, Phase, Record};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use unisono_fairqueue::{Policy, SocketClass, TrafficDirection};
use unisono_linux::Errno;
use unisono_linux::bpf::{SocketStorage, StorageScan};
use unisono_linux::netlink::htb::{self, HtbStatistics};
use unisono_linux::netlink::{NetlinkRequest, Refused, qdisc};

/// Why a socket gets no leaf.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    #[error("no policy in force here has a class `{class}`{}; see: unisono queue show", one_of(.known))]
    NoClass { class: String, known: Vec<String> },
    #[error(
        "class `{class}` has no leaves for sockets; the administrator adds to it: sockets = {{ from = [{user}] }}"
    )]
    NotForSockets { class: String, user: u32 },
    #[error("user {user} may not have sockets in class `{class}`; the administrator adds the user to `from`")]
    NotPermitted { class: String, user: u32 },
    #[error("class `{class}` takes weights from {min} to {max}")]
    Weight { class: String, min: f64, max: f64 },
    #[error(
        "user {user} has {max} sockets in class `{class}`, the most; close one, or the administrator raises `max`"
    )]
    UserFull { class: String, user: u32, max: u32 },
    #[error("{device} has {MAX_LEAVES} sockets with leaves, the most; close one")]
    DeviceFull { device: String },
    #[error("the policy of {device} is being changed; try again")]
    Changing { device: String },
    #[error("the descriptor is no socket for IPv4 or IPv6: {0}")]
    NoSocket(#[source] io::Error),
    #[error(transparent)]
    Failed(#[from] Error),
}

fn one_of(classes: &[String]) -> String {
    match classes {
        [] => String::new(),
        classes => format!("; classes for sockets are {}", classes.join(", ")),
    }
}

impl ShareError {
    /// Returns the number of errno(3) that programs get for this error.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::NoClass { .. } => Errno::NOENT,
            Self::NotForSockets { .. } => Errno::OPNOTSUPP,
            Self::NotPermitted { .. } => Errno::PERM,
            Self::Weight { .. } => Errno::RANGE,
            Self::UserFull { .. } => Errno::DQUOT,
            Self::DeviceFull { .. } => Errno::NOSPC,
            Self::Changing { .. } => Errno::AGAIN,
            Self::NoSocket(_) => Errno::NOTSOCK,
            Self::Failed(_) => Errno::IO,
        };
        errno.raw_os_error()
    }
}

impl From<Refused> for ShareError {
    fn from(refused: Refused) -> Self {
        Self::Failed(refused.into())
    }
}

/// The leaf that a program asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafRequest<'a> {
    pub(crate) class: &'a str,
    pub(crate) weight: f64,
    pub(crate) user: u32,
    pub(crate) program: ProgramName,
}

/// The classes that were last set at a device, and the record of their policy.
#[derive(Debug)]
pub(crate) struct AppliedPlan {
    record: Record<BeforeKernel>,
    plan: Vec<PlannedClass>,
}

/// The leaves of sockets of a policy, as the kernel stores them.
pub(super) struct StoredSockets {
    pub(super) storage: SocketStorage,
    /// The kernel's number of the storage.
    pub(super) id: u32,
    /// The numbers of the classes that have such leaves.
    pub(super) classes: Vec<u16>,
    pub(super) leaves: Vec<SocketLeaf>,
}

/// Opens the storage `id` of the policy in force, or makes one. Returns `None` if sockets have leaves in no
/// class of `policy`.
pub(super) fn stored(
    policy: &Policy,
    numbers: &ClassNumbers,
    id: Option<u32>,
) -> Result<Option<StoredSockets>, Error> {
    let classes = class_numbers(policy, numbers);
    if classes.is_empty() {
        return Ok(None);
    }
    let made = || -> io::Result<StoredSockets> {
        // loading the scan takes milliseconds, and the guard needs it every second
        static SCAN: OnceLock<StorageScan> = OnceLock::new();
        let scan = match SCAN.get() {
            Some(scan) => scan,
            None => {
                let loaded = StorageScan::reading()?;
                SCAN.get_or_init(|| loaded)
            }
        };
        let open = id.map(SocketStorage::open).and_then(Result::ok);
        let storage = open.map_or_else(|| SocketStorage::new("unisono_sockets"), Ok)?;
        let leaves = scan.run(&storage)?.into_iter().filter_map(SocketLeaf::from_words);
        let leaves = leaves.filter(|leaf| classes.contains(&leaf.class)).collect();
        Ok(StoredSockets { id: storage.id()?, storage, classes, leaves })
    };
    made().map(Some).map_err(|error| Error::Lacks {
        what: format!("this kernel does not keep classes at sockets: {error}"),
        remedy: "take `sockets` out of the policy, or use Linux 5.9 or later with CONFIG_DEBUG_INFO_BTF"
            .to_owned(),
    })
}

fn class_numbers(policy: &Policy, numbers: &ClassNumbers) -> Vec<u16> {
    let name = |sockets: &SocketClass| &policy.hierarchy.class(sockets.class).name;
    policy.sockets.iter().map(|sockets| numbers[name(sockets)].own).collect()
}

/// Clears the words at all sockets except those in classes in which `policy`, now in force, permits leaves of
/// sockets. Otherwise a class that gets the number of a removed class would get its sockets, too.
pub(super) fn forget_gone(policy: &Policy, before: &BeforeKernel) -> Result<(), Error> {
    let Some(id) = before.sockets else { return Ok(()) };
    clear_all_but(id, &class_numbers(policy, &before.numbers))
}

fn clear_all_but(id: u32, classes: &[u16]) -> Result<(), Error> {
    let kept: Vec<u32> = classes.iter().map(|class| u32::from(*class)).collect();
    let cleared = StorageScan::clearing(CLASS_WORD, &kept)
        .and_then(|scan| SocketStorage::open(id).and_then(|storage| scan.run(&storage)));
    cleared.map(drop).map_err(|source| Error::System { what: "clear the leaves of sockets", source })
}

/// Returns the leaves of sockets at a device, whether or not their sockets still exist.
pub(super) fn leaves_at(host: &mut HostDevice) -> Result<Vec<HtbStatistics>, Error> {
    let mut classes = htb::statistics(&mut host.socket, host.queue)?;
    classes.retain(|class| class.number & !0xffff == HANDLE && class.number & 0xffff >= FIRST_LEAF.into());
    Ok(classes)
}

/// A policy in force that has classes with leaves of sockets, while its journal is locked.
struct HeldPolicy {
    record: Record<BeforeKernel>,
    policy: Arc<Policy>,
    stored: StoredSockets,
    host: HostDevice,
}

impl HeldPolicy {
    /// Returns the numbers of the classes whose sockets exist.
    fn with_sockets(&self) -> HashSet<u32> {
        self.stored.leaves.iter().map(|leaf| htb_classes::class_handle(leaf.leaf)).collect()
    }
}

impl Kernel {
    /// Returns the policy of this device, if it is in force and sockets may have leaves in its classes. If
    /// `known` is the same policy, its text is not parsed again.
    fn held_sockets(&mut self, journal: &Journal, known: &Arc<Policy>) -> Result<Option<HeldPolicy>, Error> {
        let is_ours = |record: &Record<serde_json::Value>| {
            record.backend == HTB_BACKEND && record.phase == Phase::Holds
        };
        if self.site.side.direction == TrafficDirection::In || !journal.read()?.as_ref().is_some_and(is_ours)
        {
            return Ok(None);
        }
        let Some(record) = self.record(journal)?.filter(|record| record.before.sockets.is_some()) else {
            return Ok(None);
        };
        let host = self.site.host()?;
        if record.index != host.link.index.0 || !host.has_queue {
            return Ok(None);
        }
        let policy = match known.text == record.policy {
            true => Arc::clone(known),
            false => Arc::new(Policy::parse(&record.policy)?),
        };
        let Some(stored) = stored(&policy, &record.before.numbers, record.before.sockets)? else {
            return Ok(None);
        };
        if Some(stored.id) != record.before.sockets {
            return Err(self.site.removed("the classifier"));
        }
        Ok(Some(HeldPolicy { record, policy, stored, host }))
    }

    /// The sockets that have leaves of their own, sorted by class and leaf.
    pub(super) fn socket_shares(&mut self) -> Result<Vec<SocketShare>, Error> {
        let journal = self.site.journal()?;
        let Some(record) = self.record(&journal)?.filter(|record| record.before.sockets.is_some()) else {
            return Ok(Vec::new());
        };
        let policy = Arc::new(Policy::parse(&record.policy)?);
        let Some(mut held) = self.held_sockets(&journal, &policy)? else { return Ok(Vec::new()) };
        let counted: HashMap<u32, HtbStatistics> =
            leaves_at(&mut held.host)?.into_iter().map(|class| (class.number, class)).collect();
        let names =
            held.policy.sockets.iter().map(|sockets| &held.policy.hierarchy.class(sockets.class).name);
        let names: HashMap<u16, &String> =
            names.map(|name| (held.record.before.numbers[name].own, name)).collect();
        let mut shares: Vec<SocketShare> = held
            .stored
            .leaves
            .iter()
            .filter_map(|leaf| {
                let counted = counted.get(&htb_classes::class_handle(leaf.leaf)).copied().unwrap_or_default();
                Some(SocketShare {
                    leaf: leaf.leaf,
                    class: (*names.get(&leaf.class)?).clone(),
                    program: leaf.program.to_string(),
                    user: leaf.user,
                    weight: leaf.weight,
                    packets: counted.packets,
                    bytes: counted.bytes,
                })
            })
            .collect();
        shares.sort_by(|one, other| (&one.class, one.leaf).cmp(&(&other.class, other.leaf)));
        Ok(shares)
    }

    /// Gives a socket a leaf of its own, or changes the leaf that it has.
    pub(crate) fn share_socket(
        &mut self,
        known: &Arc<Policy>,
        request: LeafRequest<'_>,
        socket: BorrowedFd<'_>,
        permits: impl Fn(&SocketClass) -> bool,
        applied: &mut Option<AppliedPlan>,
    ) -> Result<(), ShareError> {
        let LeafRequest { class, weight, user, program } = request;
        let device = self.site.device();
        let journal = self.site.journal()?;
        let _lock = journal.lock().map_err(Error::from)?;
        let Some(mut held) = self.held_sockets(&journal, known)? else {
            return Err(ShareError::Changing { device });
        };
        let permitted = held.policy.hierarchy.find(class).and_then(|id| held.policy.sockets(id));
        let Some(permitted) = permitted.cloned() else { return Err(ShareError::Changing { device }) };
        let class = class.to_owned();
        if !permits(&permitted) {
            return Err(ShareError::NotPermitted { class, user });
        }
        let (min, max) = (permitted.min_weight.to_f64(), permitted.max_weight.to_f64());
        if !(min..=max).contains(&weight) {
            return Err(ShareError::Weight { class, min, max });
        }
        let storage = &held.stored.storage;
        let words = storage.read(socket).map_err(ShareError::NoSocket)?;
        let present = words.and_then(SocketLeaf::from_words);
        let number = held.record.before.numbers[&class].own;
        let others = held.stored.leaves.iter().filter(|leaf| Some(leaf.leaf) != present.map(|own| own.leaf));
        let count = others.clone().filter(|leaf| leaf.class == number && leaf.user == user).count();
        if count >= permitted.max as usize {
            return Err(ShareError::UserFull { class, user, max: permitted.max });
        }
        let leaf = match present.filter(|present| present.class == number) {
            Some(present) => present.leaf,
            None => {
                let mut used = held.with_sockets();
                used.extend(leaves_at(&mut held.host)?.iter().map(|class| class.number));
                free_number(|own| used.contains(&htb_classes::class_handle(own)))
                    .ok_or(ShareError::DeviceFull { device })?
            }
        };
        let own = SocketLeaf { leaf, class: number, weight, user, program };
        let leaves: Vec<SocketLeaf> = others.copied().chain([own]).collect();
        self.set_plan(&mut held, &leaves, applied)?;
        let words = own.words(htb_classes::class_handle(leaf));
        held.stored.storage.set(socket, &words).map_err(ShareError::NoSocket)
    }

    /// Removes the leaves in which no packets wait and whose sockets are gone, and divides their classes
    /// among the remaining leaves.
    pub(crate) fn remove_ended_leaves(
        &mut self,
        known: &Arc<Policy>,
        applied: &mut Option<AppliedPlan>,
    ) -> Result<(), Error> {
        let journal = self.site.journal()?;
        let Some(mut held) = self.held_sockets(&journal, known)? else {
            *applied = None;
            return Ok(());
        };
        let there = leaves_at(&mut held.host)?;
        let alive = held.with_sockets();
        if there.len() == held.stored.leaves.len() && there.iter().all(|class| alive.contains(&class.number))
        {
            return Ok(());
        }
        let _lock = journal.lock()?;
        let Some(mut held) = self.held_sockets(&journal, known)? else { return Ok(()) };
        let (alive, there) = (held.with_sockets(), leaves_at(&mut held.host)?);
        let gone = there.iter().filter(|class| !alive.contains(&class.number) && class.waiting_packets == 0);
        let device = held.host.queue;
        let remove: Vec<NetlinkRequest> = gone.map(|class| htb::remove_class(device, class.number)).collect();
        held.host.socket.run(&remove)?;
        *applied = None;
        let leaves = held.stored.leaves.clone();
        self.set_plan(&mut held, &leaves, applied)
    }

    /// Removes the leaves of all sockets. Packets of these sockets then wait with the other packets of their
    /// class.
    pub(crate) fn remove_all_leaves(&mut self, known: &Arc<Policy>) -> Result<(), Error> {
        let Some(_lock) = Journal::lock_if_used()? else { return Ok(()) };
        let journal = self.site.journal()?;
        let Some(mut held) = self.held_sockets(&journal, known)? else { return Ok(()) };
        clear_all_but(held.stored.id, &[])?;
        let there: Vec<u32> = leaves_at(&mut held.host)?.iter().map(|class| class.number).collect();
        if there.is_empty() {
            return Ok(());
        }
        self.drain(&mut held.host, &there)?;
        let device = held.host.queue;
        let remove: Vec<NetlinkRequest> =
            there.iter().map(|class| htb::remove_class(device, *class)).collect();
        held.host.socket.run(&remove)?;
        self.set_plan(&mut held, &[], &mut None)
    }

    /// Sets the classes that differ from the `applied` plan.
    fn set_plan(
        &self,
        held: &mut HeldPolicy,
        leaves: &[SocketLeaf],
        applied: &mut Option<AppliedPlan>,
    ) -> Result<(), Error> {
        let HeldPolicy { record, policy, host, .. } = held;
        let (longest, _) = self.longest(host, policy, record.before.gso_max_size);
        let plan = htb_classes::plan(
            policy,
            &record.before.numbers,
            longest,
            self.tuning,
            leaves,
            &ClassesInForce::default(),
        );
        let before = applied.take().filter(|applied| applied.record == *record);
        let before = before.map(|applied| applied.plan).unwrap_or_default();
        let before: HashMap<u32, &PlannedClass> =
            before.iter().map(|planned| (planned.class.number, planned)).collect();
        let is_new = |planned: &&PlannedClass| before.get(&planned.class.number) != Some(planned);
        let device = host.queue;
        let changed: Vec<&PlannedClass> = plan.iter().filter(is_new).collect();
        let classes = changed.iter().map(|planned| planned.request(device));
        let leaves = changed.iter().filter_map(|planned| planned.leaf_request(device, qdisc::AUTOMATIC));
        let requests = classes.chain(leaves);
        host.socket.run(&requests.collect::<Vec<_>>())?;
        *applied = Some(AppliedPlan { record: record.clone(), plan });
        Ok(())
    }
}
