//! Calls from the broker to its audit trail.

use super::mqtt::MqttSessionId;
use super::{Broker, ConnectedClient, ReloadAsker};
use crate::audit::{AuditAction, AuditEntry, AuditOutcome, AuditTrail, AuditedIdentity};
use crate::permissions::ClientIdentity;
use crate::task::{ClientId, Task};
use unisono_events_wire::SubscriptionSpec;
use unisono_events_wire::frame::Frame;
use unisono_events_wire::transport::TransportPeer;
use unisono_linux::clock::Instant;

impl Broker {
    /// Adds an audit trail; [`audit_entries`](Self::audit_entries) returns its entries.
    #[must_use]
    pub fn with_audit(mut self) -> Self {
        self.audit = Some(Box::default());
        self
    }

    /// Returns the entries since the last call.
    pub fn audit_entries(&mut self) -> Vec<AuditEntry> {
        self.audit.as_mut().map(|trail| trail.take()).unwrap_or_default()
    }

    /// Turns counted requests into entries when the broker ends.
    pub fn finish_audit(&mut self, now: Instant) {
        if let Some(trail) = &mut self.audit {
            trail.finish(now);
        }
    }

    /// Counts entries that could not be written.
    pub fn count_lost_audit_entries(&mut self, entries: usize) {
        if let Some(trail) = &mut self.audit {
            trail.lost += entries as u64;
        }
    }

    /// Records the reason of a connection's coming end.
    pub fn audit_end(&mut self, client: ClientId, reason: &str) {
        if let Some(trail) = &mut self.audit {
            trail.ends_because(client, reason);
        }
    }

    fn audited(&mut self, client: ClientId) -> Option<(&mut AuditTrail, AuditedIdentity)> {
        let trail = self.audit.as_deref_mut()?;
        let known = self.clients.get(&client);
        let of = |known: &ConnectedClient| AuditedIdentity {
            who: Some(known.who.to_string()),
            name: known.name.to_string(),
        };
        Some((trail, known.map(of).unwrap_or_default()))
    }

    pub(super) fn audit_connected(&mut self, client: ClientId) {
        if let Some((trail, of)) = self.audited(client) {
            trail.connected(client, of);
        }
    }

    /// Adds an entry for a client's end, before the broker forgets the client.
    pub(super) fn audit_gone(&mut self, client: ClientId) {
        if let Some((trail, of)) = self.audited(client) {
            trail.gone(client, of);
        }
    }

    /// Records the request in a frame; [`audit_answer`](Self::audit_answer) adds the entry with the outcome.
    pub(super) fn audit_request(&mut self, client: ClientId, frame: &Frame<'_>) {
        let Some(trail) = &mut self.audit else { return };
        match frame {
            Frame::Advertise { spec, .. } => trail.asks(client, AuditAction::Advertise, spec.topic.clone()),
            Frame::Subscribe { spec, .. } => {
                let (action, what) = subscription(spec);
                trail.asks(client, action, what);
            }
            Frame::Open { path, .. } => {
                trail.asks(client, AuditAction::OpenPath, path.destination.to_string());
            }
            _ => {}
        }
    }

    /// Adds an entry with the outcome of a request, according to the broker's answer.
    pub(super) fn audit_answer(&mut self, client: ClientId, frame: &Frame<'_>) {
        if self.audit.is_none() {
            return;
        }
        match frame {
            Frame::Accepted { .. } => self.audit_granted(client),
            Frame::Refused { reason, .. } | Frame::Closed { reason, .. } => {
                if let Some((trail, of)) = self.audited(client) {
                    trail.refused(client, of, reason);
                }
            }
            Frame::Rejected { topic, reason, .. } => {
                let topic = self.topic_of_outlet(client, *topic).unwrap_or_default();
                self.audit_publish_refused(client, &topic, reason);
            }
            Frame::Bye { reason } => self.audit_end(client, reason),
            _ => {}
        }
    }

    /// Adds an entry for the client's last request, as granted, unless the request was refused.
    pub(super) fn audit_granted(&mut self, client: ClientId) {
        if let Some((trail, of)) = self.audited(client) {
            trail.done(client, of);
        }
    }

    fn topic_of_outlet(&self, client: ClientId, number: u32) -> Option<String> {
        let outlet = self.clients.get(&client)?.outlets.get(&number)?;
        match outlet {
            super::Outlet::Topic { topic, .. } => self.topic_name(*topic).map(|name| name.to_string()),
            super::Outlet::Path(_) => None,
        }
    }

    pub(super) fn audit_publish_refused(&mut self, client: ClientId, topic: &str, why: &str) {
        if let Some((trail, of)) = self.audited(client) {
            let entry = (AuditAction::Publish, AuditOutcome::Refused);
            trail.enter(client, of, entry, Some(topic.to_owned()), Some(why));
        }
    }

    /// Adds an entry for a topic on which an MQTT client begins to publish, or for its will that was refused.
    pub(super) fn audit_of_session(
        &mut self,
        session: MqttSessionId,
        entry: (AuditAction, AuditOutcome),
        topic: &str,
        why: Option<&str>,
    ) {
        let Some(trail) = self.audit.as_deref_mut() else { return };
        let Some((who, name, peer)) = self.mqtt.whose(session) else { return };
        let of = AuditedIdentity { who: Some(who.to_string()), name: name.to_owned() };
        trail.enter_from(Some(peer), of, entry, Some(topic.to_owned()), why);
    }

    /// Adds an entry that says whether a filter of an MQTT client was accepted.
    pub(super) fn audit_filter(&mut self, client: ClientId, filter: &str, refused: Option<&str>) {
        let Some((trail, of)) = self.audited(client) else { return };
        let shared = filter.starts_with("$share/");
        let action = if shared { AuditAction::JoinGroup } else { AuditAction::Subscribe };
        let outcome = if refused.is_some() { AuditOutcome::Refused } else { AuditOutcome::Done };
        trail.enter(client, of, (action, outcome), Some(filter.to_owned()), refused);
    }

    /// Adds an entry that says that the broker's files were read again, or why they are not in force.
    pub(super) fn audit_reload(&mut self, asker: ReloadAsker, (what, why): (&str, Option<&str>)) {
        let outcome = if why.is_some() { AuditOutcome::Refused } else { AuditOutcome::Done };
        let (entry, what) = ((AuditAction::Reload, outcome), Some(what.to_owned()));
        match asker {
            ReloadAsker::Client(client) => {
                if let Some((trail, of)) = self.audited(client) {
                    trail.enter(client, of, entry, what, why);
                }
            }
            ReloadAsker::Signal { user } => {
                let Some(trail) = self.audit.as_deref_mut() else { return };
                let who = user.map(|user| ClientIdentity::Unix(user).to_string());
                let of = AuditedIdentity { who, name: "SIGHUP".to_owned() };
                trail.enter_from(user.map(TransportPeer::User), of, entry, what, why);
            }
        }
    }

    /// Adds an entry: a process may serve after this broker, or is refused because of `why`.
    pub(super) fn audit_take_over(&mut self, client: ClientId, why: Option<&str>) {
        let outcome = if why.is_some() { AuditOutcome::Refused } else { AuditOutcome::Done };
        if let Some((trail, of)) = self.audited(client) {
            trail.enter(client, of, (AuditAction::TakeOver, outcome), None, why);
        }
    }

    /// Adds entries for introductions of suppliers to consumers.
    pub(super) fn audit_introductions(&mut self, tasks: &[Task]) {
        if self.audit.is_none() {
            return;
        }
        for task in tasks {
            if let Task::Introduce { client, link, .. } = task {
                self.audit_link(*client, *link);
            }
        }
    }

    /// Adds an entry for a supplier that was introduced to the consumer of a link.
    pub(super) fn audit_link(&mut self, client: ClientId, link: u32) {
        let of_link = self.direct.parties(link);
        let what = of_link.map(|(topic, reader)| {
            let topic = self.topic_name(topic).map(|name| name.to_string()).unwrap_or_default();
            let to = self.clients.get(&reader).map(|reader| format!("{} ({})", reader.who, reader.name));
            format!("{topic} to {}", to.unwrap_or_default())
        });
        if let Some((trail, of)) = self.audited(client) {
            trail.enter(client, of, (AuditAction::Ring, AuditOutcome::Done), what, None);
        }
    }
}

/// Returns the action and the patterns of a subscription.
fn subscription(spec: &SubscriptionSpec) -> (AuditAction, String) {
    let patterns: Vec<&str> = spec.interests.iter().map(|interest| interest.topics.as_str()).collect();
    let patterns = patterns.join(" ");
    match (&spec.resume, &spec.group) {
        (Some(resume), _) => (AuditAction::Resume, format!("{}: {patterns}", resume.name)),
        (None, Some(group)) => (AuditAction::JoinGroup, format!("{group}: {patterns}")),
        (None, None) => (AuditAction::Subscribe, patterns),
    }
}
