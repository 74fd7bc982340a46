//! The orders about direct links over TCP that a broker without sockets gives, by its own clock.

use unisono_broker::{
    Broker, BrokerSettings, ClientId, Limits, Next, Permissions, ReloadAsker, ReloadedFiles, Task,
};
use unisono_events_client::{Advertisement, Duration, Greeting, Instant, NoticeText, SubscriptionSpec};
use unisono_events_wire::frame::PublishHead;
use unisono_events_wire::transport::TransportPeer;
use unisono_events_wire::{Frame, RingOrder, RingReport};
use unisono_fairqueue::{ClassSpec, Hierarchy};

const SUPPLIER: ClientId = ClientId(1);
const CONSUMER: ClientId = ClientId(2);
const OTHER: ClientId = ClientId(3);

/// A task of the broker, in a form that can be compared.
#[derive(Clone, PartialEq, Debug)]
enum Did {
    Listen(ClientId, u32),
    Connect(ClientId, u32, String),
    Order(ClientId, RingOrder),
    Accepted(ClientId),
    Event(ClientId, u64),
    Gap(ClientId, u64, u64),
    Note,
}

use Did::{Accepted, Connect, Event, Gap, Listen, Note, Order};

struct Bench {
    broker: Broker,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self::at("192.0.2.1", "192.0.2.2")
    }

    fn at(supplier: &str, consumer: &str) -> Self {
        let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
        let broker = Broker::new(tree.expect("it is sound"), Limits::default()).with_direct_tcp();
        let mut it = Self { broker, now: Instant::from_nanos(1) };
        for (client, address) in [(SUPPLIER, supplier), (CONSUMER, consumer), (OTHER, "192.0.2.3")] {
            let peer = TransportPeer::Address(address.parse().expect("an address"));
            assert!(it.broker.connected(it.now, client, peer));
            it.hear(client, &Frame::Hello(Greeting::default()));
            it.report(client, 0, RingReport::TakesLinks {});
        }
        it.hear(SUPPLIER, &Frame::Advertise { number: 7, spec: Advertisement::new("t") });
        it.did();
        it
    }

    /// Makes a link in use.
    fn linked() -> Self {
        let mut it = Self::new();
        it.subscribe(CONSUMER);
        it.did();
        it.report(CONSUMER, 8, RingReport::Listens { link: 1, port: 99 });
        it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
        it.did();
        assert_eq!(it.broker.statistics(it.now).direct, 1);
        it
    }

    fn hear(&mut self, client: ClientId, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let _ = self.broker.received(self.now, client, &bytes, None);
    }

    fn subscribe(&mut self, client: ClientId) {
        self.hear(client, &Frame::Subscribe { number: 8, spec: Box::new(SubscriptionSpec::new("t")) });
    }

    fn publish(&mut self) {
        let head = PublishHead { topic: 7, ..PublishHead::default() };
        self.hear(SUPPLIER, &Frame::Publish { head, payload: b"x" });
    }

    fn report(&mut self, client: ClientId, number: u32, report: RingReport) {
        self.hear(client, &Frame::RingReport { number, report });
    }

    fn left(&mut self, events: u64, recalled: bool) {
        self.report(SUPPLIER, 7, RingReport::Left { events, for_good: false, recalled });
    }

    /// Runs the broker until it waits. Returns what it did.
    fn did(&mut self) -> Vec<Did> {
        while matches!(self.broker.next(self.now), Next::Delivered) {}
        let mut did = Vec::new();
        while let Some(task) = self.broker.task() {
            match task {
                Task::Introduce { .. } | Task::Pass { .. } => panic!("a descriptor for {task:?}"),
                Task::Order { client, head } | Task::Answer { client, head, .. } => {
                    did.extend(match Frame::read(&head).expect("a frame") {
                        Frame::Ring { order: RingOrder::Listen { link, .. }, .. } => {
                            Some(Listen(client, link))
                        }
                        Frame::Ring { order: RingOrder::Connect { link, address, .. }, .. } => {
                            Some(Connect(client, link, address.to_string()))
                        }
                        Frame::Ring { order, .. } => Some(Order(client, order)),
                        Frame::Accepted { .. } => Some(Accepted(client)),
                        Frame::Notice { notice: NoticeText::Gap { first, last, .. }, .. } => {
                            Some(Gap(client, first, last))
                        }
                        Frame::Deliver { head, .. } => Some(Event(client, head.sequence)),
                        _ => None,
                    });
                }
                Task::Note { .. } => did.push(Note),
                _ => {}
            }
        }
        did
    }
}

#[test]
fn a_consumer_listens_then_the_supplier_connects_and_the_consumer_reads_after_the_brokers_events() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    it.publish();
    assert_eq!(it.did(), [Listen(CONSUMER, 1), Accepted(CONSUMER), Event(CONSUMER, 1)]);
    // nobody but the consumer says where it listens
    it.report(OTHER, 8, RingReport::Listens { link: 1, port: 98 });
    it.report(CONSUMER, 9, RingReport::Listens { link: 1, port: 98 });
    assert_eq!(it.did(), []);
    it.report(CONSUMER, 8, RingReport::Listens { link: 1, port: 99 });
    assert_eq!(it.did(), [Connect(SUPPLIER, 1, "192.0.2.2:99".to_owned())]);
    it.publish();
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![1] });
    let did = it.did();
    assert_eq!(did[0], Order(SUPPLIER, RingOrder::Numbered { last: 2 }));
    assert!(matches!(did[1], Order(CONSUMER, RingOrder::Read { link: 1, last: 2, .. })), "{did:?}");
    assert_eq!(did[2..], [Event(CONSUMER, 2), Order(CONSUMER, RingOrder::Begin { link: 1 })]);
}

#[test]
fn another_consumer_is_accepted_once_the_supplier_has_the_recall_or_has_left() {
    for leaves in [false, true] {
        let mut it = Bench::linked();
        it.subscribe(OTHER);
        assert_eq!(it.did(), [Order(SUPPLIER, RingOrder::Recall {})]);
        assert_eq!(it.broker.awaited_suppliers(), [SUPPLIER]);
        // a subscription to another topic does not wait
        it.hear(OTHER, &Frame::Subscribe { number: 9, spec: Box::new(SubscriptionSpec::new("u")) });
        assert_eq!(it.did(), [Accepted(OTHER)]);
        if leaves {
            it.left(3, true);
        } else {
            it.broker.frames_arrived(SUPPLIER);
        }
        assert_eq!(it.did(), [Accepted(OTHER)]);
        assert_eq!(it.broker.awaited_suppliers(), []);
        if !leaves {
            it.left(3, true);
        }
        it.publish();
        let did = it.did();
        assert!(did.contains(&Event(CONSUMER, 4)) && did.contains(&Event(OTHER, 4)), "{did:?}");
        // two consumers need the broker; the supplier is introduced to the last one again
        it.hear(CONSUMER, &Frame::Unsubscribe { number: 8 });
        assert_eq!(it.did(), [Listen(OTHER, 2)]);
    }
}

#[test]
fn a_supplier_that_does_not_leave_in_time_loses_its_link_at_the_consumers_end() {
    let mut it = Bench::linked();
    it.subscribe(OTHER);
    it.did();
    it.now += Duration::from_millis(999);
    assert_eq!(it.did(), []);
    it.now += Duration::from_millis(1);
    assert_eq!(it.did(), [Order(CONSUMER, RingOrder::Cut { link: 1 }), Accepted(OTHER)]);
    it.report(CONSUMER, 8, RingReport::Ended { link: 1, taken: 4, broken: false });
    assert_eq!(it.did(), []);
    // what it published meanwhile is reported as lost
    it.left(6, true);
    assert_eq!(it.did(), [Gap(CONSUMER, 5, 6)]);
}

#[test]
fn a_supplier_that_may_have_no_link_any_more_loses_it_after_half_a_second() {
    let bound =
        "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\nconnections = 9\nsize = 10\n";
    // a supplier that was recalled before has no more time than others
    for is_recalled in [false, true] {
        let mut it = Bench::linked();
        if is_recalled {
            it.subscribe(OTHER);
            it.did();
        }
        let permissions = Some(Permissions::parse(bound, &|_| None).expect("it is sound"));
        let settings = BrokerSettings { permissions, ..BrokerSettings::default() };
        let settings = it.broker.check_settings(settings).expect("no class changes");
        let asker = ReloadAsker::Signal { user: None };
        let report = it.broker.reload(it.now, asker, settings, ReloadedFiles::default());
        assert_eq!(report.ended, 0, "{report:?}");
        let did = it.did();
        assert_eq!(did.contains(&Order(SUPPLIER, RingOrder::Recall {})), !is_recalled, "{did:?}");
        it.now += Duration::from_millis(499);
        assert_eq!(it.did(), []);
        it.now += Duration::from_millis(1);
        assert_eq!(it.did().first(), Some(&Order(CONSUMER, RingOrder::Cut { link: 1 })));
    }
}

#[test]
fn the_links_of_a_program_that_the_broker_ends_are_cut_at_once() {
    let mut it = Bench::linked();
    it.broker.send_away(it.now, SUPPLIER, "it may not publish any more");
    assert_eq!(it.did(), [Order(CONSUMER, RingOrder::Cut { link: 1 })]);
    // a program that ends its own connection ends its links, too, and its last events are waited for
    let mut it = Bench::linked();
    it.broker.gone(it.now, SUPPLIER);
    assert_eq!(it.did(), []);
}

#[test]
fn a_supplier_that_left_before_it_had_the_recall_is_introduced_again_once_it_has_answered_that() {
    let mut it = Bench::linked();
    // the consumer goes and comes again; the supplier has seen its socket end meanwhile
    it.hear(CONSUMER, &Frame::Unsubscribe { number: 8 });
    assert_eq!(it.did(), [Order(SUPPLIER, RingOrder::Recall {})]);
    it.subscribe(CONSUMER);
    it.left(3, false);
    it.publish();
    assert_eq!(it.did(), [Accepted(CONSUMER), Event(CONSUMER, 4)]);
    it.left(0, true);
    assert_eq!(it.did(), [Listen(CONSUMER, 2)]);
    // a supplier that has left for good answers nothing
    let mut it = Bench::linked();
    it.subscribe(OTHER);
    it.did();
    it.report(SUPPLIER, 7, RingReport::Left { events: 3, for_good: true, recalled: false });
    assert_eq!(it.did(), [Accepted(OTHER)]);
}

#[test]
fn a_supplier_that_uses_a_link_of_no_consumer_is_recalled() {
    let mut it = Bench::new();
    it.subscribe(CONSUMER);
    it.did();
    it.report(CONSUMER, 8, RingReport::Listens { link: 1, port: 99 });
    it.did();
    it.report(SUPPLIER, 7, RingReport::Supplies { links: vec![5] });
    let numbered = Order(SUPPLIER, RingOrder::Numbered { last: 0 });
    assert_eq!(it.did(), [Order(SUPPLIER, RingOrder::Recall {}), numbered]);
    it.left(2, true);
    it.publish();
    assert_eq!(it.did(), [Listen(CONSUMER, 2), Event(CONSUMER, 3)]);
}

#[test]
fn a_program_that_subscribes_to_its_own_topic_does_not_wait_for_itself() {
    let mut it = Bench::linked();
    it.subscribe(SUPPLIER);
    assert_eq!(it.did(), [Order(SUPPLIER, RingOrder::Recall {}), Accepted(SUPPLIER)]);
}

#[test]
fn a_consumer_that_got_fewer_events_than_its_supplier_sent_is_told_and_counted() {
    for (taken, gap) in [(3, vec![]), (1, vec![Gap(CONSUMER, 2, 3), Note])] {
        let mut it = Bench::linked();
        it.left(3, false);
        it.did();
        it.report(OTHER, 8, RingReport::Ended { link: 1, taken: 0, broken: false });
        it.report(CONSUMER, 8, RingReport::Ended { link: 1, taken, broken: false });
        // the second report has no effect
        it.report(CONSUMER, 8, RingReport::Ended { link: 1, taken: 0, broken: false });
        assert_eq!(it.did(), gap);
        let counted = it.broker.statistics(it.now).consumers.remove(0);
        assert_eq!(counted.dropped_full, 3 - taken);
    }
}

#[test]
fn a_supplier_that_left_a_link_without_its_end_is_not_introduced_to_that_consumer_again() {
    for broken in [false, true] {
        let mut it = Bench::linked();
        it.left(1, false);
        assert_eq!(it.did(), [Listen(CONSUMER, 2)]);
        // the consumer has all events, but has waited for more
        it.report(CONSUMER, 8, RingReport::Ended { link: 1, taken: 1, broken });
        assert_eq!(it.did(), if broken { vec![Note] } else { vec![] });
        it.report(CONSUMER, 8, RingReport::Listens { link: 2, port: 99 });
        let connects = it.did().contains(&Connect(SUPPLIER, 2, "192.0.2.2:99".to_owned()));
        assert_eq!(connects, !broken);
    }
}

#[test]
fn a_pair_without_a_connection_is_noted_once_and_not_tried_again() {
    for cannot_listen in [false, true] {
        let mut it = Bench::new();
        it.subscribe(CONSUMER);
        it.did();
        let port = if cannot_listen { 0 } else { 99 };
        it.report(CONSUMER, 8, RingReport::Listens { link: 1, port });
        // a program that the order did not go to
        it.report(OTHER, 7, RingReport::Unreached { link: 1, why: "no".to_owned() });
        it.report(SUPPLIER, 7, RingReport::Unreached { link: 1, why: "no route\n".to_owned() });
        let did = it.did();
        assert_eq!(did.iter().filter(|did| **did == Note).count(), 1, "{did:?}");
        it.hear(SUPPLIER, &Frame::Advertise { number: 9, spec: Advertisement::new("t") });
        it.publish();
        assert_eq!(it.did(), [Accepted(SUPPLIER), Event(CONSUMER, 1)]);
        // another program of the same host may have a way
        it.hear(CONSUMER, &Frame::Unsubscribe { number: 8 });
        it.subscribe(OTHER);
        let did = it.did();
        assert!(did.contains(&Listen(OTHER, 2)), "{did:?}");
    }
}

#[test]
fn a_loopback_address_is_no_address_for_another_host() {
    for (supplier, consumer, may) in [
        ("192.0.2.1", "127.0.0.1", false),
        ("127.0.0.1", "192.0.2.1", true),
        ("::ffff:127.0.0.1", "127.0.0.1", true),
    ] {
        let mut it = Bench::at(supplier, consumer);
        it.subscribe(CONSUMER);
        assert_eq!(it.did().contains(&Listen(CONSUMER, 1)), may, "{supplier} {consumer}");
    }
}

#[test]
fn shares_filters_groups_and_refusals_of_direct_events_need_the_broker() {
    let changes: [fn(&mut SubscriptionSpec); 5] = [
        |spec| spec.direct = false,
        |spec| spec.group = Some("g".to_owned()),
        |spec| spec.class = Some("rest".to_owned()),
        |spec| spec.interests[0].filter = Some("x > 1".to_owned()),
        |spec| spec.share = Some(2.0),
    ];
    for change in changes {
        let mut it = Bench::new();
        let mut spec = SubscriptionSpec::new("t");
        change(&mut spec);
        it.hear(CONSUMER, &Frame::Subscribe { number: 8, spec: Box::new(spec.clone()) });
        let did = it.did();
        assert!(!did.iter().any(|did| matches!(did, Listen(..))), "{spec:?} {did:?}");
    }
}
