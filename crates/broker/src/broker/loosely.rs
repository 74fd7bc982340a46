//! Best-effort delivery: deliveries that may be lost on the way, to consumers over UDP that asked for it.
//!
//! ```text
//!   broker                                                     program
//!     |-- stream:   DELIVER 1 (first of the supplier and topic) -->|  knows the pair from then on
//!     |-- datagram: DELIVER 2 ------------------------------------>|
//!     |-- datagram: DELIVER 3 ------------------------ lost        |
//!     |-- datagram: DELIVER 4 ------------------------------------>|  gap: 1 event, between the numbers of 2 and 4
//!     |-- stream:   SENT 5, 0.2 s after the last one ------>|  gap: 5 was lost, too
//! ```
//! Deliveries are counted per consumer, topic and supplier. The count travels as the delivery number, which
//! is not acknowledged here. Events that do not fit into a datagram, and events from a topic's history,
//! travel on the stream without a count.
//!
//! Cost: 40 bytes per consumer and pair of topic and supplier, and a scan of these five times a second while
//! events come.

use super::Broker;
use crate::frame::Frame;
use crate::spec::SubscriptionSpec;
use crate::task::{ClientId, Task};
use std::collections::HashMap;
use unisono_eventchannel::{ConsumerId, NumberMap};
use unisono_linux::clock::Nanos;

/// Maximum bytes of a delivery in a datagram: every path that QUIC supports carries 1200 bytes (RFC 9000,
/// section 14), and QUIC's own overhead takes up to 50.
const MAX_DELIVERY_BYTES: usize = 1150;
/// After this long without a delivery the program is told the count: datagrams that are later than that count
/// as lost.
const QUIET: Nanos = Nanos(200_000_000);
/// Maximum pairs of topic and supplier that are counted for a consumer. Events of other pairs travel on the
/// stream.
const MAX_PAIRS: usize = 1024;

/// Deliveries to one consumer from one supplier on one topic.
#[derive(Clone, Copy, Debug)]
struct LooseCount {
    sent: u64,
    /// The supplier's number of the last delivery.
    last: u64,
    /// The count that the program is known to have.
    told: u64,
    at: Nanos,
}

/// A consumer with best-effort delivery.
#[derive(Debug)]
struct LooseConsumer {
    client: ClientId,
    number: u32,
    pairs: HashMap<(u32, u32), LooseCount>,
}

/// All consumers with best-effort delivery.
#[derive(Debug, Default)]
pub(super) struct LooseDeliveries {
    consumers: NumberMap<ConsumerId, LooseConsumer>,
    /// The next time at which counts are due; `None`: no count is due.
    due: Option<Nanos>,
}

/// The transport of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeliveryWay {
    Stream,
    /// On the stream, as the first of the counted deliveries of a pair.
    First,
    Datagram,
}

impl LooseDeliveries {
    /// The transport and the count of a consumer's next delivery.
    pub(super) fn count(
        &mut self,
        now: Nanos,
        consumer: ConsumerId,
        (topic, supplier, sequence): (u32, u32, u64),
        bytes: usize,
    ) -> (DeliveryWay, u64) {
        let Some(loose) = self.consumers.get_mut(&consumer).filter(|_| bytes <= MAX_DELIVERY_BYTES) else {
            return (DeliveryWay::Stream, 0);
        };
        if let Some(count) = loose.pairs.get_mut(&(topic, supplier)) {
            (count.sent, count.last, count.at) = (count.sent + 1, sequence, now);
            self.due.get_or_insert(QUIET.after(now));
            return (DeliveryWay::Datagram, count.sent);
        }
        if loose.pairs.len() >= MAX_PAIRS {
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
    /// The transport of this program can lose deliveries, if the program asks for that.
    pub fn may_lose(&mut self, client: ClientId) {
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.may_lose = true;
        }
    }

    /// Registers a new consumer, if it asked for best effort.
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

    /// A supplier no longer reaches a consumer: sends the final count before the notice about that.
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

    /// Sends the counts of pairs that have been quiet for a while; returns whether any was sent.
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

    /// Sends a delivery by its transport.
    pub(super) fn send_by(&mut self, way: DeliveryWay, task: (ClientId, Vec<u8>, crate::body::EventBody)) {
        let (client, head, body) = task;
        self.tasks.push_back(match way {
            DeliveryWay::Datagram => Task::Loosely { client, head, body },
            DeliveryWay::Stream | DeliveryWay::First => Task::Answer { client, head, body: Some(body) },
        });
    }
}
