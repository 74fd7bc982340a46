//! Best effort at the program's end: deliveries that were lost on the way become gaps, those that come late
//! go.

use super::{Reception, SubscriptionHandle};
use crate::frame::DeliverHead;
use crate::notice::NoticeText;
use crate::topic_names::TopicNames;
use std::collections::HashMap;
use std::sync::Arc;

/// What has come of a supplier on a topic.
#[derive(Clone, Copy, Debug)]
struct HeardCount {
    count: u64,
    /// The supplier's number of the last one.
    last: u64,
}

/// Consumer, topic and supplier, by the broker's numbers.
type LoosePair = (u32, u32, u32);

#[derive(Debug, Default)]
pub(super) struct LooseReading {
    heard: HashMap<LoosePair, HeardCount>,
}

impl LooseReading {
    /// A delivery has come. None: it is late, and was told as lost, or nothing is known of its supplier yet.
    /// Else what is to be told before it.
    pub(super) fn take(&mut self, head: &DeliverHead<'_>, topics: &TopicNames) -> Option<Option<Reception>> {
        if head.flags.acknowledge || head.delivery == 0 {
            return Some(None);
        }
        let pair = (head.consumer, head.topic, head.supplier);
        if head.delivery == 1 {
            self.heard.insert(pair, HeardCount { count: 1, last: head.sequence });
            return Some(None);
        }
        // the names may have been told anew, and this delivery was faster
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

    /// The broker says how much it has sent; what is to be told.
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

    /// A supplier is heard no more.
    pub(super) fn end(&mut self, pair: LoosePair) {
        self.heard.remove(&pair);
    }

    /// A consumer is no more.
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
