//! The gangs of the service, their owners and the permissions: the rules of the service, without sockets,
//! processes or a clock.
//!
//! The rules:
//! - Root may do everything.
//! - Another user may add processes that all belong to that user, and control groups that were delegated to
//!   that user and contain only that user's processes. Only the user who added a gang may change or remove
//!   it.
//! - A weight above 1 takes time from the gangs of other users, and the slice applies to all gangs: only root
//!   may set either.
//! - A process is in one gang: a target inside another gang's group, or around it, is refused.
//!
//! Cost: a request examines each gang. A property test compares the result with a slow list of rules.

use super::request::{GangName, GangRefusal, GangRefusalKind, GangTarget, ServiceResult};
use crate::gang::{GangId, GangWeight};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of gangs: with turns of 20 ms each waits up to five seconds for its own.
pub const MAX_GANGS: usize = 256;
/// Maximum number of gangs that a user other than root may have added.
pub const MAX_OF_USER: usize = 16;
/// Maximum number of gangs that rules make of one user's processes: half of all, so that a user who starts
/// many processes leaves gangs to others.
pub const MAX_BY_RULES: usize = MAX_GANGS / 2;
/// Number of gangs reserved for requests of root: the other users, and rules for their processes, have the
/// rest of [`MAX_GANGS`].
pub const KEPT_FOR_ROOT: usize = 16;
pub(super) const ROOT: u32 = 0;

/// A gang's target as it was found on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTarget {
    /// The group that the target is, or that contains its processes.
    pub group: PathBuf,
    /// The owners of the processes.
    pub owners: BTreeSet<u32>,
    /// The user who may move processes into the group: the user to whom it was delegated.
    pub group_owner: u32,
    /// The gang's name if the client gives none.
    pub name: GangName,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedGang {
    pub name: GangName,
    /// The user who added the gang.
    pub user: u32,
    /// The owner of the processes; root if they belong to several users.
    #[serde(default)]
    pub owner: u32,
    pub weight: u32,
    pub target: GangTarget,
    /// The group that the target is, or that contained its processes.
    pub group: PathBuf,
}

#[derive(Clone, Debug, Default)]
pub struct ServiceState {
    gangs: BTreeMap<GangId, ServedGang>,
    /// Number of gangs ever added; identifiers are not used again.
    next: usize,
}

/// A client's request to add a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddRequest {
    pub target: GangTarget,
    pub name: Option<GangName>,
    pub weight: GangWeight,
    pub by: RequestSource,
}

/// The source of a request for a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSource {
    /// A user, by a request.
    Client,
    /// The file of rules, in root's name.
    Rule,
}

impl ServiceState {
    pub fn gangs(&self) -> impl Iterator<Item = (GangId, &ServedGang)> {
        self.gangs.iter().map(|(id, gang)| (*id, gang))
    }

    pub fn get(&self, id: GangId) -> Option<&ServedGang> {
        self.gangs.get(&id)
    }

    /// Adds a gang to the state. The caller then sets up the gang, or calls [`ServiceState::end`].
    pub fn add(&mut self, user: u32, request: AddRequest, found: &FoundTarget) -> ServiceResult<GangId> {
        let refuse = |kind, text: String| Err(GangRefusal::new(kind, text));
        if user != ROOT {
            let own = found.owners.iter().all(|owner| *owner == user);
            let handed = match request.target {
                GangTarget::Process { .. } => true,
                GangTarget::Group { .. } => found.group_owner == user,
            };
            if !own || !handed {
                let text = format!(
                    "{} does not belong to user {user} alone; ask root, or add what is yours",
                    request.target
                );
                return refuse(GangRefusalKind::NotAllowed, text);
            }
            may_weigh(user, request.weight)?;
            if self.gangs.values().filter(|gang| gang.user == user).count() >= MAX_OF_USER {
                let text = format!("user {user} has {MAX_OF_USER} gangs; remove one");
                return refuse(GangRefusalKind::TooMany, text);
            }
        }
        let owner = owner_of(found);
        if request.by == RequestSource::Rule && owner != ROOT {
            let has = self.gangs.values().filter(|gang| gang.owner == owner).count();
            if has >= MAX_BY_RULES {
                let text = format!("{has} gangs are of user {owner}, half of all that there may be");
                return refuse(GangRefusalKind::TooMany, text);
            }
        }
        let is_roots = user == ROOT && (request.by == RequestSource::Client || owner == ROOT);
        if !is_roots && self.gangs.len() >= MAX_GANGS - KEPT_FOR_ROOT {
            let text =
                format!("there are {} gangs, and the other places are root's; try again", self.gangs.len());
            return refuse(GangRefusalKind::TooMany, text);
        }
        if self.gangs.len() >= MAX_GANGS {
            return refuse(GangRefusalKind::TooMany, format!("there are {MAX_GANGS} gangs; remove one"));
        }
        if let Some(other) = self.gangs.values().find(|gang| overlap(gang, &request.target, found)) {
            let text = format!("{} is in the gang {} already, or around it", request.target, other.name);
            return refuse(GangRefusalKind::InUse, text);
        }
        let name = match request.name {
            Some(name) if self.named(&name).is_some() => {
                return refuse(
                    GangRefusalKind::InUse,
                    format!("there is a gang {name}; choose another name"),
                );
            }
            Some(name) => name,
            None => self.unused(&found.name),
        };
        let id = GangId(self.next);
        self.next += 1;
        let gang = ServedGang {
            name,
            user,
            owner,
            weight: request.weight.number(),
            target: request.target,
            group: found.group.clone(),
        };
        self.gangs.insert(id, gang);
        Ok(id)
    }

    /// Returns the gang of this name, if this user may remove it. The caller releases it and calls
    /// [`ServiceState::end`].
    pub fn removable(&self, user: u32, name: &GangName) -> ServiceResult<GangId> {
        let missing = || {
            let text = format!("there is no gang {name}");
            GangRefusal::new(GangRefusalKind::Unknown, text)
        };
        let id = self.named(name).ok_or_else(missing)?;
        let owner = self.gangs[&id].user;
        if user != ROOT && user != owner {
            let text =
                format!("the gang {name} was added by user {owner}; only that user and root may change it");
            return Err(GangRefusal::new(GangRefusalKind::NotAllowed, text));
        }
        Ok(id)
    }

    pub fn set_weight(&mut self, user: u32, name: &GangName, weight: GangWeight) -> ServiceResult<GangId> {
        let id = self.removable(user, name)?;
        may_weigh(user, weight)?;
        if let Some(gang) = self.gangs.get_mut(&id) {
            gang.weight = weight.number();
        }
        Ok(id)
    }

    /// Checks that this user may change settings that apply to all gangs.
    pub fn may_set_slice(user: u32) -> ServiceResult<()> {
        if user == ROOT {
            return Ok(());
        }
        let text = "the slice is the same for all gangs; only root may change it".into();
        Err(GangRefusal::new(GangRefusalKind::NotAllowed, text))
    }

    /// Removes a gang from the state.
    pub fn end(&mut self, id: GangId) -> Option<ServedGang> {
        self.gangs.remove(&id)
    }

    fn named(&self, name: &GangName) -> Option<GangId> {
        self.gangs.iter().find(|(_, gang)| gang.name == *name).map(|(id, _)| *id)
    }

    fn unused(&self, name: &GangName) -> GangName {
        if self.named(name).is_none() {
            return name.clone();
        }
        let mut number = 2;
        // some number is free, because there are fewer gangs than numbers
        while self.named(&name.numbered(number)).is_some() {
            number += 1;
        }
        name.numbered(number)
    }
}

/// Returns the owner of a gang of this target: the owner of its processes; root if there are several; the
/// group's owner if there is no process.
fn owner_of(found: &FoundTarget) -> u32 {
    let mut owners = found.owners.iter();
    match (owners.next(), owners.next()) {
        (Some(owner), None) => *owner,
        (None, _) => found.group_owner,
        _ => ROOT,
    }
}

fn may_weigh(user: u32, weight: GangWeight) -> ServiceResult<()> {
    if user == ROOT || weight == GangWeight::ONE {
        return Ok(());
    }
    let text = "a weight above 1 takes time from other gangs; only root may give it".into();
    Err(GangRefusal::new(GangRefusalKind::NotAllowed, text))
}

/// Returns whether some process could be in both an existing gang and the requested target.
fn overlap(there: &ServedGang, target: &GangTarget, found: &FoundTarget) -> bool {
    let inside = |inner: &Path, outer: &Path| inner.starts_with(outer);
    match (&there.target, target) {
        (GangTarget::Process { .. }, GangTarget::Process { .. }) => there.target == *target,
        // the process's group is the other target's group, or below it
        (GangTarget::Process { .. }, GangTarget::Group { .. }) => inside(&there.group, &found.group),
        (GangTarget::Group { .. }, GangTarget::Process { .. }) => inside(&found.group, &there.group),
        (GangTarget::Group { .. }, GangTarget::Group { .. }) => {
            inside(&found.group, &there.group) || inside(&there.group, &found.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> GangName {
        GangName::like(text)
    }

    fn found(group: &str, owners: &[u32], group_owner: u32) -> FoundTarget {
        FoundTarget {
            group: group.into(),
            owners: owners.iter().copied().collect(),
            group_owner,
            name: name("program"),
        }
    }

    fn process(number: u32) -> AddRequest {
        let target = GangTarget::Process { number, started: 1 };
        AddRequest { target, name: None, weight: GangWeight::ONE, by: RequestSource::Client }
    }

    fn group(path: &str) -> AddRequest {
        let target = GangTarget::Group { path: path.into() };
        AddRequest { target, name: None, weight: GangWeight::ONE, by: RequestSource::Client }
    }

    fn refused(result: ServiceResult<GangId>) -> GangRefusalKind {
        result.expect_err("it is refused").kind
    }

    #[test]
    fn a_user_adds_only_what_is_that_users_alone() {
        let mut state = ServiceState::default();
        assert_eq!(refused(state.add(5, process(1), &found("/a", &[0], 0))), GangRefusalKind::NotAllowed);
        assert_eq!(refused(state.add(5, process(1), &found("/a", &[5, 6], 0))), GangRefusalKind::NotAllowed);
        assert!(state.add(5, process(1), &found("/a", &[5], 0)).is_ok());
        assert_eq!(refused(state.add(5, group("/b"), &found("/b", &[5], 0))), GangRefusalKind::NotAllowed);
        assert_eq!(refused(state.add(5, group("/b"), &found("/b", &[0], 5))), GangRefusalKind::NotAllowed);
        assert!(state.add(5, group("/b"), &found("/b", &[5], 5)).is_ok());
        let heavy = AddRequest { weight: GangWeight::new(2).expect("a weight"), ..process(2) };
        assert_eq!(refused(state.add(5, heavy.clone(), &found("/a", &[5], 0))), GangRefusalKind::NotAllowed);
        assert!(state.add(0, heavy, &found("/a", &[5], 0)).is_ok());
        assert!(ServiceState::may_set_slice(0).is_ok() && ServiceState::may_set_slice(5).is_err());
    }

    #[test]
    fn only_root_and_who_added_a_gang_change_it() {
        let mut state = ServiceState::default();
        let id = state.add(5, process(1), &found("/a", &[5], 0)).expect("its own");
        let called = name("program");
        assert_eq!(refused(state.removable(6, &called)), GangRefusalKind::NotAllowed);
        assert_eq!(refused(state.removable(5, &name("other"))), GangRefusalKind::Unknown);
        let two = GangWeight::new(2).expect("a weight");
        assert_eq!(refused(state.set_weight(5, &called, two)), GangRefusalKind::NotAllowed);
        assert_eq!(state.set_weight(0, &called, two), Ok(id));
        assert_eq!((state.removable(5, &called), state.removable(0, &called)), (Ok(id), Ok(id)));
        assert_eq!(state.get(id).map(|gang| gang.weight), Some(2));
        assert!(state.end(id).is_some() && state.end(id).is_none());
    }

    #[test]
    fn one_user_cannot_take_all_places() {
        let mut state = ServiceState::default();
        for number in 0..MAX_OF_USER as u32 {
            state.add(5, process(number), &found("/a", &[5], 0)).expect("there is room");
        }
        assert_eq!(refused(state.add(5, process(99), &found("/a", &[5], 0))), GangRefusalKind::TooMany);
        assert!(state.add(6, process(99), &found("/a", &[6], 0)).is_ok());
        for number in 100..100 + (MAX_GANGS - MAX_OF_USER - 1) as u32 {
            state.add(0, process(number), &found("/a", &[0], 0)).expect("there is room");
        }
        assert_eq!(refused(state.add(0, process(9999), &found("/a", &[0], 0))), GangRefusalKind::TooMany);
    }

    #[test]
    fn rules_leave_half_of_the_places_to_other_users_and_some_to_root() {
        let mut state = ServiceState::default();
        let mut add = |number: u32, owner: u32, by: RequestSource| {
            state
                .add(ROOT, AddRequest { by, ..process(number) }, &found("/a", &[owner], 0))
                .map_err(|no| no.kind)
        };
        let full = Err(GangRefusalKind::TooMany);
        let added = (0..300).filter(|number| add(*number, 5, RequestSource::Rule).is_ok()).count();
        assert_eq!(added, MAX_BY_RULES, "one user starts processes that rules name");
        let added = (300..600).filter(|number| add(*number, 6, RequestSource::Rule).is_ok()).count();
        assert_eq!(added, MAX_GANGS - KEPT_FOR_ROOT - MAX_BY_RULES, "the next user");
        assert_eq!(add(600, 7, RequestSource::Rule), full);
        assert!(add(601, 5, RequestSource::Client).is_ok() && add(602, ROOT, RequestSource::Rule).is_ok());
        let added = (700..800).filter(|number| add(*number, 7, RequestSource::Client).is_ok()).count();
        assert_eq!(added, KEPT_FOR_ROOT - 2, "root has asked for them");
    }

    proptest! {
        /// The slow rule: walk up from each process to find the gangs that would contain it.
        #[test]
        fn no_process_is_in_two_gangs_and_no_name_or_number_is_used_twice(
            steps in proptest::collection::vec((0u8..4, 0usize..6, 0u32..4, 0u32..3), 1..80)
        ) {
            const GROUPS: [&str; 6] = ["/a", "/a/b", "/a/b/c", "/ab", "/d", "/d/e"];
            let mut state = ServiceState::default();
            let mut ids = BTreeSet::new();
            for (kind, at, number, user) in steps {
                let path = GROUPS[at];
                let before: Vec<ServedGang> = state.gangs().map(|(_, gang)| gang.clone()).collect();
                match kind {
                    0 => {
                        // a process is always in the same group
                        let path = GROUPS[number as usize];
                        if let Ok(id) = state.add(user, process(number), &found(path, &[user], user)) {
                            prop_assert!(ids.insert(id));
                        }
                    }
                    1 => {
                        if let Ok(id) = state.add(user, group(path), &found(path, &[user], user)) {
                            prop_assert!(ids.insert(id));
                        }
                    }
                    2 => {
                        let last = state.gangs().last().map(|(id, _)| id);
                        last.map(|id| state.end(id));
                    }
                    _ => {
                        for gang in &before {
                            let may = user == 0 || user == gang.user;
                            prop_assert_eq!(state.removable(user, &gang.name).is_ok(), may);
                        }
                    }
                }
                let gangs: Vec<&ServedGang> = state.gangs().map(|(_, gang)| gang).collect();
                let names: BTreeSet<_> = gangs.iter().map(|gang| gang.name.clone()).collect();
                prop_assert_eq!(names.len(), gangs.len());
                for number in 0..4u32 {
                    let home = Path::new(GROUPS[number as usize]);
                    let holds = gangs.iter().filter(|gang| match &gang.target {
                        GangTarget::Process { number: own, .. } => *own == number,
                        GangTarget::Group { path } => home.ancestors().any(|above| above == path),
                    });
                    prop_assert!(holds.count() <= 1, "process {} of {:?}", number, gangs);
                }
            }
        }
    }
}
