//! Marks packets of containers with the control group of their sender, where they enter the host.
//!
//! The kernel knows the socket that sent a packet, and so its control group, until the packet reaches an IP
//! stack or a bridge. A packet of a container with a network of its own gets that far at the host's end of
//! the container's veth pair:
//!
//! ```text
//!   namespace of the container | namespace of the policy
//!      socket --> veth device ==|==> veth device --> bridge, routes, NAT --> device with the policy
//!                               |    our program writes the group            its classifier reads
//!                               |    number into tc_index                    tc_index
//! ```
//! The program writes into the packet the number ([`SenderNumbers`]) of the deepest control group that
//! contains the sender and that a policy of this namespace names. It passes every packet on. It is attached
//! to each veth device whose other end is in another namespace, through tcx, where each program has an entry
//! of its own. The policies of all devices share the program; the groups that it compares are those in their
//! journals.
//!
//! Limits: a veth device that is made after `apply` gets the program only at the next `unisono queue`
//! command, because each command looks for new devices ([`attach_to_all`]). A packet carries one number: if
//! one policy names a group and another policy names a group below it, packets of the lower group match only
//! the policy that names the lower one. Needs Linux 6.6.

use crate::cpu::below;
use crate::error::Error;
use crate::journal::{Journal, SenderNumbers};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use unisono_fairqueue::Policy;
use unisono_linux::bpf::ClassifierProgram;
use unisono_linux::bpf::assembler::{Assembler, BpfRegister, JumpWhen, R0, R1, R2};
use unisono_linux::bpf::tcx::{self, TcxHook};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, hierarchies};
use unisono_linux::netlink::NetlinkSocket;
use unisono_linux::netlink::link::{self, Index, NetworkDevice, PeerLocation};
use unisono_linux::network_namespace::NetworkNamespace;

/// The offset of `tc_index` in `struct __sk_buff`.
pub(crate) const TC_INDEX: i16 = 44;
const PROGRAM: &str = "unisono_sender";
const SKB_ANCESTOR_CGROUP_ID: i32 = 83;
const CONTEXT: BpfRegister = BpfRegister(6);
const NUMBER: BpfRegister = BpfRegister(7);

/// Returns the numbers of the control groups that a policy names. A group that another policy of this
/// namespace names, too, keeps its number.
pub(crate) fn numbers(policy: &Policy) -> Result<SenderNumbers, Error> {
    let groups = policy.rules.iter().filter_map(|rule| rule.matcher.cgroup.as_deref());
    Ok(SenderNumbers::new(groups, &Journal::senders()?))
}

/// Attaches the program to every veth device that leads to a container, for the groups of all policies in
/// force in this namespace and for the groups of a `coming` policy. If there are no such groups, detaches the
/// program instead. Returns a note if the kernel lacks tcx.
pub(crate) fn attach_to_all(coming: &SenderNumbers) -> Result<Option<String>, Error> {
    let mut all = Journal::senders()?;
    all.extend(coming);
    let system = |source| Error::System { what: "find the devices of containers", source };
    let mut socket = NetlinkSocket::open().map_err(system)?;
    let mut devices = link::all(&mut socket)?;
    devices.retain(leads_to_another_namespace);
    if devices.is_empty() {
        return Ok(None);
    }
    if all.is_empty() {
        for device in devices {
            // a kernel without tcx has nothing to remove, and a device may go at any time
            let _ = tcx::detach_named(PROGRAM, device.index, TcxHook::Ingress);
        }
        return Ok(None);
    }
    let program = ClassifierProgram::load(PROGRAM, &program(&positions(&all))?)?;
    for device in devices {
        let attached = tcx::replace_or_prepend(&program, PROGRAM, device.index, TcxHook::Ingress);
        let Err(error) = attached else { continue };
        if error.kind() == io::ErrorKind::InvalidInput {
            return Ok(Some(
                "this kernel is older than 6.6: packets of containers with a network of their own do not match by control \
                 group; match them by address"
                    .to_owned(),
            ));
        }
    }
    Ok(None)
}

/// Calls [`attach_to_all`] for the policies in force, after a change. Ignores an error: it leaves the
/// previous program attached, and that program drops or redirects no packet.
pub(crate) fn refresh() {
    let _ = attach_to_all(&SenderNumbers::default());
}

fn leads_to_another_namespace(device: &NetworkDevice) -> bool {
    device.kind.as_deref() == Some("veth") && device.other_end == PeerLocation::Elsewhere
}

/// Returns the depth, the kernel's number and the number in packets of each control group that exists, with
/// the deepest first.
fn positions(numbers: &SenderNumbers) -> Vec<(u32, u64, u16)> {
    let mut groups: Vec<(u32, u64, u16)> = directories(numbers.iter())
        .filter_map(|(path, directory, number)| {
            let level = path.split('/').filter(|part| !part.is_empty()).count() as u32;
            Some((level, fs::metadata(directory).ok()?.ino(), number))
        })
        .collect();
    groups.sort_unstable_by(|one, other| other.cmp(one));
    groups
}

/// Returns the code of the program. It writes the number of the deepest named group that contains the sender,
/// or 0. Fails for several thousand groups, because a jump is then too far.
fn program(groups: &[(u32, u64, u16)]) -> Result<Vec<u64>, Error> {
    let mut code = Assembler::default();
    let done = code.label();
    code.copy(CONTEXT, R1).set(NUMBER, 0);
    let mut asked = None;
    for (level, id, number) in groups {
        if asked.replace(*level) != Some(*level) {
            code.copy(R1, CONTEXT).set(R2, level.cast_signed()).call(SKB_ANCESTOR_CGROUP_ID);
        }
        let next = code.label();
        code.set_long(R1, *id).jump_if_registers(JumpWhen::Not, R0, R1, next);
        code.set(NUMBER, (*number).into()).jump(done).here(next);
    }
    code.here(done).store_four(CONTEXT, TC_INDEX, NUMBER).set(R0, tcx::NEXT).exit();
    code.finish().ok_or_else(|| Error::BackendUnsupported {
        what: format!(
            "the policies in force name {} control groups, too many for the program at the devices of containers; match their \
             parents, or match by address",
            groups.len()
        ),
    })
}

/// Returns each control group with its directory in the mounted cgroup2 hierarchy, or nothing if cgroup2 is
/// not mounted.
fn directories<'a, T>(
    groups: impl Iterator<Item = (&'a str, T)>,
) -> impl Iterator<Item = (&'a str, PathBuf, T)> {
    let root = hierarchies().ok().and_then(|all| {
        CgroupHierarchy::of_version(&all, CgroupVersion::V2).map(|hierarchy| hierarchy.root.clone())
    });
    groups.filter_map(move |(path, value)| Some((path, below(root.as_ref()?, path), value)))
}

/// Returns a note for each control group whose packets cannot reach a device of this namespace.
pub(crate) fn unreachable_notes(policy: &Policy) -> Vec<String> {
    let groups = policy.rules.iter().filter_map(|rule| Some((rule.matcher.cgroup.as_deref()?, ())));
    let named: BTreeSet<&str> = groups.clone().map(|(group, ())| group).collect();
    let here = namespace_number("thread-self");
    let mut notes = Vec::new();
    for (group, directory, ()) in directories(named.into_iter().map(|group| (group, ()))) {
        let mut processes = Vec::new();
        processes_below(&directory, &mut processes);
        let namespaces: BTreeSet<(Option<u64>, u32)> =
            processes.iter().map(|process| (namespace_number(&process.to_string()), *process)).collect();
        let mut of_each: Vec<(u64, u32)> = Vec::new();
        for (number, process) in namespaces {
            let Some(number) = number else { continue };
            if of_each.last().is_none_or(|(last, _)| *last != number) {
                of_each.push((number, process));
            }
        }
        if of_each.is_empty()
            || of_each.iter().any(|(number, process)| Some(*number) == here || leads_here(*process))
        {
            continue;
        }
        notes.push(format!(
            "no packet of {group} can match: its processes have a network of their own (net:[{}]), and no device of it leads \
             here; apply the policy in the namespace where its packets leave",
            of_each[0].0
        ));
    }
    notes
}

fn namespace_number(process: &str) -> Option<u64> {
    fs::metadata(Path::new("/proc").join(process).join("ns/net")).ok().map(|found| found.ino())
}

fn processes_below(directory: &Path, processes: &mut Vec<u32>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    processes.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            processes_below(&entry.path(), processes);
        }
    }
}

/// Returns whether the network namespace of a process has a device whose other end is a device of this
/// thread's namespace; also returns true if this cannot be determined.
fn leads_here(process: u32) -> bool {
    let devices = || {
        let mut socket = NetlinkSocket::open().ok()?;
        link::all(&mut socket).ok()
    };
    let Some(here) = devices() else { return true };
    let Ok(there) = NetworkNamespace::of_process(process) else { return true };
    // uses a separate thread, because a thread cannot return from the other namespace
    let entered = std::thread::spawn(move || there.enter().ok().and_then(|()| devices()));
    let Ok(Some(there)) = entered.join() else { return true };
    let is_ours = |index: Index| here.iter().any(|device| device.index == index);
    there
        .iter()
        .any(|device| device.other_end == PeerLocation::Elsewhere && device.lower.is_some_and(is_ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_groups_are_an_error_and_no_empty_program() {
        let groups = |count: u16| (0..count).map(|number| (2, number.into(), number)).collect::<Vec<_>>();
        assert!(program(&groups(5000)).is_ok_and(|code| code.len() > 5000));
        let error = program(&groups(10_000)).expect_err("a jump is too far").to_string();
        assert!(error.contains("10000 control groups"), "{error}");
    }
}
