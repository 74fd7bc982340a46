//! Runs a program in a class: a control group of its own below the group that the class's match names.
//!
//! ```text
//!   /unisono/video              the group of the match: { cgroup = "/unisono/video" }
//!   /unisono/video/run-5f...    this process and its children while the program runs
//! ```
//! A match by control group includes the groups below, so the classifier needs no change. If the group of the
//! match is missing, it is made, and the policy is applied again.
//!
//! Cost: some system calls at the start and the end; nothing for each packet. Processes that outlive the
//! program stay in the class: their group is removed by a later run, once it is empty.

use crate::backends;
use crate::cpu::below;
use crate::error::Error;
use crate::journal::{Journal, LinkSide};
use serde::de::IgnoredAny;
use std::fs;
use unisono_fairqueue::{Matcher, Policy};
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{
    CgroupHierarchy, CgroupVersion, ControlGroup, MissingCgroup2, hierarchies, unguessable,
};

/// Prefix of the names of the groups that programs run in.
const RUN: &str = "run";

/// Returns the control group all of whose packets belong to a class: the group of a match that names nothing
/// else. The error says how to correct the policy or the class's name.
pub fn group_of_class<'a>(policy: &'a Policy, class: &str) -> Result<&'a str, String> {
    let tree = &policy.hierarchy;
    let names = |mut classes: Vec<&str>| {
        classes.sort_unstable();
        classes.join(", ")
    };
    let Some(id) = tree.find(class).filter(|id| *id != unisono_fairqueue::ClassId::ROOT) else {
        let leaves = tree.classes().filter(|(id, _)| tree.is_leaf(*id));
        let leaves = names(leaves.map(|(_, class)| class.name.as_str()).collect());
        return Err(format!("there is no class `{class}`; the policy has {leaves}"));
    };
    if !tree.is_leaf(id) {
        let children = tree.class(id).children.iter().map(|child| tree.class(*child).name.as_str());
        let children = names(children.collect());
        return Err(format!(
            "class `{class}` has children, and packets wait at leaves; name one of {children}"
        ));
    }
    let is_group_alone =
        |matcher: &Matcher| Matcher { cgroup: matcher.cgroup.clone(), ..Matcher::default() } == *matcher;
    let rules = policy.rules.iter().filter(|rule| rule.class == id && is_group_alone(&rule.matcher));
    rules.filter_map(|rule| rule.matcher.cgroup.as_deref()).next().ok_or_else(|| {
        format!(
            "class `{class}` has no match by control group alone; add {{ cgroup = \"/unisono/{class}\" }} to its match, and \
             apply the policy again"
        )
    })
}

/// Returns the policy in force at a side of a device.
pub fn policy_in_force(side: &LinkSide) -> Result<Policy, Error> {
    let (_, journal) = Journal::find(side)?;
    let record = journal.read::<IgnoredAny>()?;
    let record = record.ok_or_else(|| Error::NoPolicy { device: side.to_string() })?;
    Ok(Policy::parse(&record.policy)?)
}

/// A control group of its own for this process, and the previous group of the process.
#[derive(Debug)]
pub struct ClassGroup {
    group: ControlGroup,
    home: ControlGroup,
}

impl ClassGroup {
    /// Moves this process into a new group below `path`, a group that the policy in force at `side` names.
    pub fn enter(side: &LinkSide, policy: &Policy, path: &str) -> Result<Self, Error> {
        let all = hierarchies()?;
        let Some(tree) = CgroupHierarchy::of_version(&all, CgroupVersion::V2) else {
            let MissingCgroup2 { reason: what, remedy } = MissingCgroup2::here();
            return Err(Error::Lacks { what, remedy });
        };
        let directory = below(&tree.root, path);
        let file = |what| {
            let path = directory.clone();
            move |source| Error::File { what, path, source }
        };
        if !directory.is_dir() {
            fs::create_dir_all(&directory).map_err(file("make the control group"))?;
            backends::in_force(side)?.apply(policy)?;
        }
        let above = ControlGroup::at(directory.clone(), CgroupVersion::V2);
        remove_empty(&above);
        let name = unguessable(RUN).map_err(file("name a control group below"))?;
        let (group, home) = (above.create(&name)?, tree.group_of(Tid::SELF)?);
        if let Err(error) = group.enter() {
            // succeeds, because the new group is empty
            let _ = group.remove();
            return Err(error.into());
        }
        Ok(Self { group, home })
    }

    /// Moves this process back, and removes the group. Returns a note if the group stays because processes
    /// are left in it.
    pub fn leave(self) -> Option<String> {
        // fails if the earlier group was removed meanwhile; this process then stays in the class until it
        // ends
        let _ = self.home.enter();
        self.group.remove().err().map(|_| {
            format!(
                "processes that the program has left behind stay in the class, in {}",
                self.group.path().display()
            )
        })
    }
}

/// Removes the empty groups of earlier runs.
fn remove_empty(above: &ControlGroup) {
    let entries = fs::read_dir(above.path()).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{RUN}-"))) {
        // the kernel refuses to remove a group that has processes
        let _ = fs::remove_dir(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_a_group_if_a_match_names_nothing_else() {
        let policy = Policy::parse(
            "rate = \"1mbit\"\ndefault = \"rest\"\n[class.office.mail]\nmatch = [{ cgroup = \"/mail\", port = 25 }]\n\
             [class.video]\nmatch = [{ port = 5004 }, { cgroup = \"/unisono/video\" }]\n",
        )
        .expect("it is sound");
        assert_eq!(group_of_class(&policy, "video"), Ok("/unisono/video"));
        for (class, said) in [
            ("office", "name one of mail"),
            ("mail", "add { cgroup = \"/unisono/mail\" } to its match"),
            ("vidoe", "there is no class `vidoe`; the policy has mail, rest, video"),
            ("root", "there is no class `root`"),
        ] {
            let why = group_of_class(&policy, class).expect_err(class);
            assert!(why.contains(said), "{why}");
        }
    }
}
