//! No client slows others by subscriptions, topics or requests: the steps of each call are counted and
//! bounded.

use std::path::Path;
use unisono_broker::log::{EventLog, LogBounds};
use unisono_broker::{Broker, ClientId, Limits, Next, Permissions, Received, Task};
use unisono_events_client::{
    Advertisement, Durability, Duration, Greeting, Instant, InterestSpec, ResumeSpec, SubscriptionSpec,
};
use unisono_events_wire::Frame;
use unisono_events_wire::frame::PublishHead;
use unisono_events_wire::transport::TransportPeer;
use unisono_fairqueue::{ClassSpec, Hierarchy};

const OTHER: ClientId = ClientId(1);
/// The first client of the tenant that tries to starve the others.
const EVIL: u32 = 100;
const NOW: Instant = Instant::from_nanos(1);
/// Steps that one call may take.
const MAX_WORK: usize = 8192;

struct Bench(Broker);

impl Bench {
    fn new(change: impl FnOnce(Broker) -> Broker) -> Self {
        let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
        Self(change(Broker::new(tree.expect("a default class"), Limits::default())))
    }

    fn connect(&mut self, client: ClientId, user: u32) {
        assert!(self.0.connected(NOW, client, TransportPeer::User(user)));
        self.0.passes_descriptors(client);
        self.say(client, &Frame::Hello(Greeting { rings: true, ..Greeting::default() }));
    }

    /// Sends a frame. Returns the number of steps that it took, and the answer.
    fn say(&mut self, client: ClientId, frame: &Frame<'_>) -> (usize, String) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.0.take_work();
        assert_eq!(self.0.received(NOW, client, &bytes, None), Received::Done);
        let mut said = String::new();
        while let Some(task) = self.0.task() {
            if let Task::Answer { client: to, head, .. } = task
                && to == client
            {
                said = format!("{:?}", Frame::read(&head).expect("a frame"));
            }
        }
        (self.0.take_work(), said)
    }

    fn subscribe(&mut self, client: ClientId, number: u32, spec: SubscriptionSpec) -> (usize, String) {
        self.say(client, &Frame::Subscribe { number, spec: Box::new(spec) })
    }

    fn advertise(&mut self, client: ClientId, number: u32, topic: &str) -> usize {
        let (work, said) = self.say(client, &Frame::Advertise { number, spec: Advertisement::new(topic) });
        assert!(said.starts_with("Accepted"), "{said}");
        work
    }

    fn publish(&mut self, client: ClientId, topic: u32) -> usize {
        let head = PublishHead { topic, ..PublishHead::default() };
        self.say(client, &Frame::Publish { head, payload: b"x" }).0
    }

    /// Returns the number of steps of the longest call until all is delivered, and the number of calls.
    fn deliver(&mut self) -> (usize, usize) {
        let (mut longest, mut calls) = (0, 0);
        loop {
            let next = self.0.next(NOW);
            while self.0.task().is_some() {}
            longest = longest.max(self.0.take_work());
            calls += 1;
            match next {
                Next::Delivered => {}
                Next::Wait(at) if at <= NOW => {}
                _ => return (longest, calls),
            }
        }
    }
}

/// Makes a consumer with a small queue.
fn small(topics: &str) -> SubscriptionSpec {
    SubscriptionSpec { queue_events: 4, queue_bytes: 4096, ..SubscriptionSpec::new(topics) }
}

/// Makes a subscription with a thousand equal patterns.
fn equal(topics: &str) -> SubscriptionSpec {
    let interest = InterestSpec { topics: topics.to_owned(), ..InterestSpec::default() };
    SubscriptionSpec { interests: vec![interest; 1024], ..SubscriptionSpec::default() }
}

/// Connects four clients of one tenant with a thousand equal patterns each, as many as it may have.
fn crowd(bench: &mut Bench, topics: &str) {
    for client in (EVIL..EVIL + 4).map(ClientId) {
        bench.connect(client, 7);
        let (_, said) = bench.subscribe(client, 1, equal(topics));
        assert!(said.starts_with("Accepted"), "{said}");
    }
}

#[test]
fn equal_patterns_cost_a_publisher_of_another_tenant_as_much_as_one() {
    let mut bench = Bench::new(|broker| broker);
    crowd(&mut bench, "m/+");
    bench.connect(OTHER, 8);
    bench.advertise(OTHER, 1, "m/1");
    let work = bench.publish(OTHER, 1);
    assert!(work < 64, "{work} steps for an event");
}

#[test]
fn a_tenant_may_not_have_more_patterns_with_wildcards_than_may_all_match_one_topic() {
    let mut bench = Bench::new(|broker| broker);
    let mut refused = Vec::new();
    for client in (EVIL..EVIL + 6).map(ClientId) {
        bench.connect(client, 7);
        let (_, said) = bench.subscribe(client, 1, equal("m/+"));
        if !said.starts_with("Accepted") {
            refused.push(said);
        }
    }
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].contains("4096 subscriptions with wildcards"), "{refused:?}");
    bench.connect(OTHER, 8);
    assert!(
        bench.subscribe(OTHER, 1, equal("m/+")).1.starts_with("Accepted"),
        "another tenant has its own"
    );
}

#[test]
fn a_client_with_a_thousand_topics_goes_in_pieces() {
    let mut bench = Bench::new(|broker| broker);
    for client in (EVIL..EVIL + 31).map(ClientId) {
        bench.connect(client, 7);
        let interests = equal("m/+").interests[..128].to_vec();
        bench.subscribe(client, 1, SubscriptionSpec { interests, ..SubscriptionSpec::default() });
    }
    let client = ClientId(EVIL + 31);
    bench.connect(client, 7);
    for number in 0..1024 {
        bench.advertise(client, number, &format!("m/{number}"));
    }
    bench.deliver();
    bench.0.gone(NOW, client);
    let work = bench.0.take_work();
    assert!((1024..MAX_WORK).contains(&work), "{work} steps of its end");
    let (longest, calls) = bench.deliver();
    assert!(longest < MAX_WORK && calls > 31, "{longest} steps in one of {calls} calls");
}

#[test]
fn an_advertisement_counts_the_consumers_that_it_is_compared_with() {
    let mut bench = Bench::new(|broker| broker);
    bench.connect(ClientId(EVIL), 7);
    for number in 0..500 {
        let (_, said) = bench.subscribe(ClientId(EVIL), number, small("m/+"));
        assert!(said.starts_with("Accepted"), "{said}");
    }
    let work = bench.advertise(ClientId(EVIL), 1, "m/1");
    assert!(work >= 500, "{work} steps");
    let (work, _) = bench.say(ClientId(EVIL), &Frame::Close { number: 1 });
    assert!(work >= 500, "{work} steps");
}

#[test]
fn a_request_for_statistics_counts_consumers_that_the_client_does_not_see() {
    let rules = "[[allow]]\nwho = [\"unix:7\", \"unix:8\"]\nsubscribe = [\"#\"]\npublish = [\"#\"]\n";
    let permissions = Permissions::parse(rules, &|_| None).expect("rules");
    let mut bench = Bench::new(|broker| broker.with_permissions(permissions));
    bench.connect(ClientId(EVIL), 7);
    for number in 0..500 {
        let (_, said) = bench.subscribe(ClientId(EVIL), number, small("m/1"));
        assert!(said.starts_with("Accepted"), "{said}");
    }
    bench.connect(OTHER, 8);
    let (work, said) = bench.say(OTHER, &Frame::Ask);
    assert!(work >= 500 && said.len() < 8192, "{work} steps: {said}");
}

#[test]
fn a_subscription_is_compared_with_the_ring_topics_alone_that_it_asks_for() {
    let mut bench = Bench::new(|broker| broker);
    crowd(&mut bench, "r/#");
    let client = ClientId(EVIL);
    for number in 0..500 {
        bench.advertise(client, 10 + number, &format!("r/{number}"));
    }
    bench.connect(OTHER, 8);
    for (number, topics) in (2..).zip(["mine", "mine/+", "mine/#"]) {
        let (work, said) = bench.subscribe(OTHER, number, SubscriptionSpec::new(topics));
        assert!(said.starts_with("Accepted") && work < 50, "`{topics}`: {work} steps, {said}");
    }
    let (work, _) = bench.subscribe(OTHER, 1, SubscriptionSpec::new("r/#"));
    assert!((500..MAX_WORK).contains(&work), "{work} steps: each topic that it asks for");
}

fn with_log(directory: &Path) -> impl FnOnce(Broker) -> Broker {
    let bounds = LogBounds { bytes: 16 << 20, age: Duration::MAX };
    let log = EventLog::open(&directory.join("log"), bounds).expect("the log opens");
    |broker| broker.with_log(log, Duration::ZERO, Vec::new())
}

fn resuming(name: &str, interests: Vec<InterestSpec>) -> SubscriptionSpec {
    let resume = Some(ResumeSpec { name: name.to_owned(), after: Some(0), forget: false });
    SubscriptionSpec { interests, resume, ..SubscriptionSpec::default() }
}

#[test]
fn filters_of_consumers_that_resume_count_against_the_operations_of_their_tenant() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = Bench::new(with_log(directory.path()));
    bench.connect(ClientId(EVIL), 7);
    let filter = (0..500).map(|number| format!("x > {number}")).collect::<Vec<_>>().join(" or ");
    let interest = |at: usize| InterestSpec {
        topics: "m".to_owned(),
        filter: Some(format!("{filter} or y > {at}")),
        ..InterestSpec::default()
    };
    let mut said = Vec::new();
    for number in 0..8 {
        let interests = (0..20).map(interest).collect();
        said.push(bench.subscribe(ClientId(EVIL), number, resuming(&number.to_string(), interests)).1);
    }
    let (taken, refused): (Vec<_>, Vec<_>) = said.iter().partition(|said| said.starts_with("Accepted"));
    assert!((1..8).contains(&taken.len()), "{said:?}");
    assert!(refused.iter().all(|said| said.contains("32768 operations in filters")), "{refused:?}");
    // the operations are returned when their subscriptions end
    for number in 0..taken.len() as u32 {
        bench.say(ClientId(EVIL), &Frame::Unsubscribe { number });
    }
    let again = bench.subscribe(ClientId(EVIL), 9, resuming("9", (0..20).map(interest).collect())).1;
    assert!(again.starts_with("Accepted"), "{again}");
}

#[test]
fn a_long_log_without_an_event_for_its_reader_is_read_in_pieces() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = Bench::new(with_log(directory.path()));
    bench.connect(OTHER, 8);
    let spec = Advertisement { durability: Durability::Written, ..Advertisement::new("m") };
    bench.say(OTHER, &Frame::Advertise { number: 1, spec });
    for _ in 0..10_000 {
        bench.publish(OTHER, 1);
    }
    bench.connect(ClientId(EVIL), 7);
    let interest = |topics: &str| InterestSpec { topics: topics.to_owned(), ..InterestSpec::default() };
    let (_, said) = bench.subscribe(ClientId(EVIL), 1, resuming("one", vec![interest("elsewhere")]));
    assert!(said.starts_with("Accepted"), "{said}");
    let (_, few) = bench.deliver();
    assert!(few >= 3, "{few} calls for 10,000 events of the log");
    // many interests count as more
    let many = (0..100).map(|number| interest(&format!("elsewhere/{number}"))).collect();
    bench.subscribe(ClientId(EVIL), 2, resuming("many", many));
    let (_, calls) = bench.deliver();
    assert!(calls > 4 * few, "{calls} calls, and {few} with one interest");
}
