//! A client's end of direct links over TCP, with a simulated broker and simulated suppliers: the tests send
//! their frames in an order that occurs with real ones only in a race, or by malice.

use crate::common::{event, notice};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration as StdDuration;
use unisono_events_client::{
    Advertisement, Client, EventDraft, Greeting, NoticeText, SubscriptionHandle, SubscriptionSpec,
    WelcomeTerms,
};
use unisono_events_wire::frame::DeliverHead;
use unisono_events_wire::transport::{Drained, FrameTransport as _, PayloadRef, StreamTransport, Taken};
use unisono_events_wire::{Frame, LinkKeys, RingOrder, RingReport};

/// A program that speaks in frames.
pub(crate) struct RawProgram(StreamTransport);

impl RawProgram {
    pub(crate) fn connect(at: SocketAddr) -> Self {
        Self::over(TcpStream::connect(at).expect("it listens"))
    }

    pub(crate) fn over(socket: TcpStream) -> Self {
        Self(StreamTransport::new(socket.into(), 1 << 20).expect("a transport"))
    }

    /// Greets a broker, and takes part in links.
    pub(crate) fn program(at: SocketAddr) -> Self {
        let mut it = Self::connect(at);
        it.say(&Frame::Hello(Greeting::default()));
        it.say(&Frame::RingReport { number: 0, report: RingReport::TakesLinks {} });
        it
    }

    pub(crate) fn say(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.send(&bytes);
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        assert_eq!(self.0.send(bytes, PayloadRef::Bytes(&[])).expect("it is there"), Taken::Taken);
        assert_eq!(self.0.flush().expect("it is there"), Drained::All);
    }

    /// Returns the next frame, or `None` if the other end has ended the connection.
    pub(crate) fn hear(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.0.receive() {
                Ok(Some(frame)) => return Some(frame.bytes.to_vec()),
                Ok(None) => {
                    let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
                    let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
                    assert_eq!(poll(&mut fds, Some(&timeout)).expect("it waits"), 1, "nothing comes");
                }
                Err(_) => return None,
            }
        }
    }

    pub(crate) fn order(&mut self) -> RingOrder {
        loop {
            let frame = self.hear().expect("it is there");
            if let Frame::Ring { order, .. } = Frame::read(&frame).expect("a frame") {
                return order;
            }
        }
    }

    pub(crate) fn show(&mut self, link: u32, key: &str) {
        self.send(&[&b"UEL1"[..], &link.to_le_bytes(), key.as_bytes()].concat());
    }
}

/// A client with links, and the broker's end of its connection.
struct Pretender {
    broker: RawProgram,
    client: Client,
}

fn keys() -> LinkKeys {
    LinkKeys { supplier: "0a".repeat(16), consumer: "1b".repeat(16) }
}

fn delivery(sequence: u64) -> DeliverHead<'static> {
    DeliverHead { sequence, ..DeliverHead::default() }
}

impl Pretender {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = listener.local_addr().expect("bound");
        let client = std::thread::spawn(move || Client::connect_tcp(at).expect("a welcome"));
        let mut broker = RawProgram::over(listener.accept().expect("it connects").0);
        assert!(broker.hear().is_some(), "its greeting");
        let terms =
            WelcomeTerms { version: 1, largest: 1 << 16, path_largest: 1 << 10, ..Default::default() };
        broker.say(&Frame::Welcome(WelcomeTerms { links: true, ..terms }));
        let client = client.join().expect("a welcome");
        let mut it = Self { broker, client };
        assert_eq!(it.report(), RingReport::TakesLinks {});
        it
    }

    /// The client's first number is that of the subscription.
    fn of_consumer() -> (Self, SubscriptionHandle) {
        let mut it = Self::new();
        it.broker.say(&Frame::Accepted { number: 1 });
        let subscription = it.client.subscribe(&SubscriptionSpec::new("+")).expect("it fits");
        (it, subscription)
    }

    fn order(&mut self, order: RingOrder) {
        self.broker.say(&Frame::Ring { number: 1, order });
    }

    fn report(&mut self) -> RingReport {
        loop {
            let frame = self.broker.hear().expect("it is there");
            if let Frame::RingReport { report, .. } = Frame::read(&frame).expect("a frame") {
                return report;
            }
        }
    }

    /// Lets the client work on what has come, which is no event.
    fn work(&mut self) {
        let came = self.client.receive(Some(StdDuration::from_millis(50))).expect("the broker lives");
        assert!(came.is_none(), "{came:?}");
    }

    /// Has the client listen. Returns its address.
    fn listening(&mut self, link: u32) -> SocketAddr {
        self.order(RingOrder::Listen { link, keys: keys() });
        self.work();
        match self.report() {
            RingReport::Listens { link: of, port } if of == link => ([127, 0, 0, 1], port).into(),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a link that the client has not been told to read. Returns the supplier's end.
    fn link(&mut self, link: u32) -> RawProgram {
        let mut supplier = RawProgram::connect(self.listening(link));
        supplier.show(link, &keys().supplier);
        self.work();
        assert!(supplier.hear().is_some_and(|shown| shown.ends_with(keys().consumer.as_bytes())));
        supplier
    }

    fn read(&mut self, link: u32, last: u64) {
        for (number, name) in [(5, "t"), (6, "u")] {
            self.broker.say(&Frame::Topic { number, name });
        }
        self.order(RingOrder::Read { link, topic: 5, supplier: 3, last, in_order: false });
    }

    fn deliver(&mut self, topic: u32, sequence: u64) {
        let head = DeliverHead { consumer: 1, topic, supplier: 3, ..delivery(sequence) };
        self.broker.say(&Frame::Deliver { head, payload: b"x" });
    }
}

#[test]
fn a_link_that_is_cut_before_it_begins_ends_after_the_brokers_events() {
    let (mut it, _) = Pretender::of_consumer();
    let mut supplier = it.link(9);
    it.read(9, 1);
    supplier.say(&Frame::Deliver { head: delivery(1), payload: b"x" });
    it.order(RingOrder::Cut { link: 9 });
    it.work();
    it.deliver(5, 1);
    it.order(RingOrder::Begin { link: 9 });
    assert_eq!((event(&mut it.client).sequence, event(&mut it.client).sequence), (1, 2));
    assert_eq!(supplier.hear(), None);
}

#[test]
fn a_link_that_is_cut_before_it_begins_ends_with_its_supplier_and_does_not_wait_for_its_end() {
    let (mut it, _) = Pretender::of_consumer();
    let mut supplier = it.link(9);
    it.read(9, 0);
    supplier.say(&Frame::Deliver { head: delivery(1), payload: b"x" });
    it.order(RingOrder::Cut { link: 9 });
    let gone = NoticeText::Gone { topic: 5, supplier: 3, died: false };
    it.broker.say(&Frame::Notice { consumer: 1, notice: gone });
    assert_eq!(event(&mut it.client).sequence, 1);
    // a link whose end is waited for in vain is broken, which would be another notice
    let told = notice(&mut it.client);
    assert!(matches!(told, NoticeText::Gone { .. }), "{told:?}");
    assert_eq!(supplier.hear(), None);
}

#[test]
fn a_supplier_that_goes_on_sending_does_not_delay_the_end_of_its_link() {
    let (mut it, _) = Pretender::of_consumer();
    let supplier = it.link(9);
    let socket = TcpStream::from(supplier.0.as_fd().try_clone_to_owned().expect("a descriptor"));
    socket.set_nonblocking(false).expect("a socket");
    let flood = std::thread::spawn(move || {
        let (mut socket, mut frames, mut number) = (socket, Vec::new(), 0);
        loop {
            frames.clear();
            for _ in 0..1000 {
                number += 1;
                let mut frame = Vec::new();
                Frame::Deliver { head: delivery(number), payload: &[0; 10] }.write(&mut frame);
                frames.extend(u32::try_from(frame.len()).expect("it is short").to_le_bytes());
                frames.extend(frame);
            }
            if socket.write_all(&frames).is_err() {
                return;
            }
        }
    });
    it.read(9, 0);
    it.order(RingOrder::Begin { link: 9 });
    // its queue is full at once
    assert!(it.client.receive(Some(StdDuration::from_secs(20))).expect("the broker lives").is_some());
    it.order(RingOrder::Cut { link: 9 });
    while !flood.is_finished() {
        it.client.receive(Some(StdDuration::from_millis(1))).expect("the broker lives");
    }
    flood.join().expect("it ends");
}

#[test]
fn the_brokers_frames_are_not_late_while_a_program_computes_between_the_events_of_a_link() {
    let (mut it, _) = Pretender::of_consumer();
    let mut supplier = it.link(9);
    it.read(9, 0);
    it.order(RingOrder::Begin { link: 9 });
    for number in 1..=40 {
        supplier.say(&Frame::Deliver { head: delivery(number), payload: b"x" });
    }
    assert_eq!(&*event(&mut it.client).topic, "t");
    it.deliver(6, 1);
    std::thread::sleep(StdDuration::from_millis(20));
    assert_eq!(&*event(&mut it.client).topic, "u");
    for number in 2..=40 {
        assert_eq!(event(&mut it.client).sequence, number);
    }
}

#[test]
fn a_call_ends_in_time_although_its_descriptor_stays_ready() {
    let (mut it, _) = Pretender::of_consumer();
    it.listening(9);
    // a forked child may hold the descriptor of an ended link
    let (ended, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    drop(other);
    epoll::add(it.client.as_fd(), &ended, EventData::new_u64(77), EventFlags::IN).expect("it is epoll");
    it.work();
    it.deliver(5, 1);
    event(&mut it.client);
}

#[test]
fn a_link_that_was_not_read_ends_with_its_subscription_or_when_it_is_cut() {
    let (mut it, subscription) = Pretender::of_consumer();
    let mut supplier = it.link(9);
    it.order(RingOrder::Cut { link: 9 });
    it.work();
    assert_eq!(supplier.hear(), None);
    let mut supplier = it.link(10);
    it.client.unsubscribe(subscription).expect("the broker lives");
    assert_eq!(supplier.hear(), None);
}

#[test]
fn strangers_that_say_nothing_do_not_displace_a_supplier_that_has_shown_its_key() {
    let (mut it, _) = Pretender::of_consumer();
    let at = it.listening(9);
    let mut supplier = RawProgram::connect(at);
    supplier.show(9, &keys().supplier);
    let strangers: Vec<_> = (0..40).map(|_| TcpStream::connect(at).expect("it listens")).collect();
    it.work();
    assert!(supplier.hear().is_some_and(|shown| shown.ends_with(keys().consumer.as_bytes())));
    drop(strangers);
}

#[test]
fn a_supplier_connects_only_with_keys_as_a_broker_draws_them() {
    for (key, connects) in
        [("", false), ("GET / HTTP/1.1\r\n\r\n0123456789ab", false), (&*"0a".repeat(16), true)]
    {
        let mut it = Pretender::new();
        it.broker.say(&Frame::Accepted { number: 1 });
        let topic = it.client.advertise(&Advertisement::new("t")).expect("a topic");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let keys = LinkKeys { supplier: key.to_owned(), ..keys() };
        it.order(RingOrder::Connect { link: 9, consumer: "c".to_owned(), blocks: false, address, keys });
        it.client.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
        listener.set_nonblocking(true).expect("a socket");
        assert_eq!(listener.accept().is_ok(), connects, "{key}");
    }
}
