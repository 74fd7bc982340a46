//! Tests brokers that take over from each other, while native and MQTT programs publish and receive: no
//! connection is refused, no acknowledged event and no session is lost, also if a broker is killed meanwhile.
//!
//! Four hand-overs, or kills; twenty in `cargo xtask nightly`. The MQTT clients are those of the test of
//! sessions (`events_sessions.rs`).

use crate::events_sessions::{MqttLink, read, write};
use crate::servers::certificates;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use unisono_events_client::{
    Advertisement, BrokerAddress, Client, ClientOptions, Durability, Error, EventDraft, NoticeText,
    Reception, ResumeSpec, SubscriptionSpec, TlsAddress,
};
use unisono_host_tests::ports::free_ports;
use unisono_host_tests::{TestOutcome, host_tests, one_in, program, require};

/// Hand-overs, and kills during hand-overs.
const HAND_OVERS: u32 = 20;
const RECONNECT_TIME: Duration = Duration::from_secs(60);

/// The addresses and the log that all brokers of a test share.
struct SharedPlace {
    directory: tempfile::TempDir,
    bus: PathBuf,
    tcp: SocketAddr,
    mqtt: SocketAddr,
    /// For brokers that listen there, too.
    tls: SocketAddr,
    udp: SocketAddr,
}

impl SharedPlace {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let [tcp, mqtt, tls, udp] = free_ports();
        Self { bus: directory.path().join("bus"), directory, tcp, mqtt, tls, udp }
    }

    fn serve(&self, more: &[&str]) -> Child {
        let mut command = Command::new(program::unisono());
        command.args(["events", "serve", "--listen"]).arg(&self.bus);
        command.args(["--listen", &format!("tcp:{}", self.tcp), "--mqtt", &self.mqtt.to_string(), "--log"]);
        command.arg(self.directory.path().join("log")).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().expect("unisono starts")
    }

    /// Starts the first broker, and waits until it serves.
    fn first(&self, more: &[&str]) -> Child {
        let mut broker = self.serve(more);
        while !self.answers() {
            if broker.try_wait().expect("it is a child").is_some() {
                let ended = broker.wait_with_output().expect("it is a child");
                panic!("the broker ended: {}", String::from_utf8_lossy(&ended.stderr));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        broker
    }

    fn answers(&self) -> bool {
        Client::connect_unix(&self.bus).and_then(|mut client| client.statistics()).is_ok()
    }

    /// The broker that serves, after one of these was killed; another one, if none does.
    fn survivor(&self, mut brokers: Vec<Child>) -> Child {
        loop {
            brokers.retain_mut(|broker| broker.try_wait().expect("it is a child").is_none());
            match &brokers[..] {
                [] => brokers.push(self.serve(&["--take-over"])),
                [_] if self.answers() => return brokers.remove(0),
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

fn send_signal(broker: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_child(broker), signal).expect("it runs");
}

fn kill(broker: &mut Child) {
    broker.kill().expect("it is a child");
    broker.wait().expect("it is a child");
}

/// Connects to all addresses until the end: a socket listens at each of them all the time.
fn connect_all_the_time(place: &SharedPlace, is_over: &AtomicBool) -> u32 {
    let mut connections = 0;
    while !is_over.load(Ordering::Relaxed) {
        UnixStream::connect(&place.bus).expect("a socket listens");
        TcpStream::connect(place.tcp).expect("a socket listens");
        TcpStream::connect(place.mqtt).expect("a socket listens");
        connections += 3;
        std::thread::sleep(Duration::from_millis(2));
    }
    connections
}

/// Publishes numbers until the end. Returns the count of acknowledged ones: each was written once.
fn publish(place: &SharedPlace, is_over: &AtomicBool) -> u64 {
    let mut command = Command::new(program::unisono());
    command.args([
        "events",
        "publish",
        "native",
        "--writer",
        "w",
        "--number",
        "1",
        "--durability",
        "written",
    ]);
    command.args(["--json", "--reconnect", "--at", &format!("tcp:{}", place.tcp)]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("unisono starts");
    let (mut lines, said) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let acknowledged = std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 1_u64.. {
                if is_over.load(Ordering::Relaxed) || writeln!(lines, "{number}").is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let outcomes = BufReader::new(said).lines().map_while(Result::ok).map(|line| {
            let told: Value = serde_json::from_str(&line).expect("JSON");
            let outcome = told["outcome"].as_str().unwrap_or_default().to_owned();
            assert!(["written", "duplicate"].contains(&&*outcome), "{line}");
        });
        outcomes.count() as u64
    });
    assert!(child.wait().expect("it is a child").success());
    acknowledged
}

/// The number of the last event.
const LAST: u64 = 0;

/// Receives until the [`LAST`] event comes.
fn receive(place: &SharedPlace) -> BTreeSet<u64> {
    let mut command = Command::new(program::unisono());
    command.args(["events", "subscribe", "native", "--resume", "reader", "--after", "0", "--json"]);
    command.args(["--reconnect", "--at"]).arg(&place.bus);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("unisono starts");
    let mut got = BTreeSet::new();
    for line in BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok) {
        let told: Value = serde_json::from_str(&line).expect("JSON");
        match told["payload"].as_str().map(|payload| payload.parse().expect("a number")) {
            Some(LAST) => break,
            Some(number) => drop(got.insert(number)),
            None => assert_eq!(told["notice"], "reconnected", "nothing is lost: {line}"),
        }
    }
    kill(&mut child);
    got
}

/// Runs all programs while `brokers` follow each other; checks that nothing was lost.
fn without_a_loss(
    place: &SharedPlace,
    first: Child,
    brokers: impl FnOnce(Child) -> Child + Send,
    connects: bool,
) {
    let address = place.mqtt.to_string();
    let [is_over, is_written] = [(); 2].map(|()| AtomicBool::new(false));
    let written = AtomicU32::new(0);
    for (name, qos) in [("one", 1), ("two", 2)] {
        let (mut link, found) = MqttLink::connect(&address, name);
        assert!(!found);
        link.subscribe(qos);
    }
    let (one, two, native, acknowledged, connections, mut last) = std::thread::scope(|scope| {
        let mqtt_writer = scope.spawn(|| write(&address, &written, &is_over));
        let writer = scope.spawn(|| publish(place, &is_over));
        let connecting = connects.then(|| scope.spawn(|| connect_all_the_time(place, &is_over)));
        let readers = [("one", 1), ("two", 2)].map(|reader| {
            let (address, written, is_written) = (&address, &written, &is_written);
            scope.spawn(move || read(address, reader, written, is_written))
        });
        let reader = scope.spawn(|| receive(place));
        let last = brokers(first);
        is_over.store(true, Ordering::Relaxed);
        mqtt_writer.join().expect("it writes");
        is_written.store(true, Ordering::Release);
        let acknowledged = writer.join().expect("it writes");
        // a consumer that resumes gets the events of the log
        let logged = Advertisement { durability: Durability::Written, ..Advertisement::new("native") };
        let mut client = Client::connect_unix(&place.bus).expect("it serves");
        let topic = client.advertise(&logged).expect("a topic");
        client.try_publish(topic, &EventDraft::new(LAST.to_string().as_bytes())).expect("it is taken");
        let [one, two] = readers.map(|reader| reader.join().expect("it reads"));
        let connections = connecting.map(|thread| thread.join().expect("none is refused"));
        (one, two, reader.join().expect("it reads"), acknowledged, connections, last)
    });
    kill(&mut last);
    assert!(connections.is_none_or(|connections| connections > 30), "{connections:?}");
    let all: Vec<u32> = (0..written.into_inner()).collect();
    assert!(all.len() > 10, "{} messages", all.len());
    assert!(two == all, "of QoS 2 each comes once: {two:?}");
    let one: BTreeSet<u32> = one.into_iter().collect();
    assert_eq!(one, all.into_iter().collect(), "of QoS 1 at least once");
    assert!(acknowledged > 20, "{acknowledged} events");
    let missing: Vec<u64> = (1..=acknowledged).filter(|number| !native.contains(number)).collect();
    assert!(missing.is_empty(), "acknowledged, but not received: {missing:?}");
}

fn brokers_take_over_from_each_other_without_a_loss_and_no_connection_is_refused() -> TestOutcome {
    let place = SharedPlace::new();
    let first = place.first(&[]);
    let brokers = |mut broker: Child| {
        for _ in (0..HAND_OVERS).step_by(one_in(5)) {
            std::thread::sleep(Duration::from_millis(200));
            let next = place.serve(&["--take-over"]);
            assert!(broker.wait().expect("it is a child").success(), "it ends by itself");
            broker = next;
        }
        broker
    };
    without_a_loss(&place, first, brokers, true);
    Ok(())
}

/// Publishes numbers until the end, and then [`LAST`], over a connection that is made again. Returns the
/// count of acknowledged numbers.
fn publish_over(at: &BrokerAddress, name: &str, is_over: &AtomicBool) -> u64 {
    let mut client = ClientOptions::new().reconnecting(RECONNECT_TIME).connect(at).expect("it serves");
    let writer = Some(format!("{name}-writer"));
    let spec = Advertisement { durability: Durability::Written, writer, ..Advertisement::new(name) };
    let topic = client.advertise(&spec).expect("a topic");
    let mut publish = |payload: u64, number| loop {
        let payload = payload.to_le_bytes();
        let receipt = client.publish_with_receipt(topic, &EventDraft::new(&payload), Some(number));
        match receipt.and_then(|receipt| client.outcome(receipt)) {
            Ok(_) => return,
            Err(Error::Unanswered) => {} // the log takes each number once
            Err(error) => panic!("{name}: {error}"),
        }
    };
    for number in 1.. {
        if is_over.load(Ordering::Relaxed) {
            publish(LAST, number);
            return number - 1;
        }
        publish(number, number);
        std::thread::sleep(Duration::from_millis(3));
    }
    unreachable!("2^64 numbers")
}

/// Receives and acknowledges numbers until [`LAST`] comes. Returns them, and the number of reconnections.
fn receive_over(at: &BrokerAddress, name: &str) -> (BTreeSet<u64>, u32) {
    let mut client = ClientOptions::new().reconnecting(RECONNECT_TIME).connect(at).expect("it serves");
    let resume = ResumeSpec { name: format!("{name}-reader"), after: Some(0), ..ResumeSpec::default() };
    client
        .subscribe(&SubscriptionSpec { resume: Some(resume), ..SubscriptionSpec::new(name) })
        .expect("fits");
    let (mut got, mut reconnections) = (BTreeSet::new(), 0);
    loop {
        match client.receive(None).expect("it reconnects").expect("no time limit") {
            Reception::Event(event) => {
                client.acknowledge(&event).expect("it reconnects");
                match u64::from_le_bytes(event.payload.bytes()[..].try_into().expect("eight bytes")) {
                    LAST => return (got, reconnections),
                    number => drop(got.insert(number)),
                }
            }
            Reception::Reconnected { .. } => reconnections += 1,
            Reception::Notice { notice: NoticeText::Gone { .. }, .. } => {}
            other => panic!("{name}: nothing is lost: {other:?}"),
        }
    }
}

fn programs_over_tls_and_udp_lose_nothing_when_a_broker_takes_over() -> TestOutcome {
    require::program("openssl", "apt-get install openssl")?;
    let place = SharedPlace::new();
    let directory = place.directory.path();
    // the user that the broker becomes reads the certificates again
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o711)).expect("it is ours");
    certificates(directory);
    let (tls, udp) = (place.tls, place.udp);
    let at = |address| TlsAddress {
        host: "localhost".to_owned(),
        address,
        authority: Some(directory.join("ca.crt")),
        own: None,
        token: None,
    };
    let path = |name: &str| directory.join(name).display().to_string();
    let (certificate, key) = (path("broker.crt"), path("broker.key"));
    let [by_tls, by_udp] = [format!("tls:{tls}"), format!("udp:{udp}")];
    let options = ["--listen", &by_tls, "--listen", &by_udp, "--certificate", &certificate, "--key", &key];
    let taking_over = [&options[..], &["--take-over"]].concat();
    let mut broker = place.first(&options);
    let is_over = AtomicBool::new(false);
    let addresses = [("tls", BrokerAddress::Tls(at(tls))), ("udp", BrokerAddress::Udp(at(udp)))];
    std::thread::scope(|scope| {
        let parties = addresses.each_ref().map(|(name, at)| {
            let is_over = &is_over;
            let receiver = scope.spawn(move || receive_over(at, name));
            (*name, scope.spawn(move || publish_over(at, name, is_over)), receiver)
        });
        let hand_overs = (0..HAND_OVERS).step_by(one_in(5)).count() as u32;
        for _ in 0..hand_overs {
            std::thread::sleep(Duration::from_millis(400));
            let next = place.serve(&taking_over);
            assert!(broker.wait().expect("it is a child").success(), "it ends by itself");
            broker = next;
        }
        std::thread::sleep(Duration::from_millis(400));
        is_over.store(true, Ordering::Relaxed);
        for (name, publisher, receiver) in parties {
            let acknowledged = publisher.join().expect("it writes");
            let (got, reconnections) = receiver.join().expect("it reads");
            assert!(acknowledged > 20, "{name}: {acknowledged} events");
            assert_eq!(got, (1..=acknowledged).collect(), "{name}: what was acknowledged comes");
            assert!(reconnections > 0 && reconnections <= hand_overs, "{name}: {reconnections}");
        }
    });
    kill(&mut broker);
    Ok(())
}

fn a_broker_that_is_killed_during_a_hand_over_costs_no_acknowledged_event_and_no_session() -> TestOutcome {
    let place = SharedPlace::new();
    let first = place.first(&[]);
    let brokers = |mut broker: Child| {
        for hand_over in (0..HAND_OVERS).step_by(one_in(5)) {
            std::thread::sleep(Duration::from_millis(100));
            let mut next = place.serve(&["--take-over"]);
            std::thread::sleep(Duration::from_millis(u64::from(hand_over * 37 % 120)));
            kill(if hand_over % 3 == 0 { &mut broker } else { &mut next });
            broker = place.survivor(vec![broker, next]);
        }
        broker
    };
    without_a_loss(&place, first, brokers, false);
    Ok(())
}

fn of_brokers_that_take_over_at_the_same_time_one_serves_and_the_others_say_why_not() -> TestOutcome {
    let place = SharedPlace::new();
    let mut brokers = vec![place.first(&[])];
    for _ in 0..5 {
        brokers.extend((0..4).map(|_| place.serve(&["--take-over"])));
        let mut ended = Vec::new();
        while brokers.len() > 1 {
            match brokers.iter_mut().position(|broker| broker.try_wait().expect("it is a child").is_some()) {
                Some(at) => ended.push(brokers.swap_remove(at).wait_with_output().expect("it is a child")),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        for broker in ended.iter().filter(|broker| !broker.status.success()) {
            let said = String::from_utf8_lossy(&broker.stderr);
            assert!(said.contains("another process has") && said.contains("start again"), "{said}");
        }
        assert!(place.answers(), "the last one serves");
    }
    kill(&mut brokers[0]);
    Ok(())
}

/// The broker reads both requests in one turn, because it was stopped when they came.
fn of_two_processes_that_ask_in_one_turn_each_gets_an_answer() -> TestOutcome {
    let place = SharedPlace::new();
    let mut broker = place.first(&[]);
    for _ in 0..10 {
        let connect = || Client::connect_shared(&place.bus).expect("it serves");
        let mut first = connect().take_over().expect("it passes its sockets");
        let second = connect();
        send_signal(&broker, Signal::STOP);
        let answers = std::thread::scope(|scope| {
            let first = scope.spawn(move || first.release());
            let second = scope.spawn(move || second.take_over().map(drop));
            // both requests wait in the shared memory
            std::thread::sleep(Duration::from_millis(50));
            send_signal(&broker, Signal::CONT);
            [first, second].map(|asked| asked.join().expect("no panic"))
        });
        for error in answers.into_iter().filter_map(Result::err) {
            let refused = error.to_string();
            assert!(refused.contains("another process has") && refused.contains("start again"), "{refused}");
        }
        assert!(place.answers(), "the broker serves on");
    }
    kill(&mut broker);
    Ok(())
}

fn a_broker_that_cannot_start_leaves_the_other_one_with_all_its_connections() -> TestOutcome {
    let place = SharedPlace::new();
    let mut broker = place.first(&[]);
    let mut client = Client::connect_shared(&place.bus).expect("it serves");
    let topic = client.advertise(&Advertisement::new("native")).expect("a topic");
    let file = |name: &str, text: &str| {
        let path = place.directory.path().join(name);
        std::fs::write(&path, text).expect("there is room");
        path.display().to_string()
    };
    let bad = file("bad", "not a policy");
    let other = place.directory.path().join("other").display().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = format!("tcp:{}", taken.local_addr().expect("it is bound"));
    let mistakes = [
        (vec![&*bad], "bad:1:"),
        (vec!["--certificate", &bad, "--key", &bad], "bad"),
        (vec!["--listen", &taken], "in use"),
        (vec!["--log", &other], "keeps its log in"),
    ];
    for (mistake, said) in mistakes {
        // the option for the log comes once
        let mut arguments = vec!["events", "serve", "--take-over"];
        let (bus, log) = (place.bus.display().to_string(), place.directory.path().join("log"));
        let log = log.display().to_string();
        arguments.extend(["--listen", &bus]);
        if !mistake.contains(&"--log") {
            arguments.extend(["--log", &log]);
        }
        arguments.extend(&mistake);
        let ended = Command::new(program::unisono()).args(arguments).stdin(Stdio::null()).output();
        let ended = ended.expect("unisono starts");
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(2) && text.contains(said), "{mistake:?}: {text}");
        client.try_publish(topic, &EventDraft::new(b"x")).expect("the connection lives");
        assert!(place.answers() && place.bus.exists());
    }
    kill(&mut broker);
    Ok(())
}

fn sockets_of_systemd_serve_the_options_that_name_their_addresses_and_wait_for_the_next_broker() -> TestOutcome
{
    let place = SharedPlace::new();
    let unix = UnixListener::bind(&place.bus).expect("there is room");
    let mqtt = TcpListener::bind(place.mqtt).expect("a free port");
    // systemd passes its sockets from descriptor 3 on
    let script = "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\"";
    let start = || {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(program::unisono()).args(["events", "serve", "--mqtt"]);
        command.arg(place.mqtt.to_string()).arg("--log").arg(place.directory.path().join("log"));
        command.stdin(OwnedFd::from(unix.try_clone().expect("a descriptor")));
        command.stdout(OwnedFd::from(mqtt.try_clone().expect("a descriptor")));
        command.spawn().expect("a shell")
    };
    let mut broker = start();
    let (mut link, found) = MqttLink::connect(&place.mqtt.to_string(), "one");
    assert!(!found && place.answers());
    link.subscribe(1);
    kill(&mut broker);
    // systemd listens on: this connection waits for the next broker
    let waiting = TcpStream::connect(place.mqtt).expect("the socket lives");
    let mut broker = start();
    let (_, found) = MqttLink::greet(waiting, "one").expect("it serves");
    assert!(found && place.answers(), "the session is there");
    kill(&mut broker);
    assert!(place.bus.exists(), "the name is systemd's");
    Ok(())
}

host_tests![needs Nothing;
    brokers_take_over_from_each_other_without_a_loss_and_no_connection_is_refused within 180,
    a_broker_that_is_killed_during_a_hand_over_costs_no_acknowledged_event_and_no_session within 180,
    programs_over_tls_and_udp_lose_nothing_when_a_broker_takes_over within 180,
    of_brokers_that_take_over_at_the_same_time_one_serves_and_the_others_say_why_not within 120,
    of_two_processes_that_ask_in_one_turn_each_gets_an_answer within 60,
    a_broker_that_cannot_start_leaves_the_other_one_with_all_its_connections within 60,
    sockets_of_systemd_serve_the_options_that_name_their_addresses_and_wait_for_the_next_broker within 60,
];
