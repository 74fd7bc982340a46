//! Best-effort delivery, the program's end: turns lost deliveries into gaps, and drops late ones.

use super::{Reception, SubscriptionHandle};
use crate::frame::DeliverHead;
use crate::notice::NoticeText;
use crate::topic_names::TopicNames;
use std::collections::HashMap;
use std::sync::Arc;

/// Deliveries received from one supplier on one topic.
#[derive(Clone, Copy, Debug)]
struct HeardCount {
    count: u64,
    /// The supplier's number of the last delivery.
    last: u64,
}

/// Consumer, topic and supplier, by the broker's numbers.
type LoosePair = (u32, u32, u32);

#[derive(Debug, Default)]
pub(super) struct LooseReading {
    heard: HashMap<LoosePair, HeardCount>,
}

impl LooseReading {
    /// Takes a delivery. `None`: the delivery is dropped; it came late and was reported as lost, or its
    /// supplier is not known yet. Otherwise, the gap to report before the delivery.
    pub(super) fn take(&mut self, head: &DeliverHead<'_>, topics: &TopicNames) -> Option<Option<Reception>> {
        if head.flags.acknowledge || head.delivery == 0 {
            return Some(None);
        }
        let pair = (head.consumer, head.topic, head.supplier);
        if head.delivery == 1 {
            self.heard.insert(pair, HeardCount { count: 1, last: head.sequence });
            return Some(None);
        }
        // the names may have been announced anew, and this delivery has overtaken them
        topics.name(head.topic)?;
        let heard = self.heard.get_mut(&pair)?;
        if head.delivery <= heard.count || head.sequence <= heard.last {
            return None;
        }
        let lost = head.delivery - heard.count - 1;
        let gap = (lost > 0).then(|| gap(pair, (heard.last, head.sequence - 1), lost, topics));
        *heard = HeardCount { count: head.delivery, last: head.sequence };
        Some(gap)
    }

    /// The broker reports the number of its deliveries; returns the gap to report.
    pub(super) fn sent(
        &mut self,
        pair: LoosePair,
        (count, last): (u64, u64),
        topics: &TopicNames,
    ) -> Option<Reception> {
        let heard = self.heard.get_mut(&pair)?;
        let lost = count.saturating_sub(heard.count);
        let gap = (lost > 0).then(|| gap(pair, (heard.last, last), lost, topics));
        *heard = HeardCount { count: heard.count.max(count), last: heard.last.max(last) };
        gap
    }

    /// A supplier no longer publishes for this consumer.
    pub(super) fn end(&mut self, pair: LoosePair) {
        self.heard.remove(&pair);
    }

    /// A consumer has ended.
    pub(super) fn end_all(&mut self, consumer: u32) {
        self.heard.retain(|(of, ..), _| *of != consumer);
    }
}

fn gap(
    (consumer, topic, supplier): LoosePair,
    (heard, last): (u64, u64),
    lost: u64,
    topics: &TopicNames,
) -> Reception {
    let first = heard.saturating_add(1).min(last);
    let notice = NoticeText::Gap { topic, supplier, first, last, lost, cause: "on-the-way".to_owned() };
    let topic = topics.name(topic).map(Arc::clone);
    Reception::Notice { subscription: SubscriptionHandle(consumer), topic, notice }
}
