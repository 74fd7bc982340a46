//! A broker hands its sockets and its log over to another process, here: to another server of the test.

use crate::common::watchdog::within_a_minute;
use crate::datagrams::{IDLE, KEYS, with_udp};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use unisono_broker::log::{EventLog, LogBounds};
use unisono_broker::{Broker, Exposure, Limits, OWNER, Permissions, ServeEnd, Server, SocketOrigin};
use unisono_events_client::{
    Advertisement, ChannelWait, Client, Durability, Duration, Error, EventDraft, PublishOutcome, TlsAddress,
    TopicHandle, now,
};
use unisono_events_wire::datagram::{DatagramAcceptor, DatagramOutcome};
use unisono_fairqueue::{ClassSpec, Hierarchy};

fn broker() -> Broker {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    Broker::new(tree.expect("it is sound"), Limits::default())
}

fn add_log(broker: &mut Broker, directory: &Path) {
    let log = EventLog::open(&directory.join("log"), LogBounds::default()).expect("the log opens");
    broker.add_log(log, Duration::ZERO, Vec::new());
    broker.keep_again(now()).expect("the log is read");
}

fn durable(client: &mut Client) -> TopicHandle {
    let offer = Advertisement { durability: Durability::Synced, ..Advertisement::new("plant/1") };
    client.advertise(&offer).expect("a topic")
}

fn publish(client: &mut Client, topic: TopicHandle) -> u64 {
    let published = client.try_publish(topic, &EventDraft::new(b"x")).expect("the broker is there");
    assert_eq!(published.outcome, PublishOutcome::Synced(0));
    published.sequence
}

/// Serves during the test; returns the reason for the server's end.
fn serving(server: &mut Server, test: impl FnOnce()) -> ServeEnd {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| server.serve(&|| is_over.load(Ordering::Relaxed)));
        let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        is_over.store(true, Ordering::Relaxed);
        let end = served.join().expect("it does not panic").expect("it serves");
        tested.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        end
    })
}

#[test]
fn a_broker_whose_successor_fails_at_any_step_serves_on_with_all_connections() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let unix = directory.path().join("events");
        let mut server = Server::new(broker(), ChannelWait::Sleep).expect("descriptors");
        add_log(server.broker_mut(), directory.path());
        server.listen_unix(&unix, OWNER).expect("it listens");
        server.listen_tcp(([127, 0, 0, 1], 0).into(), Exposure::Loopback).expect("it listens");
        let end = serving(&mut server, || {
            let mut client = Client::connect_unix(&unix).expect("it listens");
            let topic = durable(&mut client);
            let successor = || Client::connect_shared(&unix).expect("it listens").take_over();
            assert_eq!(publish(&mut client, topic), 1);
            let mut asked = successor().expect("it is the same user");
            assert_eq!(asked.sockets().len(), 2);
            assert_eq!(asked.log(), Some(&*directory.path().join("log").canonicalize().expect("it exists")));
            drop(asked);
            assert_eq!(publish(&mut client, topic), 2);
            let mut released = successor().expect("it is the same user");
            released.release().expect("its log is sound");
            let open = EventLog::open(&directory.path().join("log"), LogBounds::default());
            drop(open.expect("the log is free"));
            drop(released);
            assert_eq!(publish(&mut client, topic), 3);
            // the sockets went to another successor since
            let mut first = successor().expect("it is the same user");
            let _second = successor().expect("it is the same user");
            let refused = first.release().expect_err("it is not the last one");
            assert!(matches!(&refused, Error::Refused(why) if why.contains("another process")), "{refused}");
            assert_eq!(publish(&mut client, topic), 4);
        });
        assert_eq!(end, ServeEnd::Stopped);
        assert!(unix.exists());
        drop(server);
        assert!(!unix.exists());
    });
}

#[test]
fn a_successor_serves_the_clients_that_wait_at_the_sockets_and_has_the_events_of_the_log() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let unix = directory.path().join("events");
        let mut before = Server::new(broker(), ChannelWait::Sleep).expect("descriptors");
        add_log(before.broker_mut(), directory.path());
        before.listen_unix(&unix, OWNER).expect("it listens");
        let tcp = before.listen_tcp(([127, 0, 0, 1], 0).into(), Exposure::Loopback).expect("it listens");
        let mut after = Server::new(broker(), ChannelWait::Sleep).expect("descriptors");
        let mut waiting = None;
        let end = serving(&mut before, || {
            let mut client = Client::connect_tcp(tcp).expect("it listens");
            let topic = durable(&mut client);
            assert_eq!(publish(&mut client, topic), 1);
            let mut predecessor = Client::connect_shared(&unix).and_then(Client::take_over).expect("ours");
            after.inherit(predecessor.sockets(), SocketOrigin::Predecessor);
            after.listen_unix(&unix, 0o660).expect("it is passed");
            after.listen_tcp(tcp, Exposure::Loopback).expect("it is passed");
            assert!(after.listen_at_inherited().expect("none is left").is_empty());
            predecessor.release().expect("its log is sound");
            waiting = Some(std::thread::spawn(move || Client::connect_tcp(tcp)));
            add_log(after.broker_mut(), directory.path());
            after.own_inherited_names();
            predecessor.end();
        });
        assert_eq!(end, ServeEnd::TakenOver);
        drop(before);
        assert!(unix.exists(), "the name belongs to the successor");
        let end = serving(&mut after, || {
            let waiting = waiting.expect("it was started").join().expect("it does not panic");
            let mut client = waiting.expect("it is served");
            assert_eq!(client.statistics().expect("it answers").log.map(|log| log.next), Some(2));
            drop(Client::connect_unix(&unix).expect("it listens"));
        });
        assert_eq!(end, ServeEnd::Stopped);
        drop(after);
        assert!(!unix.exists());
    });
}

#[test]
fn only_root_and_the_brokers_own_user_take_over_and_only_by_its_socket() {
    within_a_minute(|| {
        let rules = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]";
        let broker = broker().with_permissions(Permissions::parse(rules, &|_| None).expect("it is sound"));
        let mut server = Server::new(broker, ChannelWait::Sleep).expect("descriptors");
        let tcp = server.listen_tcp(([127, 0, 0, 1], 0).into(), Exposure::Loopback).expect("it listens");
        serving(&mut server, || {
            let refused = Client::connect_tcp(tcp).and_then(Client::take_over).expect_err("it is anybody");
            assert!(matches!(&refused, Error::Refused(why) if why.starts_with("only root")), "{refused}");
            let counted = Client::connect_tcp(tcp).and_then(|mut client| client.statistics());
            assert_eq!(counted.expect("it answers").refusals["take-over"], 1);
        });
    });
}

/// Carries datagrams between one program and a broker until `is_over`. The first one is answered with the
/// cookie of another broker.
fn carry_after_another_broker(front: &UdpSocket, broker: SocketAddr, is_over: &AtomicBool) {
    let mut another = DatagramAcceptor::new(&KEYS.broker, IDLE).expect("TLS 1.3");
    let back = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    back.connect(broker).expect("an address");
    for socket in [front, &back] {
        socket.set_read_timeout(Some(std::time::Duration::from_millis(1))).expect("a time");
    }
    let (mut datagram, mut answer, mut program) = ([0; 2048], Vec::new(), None);
    while !is_over.load(Ordering::Relaxed) {
        if let Ok((length, from)) = front.recv_from(&mut datagram) {
            if program.replace(from).is_none() {
                let (now, came) = (std::time::Instant::now(), &datagram[..length]);
                let outcome = another.handle_datagram(now, from, came, &mut answer);
                assert!(matches!(outcome, DatagramOutcome::Answered));
                front.send_to(&answer, from).expect("it leaves");
            } else {
                back.send(&datagram[..length]).expect("it leaves");
            }
        }
        if let (Ok(length), Some(program)) = (back.recv(&mut datagram), program) {
            front.send_to(&datagram[..length], program).expect("it leaves");
        }
    }
}

#[test]
fn a_program_connects_although_another_broker_takes_over_meanwhile() {
    with_udp(None, |place, _| {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = front.local_addr().expect("it is bound");
        let (broker, is_over) = (place(None).address, AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| carry_after_another_broker(&front, broker, &is_over));
            let client = Client::connect_udp(&TlsAddress { address, ..place(None) });
            let answered = client.and_then(|mut client| client.statistics());
            is_over.store(true, Ordering::Relaxed);
            answered.expect("it serves");
        });
    });
}
