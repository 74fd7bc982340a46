//! The orders about direct rings that a broker without sockets gives: which program gets which order, and in
//! which sequence.

use unisono_broker::log::{EventLog, LogBounds};
use unisono_broker::{Broker, ClientId, Limits, Next, Task};
use unisono_events_client::{
    Advertisement, DirectCounts, Duration, Greeting, Instant, NoticeText, SubscriptionSpec,
};
use unisono_events_wire::frame::PublishHead;
use unisono_events_wire::transport::TransportPeer;
use unisono_events_wire::{Frame, MAX_OF_REPORT, RefusalCounts, RingOrder, RingReport};
use unisono_fairqueue::{ClassSpec, Hierarchy};

const SUPPLIER: ClientId = ClientId(1);
const CONSUMER: ClientId = ClientId(2);
const OTHER: ClientId = ClientId(3);

/// A task of the broker, in a form that can be compared.
#[derive(Clone, PartialEq, Debug)]
enum Did {
    Order(ClientId, u32, RingOrder),
    Introduce(ClientId, u32),
    Pass(ClientId, u32),
    Accepted(ClientId),
    Event(ClientId, u64),
    Forget(u32),
    Gap(ClientId, u64, u64),
}

struct Bench {
    broker: Broker,
}

impl Bench {
    fn new() -> Self {
        Self::with(|broker| broker)
    }

    fn with(change: impl FnOnce(Broker) -> Broker) -> Self {
        let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
        let mut it = Self { broker: change(Broker::new(tree.expect("it is sound"), Limits::default())) };
        for client in [SUPPLIER, CONSUMER, OTHER] {
            assert!(it.broker.connected(Instant::from_nanos(1), client, TransportPeer::User(0)));
            if client != OTHER {
                it.broker.passes_descriptors(client);
            }
            it.hear(client, &Frame::Hello(Greeting { rings: true, ..Greeting::default() }));
        }
        it.hear(SUPPLIER, &Frame::Advertise { number: 7, spec: Advertisement::new("t") });
        it.did();
        it
    }

    fn hear(&mut self, client: ClientId, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let _ = self.broker.received(Instant::from_nanos(1), client, &bytes, None);
    }

    fn subscribe(&mut self, client: ClientId) {
        let spec = SubscriptionSpec::new("t");
        self.hear(client, &Frame::Subscribe { number: 8, spec: Box::new(spec) });
    }

    fn publish(&mut self) {
        let head = PublishHead { topic: 7, ..PublishHead::default() };
        self.hear(SUPPLIER, &Frame::Publish { head, payload: b"x" });
    }

    fn report(&mut self, client: ClientId, number: u32, report: RingReport) {
        self.hear(client, &Frame::RingReport { number, report });
    }

    /// Takes the broker's tasks, and returns those that a [`Did`] can represent, with events that are among
    /// them.
    fn did(&mut self) -> Vec<Did> {
        let mut did = Vec::new();
        while let Some(task) = self.broker.task() {
            match task {
                Task::Introduce { client, link, .. } => did.push(Did::Introduce(client, link)),
                Task::Pass { client, link, .. } => did.push(Did::Pass(client, link)),
                Task::Forget { link } => did.push(Did::Forget(link)),
                Task::Order { client, head } => match Frame::read(&head).expect("a frame") {
                    Frame::Ring { number, order } => did.push(Did::Order(client, number, order)),
                    other => panic!("{other:?} is announced as an order"),
                },
                Task::Answer { client, head, .. } => match Frame::read(&head).expect("a frame") {
                    Frame::Ring { order: RingOrder::Recall {} | RingOrder::Supply { .. }, .. } => {
                        panic!("an order that is not announced")
                    }
                    Frame::Ring { number, order } => did.push(Did::Order(client, number, order)),
                    Frame::Accepted { .. } => did.push(Did::Accepted(client)),
                    Frame::Notice { notice: NoticeText::Gap { first, last, .. }, .. } => {
                        did.push(Did::Gap(client, first, last));
                    }
                    Frame::Deliver { head, .. } => did.push(Did::Event(client, head.sequence)),
                    _ => {}
                },
                _ => {}
            }
        }
        did
    }

    fn deliver(&mut self) -> Vec<Did> {
        while matches!(self.broker.next(Instant::from_nanos(1)), Next::Delivered) {}
        self.did()
    }
}

#[test]
fn a_supplier_hears_of_a_consumer_and_is_recalled_before_the_consumer_is_accepted() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    assert_eq!(it.did(), [Did::Introduce(SUPPLIER, 1), Did::Accepted(CONSUMER)]);
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
    let begin = Did::Order(CONSUMER, 8, RingOrder::Begin { link: 1 });
    let numbered = Did::Order(SUPPLIER, 7, RingOrder::Numbered { last: 0 });
    assert_eq!(it.did(), [numbered, Did::Pass(CONSUMER, 1), begin]);
    // a program that takes no descriptors subscribes to the topic
    it.subscribe(OTHER);
    assert_eq!(it.did(), [Did::Order(SUPPLIER, 7, RingOrder::Recall {}), Did::Accepted(OTHER)]);
    it.report(SUPPLIER, 7, RingReport::Left { events: 10, for_good: false, recalled: false });
    it.publish();
    let delivered = it.deliver();
    assert!(delivered.contains(&Did::Event(CONSUMER, 11)) && delivered.contains(&Did::Event(OTHER, 11)));
    // `OTHER` unsubscribes, and the supplier is introduced anew
    it.hear(OTHER, &Frame::Unsubscribe { number: 8 });
    assert_eq!(it.did(), [Did::Introduce(SUPPLIER, 2)]);
}

#[test]
fn a_supplier_of_a_ring_cannot_report_that_it_reaches_nobody() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    it.did();
    it.report(SUPPLIER, 7, RingReport::Unreached { link: 1, why: "no".to_owned() });
    // neither is another ring introduced, nor does the first one's socket lose its owner
    assert_eq!(it.did(), []);
    it.hear(CONSUMER, &Frame::Unsubscribe { number: 8 });
    assert!(it.did().contains(&Did::Forget(1)));
}

#[test]
fn refusals_that_a_supplier_reports_are_counted_by_their_reason() {
    let mut it = Bench::new();
    for (deadline, full) in [(3, 0), (u64::MAX, 2)] {
        it.report(SUPPLIER, 7, RingReport::Refused { counts: RefusalCounts { deadline, full } });
    }
    let told = it.broker.statistics(Instant::from_nanos(1));
    assert_eq!((told.refusals["deadline"], told.refusals["full"]), (3 + MAX_OF_REPORT, 2));
    assert_eq!((told.refused, told.sent_away), (5 + MAX_OF_REPORT, 0));
    // a number that is no topic of the program
    it.report(SUPPLIER, 9, RingReport::Refused { counts: RefusalCounts::default() });
    assert_eq!(it.broker.statistics(Instant::from_nanos(1)).sent_away, 1);
}

#[test]
fn a_recall_overtakes_a_supplier_that_has_not_answered_its_introduction() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    it.subscribe(OTHER);
    let recall = Did::Order(SUPPLIER, 7, RingOrder::Recall {});
    let did = it.did();
    // both subscribed before the broker arranged its links, so the supplier is not introduced
    assert_eq!(did, [Did::Accepted(CONSUMER), Did::Accepted(OTHER)]);
    it.hear(OTHER, &Frame::Unsubscribe { number: 8 });
    assert_eq!(it.did(), [Did::Introduce(SUPPLIER, 1)]);
    it.subscribe(OTHER);
    assert_eq!(it.did(), [recall, Did::Accepted(OTHER)]);
    // the supplier's events up to the recall are in the ring, which the consumer has to read
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
    assert!(it.did().contains(&Did::Pass(CONSUMER, 1)));
    it.report(SUPPLIER, 7, RingReport::Left { events: 2, for_good: false, recalled: false });
    it.publish();
    assert!(it.deliver().contains(&Did::Event(OTHER, 3)));
}

#[test]
fn a_ring_begins_when_no_event_from_the_broker_waits_before_it() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    it.publish();
    it.publish();
    it.did();
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
    let numbered = Did::Order(SUPPLIER, 7, RingOrder::Numbered { last: 2 });
    assert_eq!(it.did(), [numbered, Did::Pass(CONSUMER, 1)]);
    let begin = Did::Order(CONSUMER, 8, RingOrder::Begin { link: 1 });
    assert_eq!(it.deliver(), [Did::Event(CONSUMER, 1), Did::Event(CONSUMER, 2), begin]);
}

#[test]
fn only_the_consumer_of_a_link_can_say_that_it_is_broken_and_a_link_that_fails_is_not_tried_again() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
    it.did();
    it.report(SUPPLIER, 8, RingReport::Broken { link: 1, taken: 0 });
    it.report(CONSUMER, 8, RingReport::Broken { link: 5, taken: 0 });
    assert_eq!(it.did(), []);
    it.report(CONSUMER, 8, RingReport::Broken { link: 1, taken: 0 });
    assert_eq!(it.did(), [Did::Order(SUPPLIER, 7, RingOrder::Recall {})]);
    it.report(SUPPLIER, 7, RingReport::Left { events: 0, for_good: false, recalled: false });
    assert_eq!(it.did(), [Did::Forget(1)]);
    it.publish();
    assert_eq!(it.deliver(), [Did::Event(CONSUMER, 1)]);
}

#[test]
fn a_program_counts_for_its_own_consumers_and_for_topics_that_are_there() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    let counts = DirectCounts { delivered: 3, dropped_full: 2, dropped_late: 1, missed: 1 };
    // the consumer was not told yet to read a ring of the topic
    it.report(CONSUMER, 8, RingReport::Counted { topic: 0, counts });
    assert_eq!(it.broker.statistics(Instant::from_nanos(2)).consumers.remove(0).matched, 0);
    it.did();
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
    it.did();
    for topic in 0..100 {
        it.report(CONSUMER, 8, RingReport::Counted { topic, counts });
    }
    let counted = it.broker.statistics(Instant::from_nanos(2)).consumers.remove(0);
    assert_eq!((counted.matched, counted.delivered, counted.dropped_full), (6, 3, 2));
    assert_eq!(counted.missed_by_topic.into_iter().collect::<Vec<_>>(), [("t".to_owned(), 1)]);
    // a report about a consumer that the supplier's program does not have
    it.report(SUPPLIER, 8, RingReport::Counted { topic: 0, counts });
    assert_eq!(it.broker.statistics(Instant::from_nanos(2)).sent_away, 1);
}

#[test]
fn counts_beyond_all_measure_end_nothing_and_hide_no_other_topic() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    it.did();
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
    it.did();
    let all = DirectCounts {
        delivered: u64::MAX,
        dropped_full: u64::MAX,
        dropped_late: u64::MAX,
        missed: u64::MAX,
    };
    for report in 0..300 {
        it.report(CONSUMER, 8, RingReport::Counted { topic: report % 100, counts: all });
    }
    let statistics = it.broker.statistics(Instant::from_nanos(2));
    assert_eq!(statistics.consumers[0].delivered, 3 << 32);
    assert_eq!(statistics.missed_by_topic["t"], 3 << 32);
}

#[test]
fn a_ring_that_was_begun_after_the_last_one_was_left_for_good_is_recalled() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    it.did();
    it.report(SUPPLIER, 7, RingReport::Left { events: 0, for_good: true, recalled: false });
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
    assert_eq!(it.did(), [Did::Order(SUPPLIER, 7, RingOrder::Recall {}), Did::Forget(1)]);
    it.publish();
    assert_eq!(it.deliver(), [Did::Event(CONSUMER, 1)]);
}

#[test]
fn a_consumer_whose_end_cannot_be_passed_on_is_told_what_it_lost() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    it.publish();
    it.deliver();
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
    assert!(it.did().contains(&Did::Pass(CONSUMER, 1)));
    it.broker.link_failed(1);
    assert_eq!(it.did(), [Did::Order(SUPPLIER, 7, RingOrder::Recall {})]);
    it.report(SUPPLIER, 7, RingReport::Left { events: 3, for_good: false, recalled: false });
    assert_eq!(it.did(), [Did::Forget(1), Did::Gap(CONSUMER, 2, 4)]);
    it.publish();
    assert_eq!(it.deliver(), [Did::Event(CONSUMER, 5)]);
}

#[test]
fn a_consumer_that_can_read_no_more_of_a_ring_is_told_how_many_of_its_events_it_lost() {
    for (taken, events) in [(0, 3), (2, 3), (3, 3), (9, 3)] {
        let mut it = Bench::new();
        it.subscribe(CONSUMER);
        it.publish();
        it.deliver();
        it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
        it.did();
        it.report(CONSUMER, 8, RingReport::Broken { link: 1, taken });
        // the second report has no effect
        it.report(CONSUMER, 8, RingReport::Broken { link: 1, taken: 0 });
        assert_eq!(it.did(), [Did::Order(SUPPLIER, 7, RingOrder::Recall {})]);
        it.report(SUPPLIER, 7, RingReport::Left { events, for_good: false, recalled: false });
        let mut expected = vec![Did::Forget(1)];
        if taken < events {
            expected.push(Did::Gap(CONSUMER, 2 + taken, 1 + events));
        }
        assert_eq!(it.did(), expected);
        it.publish();
        assert_eq!(it.deliver(), [Did::Event(CONSUMER, 2 + events)]);
        let counted = it.broker.statistics(Instant::from_nanos(2)).consumers.remove(0);
        assert_eq!(counted.dropped_full, events.saturating_sub(taken));
    }
}

#[test]
fn a_supplier_that_only_listens_is_told_of_so_many_consumers_until_it_uses_their_links() {
    let mut it = Bench::new();
    for number in 100..200 {
        let spec = Advertisement::new(&format!("idle/{number}"));
        it.hear(SUPPLIER, &Frame::Advertise { number, spec });
    }
    let spec = SubscriptionSpec::new("#");
    it.hear(CONSUMER, &Frame::Subscribe { number: 8, spec: Box::new(spec) });
    let introduced = |did: &[Did]| did.iter().filter(|did| matches!(did, Did::Introduce(..))).count();
    let did = it.did();
    assert_eq!((introduced(&did), did.last()), (64, Some(&Did::Accepted(CONSUMER))));
    // the supplier uses two of the links, which makes room for two other topics
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
    it.report(SUPPLIER, 100, RingReport::Supplies { links: vec![2] });
    assert_eq!(introduced(&it.did()), 2);
    // the events of the other topics come from the broker
    let head = PublishHead { topic: 199, ..PublishHead::default() };
    it.hear(SUPPLIER, &Frame::Publish { head, payload: b"x" });
    assert!(it.deliver().contains(&Did::Event(CONSUMER, 1)));
    // a topic that ends makes room, too
    it.hear(SUPPLIER, &Frame::Close { number: 110 });
    assert_eq!(introduced(&it.did()), 1);
}

#[test]
fn programs_have_so_many_links_and_their_other_topics_go_through_the_broker() {
    let mut it = Bench::new();
    let spec = SubscriptionSpec::new("#");
    it.hear(CONSUMER, &Frame::Subscribe { number: 8, spec: Box::new(spec) });
    let mut links = 0;
    for number in 100..250 {
        it.hear(
            SUPPLIER,
            &Frame::Advertise { number, spec: Advertisement::new(&format!("more/{number}")) },
        );
        for did in it.did() {
            let Did::Introduce(_, link) = did else { continue };
            links += 1;
            let of = if links == 1 { 7 } else { number };
            it.report(SUPPLIER, of, RingReport::Supplies { links: vec![link] });
        }
    }
    assert_eq!(links, 128);
    // a topic that ends makes room for another one
    it.hear(SUPPLIER, &Frame::Close { number: 100 });
    let did = it.did();
    assert!(matches!(did[..], [Did::Introduce(SUPPLIER, _), ..]), "{did:?}");
}

#[test]
fn events_that_the_broker_keeps_in_its_log_come_by_the_broker() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let bounds = LogBounds { bytes: 1 << 20, age: Duration::MAX };
    let log = EventLog::open(&directory.path().join("log"), bounds).expect("the log opens");
    let kept = vec!["t".parse().expect("a pattern")];
    let mut it = Bench::with(|broker| broker.with_log(log, Duration::ZERO, kept));
    it.subscribe(CONSUMER);
    assert_eq!(it.did(), [Did::Accepted(CONSUMER)]);
}
