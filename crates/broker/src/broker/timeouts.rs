//! Timeouts: reclaims the resources of paths, programs and destinations that are gone or idle.
//!
//! A path whose program has gone keeps its credit until its destination has taken all its messages. A
//! destination that takes no more would keep it for ever, and the broker's memory suffices for only some
//! thousand such paths. So a path without a program ends when its destination has taken no byte for
//! [`Limits::stall_timeout`](crate::Limits::stall_timeout); a slow destination is waited for. A program that
//! has connected but not sent its greeting within that time is disconnected, and earlier if another program
//! needs its place. A program whose token has expired is disconnected, too.
//!
//! A timeout counts only time in which the broker runs. After a pause (SIGSTOP, a frozen container, a
//! suspended host) the frames of the pause still wait in the sockets, so silence in it says nothing about the
//! programs.
//!
//! Cost: a scan of all paths and programs once a second, and one of all parties after a pause.

use super::paths::PathState;
use super::{Broker, ConnectedClient, Outlet};
use crate::mqtt::MqttFault;
use crate::permissions::RefusalKind;
use crate::task::{ClientId, PathId, Task};
use unisono_events_wire::frame::Frame;
use unisono_events_wire::transport::TransportPeer;
use unisono_linux::clock::{Duration, Instant};

/// Time between two scans for idle programs and destinations. The timeouts last seconds, so a scan every
/// second enforces them almost on time.
const CHECK_INTERVAL: Duration = Duration::SECOND;
/// Time for which a program keeps its place without a greeting while other programs wait for one. A greeting
/// over TLS needs three round trips, and one lost packet costs a second (RFC 6298).
const GREETING: Duration = Duration::from_secs(3);
/// MQTT 5, section 3.14.2.1.
pub(super) const NOT_AUTHORIZED: u8 = 0x87;

#[derive(Debug, Default)]
pub(super) struct BrokerTimers {
    /// When to check next for idle programs and destinations.
    next_check: Instant,
    /// The time of the last call.
    last_call: Instant,
    /// A longer time between two calls is a pause of the broker.
    max_call_interval: Option<Duration>,
    /// The last result of [`EventChannel::lapses`](unisono_eventchannel::EventChannel::lapses).
    lapses: u64,
}

impl BrokerTimers {
    /// Returns the time of the last call.
    pub(super) fn last_call(&self) -> Instant {
        self.last_call
    }
}

impl Broker {
    /// Records that a destination has taken a part of its pending bytes.
    pub fn progressed(&mut self, now: Instant, id: PathId) {
        if let Some(path) = self.link.paths.get_mut(&id) {
            path.alone_since = now;
        }
    }

    /// Tells that the caller calls at least this often. A longer time between two calls is then a pause of
    /// the broker's process, which no timeout of a silent client counts.
    pub fn expect_calls_within(&mut self, longest: Duration) {
        self.timers.max_call_interval = Some(longest);
    }

    /// Enforces the timeouts at most once a second. Each call also advances the audit trail and forgets
    /// retired topics.
    pub(super) fn run_timers(&mut self, now: Instant) {
        if let Some(trail) = &mut self.audit {
            trail.advance(now);
        }
        self.forget_retired();
        let since_last = now - std::mem::replace(&mut self.timers.last_call, now);
        if self.timers.max_call_interval.is_some_and(|longest| since_last > longest) {
            self.extend_timeouts(since_last);
        }
        if now < self.timers.next_check {
            return;
        }
        self.timers.next_check = now + CHECK_INTERVAL;
        self.expire(now);
        self.ledger.expire(now);
        let stall_timeout = self.limits.stall_timeout;
        let is_over = |since: Instant| now - since >= stall_timeout;
        let paths = self.link.paths.iter();
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
        self.mqtt_run_timers(now);
    }

    /// Extends the timeouts of silent peers by a pause of the broker.
    fn extend_timeouts(&mut self, pause: Duration) {
        self.channel.extend_leases(pause);
        self.clients.values_mut().for_each(|client| client.since += pause);
        self.link.paths.values_mut().for_each(|path| path.alone_since += pause);
        self.mqtt_extend_keep_alive(pause);
    }

    /// Disconnects programs whose lease ran out: the channel has removed their topics and subscriptions,
    /// which a program that still runs has to learn. Returns whether any lease has run out since the last
    /// call.
    pub(super) fn end_leases(&mut self, now: Instant) -> bool {
        let lapses = self.channel.lapses();
        if std::mem::replace(&mut self.timers.lapses, lapses) == lapses {
            return false;
        }
        let has_lapsed = |client: &ConnectedClient| {
            client.outlets.values().any(
                |outlet| matches!(outlet, Outlet::Topic { supplier, .. } if !self.channel.has_supplier(*supplier)),
            ) || client.consumers.values().any(|(consumer, _)| !self.channel.has_consumer(*consumer))
        };
        let clients = self.clients.iter();
        let lapsed: Vec<(ClientId, Duration)> = clients
            .filter_map(|(id, client)| Some((*id, client.lease.filter(|_| has_lapsed(client))?)))
            .collect();
        for (id, lease) in lapsed {
            self.access.count(RefusalKind::Lease);
            let why = format!(
                "the lease of {lease} ran out, because the program called nothing for as long; connect again, with a \
                 longer lease or calling more often"
            );
            self.send_away(now, id, &why);
        }
        true
    }

    /// Disconnects the program that has waited longest without a greeting (of this peer, if one is given), so
    /// that silent programs do not block others. Returns whether a place is free now.
    pub(super) fn make_place(&mut self, now: Instant, of: Option<TransportPeer>) -> bool {
        let silent = self.clients.iter().filter(|(_, client)| {
            !client.greeted && of.is_none_or(|of| of == client.peer) && now - client.since >= GREETING
        });
        let Some(id) = silent.min_by_key(|(_, client)| client.since).map(|(id, _)| *id) else {
            return false;
        };
        self.send_away(now, id, "no greeting came, and others wait for a place");
        true
    }

    /// Handles a path whose destination is gone, or was never reached; its socket is closed.
    pub fn broken(&mut self, now: Instant, id: PathId, reason: &str) {
        let Some(path) = self.link.paths.get_mut(&id) else { return };
        if path.state == PathState::Broken {
            return;
        }
        let was_opening = path.state == PathState::Opening;
        path.state = PathState::Broken;
        path.kept = 0;
        let (class, consumer, outstanding) = (path.class, path.consumer, path.outstanding);
        if let Some(client) = path.client {
            let reason = format!("{}: {reason}", path.destination);
            self.tasks.answer(client, &Frame::Closed { number: path.number, reason: &reason });
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
        self.addressees.remove(consumer);
        self.channel.disconnect_unseen(now, consumer);
        self.return_credit(id, outstanding);
        self.forget_if_empty(id);
    }
}
