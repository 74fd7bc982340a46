//! Timeouts: reclaims the resources of paths, programs and destinations that are gone or idle.
//!
//! A path whose program has gone keeps its credit until its destination has taken all its messages. A
//! destination that takes no more would keep it for ever, and a broker has only some thousand such paths. So
//! a path without a program ends when its destination has taken no byte for
//! [`Limits::patience`](crate::Limits::patience); a slow destination is waited for. A program that has
//! connected but not sent its greeting within that time is disconnected, and earlier if another program needs
//! its place. A program whose token has expired is disconnected, too.
//!
//! Cost: a scan of all paths and programs once a second.

use super::paths::PathState;
use super::{Broker, ConnectedClient, Outlet, answer};
use crate::frame::Frame;
use crate::mqtt::MqttFault;
use crate::permissions::RefusalKind;
use crate::task::{ClientId, PathId, Task};
use crate::transport::TransportPeer;
use unisono_linux::clock::Nanos;

/// Time between two scans for idle programs and destinations. The timeouts last seconds, so a scan every
/// second enforces them almost on time.
const CHECK_INTERVAL: Nanos = Nanos::SECOND;
/// Time for which a program keeps its place without a greeting while other programs wait for one. A greeting
/// over TLS needs three round trips, and one lost packet costs a second (RFC 6298).
const GREETING: Nanos = Nanos(3_000_000_000);
/// MQTT 5, section 3.14.2.1.
const NOT_AUTHORIZED: u8 = 0x87;

impl Broker {
    /// A destination has taken a part of its pending bytes.
    pub fn progressed(&mut self, now: Nanos, id: PathId) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.alone_since = now;
        }
    }

    /// Enforces the timeouts; runs at most once a second.
    pub(super) fn look(&mut self, now: Nanos) {
        if let Some(trail) = &mut self.audit {
            trail.advance(now);
        }
        self.forget_retired();
        if now < self.next_look {
            return;
        }
        self.next_look = CHECK_INTERVAL.after(now);
        self.expire(now);
        self.ledger.look(now);
        let patience = self.limits.patience;
        let is_over = |since: Nanos| now.since(since) >= patience;
        let paths = self.paths.iter();
        let stuck: Vec<PathId> = paths
            .filter(|(_, path)| path.client.is_none() && path.stalled && is_over(path.alone_since))
            .map(|(id, _)| *id)
            .collect();
        for id in stuck {
            self.broken(now, id, "it takes nothing");
        }
        let clients = self.clients.iter();
        let silent: Vec<ClientId> = clients
            .filter(|(_, client)| !client.greeted && is_over(client.since))
            .map(|(id, _)| *id)
            .collect();
        for id in silent {
            self.send_away(now, id, "no greeting came");
        }
        let clients = self.clients.iter();
        let expired: Vec<ClientId> = clients
            .filter(|(_, client)| client.expires.is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in expired {
            self.access.count(RefusalKind::Token);
            let why = "the token has expired; connect again with another";
            self.end(now, id, &MqttFault::new(NOT_AUTHORIZED, why));
        }
        self.mqtt_look(now);
    }

    /// Disconnects programs whose lease ran out: their topics and subscriptions are gone, and a live program
    /// has to learn that. Returns whether there were any.
    pub(super) fn end_leases(&mut self, now: Nanos) -> bool {
        let lapses = self.channel.lapses();
        if std::mem::replace(&mut self.lapses, lapses) == lapses {
            return false;
        }
        let has_lapsed = |client: &ConnectedClient| {
            client.outlets.values().any(
                |outlet| matches!(outlet, Outlet::Topic { supplier, .. } if !self.channel.has_supplier(*supplier)),
            ) || client.consumers.values().any(|(consumer, _)| !self.channel.has_consumer(*consumer))
        };
        let clients = self.clients.iter();
        let lapsed: Vec<(ClientId, Nanos)> = clients
            .filter_map(|(id, client)| Some((*id, client.lease.filter(|_| has_lapsed(client))?)))
            .collect();
        for (id, lease) in lapsed {
            self.access.count(RefusalKind::Lease);
            let why = format!(
                "the lease of {:?} ran out, because the program called nothing for as long; connect again, with a \
                 longer lease or calling more often",
                std::time::Duration::from_nanos(lease.0)
            );
            self.send_away(now, id, &why);
        }
        true
    }

    /// Disconnects the program that has waited longest without a greeting (of this peer, if one is given), so
    /// that silent programs do not block others. Returns whether a place is free now.
    pub(super) fn make_place(&mut self, now: Nanos, of: Option<TransportPeer>) -> bool {
        let silent = self.clients.iter().filter(|(_, client)| {
            !client.greeted && of.is_none_or(|of| of == client.peer) && now.since(client.since) >= GREETING
        });
        let Some(id) = silent.min_by_key(|(_, client)| client.since).map(|(id, _)| *id) else {
            return false;
        };
        self.send_away(now, id, "no greeting came, and others wait for a place");
        true
    }

    /// A path's destination is gone, or was never reached; its socket is closed.
    pub fn broken(&mut self, now: Nanos, id: PathId, reason: &str) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        if path.state == PathState::Broken {
            return;
        }
        let was_opening = path.state == PathState::Opening;
        path.state = PathState::Broken;
        path.kept = 0;
        let (class, consumer, outstanding) = (path.class, path.consumer, path.outstanding);
        if let Some(client) = path.client {
            let reason = format!("{}: {reason}", path.destination);
            answer(&mut self.tasks, client, &Frame::Closed { number: path.number, reason: &reason });
            // refused: the program need not close a path that was never open
            if was_opening && let Some(connected) = self.clients.get_mut(&client) {
                connected.outlets.remove(&path.number);
                path.client = None;
            }
        }
        self.tasks.push_back(Task::Release { path: id });
        for _ in 0..self.channel.waiting(consumer) {
            self.lose(class);
        }
        self.addressees.remove(&consumer);
        self.channel.disconnect_unseen(now, consumer);
        self.give_back(id, outstanding);
        self.forget_if_empty(id);
    }
}
