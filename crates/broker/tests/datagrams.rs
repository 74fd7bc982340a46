//! UDP over a network that loses, doubles, reorders and delays datagrams; admission of programs; attempts by
//! unknown senders.

use crate::common::authority::Authority;
use crate::common::{broker, event, notice, with_server};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use unisono_broker::{Exposure, Permissions, TlsCertificates, TlsService, Uncertified};
use unisono_events_client::{
    Advertisement, AgainSpec, BrokerAddress, CertifiedFiles, Client, Error, EventDraft, NoticeText,
    SubscriptionSpec, TlsAddress, WhenFull,
};
use unisono_events_wire::TlsClient;
use unisono_events_wire::datagram::{DatagramAcceptor, DatagramLink, DatagramOutcome, LinkEnd};

const MILLISECOND: Duration = Duration::from_millis(1);
/// The time after which a silent end counts as vanished.
pub(crate) const IDLE: Duration = Duration::from_secs(30);

/// The certificates of all cases.
pub(crate) struct Keys {
    pub(crate) broker: TlsCertificates,
    program: TlsClient,
}

pub(crate) static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let authority = Authority::new(directory.path(), "brokers");
    let own = authority.certify("broker", &["localhost"]);
    let broker = TlsService { own, client_authority: None, revocations: None }.read(Uncertified::Heard);
    let program = TlsClient::read("localhost", &authority.file, None);
    Keys { broker: broker.expect("they are sound"), program: program.expect("it was written") }
});

/// The network's treatment of datagrams, in parts per 1000.
#[derive(Clone, Copy, Debug)]
struct NetworkFaults {
    lost: u32,
    doubled: u32,
    /// Each datagram takes at most this many milliseconds longer than another one.
    spread: u32,
    seed: u64,
}

/// A generator with a seed (xorshift64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32 % most.max(1)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Program,
    Broker,
}

/// A program, a broker's acceptor, and the network between them, with a clock of its own.
pub(crate) struct Network {
    pub(crate) now: Instant,
    faults: NetworkFaults,
    chance: Chance,
    /// Datagrams by the time of their arrival; the number separates datagrams of one moment.
    on_their_way: BTreeMap<(Instant, u64), (Side, Vec<u8>)>,
    sent: u64,
    acceptor: DatagramAcceptor,
    pub(crate) program: Option<DatagramLink>,
    pub(crate) broker: Option<DatagramLink>,
}

const PROGRAM: &str = "192.0.2.1:1000";
const BROKER: &str = "192.0.2.2:7402";

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

impl Network {
    fn new(faults: NetworkFaults) -> Self {
        let now = Instant::now();
        let link = DatagramLink::connect(now, address(BROKER), &KEYS.program);
        Self {
            now,
            faults,
            chance: Chance(faults.seed | 1),
            on_their_way: BTreeMap::new(),
            sent: 0,
            acceptor: DatagramAcceptor::new(&KEYS.broker, IDLE).expect("TLS 1.3"),
            program: Some(link.expect("a name")),
            broker: None,
        }
    }

    fn send(&mut self, to: Side, datagram: &[u8]) {
        let copies = match self.chance.below(1000) {
            chance if chance < self.faults.lost => 0,
            chance if chance < self.faults.lost + self.faults.doubled => 2,
            _ => 1,
        };
        for _ in 0..copies {
            self.sent += 1;
            let delay = MILLISECOND * (1 + self.chance.below(self.faults.spread + 1));
            self.on_their_way.insert((self.now + delay, self.sent), (to, datagram.to_vec()));
        }
    }

    /// Lets both ends send, then goes on to the next moment with an event.
    fn step(&mut self) {
        let mut datagram = Vec::new();
        for (side, to) in [(Side::Program, Side::Broker), (Side::Broker, Side::Program)] {
            let mut leave = Vec::new();
            let link = if side == Side::Program { &mut self.program } else { &mut self.broker };
            while link.as_mut().is_some_and(|link| link.next_datagram(self.now, &mut datagram)) {
                leave.push(datagram.clone());
            }
            leave.iter().for_each(|datagram| self.send(to, datagram));
        }
        let links = [&mut self.program, &mut self.broker];
        let wakes = links.into_iter().flatten().filter_map(DatagramLink::wake_at);
        let arrival = self.on_their_way.keys().next().map(|(at, _)| *at);
        let next = wakes.chain(arrival).min().unwrap_or(self.now + MILLISECOND);
        self.now = next.max(self.now);
        for link in [&mut self.program, &mut self.broker].into_iter().flatten() {
            link.pass(self.now);
        }
        while let Some(entry) = self.on_their_way.first_entry()
            && entry.key().0 <= self.now
        {
            match entry.remove() {
                (Side::Program, datagram) => {
                    if let Some(program) = &mut self.program {
                        program.take(self.now, &datagram);
                    }
                }
                (Side::Broker, datagram) => match &mut self.broker {
                    Some(broker) => broker.take(self.now, &datagram),
                    None => self.handle_datagram(&datagram),
                },
            }
        }
    }

    fn handle_datagram(&mut self, datagram: &[u8]) {
        let mut answer = Vec::new();
        match self.acceptor.handle_datagram(self.now, address(PROGRAM), datagram, &mut answer) {
            DatagramOutcome::Ignored => {}
            DatagramOutcome::Answered => {
                assert!(
                    answer.len() <= datagram.len(),
                    "an answer to a stranger is no longer than the question"
                );
                self.send(Side::Program, &answer);
            }
            DatagramOutcome::Opened(link) => self.broker = Some(*link),
        }
    }

    fn is_over(&self) -> bool {
        [&self.program, &self.broker].into_iter().flatten().any(|link| link.end().is_some())
    }
}

/// Writes all of `bytes` at each end and reads them at the other, at once; returns the received bytes of both
/// ends.
fn exchange(network: &mut Network, bytes: &[Vec<u8>; 2]) -> [Vec<u8>; 2] {
    exchange_beside(network, bytes, |_| ())
}

/// Does the same as [`exchange`], and calls `beside` after each step of the network.
fn exchange_beside(
    network: &mut Network,
    bytes: &[Vec<u8>; 2],
    mut beside: impl FnMut(&mut Network),
) -> [Vec<u8>; 2] {
    let (mut written, mut read) = ([0, 0], [Vec::new(), Vec::new()]);
    // some minutes of the simulated time
    for _ in 0..200_000 {
        network.step();
        beside(network);
        let ends = [&mut network.program, &mut network.broker];
        for (side, link) in ends.into_iter().enumerate() {
            let Some(link) = link else { continue };
            if let Ok(count) = link.write(&bytes[side][written[side]..]) {
                written[side] += count;
            }
            let mut some = vec![0; 5000];
            while let Some(count) = link.read_some(&mut some) {
                read[1 - side].extend(&some[..count]);
            }
        }
        if network.is_over() || (0..2).all(|side| read[side].len() == bytes[side].len()) {
            break;
        }
    }
    read
}

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) >> 3) as u8 ^ (at.wrapping_add(seed) as u8)).collect()
}

proptest! {
    #[test]
    fn what_was_sent_arrives_once_and_in_order_or_the_connection_ends(
        lost in 0..250_u32, doubled in 0..250_u32, spread in 0..60_u32, seed in any::<u64>(),
        lengths in (1..150_000_usize, 0..150_000_usize),
    ) {
        let mut network = Network::new(NetworkFaults { lost, doubled, spread, seed });
        let bytes = [content(1, lengths.0), content(2, lengths.1)];
        let read = exchange(&mut network, &bytes);
        for side in 0..2 {
            prop_assert!(bytes[side].starts_with(&read[side]), "other bytes than were sent");
        }
        prop_assert!(network.is_over() || read == bytes, "it neither went on nor ended");
        // it gives up only if almost no datagram passes
        prop_assert!(read == bytes || lost > 100);
    }

    #[test]
    fn whatever_comes_instead_of_a_datagram_disturbs_nobody(
        garbage in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1500), 1..20),
        cut in any::<usize>(), flip in any::<usize>(),
    ) {
        let mut network = established();
        let (mut garbage, mut answer) = (garbage.into_iter().enumerate(), Vec::new());
        let bytes = [content(1, 20_000), content(2, 20_000)];
        let read = exchange_beside(&mut network, &bytes, |network| {
            let Some((at, bytes)) = garbage.next() else { return };
            // also a changed or truncated datagram of the two ends
            let theirs = network.on_their_way.values().next().map(|(_, datagram)| datagram.clone());
            let mut changed = theirs.unwrap_or_default();
            if !changed.is_empty() {
                let place = flip % changed.len();
                changed[place] ^= 1 << (at % 8);
                changed.truncate(cut % (changed.len() + 1));
            }
            for bytes in [bytes, changed] {
                for link in [&mut network.program, &mut network.broker].into_iter().flatten() {
                    link.take(network.now, &bytes);
                }
                match network.acceptor.handle_datagram(network.now, address(PROGRAM), &bytes, &mut answer) {
                    DatagramOutcome::Answered => assert!(answer.len() <= bytes.len()),
                    DatagramOutcome::Ignored => {}
                    DatagramOutcome::Opened(_) => panic!("without a cookie"),
                }
            }
        });
        prop_assert!(read == bytes);
    }
}

#[test]
fn a_handshake_that_loses_the_brokers_certificates_adds_no_pings() {
    // the broker has acknowledged the program's hello, and the certificates behind it are lost
    let faults = NetworkFaults { lost: 73, doubled: 79, spread: 58, seed: 1_233_161_091_481_020_128 };
    let mut network = Network::new(faults);
    let bytes = [content(1, 1), Vec::new()];
    assert_eq!(exchange(&mut network, &bytes), bytes);
    // 165 when each full datagram of the handshake was followed by a ping
    assert!(network.sent < 40, "{} datagrams", network.sent);
}

pub(crate) fn established() -> Network {
    let mut network = Network::new(NetworkFaults { lost: 0, doubled: 0, spread: 0, seed: 1 });
    let bytes = [vec![1; 10], vec![2; 10]];
    assert_eq!(exchange(&mut network, &bytes), bytes);
    network
}

#[test]
fn an_end_that_vanishes_is_given_up_and_one_that_is_silent_is_not() {
    let mut network = established();
    let start = network.now;
    while network.now < start + Duration::from_secs(600) {
        network.step();
    }
    assert!(!network.is_over(), "silence is not the end");
    network.program = None;
    let start = network.now;
    while network.broker.as_ref().is_some_and(|broker| broker.end().is_none()) {
        assert!(network.now < start + Duration::from_secs(40), "its place is never free");
        network.step();
    }
    assert_eq!(network.broker.as_ref().and_then(|broker| broker.end().cloned()), Some(LinkEnd::Gone));
}

#[test]
fn a_link_that_holds_nothing_has_sent_all_that_was_written() {
    // a small piece in a datagram of its own counts twice its bytes against the limit on bytes in flight; a
    // large piece ends anywhere in a datagram
    for longest in [30, 1500, 1400, 1300, 4000] {
        let mut network = established();
        let (mut written, mut read, mut held, mut datagram) = (0, 0, 0, Vec::new());
        for _ in 0..2000 {
            let now = network.now;
            let [program, broker] = [&mut network.program, &mut network.broker].map(|link| link.as_mut());
            let (program, broker) = (program.expect("it lives"), broker.expect("it lives"));
            let length = 1 + network.chance.below(longest) as usize;
            written += program.write(&vec![7; length]).expect("the broker is there");
            while program.next_datagram(now, &mut datagram) {
                broker.take(now, &datagram);
            }
            while let Some(count) = broker.read_some(&mut [0; 4000]) {
                read += count;
            }
            if program.is_held() {
                held += 1;
                // acknowledgements come, and time passes
                (0..3).for_each(|_| network.step());
            } else {
                assert_eq!(read, written, "nothing is held, and not all has left");
            }
        }
        (0..100).for_each(|_| network.step());
        assert!(!network.program.as_ref().expect("it lives").is_held(), "of nothing");
        assert!((1..1900).contains(&held), "it is held now and then: {held} of {longest}");
    }
}

#[test]
fn nobody_gets_a_link_or_a_long_answer_without_the_cookie() {
    let mut network = Network::new(NetworkFaults { lost: 0, doubled: 0, spread: 0, seed: 1 });
    let mut first = Vec::new();
    assert!(network.program.as_mut().expect("it is there").next_datagram(network.now, &mut first));
    let mut answer = Vec::new();
    for host in 0..200 {
        let forged = SocketAddr::from(([192, 0, 2, host], 1000));
        assert!(matches!(
            network.acceptor.handle_datagram(network.now, forged, &first, &mut answer),
            DatagramOutcome::Answered
        ));
        assert!(answer.len() < first.len() / 4, "{} bytes", answer.len());
    }
    // the cookie of one address is not valid for another one
    let program = network.program.as_mut().expect("it is there");
    program.take(network.now, &answer);
    let mut second = Vec::new();
    assert!(program.next_datagram(network.now, &mut second));
    let other = SocketAddr::from(([192, 0, 2, 7], 1000));
    assert!(!matches!(
        network.acceptor.handle_datagram(network.now, other, &second, &mut answer),
        DatagramOutcome::Opened(_)
    ));
    let own = SocketAddr::from(([192, 0, 2, 199], 1000));
    assert!(matches!(
        network.acceptor.handle_datagram(network.now, own, &second, &mut answer),
        DatagramOutcome::Opened(_)
    ));
}

#[test]
fn a_program_whose_cookie_is_of_the_broker_before_is_told_at_once() {
    let mut network = Network::new(NetworkFaults { lost: 0, doubled: 0, spread: 0, seed: 1 });
    while network.sent < 2 {
        network.step(); // the hello, and the cookie
    }
    network.acceptor = DatagramAcceptor::new(&KEYS.broker, IDLE).expect("TLS 1.3");
    let start = network.now;
    while !network.is_over() {
        assert!(network.now < start + Duration::from_secs(1), "it waits for an answer");
        network.step();
    }
    assert!(network.broker.is_none());
}

#[test]
fn a_program_that_was_refused_keeps_the_reason_when_the_broker_knows_the_link_no_more() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let authority = Authority::new(directory.path(), "brokers");
    let own = authority.certify("broker", &["localhost"]);
    let client_authority = Some(authority.file.clone());
    let broker = TlsService { own, client_authority, revocations: None }.read(Uncertified::Refused);
    let program = TlsClient::read("localhost", &authority.file, None).expect("it was written");
    let mut network = Network::new(NetworkFaults { lost: 0, doubled: 0, spread: 0, seed: 1 });
    let link = DatagramLink::connect(network.now, address(BROKER), &program);
    network.program = Some(link.expect("a name"));
    network.acceptor = DatagramAcceptor::new(&broker.expect("they are sound"), IDLE).expect("TLS 1.3");
    // the program's part of the handshake has no certificate
    while network.broker.as_ref().is_none_or(|broker| broker.end().is_none()) {
        network.step();
    }
    let (now, mut broker) = (network.now, network.broker.take().expect("it has ended"));
    let program = network.program.as_mut().expect("it is there");
    let (mut refusal, mut datagram, mut reset) = (Vec::new(), Vec::new(), Vec::new());
    assert!(broker.next_datagram(now, &mut refusal));
    drop(broker);
    // the program has not read the refusal yet
    program.write(b"hello").expect("it knows of no end");
    while reset.is_empty() && program.next_datagram(now, &mut datagram) {
        network.acceptor.handle_datagram(now, address(PROGRAM), &datagram, &mut reset);
    }
    assert!(!reset.is_empty(), "the acceptor resets a link that it does not know");
    [refusal, reset].iter().for_each(|datagram| program.take(now, datagram));
    assert!(matches!(program.end(), Some(LinkEnd::Refused(_))), "{:?}", program.end());
}

/// Runs a test with a broker that listens with UDP alone. If `asks` is true, it asks for certificates of the
/// programs' authority.
pub(crate) fn with_udp(
    permissions: Option<&str>,
    test: impl FnOnce(&dyn Fn(Option<CertifiedFiles>) -> TlsAddress, &Authority) + Send + 'static,
) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let brokers = Authority::new(directory.path(), "brokers");
    let programs = Authority::new(directory.path(), "programs");
    let own = brokers.certify("broker", &["localhost"]);
    let service =
        TlsService { own, client_authority: permissions.map(|_| programs.file.clone()), revocations: None };
    let mut broker = broker();
    if let Some(rules) = permissions {
        broker = broker.with_permissions(Permissions::parse(rules, &|_| None).expect("it is sound"));
    }
    with_server(
        broker,
        move |server| {
            server.use_tls(&service).expect("the files are sound");
            let any = "127.0.0.1:0".parse().expect("an address");
            vec![server.listen_udp(any, Exposure::Loopback).expect("it listens")]
        },
        move |at| {
            let _directory = directory;
            let (address, file) = (at[0], brokers.file.clone());
            let place = |own| TlsAddress {
                host: "localhost".to_owned(),
                address,
                authority: Some(file.clone()),
                own,
                token: None,
            };
            test(&place, &programs);
        },
    );
}

#[test]
fn events_pass_by_udp_and_a_program_that_leaves_frees_its_place() {
    with_udp(None, |place, _| {
        let mut one = Client::at(&BrokerAddress::Udp(place(None))).expect("it listens");
        one.subscribe(&SubscriptionSpec::new("#")).expect("it fits");
        for length in [0, 10, 1400, 100_000, 3 << 20] {
            let mut other = Client::connect_udp(&place(None)).expect("it listens");
            let topic = other.advertise(&Advertisement::new("t")).expect("a topic");
            let payload = content(length, length);
            other.publish(topic, &EventDraft::new(&payload)).expect("the broker is there");
            other.flush().expect("the broker is there");
            drop(other);
            let got = loop {
                // waits for less than 9 s: a keep-alive every 9 s would wake an end that sleeps by mistake
                // although there is room, and so hide the mistake
                match one.receive(Some(Duration::from_secs(8))).expect("the broker is there") {
                    Some(unisono_events_client::Reception::Event(event)) => break event,
                    Some(_) => {}
                    None => panic!("no event"),
                }
            };
            assert!(got.payload.bytes() == payload, "{length}");
        }
        let start = Instant::now();
        while one.statistics().expect("it answers").clients > 1 {
            assert!(start.elapsed() < Duration::from_secs(20), "the others are still there");
        }
    });
}

#[test]
fn events_of_a_program_that_has_gone_wait_for_room_by_udp_too() {
    with_udp(None, |place, _| {
        let again = Some(AgainSpec { after_ns: 60_000_000_000, attempts: 9, window: 1 });
        let (queue_events, full) = (4, WhenFull::BlockSupplier);
        let mut consumer = Client::connect_udp(&place(None)).expect("it listens");
        let spec = SubscriptionSpec { again, queue_events, full, ..SubscriptionSpec::new("late") };
        consumer.subscribe(&spec).expect("it fits");
        let mut supplier = Client::connect_udp(&place(None)).expect("it listens");
        let advertisement = Advertisement { reliable: true, ..Advertisement::new("late") };
        let topic = supplier.advertise(&advertisement).expect("a topic");
        for number in 0..200_u64 {
            supplier.publish(topic, &EventDraft::new(&number.to_le_bytes())).expect("it leaves");
        }
        drop(supplier);
        // the broker notices the end while the consumer has no room
        std::thread::sleep(Duration::from_millis(300));
        for number in 0..200_u64 {
            let event = event(&mut consumer);
            assert_eq!(*event.payload.bytes(), number.to_le_bytes());
            consumer.acknowledge(&event).expect("it leaves");
        }
        let left = notice(&mut consumer);
        assert!(matches!(left, NoticeText::Gone { died: false, .. }), "its goodbye was read: {left:?}");
    });
}

#[test]
fn a_program_that_makes_no_call_lives_on_and_reads_what_has_come() {
    with_udp(None, |place, _| {
        let mut quiet = Client::connect_udp(&place(None)).expect("it listens");
        quiet.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
        let mut other = Client::connect_udp(&place(None)).expect("it listens");
        let topic = other.advertise(&Advertisement::new("t")).expect("a topic");
        // the test is about this time: it is longer than the limit for a silent program (5 s)
        let end = Instant::now() + Duration::from_secs(7);
        while Instant::now() < end {
            other.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
            std::thread::sleep(Duration::from_millis(100));
        }
        other.publish(topic, &EventDraft::new(b"last")).expect("it leaves");
        while event(&mut quiet).payload.bytes().to_vec() != b"last" {}
        assert_eq!(quiet.statistics().expect("it is connected").clients, 2);
    });
}

#[test]
fn certificates_name_programs_and_strangers_are_told_why_they_get_no_further() {
    let rules = "[[allow]]\nwho = [\"certificate:line1\"]\npublish = [\"mine\"]\nsubscribe = [\"mine\"]";
    with_udp(Some(rules), |place, programs| {
        let mut line1 =
            Client::connect_udp(&place(Some(programs.certify("line1", &["line1"])))).expect("it may");
        line1.subscribe(&SubscriptionSpec::new("mine")).expect("it may");
        let topic = line1.advertise(&Advertisement::new("mine")).expect("it may");
        line1.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
        assert_eq!(event(&mut line1).payload.bytes().to_vec(), b"x");
        assert!(line1.advertise(&Advertisement::new("theirs")).is_err());
        let line2 = Client::connect_udp(&place(Some(programs.certify("line2", &["line2"]))));
        assert!(matches!(line2, Err(Error::SentAway(_))), "{line2:?}");
        let none = Client::connect_udp(&place(None)).expect_err("it asks for one");
        assert!(none.to_string().contains("certificate"), "{none}");
        let wrong = TlsAddress { authority: Some(programs.file.clone()), ..place(None) };
        let wrong = Client::connect_udp(&wrong).expect_err("not of this authority");
        assert!(wrong.to_string().contains("certificate"), "{wrong}");
        line1.statistics().expect("nobody else notices");
    });
}

#[test]
fn an_address_in_use_and_one_where_nobody_serves_are_said() {
    with_udp(None, |place, _| {
        let mut second = unisono_broker::Server::new(broker(), unisono_events_client::ChannelWait::Sleep)
            .expect("descriptors");
        let directory = tempfile::tempdir().expect("a scratch directory");
        let own = Authority::new(directory.path(), "a").certify("broker", &["localhost"]);
        second
            .use_tls(&TlsService { own, client_authority: None, revocations: None })
            .expect("the files are sound");
        let taken =
            second.listen_udp(place(None).address, Exposure::Loopback).expect_err("taken").to_string();
        assert!(taken.contains("in use"), "{taken}");
        let everywhere = second.listen_udp("0.0.0.0:0".parse().expect("an address"), Exposure::Loopback);
        assert!(everywhere.is_err(), "it asks for nothing");
        let free =
            UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
        let nobody = Client::connect_udp(&TlsAddress { address: free, ..place(None) });
        let nobody = nobody.expect_err("nobody").to_string();
        assert!(nobody.contains("no broker at udp:"), "{nobody}");
    });
}

/// Binds a datagram socket to a port that may be in use.
fn bind_again(
    address: SocketAddr,
    share: impl FnOnce(&rustix::fd::OwnedFd) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    use rustix::net::{AddressFamily, SocketType, bind, socket};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::DGRAM, None)?;
    share(&socket)?;
    bind(&socket, &address)
}

#[test]
fn a_stranger_cannot_bind_the_port_that_a_broker_serves_at() {
    use rustix::net::sockopt::set_socket_reuseaddr;
    with_udp(None, |place, _| {
        let address = place(None).address;
        // the kernel asks every socket at the address: the listener's, and the one of each program
        for programs in 0..2 {
            let _connected: Vec<_> =
                (0..programs).map(|_| Client::connect_udp(&place(None)).expect("it listens")).collect();
            for host in ["127.0.0.1", "0.0.0.0", "[::]"] {
                let theirs: SocketAddr = format!("{host}:{}", address.port()).parse().expect("an address");
                let bound = bind_again(theirs, |socket| set_socket_reuseaddr(socket, true));
                if bound == Err(rustix::io::Errno::AFNOSUPPORT) {
                    eprintln!("skipped: this host has no IPv6");
                    continue;
                }
                assert_eq!(bound, Err(rustix::io::Errno::ADDRINUSE), "{theirs}, {programs} programs");
            }
        }
    });
}
