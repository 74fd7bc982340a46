//! Numbers of the topics and writers of the log, for deliveries.
//!
//! A log holds events of any number of topics and writers, one after another. So when the names take many
//! bytes, all names that no pending event uses are forgotten. The names that pending events use count in the
//! queues of their followers. A forgotten name that comes again gets a new number. Its former number is not
//! given to another name, because programs may still know it.
//!
//! Cost: a scan of all pending events each time that the bytes of names have doubled.

use super::LOGGED;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Bytes of names that are always kept: 32,768 names of usual length, as many topics as one tenant has.
const MIN_KEPT_BYTES: usize = if cfg!(test) { 32 * ENTRY } else { 32_768 * ENTRY };
/// Bytes of a name in addition to its text: the entries of both maps, with room for the allocator.
const ENTRY: usize = 256;

#[derive(Debug)]
pub(super) struct LogNames {
    /// By name: writers, and topics without a type.
    numbers: HashMap<Arc<str>, u32>,
    /// By type and name: topics with a type.
    typed: HashMap<Arc<str>, HashMap<Arc<str>, u32>>,
    names: HashMap<u32, LogName>,
    /// The number of the next name. Numbers repeat after 2^31 names.
    next: u32,
    /// Bytes of all names.
    bytes: usize,
    /// Bytes of names at which unneeded ones are forgotten.
    most: usize,
}

/// A writer or a topic. A topic whose events have several types has a number for each.
#[derive(Debug)]
struct LogName {
    name: Arc<str>,
    event_type: Option<Arc<str>>,
}

impl LogName {
    fn bytes(&self) -> usize {
        ENTRY + self.name.len() + self.event_type.as_ref().map_or(0, |event_type| event_type.len())
    }
}

impl LogNames {
    pub(super) fn new() -> Self {
        Self {
            numbers: HashMap::new(),
            typed: HashMap::new(),
            names: HashMap::new(),
            next: LOGGED,
            bytes: 0,
            most: MIN_KEPT_BYTES,
        }
    }

    pub(super) fn number(&mut self, name: &str, event_type: Option<&str>) -> u32 {
        let known = match event_type {
            None => self.numbers.get(name),
            Some(event_type) => self.typed.get(event_type).and_then(|names| names.get(name)),
        };
        if let Some(number) = known {
            return *number;
        }
        while self.names.contains_key(&self.next) {
            self.pass();
        }
        let (name, event_type) = (Arc::<str>::from(name), event_type.map(Arc::<str>::from));
        let number = self.next;
        self.pass();
        let numbers = match &event_type {
            None => &mut self.numbers,
            Some(event_type) => self.typed.entry(Arc::clone(event_type)).or_default(),
        };
        numbers.insert(Arc::clone(&name), number);
        let name = LogName { name, event_type };
        self.bytes += name.bytes();
        self.names.insert(number, name);
        number
    }

    fn pass(&mut self) {
        self.next = self.next.checked_add(1).unwrap_or(LOGGED);
    }

    pub(super) fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(&number).map(|known| &known.name)
    }

    pub(super) fn event_type(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(&number)?.event_type.as_ref()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= self.most
    }

    /// Forgets all names except those with the needed numbers.
    pub(super) fn forget_but(&mut self, needed: &HashSet<u32>) {
        self.names.retain(|number, _| needed.contains(number));
        self.numbers.retain(|_, number| needed.contains(number));
        self.typed.retain(|_, numbers| {
            numbers.retain(|_, number| needed.contains(number));
            !numbers.is_empty()
        });
        self.bytes = self.names.values().map(LogName::bytes).sum();
        self.most = MIN_KEPT_BYTES.max(2 * self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::broker::Broker;
    use crate::log::{EventLog, LogBounds};
    use crate::task::{ClientId, Next, Task};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use unisono_events_wire::TopicNames;
    use unisono_events_wire::frame::{Frame, PublishHead};
    use unisono_events_wire::transport::TransportPeer;
    use unisono_events_wire::{Advertisement, AgainSpec, Durability, Greeting, ResumeSpec, SubscriptionSpec};
    use unisono_fairqueue::{ClassSpec, Hierarchy};
    use unisono_linux::clock::{Duration, Instant};

    proptest! {
        #[test]
        fn a_number_means_its_name_as_long_as_it_is_needed_and_few_others_are_kept(
            came in prop::collection::vec(0..400_u32, 0..1500), pending in 1..60_usize,
        ) {
            let mut names = LogNames::new();
            let types = [None, Some("a"), Some("")];
            // waiting events, the oldest first
            let mut waiting: VecDeque<(u32, String, Option<&str>)> = VecDeque::new();
            for (name, event_type) in came.into_iter().map(|name| (format!("t/{}", name / 3), types[name as usize % 3])) {
                if names.is_full() {
                    names.forget_but(&waiting.iter().map(|(number, ..)| *number).collect());
                }
                waiting.push_back((names.number(&name, event_type), name, event_type));
                if waiting.len() > pending {
                    waiting.pop_front();
                }
                for (number, name, event_type) in &waiting {
                    prop_assert_eq!(names.name(*number).map(|it| &**it), Some(&**name));
                    prop_assert_eq!(names.event_type(*number).map(|it| &**it), *event_type);
                }
                let numbers: HashMap<_, _> = waiting.iter().map(|(number, name, kind)| ((name, kind), number)).collect();
                prop_assert!(waiting.iter().all(|(number, name, kind)| numbers[&(name, kind)] == number));
                let most = MIN_KEPT_BYTES.max(2 * pending * (ENTRY + 8)) + ENTRY + 8;
                prop_assert!(names.bytes <= most && names.names.len() * ENTRY <= names.bytes);
                let typed: usize = names.typed.values().map(HashMap::len).sum();
                prop_assert_eq!(names.names.len(), names.numbers.len() + typed);
            }
        }
    }

    const READER: ClientId = ClientId(1);
    const WRITER: ClientId = ClientId(2);

    fn send(broker: &mut Broker, now: Instant, client: ClientId, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let _ = broker.received(now, client, &bytes, None);
    }

    /// Takes the reader's frames: the topics of events, with the numbers of the deliveries.
    fn receive(broker: &mut Broker, now: Instant, names: &mut TopicNames) -> Vec<(String, u64)> {
        let mut came = Vec::new();
        loop {
            while let Some(task) = broker.task() {
                let Task::Answer { client: READER, head, .. } = task else { continue };
                match Frame::read(&head) {
                    Ok(Frame::Topic { number, name }) => names.learn(number, name),
                    Ok(Frame::Deliver { head, .. }) => {
                        let name = names.name(head.topic).expect("it was announced").to_string();
                        came.push((name, head.delivery));
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
    fn a_log_of_ever_new_topics_and_writers_is_delivered_by_name_and_few_names_are_kept() {
        let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
        let directory = tempfile::tempdir().expect("a scratch directory");
        let log = EventLog::open(directory.path(), LogBounds::default()).expect("it is empty");
        let mut broker = Broker::new(tree.expect("it is sound"), Limits::default());
        broker = broker.with_log(log, Duration::ZERO, Vec::new());
        for client in [READER, WRITER] {
            assert!(broker.connected(Instant::from_nanos(1), client, TransportPeer::User(0)));
            send(&mut broker, Instant::from_nanos(1), client, &Frame::Hello(Greeting::default()));
        }
        let spec = SubscriptionSpec {
            resume: Some(ResumeSpec { name: "reader".to_owned(), after: Some(0), ..ResumeSpec::default() }),
            again: Some(AgainSpec { after_ns: 1_000_000, attempts: u32::MAX, window: 1000 }),
            ..SubscriptionSpec::new("#")
        };
        send(
            &mut broker,
            Instant::from_nanos(1),
            READER,
            &Frame::Subscribe { number: 1, spec: Box::new(spec) },
        );
        let (mut names, mut first) = (TopicNames::default(), None);
        for number in 1..=500_u32 {
            let (now, topic) = (Instant::from_nanos(u64::from(number)), format!("t/{number}"));
            let (durability, writer) = (Durability::Written, Some(format!("w{number}")));
            let spec = Advertisement { durability, writer, ..Advertisement::new(&topic) };
            send(&mut broker, now, WRITER, &Frame::Advertise { number, spec });
            let head = PublishHead { topic: number, ..PublishHead::default() };
            send(&mut broker, now, WRITER, &Frame::Publish { head, payload: b"x" });
            send(&mut broker, now, WRITER, &Frame::Close { number });
            for (name, delivery) in receive(&mut broker, now, &mut names) {
                assert_eq!(name, topic);
                // the first one is not acknowledged, and its name therefore needed
                if first.is_none() {
                    first = Some(delivery);
                } else {
                    send(&mut broker, now, READER, &Frame::Acknowledge { consumer: 1, delivery });
                }
            }
            let kept = broker.durable.as_ref().map_or(0, |durable| durable.names.names.len());
            assert!((1..=MIN_KEPT_BYTES / ENTRY + 2).contains(&kept), "{kept} names");
        }
        let again = receive(&mut broker, Instant::from_millis(10), &mut names);
        assert_eq!(again.first().map(|(name, _)| &**name), Some("t/1"));
    }
}
