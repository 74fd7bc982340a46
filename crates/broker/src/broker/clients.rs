//! Connected programs: the facts about each, pauses of programs that accept no frames, and backpressure on
//! suppliers.

use super::{Broker, ClientProtocol, Outlet};
use crate::task::{ClientId, Received};
use unisono_eventchannel::{SupplierId, TopicId};
use unisono_linux::clock::Instant;

/// While classes compete, the server stops reading from a program that has this many events of one topic
/// waiting. The server delivers as many events in a turn (64), so a class whose suppliers have that many
/// waiting has enough to deliver until the server reads from them again, whatever its share.
const MAX_AHEAD: usize = 64;

impl Broker {
    /// Records that the program's connection takes no frames for now. The program's events then wait in its
    /// inboxes.
    pub fn paused(&mut self, client: ClientId) {
        self.set_paused(client, true);
    }

    /// Ends a [`paused`](Self::paused) state; returns whether the program was paused. Events may be due to
    /// the program then: call [`next`](Self::next).
    pub fn resumed(&mut self, client: ClientId) -> bool {
        self.set_paused(client, false)
    }

    /// Returns whether the state has changed.
    fn set_paused(&mut self, client: ClientId, paused: bool) -> bool {
        let Some(connected) = self.clients.get_mut(&client) else { return false };
        if std::mem::replace(&mut connected.paused, paused) == paused {
            return false;
        }
        for (consumer, _) in connected.consumers.values() {
            match paused {
                true => self.channel.pause(*consumer),
                false => self.channel.resume(*consumer),
            }
        }
        if let ClientProtocol::Mqtt(Some(session)) = connected.protocol {
            self.mqtt_stalled(session, paused);
        }
        true
    }

    /// Returns whether a program that was [`Received::Ahead`] is still ahead. If it is, some delivery is due.
    /// The program's lease is renewed meanwhile, because the server does not read the program's frames.
    pub fn is_ahead(&mut self, now: Instant, client: ClientId) -> bool {
        let Some(connected) = self.clients.get_mut(&client) else { return false };
        let Some((supplier, topic)) = connected.ahead else { return false };
        let is_ahead = self.channel.backlog(supplier, topic) >= MAX_AHEAD;
        if is_ahead {
            self.renew(now, client);
        } else {
            connected.ahead = None;
        }
        is_ahead
    }

    /// Returns the result for a program whose event the channel has taken.
    pub(super) fn backpressure(
        &mut self,
        client: ClientId,
        supplier: SupplierId,
        topic: TopicId,
    ) -> Received {
        if self.channel.backlog(supplier, topic) < MAX_AHEAD {
            return Received::Done;
        }
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.ahead = Some((supplier, topic));
        }
        Received::Ahead
    }

    pub(super) fn renew(&mut self, now: Instant, client: ClientId) {
        let Some(connected) = self.clients.get(&client) else { return };
        self.counters.work += (connected.outlets.len() + connected.consumers.len()) / 64;
        for outlet in connected.outlets.values() {
            if let Outlet::Topic { supplier, .. } = outlet {
                self.channel.renew_supplier(now, *supplier);
            }
        }
        for (consumer, _) in connected.consumers.values() {
            self.channel.renew_consumer(now, *consumer);
        }
    }
}
