//! Tests a client with a simulated broker: the test itself sends the broker's frames, in an order that occurs
//! with a real broker only in a race.

#[allow(dead_code, reason = "no broker serves here")]
#[path = "../../broker/tests/watchdog/mod.rs"]
mod watchdog;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use unisono_events_client::{
    Advertisement, ChannelWait, Client, EventDraft, Greeting, Instant, NO_DEADLINE, NoticeText, Reception,
    SubscriptionSpec, TopicHandle, WelcomeTerms, WhenLate,
};
use unisono_events_wire::frame::{DeliverHead, DeliverTimes};
use unisono_events_wire::memory::{
    Doorbell, MemoryConsumer, MemoryGeometry, MemoryOffer, MemorySupplier, MemoryTransport, NextEvent,
    WhenBehind,
};
use unisono_events_wire::transport::{FrameTransport, PayloadRef, Taken};
use unisono_events_wire::{Frame, RefusalCounts, RingOrder, RingReport};
use unisono_sync::{SpinBudget, Wait};

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a pair")
}

/// A frame that a client has sent.
#[derive(Clone, PartialEq, Debug)]
enum SupplierSaid {
    Report(RingReport),
    Published(Vec<u8>),
    Other,
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("it is there").count()
}

fn wait_for_nobody() -> (Wait, SpinBudget) {
    (Wait::Block, SpinBudget::DEFAULT)
}

struct Pretender {
    transport: MemoryTransport,
}

impl Pretender {
    /// Makes a client that supplies topic 1, and the broker's end of its connection.
    fn of_supplier() -> (Self, Client, TopicHandle) {
        Self::on_terms(WelcomeTerms::default())
    }

    /// Does the same as [`of_supplier`](Self::of_supplier), with further terms in the answer to the greeting.
    fn on_terms(terms: WelcomeTerms) -> (Self, Client, TopicHandle) {
        let (ours, theirs) = pair();
        let mut it = Self { transport: MemoryTransport::new(ours, 1 << 20).expect("memory is left") };
        let (largest, path_largest) = (1 << 16, 1 << 10);
        let terms = WelcomeTerms { version: 1, largest, path_largest, same_clock: true, ..terms };
        it.say(&Frame::Welcome(terms));
        it.say(&Frame::Accepted { number: 1 });
        let theirs = Box::new(MemoryTransport::join(theirs, Duration::from_secs(20)).expect("it is there"));
        let mut client = Client::over(theirs, Greeting::default(), ChannelWait::Sleep).expect("welcome");
        let topic = client.advertise(&Advertisement::new("t")).expect("a topic");
        it.sent();
        (it, client, topic)
    }

    fn say(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let taken = self.transport.send(&bytes, PayloadRef::Bytes(&[])).expect("the client lives");
        assert_eq!(taken, Taken::Taken);
        let _ = self.transport.flush().expect("the client lives");
    }

    /// Connects a consumer to the supplier's ring. Returns the consumer's end.
    fn introduce(&mut self, link: u32) -> Doorbell {
        self.introduce_to(1, link, (64, 1 << 16))
    }

    fn introduce_to(&mut self, number: u32, link: u32, (events, bytes): (usize, usize)) -> Doorbell {
        let (one, other) = pair();
        self.transport.pass(one.as_fd()).expect("the client takes it");
        let consumer = format!("c{link}");
        let order = RingOrder::Supply { link, consumer, blocks: true, events, bytes };
        self.say(&Frame::Ring { number, order });
        Doorbell::new(other)
    }

    /// Subscribes to a topic whose events the test itself supplies. The client has not begun to read yet.
    fn reading(&mut self, client: &mut Client, depth: u32) -> (MemorySupplier, Doorbell) {
        self.reading_with(client, depth, WhenLate::Deliver)
    }

    fn reading_with(
        &mut self,
        client: &mut Client,
        depth: u32,
        late: WhenLate,
    ) -> (MemorySupplier, Doorbell) {
        self.say(&Frame::Accepted { number: 2 });
        let spec = SubscriptionSpec { late, ..SubscriptionSpec::new("u") };
        client.subscribe(&spec).expect("it fits");
        let (one, other) = pair();
        self.transport.pass(one.as_fd()).expect("the client takes it");
        self.say(&Frame::Ring {
            number: 2,
            order: RingOrder::Read { link: 9, topic: 5, supplier: 3, last: 0, in_order: false },
        });
        let bell = Doorbell::new(other);
        let geometry = MemoryGeometry::new(depth, 256, 1).expect("it is small");
        let mut ring = MemorySupplier::create(geometry, wait_for_nobody()).expect("memory is left");
        ring.offer(WhenBehind::LosesOldest, &bell).expect("the first");
        self.sent();
        (ring, bell)
    }

    fn sent(&mut self) -> Vec<SupplierSaid> {
        let mut sent = Vec::new();
        while let Some(frame) = self.transport.receive().expect("the client lives") {
            sent.push(match Frame::read(frame.bytes).expect("a frame") {
                Frame::RingReport { report, .. } => SupplierSaid::Report(report),
                Frame::Publish { payload, .. } => SupplierSaid::Published(payload.to_vec()),
                _ => SupplierSaid::Other,
            });
        }
        sent
    }
}

fn read(bell: &Doorbell) -> MemoryConsumer {
    let offer = MemoryOffer::receive(bell).expect("the supplier lives").expect("it offered a ring");
    offer.accept(wait_for_nobody(), bell).expect("it is a ring")
}

fn is_event(ring: &mut MemoryConsumer) -> bool {
    matches!(ring.receive_copy(&mut Vec::new()), Ok(NextEvent::Event(_)))
}

fn supplies(link: u32) -> SupplierSaid {
    SupplierSaid::Report(RingReport::Supplies { links: vec![link] })
}

fn left(events: u64, for_good: bool) -> SupplierSaid {
    SupplierSaid::Report(RingReport::Left { events, for_good, recalled: false })
}

#[test]
fn a_supplier_that_left_its_ring_for_good_obeys_no_order_that_crossed_that() {
    let (mut broker, mut supplier, topic) = Pretender::of_supplier();
    let bell = broker.introduce(1);
    supplier.publish(topic, &EventDraft::new(b"a")).expect("it leaves");
    assert!(is_event(&mut read(&bell)));
    supplier.publish(topic, &EventDraft::new(b"b").critical(1)).expect("it leaves");
    assert_eq!(broker.sent(), [supplies(1), left(1, true), SupplierSaid::Published(b"b".to_vec())]);
    // the broker has not read yet that the supplier left the ring for good
    let _bell = broker.introduce(2);
    supplier.publish(topic, &EventDraft::new(b"c")).expect("it leaves");
    assert_eq!(broker.sent(), [SupplierSaid::Published(b"c".to_vec())]);
}

#[test]
fn an_order_that_is_announced_is_awaited_and_obeyed_before_the_next_event() {
    watchdog::within_a_minute(|| {
        let (mut broker, mut supplier, topic) = Pretender::of_supplier();
        let bell = broker.introduce(1);
        supplier.publish(topic, &EventDraft::new(b"a")).expect("it leaves");
        let mut ring = read(&bell);
        assert!(is_event(&mut ring));
        // the connection is full, so the order itself waits in the broker, and a consumer is accepted in the
        // meantime
        broker.transport.announce_orders(2);
        let mut broker = std::thread::scope(|scope| {
            let late = scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                broker.say(&Frame::Ring { number: 1, order: RingOrder::Recall {} });
                broker
            });
            supplier.publish(topic, &EventDraft::new(b"b")).expect("it leaves");
            late.join().expect("it says so")
        });
        let published = SupplierSaid::Published(b"b".to_vec());
        assert_eq!(broker.sent(), [supplies(1), left(1, false), published]);
        assert!(!is_event(&mut ring));
    });
}

#[test]
fn a_supplier_that_cannot_take_an_order_because_its_program_takes_no_events_leaves_the_ring() {
    watchdog::within_a_minute(|| {
        let (mut broker, mut supplier, topic) = Pretender::of_supplier();
        let _bell = broker.introduce(1);
        supplier.publish(topic, &EventDraft::new(b"a")).expect("it leaves");
        broker.say(&Frame::Topic { number: 5, name: "u" });
        for publication in 0..2 {
            for sequence in 1..=128 {
                let sequence = publication * 128 + sequence;
                let head = DeliverHead { consumer: 2, topic: 5, supplier: 3, ..delivery(sequence) };
                broker.say(&Frame::Deliver { head, payload: b"x" });
            }
            // no order follows these events
            supplier.publish(topic, &EventDraft::new(b"b")).expect("it leaves");
        }
        assert_eq!(broker.sent(), [supplies(1)]);
        broker.transport.announce_orders(2);
        supplier.publish(topic, &EventDraft::new(b"d")).expect("it leaves");
        assert_eq!(broker.sent(), [left(3, true), SupplierSaid::Published(b"d".to_vec())]);
    });
}

#[test]
fn a_consumer_that_goes_before_the_first_event_takes_the_ring_from_nobody() {
    let (mut broker, mut supplier, topic) = Pretender::of_supplier();
    let stays = broker.introduce(1);
    let goes = broker.introduce(2);
    assert!(supplier.receive(Some(Duration::ZERO)).expect("the broker lives").is_none());
    drop(goes);
    supplier.publish(topic, &EventDraft::new(b"a")).expect("it leaves");
    assert_eq!(broker.sent(), [supplies(1), supplies(2)]);
    assert!(is_event(&mut read(&stays)));
    // when no consumer is left, the next one is accepted as before
    drop(stays);
    let next = broker.introduce(3);
    supplier.publish(topic, &EventDraft::new(b"b")).expect("it leaves");
    assert_eq!(broker.sent(), [supplies(3)]);
    assert!(is_event(&mut read(&next)));
}

fn delivery(sequence: u64) -> DeliverHead<'static> {
    DeliverHead { sequence, ..DeliverHead::default() }
}

fn write(ring: &mut MemorySupplier, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let mut bytes = Vec::new();
        Frame::Deliver { head: delivery(number), payload: b"x" }.write(&mut bytes);
        ring.publish(0, &bytes).expect("there is room");
    }
}

#[test]
fn a_program_that_only_listens_keeps_no_sockets_of_consumers_that_are_gone() {
    let (mut broker, mut supplier, _) = Pretender::of_supplier();
    let before = descriptors();
    for link in 1..=100 {
        drop(broker.introduce(link));
        assert!(supplier.receive(Some(Duration::ZERO)).expect("the broker lives").is_none());
    }
    // other tests run in parallel
    assert!(descriptors() < before + 60, "{before} descriptors became {}", descriptors());
}

#[test]
fn a_program_that_answers_many_that_go_again_keeps_no_rings_for_them() {
    let (mut broker, mut supplier, _) = Pretender::of_supplier();
    let before = descriptors();
    for number in 2..=80 {
        broker.say(&Frame::Accepted { number });
        let topic = supplier.advertise(&Advertisement::new("u")).expect("a topic");
        let bell = broker.introduce_to(number, number, (64, 1 << 16));
        supplier.publish(topic, &EventDraft::new(b"answer")).expect("it leaves");
        assert!(is_event(&mut read(&bell)));
        broker.sent();
    }
    // other tests run in parallel
    assert!(descriptors() < before + 60, "{before} descriptors became {}", descriptors());
}

#[test]
fn a_supplier_that_waits_for_a_full_ring_keeps_so_many_events_and_then_leaves_the_ring() {
    watchdog::within_a_minute(|| {
        let (mut broker, mut supplier, topic) = Pretender::of_supplier();
        let (mut ring, _bell) = broker.reading(&mut supplier, 1024);
        write(&mut ring, 1..=1000);
        broker.say(&Frame::Ring { number: 2, order: RingOrder::Begin { link: 9 } });
        let full = broker.introduce(1);
        for _ in 0..64 {
            supplier.publish(topic, &EventDraft::new(b"a")).expect("it leaves");
        }
        supplier.publish(topic, &EventDraft::new(b"b")).expect("it leaves");
        assert_eq!(broker.sent(), [supplies(1), left(64, true), SupplierSaid::Published(b"b".to_vec())]);
        drop(full);
    });
}

#[test]
fn events_that_a_supplier_refuses_itself_are_reported_to_a_broker_that_counts_them() {
    watchdog::within_a_minute(|| {
        for refusal_reports in [false, true] {
            let terms = WelcomeTerms { refusal_reports, ..WelcomeTerms::default() };
            let (mut broker, mut supplier, topic) = Pretender::on_terms(terms);
            let _full = broker.introduce(1);
            for _ in 0..64 {
                supplier.publish(topic, &EventDraft::new(b"a")).expect("it leaves");
            }
            assert_eq!(broker.sent(), [supplies(1)]);
            for _ in 0..2 {
                let past = EventDraft::new(b"late").due_at(Instant::from_nanos(1));
                supplier.publish_buffered(topic, &past).expect("it is refused later");
            }
            assert!(broker.sent().is_empty(), "the report waits for the flush");
            let full = supplier.try_publish(topic, &EventDraft::new(b"b")).expect_err("there is no room");
            assert!(full.to_string().contains("c1"), "{full}");
            let counts = RefusalCounts { deadline: 2, full: 1 };
            let told = SupplierSaid::Report(RingReport::Refused { counts });
            assert_eq!(broker.sent(), if refusal_reports { vec![told] } else { Vec::new() });
        }
    });
}

#[test]
fn events_with_numbers_from_after_the_ring_end_the_link() {
    let (mut broker, mut client, _) = Pretender::of_supplier();
    let (mut ring, _bell) = broker.reading(&mut client, 64);
    write(&mut ring, 1..=10);
    let head = DeliverHead { consumer: 2, topic: 5, supplier: 3, ..delivery(5) };
    broker.say(&Frame::Deliver { head, payload: b"from the broker" });
    let mut numbers = Vec::new();
    while let Some(came) = client.receive(Some(Duration::ZERO)).expect("it lives") {
        numbers.push(match came {
            Reception::Event(event) => event.sequence,
            Reception::Notice { notice: NoticeText::Gap { lost: 0, .. }, .. } => 0,
            other => panic!("{other:?}"),
        });
    }
    client.flush().expect("the broker lives");
    assert!(broker.sent().contains(&SupplierSaid::Report(RingReport::Broken { link: 9, taken: 4 })));
    assert_eq!(numbers, [1, 2, 3, 4, 5, 0]);
}

#[test]
fn a_call_passes_over_so_many_late_events_and_the_next_ones_go_on() {
    let (mut broker, mut client, _) = Pretender::of_supplier();
    let (mut ring, _bell) = broker.reading_with(&mut client, 1024, WhenLate::Drop);
    for number in 1..=1000 {
        let deadline = if number == 1000 { NO_DEADLINE } else { Instant::from_nanos(1) };
        let mut bytes = Vec::new();
        let times = DeliverTimes::At { deadline, published: Instant::ZERO };
        let head = DeliverHead { times, ..delivery(number) };
        Frame::Deliver { head, payload: b"x" }.write(&mut bytes);
        ring.publish(0, &bytes).expect("there is room");
    }
    broker.say(&Frame::Ring { number: 2, order: RingOrder::Begin { link: 9 } });
    let is_ready = |client: &Client| {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(client, PollFlags::IN)], Some(&at_once)).expect("it looks") == 1
    };
    let mut nothing = 0;
    let event = loop {
        match client.receive(Some(Duration::ZERO)).expect("the broker lives") {
            Some(Reception::Event(event)) => break event,
            // the descriptor must wake a polling program again
            None => assert!(is_ready(&client), "the call {nothing} leaves the others"),
            other => panic!("{other:?}"),
        }
        nothing += 1;
    };
    assert_eq!((event.sequence, nothing > 10), (1000, true), "{nothing} calls");
    assert!(client.receive(Some(Duration::ZERO)).expect("the broker lives").is_none());
    assert!(!is_ready(&client));
}

#[test]
fn a_consumer_that_cannot_read_what_a_supplier_writes_is_told_that_events_are_lost() {
    let (mut broker, mut client, _) = Pretender::of_supplier();
    let (mut ring, _bell) = broker.reading(&mut client, 64);
    write(&mut ring, 1..=2);
    ring.publish(0, b"no event").expect("there is room");
    broker.say(&Frame::Ring { number: 2, order: RingOrder::Begin { link: 9 } });
    for number in 1..=2 {
        let came = client.receive(Some(Duration::ZERO)).expect("the broker lives");
        assert!(matches!(came, Some(Reception::Event(event)) if event.sequence == number));
    }
    let came = client.receive(Some(Duration::ZERO)).expect("the broker lives");
    let Some(Reception::Notice { notice, .. }) = came else { panic!("{came:?}") };
    let NoticeText::Gap { first: 3, lost: 0, cause, .. } = &notice else { panic!("{notice:?}") };
    assert_eq!(cause, "broken");
    assert!(notice.to_string().contains("from 3 on"), "{notice}");
    client.flush().expect("the broker lives");
    let broken = RingReport::Broken { link: 9, taken: 2 };
    assert_eq!(broker.sent().last(), Some(&SupplierSaid::Report(broken)));
}

#[test]
fn rings_beyond_what_a_program_may_have_of_them_are_not_made() {
    let (mut broker, mut supplier, first) = Pretender::of_supplier();
    let long = (16_384, 1 << 30);
    let payload = vec![1; 10_000];
    let topic = |broker: &mut Pretender, supplier: &mut Client, number: u32| {
        broker.say(&Frame::Accepted { number });
        let topic = supplier.advertise(&Advertisement::new("u")).expect("a topic");
        let bell = broker.introduce_to(number, number, long);
        broker.sent();
        supplier.publish(topic, &EventDraft::new(&payload)).expect("it leaves");
        (bell, broker.sent())
    };
    let bell = broker.introduce_to(1, 1, long);
    supplier.publish(first, &EventDraft::new(&[1; 10_000])).expect("it leaves");
    assert!(is_event(&mut read(&bell)));
    // 200 MB each: two of them exceed the limit
    let (_second, sent) = topic(&mut broker, &mut supplier, 2);
    assert!(sent.len() == 3 && sent[..2] == [supplies(2), left(0, true)], "{sent:?}");
    supplier.withdraw(first).expect("the broker lives");
    let (third, sent) = topic(&mut broker, &mut supplier, 3);
    assert_eq!(sent, [supplies(3)]);
    assert!(is_event(&mut read(&third)));
}

#[test]
fn losses_that_were_not_told_and_then_an_end_are_counted_by_the_broker_alone() {
    let (mut broker, mut client, _) = Pretender::of_supplier();
    let (mut ring, bell) = broker.reading(&mut client, 64);
    // each ring takes two steps, and a call takes 64 steps, so the call ends at the loss
    for _ in 0..31 {
        drop(ring);
        let geometry = MemoryGeometry::new(64, 256, 1).expect("it is small");
        ring = MemorySupplier::create(geometry, wait_for_nobody()).expect("memory is left");
        ring.offer(WhenBehind::LosesOldest, &bell).expect("the socket has room");
    }
    for _ in 0..100 {
        ring.publish(0, b"no event").expect("it loses the oldest");
    }
    broker.say(&Frame::Ring { number: 2, order: RingOrder::Begin { link: 9 } });
    assert!(client.receive(Some(Duration::ZERO)).expect("the broker lives").is_none());
    // the client reports its counts when another subscription ends
    broker.say(&Frame::Accepted { number: 3 });
    let other = client.subscribe(&SubscriptionSpec::new("other")).expect("it fits");
    client.unsubscribe(other).expect("the broker lives");
    let came = client.receive(Some(Duration::ZERO)).expect("the broker lives");
    let is_end = |notice: &NoticeText| matches!(notice, NoticeText::Gap { lost: 0, .. });
    assert!(matches!(&came, Some(Reception::Notice { notice, .. }) if is_end(notice)), "{came:?}");
    let reports = broker.sent().into_iter().filter(|said| matches!(said, SupplierSaid::Report(_)));
    let broken = SupplierSaid::Report(RingReport::Broken { link: 9, taken: 0 });
    assert_eq!(reports.collect::<Vec<_>>(), [broken]);
}

#[test]
fn a_report_of_an_older_consumer_does_not_say_how_many_events_it_had() {
    let read = serde_json::from_str::<RingReport>(r#"{"ring":"broken","link":9}"#);
    assert_eq!(
        read.expect("a key that is left out has its default"),
        RingReport::Broken { link: 9, taken: 0 }
    );
}

#[test]
fn a_suppliers_next_ring_does_not_overtake_the_one_before() {
    let (mut broker, mut client, _) = Pretender::of_supplier();
    let (mut first, _bell) = broker.reading(&mut client, 64);
    write(&mut first, 1..=3);
    broker.say(&Frame::Ring { number: 2, order: RingOrder::Begin { link: 9 } });
    // the supplier left that ring and has another one, without an event through the broker in between
    let (one, other) = pair();
    broker.transport.pass(one.as_fd()).expect("the client takes it");
    let order = RingOrder::Read { link: 10, topic: 5, supplier: 3, last: 3, in_order: false };
    broker.say(&Frame::Ring { number: 2, order });
    let bell = Doorbell::new(other);
    let geometry = MemoryGeometry::new(64, 256, 1).expect("it is small");
    let mut second = MemorySupplier::create(geometry, wait_for_nobody()).expect("memory is left");
    second.offer(WhenBehind::LosesOldest, &bell).expect("the first");
    let mut bytes = Vec::new();
    let times = DeliverTimes::At { deadline: Instant::from_nanos(1), published: Instant::ZERO };
    let head = DeliverHead { times, ..delivery(1) };
    Frame::Deliver { head, payload: b"urgent" }.write(&mut bytes);
    second.publish(0, &bytes).expect("there is room");
    broker.say(&Frame::Ring { number: 2, order: RingOrder::Begin { link: 10 } });
    // until the answer comes, the client takes the orders but reads no ring
    broker.say(&Frame::Accepted { number: 3 });
    client.subscribe(&SubscriptionSpec::new("other")).expect("it fits");
    let mut numbers = Vec::new();
    while let Some(came) = client.receive(Some(Duration::ZERO)).expect("it lives") {
        let Reception::Event(event) = came else { panic!("{came:?}") };
        numbers.push(event.sequence);
    }
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[test]
fn a_report_that_a_link_is_broken_waits_until_a_full_connection_has_room() {
    watchdog::within_a_minute(|| {
        let (mut broker, mut client, topic) = Pretender::of_supplier();
        let (mut ring, _bell) = broker.reading(&mut client, 64);
        write(&mut ring, 1..=1);
        ring.publish(0, b"no event").expect("there is room");
        broker.say(&Frame::Ring { number: 2, order: RingOrder::Begin { link: 9 } });
        // the connection holds 256 frames, and the broker has read all frames before these
        for _ in 0..256 {
            client.publish_buffered(topic, &EventDraft::new(b"x")).expect("there is room");
        }
        let came = client.receive(Some(Duration::ZERO)).expect("the broker lives");
        assert!(matches!(came, Some(Reception::Event(_))), "{came:?}");
        let came = client.receive(Some(Duration::ZERO)).expect("the broker lives");
        assert!(matches!(came, Some(Reception::Notice { .. })), "{came:?}");
        assert_eq!(broker.sent(), vec![SupplierSaid::Published(b"x".to_vec()); 256]);
        assert!(client.receive(Some(Duration::ZERO)).expect("the broker lives").is_none());
        let sent = broker.sent();
        assert!(sent.contains(&SupplierSaid::Report(RingReport::Broken { link: 9, taken: 1 })), "{sent:?}");
        let counted = |said: &SupplierSaid| match said {
            SupplierSaid::Report(RingReport::Counted { counts, .. }) => counts.delivered == 1,
            _ => false,
        };
        assert!(sent.iter().any(counted), "{sent:?}");
    });
}
