//! The guard of sockets: gives sockets of users without privilege leaves of their own in the classes of the
//! policies in force.
//!
//! ```text
//!   user --> who is it?  --> request and descriptor --> the device whose policy has the class --> leaf
//!            SO_PEERCRED      one thread each           crate::kernel                             |
//!                                                       descriptor closed, then the answer <------+
//!   every second:    leaves whose sockets are gone are removed
//! ```
//! The guard stores no list of leaves: the kernel stores the leaf of each socket at the socket, and frees
//! this data with the socket. So nothing is lost if the guard is killed, and the next guard continues from
//! the same state. `unisono queue clear` removes the leaves together with the other classes.
//!
//! Cost: a wake-up a second; for each request some milliseconds, and a change of the other leaves of its
//! class. When not to use it: for programs that a match can distinguish. Reference: section 2.3.1 of the
//! paper on middleware and operating systems (QLinux), Documentation/bpf/map_sk_storage.rst.

mod server;

pub use server::{GuardError, GuardServer};

use crate::error::Error;
use crate::journal::{Journal, LinkSide};
use crate::kernel::{AppliedPlan, HTB_BACKEND, Kernel, LeafRequest, ProgramName, ShareError};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use unisono_fairqueue::{Policy, SocketClass, TrafficDirection};
use unisono_linux::Errno;
use unisono_linux::local_socket::Peer;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::socket::is_internet;
use unisono_socket_shares::message::ShareRequest;

/// The socket of the host's guard.
pub const SOCKET: &str = unisono_socket_shares::GUARD_SOCKET;
const ROOT_USER: u32 = 0;

/// A function that returns the number of a user with a given name.
pub type UserLookup = Box<dyn Fn(&str) -> Option<u32> + Send + Sync>;

/// The state of the guard, for the policies in force in this network namespace.
struct SocketGuard {
    user_id: UserLookup,
    /// The policies as they were last read, by device. They are kept because parsing a long policy takes
    /// milliseconds.
    parsed: Mutex<BTreeMap<LinkSide, Arc<Policy>>>,
    /// The classes as they were last set, by device. One request at a time changes them.
    applied: Mutex<BTreeMap<LinkSide, Option<AppliedPlan>>>,
}

impl SocketGuard {
    fn new(user_id: UserLookup) -> Self {
        Self { user_id, parsed: Mutex::default(), applied: Mutex::default() }
    }

    /// Returns the devices whose policies may have classes for sockets, each with its policy.
    fn policies(&self) -> Result<Vec<(LinkSide, Arc<Policy>)>, Error> {
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut policies = BTreeMap::new();
        for (side, journal) in Journal::all()? {
            let record = journal.read::<IgnoredAny>()?;
            let ours = record.filter(|record| record.backend == HTB_BACKEND);
            let Some(record) = ours.filter(|_| side.direction == TrafficDirection::Out) else { continue };
            let policy = match parsed.remove(&side).filter(|policy| policy.text == record.policy) {
                Some(policy) => policy,
                None => Arc::new(Policy::parse(&record.policy)?),
            };
            policies.insert(side, policy);
        }
        parsed.clone_from(&policies);
        Ok(policies.into_iter().collect())
    }

    fn permits(&self, sockets: &SocketClass, user: u32) -> bool {
        let is_user = |name: &String| name.parse().ok().or_else(|| (self.user_id)(name)) == Some(user);
        user == ROOT_USER || sockets.from.iter().any(is_user)
    }

    /// Returns whether any policy permits a user to request leaves for sockets.
    fn knows(&self, user: u32) -> Result<bool, Error> {
        let all = self.policies()?;
        let mut classes = all.iter().flat_map(|(_, policy)| &policy.sockets);
        Ok(user == ROOT_USER || classes.any(|sockets| self.permits(sockets, user)))
    }

    /// Gives a socket a leaf in the first policy that has the class.
    fn share(&self, request: &ShareRequest, peer: Peer, socket: &OwnedFd) -> Result<(), ShareError> {
        let user = peer.user;
        if !is_internet(socket).map_err(ShareError::NoSocket)? {
            return Err(ShareError::NoSocket(Errno::AFNOSUPPORT.into()));
        }
        let ShareRequest { class, weight } = request;
        let policies = self.policies()?;
        let found = policies.iter().find_map(|(side, policy)| {
            let id = policy.hierarchy.find(class)?;
            Some((side, policy, policy.sockets(id).is_some()))
        });
        let (side, policy) = match found {
            Some((side, policy, true)) => (side, policy),
            Some((.., false)) => return Err(ShareError::NotForSockets { class: class.clone(), user }),
            None => {
                let names = policies.iter().flat_map(|(_, policy)| {
                    let permitted = policy.sockets.iter().filter(|sockets| self.permits(sockets, user));
                    permitted.map(|sockets| policy.hierarchy.class(sockets.class).name.clone())
                });
                return Err(ShareError::NoClass { class: class.clone(), known: names.collect() });
            }
        };
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let applied = applied.entry(side.clone()).or_default();
        // the name is for people to read: it stays empty if the process is not visible here
        let program = PinnedProcess::now(peer.process).and_then(|process| process.name()).unwrap_or_default();
        let wanted = LeafRequest { class, weight: *weight, user, program: ProgramName::new(&program) };
        let permits = |sockets: &SocketClass| self.permits(sockets, user);
        Kernel::at(side.clone()).share_socket(policy, wanted, socket.as_fd(), permits, applied)
    }

    /// Removes the leaves of sockets that are gone. Returns the errors of devices.
    fn remove_ended(&self) -> Result<Vec<String>, Error> {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let policies = self.policies()?;
        applied.retain(|side, _| policies.iter().any(|(other, _)| other == side));
        let mut errors = Vec::new();
        for (side, policy) in policies.iter().filter(|(_, policy)| !policy.sockets.is_empty()) {
            let applied = applied.entry(side.clone()).or_default();
            if let Err(error) = Kernel::at(side.clone()).remove_ended_leaves(policy, applied) {
                errors.push(format!("{side}: {error}"));
            }
        }
        Ok(errors)
    }

    /// Removes the leaves of all sockets.
    fn remove_all(&self) -> Result<(), Error> {
        let _applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        for (side, policy) in self.policies()?.iter().filter(|(_, policy)| !policy.sockets.is_empty()) {
            Kernel::at(side.clone()).remove_all_leaves(policy)?;
        }
        Ok(())
    }
}
