//! Where the broker tells its audit trail what happens.

use super::{Broker, ConnectedClient};
use crate::audit::{AuditAction, AuditEntry, AuditOutcome, AuditTrail, AuditedIdentity};
use crate::frame::Frame;
use crate::spec::SubscriptionSpec;
use crate::task::{ClientId, Task};
use unisono_linux::clock::Nanos;

impl Broker {
    /// The same with a trail of who did what; [`audit_entries`](Self::audit_entries) has its entries.
    #[must_use]
    pub fn with_audit(mut self) -> Self {
        self.audit = Some(Box::default());
        self
    }

    /// The entries since this was asked last.
    pub fn audit_entries(&mut self) -> Vec<AuditEntry> {
        self.audit.as_mut().map(|trail| trail.take()).unwrap_or_default()
    }

    /// The broker ends: what was only counted becomes entries.
    pub fn finish_audit(&mut self, now: Nanos) {
        if let Some(trail) = &mut self.audit {
            trail.finish(now);
        }
    }

    /// Entries could not be written.
    pub fn count_lost_audit_entries(&mut self, entries: usize) {
        if let Some(trail) = &mut self.audit {
            trail.lost += entries as u64;
        }
    }

    /// A connection will end, for a reason that the caller knows.
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
            name: known.name.clone(),
        };
        Some((trail, known.map(of).unwrap_or_default()))
    }

    pub(super) fn audit_connected(&mut self, client: ClientId) {
        if let Some((trail, of)) = self.audited(client) {
            trail.connected(client, of);
        }
    }

    /// Before the client is forgotten.
    pub(super) fn audit_gone(&mut self, client: ClientId) {
        if let Some((trail, of)) = self.audited(client) {
            trail.gone(client, of);
        }
    }

    /// A client asks for what this frame says; [`audit_answer`](Self::audit_answer) sees what it gets.
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

    /// The broker answers a client.
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

    /// What a client asked for last, and was not refused, is granted.
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

    /// A filter of an MQTT client was taken, or refused.
    pub(super) fn audit_filter(&mut self, client: ClientId, filter: &str, refused: Option<&str>) {
        let Some((trail, of)) = self.audited(client) else { return };
        let shared = filter.starts_with("$share/");
        let action = if shared { AuditAction::JoinGroup } else { AuditAction::Subscribe };
        let outcome = if refused.is_some() { AuditOutcome::Refused } else { AuditOutcome::Done };
        trail.enter(client, of, (action, outcome), Some(filter.to_owned()), refused);
    }

    /// Suppliers are introduced to consumers.
    pub(super) fn audit_introductions(&mut self, tasks: &[Task]) {
        if self.audit.is_none() {
            return;
        }
        for task in tasks {
            let Task::Introduce { client, link, .. } = task else { continue };
            let of_link = self.direct.parties(*link);
            let what = of_link.map(|(topic, reader)| {
                let topic = self.topic_name(topic).map(|name| name.to_string()).unwrap_or_default();
                let to = self.clients.get(&reader).map(|reader| format!("{} ({})", reader.who, reader.name));
                format!("{topic} to {}", to.unwrap_or_default())
            });
            if let Some((trail, of)) = self.audited(*client) {
                trail.enter(*client, of, (AuditAction::Ring, AuditOutcome::Done), what, None);
            }
        }
    }
}

/// What a subscription asks for.
fn subscription(spec: &SubscriptionSpec) -> (AuditAction, String) {
    let patterns: Vec<&str> = spec.interests.iter().map(|interest| interest.topics.as_str()).collect();
    let patterns = patterns.join(" ");
    match (&spec.resume, &spec.group) {
        (Some(resume), _) => (AuditAction::Resume, format!("{}: {patterns}", resume.name)),
        (None, Some(group)) => (AuditAction::JoinGroup, format!("{group}: {patterns}")),
        (None, None) => (AuditAction::Subscribe, patterns),
    }
}
