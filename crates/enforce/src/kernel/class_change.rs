//! Changes one class of the policy in force: its HTB class, its queue, and the siblings whose guaranteed
//! rates move by more than is ignored ([`super::in_force`]).
//!
//! ```text
//!   record prepared --> class changed --> record committed
//!                   |                 |
//!                   |                 +-- killed: the new terms hold, and the record has the previous ones
//!                   +-- killed: nothing has changed
//! ```
//! The kernel first, then the record: a class whose record is behind still sends by the terms that the last
//! command gave it, while a record that is ahead would list terms that the class does not have yet. The next
//! change and the next `apply` compare with the classes of the kernel, not with the record, so both repair
//! it. The record is never in the phase `Changing`, because then the next command would end the whole policy.
//!
//! Cost: the kernel describes all classes of the device (some microseconds each), without the queues of those
//! that stay, and the record gets another line. The classifier and all other classes stay as they are.

use super::htb_classes::{self, HANDLE, PlannedClass};
use super::in_force::ClassesInForce;
use super::saved::{BeforeKernel, Root};
use super::site::{HostDevice, KernelBackend};
use super::{Kernel, sockets};
use crate::error::Error;
use crate::journal::Record;
use unisono_fairqueue::{ChangedPolicy, ClassTerms, Policy, TermsChange};
use unisono_linux::netlink::NetlinkRequest;

pub(super) fn change(kernel: &mut Kernel, change: &TermsChange) -> Result<ClassTerms, Error> {
    kernel.site.notes.clear();
    let mut host = kernel.site.host()?;
    let journal = kernel.site.journal()?;
    let _lock = journal.lock()?;
    let mut held = kernel.recovered(&mut host, &journal)?.ok_or_else(|| kernel.site.no_policy())?;
    if !matches!(kernel.root(&mut host, true), Ok(Root::Ours)) {
        return Err(kernel.site.removed("the classes"));
    }
    if let Some(programs) = &held.before.receiving
        && programs.figures()?.is_none()
    {
        return Err(kernel.site.removed("the XDP program that receives by class"));
    }
    let ChangedPolicy { policy, terms } = change.apply_to(&held.policy)?;
    let requests = requests(kernel, &mut host, &policy, &held)?;
    // first, so that a full file system is noticed before any change
    let as_wanted = journal.prepare_change(&held, &policy.text, change)?;
    let done = host.socket.run(&requests).map_err(Error::from);
    let done = done.and_then(|()| set_nice_values(&held, &policy));
    if let Err(error) = done.and_then(|()| Ok(journal.commit_change(as_wanted, &mut held, &policy.text)?)) {
        let undone = Policy::parse(&held.policy).map_err(Error::from).and_then(|policy| {
            let requests = self::requests(kernel, &mut host, &policy, &held)?;
            host.socket.run(&requests)?;
            set_nice_values(&held, &policy)
        });
        return Err(error.or_not_restored(&kernel.site.device(), undone));
    }
    Ok(terms)
}

/// Sets the nice values of the threads that receive for the classes, if there are any.
fn set_nice_values(held: &Record<BeforeKernel>, policy: &Policy) -> Result<(), Error> {
    held.before.receiving.as_ref().map_or(Ok(()), |programs| programs.set_nice_values(policy))
}

/// Returns the requests that change the present classes into the classes of a policy. The policy has the tree
/// of the record.
fn requests(
    kernel: &Kernel,
    host: &mut HostDevice,
    policy: &Policy,
    held: &Record<BeforeKernel>,
) -> Result<Vec<NetlinkRequest>, Error> {
    let before = &held.before;
    let mut in_force = ClassesInForce::read_classes(host, HANDLE)?;
    let stored = sockets::stored(policy, &before.numbers, before.sockets)?;
    let leaves = stored.map_or_else(Vec::new, |stored| stored.leaves);
    let (longest, _) = kernel.longest(host, policy, before.gso_max_size);
    let mut plan: Vec<PlannedClass> =
        htb_classes::plan(policy, &before.numbers, longest, kernel.tuning, &leaves, &in_force);
    plan.retain(|planned| !planned.is_in(&in_force));
    // the queue of a leaf follows from the parameters of its class
    for planned in plan.iter().filter(|planned| planned.leaf.is_some()) {
        in_force.read_leaf(host, planned.class.number)?;
    }
    Ok(htb_classes::changes(&plan, &in_force, host.queue))
}
