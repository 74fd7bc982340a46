//! The end of a channel whose destination is gone, and time limits: what programs and destinations that do
//! nothing hold is taken back.
//!
//! A channel whose program has gone keeps its credit until its destination has taken all that was handed
//! over. A destination that takes nothing more would keep it for ever, and some hundred such channels are all
//! that a broker has. So a channel without a program ends when its destination has taken nothing for
//! [`Limits::patience`]; one that reads slowly is waited for. A program that has connected and not greeted in
//! that time is sent away.
//!
//! Cost: a look at all channels and programs once a second.

use super::{Broker, ChannelState, answer};
use crate::frame::Frame;
use crate::limits::Limits;
use crate::task::{ChannelId, ClientId, Task};

/// Nanoseconds between two looks.
const LOOK: u64 = 1_000_000_000;

impl Broker {
    /// A destination has taken a part of what is kept for it.
    pub fn progressed(&mut self, now: u64, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.alone_since = now;
        }
    }

    /// Ends what has done nothing for too long.
    pub(super) fn look(&mut self, now: u64) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        let patience = self.limits.patience;
        let is_over = |since: u64| now.saturating_sub(since) >= patience;
        let stuck: Vec<ChannelId> = self
            .channels
            .iter()
            .filter(|(_, channel)| {
                channel.client.is_none() && channel.stalled && is_over(channel.alone_since)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in stuck {
            self.give_up_on(id, "it takes nothing");
        }
        let silent: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, client)| !client.greeted && is_over(client.since))
            .map(|(id, _)| *id)
            .collect();
        for id in silent {
            self.send_away(now, id, "no greeting came");
        }
    }

    /// A channel's destination is gone (or was never there); its socket is closed.
    pub fn broken(&mut self, now: u64, id: ChannelId, reason: &str) {
        self.advance(now);
        self.give_up_on(id, reason);
    }

    pub(super) fn give_up_on(&mut self, id: ChannelId, reason: &str) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if channel.state == ChannelState::Broken {
            return;
        }
        if channel.state == ChannelState::Opening
            && let Some(client) = channel.client
            && let Some(client) = self.clients.get_mut(&client)
        {
            // refused: the program need not close what it never had
            client.channels.remove(&channel.number);
        }
        let was_opening = channel.state == ChannelState::Opening;
        channel.state = ChannelState::Broken;
        let (class, held, kept) =
            (channel.class, std::mem::take(&mut channel.held), std::mem::take(&mut channel.kept));
        if let Some(client) = channel.client {
            let reason = format!("{}: {reason}", channel.destination);
            answer(&mut self.tasks, client, &Frame::Closed { channel: channel.number, reason: &reason });
        }
        if was_opening {
            channel.client = None;
        }
        self.tasks.push_back(Task::Release { channel: id });
        let costs = held.iter().map(|packet| Limits::cost(packet.item.payload.len())).sum::<u32>();
        for _ in &held {
            self.lose(class);
        }
        self.give_back(id, costs + kept);
        self.forget_if_empty(id);
    }
}
