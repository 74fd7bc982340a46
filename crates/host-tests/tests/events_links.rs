//! Tests direct links over TCP between two hosts, with the broker on a third one: the events and requests of
//! two programs do not pass the broker, and a cut cable or a withdrawn right ends the link.
//!
//! ```text
//!   supplier (10.77.1.1) ---- cable ---- consumer (10.77.2.2)
//!            \                           /
//!             +------- broker ----------+
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unisono_events_client::{
    Advertisement, Client, EventDraft, NoticeText, Reception, SubscriptionSpec, TopicHandle,
};
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::processes::{Killed, until};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program};
use unisono_linux::network_namespace::NetworkNamespace;

const SUPPLIER: usize = 0;
const CONSUMER: usize = 1;
const BROKER: usize = 2;
const MINUTE: Duration = Duration::from_secs(60);
const ALL: &str = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\n";

/// A supplier and a consumer on two hosts, with a link in use between them, and a broker on a third host.
struct LinkedHosts {
    consumer: Client,
    supplier: Client,
    topic: TopicHandle,
    /// The number of the last event.
    last: u64,
    operator: Client,
    /// The file of the permissions.
    rules: PathBuf,
    _broker: Killed,
    _scratch: tempfile::TempDir,
    hosts: Hosts,
}

/// Moves this thread to a host: its next sockets are there.
fn enter(hosts: &Hosts, host: usize) {
    NetworkNamespace::named(hosts.name(host)).and_then(|it| it.enter()).expect("it is there");
}

fn connect(hosts: &Hosts, host: usize) -> Client {
    enter(hosts, host);
    let at = format!("{}:7400", Hosts::address_towards(BROKER, host));
    Client::connect_tcp(at.parse().expect("an address")).expect("it serves")
}

fn published(operator: &mut Client) -> BTreeMap<String, u64> {
    operator.statistics().expect("it answers").published_by_topic
}

fn links(operator: &mut Client) -> u64 {
    operator.statistics().expect("it answers").direct
}

impl LinkedHosts {
    fn new() -> Result<Self, Skipped> {
        let hosts = Hosts::three()?;
        // the broker knows the programs by their addresses on the cables to its host; the way between them is
        // their own cable
        for (host, other) in [(SUPPLIER, CONSUMER), (CONSUMER, SUPPLIER)] {
            let network = format!("10.77.{}.0/24", 1 + other);
            ip(&["-n", hosts.name(host), "route", "add", &network, "via", &Hosts::address(other)])
                .expect("a route");
        }
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let (socket, rules) = (scratch.path().join("events"), scratch.path().join("permissions.toml"));
        std::fs::write(&rules, ALL).expect("there is room");
        let mut serves = hosts.command(BROKER, &program::unisono());
        serves.args(["events", "serve", "--user", "root", "--insecure", "--direct-tcp"]);
        serves.args(["--peer-timeout", "2", "--permissions"]).arg(&rules).arg("--listen").arg(&socket);
        for host in [SUPPLIER, CONSUMER] {
            let at = format!("tcp:{}:7400", Hosts::address_towards(BROKER, host));
            serves.args(["--listen", &at]);
        }
        serves.stdin(Stdio::null()).stdout(Stdio::null());
        let broker = Killed(serves.spawn().expect("it starts"));
        until("the broker serves", || Client::connect_unix(&socket).is_ok());
        let mut consumer = connect(&hosts, CONSUMER);
        consumer.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
        let mut supplier = connect(&hosts, SUPPLIER);
        let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
        let operator = Client::connect_unix(&socket).expect("it serves");
        let mut it = Self {
            consumer,
            supplier,
            topic,
            last: 0,
            operator,
            rules,
            _broker: broker,
            _scratch: scratch,
            hosts,
        };
        while links(&mut it.operator) != 1 {
            it.exchange();
        }
        Ok(it)
    }

    fn publish(&mut self) -> Result<(), unisono_events_client::Error> {
        enter(&self.hosts, SUPPLIER);
        self.last += 1;
        self.supplier.publish(self.topic, &EventDraft::new(b"x"))
    }

    fn receive(&mut self, timeout: Duration) -> Option<Reception> {
        enter(&self.hosts, CONSUMER);
        self.consumer.receive(Some(timeout)).expect("the broker is there")
    }

    /// Publishes an event, and receives it.
    fn exchange(&mut self) {
        self.publish().expect("it leaves");
        match self.receive(MINUTE) {
            Some(Reception::Event(event)) => assert_eq!(event.sequence, self.last),
            other => panic!("{other:?}"),
        }
    }
}

fn events_and_requests_between_two_hosts_do_not_pass_the_broker() -> TestOutcome {
    let mut it = LinkedHosts::new()?;
    let before = published(&mut it.operator);
    (0..100).for_each(|_| it.exchange());
    assert_eq!((published(&mut it.operator), links(&mut it.operator)), (before, 1));

    let mut service = connect(&it.hosts, CONSUMER);
    service.subscribe(&SubscriptionSpec::new("echo")).expect("it fits");
    let mut requester = connect(&it.hosts, SUPPLIER);
    let echo = requester.advertise(&Advertisement::new("echo")).expect("a topic");
    let (is_over, hosts, operator) = (AtomicBool::new(false), &it.hosts, &mut it.operator);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            enter(hosts, CONSUMER);
            while !is_over.load(Ordering::Relaxed) {
                let came = service.receive(Some(Duration::from_millis(20))).expect("the broker is there");
                if let Some(Reception::Event(request)) = came {
                    let answer = request.payload.bytes().to_vec();
                    assert!(service.reply(&request, EventDraft::new(&answer)).expect("the broker is there"));
                }
            }
        });
        let mut ask = |number: u8| {
            let asked = requester.request(echo, EventDraft::new(&[number]), MINUTE);
            assert_eq!(*asked.expect("a reply").payload.bytes(), [number]);
        };
        while links(operator) != 3 {
            ask(0);
        }
        let before = published(operator);
        (0..100).for_each(&mut ask);
        assert_eq!(published(operator), before);
        is_over.store(true, Ordering::Relaxed);
    });
    Ok(())
}

fn a_cut_cable_between_two_programs_ends_their_link_and_each_lost_event_is_told() -> TestOutcome {
    let mut it = LinkedHosts::new()?;
    it.exchange();
    let first = it.last + 1;
    it.hosts.cut();
    // both programs still reach the broker
    while links(&mut it.operator) != 0 {
        it.publish().expect("it leaves");
        std::thread::sleep(Duration::from_millis(10));
    }
    (0..10).for_each(|_| it.publish().expect("it goes through the broker"));
    let (mut next, mut missing, mut told) = (first, 0, 0);
    while next <= it.last || told < missing {
        match it.receive(MINUTE) {
            Some(Reception::Event(event)) => {
                assert!(event.sequence >= next, "{} after {next}", event.sequence);
                missing += event.sequence - next;
                next = event.sequence + 1;
            }
            Some(Reception::Notice { notice: NoticeText::Gap { lost, .. }, .. }) => told += lost,
            other => panic!("{other:?}"),
        }
    }
    assert!(missing > 0 && told == missing, "{told} of {missing}");
    (0..5).for_each(|_| it.exchange());
    assert_eq!(links(&mut it.operator), 0);
    Ok(())
}

fn a_supplier_that_does_not_hear_that_its_right_has_ended_reaches_its_consumer_no_more() -> TestOutcome {
    let mut it = LinkedHosts::new()?;
    it.exchange();
    ip(&["-n", it.hosts.name(BROKER), "link", "set", "to-a", "down"]).expect("cut");
    std::fs::write(&it.rules, ALL.replace("publish = [\"#\"]", "publish = [\"u\"]")).expect("there is room");
    assert_eq!(it.operator.reload().expect("an answer").ended, 1);
    let gone = loop {
        // on the link, because the supplier's program knows of nothing
        it.publish().expect("it leaves");
        match it.receive(Duration::from_millis(20)) {
            Some(Reception::Notice { notice, .. }) => break notice,
            Some(Reception::Event(_)) | None => {}
            other => panic!("{other:?}"),
        }
    };
    // a consumer that had to wait for the end of the link would be told that the link broke
    assert!(matches!(gone, NoticeText::Gone { .. }), "{gone:?}");
    for _ in 0..10 {
        // fails once the supplier finds that its link or the broker is gone
        let _ = it.publish();
    }
    let late = it.receive(Duration::from_millis(300));
    assert!(late.is_none(), "{late:?}");
    Ok(())
}

host_tests![needs Nothing;
    events_and_requests_between_two_hosts_do_not_pass_the_broker within 120,
    a_cut_cable_between_two_programs_ends_their_link_and_each_lost_event_is_told within 180,
    a_supplier_that_does_not_hear_that_its_right_has_ended_reaches_its_consumer_no_more within 120,
];
