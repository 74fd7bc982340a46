//! Names and their owners: consumer groups, consumers that resume, writers.
//!
//! ```text
//!   SUBSCRIBE {group}    shared, or the client's own   every member may see all events
//!   SUBSCRIBE {resume}   shared, or the client's own   the owner is kept with the log
//!   ADVERTISE {writer}   the same
//! ```
//! A name that rules of the permissions list under `names` is *shared*: the clients of these rules use it,
//! and no others can. Every other name is the client's own: two identities with one name have two groups, two
//! positions in the log, two writers, and neither can keep the other out. So a name has a key. The key of a
//! shared name is the name. A group's key has its owner in front. In the log the first owner of a name has
//! the plain name as its key, and a later owner's key has the owner's digest behind the name.
//!
//! A group keeps its name while the group exists; the names of consumers and writers are kept with the log,
//! and outlive the broker. A plain name that the log knows without an owner belongs to the first identity
//! that uses it. Client identifiers of MQTT need no owner here, because each identity has sessions of its own
//! (`mqtt/mod.rs`).
//!
//! Consumers of a group may get events that other members asked for. So each consumer of a group must be
//! allowed all patterns of the group: the patterns of its consumers, and the patterns of departed consumers
//! while some of their events may wait. Topics of replies do not count here; they are for one program each.
//!
//! Cost: a look-up for each use of a name, and a comparison of patterns for each consumer that joins a group;
//! none for events.

use super::Broker;
use super::mqtt::MqttSessionId;
use crate::log::{BEFORE_OWNER, OwnedKind, check_consumer_name};
use crate::mqtt::{SHARE, split_share};
use crate::name_owner::NameOwner;
use crate::permissions::{ClientGrant, RefusalKind};
use crate::task::{ClientId, Task};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use unisono_eventchannel::{ConsumerId, NumberMap};
use unisono_linux::clock::Duration;

/// Consumers of one owner with a saved position. Each takes a file; as many as a broker has programs by
/// default, so that each program can have one. Chosen by this argument, not measured.
const MAX_CONSUMERS_OF_OWNER: usize = 256;
/// Writers of one owner. One token may identify a fleet of suppliers, and a name takes a line of a file.
/// Chosen, not measured.
const MAX_WRITERS_OF_OWNER: usize = 1024;
/// Groups of one owner: half of the channel's consumers, so that other owners find room.
const MAX_GROUPS_OF_OWNER: usize = 2048;
/// Different patterns of one group, as many as one subscription has
/// ([`Limits::interests`](crate::Limits::interests)). Each consumer that joins is compared with all of them.
const MAX_PATTERNS_OF_GROUP: usize = 1024;
/// Bytes of a writer's name. A record of the log has 16 bits for the length; a readable name is far shorter.
/// Chosen, not measured.
const MAX_WRITER_BYTES: usize = 1024;
/// The longest linger of a group that no rule lists: as long as the log by default keeps events whose
/// durability no supplier was promised. Its queue takes memory even if no consumer ever returns. Chosen by
/// this argument, not measured.
const MAX_LINGER: Duration = Duration::from_secs(7 * 24 * 3600);

/// The owner and the rule of a client that uses a name.
#[derive(Clone, Debug)]
pub(super) struct NameUser {
    pub(super) owner: NameOwner,
    pub(super) grant: Arc<ClientGrant>,
}

/// The state of a group that a consumer may join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupAdmission {
    /// The group may still hold events of departed consumers.
    WithBacklog,
    /// The group holds no earlier events.
    Afresh,
}

/// A group that a consumer may join.
#[derive(Clone, Debug)]
pub(super) struct AdmittedGroup {
    /// The group's key in the channel.
    pub(super) key: Arc<str>,
    admission: GroupAdmission,
}

#[derive(Debug)]
struct GroupConsumer {
    grant: Arc<ClientGrant>,
    patterns: Vec<Arc<str>>,
}

#[derive(Debug)]
struct GroupName {
    owner: NameOwner,
    members: BTreeMap<ConsumerId, GroupConsumer>,
    /// The patterns of the members, each with its number of members.
    asked: BTreeMap<Arc<str>, usize>,
    /// Patterns of departed members while some of their events may wait.
    departed: BTreeSet<Arc<str>>,
}

/// The names of groups.
#[derive(Debug, Default)]
pub(super) struct GroupNames {
    groups: HashMap<Arc<str>, GroupName>,
    members: NumberMap<ConsumerId, Arc<str>>,
}

impl GroupName {
    fn check(
        &self,
        group: &str,
        user: &NameUser,
        patterns: &[&str],
        admission: GroupAdmission,
    ) -> Result<(), String> {
        let departed = self.departed.iter().filter(|_| admission == GroupAdmission::WithBacklog);
        let mut all = self.asked.keys().chain(departed);
        if !all.all(|pattern| user.grant.may_subscribe(pattern)) {
            return Err(format!(
                "the group `{group}` has events of topics that {} may not subscribe to; name another group",
                user.owner
            ));
        }
        let new: BTreeSet<&str> =
            patterns.iter().copied().filter(|pattern| !self.asked.contains_key(*pattern)).collect();
        let others = self.departed.len() + self.asked.len();
        if others + new.len() > MAX_PATTERNS_OF_GROUP {
            return Err(format!(
                "{} patterns of the group `{group}`; a group has at most {MAX_PATTERNS_OF_GROUP}",
                others + new.len()
            ));
        }
        // a group may have many members with one rule, but its members have few different rules
        let mut grants: Vec<&Arc<ClientGrant>> = Vec::new();
        for member in self.members.values() {
            if !grants.iter().any(|grant| Arc::ptr_eq(grant, &member.grant)) {
                grants.push(&member.grant);
            }
        }
        let unseen = new.into_iter().find(|pattern| !grants.iter().all(|grant| grant.may_subscribe(pattern)));
        match unseen {
            None => Ok(()),
            Some(pattern) => Err(format!(
                "not every consumer of the group `{group}` may subscribe to `{pattern}`; name another group"
            )),
        }
    }
}

impl GroupNames {
    fn join(
        &mut self,
        consumer: ConsumerId,
        AdmittedGroup { key: name, admission }: AdmittedGroup,
        user: NameUser,
        patterns: &[&str],
    ) {
        let record = self.groups.entry(Arc::clone(&name)).or_insert_with(|| GroupName {
            owner: user.owner,
            members: BTreeMap::new(),
            asked: BTreeMap::new(),
            departed: BTreeSet::new(),
        });
        if admission == GroupAdmission::Afresh {
            record.departed.clear();
        }
        let patterns: BTreeSet<Arc<str>> = patterns.iter().map(|pattern| Arc::from(*pattern)).collect();
        for pattern in &patterns {
            record.departed.remove(pattern);
            *record.asked.entry(Arc::clone(pattern)).or_default() += 1;
        }
        let member = GroupConsumer { grant: user.grant, patterns: patterns.into_iter().collect() };
        record.members.insert(consumer, member);
        self.members.insert(consumer, name);
    }

    fn leave(&mut self, consumer: ConsumerId) {
        let Some(record) = self.members.remove(&consumer).and_then(|group| self.groups.get_mut(&group))
        else {
            return;
        };
        let Some(member) = record.members.remove(&consumer) else { return };
        for pattern in member.patterns {
            let Some(count) = record.asked.get_mut(&pattern) else { continue };
            *count -= 1;
            if *count == 0 {
                record.asked.remove(&pattern);
                record.departed.insert(pattern);
            }
        }
    }

    /// Replaces the rule of a consumer's client.
    pub(super) fn set_grant(&mut self, consumer: ConsumerId, grant: &Arc<ClientGrant>) {
        let group = self.members.get(&consumer).and_then(|group| self.groups.get_mut(group));
        if let Some(member) = group.and_then(|group| group.members.get_mut(&consumer)) {
            member.grant = Arc::clone(grant);
        }
    }

    /// Returns whether the group has this owner.
    pub(super) fn is_of(&self, group: &str, owner: &NameOwner) -> bool {
        self.groups.get(group).is_some_and(|record| record.owner == *owner)
    }
}

/// Checks the name of a group. A name of a shared subscription of MQTT is for consumers of its filter alone:
/// a group of other topics under this name would keep the MQTT clients out.
fn check_group_name(group: &str, patterns: &[&str]) -> Result<(), String> {
    if group.contains('\0') {
        return Err("a group's name with a NUL; leave it out".to_owned());
    }
    let Some(shared) = group.strip_prefix(SHARE) else { return Ok(()) };
    match split_share(shared) {
        Some((_, filter)) if patterns.iter().all(|pattern| *pattern == filter) => Ok(()),
        Some((_, filter)) => Err(format!(
            "the group `{group}` is a shared subscription of MQTT to `{filter}`; subscribe to that alone, or name \
             another group"
        )),
        None => Err(format!("the group `{group}`: names that begin with {SHARE} are $share/NAME/FILTER")),
    }
}

/// Returns a kind of names of the log in words, and the separator before the owner's digest in a key.
fn kind_of_name(kind: OwnedKind) -> (&'static str, char) {
    match kind {
        OwnedKind::Writer => ("writer", '\0'),
        _ => ("consumer", BEFORE_OWNER),
    }
}

/// Returns the name that rules list for a group: `NAME` of `$share/NAME/FILTER`.
fn listed_name(group: &str) -> &str {
    group.strip_prefix(SHARE).and_then(split_share).map_or(group, |(name, _)| name)
}

impl Broker {
    /// Returns a client's owner and rule, for its use of names.
    pub(super) fn name_user(&self, client: ClientId) -> Result<NameUser, String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        Ok(NameUser { owner: connected.owner.clone(), grant: Arc::clone(&connected.grant) })
    }

    /// Returns whether an owner's state may outlive its connection. Clients without credentials share one
    /// identity; with permissions or tokens, one client would find the state of another.
    pub(super) fn may_leave_something(&self, owner: &NameOwner) -> bool {
        self.access.is_open() || *owner != NameOwner::Anonymous
    }

    fn check_identity(&self, user: &NameUser, what: &str) -> Result<(), String> {
        if self.may_leave_something(&user.owner) {
            return Ok(());
        }
        Err(format!(
            "{what}: a client without an identity owns nothing that outlives its connection; connect with a \
             token or a certificate, or leave it out"
        ))
    }

    /// Checks whether a name is shared.
    ///
    /// # Errors
    /// It is shared by other clients.
    fn is_shared(&self, user: &NameUser, (kind, name): (&str, &str)) -> Result<bool, String> {
        let listed = listed_name(name);
        if self.access.lists(listed) && !user.grant.names.contains(listed) {
            return Err(format!(
                "the {kind} `{name}` is for the clients whose rules list `{listed}`; add it to `names` in the \
                 rule of {}, or choose another name",
                user.owner
            ));
        }
        Ok(self.access.lists(listed))
    }

    fn refuse_name<T>(&mut self, checked: Result<T, String>) -> Result<T, String> {
        checked.inspect_err(|_| self.access.count(RefusalKind::Name))
    }

    /// Checks that a consumer may join a group with these patterns.
    pub(super) fn check_group(
        &mut self,
        user: &NameUser,
        (group, linger): (&str, Duration),
        patterns: &[&str],
    ) -> Result<AdmittedGroup, String> {
        let checked = self.try_group(user, (group, linger), patterns);
        self.refuse_name(checked)
    }

    fn try_group(
        &mut self,
        user: &NameUser,
        (group, linger): (&str, Duration),
        patterns: &[&str],
    ) -> Result<AdmittedGroup, String> {
        check_group_name(group, patterns)?;
        if linger > Duration::ZERO {
            self.check_identity(user, "a group that lingers")?;
        }
        if let Some(pattern) = patterns.iter().find(|pattern| !user.grant.may_subscribe(pattern)) {
            return Err(format!("{} may not subscribe to `{pattern}` with a group", user.owner));
        }
        let key: Arc<str> = match self.is_shared(user, ("group", group))? {
            true => group.into(),
            false if linger > MAX_LINGER => {
                return Err(format!(
                    "the group `{group}` would linger for {} s; list it under `names` in the permissions, or let it \
                     linger for {} s at most",
                    linger.as_nanos() / 1_000_000_000,
                    MAX_LINGER.as_nanos() / 1_000_000_000
                ));
            }
            false => user.owner.key_of(group),
        };
        let is_over = |record: &GroupName| record.members.is_empty() && !self.channel.has_group(&key);
        if self.names.groups.get(&key).is_some_and(is_over) {
            self.names.groups.remove(&key);
        }
        let admission = match self.channel.group_owes(&key) {
            true => GroupAdmission::WithBacklog,
            false => GroupAdmission::Afresh,
        };
        if let Some(record) = self.names.groups.get(&key) {
            record.check(group, user, patterns, admission)?;
            return Ok(AdmittedGroup { key, admission });
        }
        self.names.groups.retain(|name, record| !record.members.is_empty() || self.channel.has_group(name));
        let theirs = self.names.groups.values().filter(|record| record.owner == user.owner).count();
        if theirs >= MAX_GROUPS_OF_OWNER {
            return Err(format!(
                "{} has {theirs} groups, as many as may be; unsubscribe all consumers of one",
                user.owner
            ));
        }
        Ok(AdmittedGroup { key, admission })
    }

    /// Adds a consumer to a group; [`check_group`](Self::check_group) has admitted it.
    pub(super) fn join_group(
        &mut self,
        consumer: ConsumerId,
        group: AdmittedGroup,
        user: NameUser,
        patterns: &[&str],
    ) {
        self.names.join(consumer, group, user, patterns);
    }

    /// Removes a consumer from its group, if it has one.
    pub(super) fn leave_group(&mut self, consumer: ConsumerId) {
        self.names.leave(consumer);
    }

    /// Checks that a client may use the name of a resumable consumer; returns its key in the log.
    pub(super) fn check_consumer_name(&mut self, user: &NameUser, name: &str) -> Result<String, String> {
        let named = check_consumer_name(name).map_err(str::to_owned);
        let checked = named.and_then(|()| self.try_durable_name(user, (OwnedKind::Consumer, name)));
        self.refuse_name(checked)
    }

    /// Checks that a supplier may have this writer's name; returns its key in the log.
    pub(super) fn check_writer_name(&mut self, user: &NameUser, name: &str) -> Result<String, String> {
        let checked = match name.len() {
            length if length > MAX_WRITER_BYTES => {
                Err(format!("a writer's name of {length} bytes; choose one of at most {MAX_WRITER_BYTES}"))
            }
            _ if name.contains('\0') => Err("a writer's name with a NUL; leave it out".to_owned()),
            _ => self.try_durable_name(user, (OwnedKind::Writer, name)),
        };
        self.refuse_name(checked)
    }

    /// Returns the key of a name in the log. An owner keeps a key that it has, also when the plain name
    /// becomes free.
    fn key_in_log(&self, user: &NameUser, kind: OwnedKind, name: &str) -> Result<String, String> {
        let (shown, separator) = kind_of_name(kind);
        let own = format!("{name}{separator}{}", user.owner.digest());
        let (of_plain, of_own) = (self.name_owner(kind, name), self.name_owner(kind, &own));
        let is_plain = self.is_shared(user, (shown, name))?
            || of_plain.as_ref() == Some(&user.owner)
            || of_plain.is_none() && of_own.is_none();
        Ok(if is_plain { name.to_owned() } else { own })
    }

    fn try_durable_name(
        &mut self,
        user: &NameUser,
        (kind, name): (OwnedKind, &str),
    ) -> Result<String, String> {
        let (shown, most) = match kind {
            OwnedKind::Writer => ("writer", MAX_WRITERS_OF_OWNER),
            _ => ("consumer", MAX_CONSUMERS_OF_OWNER),
        };
        self.check_identity(user, &format!("the {shown} `{name}`"))?;
        let key = self.key_in_log(user, kind, name)?;
        if self.name_owner(kind, &key).is_some() {
            return Ok(key);
        }
        if kind == OwnedKind::Writer && self.names_of(kind, &user.owner) >= most {
            self.free_writers(&user.owner);
        }
        let theirs = self.names_of(kind, &user.owner);
        if theirs < most {
            return Ok(key);
        }
        let free = match kind {
            OwnedKind::Writer => "one is free when the log keeps no event of it",
            _ => "free one: resume it with `forget`, and unsubscribe",
        };
        Err(format!("{} has {theirs} names of {shown}s, as many as may be; {free}", user.owner))
    }

    /// Assigns a checked name, given by its key, to its first user.
    pub(super) fn take_name(&mut self, kind: OwnedKind, name: &str, user: &NameUser) -> Result<(), String> {
        if self.name_owner(kind, name).is_some() {
            return Ok(());
        }
        if let Some(known) = self.assign_name(kind, name, &user.owner)? {
            let owner = &user.owner;
            let text =
                format!("the {known} `{name}` of the log had no owner; it belongs to {owner} from now on");
            self.tasks.push_back(Task::Note { text });
        }
        Ok(())
    }

    /// Returns why a consumer may not stay in its group by rules that were read since it joined, or `None` if
    /// it may.
    pub(super) fn group_breach(&self, consumer: ConsumerId, user: &NameUser) -> Option<String> {
        let key = self.names.members.get(&consumer)?;
        let owner = &user.owner;
        // the key of a group of one owner has the owner in front, and a shared name has no NUL
        if !key.contains('\0') {
            match self.is_shared(user, ("group", key)) {
                Err(refused) => return Some(refused),
                Ok(false) => {
                    return Some(format!("the group `{key}` is not in the rule of {owner} any more"));
                }
                Ok(true) => {}
            }
        }
        let group = self.names.groups.get(key)?;
        let departed = group.departed.iter().filter(|_| self.channel.group_owes(key));
        let mut all = group.asked.keys().chain(departed);
        let unseen = all.find(|pattern| !user.grant.may_subscribe(pattern))?;
        Some(format!("its group has events of `{unseen}`, which {owner} may not subscribe to any more"))
    }

    /// Returns why a client may not keep a name of the log by rules that were read since it took the name, or
    /// `None` if it may.
    pub(super) fn name_breach(&self, user: &NameUser, kind: OwnedKind, key: &str) -> Option<String> {
        let (shown, separator) = kind_of_name(kind);
        let (name, is_own) = match key.split_once(separator) {
            Some((name, _)) => (name, true),
            None => (key, self.name_owner(kind, key).as_ref() == Some(&user.owner)),
        };
        match self.is_shared(user, (shown, name)) {
            Err(refused) => Some(refused),
            Ok(false) if !is_own => {
                Some(format!("the {shown} `{name}` is not in the rule of {} any more", user.owner))
            }
            Ok(_) => None,
        }
    }

    /// Returns the owner and the rule of a session's client, for its use of names.
    pub(super) fn name_user_of_session(&self, session: MqttSessionId) -> Option<NameUser> {
        let (owner, grant) = self.mqtt.owner(session)?;
        Some(NameUser { owner: owner.clone(), grant: Arc::clone(grant) })
    }
}
