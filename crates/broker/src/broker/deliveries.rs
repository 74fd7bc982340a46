//! The choice of the next delivery, and who gets it.

use super::{Addressee, Broker};
use crate::task::Next;
use unisono_linux::clock::Instant;

/// Turns of followers in one call of [`Broker::next`] while their interests match none of the log's events.
const MAX_LOG_FILLS: usize = 16;

impl Broker {
    /// Chooses the next delivery or transmission.
    pub fn next(&mut self, now: Instant) -> Next {
        self.run_timers(now);
        if let Some(free_at) = self.link.busy_until(now) {
            return Next::Wait(free_at);
        }
        self.grant_rings();
        if self.send_counts(now) || self.mqtt_resend(now) {
            return Next::Delivered;
        }
        self.end_service(now);
        for _ in 0..MAX_LOG_FILLS {
            let more = self.fill_from_log(now);
            if let Some(next) = self.deliver_next(now) {
                return next;
            }
            if !more {
                self.set_idle();
                let wake = [self.channel.next_wake(), self.best_effort.due()].into_iter().flatten().min();
                return wake.map_or(Next::Idle, Next::Wait);
            }
        }
        Next::Wait(now)
    }

    /// Delivers or transmits the channel's next event; `None`: the channel has none for now.
    fn deliver_next(&mut self, now: Instant) -> Option<Next> {
        // the consumer of the last delivery is cheaper to find than the next one of all consumers
        if let Some((to, consumer)) = self.addressees.last.take()
            && let Some(delivered) = self.channel.next_to_same(now, consumer)
        {
            self.deliver_event(now, to, consumer, delivered);
            self.addressees.last = Some((to, consumer));
            return Some(Next::Delivered);
        }
        while let Some(delivery) = self.channel.next(now) {
            match self.addressees.by_consumer.get(&delivery.consumer).copied() {
                Some(Addressee::Program { client, number }) => {
                    self.addressees.last = Some(((client, number), delivery.consumer));
                    self.deliver(now, (client, number), delivery);
                    return Some(Next::Delivered);
                }
                Some(Addressee::Path(path)) => {
                    if let Some(body) = self.forward(now, path, delivery) {
                        return Some(Next::Transmit { path, body });
                    }
                }
                Some(Addressee::Mqtt(session)) => {
                    self.mqtt_deliver(now, session, delivery);
                    return Some(Next::Delivered);
                }
                None => {} // its program has just gone
            }
        }
        self.end_leases(now).then_some(Next::Delivered)
    }
}
