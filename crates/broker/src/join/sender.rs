//! The sending side of a join: takes events from this host's broker and passes them to the network.

use super::envelope::{JoinBody, JoinEnvelope, StreamOrigin};
use super::settings::JoinSettings;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use unisono_events_client::ReceivedEvent;
use unisono_events_wire::NoticeText;
use unisono_linux::clock::Instant;

/// Totals of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SenderCounters {
    /// Events passed to the network.
    pub sent: u64,
    /// Bytes of their payloads.
    pub sent_bytes: u64,
    /// Events that the broker dropped because the class's queue was full, or because they were too large for
    /// it.
    pub dropped_full: u64,
    /// Events whose deadline passed before they could be sent.
    pub dropped_late: u64,
    /// Events dropped because their topic or key is too long.
    pub too_long: u64,
}

/// The sender of one class.
#[derive(Debug)]
pub struct JoinSender {
    /// Index of the class in the settings.
    class: usize,
    run: u64,
    /// Suppliers and topics with events that were sent.
    suppliers: BTreeSet<(u32, Arc<str>)>,
    pub counters: SenderCounters,
}

/// Maximum number of pairs of supplier and topic that a sender remembers, to announce their departure: as
/// many as a channel has suppliers. The departure of others is not announced.
const MAX_SUPPLIERS: usize = 4096;

impl JoinSender {
    #[must_use]
    pub fn new(class: usize) -> Self {
        Self { class, run: 0, suppliers: BTreeSet::new(), counters: SenderCounters::default() }
    }

    /// Records that the join is connected to a broker with this run. The broker's numbers of suppliers are
    /// valid only within the run.
    pub fn connected(&mut self, run: u64) {
        if self.run != run {
            self.suppliers.clear();
        }
        self.run = run;
    }

    /// Handles an event of the broker; returns the envelope to send, if any.
    pub fn event(&mut self, now: Instant, event: &ReceivedEvent, settings: &JoinSettings) -> Option<Vec<u8>> {
        // A retained event was sent when it was published, or was published before the hosts were joined.
        if event.retained || settings.class_of(&event.topic) != Some(self.class) {
            return None;
        }
        if event.deadline.is_some_and(|deadline| deadline < now) {
            self.counters.dropped_late += 1;
            return None;
        }
        let payload = event.payload.bytes();
        let body = JoinBody::Event {
            criticality: event.criticality,
            sequence: event.sequence,
            remaining: event.deadline.map(|deadline| deadline - now),
            key: event.key.as_deref().unwrap_or_default(),
            fields: event.fields.clone(),
            payload: &payload,
        };
        let Some(bytes) =
            (JoinEnvelope { origin: self.origin(event.supplier, &event.topic), body }).to_bytes()
        else {
            self.counters.too_long += 1;
            return None;
        };
        if self.suppliers.len() < MAX_SUPPLIERS {
            self.suppliers.insert((event.supplier, Arc::clone(&event.topic)));
        }
        self.counters.sent += 1;
        self.counters.sent_bytes += payload.len() as u64;
        Some(bytes)
    }

    /// Handles a notice of the broker; returns the envelope to send, if any.
    pub fn notice(&mut self, topic: Option<&Arc<str>>, notice: &NoticeText) -> Option<Vec<u8>> {
        match notice {
            NoticeText::Gap { lost, cause, .. } if cause == "late" => self.counters.dropped_late += lost,
            // numbers that the supplier itself skipped show as a gap at the other hosts
            NoticeText::Gap { cause, .. } if cause == "not-received" => {}
            NoticeText::Gap { lost, .. } | NoticeText::FurtherGaps { lost } => {
                self.counters.dropped_full += lost;
            }
            NoticeText::Gone { supplier, .. } => {
                let topic = topic?;
                if self.suppliers.remove(&(*supplier, Arc::clone(topic))) {
                    let origin = self.origin(*supplier, topic);
                    return JoinEnvelope { origin, body: JoinBody::Left }.to_bytes();
                }
            }
            _ => {}
        }
        None
    }

    fn origin<'a>(&self, supplier: u32, topic: &'a str) -> StreamOrigin<'a> {
        StreamOrigin { run: self.run, supplier, topic }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::clock::Duration;

    fn settings() -> JoinSettings {
        let text = "[[class]]\nname = \"a\"\ntopics = [\"a/#\"]\n[[class]]\nname = \"b\"\ntopics = [\"#\"]";
        JoinSettings::parse(text).expect("it is sound")
    }

    fn event(topic: &str, deadline: Option<Instant>) -> ReceivedEvent {
        let mut event = ReceivedEvent::new(topic, b"payload");
        (event.criticality, event.supplier, event.sequence, event.deadline) = (2, 4, 8, deadline);
        event
    }

    #[test]
    fn the_time_that_an_event_waited_is_taken_off_and_what_is_late_does_not_travel() {
        let mut sender = JoinSender::new(0);
        sender.connected(77);
        let bytes = sender
            .event(Instant::from_nanos(60), &event("a/t", Some(Instant::from_nanos(100))), &settings())
            .expect("it is in time");
        let envelope = JoinEnvelope::read(&bytes).expect("it is sound");
        assert_eq!(envelope.origin, StreamOrigin { run: 77, supplier: 4, topic: "a/t" });
        let JoinBody::Event { sequence: 8, remaining: Some(left), payload: b"payload", .. } = envelope.body
        else {
            panic!("{envelope:?}")
        };
        assert_eq!(left, Duration::from_nanos(40));
        assert_eq!(
            sender.event(
                Instant::from_nanos(101),
                &event("a/t", Some(Instant::from_nanos(100))),
                &settings()
            ),
            None
        );
        assert_eq!((sender.counters.sent, sender.counters.dropped_late), (1, 1));
    }

    #[test]
    fn each_event_travels_in_one_class_and_none_that_was_there_before() {
        let (mut first, mut second) = (JoinSender::new(0), JoinSender::new(1));
        for (topic, travels) in [("a/t", (true, false)), ("t", (false, true)), ("$t", (false, false))] {
            let event = event(topic, None);
            let sent =
                [&mut first, &mut second].map(|it| it.event(Instant::ZERO, &event, &settings()).is_some());
            assert_eq!((sent[0], sent[1]), travels, "{topic}");
        }
        let mut retained = event("a/t", None);
        retained.retained = true;
        assert_eq!(first.event(Instant::ZERO, &retained, &settings()), None);
    }

    #[test]
    fn that_a_supplier_left_is_told_once_if_anything_of_it_was_sent() {
        let mut sender = JoinSender::new(1);
        let gone = NoticeText::Gone { topic: 9, supplier: 4, died: true };
        let topic: Arc<str> = "t".into();
        assert_eq!(sender.notice(Some(&topic), &gone), None);
        sender.event(Instant::ZERO, &event("t", None), &settings()).expect("it travels");
        let bytes = sender.notice(Some(&topic), &gone).expect("the others know it");
        assert_eq!(JoinEnvelope::read(&bytes).expect("it is sound").body, JoinBody::Left);
        assert_eq!(sender.notice(Some(&topic), &gone), None);
        let gap = |cause: &str| NoticeText::Gap {
            topic: 9,
            supplier: 4,
            first: 1,
            last: 3,
            lost: 3,
            cause: cause.to_owned(),
        };
        for cause in ["full", "late", "not-received", "too-large"] {
            assert_eq!(sender.notice(Some(&topic), &gap(cause)), None);
        }
        assert_eq!((sender.counters.dropped_full, sender.counters.dropped_late), (6, 3));
    }
}
