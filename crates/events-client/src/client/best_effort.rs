//! The program's end of best-effort delivery: it reports lost deliveries as gaps, and drops deliveries that
//! come after they were reported as lost.

use super::{Reception, SubscriptionHandle};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use unisono_events_wire::NoticeText;
use unisono_events_wire::TopicNames;
use unisono_events_wire::frame::DeliverHead;
use unisono_events_wire::transport::{FrameTransport, IncomingFrame, TransportError};

/// Deliveries received from one supplier on one topic.
#[derive(Clone, Copy, Debug)]
struct ReceivedDeliveries {
    count: u64,
    /// The highest of the supplier's sequence numbers so far.
    last: u64,
}

/// The numbers of a delivery's consumer, topic and supplier.
type DeliveryPair = (u32, u32, u32);

#[derive(Debug, Default)]
pub(super) struct BestEffortReading {
    received: HashMap<DeliveryPair, ReceivedDeliveries>,
    /// The broker's report of how many deliveries it has sent, and the last number. It came on the stream, so
    /// it may have overtaken datagrams that have come before it and were not taken.
    sent: Option<(DeliveryPair, (u64, u64))>,
    /// Datagrams that were taken because of a report, and whose supplier's first delivery may be on the
    /// stream behind the report. They are dropped once the stream has no more frames.
    early: HashMap<DeliveryPair, VecDeque<Vec<u8>>>,
    /// Those whose supplier's first delivery has been taken.
    due: VecDeque<Vec<u8>>,
}

impl BestEffortReading {
    /// Returns the next frame. `early` holds its bytes if it was taken from the transport before.
    pub(super) fn next_frame<'a>(
        &mut self,
        transport: &'a mut dyn FrameTransport,
        early: &'a mut Vec<u8>,
    ) -> Result<Option<IncomingFrame<'a>>, TransportError> {
        if let Some(bytes) = self.due.pop_front() {
            *early = bytes;
            return Ok(Some(IncomingFrame { bytes: early, shared_payload: None }));
        }
        if self.sent.is_some() { Ok(transport.receive_unreliable()) } else { transport.receive() }
    }

    /// Handles a delivery, whose frame has these `bytes`. Returns `None` if the delivery is dropped, because
    /// it was already reported as lost or because its supplier is not known yet, or if it is kept until its
    /// supplier is known. Otherwise, returns the gap to report before the delivery, if any.
    pub(super) fn take(
        &mut self,
        head: &DeliverHead<'_>,
        bytes: &[u8],
        topics: &TopicNames,
    ) -> Option<Option<Reception>> {
        if head.flags.acknowledge || head.delivery == 0 {
            return Some(None);
        }
        let pair = (head.consumer, head.topic, head.supplier);
        if head.delivery == 1 {
            self.received.insert(pair, ReceivedDeliveries { count: 1, last: head.sequence });
            self.due.extend(self.early.remove(&pair).unwrap_or_default());
            return Some(None);
        }
        if self.sent.is_some() && !self.received.contains_key(&pair) {
            self.early.entry(pair).or_default().push_back(bytes.to_vec());
            return None;
        }
        // the topic's name is unknown if the names are being announced anew and this delivery has overtaken
        // them
        topics.name(head.topic)?;
        let received = self.received.get_mut(&pair)?;
        if head.delivery <= received.count {
            return None;
        }
        let lost = head.delivery - received.count - 1;
        let gap =
            (lost > 0).then(|| gap(pair, (received.last, head.sequence.saturating_sub(1)), lost, topics));
        *received = ReceivedDeliveries { count: head.delivery, last: received.last.max(head.sequence) };
        Some(gap)
    }

    /// Keeps the broker's report of how many deliveries it has sent until the datagrams that have come are
    /// taken.
    pub(super) fn sent(&mut self, pair: DeliveryPair, counted: (u64, u64)) {
        self.sent = Some((pair, counted));
    }

    /// Returns whether datagrams have to be taken before other frames.
    pub(super) fn takes_datagrams(&self) -> bool {
        self.sent.is_some()
    }

    /// Handles the report after the last datagram was taken. Returns the gap to report, if any. Without a
    /// report, the stream has no more frames either, unless it `stopped_early`.
    pub(super) fn took_datagrams(&mut self, stopped_early: bool, topics: &TopicNames) -> Option<Reception> {
        let Some((pair, (count, last))) = self.sent.take() else {
            if !stopped_early {
                self.early.clear();
            }
            return None;
        };
        let received = self.received.get_mut(&pair)?;
        let lost = count.saturating_sub(received.count);
        let gap = (lost > 0).then(|| gap(pair, (received.last, last), lost, topics));
        *received = ReceivedDeliveries { count: received.count.max(count), last: received.last.max(last) };
        gap
    }

    /// Forgets a supplier that no longer publishes for this consumer.
    pub(super) fn end(&mut self, pair: DeliveryPair) {
        self.received.remove(&pair);
    }

    /// Forgets a consumer that has ended.
    pub(super) fn end_all(&mut self, consumer: u32) {
        self.received.retain(|(of, ..), _| *of != consumer);
    }
}

fn gap(
    (consumer, topic, supplier): DeliveryPair,
    (received, last): (u64, u64),
    lost: u64,
    topics: &TopicNames,
) -> Reception {
    let first = received.saturating_add(1).min(last);
    let notice = NoticeText::Gap { topic, supplier, first, last, lost, cause: "on-the-way".to_owned() };
    let topic = topics.name(topic).map(Arc::clone);
    Reception::Notice { subscription: SubscriptionHandle(consumer), topic, notice }
}
