//! No program stops the broker for others: the work of one frame and of one turn is bounded, counted in steps
//! and deliveries, not in time.

use crate::common::watchdog::within_a_minute;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use unisono_broker::{Broker, ClientId, Limits, Next, Received, Server, Task};
use unisono_events_client::{
    Advertisement, ChannelWait, Duration, Greeting, Instant, InterestSpec, KeptHistory, SubscriptionSpec,
};
use unisono_events_wire::transport::{
    AcceptedTransport, Drained, FrameTransport, IncomingFrame, PayloadRef, PollFor, Taken, TransportError,
    TransportListener, TransportPeer,
};
use unisono_events_wire::{Frame, frame::PublishHead};
use unisono_fairqueue::{ClassSpec, Hierarchy, LinkPace, Rate};

const EVIL: ClientId = ClientId(1);
const OTHER: ClientId = ClientId(2);
/// Steps that one call of the broker may take.
const MAX_WORK: usize = 8192;

fn hierarchy() -> Hierarchy {
    Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest")).expect("it is sound")
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    bytes
}

/// Returns a text of MQTT after its length.
fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("it is short").to_be_bytes();
    [&length[..], text.as_bytes()].concat()
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let (mut bytes, mut length) = (vec![first], body.len());
    while length > 0x7F {
        bytes.push((length & 0x7F) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(body);
    bytes
}

/// A broker without sockets. The steps of every call are checked against [`MAX_WORK`].
struct Measured {
    broker: Broker,
    now: Instant,
}

impl Measured {
    fn new(broker: Broker) -> Self {
        Self { broker, now: Instant::from_nanos(1) }
    }

    fn work(&mut self) {
        let work = self.broker.take_work();
        assert!(work <= MAX_WORK, "{work} steps in one call");
    }

    /// Passes a frame and checks its steps; returns the answers to its client.
    fn say(&mut self, client: ClientId, bytes: &[u8]) -> Vec<Vec<u8>> {
        assert_eq!(self.broker.received(self.now, client, bytes, None), Received::Done);
        self.work();
        self.tasks(client)
    }

    fn tasks(&mut self, of: ClientId) -> Vec<Vec<u8>> {
        let tasks = std::iter::from_fn(|| self.broker.task());
        let heads = tasks.filter_map(|task| match task {
            Task::Answer { client, head, .. } if client == of => Some(head),
            _ => None,
        });
        heads.collect()
    }

    /// Returns the number of deliveries until none is left.
    fn deliveries(&mut self) -> usize {
        let mut count = 0;
        loop {
            let next = self.broker.next(self.now);
            self.work();
            let tasks = self.tasks(EVIL).len();
            match next {
                Next::Delivered => count += tasks,
                Next::Wait(at) if at <= self.now => {}
                _ => return count,
            }
        }
    }

    fn connect_mqtt(&mut self, client: ClientId, peer: u32) {
        assert!(self.broker.connected_by_mqtt(self.now, client, TransportPeer::User(peer)));
        let name = text(&format!("c{}", client.0));
        self.say(client, &packet(0x10, &[b"\0\x04MQTT\x05\x02\0\x3c\0", &name[..]].concat()));
    }

    fn connect(&mut self, client: ClientId, peer: u32) {
        assert!(self.broker.connected(self.now, client, TransportPeer::User(peer)));
        self.say(client, &bytes(&Frame::Hello(Greeting::default())));
    }

    fn retain(&mut self, client: ClientId, topics: usize) -> usize {
        let mut kept = 0;
        for number in 0..topics {
            let body = [&text(&format!("t/{number}"))[..], &[0, 1, 0], b"x"].concat();
            let answer = self.say(client, &packet(0x33, &body));
            kept += usize::from(answer[0].get(4).is_none_or(|code| *code < 0x80));
        }
        kept
    }
}

#[test]
fn one_subscribe_with_fifty_thousand_filters_is_answered_and_others_go_on() {
    let mut measured = Measured::new(Broker::new(hierarchy(), Limits::default()));
    measured.connect_mqtt(EVIL, 1);
    measured.connect_mqtt(OTHER, 2);
    assert_eq!(measured.retain(OTHER, 2000), 2000);
    let filters = [0, 1, b'#', 0].repeat(50_000);
    let answer = measured.say(EVIL, &packet(0x82, &[&[0, 1, 0], &filters[..]].concat()));
    let codes = &answer[0][answer[0].len() - 50_000..];
    let granted = codes.iter().filter(|code| **code < 0x80).count();
    assert_eq!(granted, Limits::default().interests, "each beyond is refused");
    assert!(codes[granted..].iter().all(|code| *code == 0x97));
    let answer = measured.say(OTHER, &[0xC0, 0]);
    assert_eq!(answer, [[0xD0, 0]], "a ping is answered before anything is delivered");
    let delivered = measured.deliveries();
    assert!(
        (2000..2000 + 257).contains(&delivered),
        "{delivered}: the last one counts, and the first piece of the first"
    );
}

#[test]
fn a_request_of_megabytes_and_thousands_of_properties_end_the_connection() {
    let mut measured = Measured::new(Broker::new(hierarchy(), Limits::default()));
    measured.connect_mqtt(EVIL, 1);
    let large = [0, 2, b'+', b'x', 0].repeat(800_000);
    let answer = measured.say(EVIL, &packet(0x82, &[&[0, 1, 0], &large[..]].concat()));
    assert_eq!((answer[0][0], answer[0][2]), (0xE0, 0x97), "quota exceeded");
    measured.connect_mqtt(OTHER, 1);
    let names = (0..40_000_u32)
        .rev()
        .flat_map(|number| [&[0x26][..], &text(&format!("{number:05}")), &[0, 0]].concat());
    let names: Vec<u8> = names.collect();
    let length = names.len();
    let varint = [(length & 0x7F) as u8 | 0x80, (length >> 7 & 0x7F) as u8 | 0x80, (length >> 14) as u8];
    let body = [&text("t")[..], &varint, &names, b"x"].concat();
    let answer = measured.say(OTHER, &packet(0x30, &body));
    assert_eq!((answer[0][0], answer[0][2]), (0xE0, 0x97));
    let native = ClientId(3);
    measured.connect(native, 1);
    let interest = InterestSpec { filter: Some("x ".repeat(200_000)), ..InterestSpec::default() };
    let spec = SubscriptionSpec { interests: vec![interest], ..SubscriptionSpec::default() };
    let answer = measured.say(native, &bytes(&Frame::Subscribe { number: 1, spec: Box::new(spec) }));
    let said = format!("{:?}", Frame::read(&answer[0]).expect("a frame"));
    assert!(said.starts_with("Bye") && said.contains("ask in several"), "{said}");
}

#[test]
fn subscriptions_to_all_that_is_kept_cost_few_steps_each_and_lose_nothing() {
    let mut measured = Measured::new(Broker::new(hierarchy(), Limits::default()));
    measured.connect(EVIL, 1);
    measured.connect_mqtt(OTHER, 2);
    assert_eq!(measured.retain(OTHER, 500), 500);
    for number in 0..4 {
        let interest = InterestSpec { topics: "#".to_owned(), ..InterestSpec::default() };
        let interests = vec![interest; 10];
        let spec = SubscriptionSpec { interests, queue_events: 64, ..SubscriptionSpec::default() };
        measured.say(EVIL, &bytes(&Frame::Subscribe { number, spec: Box::new(spec) }));
    }
    // the name of each topic is told once
    assert_eq!(measured.deliveries(), 4 * 500 + 500);
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn one_user_leaves_half_of_the_topics_to_others() {
    let limits = Limits { memory: 8 << 30, memory_of_user: 4 << 30, ..Limits::default() };
    let mut measured = Measured::new(Broker::new(hierarchy(), limits));
    measured.connect_mqtt(EVIL, 1);
    assert_eq!(measured.retain(EVIL, 33_000), 32_768);
    measured.connect_mqtt(OTHER, 2);
    let body = [&text("mine")[..], &[0, 1, 0], b"x"].concat();
    let answer = measured.say(OTHER, &packet(0x33, &body));
    assert!(answer[0].get(4).is_none_or(|code| *code < 0x80), "{answer:?}");
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn paths_that_cannot_be_opened_leave_nothing_behind() {
    let pace = LinkPace::new(Rate::new(8_000_000_000).expect("a positive rate"), Duration::ZERO);
    let broker = Broker::new(hierarchy(), Limits::default()).with_paths(pace);
    let mut measured = Measured::new(broker);
    let small = SubscriptionSpec { queue_events: 1, queue_bytes: 1, ..SubscriptionSpec::new("x") };
    for client in [10, 11] {
        measured.connect(ClientId(client), 1);
        for number in 0..1024 {
            let spec = Box::new(small.clone());
            measured.say(ClientId(client), &bytes(&Frame::Subscribe { number, spec }));
        }
    }
    measured.connect(EVIL, 1);
    let path =
        serde_json::from_str(r#"{"class":"","destination":{"transport":"udp","address":"127.0.0.1:9"}}"#);
    let path: unisono_events_client::PathSpec = path.expect("a path");
    // more paths than one user, or all users together, may have suppliers
    for number in 0..4200 {
        let answer = measured.say(EVIL, &bytes(&Frame::Open { number, path: path.clone() }));
        let said = format!("{:?}", Frame::read(&answer[0]).expect("a frame"));
        assert!(said.starts_with("Closed") && said.contains("2048 consumers"), "{said}");
    }
    for (client, user) in [(EVIL, 1), (OTHER, 2)] {
        if client == OTHER {
            measured.connect(OTHER, user);
        }
        let spec = Advertisement::new("plant/heat");
        let answer = measured.say(client, &bytes(&Frame::Advertise { number: 1, spec }));
        assert!(matches!(Frame::read(&answer[0]), Ok(Frame::Accepted { .. })), "{client:?}");
    }
}

/// A program that takes everything, and counts its deliveries.
#[derive(Debug)]
struct GreedyProgram {
    ready: OwnedFd,
    says: VecDeque<Vec<u8>>,
    saying: Vec<u8>,
    delivered: Arc<AtomicUsize>,
}

impl FrameTransport for GreedyProgram {
    fn largest(&self) -> usize {
        1 << 20
    }

    fn send(&mut self, head: &[u8], _: PayloadRef<'_>) -> Result<Taken, TransportError> {
        let is_delivery = matches!(Frame::read(head), Ok(Frame::Deliver { .. }));
        self.delivered.fetch_add(usize::from(is_delivery), Ordering::Relaxed);
        Ok(Taken::Taken)
    }

    fn flush(&mut self) -> Result<Drained, TransportError> {
        Ok(Drained::All)
    }

    fn receive(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError> {
        let Some(next) = self.says.pop_front() else { return Ok(None) };
        self.saying = next;
        Ok(Some(IncomingFrame { bytes: &self.saying, shared_payload: None }))
    }

    fn poll_for(&self) -> PollFor {
        PollFor::Frames
    }

    fn close(&mut self) {}
}

impl AsFd for GreedyProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

#[derive(Debug)]
struct GreedyPrograms(OwnedFd, VecDeque<GreedyProgram>);

impl TransportListener for GreedyPrograms {
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError> {
        let next = self.1.pop_front();
        Ok(next.map(|program| (Box::new(program) as _, TransportPeer::Address(Ipv4Addr::LOCALHOST.into()))))
    }
}

impl AsFd for GreedyPrograms {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[test]
fn a_server_with_a_million_events_to_deliver_asks_in_each_turn_whether_to_stop() {
    const KEPT: u32 = 5000;
    within_a_minute(|| {
        let ready = || eventfd(1, EventfdFlags::CLOEXEC).expect("descriptors are left");
        let delivered = Arc::new(AtomicUsize::new(0));
        let spec = Advertisement { history: KeptHistory::Last(KEPT as usize), ..Advertisement::new("t") };
        let head = PublishHead { ..PublishHead::default() };
        let event = bytes(&Frame::Publish { head, payload: b"x" });
        let hello = bytes(&Frame::Hello(Greeting::default()));
        let mut says = VecDeque::from([hello, bytes(&Frame::Advertise { number: 0, spec })]);
        says.extend((0..KEPT).map(|_| event.clone()));
        // five hundred consumers, each of which gets all events
        for number in 0..500 {
            let spec = Box::new(SubscriptionSpec { queue_events: 512, ..SubscriptionSpec::new("t") });
            says.push_back(bytes(&Frame::Subscribe { number, spec }));
        }
        let program =
            GreedyProgram { ready: ready(), says, saying: Vec::new(), delivered: Arc::clone(&delivered) };
        let mut server =
            Server::new(Broker::new(hierarchy(), Limits::default()), ChannelWait::Sleep).expect("it starts");
        server.add(Box::new(GreedyPrograms(ready(), VecDeque::from([program])))).expect("it listens");
        let (before, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let stop = || {
            let now = delivered.load(Ordering::Relaxed);
            let turn = now - before.swap(now, Ordering::Relaxed);
            most.fetch_max(turn, Ordering::Relaxed);
            now > 100_000
        };
        server.serve(&stop).expect("it serves");
        let most = most.load(Ordering::Relaxed);
        assert!((1..8192).contains(&most), "{most} deliveries in one turn");
    });
}
