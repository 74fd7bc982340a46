//! However much one identity takes, something of the same kind is left to others: names, sessions,
//! declarations, shares. On the broker's state machine, without sockets.

use crate::common::bench::{BrokerBench, Comes};
use unisono_broker::AuditAction;
use unisono_events_client::{
    Advertisement, Durability, Duration, KeptHistory, PublishOutcome, RemoteSupplier, ReservedTime,
    ResumeSpec, Statistics, SubscriptionSpec, WhenLate,
};

const NAMES: [&str; 3] = ["plant", "mallory", "moll"];
const PLANT: Comes = Comes::Token("plant");
const MALLORY: Comes = Comes::Token("mallory");
const MOLL: Comes = Comes::Token("moll");

/// Makes a broker in which all identities may use all topics.
fn bench(more: &str) -> BrokerBench {
    let mut rules = String::new();
    for name in NAMES {
        rules += &format!(
            "[[allow]]\nwho = [\"token:{name}\", \"mqtt:{name}\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\n{more}\n"
        );
    }
    BrokerBench::with_rules(&rules, &NAMES)
}

fn refused(outcome: Result<(), String>, says: &str) {
    let reason = outcome.expect_err(says);
    assert!(reason.contains(says), "{reason}");
}

/// Opens sessions that outlive their connections until one is refused; returns their number.
fn sessions(bench: &mut BrokerBench, comes: Comes) -> usize {
    for number in 0..5000 {
        let (client, code, _) = bench.mqtt(comes, &format!("s{number}"), false, u32::MAX);
        if code == 0 {
            bench.gone(client);
        } else {
            assert_eq!(code, 0x97);
            return number;
        }
    }
    panic!("without an end")
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn two_identities_leave_sessions_to_a_third_one() {
    let mut bench = bench("connections = 4");
    assert_eq!(sessions(&mut bench, MALLORY), 4, "as many as its rule says");
    let mut bench = self::bench("");
    assert_eq!(sessions(&mut bench, MALLORY), 128, "as many as connections");
    let mut bench = BrokerBench::open();
    assert_eq!(sessions(&mut bench, Comes::User(7)), 2048);
    assert_eq!(sessions(&mut bench, Comes::User(8)), 1536);
    assert_eq!(sessions(&mut bench, Comes::User(9)), 64);
}

#[test]
fn one_subscriber_reserves_no_more_than_half_of_a_class() {
    let mut bench = bench("");
    let reserving = |period_ns| {
        let reserve = Some(ReservedTime { period_ns, deadline_ns: 1_000_000_000, largest: 0 });
        SubscriptionSpec { reserve, execution_ns: 1000, ..SubscriptionSpec::new("#") }
    };
    let (plant, mallory, moll) =
        (bench.program(PLANT, "p"), bench.program(MALLORY, "m"), bench.program(MOLL, "o"));
    refused(bench.subscribe(mallory, 1, reserving(1500)), "one client may have half of the class");
    bench.subscribe(mallory, 2, reserving(4500)).expect("less than half");
    refused(bench.subscribe(mallory, 3, reserving(3500)), "one client may have half of the class");
    bench.subscribe(moll, 1, reserving(4500)).expect("less than half");
    bench.subscribe(plant, 1, reserving(4500)).expect("there is room left");
    bench.wait(Duration::from_nanos(1));
    // the operator may reserve all of it
    let mut bench = BrokerBench::open();
    let root = bench.program(Comes::User(0), "r");
    bench.subscribe(root, 1, reserving(1500)).expect("root may");
}

#[test]
fn only_a_join_publishes_for_suppliers_of_other_brokers() {
    let far = || {
        let from_elsewhere = Some(RemoteSupplier { run: 7, supplier: 3 });
        Advertisement { from_elsewhere, exclusive: true, strength: u32::MAX, ..Advertisement::new("t") }
    };
    let mut bench = BrokerBench::open();
    for comes in [Comes::Anonymous, Comes::User(7)] {
        let client = bench.program(comes, "m");
        refused(bench.advertise(client, 1, far()), "add `join = true` to its rule");
    }
    let root = bench.program(Comes::User(0), "join");
    bench.advertise(root, 1, far()).expect("root may");
    assert!(matches!(bench.publish(root, 1, b"1", Some(1)), Some(Ok(PublishOutcome::Taken(_)))));
    let mut bench = self::bench("");
    let mallory = bench.program(MALLORY, "m");
    refused(bench.advertise(mallory, 1, far()), "token:mallory may not publish for suppliers");
    assert!(bench.ask(mallory).contains("\"join\":1"), "it is counted");
    let mut bench = self::bench("join = true");
    let plant = bench.program(PLANT, "p");
    bench.advertise(plant, 1, far()).expect("its rule allows it");
}

#[test]
fn wills_keep_to_the_rate_of_a_rule_and_what_mqtt_clients_publish_on_is_audited() {
    let mut bench = bench("rate = 2");
    bench.broker = bench.broker.with_audit();
    let reader = bench.program(PLANT, "p");
    bench.subscribe(reader, 1, SubscriptionSpec::new("will/#")).expect("it may");
    let _ = bench.broker.audit_entries();
    for name in ["a", "b", "c", "d", "e"] {
        let client = bench.mqtt_with_will("mallory", name, "will/x");
        bench.gone(client);
    }
    assert_eq!(bench.events(reader).len(), 2, "as many as in a second");
    assert!(bench.ask(reader).contains("\"rate\":3"), "the others are counted");
    let entries = bench.broker.audit_entries();
    let lines: Vec<String> = entries
        .iter()
        .filter(|entry| entry.subject.what.as_deref() == Some("will/x"))
        .map(|entry| format!("{:?} {:?} {}", entry.subject.action, entry.subject.outcome, entry.subject.name))
        .collect();
    let [done, refused] = ["Advertise Done", "Publish Refused"];
    let expected = [(done, "a"), (done, "b"), (refused, "c"), (refused, "d"), (refused, "e")];
    assert_eq!(lines, expected.map(|(what, name)| format!("{what} {name}")));
    assert!(
        entries
            .iter()
            .all(|entry| entry.subject.who.as_deref() != Some("") && !entry.subject.address.is_empty())
    );
    bench.wait(Duration::SECOND);
    let client = bench.mqtt_with_will("mallory", "f", "will/x");
    bench.gone(client);
    assert_eq!(bench.events(reader).len(), 1, "in the next second");
    // a topic that a client publishes on is advertised once, however many messages follow
    let (client, ..) = bench.mqtt(MOLL, "m", true, 0);
    let _ = bench.broker.audit_entries();
    for _ in 0..2 {
        bench.packet(client, 0x30, b"\0\x03a/b\0x");
    }
    let entries = bench.broker.audit_entries();
    let whats: Vec<_> =
        entries.iter().map(|entry| (entry.subject.action, entry.subject.what.as_deref())).collect();
    assert_eq!(whats, [(AuditAction::Advertise, Some("a/b"))]);
}

fn kept(topic: &str, history: KeptHistory) -> Advertisement {
    Advertisement { history, durability: Durability::Written, ..Advertisement::new(topic) }
}

#[test]
fn a_declaration_yields_to_another_identity_when_its_programs_have_gone_also_after_a_restart() {
    let squatted = || Advertisement {
        event_type: Some("squat".to_owned()),
        exclusive: true,
        ..kept("plant/heat", KeptHistory::LastValue(4))
    };
    let own = || kept("plant/heat", KeptHistory::Last(4));
    for restarts in [false, true] {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let started = || bench("").with_log(directory.path(), 1 << 20);
        let mut bench = started();
        let mallory = bench.program(MALLORY, "m");
        bench.advertise(mallory, 1, squatted()).expect("it may");
        bench.publish(mallory, 1, b"squat", None);
        let mut plant = bench.program(PLANT, "p");
        refused(bench.advertise(plant, 1, own()), "is in use otherwise");
        bench.gone(mallory);
        // while the topic keeps something, its declaration holds even for the identity that made it
        let mallory = bench.program(MALLORY, "m");
        refused(bench.advertise(mallory, 1, kept("plant/heat", KeptHistory::None)), "is in use otherwise");
        bench.gone(mallory);
        if restarts {
            drop(bench);
            bench = started();
            plant = bench.program(PLANT, "p");
        }
        bench.advertise(plant, 2, own()).expect("nobody declares otherwise");
        for payload in [b"1", b"2"] {
            bench.publish(plant, 2, payload, None);
        }
        bench.subscribe(plant, 3, SubscriptionSpec::new("plant/#")).expect("it may");
        let events: Vec<_> = bench.events(plant).into_iter().map(|event| event.payload).collect();
        assert_eq!(events, [b"1", b"2"]);
        bench.gone(plant);
        // the next run finds the declaration of the plant
        drop(bench);
        let mut bench = started();
        let plant = bench.program(PLANT, "p");
        refused(bench.advertise(plant, 1, kept("plant/heat", KeptHistory::None)), "is in use otherwise");
        bench.advertise(plant, 2, own()).expect("it is its own");
        bench.gone(plant);
        let mallory = bench.program(MALLORY, "m");
        let longer = kept("plant/heat", KeptHistory::Last(9));
        bench.advertise(mallory, 1, longer).expect("nobody declares otherwise");
        bench.subscribe(mallory, 2, SubscriptionSpec::new("plant/#")).expect("it may");
        assert_eq!(bench.events(mallory).len(), 2, "what fits is kept");
    }
}

#[test]
fn messages_of_mqtt_clients_keep_no_declaration_out() {
    let mut bench = bench("");
    let (client, ..) = bench.mqtt(MALLORY, "m", true, 0);
    bench.packet(client, 0x31, b"\0\x01t\0x");
    let plant = bench.program(PLANT, "p");
    let typed = Advertisement { event_type: Some("heat".to_owned()), ..Advertisement::new("t") };
    bench.advertise(plant, 1, typed).expect("an MQTT client declares nothing");
    let reader = bench.program(MOLL, "r");
    bench.subscribe(reader, 1, SubscriptionSpec::new("t")).expect("it may");
    assert_eq!(bench.events(reader).len(), 1, "the retained message stays");
    bench.packet(client, 0x30, b"\0\x01t\0y");
    assert_eq!(bench.events(reader).len(), 1, "and the client goes on");
}

#[test]
fn identities_that_the_log_cannot_keep_apart_are_refused_and_push_no_event_out() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = BrokerBench::open().with_log(directory.path(), 4 << 20);
    let logged = || kept("t", KeptHistory::None);
    for user in 1000..1256 {
        let client = bench.program(Comes::User(user), "p");
        bench.advertise(client, 1, logged()).expect("there is a chain");
        assert!(matches!(bench.publish(client, 1, b"x", None), Some(Ok(PublishOutcome::Written(_)))));
        bench.gone(client);
    }
    for user in 1256..1300 {
        let client = bench.program(Comes::User(user), "m");
        refused(bench.advertise(client, 1, logged()), "keeps events of 256 identities");
        bench.advertise(client, 2, Advertisement::new("t")).expect("without the log it may");
        bench.gone(client);
    }
    let first = bench.program(Comes::User(1000), "p");
    bench.advertise(first, 1, logged()).expect("it has a chain");
    let resume = Some(ResumeSpec { name: "reader".to_owned(), after: Some(0), ..ResumeSpec::default() });
    bench.subscribe(first, 2, SubscriptionSpec { resume, ..SubscriptionSpec::new("t") }).expect("it may");
    let mut came = 0;
    loop {
        let events = bench.events(first);
        if events.is_empty() {
            break;
        }
        events.iter().for_each(|event| bench.acknowledge(first, event));
        came += events.len();
    }
    assert_eq!(came, 256, "of each identity its event");
}

#[test]
fn statistics_without_names_have_the_same_sums_and_name_nobody() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = bench("").with_log(directory.path(), 1 << 20);
    let (plant, reader) = (bench.program(PLANT, "plant-7"), bench.program(MOLL, "reader-7"));
    let resume = Some(ResumeSpec { name: "billing".to_owned(), ..ResumeSpec::default() });
    bench.subscribe(reader, 1, SubscriptionSpec { resume, ..SubscriptionSpec::new("#") }).expect("it may");
    let late = WhenLate::Report;
    let group = Some("crew".to_owned());
    bench
        .subscribe(reader, 2, SubscriptionSpec { late, group, ..SubscriptionSpec::new("#") })
        .expect("it may");
    bench
        .advertise(plant, 1, Advertisement { deadline_ns: Some(1), ..Advertisement::new("customer/7") })
        .expect("it may");
    bench.broker.paused(bench.id(reader));
    bench.publish(plant, 1, b"x", None);
    bench.wait(Duration::SECOND);
    bench.broker.resumed(bench.id(reader));
    bench.work();
    let named = bench.broker.statistics(bench.now);
    let unnamed = named.clone().without_names();
    let missed = |of: &Statistics| of.missed_by_topic.values().sum::<u64>();
    assert!(missed(&named) > 0);
    let published = |of: &Statistics| of.published_by_topic.values().sum::<u64>();
    assert_eq!((published(&named), published(&unnamed)), (1, 1));
    assert_eq!((missed(&unnamed), unnamed.consumers.len()), (missed(&named), named.consumers.len()));
    let [named, unnamed] = [named, unnamed].map(|it| serde_json::to_string(&it).expect("numbers and names"));
    for name in ["plant-7", "reader-7", "billing", "crew", "customer/7"] {
        assert_eq!((named.contains(name), unnamed.contains(name)), (name != "plant-7", false), "{name}");
    }
}
