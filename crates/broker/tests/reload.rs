//! Settings that change while the broker serves: which connections go on, which ones the broker ends, and the
//! reasons that it gives.

use crate::common::bench::{BenchClient, BrokerBench, Comes};
use crate::common::{event, with_server};
use proptest::prelude::*;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use unisono_broker::{BrokerSettings, OWNER, Permissions, Server};
use unisono_events_client::{Advertisement, Client, EventDraft, ResumeSpec, SubscriptionSpec, WhenFull};
use unisono_events_wire::Frame;
use unisono_fairqueue::{ClassSpec, Hierarchy};

const A: Comes = Comes::Token("a");
const B: Comes = Comes::Token("b");

fn rule(who: &str, rest: &str) -> String {
    format!("[[allow]]\nwho = [\"token:{who}\", \"mqtt:{who}\"]\n{rest}\n")
}

const ALL: &str = "publish = [\"#\"]\nsubscribe = [\"#\"]\nblock = true\nshare = 9\nnames = [\"shared\"]";

/// A change of the rule of the client `a`, and what `a` does before.
type Act = fn(&mut BrokerBench, BenchClient) -> Result<(), String>;

fn subscribed(bench: &mut BrokerBench, client: BenchClient, spec: SubscriptionSpec) -> Result<(), String> {
    bench.subscribe(client, 1, spec)
}

#[test]
fn a_client_is_ended_if_it_may_not_do_any_more_what_it_does_and_goes_on_otherwise() {
    let advertise: Act = |bench, client| bench.advertise(client, 1, Advertisement::new("x/1"));
    let shares: Act = |bench, client| {
        bench.advertise(client, 1, Advertisement { share: Some(9), ..Advertisement::new("x/1") })
    };
    let subscribe: Act = |bench, client| subscribed(bench, client, SubscriptionSpec::new("x/+"));
    let blocks: Act = |bench, client| {
        let full = WhenFull::BlockSupplier;
        subscribed(bench, client, SubscriptionSpec { full, ..SubscriptionSpec::new("x/+") })
    };
    let joins: Act = |bench, client| {
        let group = Some("shared".to_owned());
        subscribed(bench, client, SubscriptionSpec { group, ..SubscriptionSpec::new("x/+") })
    };
    let own_group: Act = |bench, client| {
        let group = Some("own".to_owned());
        subscribed(bench, client, SubscriptionSpec { group, ..SubscriptionSpec::new("x/+") })
    };
    let both = "publish = [\"x/#\"]\nsubscribe = [\"x/#\"]";
    let cases: [(Act, &str, Option<&str>); 14] = [
        (advertise, both, None),
        (
            advertise,
            "publish = [\"x/2\"]\nsubscribe = [\"#\"]",
            Some("token:a may not publish `x/1` any more"),
        ),
        (shares, both, Some("token:a may not have a share of 9 of `x/1` any more")),
        (shares, "publish = [\"#\"]\nshare = 9", None),
        (subscribe, both, None),
        (
            subscribe,
            "subscribe = [\"x/1\", \"x/2\"]",
            Some("token:a may not subscribe to `x/+` any more"),
        ),
        (
            subscribe,
            "subscribe = [\"x/+\"]\nrate = 1\nsize = 1\nmemory = 1\nconnections = 0\nsessions = 0",
            None,
        ),
        (blocks, both, Some("token:a may not have suppliers wait for it any more")),
        (blocks, "subscribe = [\"#\"]\nblock = true", None),
        (joins, ALL, None),
        (joins, both, Some("the group `shared` is for the clients whose rules list `shared`")),
        (own_group, both, None),
        (own_group, "subscribe = [\"x/+\"]\nnames = [\"own\"]", None),
        (
            subscribe,
            "publish = []\nsubscribe = []",
            Some("token:a may not subscribe to `x/+` any more"),
        ),
    ];
    for (act, new, reason) in cases {
        let mut bench = BrokerBench::with_rules(&(rule("a", ALL) + &rule("b", ALL)), &["a", "b"]);
        let (a, b) = (bench.program(A, "one"), bench.program(B, "other"));
        act(&mut bench, a).expect("it may");
        subscribed(&mut bench, b, SubscriptionSpec::new("#")).expect("it may");
        let report = bench.reload(&(rule("a", new) + &rule("b", ALL)), &["a", "b"]);
        assert_eq!((bench.bye(b), bench.is_connected(b)), (None, true), "{new}");
        let bye = bench.bye(a);
        assert_eq!(bench.is_connected(a), reason.is_none(), "{new}: {bye:?}");
        assert_eq!(
            (report.ended, report.ends.len()),
            (u64::from(reason.is_some()), usize::from(reason.is_some()))
        );
        let Some(reason) = reason else { continue };
        assert!(bye.as_ref().is_some_and(|bye| bye.starts_with(reason)), "{bye:?}");
        assert_eq!((&*report.ends[0].who, &*report.ends[0].name), ("token:a", "one"));
    }
}

#[test]
fn a_client_whose_rule_or_token_is_gone_is_ended() {
    let rules = rule("a", ALL) + &rule("b", ALL);
    let mut bench = BrokerBench::with_rules(&rules, &["a", "b"]);
    let clients = [bench.program(A, "one"), bench.program(B, "other")];
    bench.reload(&rules, &["b", "c"]);
    assert_eq!(
        bench.bye(clients[0]).as_deref(),
        Some("the token is not one of the broker's; ask for another")
    );
    assert_eq!(bench.bye(clients[1]), None);
    bench.reload(&rule("a", ALL), &["a", "b"]);
    let bye = bench.bye(clients[1]).expect("it is ended");
    assert_eq!(bye, "no rule of the permissions names token:b any more; add it to one");
    bench.program(A, "again");
    // a client that has not greeted yet is not ended: it is asked for its token by the new rules
    assert_eq!(bench.reload(&rules, &["a", "b"]).ended, 0);
    bench.program(B, "again");
}

#[test]
fn a_new_rule_holds_for_the_next_requests_of_connections_that_go_on() {
    let mut bench = BrokerBench::with_rules(&rule("a", "publish = [\"x\"]"), &["a"]);
    let a = bench.program(A, "one");
    bench.advertise(a, 1, Advertisement::new("x")).expect("it may");
    bench.advertise(a, 2, Advertisement::new("y")).expect_err("it may not");
    bench.reload(&rule("a", "publish = [\"x\", \"y\"]\nsize = 3"), &["a"]);
    bench.advertise(a, 2, Advertisement::new("y")).expect("it may now");
    bench.publish(a, 1, b"123", None).expect("an answer").expect("three bytes");
    let refused = bench.publish(a, 1, b"1234", None).expect("an answer").expect_err("four bytes");
    assert!(refused.contains("the permissions allow 3"), "{refused}");
    bench.reload(&rule("a", "publish = [\"x\", \"y\"]"), &["a"]);
    bench.publish(a, 1, b"1234", None).expect("an answer").expect("as large as it likes");
}

#[test]
fn a_member_of_a_group_is_ended_if_others_ask_for_what_it_may_not_see_any_more() {
    let mut bench = BrokerBench::with_rules(&(rule("a", ALL) + &rule("b", ALL)), &["a", "b"]);
    let group = |pattern| {
        let group = Some("shared".to_owned());
        SubscriptionSpec { group, ..SubscriptionSpec::new(pattern) }
    };
    let (a, b) = (bench.program(A, "one"), bench.program(B, "other"));
    bench.subscribe(a, 1, group("x")).expect("it may");
    bench.subscribe(b, 1, group("y")).expect("it may");
    let narrow = rule("a", "subscribe = [\"x\"]\nnames = [\"shared\"]");
    bench.reload(&(narrow + &rule("b", ALL)), &["a", "b"]);
    let bye = bench.bye(a).expect("it is ended");
    assert_eq!(bye, "its group has events of `y`, which token:a may not subscribe to any more");
    assert_eq!(bench.bye(b), None);
    bench.reload(&rule("b", "subscribe = [\"#\"]"), &["a", "b"]);
    let bye = bench.bye(b).expect("it is ended");
    assert_eq!(bye, "the group `shared` is not in the rule of token:b any more");
}

#[test]
fn a_name_of_the_log_is_kept_by_its_owner_and_lost_by_those_whose_rule_listed_it() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let rules = rule("a", ALL) + &rule("b", ALL);
    let mut bench = BrokerBench::with_rules(&rules, &["a", "b"]).with_log(directory.path(), 1 << 20);
    let resume = |name: &str| {
        let resume = Some(ResumeSpec { name: name.to_owned(), after: None, forget: false });
        SubscriptionSpec { resume, ..SubscriptionSpec::new("x") }
    };
    let (a, b) = (bench.program(A, "one"), bench.program(B, "other"));
    bench.subscribe(a, 1, resume("own")).expect("it may");
    bench.subscribe(b, 1, resume("shared")).expect("it may");
    let both = "publish = [\"x/#\"]\nsubscribe = [\"x\"]";
    bench.reload(&(rule("a", both) + &rule("b", both)), &["a", "b"]);
    assert_eq!((bench.bye(a), bench.bye(b)), (None, None), "each is the owner of its name");
    let taken = format!("{both}\nnames = [\"shared\"]");
    bench.reload(&(rule("a", &taken) + &rule("b", both)), &["a", "b"]);
    assert_eq!(bench.bye(a), None);
    let bye = bench.bye(b).expect("it is ended");
    assert!(
        bye.starts_with("the consumer `shared` is for the clients whose rules list `shared`"),
        "{bye}"
    );
}

#[test]
fn a_session_of_mqtt_ends_if_it_holds_what_its_client_may_not_have_any_more_also_without_a_connection() {
    let rules = rule("a", ALL) + &rule("b", ALL);
    let mut bench = BrokerBench::with_rules(&rules, &["a", "b"]);
    let connect = |bench: &mut BrokerBench, comes, name: &str| {
        let (client, code, found) = bench.mqtt(comes, name, false, 3600);
        assert_eq!(code, 0);
        (client, found)
    };
    let [(here, _), (away, _), (stays, _)] =
        ["here", "away", "stays"].map(|name| connect(&mut bench, A, name));
    for (client, filter) in [(here, "x"), (away, "x"), (stays, "y")] {
        assert_eq!(bench.mqtt_subscribe(client, filter, 1), 1);
    }
    assert_eq!(bench.mqtt_publish(stays, "x"), 0);
    bench.gone(away);
    let new = rule("a", "publish = [\"y\"]\nsubscribe = [\"y\"]") + &rule("b", ALL);
    let report = bench.reload(&new, &["a", "b"]);
    assert_eq!((report.ended, report.sessions_ended), (1, 2), "{report:?}");
    assert!(!bench.is_connected(here) && bench.is_connected(stays));
    assert_eq!([connect(&mut bench, A, "here").1, connect(&mut bench, A, "away").1], [false, false]);
    // the connection goes on, and its right to publish is checked again
    assert_eq!([bench.mqtt_publish(stays, "x"), bench.mqtt_publish(stays, "y")], [0x87, 0]);
    bench.messages(stays);
    bench.gone(stays);
    let again = connect(&mut bench, A, "stays");
    assert!(again.1, "its session is as it was");
    // the will of a client without a rule is not published
    let watcher = bench.program(B, "watcher");
    bench.subscribe(watcher, 1, SubscriptionSpec::new("wills")).expect("it may");
    bench.mqtt_with_will("a", "mortal", "wills");
    bench.reload(&rule("b", ALL), &["a", "b"]);
    assert!(!bench.is_connected(again.0));
    assert_eq!(bench.events(watcher), []);
}

#[test]
fn only_the_operator_may_ask_and_the_answer_comes_before_its_own_end() {
    let mut bench = BrokerBench::open();
    bench.broker = bench.broker.with_audit();
    bench.broker.run_by(7);
    let (other, own) = (bench.program(Comes::User(8), "other"), bench.program(Comes::User(7), "own"));
    bench.say(other, &Frame::Reload);
    let report = bench.reloaded(other).expect("an answer");
    assert!(report.refused.is_some_and(|why| why.contains("unix:8 may not")));
    assert_eq!(bench.asked, []);
    bench.say(own, &Frame::Reload);
    assert_eq!(bench.asked, [bench.id(own)], "the server reads the files");
    let entries = bench.broker.audit_entries();
    let refused: Vec<_> = entries.iter().filter(|entry| entry.why.is_some()).collect();
    let [entry] = refused[..] else { panic!("{entries:?}") };
    assert_eq!(entry.subject.who.as_deref(), Some("unix:8"));
    assert_eq!(serde_json::to_value(entry).expect("an object")["action"], "reload");
    bench.reload(&rule("a", ALL), &["a"]);
    let entries = bench.broker.audit_entries();
    let ends: Vec<_> = entries.iter().filter_map(|entry| entry.why.as_deref()).collect();
    assert_eq!(ends.len(), 2, "{entries:?}");
    assert!(
        ends.iter().all(|why| why.starts_with("no rule of the permissions names unix:")),
        "{ends:?}"
    );
}

/// What a client of the property test does.
#[derive(Clone, Debug)]
enum Deed {
    Advertise { topic: String, share: u32 },
    Subscribe { pattern: String, blocks: bool },
}

fn pattern() -> impl Strategy<Value = String> {
    let level = prop::sample::select(vec!["a", "b", "+"]);
    (prop::collection::vec(level, 1..3), any::<bool>()).prop_map(|(levels, all)| {
        let text = levels.join("/");
        if all { text + "/#" } else { text }
    })
}

fn deed() -> impl Strategy<Value = Deed> {
    let topic = prop::collection::vec(prop::sample::select(vec!["a", "b"]), 1..3);
    prop_oneof![
        (topic, 1..4_u32).prop_map(|(levels, share)| Deed::Advertise { topic: levels.join("/"), share }),
        (pattern(), any::<bool>()).prop_map(|(pattern, blocks)| Deed::Subscribe { pattern, blocks }),
    ]
}

fn rules() -> impl Strategy<Value = String> {
    let patterns = || prop::collection::vec(pattern(), 0..3);
    (patterns(), patterns(), any::<bool>(), 1..4_u32, 0..8).prop_map(|(publish, subscribe, block, share, named)| {
        let who = if named == 0 { "token:b" } else { "token:a" };
        format!(
            "[[allow]]\nwho = [\"{who}\"]\npublish = {publish:?}\nsubscribe = {subscribe:?}\nblock = {block}\n\
             share = {share}\n"
        )
    })
}

fn act(bench: &mut BrokerBench, client: BenchClient, number: u32, deed: &Deed) -> Result<(), String> {
    match deed {
        Deed::Advertise { topic, share } => bench.advertise(
            client,
            number,
            Advertisement { share: Some(*share), ..Advertisement::new(topic) },
        ),
        Deed::Subscribe { pattern, blocks } => {
            let full = if *blocks { WhenFull::BlockSupplier } else { WhenFull::DropOldest };
            bench.subscribe(client, number, SubscriptionSpec { full, ..SubscriptionSpec::new(pattern) })
        }
    }
}

proptest! {
    /// The model is a new broker with the new rules, which gets the same requests.
    #[test]
    fn a_connection_goes_on_exactly_if_a_new_one_could_do_the_same(
        before in rules(), after in rules(), deeds in prop::collection::vec(deed(), 0..6),
    ) {
        let mut bench = BrokerBench::with_rules(&before, &["a", "b"]);
        if before.contains("token:b") {
            return Ok(());
        }
        let client = bench.program(A, "one");
        let deeds = deeds.iter().zip(1..);
        let done: Vec<_> = deeds.filter(|(deed, number)| act(&mut bench, client, *number, deed).is_ok()).collect();
        bench.reload(&after, &["a", "b"]);
        let mut model = BrokerBench::with_rules(&after, &["a", "b"]);
        let may = after.contains("token:a") && {
            let client = model.program(A, "one");
            done.iter().all(|(deed, number)| act(&mut model, client, *number, deed).is_ok())
        };
        prop_assert_eq!(bench.is_connected(client), may, "{:?}", bench.bye(client));
    }
}

fn user_rule(rest: &str) -> String {
    format!("[[allow]]\nwho = [\"unix:{}\"]\n{rest}\n", unisono_linux::local_socket::own_user())
}

/// Runs a test with a server at a socket; the text that the test sets has the rules for the next reload.
fn served(test: impl FnOnce(&Path, &Mutex<String>) + Send + 'static) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let rules = Arc::new(Mutex::new(user_rule(ALL)));
    let parse = |text: &str| Permissions::parse(text, &|_| None);
    let broker = crate::common::broker().with_permissions(parse(&user_rule(ALL)).expect("it is sound"));
    let (at, file) = (directory.path().join("events"), Arc::clone(&rules));
    let socket = at.clone();
    let listen = move |server: &mut Server| {
        server.listen_unix(&socket, OWNER).expect("it listens");
        server.set_settings_reader(Box::new(move || {
            let permissions = parse(&file.lock().expect("no panic")).map_err(|error| error.to_string())?;
            Ok(BrokerSettings { permissions: Some(permissions), ..BrokerSettings::default() })
        }));
        Vec::new()
    };
    with_server(broker, listen, move |_| {
        let _directory = directory;
        test(&at, &rules);
    });
}

#[test]
fn a_file_that_is_wrong_changes_nothing_and_says_where() {
    served(|at, rules| {
        let mut client = Client::connect_unix(at).expect("it listens");
        client.subscribe(&SubscriptionSpec::new("x")).expect("it may");
        *rules.lock().expect("no panic") = user_rule("publish = [\"a/#/b\"]");
        let report = client.reload().expect("an answer");
        assert!(report.refused.as_ref().is_some_and(|why| why.starts_with("3:12: `a/#/b`")), "{report:?}");
        client.subscribe(&SubscriptionSpec::new("y")).expect("the rules are those before");
        *rules.lock().expect("no panic") = user_rule("subscribe = [\"x\", \"y\"]");
        let report = client.reload().expect("an answer");
        assert_eq!((report.refused, report.read), (None, vec!["permissions".to_owned()]));
        client.subscribe(&SubscriptionSpec::new("z")).expect_err("the new rules hold");
    });
}

#[test]
fn a_program_that_reads_nothing_is_ended_before_the_answer_and_by_shared_memory_too() {
    served(|at, rules| {
        let mut operator = Client::connect_unix(at).expect("it listens");
        let connect = [Client::connect_unix(at), Client::connect_shared(at)];
        let mut readers = connect.map(|reader| reader.expect("it listens"));
        for reader in &mut readers {
            reader.subscribe(&SubscriptionSpec::new("x")).expect("it may");
        }
        let topic = operator.advertise(&Advertisement::new("x")).expect("it may");
        for _ in 0..200 {
            operator.publish(topic, &EventDraft::new(&vec![0; 50_000])).expect("it is there");
        }
        assert_eq!(operator.statistics().expect("it answers").clients, 3);
        *rules.lock().expect("no panic") = user_rule("publish = [\"#\"]\nsubscribe = [\"y\"]");
        let report = operator.reload().expect("an answer");
        assert_eq!((report.ended, operator.statistics().expect("it answers").clients), (2, 1));
        for mut reader in readers {
            let end = loop {
                match reader.receive(Some(Duration::from_secs(30))) {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it is not ended"),
                    Err(end) => break end.to_string(),
                }
            };
            assert!(!end.is_empty());
        }
    });
}

#[test]
fn a_supplier_with_a_ring_goes_back_to_the_broker_when_its_rule_gets_a_bound() {
    served(|at, rules| {
        let shared = || Client::connect_shared(at).expect("it listens");
        let (mut operator, mut supplier, mut consumer) = (shared(), shared(), shared());
        consumer.subscribe(&SubscriptionSpec::new("x")).expect("it may");
        let topic = supplier.advertise(&Advertisement::new("x")).expect("it may");
        let number = |consumer: &mut Client| event(consumer).sequence;
        supplier.publish(topic, &EventDraft::new(b"first")).expect("it leaves");
        assert_eq!((number(&mut consumer), operator.statistics().expect("it answers").direct), (1, 1));
        *rules.lock().expect("no panic") = user_rule(&format!("{ALL}\nsize = 10"));
        assert_eq!(operator.reload().expect("an answer").ended, 0);
        supplier.publish(topic, &EventDraft::new(b"second")).expect("it leaves");
        assert_eq!(number(&mut consumer), 2);
        let refused = supplier.try_publish(topic, &EventDraft::new(&[0; 11])).expect_err("11 bytes");
        assert!(refused.to_string().contains("the permissions allow 10"), "{refused}");
        assert_eq!(operator.statistics().expect("it answers").direct, 0);
        *rules.lock().expect("no panic") = user_rule(ALL);
        operator.reload().expect("an answer");
        supplier.try_publish(topic, &EventDraft::new(&[0; 11])).expect("no bound any more");
    });
}

#[test]
fn weights_change_under_load_and_no_event_is_lost() {
    let tree = |weights: [u32; 2]| {
        let class = |(name, weight): (&str, u32)| {
            ClassSpec::new(name).weighing(weight.to_string().parse().expect("a weight"))
        };
        let classes = ["a", "b"].into_iter().zip(weights).map(class);
        let tree = Hierarchy::new(ClassSpec::new("all").with(classes)).expect("unique names");
        tree.with_default("b").expect("a leaf")
    };
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = directory.path().join("events");
    let (socket, reloads) = (at.clone(), std::sync::atomic::AtomicU32::new(0));
    let listen = move |server: &mut Server| {
        server.listen_unix(&socket, OWNER).expect("it listens");
        server.set_settings_reader(Box::new(move || {
            let at = reloads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let rate = "1gbit".parse().expect("a rate");
            Ok(BrokerSettings {
                policy: Some((tree([1 + at % 7, 1 + at % 3]), rate)),
                ..BrokerSettings::default()
            })
        }));
        Vec::new()
    };
    const EVENTS: u64 = 20_000;
    let broker = unisono_broker::Broker::new(tree([1, 1]), unisono_broker::Limits::default());
    with_server(broker, listen, move |_| {
        let _directory = directory;
        let (at, is_over) = (&at, &std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|scope| {
            let read = |class: &'static str, mut client: Client| {
                let full = WhenFull::BlockSupplier;
                let class = Some(class.to_owned());
                client
                    .subscribe(&SubscriptionSpec { full, class, ..SubscriptionSpec::new("x") })
                    .expect("it may");
                move || (1..=EVENTS).for_each(|number| assert_eq!(event(&mut client).sequence, number))
            };
            let connect = || Client::connect_unix(at).expect("it listens");
            let readers = ["a", "b"].map(|class| scope.spawn(read(class, connect())));
            let reloader = scope.spawn(move || {
                let (mut operator, mut reloads) = (Client::connect_unix(at).expect("it listens"), 0);
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let report = operator.reload().expect("an answer");
                    assert_eq!((report.refused, report.ended), (None, 0));
                    reloads += 1;
                }
                reloads
            });
            let mut supplier = connect();
            let topic = supplier.advertise(&Advertisement::new("x")).expect("a topic");
            (0..EVENTS)
                .for_each(|_| supplier.publish(topic, &EventDraft::new(&[0; 100])).expect("it leaves"));
            supplier.flush().expect("it leaves");
            for reader in readers {
                reader.join().expect("each event came once, in order");
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(reloader.join().expect("it goes on") > 1);
        });
    });
}
