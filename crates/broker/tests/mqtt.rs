//! MQTT clients over real sockets, byte by byte: the standard's requirements, and known faults of other
//! brokers. Every test ends under a watchdog.

use crate::common::bench::{BrokerBench, Comes};
use crate::common::mqtt::{Raw, V5, V311};
use crate::common::{Addresses, event, with_broker};
use std::collections::HashSet;
use std::time::Duration;
use unisono_eventchannel::FieldSet;
use unisono_events_client::{Advertisement, EventDraft, SubscriptionSpec};

#[test]
fn a_message_crosses_between_mqtt_and_programs_with_its_fields_and_its_deadline() {
    with_broker(|at| {
        let mut program = at.client();
        program.subscribe(&SubscriptionSpec::new("plant/#")).expect("it fits");
        let mut client = Raw::connect(at.mqtt, V5, "c1");
        client.subscribe(1, "plant/#", 1);
        client.publish_with("plant/1", b"hot", 0, &[("celsius", "81.5"), ("deadline_us", "5000000")]);
        let got = event(&mut program);
        assert_eq!((&*got.topic, &*got.payload.bytes()), ("plant/1", &b"hot"[..]));
        assert_eq!(got.fields, FieldSet::new().with("celsius", 81.5));
        let left = (got.deadline.expect("it has one") - unisono_events_client::now()).as_nanos();
        assert!((1..=5_000_000_000).contains(&left), "{left} ns");
        let echo = client.message();
        assert_eq!((echo.qos, echo.user("celsius").as_deref()), (0, Some("81.5")), "a QoS of 0 stays one");
        let micros: u64 = echo.user("deadline_us").and_then(|text| text.parse().ok()).expect("a number");
        assert!((1..5_000_000).contains(&micros) && echo.expiry.is_some_and(|seconds| seconds <= 5));

        let topic = program.advertise(&Advertisement::new("plant/2")).expect("a topic");
        let fields = FieldSet::new().with("site", "roof").with("level", 3);
        let draft = EventDraft::new(b"cold").with_fields(fields).due_in(Duration::from_secs(60));
        program.publish(topic, &draft).expect("it leaves");
        let got = client.message();
        assert_eq!((&*got.topic, &*got.payload, got.qos), ("plant/2", &b"cold"[..], 1));
        assert_eq!((got.user("site").as_deref(), got.user("level").as_deref()), (Some("roof"), Some("3")));
        assert_eq!(got.expiry, Some(60));
    });
}

#[test]
fn every_quality_of_service_arrives_over_both_versions() {
    with_broker(|at| {
        for version in [V311, V5] {
            let mut reader = Raw::connect(at.mqtt, version, "reader");
            let mut writer = Raw::connect(at.mqtt, version, "writer");
            for (published, subscribed) in [(0, 2), (1, 0), (1, 2), (2, 1), (2, 2)] {
                reader.subscribe(9, "q", subscribed);
                writer.publish("q", b"x", published, false);
                let got = reader.message();
                assert_eq!((got.qos, got.duplicate), (published.min(subscribed), false));
                reader.confirm(&got);
                reader.unsubscribe(10, "q");
            }
        }
    });
}

#[test]
fn a_retained_message_is_kept_and_its_expiry_is_counted_down() {
    with_broker(|at| {
        let mut writer = Raw::connect(at.mqtt, V5, "writer");
        writer.publish_full("lamp", b"on", 1, true, Some(100), &[]);
        writer.publish_full("brief", b"gone", 1, true, Some(1), &[]);
        writer.publish_full("off", b"x", 1, true, None, &[]);
        writer.publish_full("off", b"", 1, true, None, &[]);
        std::thread::sleep(Duration::from_millis(2100));
        let mut reader = Raw::connect(at.mqtt, V5, "reader");
        for (number, filter) in [(1, "brief"), (2, "off"), (3, "lamp")] {
            reader.subscribe(number, filter, 1);
        }
        let got = reader.message();
        assert_eq!((&*got.topic, got.retain), ("lamp", true), "one has expired, one was removed");
        assert!(got.expiry.is_some_and(|seconds| (90..=98).contains(&seconds)), "{:?}", got.expiry);
        reader.confirm(&got);
        // a present subscriber gets it as any other message
        writer.publish_full("lamp", b"off", 1, true, None, &[]);
        let got = reader.message();
        assert_eq!((&*got.payload, got.retain, got.expiry), (&b"off"[..], false, None));
        // and a late program gets it, too
        let mut program = at.client();
        program.subscribe(&SubscriptionSpec::new("lamp")).expect("it fits");
        let got = event(&mut program);
        assert_eq!((&*got.payload.bytes(), got.retained), (&b"off"[..], true));
    });
}

#[test]
fn a_message_of_quality_2_in_flight_outlives_its_expiry() {
    with_broker(|at| {
        let mut reader = Raw::open(at.mqtt, V5).with_session("reader", 60);
        reader.subscribe(1, "q", 2);
        let mut writer = Raw::connect(at.mqtt, V5, "writer");
        writer.publish_full("q", b"once", 2, false, Some(1), &[]);
        let first = reader.message();
        assert_eq!((first.qos, first.expiry, first.duplicate), (2, Some(1), false));
        drop(reader);
        std::thread::sleep(Duration::from_millis(1500));
        let mut reader = Raw::open(at.mqtt, V5).with_session("reader", 60);
        assert!(reader.session_present);
        let again = reader.message();
        assert_eq!((again.id, again.duplicate, &*again.payload), (first.id, true, &b"once"[..]));
        reader.confirm(&again);
        // PUBREL is repeated as well, and no message comes twice
        writer.publish_full("q", b"twice", 2, false, None, &[]);
        let second = reader.message();
        reader.send(&[0x50, 2, second.id[0], second.id[1]]); // PUBREC
        assert_eq!(reader.packet().0, 0x62);
        drop(reader);
        let mut reader = Raw::open(at.mqtt, V5).with_session("reader", 60);
        assert_eq!(reader.packet(), (0x62, second.id.to_vec()));
        reader.send(&[0x70, 2, second.id[0], second.id[1]]); // PUBCOMP
        reader.is_quiet();
    });
}

#[test]
fn a_quality_2_message_that_comes_twice_is_published_once() {
    with_broker(|at| {
        let mut reader = Raw::connect(at.mqtt, V311, "reader");
        reader.subscribe(1, "q", 0);
        let mut writer = Raw::open(at.mqtt, V5).with_session("writer", 60);
        let packet = [&[0x34, 7, 0, 1, b'q', 0, 5, 0], &b"x"[..]].concat();
        let packet = [&[0x34, 7][..], &packet[2..]].concat();
        writer.send(&packet);
        assert_eq!(writer.packet().0, 0x50);
        drop(writer);
        let mut writer = Raw::open(at.mqtt, V5).with_session("writer", 60);
        writer.send(
            &packet
                .iter()
                .enumerate()
                .map(|(at, byte)| if at == 0 { byte | 8 } else { *byte })
                .collect::<Vec<_>>(),
        );
        assert_eq!(writer.packet().0, 0x50);
        writer.send(&[0x62, 2, 0, 5]);
        assert_eq!(writer.packet().0, 0x70);
        assert_eq!(&*reader.message().payload, b"x");
        reader.is_quiet();
        writer.send(&packet); // released: the number is free for another message
        assert_eq!(&*reader.message().payload, b"x");
    });
}

#[test]
fn one_message_that_a_client_cannot_take_does_not_hold_up_those_behind_it() {
    with_broker(|at| {
        let mut reader = Raw::open(at.mqtt, V5).with_largest("reader", 100);
        reader.subscribe(1, "q", 1);
        let mut writer = Raw::connect(at.mqtt, V5, "writer");
        writer.publish("q", &[b'x'; 200], 1, false);
        writer.publish("q", b"small", 1, false);
        let got = reader.message();
        assert_eq!(&*got.payload, b"small");
        // a packet that is too large for the broker ends its sender's connection, and no other
        let mut other = Raw::connect(at.mqtt, V5, "other");
        let large = [&[0x30, 0xC0, 0x96, 0xB1, 0x02][..], &vec![b'x'; 5_000_000]].concat();
        other.send(&large);
        let (kind, body) = other.packet();
        assert_eq!((kind, body[0]), (0xE0, 0x95), "DISCONNECT: packet too large");
        assert!(other.ends());
        writer.publish("q", b"still", 0, false);
        reader.confirm(&got);
        assert_eq!(&*reader.message().payload, b"still");
    });
}

#[test]
fn a_session_keeps_its_subscriptions_and_messages_until_it_ends() {
    with_broker(|at| {
        let mut reader = Raw::open(at.mqtt, V5).with_session("reader", 60);
        assert!(!reader.session_present);
        reader.subscribe(1, "kept", 1);
        reader.send(&[0xE0, 0]); // DISCONNECT
        assert!(reader.ends());
        let mut writer = Raw::connect(at.mqtt, V311, "writer");
        for payload in [b"1", b"2", b"3"] {
            writer.publish("kept", payload, 1, false);
        }
        let mut reader = Raw::open(at.mqtt, V5).with_session("reader", 60);
        assert!(reader.session_present);
        for payload in [b"1", b"2", b"3"] {
            let got = reader.message();
            assert_eq!(&*got.payload, payload);
            reader.confirm(&got);
        }
        // a clean start forgets the session
        let mut reader = Raw::connect(at.mqtt, V5, "reader");
        assert!(!reader.session_present);
        writer.publish("kept", b"4", 1, false);
        reader.is_quiet();
        // an expired session is forgotten, too
        let mut brief = Raw::open(at.mqtt, V5).with_session("brief", 1);
        brief.subscribe(1, "kept", 1);
        drop(brief);
        std::thread::sleep(Duration::from_millis(3200));
        assert!(!Raw::open(at.mqtt, V5).with_session("brief", 1).session_present);
    });
}

#[test]
fn a_second_client_of_one_name_takes_the_session_over() {
    with_broker(|at| {
        let mut first = Raw::open(at.mqtt, V5).with_session("name", 60);
        first.subscribe(1, "t", 0);
        let mut second = Raw::open(at.mqtt, V5).with_session("name", 60);
        assert!(second.session_present);
        let (kind, body) = first.packet();
        assert_eq!((kind, body[0]), (0xE0, 0x8E), "DISCONNECT, session taken over");
        assert!(first.ends());
        Raw::connect(at.mqtt, V5, "writer").publish("t", b"x", 0, false);
        assert_eq!(&*second.message().payload, b"x");
    });
}

#[test]
fn members_of_a_shared_subscription_divide_the_messages_and_one_that_dies_loses_none() {
    with_broker(|at| {
        let mut one = Raw::connect(at.mqtt, V5, "one");
        let mut other = Raw::connect(at.mqtt, V5, "other");
        one.subscribe(1, "$share/workers/job/+", 1);
        other.subscribe(1, "$share/workers/job/+", 1);
        let mut writer = Raw::connect(at.mqtt, V5, "writer");
        for number in 0..8_u8 {
            writer.publish("job/1", &[number], 1, false);
        }
        let mut got = Vec::new();
        for _ in 0..4 {
            let message = one.message();
            one.confirm(&message);
            got.push(message.payload[0]);
        }
        one.is_quiet(); // the other one got four as well, and ends without confirming them
        drop(other);
        for _ in 0..4 {
            let message = one.message();
            one.confirm(&message);
            got.push(message.payload[0]);
        }
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 3, 4, 5, 6, 7]);
        for filter in ["$share/x", "$share//t", "$share/a+/t"] {
            let mut client = Raw::connect(at.mqtt, V5, "wrong");
            client.send_subscribe(7, filter, 0);
            assert!(client.ends_after_disconnect(), "{filter}");
        }
    });
}

#[test]
fn the_will_is_published_when_the_connection_breaks_and_not_when_it_is_ended() {
    with_broker(|at| {
        let mut reader = Raw::connect(at.mqtt, V311, "reader");
        reader.subscribe(1, "will/#", 0);
        for version in [V311, V5] {
            let mut ended = Raw::open(at.mqtt, version).with_will("ended", "will/ended", 0);
            ended.send(&[0xE0, 0]);
            assert!(ended.ends());
            drop(Raw::open(at.mqtt, version).with_will("broken", "will/broken", 0));
            assert_eq!(&*reader.message().topic, "will/broken");
        }
    });
}

/// By a clock of its own, because a client on a busy host may come back too late.
#[test]
fn a_delayed_will_is_published_unless_its_client_comes_back_in_time() {
    let mut bench = BrokerBench::open();
    let (reader, ..) = bench.mqtt(Comes::User(0), "reader", true, 0);
    bench.mqtt_subscribe(reader, "will/#", 0);
    for (name, delay) in [("back", 2), ("late", 1)] {
        let client = bench.mqtt_with_delayed_will(name, &format!("will/{name}"), delay);
        bench.gone(client);
    }
    for (millis, wills) in [(500, None), (1500, Some(b"will/late".to_vec())), (3000, None)] {
        bench.wait(Duration::from_millis(millis).into());
        assert_eq!(bench.messages(reader), Vec::from_iter(wills), "{millis} ms later");
        bench.mqtt(Comes::User(0), "back", false, 60);
    }
}

#[test]
fn a_will_has_the_properties_that_it_came_with_and_no_others() {
    with_broker(|at| {
        let mut reader = Raw::connect(at.mqtt, V5, "reader");
        reader.subscribe(1, "w", 1);
        drop(Raw::open(at.mqtt, V5).with_will_expiry("dies", "w", 100));
        let will = reader.message();
        assert_eq!((will.expiry, will.user("deadline_us")), (Some(100), None));
    });
}

#[test]
fn a_client_that_is_silent_is_dead_after_one_and_a_half_keep_alive_times() {
    with_broker(|at| {
        let mut silent = Raw::open(at.mqtt, V5).with_keep_alive("silent", 1);
        let mut alive = Raw::open(at.mqtt, V5).with_keep_alive("alive", 1);
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(500));
            alive.send(&[0xC0, 0]);
            assert_eq!(alive.packet().0, 0xD0);
        }
        let (kind, body) = silent.packet();
        assert_eq!((kind, body[0]), (0xE0, 0x8D));
        assert!(silent.ends());
    });
}

#[test]
fn options_of_a_subscription_are_kept() {
    with_broker(|at| {
        let mut client = Raw::connect(at.mqtt, V5, "client");
        let mut other = Raw::connect(at.mqtt, V5, "other");
        // no local, and retain as published
        client.subscribe(1, "own", 0x04);
        client.publish("own", b"mine", 1, false);
        other.publish("own", b"theirs", 1, false);
        assert_eq!(&*client.message().payload, b"theirs");
        client.subscribe(2, "flag", 0x08);
        other.publish("flag", b"x", 1, true);
        assert!(client.message().retain);
        // retained messages: only for a new subscription, and never
        client.subscribe(3, "flag", 0x18);
        client.subscribe(4, "flag/#", 0x28);
        client.is_quiet();
        client.subscribe_identified(6, "seen/#", 0, 77);
        other.publish("seen/x", b"", 1, false);
        assert_eq!(client.message().identifiers, [77]);
    });
}

#[test]
fn a_message_that_matches_several_subscriptions_obeys_each_of_them() {
    with_broker(|at| {
        for (first, second) in [("own/#", "own/x"), ("own/x", "own/#")] {
            let mut client = Raw::connect(at.mqtt, V5, "client");
            let mut other = Raw::connect(at.mqtt, V5, "other");
            // the first subscription excludes the client's own messages
            client.subscribe_identified(1, first, 0x04, 1);
            client.subscribe_identified(2, second, 0x00, 2);
            client.publish("own/x", b"mine", 0, false);
            let got = client.message();
            assert_eq!((&*got.payload, &*got.identifiers), (&b"mine"[..], &[2][..]));
            other.publish("own/x", b"theirs", 0, false);
            let mut got = client.message().identifiers;
            got.sort_unstable();
            assert_eq!(got, [1, 2]);
            // a subscription without an identifier does not hide the identifier of another one
            client.subscribe(3, first, 0);
            other.publish("own/x", b"theirs", 0, false);
            assert_eq!(client.message().identifiers, [2]);
            client.subscribe_identified(4, first, 0, 1);
            client.subscribe(5, second, 0);
            other.publish("own/x", b"theirs", 0, false);
            assert_eq!(client.message().identifiers, [1]);
        }
    });
}

#[test]
fn a_retained_message_has_the_identifier_of_the_subscription_that_it_is_sent_for() {
    with_broker(|at| {
        Raw::connect(at.mqtt, V5, "writer").publish("kept/x", b"old", 1, true);
        let mut client = Raw::connect(at.mqtt, V5, "client");
        client.send_subscribe_identified(1, "kept/#", 7);
        assert_eq!(client.packet().0, 0x90);
        assert_eq!(client.message().identifiers, [7]);
        client.send_subscribe_identified(2, "kept/x", 8);
        assert_eq!(client.packet().0, 0x90);
        assert_eq!(client.message().identifiers, [8]);
    });
}

#[test]
fn a_subscription_is_sent_thousands_of_retained_messages() {
    with_broker(|at| {
        let mut writer = Raw::connect(at.mqtt, V5, "writer");
        // more than the queue's 8,192 messages, and than its 1 MiB
        for (kind, messages, bytes) in [("many", 9000, 1), ("large", 1104, 1200)] {
            for number in 0..messages {
                writer.publish(&format!("{kind}/{number}"), &vec![b'x'; bytes], 0, true);
            }
            writer.is_quiet();
            for qos in [0, 1] {
                let mut reader = Raw::connect(at.mqtt, V5, "reader");
                reader.subscribe(1, &format!("{kind}/+"), qos);
                let topics: HashSet<String> = (0..messages).map(|_| reader.message().topic).collect();
                assert_eq!(topics.len(), messages);
            }
        }
    });
}

#[test]
fn a_client_is_not_sent_its_own_message_after_it_has_come_back() {
    with_broker(|at| {
        let mut client = Raw::open(at.mqtt, V5).with_session_and_maximum("client", 1);
        client.subscribe(1, "own", 0x05);
        let mut other = Raw::connect(at.mqtt, V5, "other");
        other.publish("own", b"first", 1, false);
        assert_eq!(&*client.message().payload, b"first");
        client.publish("own", b"mine", 1, false); // waits behind the first
        drop(client);
        let mut client = Raw::open(at.mqtt, V5).with_session_and_maximum("client", 9);
        assert!(client.message().duplicate);
        client.is_quiet();
    });
}

#[test]
fn what_is_sent_again_obeys_the_limits_of_the_new_connection() {
    with_broker(|at| {
        let mut reader = Raw::open(at.mqtt, V5).with_session("reader", 60);
        reader.subscribe(1, "q", 1);
        let mut writer = Raw::connect(at.mqtt, V5, "writer");
        let payloads: [&[u8]; 4] = [b"0", b"1", &[b'2'; 100], b"3"];
        for payload in payloads {
            writer.publish("q", payload, 1, false);
            assert_eq!(&*reader.message().payload, payload);
        }
        drop(reader);
        let mut reader = Raw::open(at.mqtt, V5).with_session_and_maximum("reader", 2);
        let (first, second) = (reader.message(), reader.message());
        assert_eq!((&*first.payload, &*second.payload), (&b"0"[..], &b"1"[..]));
        assert!(first.duplicate && second.duplicate);
        reader.is_quiet(); // two are unconfirmed
        reader.confirm(&first);
        assert_eq!(reader.message().payload.len(), 100);
        drop(reader);
        // the third message is too large now
        let mut reader = Raw::open(at.mqtt, V5).with_session_and_largest("reader", 60);
        for payload in [b"1", b"3"] {
            let again = reader.message();
            assert_eq!(&*again.payload, payload);
            reader.confirm(&again);
        }
        writer.publish("q", b"4", 1, false);
        let next = reader.message();
        assert_eq!((&*next.payload, next.duplicate), (&b"4"[..], false));
    });
}

#[test]
fn answers_are_as_short_as_a_client_asks() {
    with_broker(|at| {
        let mut curt = Raw::open(at.mqtt, V5).without_reasons("curt");
        curt.send_message("$SYS/x", b"", 1);
        assert_eq!(curt.packet(), (0x40, vec![0, 3, 0x90]));
        curt.send_subscribe(1, "a/#/b", 0);
        assert_eq!(curt.packet(), (0x90, vec![0, 1, 0, 0x8F]));
        let mut small = Raw::open(at.mqtt, V5).with_largest("small", 20);
        small.send_message("$SYS/x", b"", 1);
        assert_eq!(small.packet(), (0x40, vec![0, 3, 0x90, 0]));
        small.send(&[0xF0, 0]);
        assert_eq!(small.packet(), (0xE0, vec![0x8C, 0]));
        // not even CONNACK fits
        let mut tiny = Raw::open(at.mqtt, V5);
        tiny.send(&[0x10, 18, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 5, 0x27, 0, 0, 0, 6, 0, 0]);
        assert_eq!(tiny.packet(), (0x20, vec![0, 0x95, 0]));
    });
}

#[test]
fn the_broker_gives_no_client_an_identifier_that_is_in_use() {
    with_broker(|at| {
        let (_first, name) = Raw::open(at.mqtt, V5).with_chosen_name();
        let number: u64 = name.trim_start_matches("unisono-").parse().expect("a number");
        // names that the broker would choose some connections later
        let taken: Vec<(String, Raw)> = (number + 50..number + 70)
            .map(|number| format!("unisono-{number}"))
            .map(|name| (name.clone(), Raw::connect(at.mqtt, V5, &name)))
            .collect();
        for _ in 0..60 {
            let (_client, chosen) = Raw::open(at.mqtt, V5).with_chosen_name();
            assert!(taken.iter().all(|(taken, _)| *taken != chosen), "{chosen}");
        }
        for (_, mut client) in taken {
            client.is_quiet(); // its session was not taken over
        }
    });
}

#[test]
fn a_broken_connect_is_refused_in_the_words_of_its_version() {
    with_broker(|at| {
        let mut of_5 = Raw::open(at.mqtt, V5);
        of_5.send(&[0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 5, 3, 0, 0, 0, 0, 0]); // a reserved flag
        let (kind, body) = of_5.packet();
        assert_eq!((kind, body[0], body[1], usize::from(body[2])), (0x20, 0, 0x81, body.len() - 3));
        assert!(of_5.ends());
        // 3.1.1: the connection ends without an answer
        let mut of_311 = Raw::open(at.mqtt, V311);
        of_311.send(&[0x10, 12, 0, 4, b'M', b'Q', b'T', b'T', 4, 3, 0, 0, 0, 0]);
        assert!(of_311.ends_silently());
    });
}

#[test]
fn a_topic_that_no_message_can_have_ends_the_connection() {
    with_broker(|at| {
        for (topic, code) in [("a/#", 0x90), ("+", 0x90), ("a\0", 0x81), ("", 0x82)] {
            let mut client = Raw::connect(at.mqtt, V5, "client");
            client.send_message(topic, b"x", 0);
            let (kind, body) = client.packet();
            assert_eq!((kind, body[0]), (0xE0, code), "`{topic}`");
            let mut old = Raw::connect(at.mqtt, V311, "old");
            old.send_message(topic, b"x", 1);
            assert!(old.ends_silently(), "`{topic}`");
        }
    });
}

#[test]
fn a_topic_alias_stands_for_its_topic_until_the_connection_ends() {
    with_broker(|at| {
        let mut reader = Raw::connect(at.mqtt, V5, "reader");
        reader.subscribe(1, "a/b", 0);
        let mut writer = Raw::connect(at.mqtt, V5, "writer");
        writer.send(&[0x30, 10, 0, 3, b'a', b'/', b'b', 3, 0x23, 0, 7, b'1']);
        writer.send(&[0x30, 7, 0, 0, 3, 0x23, 0, 7, b'2']);
        assert_eq!(&*reader.message().payload, b"1");
        let got = reader.message();
        assert_eq!((&*got.topic, &*got.payload), ("a/b", &b"2"[..]));
        writer.send(&[0x30, 7, 0, 0, 3, 0x23, 0, 8, b'3']); // never given
        assert_eq!(writer.packet().0, 0xE0);
        assert!(writer.ends());
    });
}

#[test]
fn what_is_no_mqtt_ends_its_own_connection_and_no_other() {
    with_broker(|at| {
        let mut reader = Raw::connect(at.mqtt, V5, "reader");
        reader.subscribe(1, "t", 0);
        let garbage: [&[u8]; 8] = [
            b"GET / HTTP/1.1\r\nHost: example\r\nAccept: text/html\r\nUser-Agent: somebody else\r\n\r\n",
            &[0xFF; 64],
            &[0x10, 2, 0, 0],
            &[0x10, 10, 0, 4, b'M', b'Q', b'T', b'T', 9, 2, 0, 0],
            &[0x30, 4, 0, 1, b't', b'x'],
            &[0, 0],
            &[0xF0, 0],
            &[0x10, 0x80, 0x80, 0x80, 0x80, 0x80],
        ];
        for bytes in garbage {
            let mut other = Raw::open(at.mqtt, V5);
            other.send(bytes);
            assert!(other.ends(), "{bytes:?}");
        }
        let mut late: Vec<Raw> =
            (0..4).map(|number| Raw::connect(at.mqtt, V5, &format!("late{number}"))).collect();
        let garbage: [&[u8]; 4] =
            [&[0x36, 5, 0, 1, b't', 0, 1], &[0x62, 2, 0], &[0x82, 3, 0, 0, 0], &[0x30, 4, 0, 9, b't', b'x']];
        for (client, bytes) in late.iter_mut().zip(garbage) {
            client.send(bytes);
            if bytes != [0x62, 2, 0] {
                assert!(client.ends_after_disconnect(), "{bytes:?}");
            }
        }
        Raw::connect(at.mqtt, V5, "writer").publish("t", b"x", 0, false);
        assert_eq!(&*reader.message().payload, b"x");
    });
}

#[test]
fn a_client_that_reads_nothing_holds_up_nobody() {
    with_broker(|at| {
        let mut stopped = Raw::connect(at.mqtt, V311, "stopped");
        stopped.subscribe(1, "flood", 0);
        let mut reader = Raw::connect(at.mqtt, V311, "reader");
        reader.subscribe(1, "flood", 0);
        let mut writer = Raw::connect(at.mqtt, V311, "writer");
        let payload = vec![7; 64 << 10];
        for _ in 0..300 {
            writer.publish("flood", &payload, 1, false);
            assert_eq!(reader.message().payload.len(), payload.len());
        }
        drop(stopped);
        writer.publish("flood", b"last", 1, false);
        assert_eq!(&*reader.message().payload, b"last");
    });
}

#[test]
fn names_that_are_none_are_refused_with_the_reason() {
    with_broker(|at: &Addresses| {
        let mut client = Raw::connect(at.mqtt, V5, "client");
        assert_eq!(client.subscribe_code(1, "a/#/b", 0), 0x8F);
        assert_eq!(client.publish_code("$SYS/x", b"", 1), 0x90);
        assert_eq!(client.publish_code("nobody", b"", 1), 0x10, "no matching subscribers");
        let mut old = Raw::connect(at.mqtt, V311, "old");
        assert_eq!(old.subscribe_code(1, "a/#/b", 0), 0x80);
    });
}
