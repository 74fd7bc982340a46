//! Replaces the policy, the permissions and the tokens while the broker serves.
//!
//! ```text
//!   files --(all read)--> BrokerSettings --check--> CheckedSettings --reload--> in force
//!                                                                   connections: as before, or ended
//! ```
//! [`check_settings`](Broker::check_settings) can refuse, [`reload`](Broker::reload) cannot: so the settings
//! take effect all together, or not at all.
//!
//! A connection goes on if the new rules allow its client all that it does: its identity, its topics, its
//! subscriptions, its names, its paths. Otherwise the connection is ended with the reason, and the client may
//! connect again. The broker does not withdraw single topics of a program: the program would continue to
//! publish on them without knowing. An MQTT client's right to publish is checked at its first message to each
//! topic; after a reload that check is repeated at the next message. A session with a subscription that is
//! not allowed ends, even if it has no connection. New bounds on memory, connections and sessions apply only
//! to later requests.
//!
//! Cost: a comparison of the patterns of each connection with the patterns of its rule.

use super::mqtt::MqttSessionId;
use super::names::NameUser;
use super::timeouts::NOT_AUTHORIZED;
use super::{Broker, ConnectedClient, Outlet};
use crate::log::OwnedKind;
use crate::mqtt::MqttFault;
use crate::permissions::{ClientGrant, ClientIdentity, Permissions, RefusalKind, Tokens};
use crate::task::{ClientId, Task};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use unisono_eventchannel::{BlockedSuppliers, ClassChange, ClassChangeError};
use unisono_events_wire::frame::Frame;
use unisono_events_wire::{EndedConnection, ReloadReport};
use unisono_fairqueue::{Hierarchy, Rate};
use unisono_linux::clock::Instant;

/// The settings that may change while a broker serves. `None`: they stay as they are.
#[derive(Debug, Default)]
pub struct BrokerSettings {
    /// The classes, and the rate of paths.
    pub policy: Option<(Hierarchy, Rate)>,
    pub permissions: Option<Permissions>,
    pub tokens: Option<Tokens>,
}

/// Settings that have been checked: the broker can put them in force now.
#[derive(Debug)]
pub struct CheckedSettings {
    classes: Option<(ClassChange, Rate)>,
    permissions: Option<Permissions>,
    tokens: Option<Tokens>,
}

/// The findings of a reload other than the settings.
#[derive(Debug, Default)]
pub struct ReloadedFiles {
    /// The kinds of files that were read.
    pub read: Vec<String>,
    /// Connections whose certificates are not valid any more, and why.
    pub invalid: Vec<(ClientId, String)>,
}

/// The party that requested that the files be read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReloadAsker {
    Client(ClientId),
    /// SIGHUP, and the user that sent it. `None`: the kernel, because a terminal was closed.
    Signal {
        user: Option<u32>,
    },
}

/// Why a connection is ended.
type Breach = (RefusalKind, String);

impl Broker {
    /// Checks whether the broker can change to these settings.
    ///
    /// # Errors
    /// A class is in use that the new policy lacks, or a guarantee would not hold.
    pub fn check_settings(&self, settings: BrokerSettings) -> Result<CheckedSettings, ClassChangeError> {
        let BrokerSettings { policy, permissions, tokens } = settings;
        let classes = match policy {
            Some((hierarchy, rate)) => Some((self.channel.check_classes(hierarchy)?, rate)),
            None => None,
        };
        Ok(CheckedSettings { classes, permissions, tokens })
    }

    /// Puts settings in force, and ends the connections of clients whose new rights do not cover their
    /// present use.
    pub fn reload(
        &mut self,
        now: Instant,
        asker: ReloadAsker,
        settings: CheckedSettings,
        files: ReloadedFiles,
    ) -> ReloadReport {
        let CheckedSettings { classes, permissions, tokens } = settings;
        if let Some((change, rate)) = classes {
            self.change_classes(now, change, rate);
        }
        self.access.permissions = permissions.or(self.access.permissions.take());
        self.access.tokens = tokens.or(self.access.tokens.take());
        let mut report = ReloadReport { read: files.read, ..ReloadReport::default() };
        let invalid = files.invalid.into_iter().map(|(client, why)| (client, (RefusalKind::Tls, why)));
        let mut ends: BTreeMap<ClientId, Breach> = invalid.collect();
        let sessions = self.renew_sessions(&mut ends);
        self.renew_clients(now, &mut ends);
        let own = match asker {
            ReloadAsker::Client(client) => ends.remove(&client).map(|breach| (client, breach)),
            ReloadAsker::Signal { .. } => None,
        };
        report.ended = ends.len() as u64;
        report.sessions_ended = sessions.len() as u64;
        for (client, breach) in ends {
            if let Some(known) = self.clients.get(&client)
                && report.ends.len() < ReloadReport::MAX_ENDS
            {
                let (who, name, why) = (known.who.to_string(), known.name.to_string(), breach.1.clone());
                report.ends.push(EndedConnection { who, name, why });
            }
            self.end_for(now, client, &breach);
        }
        sessions.into_iter().for_each(|session| self.mqtt_end(now, session));
        self.audit_reload(asker, (&report.read.join(", "), None));
        self.note_reload(asker, &report);
        self.answer_reload(asker, &report);
        // a client that asked for the reload gets the answer before its own connection ends
        if let Some((client, breach)) = own {
            self.end_for(now, client, &breach);
        }
        report
    }

    /// Records that a file is wrong, or that the settings cannot be put in force: the former settings stay in
    /// force.
    pub fn reload_refused(&mut self, asker: ReloadAsker, why: String) -> ReloadReport {
        let report = ReloadReport { refused: Some(why), ..ReloadReport::default() };
        self.access.count(RefusalKind::Reload);
        self.audit_reload(asker, ("the files", report.refused.as_deref()));
        self.note_reload(asker, &report);
        self.answer_reload(asker, &report);
        report
    }

    /// Handles the request of a program to read the files again.
    pub(super) fn ask_for_reload(&mut self, client: ClientId) {
        let Some(connected) = self.clients.get(&client) else { return };
        if self.is_operator(connected.peer) {
            return self.tasks.push_back(Task::Reload { client });
        }
        let why = format!(
            "only root and the broker's own user, at the path of its socket, may have it read its files again; \
             {} may not",
            connected.who
        );
        self.reload_refused(ReloadAsker::Client(client), why);
    }

    fn answer_reload(&mut self, asker: ReloadAsker, report: &ReloadReport) {
        if let ReloadAsker::Client(client) = asker {
            self.answer(client, &Frame::Reloaded(report.clone()));
        }
    }

    /// Writes the result to the log of the broker's operator.
    fn note_reload(&mut self, asker: ReloadAsker, report: &ReloadReport) {
        let by = match asker {
            ReloadAsker::Client(client) => self.clients.get(&client).map(|client| client.who.to_string()),
            ReloadAsker::Signal { user } => Some(match user {
                Some(user) => format!("SIGHUP of {}", ClientIdentity::Unix(user)),
                None => "SIGHUP".to_owned(),
            }),
        };
        let by = by.unwrap_or_default();
        self.tasks.push_back(Task::Note { text: format!("reload ({by}): {report}") });
        for EndedConnection { who, name, why } in &report.ends {
            self.tasks.push_back(Task::Note { text: format!("reload ended {who} ({name}): {why}") });
        }
    }

    fn change_classes(&mut self, now: Instant, change: ClassChange, rate: Rate) {
        // the message on the link is charged to its class before the classes change
        if let Some(took) = self.link.on_link.take() {
            self.channel.finish(now, Some(took));
        }
        self.link.change_classes(self.channel.hierarchy(), &change);
        if let Some(pace) = &mut self.link.pace {
            pace.set_rate(rate);
        }
        self.channel.change_classes(now, change);
    }

    fn end_for(&mut self, now: Instant, client: ClientId, (kind, why): &Breach) {
        self.access.count(*kind);
        self.end(now, client, &MqttFault::new(NOT_AUTHORIZED, why.as_str()));
    }

    /// Gives each connection its new rule. Adds the connections that have to end to `ends`.
    fn renew_clients(&mut self, now: Instant, ends: &mut BTreeMap<ClientId, Breach>) {
        let greeted = self.clients.iter().filter(|(_, client)| client.greeted);
        let mut greeted: Vec<ClientId> = greeted.map(|(id, _)| *id).collect();
        greeted.sort_unstable();
        for id in &greeted {
            let Some(client) = self.clients.get(id) else { continue };
            match self.identified_again(now, client) {
                Err(breach) => drop(ends.entry(*id).or_insert(breach)),
                Ok((grant, expires)) => {
                    let consumers: Vec<_> =
                        client.consumers.values().map(|(consumer, _)| *consumer).collect();
                    consumers.into_iter().for_each(|consumer| self.names.set_grant(consumer, &grant));
                    if let Some(client) = self.clients.get_mut(id) {
                        (client.grant, client.expires) = (grant, expires);
                    }
                    self.rearrange_rings(*id);
                }
            }
        }
        for id in greeted {
            let Some(client) = self.clients.get(&id).filter(|_| !ends.contains_key(&id)) else { continue };
            if let Some(breach) = self.breach(id, client) {
                ends.insert(id, breach);
            }
        }
    }

    /// Returns the rule of a connected client, and when its token expires.
    fn identified_again(
        &self,
        now: Instant,
        client: &ConnectedClient,
    ) -> Result<(Arc<ClientGrant>, Option<Instant>), Breach> {
        let who = &client.who;
        let mut expires = client.expires;
        if let (Some(token), Some(tokens)) = (&client.token, &self.access.tokens) {
            let (name, until) = tokens.name(now, token).map_err(|why| (RefusalKind::Token, why))?;
            let is_theirs =
                matches!(who, ClientIdentity::Token(known) | ClientIdentity::Mqtt(known) if *known == name);
            if !is_theirs {
                return Err((
                    RefusalKind::Token,
                    format!("the token is now that of `{name}`; connect again"),
                ));
            }
            expires = until;
        }
        Ok((self.rule_of(who)?, expires))
    }

    fn rule_of(&self, who: &ClientIdentity) -> Result<Arc<ClientGrant>, Breach> {
        self.access.grant_again(who).ok_or_else(|| {
            (
                RefusalKind::Identity,
                format!("no rule of the permissions names {who} any more; add it to one"),
            )
        })
    }

    /// Returns the first thing that a connected program does and may not do any more.
    fn breach(&self, id: ClientId, client: &ConnectedClient) -> Option<Breach> {
        let ConnectedClient { who, grant, .. } = client;
        let user = NameUser { owner: client.owner.clone(), grant: Arc::clone(grant) };
        for outlet in client.outlets.values() {
            let Outlet::Topic { supplier, topic, .. } = *outlet else {
                if !grant.paths {
                    return Some((RefusalKind::Paths, format!("{who} may have no paths any more")));
                }
                continue;
            };
            let name = self.channel.topic_spec(topic).map(|spec| &*spec.name).unwrap_or_default();
            if !grant.may_publish(name) && !self.replies.may_publish(name) {
                return Some((RefusalKind::Publish, no_more(who, format_args!("publish `{name}`"))));
            }
            let share = self.channel.offer_of(supplier, topic).map_or(1, |offer| offer.share);
            if share > grant.share.max(1) {
                let what = format_args!("have a share of {share} of `{name}`");
                return Some((RefusalKind::Publish, no_more(who, what)));
            }
            let joins = self.access.permissions.is_none() || grant.join;
            if !joins && self.remote_suppliers.is_remote(supplier) {
                let what = format_args!("publish for suppliers of other brokers");
                return Some((RefusalKind::Join, no_more(who, what)));
            }
            let writer = self.writer_name(supplier);
            if let Some(why) = writer.and_then(|it| self.name_breach(&user, OwnedKind::Writer, it)) {
                return Some((RefusalKind::Name, why));
            }
        }
        for (consumer, _) in client.consumers.values() {
            let patterns = self.channel.patterns_of(*consumer).chain(self.resumed_patterns(*consumer));
            for pattern in patterns.map(ToString::to_string) {
                if !grant.may_subscribe(&pattern) && !self.replies.may_subscribe(id, &pattern) {
                    let what = format_args!("subscribe to `{pattern}`");
                    return Some((RefusalKind::Subscribe, no_more(who, what)));
                }
            }
            let blocks = self.channel.blocked_by(*consumer) == Some(BlockedSuppliers::All);
            if blocks && self.access.permissions.is_some() && !grant.block {
                return Some((RefusalKind::Block, no_more(who, format_args!("have suppliers wait for it"))));
            }
            let resumed = self.resumed_name(*consumer);
            let named = resumed.and_then(|name| self.name_breach(&user, OwnedKind::Consumer, name));
            if let Some(why) = named.or_else(|| self.group_breach(*consumer, &user)) {
                return Some((RefusalKind::Name, why));
            }
        }
        None
    }

    /// Gives each MQTT session its new rule. Returns the sessions that end, and adds their connections to
    /// `ends`.
    fn renew_sessions(&mut self, ends: &mut BTreeMap<ClientId, Breach>) -> Vec<MqttSessionId> {
        let sessions = self.mqtt.ids();
        let mut over = Vec::new();
        for id in &sessions {
            let Some((who, ..)) = self.mqtt.whose(*id) else { continue };
            let (grant, refused) = match self.rule_of(who) {
                Ok(grant) => (grant, None),
                Err(breach) => (Arc::new(ClientGrant::none()), Some(breach)),
            };
            for consumer in self.mqtt.set_grant(*id, &grant) {
                self.names.set_grant(consumer, &grant);
            }
            let is_offered = self.mqtt.offered(*id).all(|topic| {
                let name = self.channel.topic_spec(topic).map(|spec| &*spec.name);
                name.is_none_or(|name| grant.may_publish(name) || self.replies.may_publish(name))
            });
            if !is_offered {
                // with this, the right to publish is checked again at the next message to each topic
                self.mqtt_withdraw(*id, false);
            }
            if let Some(breach) = refused {
                ends.extend(self.mqtt.connection(*id).map(|client| (client, breach)));
                over.push(*id);
            }
        }
        for id in sessions.into_iter().filter(|id| !over.contains(id)).collect::<Vec<_>>() {
            if let Some(breach) = self.session_breach(id) {
                ends.extend(self.mqtt.connection(id).map(|client| (client, breach)));
                over.push(id);
            }
        }
        over
    }

    /// Returns the first thing that a session has and its client may not have any more.
    fn session_breach(&self, id: MqttSessionId) -> Option<Breach> {
        let user = self.name_user_of_session(id)?;
        let (who, ..) = self.mqtt.whose(id)?;
        for (pattern, shared) in self.mqtt.patterns(id) {
            if !user.grant.may_subscribe(&pattern) {
                let what = format_args!("subscribe to `{pattern}`");
                return Some((RefusalKind::Subscribe, no_more(who, what)));
            }
            if let Some(why) = shared.and_then(|consumer| self.group_breach(consumer, &user)) {
                return Some((RefusalKind::Name, why));
            }
        }
        None
    }
}

fn no_more(who: &ClientIdentity, what: fmt::Arguments<'_>) -> String {
    format!("{who} may not {what} any more: the permissions have changed")
}
