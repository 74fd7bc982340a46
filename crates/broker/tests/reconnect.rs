//! A client reconnects after a restart of its broker: it keeps its topics and subscriptions, and reports the
//! length of the break.

mod common;

use common::broker;
use common::watchdog::{while_serving, within_a_minute};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;
use unisono_broker::{OWNER, Server};
use unisono_events_client::{
    Advertisement, AgainSpec, BrokerAddress, ChannelWait, Client, ClientOptions, Error, EventDraft,
    ReceivedEvent, Reception, SubscriptionSpec, WhenFull,
};
use unisono_linux::poll;

const TIMEOUT: Duration = Duration::from_secs(20);

fn server(directory: &Path) -> Server {
    let mut server = Server::new(broker(), ChannelWait::Sleep).expect("descriptors are left");
    server.listen_unix(&directory.join("events"), OWNER).expect("it listens");
    server
}

fn both(directory: &Path) -> [BrokerAddress; 2] {
    [BrokerAddress::Unix(directory.join("events")), BrokerAddress::Shared(directory.join("events"))]
}

fn lasting(at: &BrokerAddress) -> Client {
    ClientOptions::new().reconnecting(TIMEOUT).connect(at).expect("it listens")
}

/// Returns the next event; notices are skipped.
fn event(client: &mut Client) -> ReceivedEvent {
    loop {
        match client.receive(Some(TIMEOUT)).expect("it goes on") {
            Some(Reception::Event(event)) => return event,
            Some(Reception::Notice { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn topics_and_subscriptions_are_there_again_and_what_was_not_answered_is_unknown() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let directory = directory.path();
        let mut first = server(directory);
        let mut parties = None;
        while_serving(&mut first, || {
            parties = Some(both(directory).map(|at| {
                let (mut supplier, mut consumer) = (lasting(&at), lasting(&at));
                let name = format!("{at:?}").replace(['/', '#', '+'], "-");
                let topic = supplier.advertise(&Advertisement::new(&name)).expect("a topic");
                let closed = supplier.advertise(&Advertisement::new("closed")).expect("a topic");
                supplier.withdraw(closed).expect("it goes on");
                let ended = consumer.subscribe(&SubscriptionSpec::new(&name)).expect("it fits");
                consumer.unsubscribe(ended).expect("it goes on");
                let again = Some(AgainSpec { after_ns: 60_000_000_000, attempts: 9, window: 1 });
                let (queue_events, full) = (1, WhenFull::BlockSupplier);
                let spec = SubscriptionSpec { again, queue_events, full, ..SubscriptionSpec::new(&name) };
                consumer.subscribe(&spec).expect("it fits");
                // one event is held, one waits, and the supplier waits with the third
                for _ in 0..2 {
                    supplier.publish(topic, &EventDraft::new(b"first")).expect("it leaves");
                }
                let held = event(&mut consumer);
                let handed = supplier
                    .publish_with_receipt(topic, &EventDraft::new(b"unanswered"), None)
                    .expect("it leaves");
                (supplier, consumer, topic, held, handed)
            }));
        });
        drop(first);
        for (mut supplier, mut consumer, topic, held, handed) in parties.into_iter().flatten() {
            assert!(consumer.receive(Some(Duration::from_millis(30))).expect("it waits").is_none());
            // a polling program is woken for the next attempt
            assert!(poll::readable([consumer.as_fd()], Some(TIMEOUT)).expect("it polls")[0]);
            let mut second = server(directory);
            while_serving(&mut second, || {
                let back = consumer.receive(Some(TIMEOUT)).expect("it comes back");
                let Some(Reception::Reconnected { away }) = back else { panic!("{back:?}") };
                assert!(away >= Duration::from_millis(30), "{away:?}");
                let unknown = supplier.outcome(handed).expect_err("that broker is gone");
                assert!(matches!(unknown, Error::Unanswered), "{unknown}");
                for payload in [b"second", b"other!"] {
                    supplier.publish(topic, &EventDraft::new(payload)).expect("it leaves");
                }
                let second = event(&mut consumer);
                assert_eq!((&*second.payload.bytes(), second.sequence), (&b"second"[..], 1));
                // its old delivery number would confirm another event and so let the next one come
                consumer.acknowledge(&held).expect("it goes on");
                assert!(consumer.receive(Some(Duration::from_millis(100))).expect("it goes on").is_none());
                consumer.acknowledge(&second).expect("it goes on");
                assert_eq!(&*event(&mut consumer).payload.bytes(), b"other!");
                let there = supplier.statistics().expect("it answers").consumers;
                assert_eq!(there.len(), 1, "what was ended stays so: {there:?}");
            });
        }
    });
}

#[test]
fn a_client_gives_up_after_its_time_and_says_why() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let directory = directory.path();
        let mut first = server(directory);
        let options = ClientOptions::new().reconnecting(Duration::from_millis(100));
        let mut clients = Vec::new();
        while_serving(&mut first, || {
            clients.extend(both(directory).map(|at| options.connect(&at).expect("it listens")));
        });
        drop(first);
        for client in &mut clients {
            let said = client.receive(None).expect_err("nobody serves").to_string();
            assert!(said.contains("no broker at") && said.contains("unisono events serve"), "{said}");
        }
    });
}

/// Runs one test alone, in a child process of this test program; returns true in that child.
fn alone(name: &str) -> bool {
    const ALONE: &str = "UNISONO_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("a program has a file");
    let mut child = std::process::Command::new(program);
    let done = child.args(["--exact", name, "--nocapture"]).env(ALONE, "1").status().expect("it starts");
    assert!(done.success(), "alone: {done}");
    false
}

#[test]
fn a_program_without_a_descriptor_left_is_told_the_same_and_comes_back() {
    // the limit applies to the whole process
    if !alone("a_program_without_a_descriptor_left_is_told_the_same_and_comes_back") {
        return;
    }
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let directory = directory.path();
        let at = BrokerAddress::Unix(directory.join("events"));
        let (mut first, mut client) = (server(directory), None);
        while_serving(&mut first, || client = Some(lasting(&at)));
        let mut client = client.expect("the broker served");
        let mut question = None;
        while_serving(&mut first, || {
            client.subscribe(&SubscriptionSpec::new("question")).expect("it fits");
            let topic = client.advertise(&Advertisement::new("question")).expect("a topic");
            let timeout = Duration::from_millis(10);
            let silent = client.request(topic, EventDraft::new(b"?"), timeout).expect_err("nobody replies");
            assert!(matches!(silent, Error::NoReply(_) | Error::NobodyReplies { .. }), "{silent}");
            question = Some(topic);
        });
        drop(first);
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).expect("less is always allowed");
        let question = question.expect("the broker served");
        let unknown = client.request(question, EventDraft::new(b"?"), TIMEOUT).expect_err("it is gone");
        assert!(matches!(unknown, Error::Unanswered), "{unknown}");
        // the client subscribes to the topic itself, and had received its own request
        while client.receive(Some(Duration::ZERO)).expect("it is away").is_some() {}
        setrlimit(Resource::Nofile, limit).expect("it was allowed");
        let mut second = server(directory);
        while_serving(&mut second, || {
            let back = client.receive(Some(TIMEOUT)).expect("it comes back");
            assert!(matches!(back, Some(Reception::Reconnected { .. })), "{back:?}");
        });
    });
}
