//! Tests brokers of several hosts that `unisono-join` joins over zenoh. Each host is a network namespace with
//! a broker and a join process of its own; the test reaches all brokers by their sockets.
//!
//! `unisono-join` depends on hundreds of crates. So it is built, and these tests run, only in `cargo xtask
//! nightly joined`.

use crate::joined::{Counters, Joined, MINUTE, follow, next, reads_over_a_gap, stream};
use serde_json::Value;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unisono_events_client::{Advertisement, EventDraft, NoticeText, ReceivedEvent, Reception, now};
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::processes::until;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, require};

fn events_flow_between_two_hosts_both_ways_once_and_in_order() -> TestOutcome {
    let joined = Joined::new(Hosts::new()?)?;
    let _brokers = [joined.broker(0), joined.broker(1)];
    let endpoint = format!("tcp/{}:7447", Hosts::address(0));
    let mut first =
        joined.join(0, &["--topics", "plant/#", "--except", "plant/private", "--listen", &endpoint]);
    let mut second = joined.join(1, &["--topics", "plant/#", "--connect", &endpoint]);
    let (mut of_first, mut of_second) = (Counters::of(&mut first), Counters::of(&mut second));
    of_first.hosts("events", 1);
    of_second.hosts("events", 1);
    let mut readers = [joined.reader(0, "#"), joined.reader(1, "#")];
    let mut writers = [joined.client(0), joined.client(1)];
    let mut outlet =
        |writer: usize, topic: &str| writers[writer].advertise(&Advertisement::new(topic)).expect("a topic");
    let (here, there) = (outlet(0, "plant/0"), outlet(1, "plant/1"));
    let (private, other) = (outlet(0, "plant/private"), outlet(0, "other"));
    writers[0].publish(private, &EventDraft::new(b"stays")).expect("it goes on");
    writers[0].publish(other, &EventDraft::new(b"stays")).expect("it goes on");
    let fields = || unisono_events_client::FieldSet::new().with("level", 7_i64);
    for number in 0..500_u64 {
        let payload = number.to_le_bytes();
        let draft = EventDraft::new(&payload).keyed("k").with_fields(fields()).critical(9);
        writers[0].publish(here, &draft.due_in(MINUTE)).expect("it goes on");
        writers[1].publish(there, &EventDraft::new(&payload)).expect("it goes on");
    }
    for (host, reader) in readers.iter_mut().enumerate() {
        let (mut last, mut stays) = ([0_u64, 0], 0);
        while last != [500, 500] {
            let event = next(reader).expect("no gap");
            if event.payload.bytes() == &b"stays"[..] {
                stays += 1;
                continue;
            }
            let from = usize::from(&*event.topic == "plant/1");
            last[from] += 1;
            assert_eq!(
                (event.sequence, &*event.payload.bytes()),
                (last[from], &(last[from] - 1).to_le_bytes()[..])
            );
            if from == 0 {
                assert_eq!(
                    (event.key.as_deref(), event.criticality, event.fields.clone()),
                    (Some("k"), 9, fields())
                );
                let left = event.deadline.expect("it has one") - now();
                assert!(!left.is_zero() && Duration::from(left) <= MINUTE, "{left:?}");
            }
        }
        assert_eq!(stays, if host == 0 { 2 } else { 0 }, "what does not travel");
        let more = reader.receive(Some(Duration::from_millis(500))).expect("it goes on");
        assert!(more.is_none(), "nothing goes round: {more:?}");
    }
    // consumers on the other host also get the notice that a supplier has left
    writers[0].withdraw(here).expect("it goes on");
    assert!(matches!(next(&mut readers[1]), Err(NoticeText::Gone { .. })));

    for process in [&first, &second] {
        let pid = rustix::process::Pid::from_child(&process.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    }
    for (mut process, counters) in [(first, of_first), (second, of_second)] {
        let of = &counters.last()["events"];
        let counts = [&of["sent"]["sent"], &of["received"]["received"], &of["published"]];
        assert_eq!(counts, [500, 500, 500], "{of}");
        let none = ["duplicates", "missing", "garbage", "own"].map(|name| of["received"][name].as_u64());
        assert_eq!(none, [Some(0); 4], "{of}");
        assert!(process.0.wait().expect("it ends").success());
    }
    Ok(())
}

fn copies_that_come_by_two_ways_are_delivered_once_and_one_way_is_enough() -> TestOutcome {
    let joined = Joined::new(Hosts::new()?)?;
    let _brokers = [joined.broker(0), joined.broker(1)];
    let endpoint = |port: u16| format!("tcp/{}:{port}", Hosts::address(0));
    let (one, other) = (endpoint(7447), endpoint(7448));
    let mut first = joined.join(0, &["--topics", "#", "--listen", &one]);
    let mut second = joined.join_called("second", 0, &["--topics", "#", "--listen", &other]);
    let mut far = joined.join(1, &["--topics", "#", "--connect", &one, "--connect", &other]);
    let (mut of_second, mut of_far) = (Counters::of(&mut second), Counters::of(&mut far));
    // the two join processes of a host do not count each other
    Counters::of(&mut first).hosts("events", 1);
    of_second.hosts("events", 1);
    of_far.hosts("events", 2);
    let mut reader = joined.reader(1, "#");
    stream(&joined, 0, "t", |_| {
        let mut last = follow(&mut reader, 200);
        let of = of_far.until("events", |of| of["received"]["duplicates"].as_u64() > Some(100));
        assert_eq!(of["received"]["missing"], 0, "{of}");
        drop(first);
        of_far.hosts("events", 1);
        for _ in 0..200 {
            last += 1;
            let event = loop {
                match next(&mut reader) {
                    Ok(event) => break event,
                    // events that the killed join had taken over may come by the other join too late
                    Err(NoticeText::Gap { last: end, .. }) => last = end + 1,
                    Err(other) => panic!("{other:?}"),
                }
            };
            assert_eq!(event.sequence, last, "each once, in order");
        }
    });
    Ok(())
}

fn a_join_that_is_killed_and_a_host_that_is_cut_off_cost_a_gap_that_is_told() -> TestOutcome {
    let joined = Joined::new(Hosts::three()?)?;
    let (_brokers, third_broker) = ([joined.broker(0), joined.broker(1)], joined.broker(2));
    let to = |host, other| format!("tcp/{}:7447", Hosts::address_towards(host, other));
    let (ab, ac, bc) = (to(0, 1), to(0, 2), to(1, 2));
    let all = ["--topics", "#", "--listen", "tcp/0.0.0.0:7447"];
    let first = || joined.join(0, &all);
    let mut a = first();
    let mut b = joined.join(1, &[&all[..], &["--connect", &ab]].concat());
    let third = || joined.join(2, &["--topics", "#", "--connect", &ac, "--connect", &bc]);
    let mut c = third();
    for join in [&mut a, &mut b, &mut c] {
        Counters::of(join).hosts("events", 2);
    }
    let (mut at_b, mut at_c) = (joined.reader(1, "#"), joined.reader(2, "#"));
    stream(&joined, 0, "t", |published| {
        let (mut last_b, mut last_c) = (follow(&mut at_b, 50), follow(&mut at_c, 50));
        // the join of the supplier's host is killed and started again
        drop(a);
        let before = published.load(Ordering::Relaxed);
        until("more events", || published.load(Ordering::Relaxed) > before + 50);
        let mut a = first();
        Counters::of(&mut a).hosts("events", 2);
        for (reader, last) in [(&mut at_b, &mut last_b), (&mut at_c, &mut last_c)] {
            assert!(reads_over_a_gap(reader, last) >= 50);
        }
        // the whole third host is killed and started again; the second host continues
        drop((c, third_broker));
        let third_broker = joined.broker(2);
        let mut at_c = joined.reader(2, "#");
        let mut c = third();
        Counters::of(&mut c).hosts("events", 2);
        follow(&mut at_c, 50);
        // its broker alone is started again; its join waits for it
        drop(third_broker);
        let _third_broker = joined.broker(2);
        let mut at_c = joined.reader(2, "#");
        follow(&mut at_c, 50);
        for _ in 0..50 {
            last_b += 1;
            assert_eq!(next(&mut at_b).expect("no gap").sequence, last_b);
        }
        // the second host is cut off from the first until zenoh has noticed
        joined.hosts.cut();
        let before = published.load(Ordering::Relaxed);
        until("the cut is noticed", || published.load(Ordering::Relaxed) > before + 8000);
        joined.hosts.mend();
        assert!(reads_over_a_gap(&mut at_b, &mut last_b) > 0);
    });
    Ok(())
}

const CLASSES: &str = r##"
[[class]]
name = "control"
topics = ["control/#"]
priority = "real-time"
ENDS = ["tcp/ADDRESS:7447"]

[[class]]
name = "bulk"
topics = ["#"]
priority = "background"
queue_events = 100
ENDS = ["tcp/ADDRESS:7448"]
"##;

fn the_flood_of_one_class_does_not_delay_another() -> TestOutcome {
    require::program("tc", "apt-get install iproute2")?;
    let joined = Joined::new(Hosts::new()?)?;
    let limit = ["-n", joined.hosts.name(0), "link", "show", "cable"];
    ip(&limit).map_err(Skipped::because)?;
    let limited = Command::new("ip")
        .args(["netns", "exec", joined.hosts.name(0), "tc", "qdisc", "add", "dev", "cable", "root", "tbf"])
        .args(["rate", "40mbit", "burst", "64kb", "latency", "20ms"])
        .output()
        .expect("ip starts");
    if !limited.status.success() {
        let why = String::from_utf8_lossy(&limited.stderr).trim().to_owned();
        return Err(Skipped::because(format!("the kernel cannot limit a cable: {why}")));
    }
    let _brokers = [joined.broker(0), joined.broker(1)];
    let file = |host: usize, ends: &str| joined.file(host, CLASSES, ends, &Hosts::address(0));
    let mut a = joined.join(0, &["--config", &file(0, "listen")]);
    let mut b = joined.join(1, &["--config", &file(1, "connect")]);
    let (mut of_a, mut of_b) = (Counters::of(&mut a), Counters::of(&mut b));
    for class in ["control", "bulk"] {
        of_a.hosts(class, 1);
        of_b.hosts(class, 1);
    }
    let (mut control, mut bulk) = (joined.reader(1, "control/#"), joined.reader(1, "bulk"));
    let stamp = || now().as_nanos().to_le_bytes();
    let waited = |event: &ReceivedEvent| {
        let bytes = event.payload.bytes();
        now().as_nanos() - u64::from_le_bytes(bytes[..8].try_into().expect("a stamp"))
    };
    let stop = AtomicBool::new(false);
    let (mut of_control, mut of_bulk) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = joined.client(0);
            let outlet = writer.advertise(&Advertisement::new("bulk")).expect("a topic");
            let mut payload = vec![0; 60_000];
            while !stop.load(Ordering::Relaxed) {
                payload[..8].copy_from_slice(&stamp());
                // about five times as much as the cable carries
                writer.publish(outlet, &EventDraft::new(&payload)).expect("the broker is there");
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        scope.spawn(|| {
            let mut writer = joined.client(0);
            let outlet = writer.advertise(&Advertisement::new("control/1")).expect("a topic");
            while !stop.load(Ordering::Relaxed) {
                writer.publish(outlet, &EventDraft::new(&stamp())).expect("the broker is there");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let start = Instant::now();
        let mut last = 0;
        while of_control.len() < 1000 || of_bulk.len() < 100 {
            assert!(start.elapsed() < MINUTE, "{} {}", of_control.len(), of_bulk.len());
            while let Some(it) = control.receive(Some(Duration::from_millis(5))).expect("the broker is there")
            {
                let Reception::Event(event) = it else { panic!("{it:?}") };
                last += 1;
                assert_eq!(event.sequence, last, "none is lost");
                of_control.push(waited(&event));
            }
            while let Some(it) = bulk.receive(Some(Duration::ZERO)).expect("the broker is there") {
                if let Reception::Event(event) = it {
                    of_bulk.push(waited(&event));
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let dropped = |of: &Value| of["sent"]["dropped_full"].as_u64().is_some_and(|dropped| dropped > 0);
    of_a.until("bulk", dropped);
    let of = of_a.until("control", |_| true);
    assert_eq!(of["sent"]["dropped_full"], 0, "{of}");
    of_control.sort_unstable();
    of_bulk.sort_unstable();
    let (control, bulk) = (of_control[of_control.len() / 2], of_bulk[of_bulk.len() / 2]);
    eprintln!("half of all events took {control} ns, and {bulk} ns in the flood");
    assert!(control * 4 < bulk, "{control} {bulk}");
    Ok(())
}

/// Queues that are long enough for the delays of a busy machine.
const ROOMY: &str = r##"
[[class]]
name = "events"
topics = ["#"]
queue_events = 60000
queue_bytes = 60000000
ENDS = ["tcp/ADDRESS:7447"]
"##;

fn a_host_whose_broker_stands_still_holds_up_no_other_host() -> TestOutcome {
    const EVENTS: u64 = 30_000;
    let joined = Joined::new(Hosts::three()?)?;
    let (_brokers, third_broker) = ([joined.broker(0), joined.broker(1)], joined.broker(2));
    let (ab, ac) = (Hosts::address_towards(0, 1), Hosts::address_towards(0, 2));
    let mut a = joined.join(0, &["--config", &joined.file(0, ROOMY, "listen", "0.0.0.0")]);
    let mut b = joined.join(1, &["--config", &joined.file(1, ROOMY, "connect", &ab)]);
    let mut c = joined.join(2, &["--topics", "#", "--connect", &format!("tcp/{ac}:7447")]);
    let (mut of_b, mut of_c) = (Counters::of(&mut b), Counters::of(&mut c));
    Counters::of(&mut a).hosts("events", 2);
    of_b.hosts("events", 1);
    of_c.hosts("events", 1);
    let (mut at_b, mut writer) = (joined.reader(1, "#"), joined.client(0));
    let outlet = writer.advertise(&Advertisement::new("t")).expect("a topic");
    let mut flood = |count: u64| {
        for _ in 0..count {
            writer.publish(outlet, &EventDraft::new(&[7; 100])).expect("the broker is there");
            std::thread::sleep(Duration::from_micros(150));
        }
    };
    let pid = rustix::process::Pid::from_child(&third_broker.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it runs");
    flood(EVENTS);
    follow(&mut at_b, EVENTS as usize);
    of_c.until("events", |of| of["dropped_here"].as_u64() > Some(EVENTS / 2));
    // the same for a host whose broker is gone
    drop(third_broker);
    flood(EVENTS);
    follow(&mut at_b, EVENTS as usize);
    let of = of_b.until("events", |of| of["published"] == 2 * EVENTS);
    assert_eq!((&of["received"]["missing"], &of["dropped_here"]), (&0.into(), &0.into()), "{of}");
    Ok(())
}

fn two_receiving_joins_deliver_once_and_one_that_is_killed_costs_a_gap_that_is_told() -> TestOutcome {
    let joined = Joined::new(Hosts::new()?)?;
    let _brokers = [joined.broker(0), joined.broker(1)];
    let endpoint = format!("tcp/{}:7447", Hosts::address(0));
    let mut first = joined.join(0, &["--topics", "#", "--listen", &endpoint]);
    // the two join processes of a host may even have the same name
    let far = || joined.join(1, &["--topics", "#", "--connect", &endpoint]);
    let (mut one, mut other) = (far(), far());
    let mut of_first = Counters::of(&mut first);
    let (mut of_one, mut of_other) = (Counters::of(&mut one), Counters::of(&mut other));
    of_first.hosts("events", 1);
    of_one.hosts("events", 1);
    of_other.hosts("events", 1);
    let mut reader = joined.reader(1, "#");
    stream(&joined, 0, "t", |published| {
        let mut last = follow(&mut reader, 200);
        let known = |of: &Value| of["known"].as_u64().is_some_and(|known| known > 0);
        let both = |of: &Value| of["received"]["received"].as_u64() > Some(100);
        let (of_one, of_other) = (of_one.until("events", both), of_other.until("events", both));
        assert!(known(&of_one) || known(&of_other), "{of_one} {of_other}");
        drop(one);
        for _ in 0..200 {
            last += 1;
            assert_eq!(next(&mut reader).expect("the other one goes on").sequence, last);
        }
        // a host counts as present while one of its joins runs
        of_first.until("events", |of| of["hosts"].as_array().is_some_and(|hosts| hosts.len() == 1));
        drop(other);
        of_first.hosts("events", 0);
        let before = published.load(Ordering::Relaxed);
        until("more events", || published.load(Ordering::Relaxed) > before + 50);
        let _third = far();
        let mut gone = false;
        while !gone {
            match next(&mut reader) {
                Ok(event) => last = event.sequence,
                Err(NoticeText::Gone { .. }) => gone = true,
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(reads_over_a_gap(&mut reader, &mut last) >= 50);
    });
    Ok(())
}

host_tests![needs Machine;
    events_flow_between_two_hosts_both_ways_once_and_in_order within 1200,
    copies_that_come_by_two_ways_are_delivered_once_and_one_way_is_enough within 1200,
    a_join_that_is_killed_and_a_host_that_is_cut_off_cost_a_gap_that_is_told within 1200,
    the_flood_of_one_class_does_not_delay_another within 1200,
    a_host_whose_broker_stands_still_holds_up_no_other_host within 1200,
    two_receiving_joins_deliver_once_and_one_that_is_killed_costs_a_gap_that_is_told within 1200,
];
