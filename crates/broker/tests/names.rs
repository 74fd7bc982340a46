//! Names have owners: groups, consumers that resume, writers, client identifiers. On the broker's state
//! machine, without sockets.

use crate::common::bench::{BenchEvent, BrokerBench, Comes};
use unisono_events_client::{
    Advertisement, AgainSpec, Durability, Duration, KeptHistory, PublishOutcome, ResumeSpec,
    SubscriptionSpec, WhenFull,
};

const BOSS: Comes = Comes::Token("boss");
const WORKER: Comes = Comes::Token("worker");
const MALLORY: Comes = Comes::Token("mallory");
const NAMES: [&str; 3] = ["boss", "worker", "mallory"];

/// Returns the rules of three clients. `of_all` are further keys of the rules of the worker and of Mallory,
/// `of_mallory` are further keys of Mallory's rule.
fn rules(of_all: &str, of_mallory: &str) -> String {
    format!(
        "[[allow]]\nwho = [\"token:boss\", \"mqtt:boss\"]\npublish = [\"#\"]\n\
         [[allow]]\nwho = [\"token:worker\", \"mqtt:worker\"]\npublish = [\"secret/#\"]\nsubscribe = [\"#\"]\n{of_all}\n\
         [[allow]]\nwho = [\"token:mallory\", \"mqtt:mallory\"]\npublish = [\"secret/#\", \"public/#\"]\n\
         subscribe = [\"public/#\"]\n{of_all}\n{of_mallory}\n"
    )
}

fn bench(of_all: &str) -> BrokerBench {
    BrokerBench::with_rules(&rules(of_all, ""), &NAMES)
}

fn in_group(topics: &str, group: &str, linger_ns: u64) -> SubscriptionSpec {
    SubscriptionSpec { group: Some(group.to_owned()), linger_ns, ..SubscriptionSpec::new(topics) }
}

fn resuming(topics: &str, name: &str) -> SubscriptionSpec {
    let resume = ResumeSpec { name: name.to_owned(), ..ResumeSpec::default() };
    SubscriptionSpec { resume: Some(resume), ..SubscriptionSpec::new(topics) }
}

fn forgetting(topics: &str, name: &str) -> SubscriptionSpec {
    let resume = ResumeSpec { name: name.to_owned(), forget: true, ..ResumeSpec::default() };
    SubscriptionSpec { resume: Some(resume), ..SubscriptionSpec::new(topics) }
}

fn logged(topic: &str, writer: Option<&str>) -> Advertisement {
    let writer = writer.map(str::to_owned);
    Advertisement { durability: Durability::Written, writer, ..Advertisement::new(topic) }
}

fn refused(outcome: Result<(), String>, says: &str) {
    let reason = outcome.expect_err(says);
    assert!(reason.contains(says), "{reason}");
}

fn payloads(events: &[BenchEvent]) -> Vec<&str> {
    events.iter().map(|event| std::str::from_utf8(&event.payload).expect("a text")).collect()
}

#[test]
fn each_identity_has_groups_of_its_own() {
    let mut bench = bench("");
    let (boss, worker, mallory) =
        (bench.program(BOSS, "b"), bench.program(WORKER, "w"), bench.program(MALLORY, "m"));
    bench.advertise(boss, 1, Advertisement::new("public/x")).expect("it may");
    // mallory is the first to use the name, with another queue, and keeps nobody out
    let squatting = SubscriptionSpec { queue_events: 7, ..in_group("public/x", "jobs", 1_000_000_000) };
    bench.subscribe(mallory, 1, squatting).expect("it is its own");
    for number in [1, 2] {
        bench.subscribe(worker, number, in_group("public/x", "jobs", 0)).expect("it is its own");
    }
    bench.publish(boss, 1, b"1", None);
    assert_eq!(
        (payloads(&bench.events(worker)), payloads(&bench.events(mallory))),
        (vec!["1"], vec!["1"])
    );
    // the same token over MQTT is the same owner
    let (client, code, _) = bench.mqtt(MALLORY, "m", true, 0);
    assert_eq!(code, 0);
    assert_eq!(bench.mqtt_subscribe(client, "$share/crew/public/x", 1), 1);
    let (other, ..) = bench.mqtt(WORKER, "w", true, 0);
    assert_eq!(bench.mqtt_subscribe(other, "$share/crew/public/x", 1), 1);
    let (third, ..) = bench.mqtt(WORKER, "w2", true, 0);
    assert_eq!(bench.mqtt_subscribe(third, "$share/crew/public/x", 1), 1);
    bench.publish(boss, 1, b"2", None);
    let came = [client, other, third].map(|it| bench.messages(it).len());
    assert_eq!((came[0], came[1] + came[2]), (1, 1));
    let told = bench.ask(worker);
    assert!(told.contains("\"name\":\"jobs\"") && !told.contains("token:"), "{told}");
}

#[test]
fn a_group_named_like_a_shared_subscription_is_for_its_filter_alone_and_no_group_lingers_for_years() {
    let mut bench = bench("names = [\"jobs\"]");
    let (worker, mallory) = (bench.program(WORKER, "w"), bench.program(MALLORY, "m"));
    for squatted in ["$share/jobs/secret/#", "$share/crew/a"] {
        refused(
            bench.subscribe(mallory, 1, in_group("public/x", squatted, 0)),
            "is a shared subscription of MQTT",
        );
    }
    refused(
        bench.subscribe(mallory, 1, in_group("public/x", "$share/jobs", 0)),
        "are $share/NAME/FILTER",
    );
    refused(bench.subscribe(mallory, 1, in_group("public/x", "a\0b", 0)), "with a NUL");
    bench.subscribe(mallory, 1, in_group("public/x", "$share/jobs/public/x", 0)).expect("its filter");
    bench.subscribe(worker, 1, in_group("public/x", "$share/jobs/public/x", 0)).expect("its filter");
    refused(bench.subscribe(mallory, 2, in_group("public/x", "own", u64::MAX)), "for 604800 s at most");
    bench.subscribe(mallory, 2, in_group("public/x", "jobs", u64::MAX)).expect("rules list it");
}

#[test]
fn a_member_of_a_shared_group_may_see_all_that_the_group_asks_for() {
    let mut bench = bench("names = [\"jobs\"]");
    let (worker, mallory) = (bench.program(WORKER, "w"), bench.program(MALLORY, "m"));
    bench.subscribe(worker, 1, in_group("secret/#", "jobs", 0)).expect("it is shared");
    refused(
        bench.subscribe(mallory, 1, in_group("public/x", "jobs", 0)),
        "may not subscribe to; name another",
    );
    bench.unsubscribe(worker, 1);
    bench.subscribe(mallory, 1, in_group("public/x", "jobs", 0)).expect("it is shared");
    // a later member may not ask for more topics than the present members may see
    refused(
        bench.subscribe(worker, 1, in_group("secret/#", "jobs", 0)),
        "not every consumer of the group",
    );
    bench.subscribe(worker, 1, in_group("public/+", "jobs", 0)).expect("both may see it");
    // the same holds for a shared subscription, and for a program that joins a shared group
    let (client, ..) = bench.mqtt(WORKER, "w", true, 0);
    assert_eq!(bench.mqtt_subscribe(client, "$share/jobs/secret/#", 1), 1);
    let again = Some(AgainSpec { after_ns: u64::MAX, attempts: u32::MAX, window: 32 });
    let spec = SubscriptionSpec {
        queue_events: 8192,
        queue_bytes: 1 << 20,
        late: unisono_events_client::WhenLate::Drop,
        again,
        ..in_group("public/x", "$share/jobs/secret/#", 0)
    };
    refused(bench.subscribe(mallory, 9, spec), "is a shared subscription of MQTT to `secret/#`");
}

#[test]
fn a_backlog_goes_to_members_alone_that_may_see_all_of_it() {
    let mut bench = bench("names = [\"jobs\"]");
    let (boss, worker, mallory) =
        (bench.program(BOSS, "b"), bench.program(WORKER, "w"), bench.program(MALLORY, "m"));
    bench.advertise(boss, 1, Advertisement::new("secret/plan")).expect("it may");
    let again = Some(AgainSpec { after_ns: 1_000_000_000, attempts: 9, window: 1 });
    let lingering = |topics| SubscriptionSpec { again, ..in_group(topics, "jobs", 60_000_000_000) };
    bench.subscribe(worker, 1, lingering("secret/#")).expect("it is shared");
    for _ in 0..3 {
        bench.publish(boss, 1, b"secret", None);
    }
    assert_eq!(bench.events(worker).len(), 1);
    // waiting and unacknowledged events stay in the group
    bench.gone(worker);
    refused(bench.subscribe(mallory, 1, lingering("public/x")), "may not subscribe to; name another");
    let worker = bench.program(WORKER, "w");
    bench.subscribe(worker, 1, lingering("public/x")).expect("it may see them");
    refused(bench.subscribe(mallory, 1, lingering("public/x")), "may not subscribe to; name another");
    loop {
        let events = bench.events(worker);
        if events.is_empty() {
            break;
        }
        assert_eq!(events[0].topic, "secret/plan");
        events.iter().for_each(|event| bench.acknowledge(worker, event));
    }
    bench.publish(boss, 1, b"secret", None);
    bench.subscribe(mallory, 1, lingering("public/x")).expect("nothing waits any more");
    bench.wait(Duration::from_secs(5));
    assert_eq!(bench.events(mallory), []);
}

#[test]
fn a_member_that_could_not_join_leaves_the_group_as_it_was() {
    let mut bench = bench("names = [\"jobs\"]");
    let (boss, worker, mallory) =
        (bench.program(BOSS, "b"), bench.program(WORKER, "w"), bench.program(MALLORY, "m"));
    let lingering = |topics| in_group(topics, "jobs", 60_000_000_000);
    bench.subscribe(worker, 1, lingering("secret/#")).expect("it is shared");
    bench.gone(worker);
    // the channel refuses the subscription after the check of names
    let other = SubscriptionSpec { queue_events: 7, ..lingering("public/x") };
    refused(bench.subscribe(mallory, 1, other), "has another inbox");
    bench.advertise(boss, 1, Advertisement::new("secret/plan")).expect("it may");
    bench.publish(boss, 1, b"secret", None);
    refused(bench.subscribe(mallory, 1, lingering("public/x")), "may not subscribe to; name another");
}

#[test]
fn a_shared_name_is_for_the_clients_alone_whose_rules_list_it() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let rules = rules("", "names = [\"jobs\", \"billing\", \"shop\"]");
    let mut bench = BrokerBench::with_rules(&rules, &NAMES).with_log(directory.path(), 1 << 20);
    let worker = bench.program(WORKER, "w");
    refused(
        bench.subscribe(worker, 1, in_group("secret/#", "jobs", 0)),
        "add it to `names` in the rule of token:worker",
    );
    refused(
        bench.subscribe(worker, 1, resuming("secret/#", "billing")),
        "is for the clients whose rules list",
    );
    refused(
        bench.advertise(worker, 2, logged("secret/a", Some("shop"))),
        "is for the clients whose rules list",
    );
    let (client, ..) = bench.mqtt(WORKER, "w", true, 0);
    assert_eq!(
        bench.mqtt_subscribe(client, "$share/jobs/secret/#", 1),
        0x87,
        "of $share/NAME/FILTER, NAME is listed"
    );
}

#[test]
fn a_consumer_that_resumes_belongs_to_its_identity_also_after_a_restart() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let started = || BrokerBench::with_rules(&rules("", ""), &NAMES).with_log(directory.path(), 1 << 20);
    let mut bench = started();
    let (boss, worker) = (bench.program(BOSS, "b"), bench.program(WORKER, "w"));
    bench.subscribe(worker, 1, resuming("secret/#", "billing")).expect("it is free");
    bench.advertise(boss, 1, logged("secret/order", None)).expect("it may");
    bench.publish(boss, 1, b"1", None);
    let events = bench.events(worker);
    bench.acknowledge(worker, &events[0]);
    bench.gone(worker);
    bench.publish(boss, 1, b"2", None);
    for restarted in [false, true] {
        if restarted {
            drop(bench);
            bench = started();
        }
        // another identity has a position of its own under this name, and forgets its own
        let mallory = bench.program(MALLORY, "m");
        bench.subscribe(mallory, 1, forgetting("public/#", "billing")).expect("it is its own");
        bench.unsubscribe(mallory, 1);
        bench.subscribe(mallory, 1, resuming("public/#", "billing")).expect("it is its own");
        bench.gone(mallory);
    }
    let worker = bench.program(WORKER, "w");
    bench.subscribe(worker, 1, resuming("secret/#", "billing")).expect("it is its own");
    assert_eq!(payloads(&bench.events(worker)), ["2"]);
    assert_eq!(bench.notes, [""; 0]);
}

#[test]
fn a_name_of_the_log_without_an_owner_belongs_to_the_first_that_uses_it_and_the_log_says_so() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let start = || BrokerBench::with_rules(&rules("", ""), &NAMES).with_log(directory.path(), 1 << 20);
    let mut bench = start();
    let worker = bench.program(WORKER, "w");
    bench.subscribe(worker, 1, resuming("secret/#", "billing")).expect("it is free");
    bench.advertise(worker, 2, logged("secret/a", Some("shop"))).expect("it is free");
    bench.publish(worker, 2, b"1", Some(1));
    drop(bench);
    // a log of a broker without owners
    std::fs::remove_file(directory.path().join("owners")).expect("it is there");
    let mut bench = start();
    let (worker, mallory) = (bench.program(WORKER, "w"), bench.program(MALLORY, "m"));
    bench.subscribe(worker, 1, resuming("secret/#", "billing")).expect("it is the first");
    bench.advertise(worker, 2, logged("secret/a", Some("shop"))).expect("it is the first");
    assert_eq!(
        bench.notes,
        [
            "the consumer `billing` of the log had no owner; it belongs to token:worker from now on",
            "the writer `shop` of the log had no owner; it belongs to token:worker from now on",
        ]
    );
    bench.subscribe(mallory, 1, resuming("public/#", "billing")).expect("it has one of its own");
    assert_eq!(bench.notes.len(), 2);
}

#[test]
fn a_name_that_another_identity_took_first_is_free_for_its_owner_and_stays_its_own() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let started = || BrokerBench::with_rules(&rules("", ""), &NAMES).with_log(directory.path(), 1 << 20);
    let mut bench = started();
    let (boss, worker, mallory) =
        (bench.program(BOSS, "b"), bench.program(WORKER, "w"), bench.program(MALLORY, "m"));
    bench.subscribe(mallory, 1, forgetting("public/#", "billing")).expect("it is the first");
    bench.advertise(mallory, 2, logged("secret/a", Some("shop"))).expect("it is the first");
    let _ = bench.publish(mallory, 2, b"!", Some(1 << 62));
    bench.subscribe(worker, 1, resuming("secret/#", "billing")).expect("it is its own");
    refused(bench.subscribe(worker, 2, resuming("secret/#", "billing")), "is connected already");
    bench.advertise(worker, 3, logged("secret/a", Some("shop"))).expect("it is its own");
    assert!(matches!(bench.publish(worker, 3, b"1", Some(1)), Some(Ok(PublishOutcome::Written(_)))));
    let events = bench.events(worker);
    assert_eq!(payloads(&events), ["1"]);
    bench.acknowledge(worker, &events[0]);
    bench.gone(worker);
    bench.advertise(boss, 1, logged("secret/b", None)).expect("it may");
    bench.publish(boss, 1, b"2", None);
    // the plain name becomes free, and the worker keeps its position
    bench.unsubscribe(mallory, 1);
    drop(bench);
    let mut bench = started();
    let worker = bench.program(WORKER, "w");
    bench.subscribe(worker, 1, resuming("secret/#", "billing")).expect("it is its own");
    assert_eq!(payloads(&bench.events(worker)), ["2"]);
    bench.advertise(worker, 3, logged("secret/a", Some("shop"))).expect("it is its own");
    assert_eq!(bench.publish(worker, 3, b"1", Some(1)), Some(Ok(PublishOutcome::Duplicate)));
    refused(bench.advertise(worker, 4, logged("secret/a", Some("a\0b"))), "a writer's name with a NUL");
}

#[test]
fn an_identity_makes_so_many_names_and_no_more_and_frees_them_again() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = BrokerBench::with_rules(&rules("", ""), &NAMES).with_log(directory.path(), 1 << 20);
    let mallory = bench.program(MALLORY, "m");
    let files = || std::fs::read_dir(directory.path().join("consumers")).expect("it is there").count();
    let mut made = 0;
    let refused_at = loop {
        match bench.subscribe(mallory, 1, resuming("public/#", &format!("n{made}"))) {
            Ok(()) => made += 1,
            Err(reason) => break reason,
        }
        bench.unsubscribe(mallory, 1);
        assert!(made < 5000, "without an end");
    };
    assert!(refused_at.contains("token:mallory has 256 names of consumers"), "{refused_at}");
    assert!(refused_at.contains("resume it with `forget`, and unsubscribe"), "{refused_at}");
    assert_eq!((made, files()), (256, 256));
    let worker = bench.program(WORKER, "w");
    bench.subscribe(worker, 1, resuming("secret/#", "billing")).expect("others have names of their own");
    // a broken connection forgets no name
    bench.subscribe(mallory, 1, forgetting("public/#", "n0")).expect("it is its own");
    bench.gone(mallory);
    assert_eq!(files(), 257);
    let mallory = bench.program(MALLORY, "m");
    bench.subscribe(mallory, 1, forgetting("public/#", "n0")).expect("it is its own");
    bench.unsubscribe(mallory, 1);
    assert_eq!(files(), 256);
    bench.subscribe(mallory, 1, resuming("public/#", "another")).expect("one is free");
    bench.subscribe(worker, 2, resuming("secret/#", "n0")).expect("it is free for all");
}

#[test]
fn a_consumer_that_is_refused_leaves_no_name_and_no_file() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = BrokerBench::with_rules(&rules("", ""), &NAMES).with_log(directory.path(), 1 << 20);
    let (worker, mallory) = (bench.program(WORKER, "w"), bench.program(MALLORY, "m"));
    let odd = SubscriptionSpec { class: Some("none".to_owned()), ..resuming("public/#", "billing") };
    refused(bench.subscribe(mallory, 1, odd), "no class `none`");
    refused(bench.subscribe(mallory, 1, resuming("public/#", "../x")), "letters, digits");
    assert_eq!(std::fs::read_dir(directory.path().join("consumers")).expect("it is there").count(), 0);
    assert!(!directory.path().join("owners").exists(), "nobody owns anything");
    bench.subscribe(worker, 1, resuming("secret/#", "billing")).expect("it is free");
}

#[test]
fn nobody_else_s_number_makes_a_writer_s_event_a_duplicate() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = BrokerBench::with_rules(&rules("", ""), &NAMES).with_log(directory.path(), 1 << 20);
    let (worker, mallory) = (bench.program(WORKER, "w"), bench.program(MALLORY, "m"));
    bench.advertise(worker, 1, logged("secret/a", Some("shop"))).expect("it is free");
    assert!(matches!(bench.publish(worker, 1, b"1", Some(1)), Some(Ok(PublishOutcome::Written(_)))));
    for (number, writer) in [(1, Some("shop")), (2, None)] {
        bench.advertise(mallory, number, logged("secret/a", writer)).expect("it is its own");
        let _ = bench.publish(mallory, number, b"!", Some(1 << 62));
    }
    assert!(matches!(bench.publish(worker, 1, b"2", Some(2)), Some(Ok(PublishOutcome::Written(_)))));
    assert_eq!(bench.publish(worker, 1, b"2", Some(2)), Some(Ok(PublishOutcome::Duplicate)));
    refused(
        bench.advertise(worker, 2, logged("secret/b", Some(&"x".repeat(1025)))),
        "a writer's name of 1025 bytes",
    );
}

#[test]
fn writers_of_one_owner_are_bounded_and_a_name_without_events_is_free_again() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = BrokerBench::with_rules(&rules("", ""), &NAMES).with_log(directory.path(), 1 << 20);
    let worker = bench.program(WORKER, "w");
    let named = |bench: &mut BrokerBench, number: usize, publishes: bool| {
        let outcome = bench.advertise(worker, 1, logged("secret/a", Some(&format!("w{number}"))));
        if outcome.is_ok() && publishes {
            bench.publish(worker, 1, b"x", Some(1));
        }
        bench.say(worker, &unisono_events_wire::Frame::Close { number: 1 });
        outcome
    };
    for number in 0..1024 {
        named(&mut bench, number, number % 2 == 0).expect("there is room");
    }
    named(&mut bench, 1024, true).expect("512 had no event in the log");
    for number in 1025..1024 + 512 {
        named(&mut bench, number, true).expect("there is room");
    }
    refused(named(&mut bench, 9999, true), "token:worker has 1024 names of writers");
}

#[test]
fn nobody_pushes_another_one_s_events_out_of_the_log() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = BrokerBench::with_rules(&rules("", ""), &NAMES).with_log(directory.path(), 1 << 20);
    let (boss, worker, mallory) =
        (bench.program(BOSS, "b"), bench.program(WORKER, "w"), bench.program(MALLORY, "m"));
    bench.subscribe(worker, 1, resuming("orders/#", "billing")).expect("it may");
    bench.gone(worker);
    bench.advertise(boss, 1, logged("orders/1", None)).expect("it may");
    bench.advertise(mallory, 1, logged("public/x", None)).expect("it may");
    for number in 0..10 {
        bench.publish(boss, 1, &[number], None);
        bench.publish(mallory, 1, &[0; 16_000], None);
    }
    for _ in 0..300 {
        bench.publish(mallory, 1, &[0; 16_000], None);
    }
    let worker = bench.program(WORKER, "w");
    bench.subscribe(worker, 1, resuming("orders/#", "billing")).expect("it may");
    assert_eq!(bench.events(worker).len(), 10);
    // each gap that another identity's events leave is reported before the next event, or at the end of the
    // log
    assert!((1..=11).contains(&bench.notices(worker).len()));
}

#[test]
fn each_identity_has_client_identifiers_of_its_own() {
    let mut bench = bench("connections = 1\nsessions = 3");
    let (mallory, code, _) = bench.mqtt(MALLORY, "plc-1", false, u32::MAX);
    assert_eq!(code, 0);
    assert_eq!(bench.mqtt_subscribe(mallory, "public/#", 1), 1);
    bench.gone(mallory);
    let (worker, code, present) = bench.mqtt(WORKER, "plc-1", true, 60);
    assert_eq!((code, present), (0, false), "a session of its own");
    assert_eq!(bench.mqtt_subscribe(worker, "secret/#", 1), 1);
    let (mallory, code, present) = bench.mqtt(MALLORY, "plc-1", false, u32::MAX);
    assert_eq!((code, present), (0, true), "the other one is still there");
    // each client gets its own messages, and neither ended the other
    let boss = bench.program(BOSS, "b");
    for (number, topic) in [(1, "secret/a"), (2, "public/a")] {
        bench.advertise(boss, number, Advertisement::new(topic)).expect("it may");
        bench.publish(boss, number, topic.as_bytes(), None);
    }
    assert_eq!(bench.messages(worker), [b"secret/a"]);
    assert_eq!(bench.messages(mallory), [b"public/a"]);
    // the option No Local compares sessions, not only client identifiers
    assert_eq!(bench.mqtt_subscribe(worker, "public/#", 4), 0);
    let body = [&[0, 8][..], b"public/b", &[0], b"hi"].concat();
    bench.packet(mallory, 0x30, &body);
    assert_eq!(bench.messages(worker), [b"hi"]);
    bench.gone(mallory);
    // connected or not, an identity has this many sessions
    for (name, expected) in [("s1", 0), ("s2", 0), ("s3", 0x97)] {
        let (client, code, _) = bench.mqtt(MALLORY, name, false, u32::MAX);
        assert_eq!(code, expected, "{name}");
        bench.gone(client);
    }
    let (client, ..) = bench.mqtt(MALLORY, "s1", true, 0);
    bench.gone(client);
    assert_eq!(bench.mqtt(MALLORY, "s3", false, u32::MAX).1, 0, "it ended one");
}

#[test]
fn a_session_holds_nothing_that_the_login_of_its_client_may_not_see() {
    let rules = "[[allow]]\nwho = [\"mqtt:boss\"]\nsubscribe = [\"secret/#\"]\npublish = [\"#\"]\n\
                 [[allow]]\nwho = [\"token:boss\"]\nsubscribe = [\"public/#\"]";
    let mut bench = BrokerBench::with_rules(rules, &NAMES);
    let (one, ..) = bench.mqtt(BOSS, "c", false, 60);
    assert_eq!(bench.mqtt_subscribe(one, "secret/#", 1), 1);
    bench.gone(one);
    // the same token as a password without a user is `token:boss`, with another rule
    let (two, code, present) = bench.mqtt_with_token("boss", "c");
    assert_eq!((code, present), (0, false));
    bench.gone(two);
}

#[test]
fn a_client_that_asks_is_told_of_its_own_consumers_and_of_topics_that_it_may_see() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let rules = format!("{}[[allow]]\nwho = [\"unix:7\"]\n[[allow]]\nwho = [\"unix:0\"]\n", rules("", ""));
    let mut bench = BrokerBench::with_rules(&rules, &NAMES).with_log(directory.path(), 1 << 20);
    let (boss, worker) = (bench.program(BOSS, "b"), bench.program(WORKER, "worker-on-host-7"));
    bench.subscribe(worker, 1, resuming("orders/#", "billing")).expect("it may");
    let late = unisono_events_client::WhenLate::Drop;
    bench.subscribe(worker, 2, SubscriptionSpec { late, ..in_group("orders/#", "crew", 0) }).expect("it may");
    let spec = Advertisement { deadline_ns: Some(1), ..logged("orders/customer", None) };
    bench.advertise(boss, 1, spec).expect("it may");
    // deliveries begin after the deadline has passed
    let (mallory, plant, root) = (
        bench.program(MALLORY, "m"),
        bench.program(Comes::User(7), "p"),
        bench.program(Comes::User(0), "r"),
    );
    bench.broker.paused(bench.id(worker));
    bench.publish(boss, 1, b"x", None);
    bench.wait(Duration::SECOND);
    bench.broker.resumed(bench.id(worker));
    bench.work();
    let secrets = ["worker-on-host-7", "billing", "crew", "orders/customer"];
    for (client, sees) in [(mallory, false), (plant, false), (root, true), (worker, true)] {
        let told = bench.ask(client);
        for secret in secrets {
            assert_eq!(told.contains(secret), sees, "{secret}: {told}");
        }
    }
}

#[test]
fn a_consumer_blocks_suppliers_with_a_permission_alone() {
    let blocking = || SubscriptionSpec {
        full: WhenFull::BlockSupplier,
        queue_events: 1,
        again: Some(AgainSpec { after_ns: 1 << 40, attempts: 5, window: 1 }),
        ..SubscriptionSpec::new("public/#")
    };
    let mut bench = bench("");
    let mallory = bench.program(MALLORY, "m");
    refused(bench.subscribe(mallory, 1, blocking()), "add `block = true` to its rule");
    let mut bench = BrokerBench::with_rules(&rules("block = true", ""), &NAMES);
    let (boss, mallory) = (bench.program(BOSS, "b"), bench.program(MALLORY, "m"));
    bench.subscribe(mallory, 1, blocking()).expect("it may");
    bench.advertise(boss, 1, Advertisement::new("public/a")).expect("it may");
    assert!(bench.publish(boss, 1, b"1", None).is_some(), "it is delivered");
    assert!(bench.publish(boss, 1, b"2", None).is_some(), "it waits");
    assert!(bench.publish(boss, 1, b"3", None).is_none(), "its supplier waits");
}

#[test]
fn without_permissions_a_consumer_blocks_suppliers_of_its_own_identity_alone() {
    let blocking = SubscriptionSpec {
        full: WhenFull::BlockSupplier,
        queue_events: 1,
        again: Some(AgainSpec { after_ns: 1 << 40, attempts: 5, window: 1 }),
        ..SubscriptionSpec::new("#")
    };
    let mut bench = BrokerBench::open();
    let (plant, mallory) = (bench.program(Comes::User(7), "p"), bench.program(Comes::User(8), "m"));
    bench.subscribe(mallory, 1, blocking.clone()).expect("it may");
    let published = |bench: &mut BrokerBench, client, topic: &str| -> Vec<bool> {
        bench.advertise(client, 1, Advertisement::new(topic)).expect("it may");
        (0..4).map(|_| bench.publish(client, 1, b"x", None).is_some()).collect()
    };
    assert_eq!(published(&mut bench, plant, "a"), [true; 4], "another one's");
    bench.gone(mallory);
    let mallory = bench.program(Comes::User(8), "m");
    bench.subscribe(mallory, 1, blocking.clone()).expect("it may");
    let own = bench.program(Comes::User(8), "own");
    assert_eq!(published(&mut bench, own, "b"), [true, true, false, false], "its own");
    // root may block all suppliers, as the kernel would allow it
    let mut bench = BrokerBench::open();
    let (plant, root) = (bench.program(Comes::User(7), "p"), bench.program(Comes::User(0), "r"));
    bench.subscribe(root, 1, blocking).expect("it may");
    assert_eq!(published(&mut bench, plant, "a"), [true, true, false, false]);
}

#[test]
fn a_client_without_an_identity_leaves_nothing_where_identities_are_told_apart() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let rules = "[[allow]]\nwho = [\"anonymous\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]";
    let tree = || BrokerBench::open().with_log(directory.path(), 1 << 20);
    let mut bench = tree();
    bench.broker = bench
        .broker
        .with_permissions(unisono_broker::Permissions::parse(rules, &|_| None).expect("it is sound"));
    let client = bench.program(Comes::Anonymous, "a");
    let says = "owns nothing that outlives its connection";
    refused(bench.subscribe(client, 1, resuming("a", "billing")), says);
    refused(bench.subscribe(client, 1, in_group("a", "g", 1_000_000)), says);
    refused(bench.advertise(client, 2, logged("a", Some("shop"))), says);
    bench.subscribe(client, 1, in_group("a", "g", 0)).expect("it ends with its connection");
    let (mqtt, code, _) = bench.mqtt(Comes::Anonymous, "c", false, 3600);
    assert_eq!(code, 0);
    assert_eq!(bench.expiry_told(), Some(0));
    bench.gone(mqtt);
    let (mqtt, _, present) = bench.mqtt(Comes::Anonymous, "c", false, 3600);
    assert!(!present);
    bench.gone(mqtt);
    assert_eq!(bench.mqtt_311(Comes::Anonymous, "c", false), 5, "MQTT 3.1.1 cannot be told");
    assert_eq!(bench.mqtt_311(Comes::Anonymous, "c", true), 0);
    drop(bench);
    // without permissions and tokens all clients are one identity
    let mut bench = tree();
    let client = bench.program(Comes::Anonymous, "a");
    bench.subscribe(client, 1, resuming("a", "billing")).expect("it may");
    bench.advertise(client, 2, logged("a", Some("shop"))).expect("it may");
    let (mqtt, ..) = bench.mqtt(Comes::Anonymous, "c", false, 3600);
    assert_eq!(bench.expiry_told(), None);
    bench.gone(mqtt);
    assert!(bench.mqtt(Comes::Anonymous, "c", false, 3600).2);
    assert_eq!(bench.mqtt_311(Comes::Anonymous, "d", false), 0);
}

#[test]
fn a_program_that_learns_a_reply_topic_cannot_keep_out_the_program_that_replies() {
    let mut bench = bench("");
    let (server, mallory) = (bench.program(WORKER, "server"), bench.program(MALLORY, "m"));
    let topic = bench.reply_topic(server);
    for spec in [
        Advertisement { event_type: Some("t".to_owned()), ..Advertisement::new(&topic) },
        Advertisement { exclusive: true, ..Advertisement::new(&topic) },
        Advertisement { history: KeptHistory::LastValue(1), ..Advertisement::new(&topic) },
    ] {
        refused(bench.advertise(mallory, 1, spec), "the reply topic");
    }
    bench.advertise(mallory, 2, Advertisement::new(&topic)).expect("a reply is for any program to send");
    bench.advertise(server, 1, Advertisement::new(&topic)).expect("nothing keeps it out");
}
