//! Memory and disk that a log takes for topics and names: bounded, charged to the identity that caused it,
//! and given back, also across restarts. On the broker's state machine, without sockets.

use crate::common::bench::{BenchClient, BrokerBench, Comes};
use std::path::Path;
use unisono_events_client::{
    Advertisement, AgainSpec, Durability, Duration, KeptHistory, ResumeSpec, SubscriptionSpec,
};

const NAMES: [&str; 2] = ["good", "bad"];
const GOOD: Comes = Comes::Token("good");
const BAD: Comes = Comes::Token("bad");
const RULES: &str = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\nmemory = 4194304";

fn bench(directory: &Path) -> BrokerBench {
    BrokerBench::with_rules(RULES, &NAMES).with_log(directory, 64 << 20)
}

fn kept(topic: &str, events: usize) -> Advertisement {
    let (durability, history) = (Durability::Written, KeptHistory::Last(events));
    Advertisement { durability, history, ..Advertisement::new(topic) }
}

fn long(number: usize) -> String {
    format!("{number}/{}", "x".repeat(60_000))
}

fn named(bench: &BrokerBench) -> u64 {
    bench.broker.statistics(bench.now).named_bytes
}

fn size_of(directory: &Path, name: &str) -> u64 {
    std::fs::metadata(directory.join(name)).map_or(0, |file| file.len())
}

fn publish(bench: &mut BrokerBench, client: BenchClient, topic: u32, payload: &[u8]) -> Result<(), String> {
    bench.publish(client, topic, payload, None).expect("nobody blocks it").map(drop)
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn declarations_in_a_loop_take_the_memory_and_the_disk_of_few() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = bench(directory.path());
    let bad = bench.program(BAD, "b");
    let mut most = 0;
    for number in 0..150 {
        bench.advertise(bad, 1, kept(&long(0), 1 + number % 7)).expect("it has room");
        bench.advertise(bad, 2, kept(&long(1 + number), 1)).expect("topics that nobody uses make room");
        [1, 2].iter().for_each(|number| bench.close(bad, *number));
        most = most.max(size_of(directory.path(), "topics"));
        assert!(named(&bench) <= (4 << 20) + (64 << 10));
    }
    // twice as much as what the memory of the rule pays for, and 1 MiB
    assert!(most <= 9 << 20, "{most} bytes of declarations");
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn writers_names_that_come_and_go_leave_a_small_file() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = bench(directory.path());
    let bad = bench.program(BAD, "b");
    let mut most = 0;
    for number in 0..6000_u32 {
        let writer = Some(format!("{number}/{}", "w".repeat(1000)));
        let spec = Advertisement { writer, durability: Durability::Written, ..Advertisement::new("t") };
        bench.advertise(bad, 1, spec).expect("names without events are freed");
        bench.close(bad, 1);
        most = most.max(size_of(directory.path(), "owners"));
    }
    // twice the names of one identity, and 1 MiB
    assert!(most <= 2 * 1024 * 1100 + (1 << 20) + 4096, "{most} bytes of names");
}

#[test]
fn closed_topics_give_their_memory_back_when_it_is_asked_for() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = bench(directory.path());
    let bad = bench.program(BAD, "b");
    for number in 0..20 {
        bench.advertise(bad, 1, kept(&long(number), 1)).expect("it has room");
        bench.close(bad, 1);
    }
    assert!(named(&bench) > 20 * 3 * 60_000, "the name, and two copies for the log");
    let queue = SubscriptionSpec { queue_bytes: 4 << 20, ..SubscriptionSpec::new("a") };
    bench.subscribe(bad, 1, queue).expect("all its memory is free");
    assert!(named(&bench) < 1000, "{}", named(&bench));
    bench.wait(Duration::SECOND);
    // a restart finds no topic
    drop(bench);
    assert_eq!(named(&self::bench(directory.path())), 0);
}

#[test]
fn topics_without_events_are_forgotten_at_a_restart_and_others_keep_theirs() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut first = bench(directory.path());
    let bad = first.program(BAD, "b");
    for number in 0..10 {
        first.advertise(bad, 1, kept(&long(number), 1)).expect("it has room");
        first.close(bad, 1);
    }
    let good = first.program(GOOD, "g");
    first.advertise(good, 1, kept("good", 2)).expect("it has room");
    publish(&mut first, good, 1, b"kept").expect("it is kept");
    drop(first);
    let mut second = bench(directory.path());
    assert!((1..4000).contains(&named(&second)), "{}", named(&second));
    assert!(size_of(directory.path(), "topics") < 10 * 61_000 + (1 << 20));
    let reader = second.program(GOOD, "r");
    second.subscribe(reader, 1, SubscriptionSpec::new("#")).expect("it may");
    assert_eq!(second.events(reader).iter().map(|event| &*event.payload).collect::<Vec<_>>(), [b"kept"]);
}

#[test]
fn what_topics_keep_is_charged_to_its_owner_also_after_a_restart() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let payload = vec![7; 1 << 20];
    let counts = |bench: &BrokerBench| {
        let statistics = bench.broker.statistics(bench.now);
        (statistics.kept_bytes, statistics.named_bytes)
    };
    let mut first = bench(directory.path());
    let bad = first.program(BAD, "b");
    first.advertise(bad, 1, kept("kept", 100)).expect("it has room");
    let fitted = (0..).take_while(|_| publish(&mut first, bad, 1, &payload).is_ok()).count();
    assert_eq!(fitted, 4, "4 MiB, and 64 KiB of names");
    let mut before = counts(&first);
    drop(first);
    for _ in 0..2 {
        let mut again = bench(directory.path());
        assert_eq!(counts(&again), before);
        let (bad, good) = (again.program(BAD, "b"), again.program(GOOD, "g"));
        again.advertise(bad, 1, kept("kept", 100)).expect("it is there");
        publish(&mut again, bad, 1, &payload).expect_err("its owner has used its memory");
        let queue = SubscriptionSpec { queue_bytes: 2 << 20, ..SubscriptionSpec::new("a") };
        again.subscribe(bad, 1, queue).expect_err("its owner has used its memory");
        again.advertise(good, 1, kept("good", 100)).expect("it has room");
        publish(&mut again, good, 1, b"x").expect("it is kept");
        before = counts(&again);
    }
}

#[test]
fn names_of_events_that_a_follower_has_not_acknowledged_count_in_its_queue() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = bench(directory.path());
    let (bad, good) = (bench.program(BAD, "b"), bench.program(GOOD, "g"));
    let resume = ResumeSpec { name: "reader".to_owned(), ..ResumeSpec::default() };
    let again = Some(AgainSpec { after_ns: 1 << 62, attempts: 1, window: 10_000 });
    let spec = SubscriptionSpec {
        resume: Some(resume),
        again,
        queue_events: 1000,
        queue_bytes: 1 << 20,
        ..SubscriptionSpec::new("#")
    };
    bench.subscribe(bad, 1, spec).expect("it has room");
    for number in 0..100 {
        let spec = Advertisement { durability: Durability::Written, ..Advertisement::new(&long(number)) };
        bench.advertise(good, 1, spec).expect("topics that nobody uses make room");
        publish(&mut bench, good, 1, b"x").expect("it is written");
        bench.close(good, 1);
    }
    let events = bench.events(bad);
    assert!((17..=18).contains(&events.len()), "{} names of 60,000 bytes in 1 MiB", events.len());
    // the others wait in the log
    let mut came = events.len();
    let mut last = events;
    while !last.is_empty() {
        last.iter().for_each(|event| bench.acknowledge(bad, event));
        last = bench.events(bad);
        came += last.len();
    }
    assert_eq!(came, 100);
}
