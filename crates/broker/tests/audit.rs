//! The audit file: a line for what each client got and was refused, and no flood of lines.

use crate::common::{broker, with_server};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};
use unisono_broker::{AuditFile, Exposure, OWNER, Permissions};
use unisono_events_client::{Advertisement, Client, EventDraft, Reception, SubscriptionSpec};

/// Runs a test with a broker that writes an audit file, at a Unix socket and at a TCP address. `rules` gets
/// this user's number.
fn audited(
    rules: &str,
    test: impl FnOnce(&Path, std::net::SocketAddr, &dyn Fn() -> Vec<Value>) + Send + 'static,
) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let user = unisono_linux::local_socket::own_user();
    let rules = rules.replace("unix:me", &format!("unix:{user}"));
    let broker = broker().with_permissions(Permissions::parse(&rules, &|_| None).expect("it is sound"));
    let (socket, file) = (directory.path().join("events"), directory.path().join("audit"));
    let (at, place) = (socket.clone(), file.clone());
    let listen = move |server: &mut unisono_broker::Server| {
        server.listen_unix(&at, OWNER).expect("it listens");
        let file = AuditFile::open(&place).expect("it can be made");
        server.audit_to(file, Box::new(|error| panic!("{error}")));
        let any = "127.0.0.1:0".parse().expect("an address");
        vec![server.listen_tcp(any, Exposure::Loopback).expect("it listens")]
    };
    with_server(broker.with_audit(), listen, move |tcp| {
        let _directory = directory;
        let lines = || {
            let text = std::fs::read_to_string(&file).expect("it is text");
            text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
        };
        test(&socket, tcp[0], &lines);
    });
}

const RULES: &str = "[[allow]]\nwho = [\"unix:me\"]\npublish = [\"a/#\"]\nsubscribe = [\"a/#\"]\nsize = 10";

/// Waits until a line has all these texts, and returns it.
fn line(lines: &dyn Fn() -> Vec<Value>, parts: &[(&str, &str)]) -> Value {
    let start = Instant::now();
    loop {
        let all = lines();
        let has = |line: &&Value| {
            parts.iter().all(|(key, part)| line[*key].as_str().is_some_and(|text| text.contains(part)))
        };
        if let Some(line) = all.iter().find(has) {
            return line.clone();
        }
        assert!(start.elapsed() < Duration::from_secs(30), "no line with {parts:?} in {all:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn each_connection_request_and_refusal_is_a_line() {
    audited(RULES, |socket, tcp, lines| {
        let mut client = Client::connect_unix(socket).expect("it listens");
        let who = format!("unix:{}", unisono_linux::local_socket::own_user());
        let mine = ("who", who.as_str());
        line(lines, &[mine, ("action", "connect"), ("outcome", "done"), ("address", &who)]);
        client.subscribe(&SubscriptionSpec::new("a/b")).expect("it may");
        line(lines, &[mine, ("action", "subscribe"), ("outcome", "done"), ("what", "a/b")]);
        client.subscribe(&SubscriptionSpec::new("secret/#")).expect_err("it may not");
        line(
            lines,
            &[
                mine,
                ("action", "subscribe"),
                ("outcome", "refused"),
                ("what", "secret/#"),
                ("why", "may not subscribe"),
            ],
        );
        let group = SubscriptionSpec { group: Some("jobs".to_owned()), ..SubscriptionSpec::new("a/c") };
        client.subscribe(&group).expect("it may");
        line(lines, &[mine, ("action", "join-group"), ("outcome", "done"), ("what", "jobs: a/c")]);
        let topic = client.advertise(&Advertisement::new("a/b")).expect("it may");
        line(lines, &[mine, ("action", "advertise"), ("outcome", "done"), ("what", "a/b")]);
        client.advertise(&Advertisement::new("b")).expect_err("it may not");
        line(lines, &[mine, ("action", "advertise"), ("outcome", "refused"), ("what", "b")]);
        client.try_publish(topic, &EventDraft::new(&[0; 11])).expect_err("too large");
        line(lines, &[mine, ("action", "publish"), ("outcome", "refused"), ("what", "a/b")]);
        client.try_publish(topic, &EventDraft::new(&[0; 10])).expect("it fits");
        drop(client);
        line(lines, &[mine, ("action", "disconnect"), ("why", "closed the connection")]);
        Client::connect_tcp(tcp).expect_err("no rule names it");
        let stranger = line(lines, &[("action", "connect"), ("outcome", "refused"), ("why", "no rule")]);
        assert_eq!((&stranger["who"], &stranger["address"]), (&Value::Null, &"127.0.0.1".into()));
        // an accepted event leaves no line
        let published = lines().iter().filter(|line| line["action"] == "publish").count();
        assert_eq!(published, 1);
    });
}

#[test]
fn programs_that_are_introduced_to_each_other_are_named() {
    // without the bound on the size, which the broker would have to check, so that events may go through
    // rings
    let rules = RULES.replace("size = 10", "");
    audited(&rules, |socket, _, lines| {
        let mut consumer = Client::connect_shared(socket).expect("it listens");
        consumer.subscribe(&SubscriptionSpec::new("a/b")).expect("it may");
        let mut supplier = Client::connect_shared(socket).expect("it listens");
        let topic = supplier.advertise(&Advertisement::new("a/b")).expect("it may");
        supplier.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
        supplier.flush().expect("it leaves");
        while !matches!(consumer.receive(Some(Duration::from_secs(20))), Ok(Some(Reception::Event(_)))) {}
        line(lines, &[("action", "ring"), ("outcome", "done"), ("what", "a/b to unix:")]);
    });
}

#[test]
fn a_flood_of_refusals_is_one_line_a_second_with_their_number() {
    audited(RULES, |socket, _, lines| {
        let mut client = Client::connect_unix(socket).expect("it listens");
        let topic = client.advertise(&Advertisement::new("a/b")).expect("it may");
        let start = Instant::now();
        for _ in 0..2000 {
            client.try_publish(topic, &EventDraft::new(&[0; 11])).expect_err("too large");
        }
        let seconds = start.elapsed().as_secs() + 2;
        drop(client);
        let refused =
            || -> Vec<Value> { lines().into_iter().filter(|line| line["action"] == "publish").collect() };
        let count = |line: &Value| line["count"].as_u64().unwrap_or(1);
        let start = Instant::now();
        while refused().iter().map(count).sum::<u64>() < 2000 {
            assert!(start.elapsed() < Duration::from_secs(30), "{:#?}", refused());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(refused().len() as u64 <= 2 * seconds, "{:#?}", refused());
    });
}
