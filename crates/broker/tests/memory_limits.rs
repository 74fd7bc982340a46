//! Memory limits of a program, a user and the whole broker: each refusal is reported to the requester and
//! counted, and other programs continue.

use crate::common::bench::{BrokerBench, Comes};
use crate::common::mqtt::{Raw, V5};
use crate::common::{event, with_this_broker};
use std::time::Duration;
use unisono_broker::{Broker, Limits, Permissions};
use unisono_events_client::{
    Advertisement, AgainSpec, Client, Error, EventDraft, KeptHistory, Reception, SubscriptionSpec,
    SupplierOrder,
};
use unisono_fairqueue::{ClassSpec, Hierarchy};

const MIB: usize = 1 << 20;

/// Makes a broker with a memory limit of 16 MiB in total and 8 MiB per user.
fn small() -> Broker {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let limits = Limits { memory: 16 << 20, memory_of_user: 8 << 20, ..Limits::default() };
    Broker::new(tree.expect("it is sound"), limits)
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    outcome.expect_err("it is too much").to_string()
}

fn memory_refusals(client: &mut Client) -> u64 {
    client.statistics().expect("it goes on").refusals.get("memory").copied().unwrap_or(0)
}

fn keeping(topic: &str, events: usize) -> Advertisement {
    Advertisement { history: KeptHistory::Last(events), ..Advertisement::new(topic) }
}

#[test]
fn history_counts_as_memory_of_its_user_also_when_the_program_has_gone() {
    with_this_broker(small(), |at| {
        let mut first = at.client();
        let topic = first.advertise(&keeping("kept", 100)).expect("a topic");
        let payload = vec![1; MIB];
        let mut fitted = 0;
        let said = loop {
            match first.try_publish(topic, &EventDraft::new(&payload)) {
                Ok(_) => fitted += 1,
                Err(error) => break error.to_string(),
            }
        };
        assert!((6..8).contains(&fitted), "{fitted} MiB; the buffer of its connection counts, too");
        assert!(said.contains("the programs of one user may have"), "{said}");
        let said = refused(first.subscribe(&SubscriptionSpec::new("a")));
        assert!(
            said.contains("one user may have 8388608 bytes of queues, credit and kept events"),
            "{said}"
        );
        assert_eq!(memory_refusals(&mut first), 2);
        drop(first);
        // the same user through another program, and another user
        let mut second = at.client();
        assert!(second.statistics().expect("it answers").kept_bytes > 6 * MIB as u64);
        refused(second.subscribe(&SubscriptionSpec::new("a")));
        let mut other = Client::connect_tcp(at.tcp).expect("it listens");
        let topic = other.advertise(&keeping("other", 100)).expect("a topic");
        for _ in 0..6 {
            other.try_publish(topic, &EventDraft::new(&payload)).expect("it is kept");
        }
        // an event that replaces a kept one is kept even if no memory is left
        let topic = second.advertise(&keeping("small", 1)).expect("a topic");
        for _ in 0..3 {
            second.try_publish(topic, &EventDraft::new(&[1; 1000])).expect("it is kept");
        }
        let small = SubscriptionSpec { queue_bytes: 1000, queue_events: 1, ..SubscriptionSpec::new("kept") };
        second.subscribe(&small).expect("there is so much");
    });
}

#[test]
fn retained_messages_count_until_they_are_removed() {
    with_this_broker(small(), |at| {
        let mut program = at.client();
        let mut writer = Raw::connect(at.mqtt, V5, "writer");
        writer.publish_full("lamp", &[1; 100_000], 1, true, None, &[]);
        assert!(program.statistics().expect("it answers").kept_bytes > 100_000);
        writer.publish_full("lamp", &[1; 1000], 1, true, None, &[]);
        let kept = program.statistics().expect("it answers").kept_bytes;
        assert!((1000..10_000).contains(&kept), "{kept}");
        drop(writer);
        let mut writer = Raw::connect(at.mqtt, V5, "writer");
        writer.publish_full("lamp", b"", 1, true, None, &[]);
        assert_eq!(program.statistics().expect("it answers").kept_bytes, 0);
    });
}

#[test]
fn a_rule_bounds_queues_and_kept_events_of_a_client_together() {
    let rules = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\nmemory = 3145728";
    let broker = small().with_permissions(Permissions::parse(rules, &|_| None).expect("it is sound"));
    with_this_broker(broker, |at| {
        let mut client = at.client();
        let queue = SubscriptionSpec { queue_bytes: MIB, ..SubscriptionSpec::new("else") };
        client.subscribe(&queue).expect("it fits");
        let topic = client.advertise(&keeping("kept", 100)).expect("a topic");
        client.try_publish(topic, &EventDraft::new(&vec![1; MIB])).expect("it is kept");
        // the rule's limit leaves out 64 KiB for names and filters
        let said = refused(client.try_publish(topic, &EventDraft::new(&vec![1; MIB + (64 << 10)])));
        assert!(said.contains("bytes kept beside the queues"), "{said}");
        let larger = SubscriptionSpec { queue_bytes: MIB + (64 << 10), ..queue };
        let said = refused(client.subscribe(&larger));
        assert!(said.contains("3145728 bytes of queues and kept events"), "{said}");
        assert_eq!(memory_refusals(&mut client), 2);
        let share = Advertisement { share: Some(2), ..Advertisement::new("u") };
        assert!(refused(client.advertise(&share)).contains("add `share = 2` to its rule"));
    });
}

#[test]
fn a_session_pays_for_each_message_that_it_does_not_release_also_after_a_refusal() {
    let rules = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nmemory = 1";
    let mut bench = BrokerBench::with_rules(rules, &["client"]);
    let mut taken = [0; 4];
    let mut number = 0_u16;
    for taken in &mut taken {
        let (client, code, _) = bench.mqtt(Comes::Token("client"), "c", false, 3600);
        assert_eq!(code, 0);
        while bench.is_connected(client) {
            number += 1;
            let body = [&[0, 1, b't'][..], &number.to_be_bytes(), &[0], b"x"].concat();
            // PUBREC, or DISCONNECT
            let answer = bench.packet(client, 0x34, &body);
            *taken += usize::from(answer.is_some_and(|(head, _)| head[0] == 0x50));
        }
    }
    assert!(taken[0] > 1000, "{taken:?}");
    assert!(taken[1..].iter().sum::<usize>() <= 256, "as much as its former topic has left: {taken:?}");
}

#[test]
fn what_a_consumer_does_not_acknowledge_is_bounded_by_its_queue() {
    with_this_broker(small(), |at| {
        let mut supplier = at.client();
        let topic = supplier.advertise(&Advertisement::new("work")).expect("a topic");
        let mut reader = at.client();
        let again = Some(AgainSpec { after_ns: 60_000_000_000, attempts: 2, window: 1000 });
        let spec = SubscriptionSpec { again, queue_bytes: MIB, ..SubscriptionSpec::new("work") };
        reader.subscribe(&spec).expect("it fits");
        let granted = supplier.statistics().expect("it answers").granted_bytes;
        assert_eq!(granted, 2 * MIB as u64, "for what waits, and for what is not acknowledged");
        for _ in 0..30 {
            supplier.try_publish(topic, &EventDraft::new(&vec![1; MIB / 4])).expect("it drops the oldest");
        }
        let mut delivered = Vec::new();
        while let Some(came) = reader.receive(Some(Duration::from_millis(300))).expect("it goes on") {
            if let Reception::Event(event) = came {
                delivered.push(event);
            }
        }
        assert_eq!(delivered.len(), 4, "a quarter of its queue each");
        reader.acknowledge(&delivered[0]).expect("the broker is there");
        event(&mut reader);
        drop(reader);
        let start = std::time::Instant::now();
        while supplier.statistics().expect("it answers").granted_bytes > 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "what was granted comes back");
        }
    });
}

#[test]
fn the_queue_of_a_group_that_outlives_its_consumers_stays_granted() {
    with_this_broker(small(), |at| {
        let mut watcher = Client::connect_tcp(at.tcp).expect("it listens");
        let spec = SubscriptionSpec {
            group: Some("workers".to_owned()),
            linger_ns: 2_000_000_000,
            queue_bytes: 6 * MIB,
            ..SubscriptionSpec::new("work")
        };
        let mut one = at.client();
        one.subscribe(&spec).expect("it fits");
        drop(one);
        let mut other = at.client();
        let second = SubscriptionSpec { group: Some("others".to_owned()), ..spec };
        refused(other.subscribe(&second));
        assert_eq!(watcher.statistics().expect("it answers").granted_bytes, 6 * MIB as u64);
        let start = std::time::Instant::now();
        while other.subscribe(&second).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "its time is over");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

#[test]
fn a_consumer_shares_its_queue_out_among_suppliers() {
    with_this_broker(small(), |at| {
        let [mut flood, mut quiet] = [at.client(), at.client()];
        let heavy = Advertisement { share: Some(3), ..Advertisement::new("flood") };
        let (flooded, its) =
            (flood.advertise(&heavy).expect("a topic"), quiet.advertise(&Advertisement::new("quiet")));
        let its = its.expect("a topic");
        let mut reader = at.client();
        let spec = SubscriptionSpec {
            between: SupplierOrder::Shares,
            queue_events: 40,
            queue_bytes: 8 * MIB / 2,
            ..SubscriptionSpec::new("#")
        };
        reader.subscribe(&spec).expect("it fits");
        // the reader reads nothing meanwhile: the kernel holds some events, and the queue holds 40
        let payload = vec![1; 50_000];
        for _ in 0..10 {
            quiet.try_publish(its, &EventDraft::new(&payload)).expect("it waits");
        }
        for _ in 0..200 {
            flood.try_publish(flooded, &EventDraft::new(&payload)).expect("it drops the oldest");
        }
        let (mut quiet_came, mut flood_came) = (0, 0);
        while let Some(came) = reader.receive(Some(Duration::from_millis(500))).expect("it goes on") {
            let Reception::Event(event) = came else { continue };
            match &*event.topic {
                "quiet" => quiet_came += 1,
                _ => flood_came += 1,
            }
        }
        assert_eq!(quiet_came, 10, "a quarter of the queue is its own");
        assert!((30..100).contains(&flood_came), "{flood_came}");
    });
}
