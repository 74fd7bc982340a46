//! UDP on a network that loses, delays and reorders: a relay in this process stands between broker and
//! programs.

use crate::common::authority::Authority;
use crate::common::{broker, with_server};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unisono_broker::{Exposure, TlsService};
use unisono_events_client::{
    Advertisement, AgainSpec, Client, Error, EventDraft, NoticeText, Reception, SubscriptionSpec, TlsAddress,
};

/// A generator that gives the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Passes the datagrams of one program on, until it is dropped.
struct Relay {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay to the broker that loses `lost` of a thousand datagrams, and delays each other one by
    /// up to `spread`.
    fn to(broker: SocketAddr, lost: u64, spread: Duration, seed: u64) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let back = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        back.connect(broker).expect("an address");
        for socket in [&front, &back] {
            socket.set_nonblocking(true).expect("a flag");
        }
        let address = front.local_addr().expect("it is bound");
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let (mut dice, mut program, mut count) = (Dice(seed), None, 0_u64);
            let mut held: BTreeMap<(Instant, u64), (bool, Vec<u8>)> = BTreeMap::new();
            let mut bytes = [0; 2048];
            while !until.load(Ordering::Relaxed) {
                let mut came = Vec::new();
                while let Ok((length, from)) = front.recv_from(&mut bytes) {
                    program = Some(from);
                    came.push((true, bytes[..length].to_vec()));
                }
                while let Ok(length) = back.recv(&mut bytes) {
                    came.push((false, bytes[..length].to_vec()));
                }
                if came.is_empty() {
                    std::thread::sleep(Duration::from_micros(100));
                }
                for datagram in came {
                    if dice.below(1000) >= lost {
                        count += 1;
                        let delay = spread.mul_f64(dice.below(1000) as f64 / 1000.0);
                        held.insert((Instant::now() + delay, count), datagram);
                    }
                }
                while let Some(entry) = held.first_entry()
                    && entry.key().0 <= Instant::now()
                {
                    // a datagram that cannot leave is lost, too
                    let _ = match entry.remove() {
                        (true, datagram) => back.send(&datagram),
                        (false, datagram) => front.send_to(&datagram, program.expect("it spoke first")),
                    };
                }
            }
        });
        Self { address, over, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn with_udp(test: impl FnOnce(&dyn Fn(Option<SocketAddr>) -> Client, SocketAddr) + Send + 'static) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let brokers = Authority::new(directory.path(), "brokers");
    let service = TlsService {
        own: brokers.certify("broker", &["localhost"]),
        client_authority: None,
        revocations: None,
    };
    with_server(
        broker(),
        move |server| {
            server.use_tls(&service).expect("the files are sound");
            let any = "127.0.0.1:0".parse().expect("an address");
            vec![server.listen_udp(any, Exposure::Loopback).expect("it listens")]
        },
        move |at| {
            let _directory = directory;
            let broker = at[0];
            let client = |relay: Option<SocketAddr>| {
                let place = TlsAddress {
                    host: "localhost".to_owned(),
                    address: relay.unwrap_or(broker),
                    authority: Some(brokers.file.clone()),
                    own: None,
                    token: None,
                };
                Client::connect_udp(&place).expect("it listens")
            };
            test(&client, broker);
        },
    );
}

/// What became of the events from 1 to the last one.
#[derive(Debug, Default)]
struct Account {
    came: u64,
    lost: u64,
    /// The cause of each gap.
    causes: Vec<String>,
}

/// Receives until all events up to `last` have come or were reported lost.
fn account(client: &mut Client, last: u64) -> Account {
    let (mut account, mut number) = (Account::default(), 0);
    while account.came + account.lost < last {
        match client.receive(Some(Duration::from_secs(20))).expect("the broker is there") {
            Some(Reception::Event(event)) => {
                assert!(event.sequence > number, "{} after {number}", event.sequence);
                assert_eq!(event.sequence, account.came + account.lost + 1, "each one came or was told");
                assert!(event.payload.bytes().iter().all(|byte| u64::from(*byte) == event.sequence % 251));
                account.came += 1;
                number = event.sequence;
            }
            Some(Reception::Notice { notice: NoticeText::Gap { first, last, lost, cause, .. }, .. }) => {
                assert_eq!((first, last - first + 1), (account.came + account.lost + 1, lost));
                account.lost += lost;
                account.causes.push(cause);
                number = last;
            }
            other => panic!("{other:?} after {account:?}"),
        }
    }
    account
}

#[test]
fn reliable_events_all_come_in_order_and_of_best_effort_each_loss_is_told() {
    const EVENTS: u64 = 600;
    with_udp(|client, broker| {
        let spread = Duration::from_millis(3);
        let relays = [Relay::to(broker, 30, spread, 7), Relay::to(broker, 30, spread, 8)];
        let [mut reliable, mut loose] = [0, 1].map(|at: usize| client(Some(relays[at].address)));
        let queue = SubscriptionSpec { queue_events: 10_000, ..SubscriptionSpec::new("feed") };
        reliable.subscribe(&queue).expect("it fits");
        loose.subscribe(&SubscriptionSpec { best_effort: true, ..queue }).expect("it fits");
        let mut supplier = client(None);
        let topic = supplier.advertise(&Advertisement::new("feed")).expect("a topic");
        std::thread::scope(|scope| {
            let reliable = scope.spawn(|| account(&mut reliable, EVENTS));
            let loose = scope.spawn(|| account(&mut loose, EVENTS));
            for number in 1..=EVENTS {
                let payload = [(number % 251) as u8; 200];
                supplier.publish(topic, &EventDraft::new(&payload)).expect("the broker is there");
                // sends no faster than the network passes on, so that only the network loses events
                if number % 4 == 0 {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            let reliable = reliable.join().expect("its account is right");
            assert_eq!((reliable.came, reliable.lost), (EVENTS, 0));
            let loose = loose.join().expect("its account is right");
            assert!(loose.lost > 0 && loose.came > EVENTS / 20, "{} of {EVENTS}", loose.came);
            assert!(loose.causes.iter().all(|cause| cause == "on-the-way"), "{:?}", loose.causes);
        });
    });
}

#[test]
fn events_that_have_come_while_a_program_computes_are_not_reported_as_lost() {
    with_udp(|client, _| {
        let (mut consumer, mut supplier) = (client(None), client(None));
        let spec = SubscriptionSpec { best_effort: true, ..SubscriptionSpec::new("feed") };
        consumer.subscribe(&spec).expect("it fits");
        let topic = supplier.advertise(&Advertisement::new("feed")).expect("a topic");
        for number in 1..=20_u8 {
            supplier.publish(topic, &EventDraft::new(&[number; 200])).expect("the broker is there");
        }
        // the broker sends its count 0.2 s after the last event, and the consumer finds both together
        std::thread::sleep(Duration::from_secs(1));
        let account = account(&mut consumer, 20);
        assert_eq!((account.came, account.lost), (20, 0), "{account:?}");
    });
}

#[test]
fn the_count_of_one_supplier_loses_no_events_of_another_that_began_after_it() {
    with_udp(|client, _| {
        let mut consumer = client(None);
        let spec = SubscriptionSpec { best_effort: true, ..SubscriptionSpec::new("+") };
        consumer.subscribe(&spec).expect("it fits");
        let mut suppliers = [client(None), client(None)];
        for (supplier, name) in suppliers.iter_mut().zip(["first", "second"]) {
            let topic = supplier.advertise(&Advertisement::new(name)).expect("a topic");
            for number in 1..=20_u8 {
                supplier.publish(topic, &EventDraft::new(&[number; 200])).expect("the broker is there");
            }
            // the broker sends its count 0.2 s after the last event
            std::thread::sleep(Duration::from_secs(1));
        }
        for number in 1..=40 {
            let came = consumer.receive(Some(Duration::from_secs(20))).expect("the broker is there");
            assert!(matches!(came, Some(Reception::Event(_))), "{came:?} in place of event {number}");
        }
    });
}

#[test]
fn a_program_that_ends_at_once_leaves_its_events_and_its_goodbye() {
    const EVENTS: u64 = 40;
    with_udp(|client, broker| {
        let mut consumer = client(None);
        consumer.subscribe(&SubscriptionSpec::new("feed")).expect("it fits");
        let relay = Relay::to(broker, 0, Duration::from_millis(5), 9);
        let mut supplier = client(Some(relay.address));
        let topic = supplier.advertise(&Advertisement::new("feed")).expect("a topic");
        // more than may be on its way before the first acknowledgement
        for number in 1..=EVENTS {
            let payload = [(number % 251) as u8; 1000];
            supplier.publish_buffered(topic, &EventDraft::new(&payload)).expect("there is room");
        }
        drop(supplier);
        let account = account(&mut consumer, EVENTS);
        assert_eq!((account.came, account.lost), (EVENTS, 0), "{account:?}");
        match consumer.receive(Some(Duration::from_secs(20))).expect("the broker is there") {
            Some(Reception::Notice { notice: NoticeText::Gone { died, .. }, .. }) => assert!(!died),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn events_too_large_for_a_datagram_come_whole_and_best_effort_excludes_what_needs_more() {
    with_udp(|client, _| {
        let mut reader = client(None);
        let loose = SubscriptionSpec { best_effort: true, ..SubscriptionSpec::new("t") };
        for odd in [
            SubscriptionSpec { reliable: true, ..loose.clone() },
            SubscriptionSpec {
                again: Some(AgainSpec { after_ns: 1_000_000, attempts: 1, window: 1 }),
                ..loose.clone()
            },
        ] {
            let refused = reader.subscribe(&odd);
            assert!(matches!(&refused, Err(Error::Refused(why)) if why.contains("leave out")), "{refused:?}");
        }
        reader.subscribe(&loose).expect("it fits");
        let mut supplier = client(None);
        let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
        let mut lengths = Vec::new();
        for length in [10, 100_000, 10, 100_000] {
            supplier.try_publish(topic, &EventDraft::new(&vec![1; length])).expect("the broker is there");
        }
        while lengths.len() < 4 {
            match reader.receive(Some(Duration::from_secs(20))).expect("the broker is there") {
                Some(Reception::Event(event)) => lengths.push(event.payload.bytes().len()),
                other => panic!("{other:?}"),
            }
        }
        lengths.sort_unstable();
        assert_eq!(lengths, [10, 10, 100_000, 100_000]);
    });
}
