//! Names of topics: the broker sends a program each name once, and then only its number.
//!
//! Programs that make requests have a topic each, so over the years a program encounters any number of
//! topics. Both ends therefore forget all names when there are [`MAX_NAMES`]: the broker sends TOPIC with the
//! number 0, and sends each name again at its next use. Cost: for each topic in use some bytes on the
//! connection, again after every 65,536 new topics.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use unisono_eventchannel::{NumberMap, NumberSet, TopicId};

/// Maximum number of names: as many topics as a channel has at a time
/// ([`ChannelLimits`](unisono_eventchannel::ChannelLimits)).
const MAX_NAMES: usize = 65_536;

/// The frames to send before the number of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NameAnnouncement {
    Nothing,
    Name,
    /// Clear all names, then send the name.
    ForgetAndName,
}

/// Topics whose names a program has received.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedTopics {
    names: NumberSet<TopicId>,
    /// The types last sent for these topics. `None`: the program does not ask for types.
    types: Option<ToldTypes>,
}

/// Digests of types: the types of retired topics would take memory that no limit counts. The key of the
/// digests is random, so no program can make two types with one digest.
#[derive(Debug, Default)]
struct ToldTypes {
    key: RandomState,
    digests: NumberMap<TopicId, u64>,
}

impl AnnouncedTopics {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Makes an empty set for a program that asks for types.
    pub(crate) fn with_types() -> Self {
        Self { types: Some(ToldTypes::default()), ..Self::default() }
    }

    /// Returns whether the name of a topic was announced to the program.
    pub(crate) fn has(&self, topic: TopicId) -> bool {
        self.names.contains(&topic)
    }

    pub(crate) fn asks_for_types(&self) -> bool {
        self.types.is_some()
    }

    /// Returns whether a frame with the topic's number can be sent at once, without its name or type before
    /// it. False if the program asks for types, which may change.
    #[inline]
    pub(crate) fn has_all_of(&self, topic: TopicId) -> bool {
        self.types.is_none() && self.names.contains(&topic)
    }

    /// Records the type of a topic; returns whether the program has to be sent it. The topic's name goes
    /// first.
    pub(crate) fn announce_type(&mut self, topic: TopicId, event_type: Option<&Arc<str>>) -> bool {
        let Some(types) = &mut self.types else { return false };
        let digest = event_type.map(|event_type| types.key.hash_one(event_type));
        let former = match digest {
            Some(digest) => types.digests.insert(topic, digest),
            None => types.digests.remove(&topic),
        };
        former != digest
    }

    pub(crate) fn announce(&mut self, topic: TopicId) -> NameAnnouncement {
        if self.names.contains(&topic) {
            return NameAnnouncement::Nothing;
        }
        let full = self.names.len() >= MAX_NAMES;
        if full {
            self.names.clear();
            self.types.iter_mut().for_each(|types| types.digests.clear());
        }
        self.names.insert(topic);
        if full { NameAnnouncement::ForgetAndName } else { NameAnnouncement::Name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::broker::Broker;
    use crate::task::{ClientId, Next, Task};
    use unisono_events_wire::TopicNames;
    use unisono_events_wire::frame::ALL_TOPICS;
    use unisono_events_wire::frame::{Frame, PublishHead};
    use unisono_events_wire::transport::TransportPeer;
    use unisono_events_wire::{Advertisement, Greeting, SubscriptionSpec};
    use unisono_fairqueue::{ClassSpec, Hierarchy};
    use unisono_linux::clock::{Duration, Instant};

    const READER: ClientId = ClientId(1);
    const WRITER: ClientId = ClientId(2);

    fn send(broker: &mut Broker, now: Instant, client: ClientId, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let _ = broker.received(now, client, &bytes, None);
    }

    /// Handles the frames to the reader; returns whether an event with the right name came.
    fn receive(broker: &mut Broker, now: Instant, names: &mut TopicNames, expected: &str) -> bool {
        let mut came = false;
        loop {
            while let Some(task) = broker.task() {
                let Task::Answer { client: READER, head, body } = task else { continue };
                match Frame::read(&head) {
                    Ok(Frame::Topic { number, name }) => names.learn(number, name),
                    Ok(Frame::Notice { notice, .. }) => {
                        let topic = notice.topic().and_then(|topic| names.name(topic));
                        assert_eq!(topic.map(|it| &**it), Some(expected), "{notice:?}");
                    }
                    Ok(Frame::Deliver { head, .. }) => {
                        assert!(body.is_some());
                        assert_eq!(names.name(head.topic).map(|it| &**it), Some(expected));
                        came = true;
                    }
                    _ => {}
                }
            }
            if !matches!(broker.next(now), Next::Delivered) {
                return came;
            }
        }
    }

    #[test]
    fn of_200_000_topics_one_after_another_both_ends_remember_a_bounded_number_and_the_names_are_right() {
        let (mut announced, mut names) = (AnnouncedTopics::default(), TopicNames::default());
        for number in 1..=200_000_u32 {
            // each new topic is followed by two old ones
            for topic in [number, 7, number / 2 + 1] {
                match announced.announce(TopicId(topic)) {
                    NameAnnouncement::Nothing => {}
                    NameAnnouncement::Name => names.learn(topic, &topic.to_string()),
                    NameAnnouncement::ForgetAndName => {
                        names.learn(ALL_TOPICS, "");
                        names.learn(topic, &topic.to_string());
                    }
                }
                assert_eq!(names.name(topic).map(|it| &**it), Some(&*topic.to_string()));
            }
            assert!(announced.len() == names.len() && names.len() <= MAX_NAMES);
        }
    }

    #[test]
    #[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
    fn who_hears_of_more_topics_than_either_end_remembers_is_told_each_name_again() {
        let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
        let mut broker = Broker::new(tree.expect("it is sound"), Limits::default());
        let start = Instant::from_nanos(1);
        for client in [READER, WRITER] {
            assert!(broker.connected(start, client, TransportPeer::User(0)));
            send(&mut broker, start, client, &Frame::Hello(Greeting::default()));
        }
        let spec = SubscriptionSpec::new("#");
        send(&mut broker, start, READER, &Frame::Subscribe { number: 1, spec: Box::new(spec) });
        let lasting = Advertisement::new("lasting");
        send(&mut broker, start, WRITER, &Frame::Advertise { number: 1, spec: lasting });
        let mut names = TopicNames::default();
        for number in 2..66_002_u32 {
            let (now, later) = (
                Instant::from_nanos(u64::from(number) * 10),
                Instant::from_nanos(u64::from(number) * 10 + 2),
            );
            let name = format!("reply/{number}");
            send(&mut broker, now, WRITER, &Frame::Advertise { number, spec: Advertisement::new(&name) });
            // its deadline passes before the delivery
            let head = PublishHead {
                topic: number,
                deadline: (now + Duration::from_nanos(1)).into(),
                ..PublishHead::default()
            };
            send(&mut broker, now, WRITER, &Frame::Publish { head, payload: b"x" });
            send(&mut broker, now, WRITER, &Frame::Close { number });
            assert!(receive(&mut broker, later, &mut names, &name), "{name}");
            if number % 1000 == 0 {
                let head = PublishHead { topic: 1, ..PublishHead::default() };
                send(&mut broker, later, WRITER, &Frame::Publish { head, payload: b"x" });
                assert!(receive(&mut broker, later, &mut names, "lasting"));
            }
            assert!(names.len() <= MAX_NAMES && broker.names_told(READER) <= MAX_NAMES);
        }
        let [consumer] = &broker.statistics(Instant::from_millis(1)).consumers[..] else { panic!("one") };
        let by_topic = &consumer.missed_by_topic;
        assert_eq!((consumer.missed, by_topic.values().sum()), (66_000, 66_000));
        assert!(by_topic.len() <= MAX_NAMES + 1, "{}", by_topic.len());
    }
}
