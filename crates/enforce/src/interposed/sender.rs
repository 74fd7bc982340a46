//! Loads and attaches the program that tags each frame with facts about its sender that only the kernel
//! knows, and finds the control groups that it compares.

use super::classify::Named;
use super::redirect::{self, GroupTag, NamedNumbers};
use crate::error::interposed::Error;
use crate::journal::SenderNumbers;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use unisono_fairqueue::Policy;
use unisono_linux::bpf::ClassifierProgram;
use unisono_linux::cgroup;
use unisono_linux::netlink::filter::{self, TrafficHook};
use unisono_linux::netlink::link::Index;
use unisono_linux::netlink::{NetlinkSocket, Refused, egress};

pub(super) const PROGRAM: &str = "unisono_capture";

/// The control groups of a policy with the kernel's numbers. A group that does not exist is left out and
/// matches no sender.
#[derive(PartialEq, Eq)]
pub(super) struct GroupTags(Vec<GroupTag>);

impl GroupTags {
    pub(super) fn find(named: &Named, senders: &SenderNumbers) -> Result<Self, Error> {
        if named.cgroups().next().is_none() {
            return Ok(Self(Vec::new()));
        }
        let all = cgroup::hierarchies().map_err(|error| Error::Host(error.to_string()))?;
        let Some(tree) = cgroup::CgroupHierarchy::of_version(&all, cgroup::CgroupVersion::V2) else {
            let cgroup::MissingCgroup2 { reason, remedy } = cgroup::MissingCgroup2::here();
            return Err(Error::Host(format!("the policy names control groups, and {reason}; {remedy}")));
        };
        let found = named.cgroups().filter_map(|(path, number)| {
            let sender = senders.number(path);
            let path = path.trim_matches('/');
            let id = std::fs::metadata(tree.root.join(path)).ok()?.ino();
            let level = path.split('/').filter(|part| !part.is_empty()).count() as u32;
            Some(GroupTag { level, id, number, sender })
        });
        Ok(Self(found.collect()))
    }
}

pub(super) fn named_values(policy: &Policy) -> Result<Named, Error> {
    Named::from_policy(policy).ok_or_else(|| {
        Error::Unfit(
            "the policy names more control groups, priorities and marks than a tag of 16 bits tells apart"
                .to_owned(),
        )
    })
}

pub(super) fn load(
    alive: &impl AsFd,
    queue: Index,
    groups: &GroupTags,
    named: &Named,
) -> Result<ClassifierProgram, Error> {
    let host = |error: std::io::Error| Error::Host(format!("no table of marks and priorities: {error}"));
    let named = NamedNumbers::new(named).map_err(host)?;
    let program = redirect::egress_redirect(alive.as_fd(), queue, &groups.0, named.as_ref());
    let program = program.ok_or_else(|| {
        let groups = groups.0.len();
        Error::Unfit(format!(
            "the policy names {groups} control groups, too many for the program at the device"
        ))
    })?;
    Ok(ClassifierProgram::load(PROGRAM, &program)?)
}

/// Attaches the program to a device, behind the programs of others, so that they still see each frame before
/// it is redirected.
pub(super) fn attach(
    netlink: &mut NetlinkSocket,
    device: Index,
    program: &ClassifierProgram,
) -> Result<(), Refused> {
    let preference = filter::our_preference(netlink, device, TrafficHook::Egress)?;
    netlink.run(&[egress::attach(device, preference, program.as_fd(), PROGRAM)])
}
