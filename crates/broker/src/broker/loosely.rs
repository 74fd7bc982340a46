//! Best effort: deliveries that may be lost on the way, to consumers that asked for that over UDP.
//!
//! ```text
//!   broker                                                     program
//!     |-- stream:   DELIVER 1 (first of the supplier and topic) -->|  knows the pair from then on
//!     |-- datagram: DELIVER 2 ------------------------------------>|
//!     |-- datagram: DELIVER 3 ------------------------ lost        |
//!     |-- datagram: DELIVER 4 ------------------------------------>|  gap: 1 event, between the numbers of 2 and 4
//!     |-- stream:   SENT 5, 0.2 s after the last one ------>|  gap: 5 was lost, too
//! ```
//! Deliveries are counted for each consumer, topic and supplier. The count travels as the number of the
//! delivery, which nobody acknowledges here. Events that do not fit into a datagram, and those out of a
//! topic's history, travel on the stream without a count.
//!
//! Cost: 40 bytes for each pair of topic and supplier that a consumer hears, and a look at them five times a
//! second while events come.

use super::Broker;
use crate::frame::Frame;
use crate::spec::SubscriptionSpec;
use crate::task::{ClientId, Task};
use std::collections::HashMap;
use unisono_eventchannel::{ConsumerId, NumberMap};
use unisono_linux::clock::Nanos;

/// Bytes of a delivery that fit into a datagram on every way: QUIC is made for ways that carry 1200
/// (RFC 9000, section 14), and its own parts take up to 50.
const LARGEST: usize = 1150;
/// How long nothing was sent before the program is told how many there were: datagrams that are later than
/// that count as lost.
const QUIET: Nanos = Nanos(200_000_000);
/// Pairs of topic and supplier that are counted for a consumer. Events of others travel on the stream.
const MOST_PAIRS: usize = 1024;

/// What a consumer was sent of a supplier on a topic.
#[derive(Clone, Copy, Debug)]
struct LooseCount {
    sent: u64,
    /// The supplier's number of the last one.
    last: u64,
    /// How many the program knows of for sure.
    told: u64,
    at: Nanos,
}

/// A consumer whose deliveries may be lost on the way.
#[derive(Debug)]
struct LooseConsumer {
    client: ClientId,
    number: u32,
    pairs: HashMap<(u32, u32), LooseCount>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct LooseDeliveries {
    consumers: NumberMap<ConsumerId, LooseConsumer>,
    /// When to look for those that are to be told how much was sent. None: nobody.
    due: Option<Nanos>,
}

/// How a delivery travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeliveryWay {
    Stream,
    /// On the stream, as the first of so many that may be lost.
    First,
    Datagram,
}

impl LooseDeliveries {
    /// The next delivery of a consumer: how it travels, and its count.
    pub(super) fn count(
        &mut self,
        now: Nanos,
        consumer: ConsumerId,
        (topic, supplier, sequence): (u32, u32, u64),
        bytes: usize,
    ) -> (DeliveryWay, u64) {
        let Some(loose) = self.consumers.get_mut(&consumer).filter(|_| bytes <= LARGEST) else {
            return (DeliveryWay::Stream, 0);
        };
        if let Some(count) = loose.pairs.get_mut(&(topic, supplier)) {
            (count.sent, count.last, count.at) = (count.sent + 1, sequence, now);
            self.due.get_or_insert(QUIET.after(now));
            return (DeliveryWay::Datagram, count.sent);
        }
        if loose.pairs.len() >= MOST_PAIRS {
            return (DeliveryWay::Stream, 0);
        }
        loose.pairs.insert((topic, supplier), LooseCount { sent: 1, last: sequence, told: 1, at: now });
        (DeliveryWay::First, 1)
    }

    /// Whether deliveries to the consumer may be lost.
    pub(super) fn concerns(&self, consumer: ConsumerId) -> bool {
        self.consumers.contains_key(&consumer)
    }

    pub(super) fn forget(&mut self, consumer: ConsumerId) {
        self.consumers.remove(&consumer);
    }

    pub(super) fn due(&self) -> Option<Nanos> {
        self.due
    }
}

impl Broker {
    /// Deliveries to this program can be lost on the way, if it asks for that.
    pub fn may_lose(&mut self, client: ClientId) {
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.may_lose = true;
        }
    }

    /// A consumer has come.
    pub(super) fn may_be_lost(
        &mut self,
        (client, number): (ClientId, u32),
        consumer: ConsumerId,
        spec: &SubscriptionSpec,
    ) {
        if spec.best_effort && self.clients.get(&client).is_some_and(|connected| connected.may_lose) {
            let loose = LooseConsumer { client, number, pairs: HashMap::new() };
            self.loose.consumers.insert(consumer, loose);
        }
    }

    /// A supplier is heard no more: how much was sent is told before that.
    pub(super) fn end_loosely(&mut self, consumer: ConsumerId, (topic, supplier): (u32, u32)) {
        let Some(loose) = self.loose.consumers.get_mut(&consumer) else { return };
        let Some(LooseCount { sent, last, told, .. }) = loose.pairs.remove(&(topic, supplier)) else {
            return;
        };
        if told < sent {
            let frame = Frame::Sent { consumer: loose.number, topic, supplier, count: sent, last };
            super::answer(&mut self.tasks, loose.client, &frame);
        }
    }

    /// Tells those how much was sent to whom nothing was sent for a while; whether anybody.
    pub(super) fn tell_counts(&mut self, now: Nanos) -> bool {
        if self.loose.due.is_none_or(|due| now < due) {
            return false;
        }
        let (before, mut next) = (self.tasks.len(), None);
        for loose in self.loose.consumers.values_mut() {
            for ((topic, supplier), count) in &mut loose.pairs {
                let due = QUIET.after(count.at);
                if count.told < count.sent && due <= now {
                    count.told = count.sent;
                    let (topic, supplier, LooseCount { sent, last, .. }) = (*topic, *supplier, *count);
                    let frame = Frame::Sent { consumer: loose.number, topic, supplier, count: sent, last };
                    super::answer(&mut self.tasks, loose.client, &frame);
                } else if count.told < count.sent {
                    next = Some(next.map_or(due, |other: Nanos| other.min(due)));
                }
            }
        }
        self.loose.due = next;
        self.tasks.len() > before
    }

    /// Sends a delivery in its way.
    pub(super) fn send_by(&mut self, way: DeliveryWay, task: (ClientId, Vec<u8>, crate::body::EventBody)) {
        let (client, head, body) = task;
        self.tasks.push_back(match way {
            DeliveryWay::Datagram => Task::Loosely { client, head, body },
            DeliveryWay::Stream | DeliveryWay::First => Task::Answer { client, head, body: Some(body) },
        });
    }
}
