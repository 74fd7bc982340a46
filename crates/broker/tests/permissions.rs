//! Permissions at a broker, over real sockets: each refusal is reported to the requester, and counted.

use crate::common::mqtt::{Raw, V5, V311};
use crate::common::{Addresses, broker, event, with_this_broker};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use unisono_broker::{Broker, Limits, Permissions, Tokens};
use unisono_events_client::{
    Advertisement, BrokerAddress, Client, ClientOptions, Destination, Error, EventDraft, FieldValue,
    SubscriptionSpec, now,
};
use unisono_fairqueue::{ClassSpec, Hierarchy, LinkPace, Rate};
use unisono_linux::local_socket::own_user;

/// The hash of `test`.
const TOKENS: &str = "[[token]]
name = \"line1\"
sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"
";

/// Returns the link of the paths.
fn link(bits_per_second: u64) -> LinkPace {
    LinkPace::new(Rate::new(bits_per_second).expect("a positive rate"), Limits::MAX_LATENESS)
}

fn with_rules(rules: &str, tokens: Option<&str>, test: impl FnOnce(&Addresses) + Send + 'static) {
    let user = |name: &str| (name == "me").then(own_user);
    let mut broker: Broker =
        broker().with_permissions(Permissions::parse(rules, &user).expect("it is sound"));
    if let Some(tokens) = tokens {
        broker = broker.with_tokens(Tokens::parse(tokens, now(), 0).expect("it is sound"));
    }
    with_this_broker(broker, test);
}

fn refusals(client: &mut Client, kind: &str) -> u64 {
    client.statistics().expect("it goes on").refusals.get(kind).copied().unwrap_or(0)
}

fn with_token(address: SocketAddr, token: &str) -> Result<Client, Error> {
    ClientOptions::new().with_token(token).connect(&BrokerAddress::Tcp(address))
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    outcome.expect_err("it is not allowed").to_string()
}

#[test]
fn a_program_may_do_what_its_rule_says_and_no_more() {
    let rules = "[[allow]]\nwho = [\"*\"]\npublish = [\"mine/#\"]\nsubscribe = [\"mine/+\", \"news\"]\n\
                 size = 10\nmemory = 5000000\nrate = 1000000";
    with_rules(rules, None, |at| {
        let mut client = at.client();
        let theirs = refused(client.advertise(&Advertisement::new("theirs")));
        assert!(theirs.ends_with(" may not publish `theirs`; its rule allows `mine/#`"), "{theirs}");
        let all = refused(client.subscribe(&SubscriptionSpec::new("#")));
        assert!(all.ends_with(" may not subscribe to `#`; its rule allows `mine/+`, `news`"), "{all}");
        client.subscribe(&SubscriptionSpec::new("mine/a")).expect("it may");
        let second = client.subscribe(&SubscriptionSpec::new("news"));
        assert!(refused(second).contains("5000000 bytes of queues"), "4 MiB each");
        let topic = client.advertise(&Advertisement::new("mine/a")).expect("it may");
        let large = client.try_publish(topic, &EventDraft::new(&[0; 11]));
        assert!(refused(large).contains("11 bytes; the permissions allow 10"));
        client.publish(topic, &EventDraft::new(&[0; 10])).expect("it leaves");
        assert_eq!(event(&mut client).payload.bytes().len(), 10);
        for kind in ["publish", "subscribe", "memory", "size"] {
            assert_eq!(refusals(&mut client, kind), 1, "{kind}");
        }
    });
}

#[test]
fn rates_and_connections_have_a_bound() {
    let rules = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nrate = 2\nconnections = 1";
    with_rules(rules, None, |at| {
        let mut client = at.client();
        let topic = client.advertise(&Advertisement::new("t")).expect("it may");
        let outcomes: Vec<bool> =
            (0..8).map(|_| client.try_publish(topic, &EventDraft::new(b"")).is_ok()).collect();
        assert_eq!(outcomes[..2], [true, true]);
        assert!(outcomes[2..].contains(&false), "{outcomes:?}");
        assert!(refusals(&mut client, "rate") > 0);
        let second = Client::connect_unix(&at.unix);
        assert!(refused(second).contains("may have 1 connections"));
        assert_eq!(refusals(&mut client, "connections"), 1);
    });
}

#[test]
fn a_client_that_no_rule_names_is_refused() {
    with_rules("[[allow]]\nwho = [\"anonymous\"]\nsubscribe = [\"public/#\"]", None, |at| {
        assert!(refused(Client::connect_unix(&at.unix)).contains("no rule of the permissions names unix:"));
        let mut client = Client::connect_tcp(at.tcp).expect("it is named");
        client.subscribe(&SubscriptionSpec::new("public/a")).expect("it may");
        assert!(refused(client.subscribe(&SubscriptionSpec::new("a"))).contains("anonymous may not"));
    });
}

#[test]
fn over_tcp_a_token_says_who_a_program_is_until_it_expires() {
    let expired = format!(
        "{TOKENS}[[token]]\nname = \"old\"\nexpires = \"1969-01-01T00:00:00Z\"\nsha256 = \"{}\"\n",
        // the hash of `old`
        "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4"
    );
    let rules = "[[allow]]\nwho = [\"token:line1\"]\npublish = [\"line1/#\"]";
    with_rules(rules, Some(&expired), |at| {
        let mut client = with_token(at.tcp, "test").expect("it knows the token");
        client.advertise(&Advertisement::new("line1/a")).expect("it may");
        assert!(refused(Client::connect_tcp(at.tcp)).contains("asks for one over TCP"));
        assert!(refused(with_token(at.tcp, "guess")).contains("not one of the broker's"));
        let old = refused(with_token(at.tcp, "old"));
        assert!(old.contains("the token `old` expired at 1969"), "{old}");
        assert_eq!(refusals(&mut client, "token"), 3);
    });
}

#[test]
fn a_connection_ends_when_its_token_expires() {
    // it expires when the broker has run for two seconds
    let expiring = format!("{TOKENS}expires = \"1970-01-01T00:00:02Z\"\n");
    let rules = "[[allow]]\nwho = [\"token:line1\", \"mqtt:line1\"]\nsubscribe = [\"#\"]";
    with_rules(rules, Some(&expiring), |at| {
        let mut client = with_token(at.tcp, "test").expect("it is still good");
        client.subscribe(&SubscriptionSpec::new("a")).expect("it may");
        let (mut mqtt, code) = Raw::open(at.mqtt, V5).log_in("c", "line1", "test");
        assert_eq!(code, 0);
        let said = refused(client.receive(None));
        assert!(said.contains("the token has expired; connect again with another"), "{said}");
        let (kind, body) = mqtt.packet();
        assert_eq!((kind, body[0]), (0xE0, 0x87), "DISCONNECT, not authorized");
        assert!(refused(with_token(at.tcp, "test")).contains("expired at 1970"));
    });
}

#[test]
fn an_mqtt_client_has_the_permissions_of_its_user() {
    let rules = "[[allow]]\nwho = [\"mqtt:line1\"]\npublish = [\"line1/#\"]\nsubscribe = [\"line1/+\"]\n\
                 size = 4\nmemory = 1048576";
    with_rules(rules, Some(TOKENS), |at| {
        for version in [V311, V5] {
            let (_, code) = Raw::open(at.mqtt, version).log_in("c", "line1", "guess");
            assert_eq!(code, if version == V5 { 0x86 } else { 4 });
            let (_, code) = Raw::open(at.mqtt, version).log_in("c", "line2", "test");
            assert_eq!(code, if version == V5 { 0x86 } else { 4 });
        }
        let (mut client, code) = Raw::open(at.mqtt, V5).log_in("c", "line1", "test");
        assert_eq!(code, 0);
        assert_eq!(client.subscribe_code(1, "line1/#", 0), 0x87);
        client.subscribe(2, "line1/a", 0);
        assert_eq!(client.subscribe_code(3, "line1/b", 1), 0x97, "a second queue is too much memory");
        assert_eq!(client.publish_code("line2/a", b"x", 1), 0x87);
        assert_eq!(client.publish_code("line1/a", b"large", 1), 0x97);
        client.publish("line1/a", b"fits", 0, false);
        assert_eq!(&*client.message().payload, b"fits");
    });
}

#[test]
fn an_mqtt_client_that_connects_again_replaces_the_one_connection_that_it_may_have() {
    let rules = "[[allow]]\nwho = [\"mqtt:line1\"]\nsubscribe = [\"#\"]\nconnections = 1";
    with_rules(rules, Some(TOKENS), |at| {
        let (mut first, code) = Raw::open(at.mqtt, V5).log_in("c", "line1", "test");
        assert_eq!(code, 0);
        let (_, code) = Raw::open(at.mqtt, V5).log_in("another", "line1", "test");
        assert_eq!(code, 0x86, "a second client");
        let (mut second, code) = Raw::open(at.mqtt, V5).log_in("c", "line1", "test");
        assert_eq!(code, 0, "the same client, whose network has changed");
        let (kind, body) = first.packet();
        assert_eq!((kind, body[0]), (0xE0, 0x8E), "DISCONNECT, session taken over");
        second.subscribe(1, "t", 0);
    });
}

#[test]
fn a_user_of_this_host_has_the_rule_of_its_name_by_a_socket_and_by_shared_memory() {
    let rules =
        "[[allow]]\nwho = [\"unix:me\"]\npublish = [\"mine/#\"]\nsubscribe = [\"mine/#\"]\nsize = 100000";
    with_rules(rules, None, |at| {
        for mut client in at.local() {
            assert!(
                refused(client.advertise(&Advertisement::new("theirs"))).contains("may not publish `theirs`")
            );
            assert!(
                refused(client.subscribe(&SubscriptionSpec::new("#"))).contains("may not subscribe to `#`")
            );
            client.subscribe(&SubscriptionSpec::new("mine/a")).expect("it may");
            let topic = client.advertise(&Advertisement::new("mine/a")).expect("it may");
            // through shared memory a payload of 16 KiB or more travels separately from its frame
            let large = client.try_publish(topic, &EventDraft::new(&[0; 100_001]));
            assert!(refused(large).contains("100001 bytes; the permissions allow 100000"));
            for bytes in [1, 100_000] {
                client.publish(topic, &EventDraft::new(&vec![7; bytes])).expect("it leaves");
                assert_eq!(event(&mut client).payload.bytes().len(), bytes);
            }
        }
        assert!(refused(Client::connect_tcp(at.tcp)).contains("no rule of the permissions names anonymous"));
    });
}

#[test]
fn paths_need_a_rule_that_says_so() {
    let udp = || Destination::udp("127.0.0.1:9".parse::<SocketAddr>().expect("an address"));
    for (paths, may) in [("paths = false", false), ("", false), ("paths = true", true)] {
        let rules = format!("[[allow]]\nwho = [\"unix:me\"]\npublish = [\"#\"]\n{paths}");
        let user = |name: &str| (name == "me").then(own_user);
        let permissions = Permissions::parse(&rules, &user).expect("it is sound");
        let broker = broker().with_permissions(permissions).with_paths(link(8_000_000));
        with_this_broker(broker, move |at| {
            for mut client in at.local() {
                let before = refusals(&mut client, "paths");
                let opened = client.open("", udp());
                assert_eq!(opened.is_ok(), may, "{paths}: {opened:?}");
                if let Err(error) = opened {
                    assert!(error.to_string().contains("add `paths = true` to its rule"), "{error}");
                    assert_eq!(refusals(&mut client, "paths"), before + 1);
                }
            }
        });
    }
}

#[test]
fn an_mqtt_client_that_publishes_too_fast_is_told_so_and_may_publish_later() {
    let rules = "[[allow]]\nwho = [\"mqtt:line1\"]\npublish = [\"#\"]\nrate = 1";
    with_rules(rules, Some(TOKENS), |at| {
        let (mut client, code) = Raw::open(at.mqtt, V5).log_in("c", "line1", "test");
        assert_eq!(code, 0);
        // 0x10: accepted, without a matching subscriber
        let mut code = || client.publish_code("t", b"x", 1);
        assert_eq!(code(), 0x10);
        while code() != 0x97 {}
        std::thread::sleep(Duration::from_millis(2100));
        assert_eq!(code(), 0x10);
    });
}

#[test]
fn requests_need_no_rule_for_replies_and_nobody_else_reads_the_answers() {
    let rules = "[[allow]]\nwho = [\"anonymous\"]\npublish = [\"sums\"]\n\
                 [[allow]]\nwho = [\"unix:me\"]\nsubscribe = [\"sums\"]";
    with_rules(rules, None, |at| {
        let mut replier = at.client();
        replier.subscribe(&SubscriptionSpec::new("sums")).expect("it may");
        let tcp = at.tcp;
        let asking = std::thread::spawn(move || {
            let mut asking = Client::connect_tcp(tcp).expect("it is named");
            let sums = asking.advertise(&Advertisement::new("sums")).expect("it may");
            let reply = asking.request(sums, EventDraft::new(b"1 + 1"), Duration::from_secs(20));
            reply.map(|reply| reply.payload.bytes().into_owned())
        });
        let request = event(&mut replier);
        let Some(FieldValue::Text(topic)) = request.fields.field("reply_to").cloned() else {
            panic!("{request:?}")
        };
        // a receiver of the request knows the topic, and may reply there; only the requester may read it
        for pattern in [&*topic, "reply/+", "#"] {
            let said = refused(replier.subscribe(&SubscriptionSpec::new(pattern)));
            assert!(said.contains("may not subscribe"), "{said}");
        }
        let guess = format!("{}0", &topic[..topic.len() - 1]);
        for other in ["reply/1-2", if guess == *topic { "reply/0" } else { &guess }] {
            assert!(refused(replier.advertise(&Advertisement::new(other))).contains("may not publish"));
        }
        assert!(replier.reply(&request, EventDraft::new(b"2")).expect("it may"));
        assert_eq!(asking.join().expect("it ends").expect("a reply"), b"2");
        // the topic ends with the requesting program
        let start = Instant::now();
        while let Ok(again) = replier.advertise(&Advertisement::new(&topic)) {
            replier.withdraw(again).expect("it goes on");
            assert!(start.elapsed() < Duration::from_secs(20), "the topic does not end");
        }
    });
}

#[test]
fn a_rule_says_the_class_of_those_that_choose_none() {
    let rules = "[[allow]]\nwho = [\"token:line1\", \"mqtt:line1\"]\nsubscribe = [\"#\"]\nclass = \"control\"\n\
                 [[allow]]\nwho = [\"*\"]\nsubscribe = [\"#\"]";
    let tree = Hierarchy::new(ClassSpec::new("all").with([ClassSpec::new("control")]))
        .and_then(|tree| tree.with_default("rest"))
        .expect("it is sound");
    let permissions = Permissions::parse(rules, &|_| None).expect("it is sound");
    let tokens = Tokens::parse(TOKENS, now(), 0).expect("it is sound");
    let broker =
        Broker::new(tree, Limits::default()).with_permissions(permissions.clone()).with_tokens(tokens);
    permissions.check_classes(&["control", "rest"]).expect("both have `control`");
    let said = permissions.check_classes(&["video", "rest"]).expect_err("it has no such class").to_string();
    assert!(said.starts_with("4:9: `control` is no class"), "{said}");
    assert!(said.contains("the classes are video, rest"), "{said}");
    with_this_broker(broker, |at| {
        let (mut mqtt, code) = Raw::open(at.mqtt, V5).log_in("mqtt", "line1", "test");
        assert_eq!(code, 0);
        mqtt.subscribe(1, "a", 1);
        mqtt.subscribe(2, "$share/workers/a", 1);
        let token = ClientOptions::new().named("program").with_token("test");
        let mut program = token.connect(&BrokerAddress::Tcp(at.tcp)).expect("it knows the token");
        program.subscribe(&SubscriptionSpec::new("a")).expect("it may");
        let mut chosen =
            token.named("chosen").connect(&BrokerAddress::Tcp(at.tcp)).expect("it knows the token");
        let rest = Some("rest".to_owned());
        chosen.subscribe(&SubscriptionSpec { class: rest, ..SubscriptionSpec::new("a") }).expect("it may");
        let mut other = ClientOptions::new()
            .named("other")
            .connect(&BrokerAddress::Unix(at.unix.clone()))
            .expect("it may");
        other.subscribe(&SubscriptionSpec::new("a")).expect("it may");
        let consumers = other.statistics().expect("it goes on").consumers;
        let mut classes: Vec<_> = consumers.iter().map(|of| (&*of.name, &*of.class)).collect();
        classes.sort_unstable();
        let expected = [
            ("$share/workers/a", "control"),
            ("chosen", "rest"),
            ("mqtt", "control"),
            ("other", "rest"),
            ("program", "control"),
        ];
        assert_eq!(classes, expected);
    });
}
