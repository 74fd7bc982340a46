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
use crate::task::ClientId;
use std::collections::HashMap;
use unisono_eventchannel::{ConsumerId, NumberMap};
use unisono_events_wire::SubscriptionSpec;
use unisono_events_wire::frame::Frame;
use unisono_linux::clock::{Duration, Instant};

/// Maximum bytes of a delivery in a datagram: every path that QUIC supports carries 1200 bytes (RFC 9000,
/// section 14), and QUIC's own overhead takes up to 50.
const MAX_DELIVERY_BYTES: usize = 1150;
/// After this long without a delivery the program receives the count: datagrams that arrive after the count
/// are counted as lost.
const COUNT_DELAY: Duration = Duration::from_millis(200);
/// Maximum pairs of topic and supplier that are counted for a consumer. Events of other pairs travel on the
/// stream.
const MAX_PAIRS: usize = 1024;

/// Deliveries to one consumer from one supplier on one topic.
#[derive(Clone, Copy, Debug)]
struct DeliveryCount {
    sent: u64,
    /// The highest event number of the supplier that was sent.
    last: u64,
    /// The last count that was sent to the program on the stream.
    announced: u64,
    at: Instant,
}

/// A consumer with best-effort delivery.
#[derive(Debug)]
struct BestEffortConsumer {
    client: ClientId,
    number: u32,
    pairs: HashMap<(u32, u32), DeliveryCount>,
}

/// All consumers with best-effort delivery.
#[derive(Debug, Default)]
pub(super) struct BestEffortDeliveries {
    consumers: NumberMap<ConsumerId, BestEffortConsumer>,
    /// The next time at which counts are due; `None`: no count is due.
    due: Option<Instant>,
}

/// The transport of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeliveryRoute {
    Stream,
    /// On the stream, as the first of the counted deliveries of a pair.
    First,
    Datagram,
}

impl BestEffortDeliveries {
    /// Chooses the transport of a consumer's next delivery; returns it with the delivery's count.
    pub(super) fn count(
        &mut self,
        now: Instant,
        consumer: ConsumerId,
        (topic, supplier, sequence): (u32, u32, u64),
        bytes: usize,
    ) -> (DeliveryRoute, u64) {
        let Some(reader) = self.consumers.get_mut(&consumer).filter(|_| bytes <= MAX_DELIVERY_BYTES) else {
            return (DeliveryRoute::Stream, 0);
        };
        if let Some(count) = reader.pairs.get_mut(&(topic, supplier)) {
            (count.sent, count.last, count.at) = (count.sent + 1, count.last.max(sequence), now);
            self.due.get_or_insert(now + COUNT_DELAY);
            return (DeliveryRoute::Datagram, count.sent);
        }
        if reader.pairs.len() >= MAX_PAIRS {
            return (DeliveryRoute::Stream, 0);
        }
        reader
            .pairs
            .insert((topic, supplier), DeliveryCount { sent: 1, last: sequence, announced: 1, at: now });
        (DeliveryRoute::First, 1)
    }

    /// Returns whether deliveries to the consumer may be lost.
    pub(super) fn concerns(&self, consumer: ConsumerId) -> bool {
        self.consumers.contains_key(&consumer)
    }

    pub(super) fn forget(&mut self, consumer: ConsumerId) {
        self.consumers.remove(&consumer);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Broker {
    /// Records that the program's transport has datagrams, which can be lost. Only consumers that ask for
    /// best effort get their deliveries that way.
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
            let reader = BestEffortConsumer { client, number, pairs: HashMap::new() };
            self.best_effort.consumers.insert(consumer, reader);
        }
    }

    /// Sends the final count of a supplier that no longer reaches a consumer, before the notice that says so.
    pub(super) fn end_best_effort(&mut self, consumer: ConsumerId, (topic, supplier): (u32, u32)) {
        let Some(reader) = self.best_effort.consumers.get_mut(&consumer) else { return };
        let Some(DeliveryCount { sent, last, announced, .. }) = reader.pairs.remove(&(topic, supplier))
        else {
            return;
        };
        if announced < sent {
            let frame = Frame::Sent { consumer: reader.number, topic, supplier, count: sent, last };
            self.tasks.answer(reader.client, &frame);
        }
    }

    /// Sends the counts of pairs that have been quiet for a while; returns whether any was sent.
    pub(super) fn send_counts(&mut self, now: Instant) -> bool {
        if self.best_effort.due.is_none_or(|due| now < due) {
            return false;
        }
        let (before, mut next) = (self.tasks.len(), None);
        for reader in self.best_effort.consumers.values_mut() {
            for ((topic, supplier), count) in &mut reader.pairs {
                let due = count.at + COUNT_DELAY;
                if count.announced < count.sent && due <= now {
                    count.announced = count.sent;
                    let (topic, supplier, DeliveryCount { sent, last, .. }) = (*topic, *supplier, *count);
                    let frame = Frame::Sent { consumer: reader.number, topic, supplier, count: sent, last };
                    self.tasks.answer(reader.client, &frame);
                } else if count.announced < count.sent {
                    next = Some(next.map_or(due, |other: Instant| other.min(due)));
                }
            }
        }
        self.best_effort.due = next;
        self.tasks.len() > before
    }
}
