//! Events whose deadlines pass on their way to the program.
//!
//! The broker checks a deadline when the event leaves, and a ring's reader when it takes the event. An event
//! that has left may still wait in sockets and in this client. So the client checks the deadlines of a
//! subscription that drops late events again when the program takes an event. Such an event is acknowledged
//! if it has to be, because the broker would repeat it, and reported to the broker, which counts it.
//!
//! Cost: nothing for a program whose subscriptions all deliver late events; otherwise a look-up for each
//! event with a deadline, and a reading of the clock. A report is a frame, sent when the program has taken
//! all events that have come.

use super::reading::LateVerdict;
use super::{Client, ReceivedEvent, Reception};
use std::collections::BTreeMap;
use std::sync::Arc;
use unisono_events_wire::{NoticeText, RingReport, SubscriptionSpec, WhenLate};
use unisono_linux::clock;

/// The subscriptions that drop late events, and the events that were dropped.
#[derive(Debug, Default)]
pub(super) struct LateChecks {
    subscriptions: BTreeMap<u32, WhenLate>,
    /// The events that were dropped since the last report, by subscription and topic.
    dropped: BTreeMap<(u32, u32), u64>,
}

impl LateChecks {
    pub(super) fn subscribed(&mut self, number: u32, spec: &SubscriptionSpec) {
        if spec.late != WhenLate::Deliver {
            self.subscriptions.insert(number, spec.late);
        }
    }

    pub(super) fn unsubscribed(&mut self, number: u32) {
        self.subscriptions.remove(&number);
    }

    /// Forgets the drops that were not reported, because their connection has broken.
    pub(super) fn reconnected(&mut self) {
        self.dropped.clear();
    }

    /// Returns whether events may be dropped.
    #[inline]
    pub(super) fn may_drop(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    fn judge(&self, event: &ReceivedEvent) -> LateVerdict {
        let Some(when) = self.subscriptions.get(&event.subscription.0) else { return LateVerdict::Deliver };
        let is_late = !event.retained && event.deadline.is_some_and(|deadline| deadline < clock::now());
        LateVerdict::new(*when, is_late)
    }
}

impl Client {
    /// Takes the next event or notice that has come, without the events that have become late.
    pub(super) fn next_received(&mut self) -> Option<Reception> {
        loop {
            let next = self.received.pop_front()?;
            if let Some(reception) = self.unless_late(next) {
                return Some(reception);
            }
        }
    }

    /// Returns the event or notice for the program: a notice instead of an event that came too late, or
    /// nothing. Counts and acknowledges an event that the program does not get.
    #[inline]
    pub(super) fn unless_late(&mut self, reception: Reception) -> Option<Reception> {
        let event = match &reception {
            Reception::Event(event) if self.late.may_drop() => event,
            _ => return Some(reception),
        };
        let verdict = self.late.judge(event);
        if verdict == LateVerdict::Deliver {
            return Some(reception);
        }
        *self.late.dropped.entry((event.subscription.0, event.topic_number)).or_default() += 1;
        // if the connection is broken, the next frame reports that
        let _ = self.acknowledge(event);
        (verdict == LateVerdict::Report).then(|| late_notice(reception))
    }

    /// Reports the dropped events to the broker.
    pub(super) fn report_late(&mut self) {
        // no further reports are queued as long as the connection is full
        if self.late.dropped.is_empty() || !self.send_reports() {
            return;
        }
        for ((subscription, topic), events) in std::mem::take(&mut self.late.dropped) {
            // an older broker would end the connection, as it would for a subscription that has ended
            if self.terms.late_reports && self.late.subscriptions.contains_key(&subscription) {
                self.report(subscription, RingReport::DroppedLate { topic, events });
            }
        }
    }
}

/// Makes the notice that the program gets in place of a late event.
fn late_notice(reception: Reception) -> Reception {
    let Reception::Event(event) = reception else { return reception };
    let (number, supplier, cause) = (event.sequence, event.supplier, "late".to_owned());
    let notice =
        NoticeText::Gap { topic: event.topic_number, supplier, first: number, last: number, lost: 1, cause };
    Reception::Notice { subscription: event.subscription, topic: Some(Arc::clone(&event.topic)), notice }
}
