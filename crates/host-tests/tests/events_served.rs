//! Tests `unisono events` with processes: suppliers, consumers and the broker are stopped and killed.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unisono_events_client::{
    Advertisement, Client, EventDraft, NoticeText, Reception, SubscriptionSpec, TopicHandle, WhenFull,
};
use unisono_host_tests::ports::free_ports;
use unisono_host_tests::processes::Killed;
use unisono_host_tests::{TestOutcome, host_tests, program};

fn events(arguments: &[&str]) -> Killed {
    let mut command = Command::new(program::unisono());
    command.arg("events").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    Killed(command.spawn().expect("unisono starts"))
}

fn serve(listen: &[&str]) -> Killed {
    let listen: Vec<&str> = listen.iter().flat_map(|address| ["--listen", *address]).collect();
    events(&[&["serve"][..], &listen].concat())
}

fn connect(address: &str) -> Client {
    let (start, address) = (Instant::now(), address.parse().expect("an address"));
    loop {
        match Client::at(&address) {
            Ok(client) => return client,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Receives the next event's payload, or a notice.
fn next(client: &mut Client) -> Result<Vec<u8>, NoticeText> {
    match client.receive(Some(Duration::from_secs(60))).expect("the broker is there") {
        Some(Reception::Event(event)) => Ok(event.payload.bytes().to_vec()),
        Some(Reception::Notice { notice, .. }) => Err(notice),
        other => panic!("{other:?}"),
    }
}

fn descriptors(process: &Killed) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", process.0.id())).expect("it runs").count()
}

fn signal(process: &Killed, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(&process.0);
    rustix::process::kill_process(pid, signal).expect("it runs");
}

fn what_one_program_publishes_another_prints_over_each_transport() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let socket = scratch.path().join("bus");
    let shared = socket.to_str().expect("plain");
    let [tcp] = free_ports().map(|port| format!("tcp:{port}"));
    let unix = &*format!("unix:{shared}");
    let broker = serve(&[shared, &tcp]);
    drop(connect(&tcp));
    for (from, to) in [(unix, &*tcp), (&*tcp, shared), (shared, unix)] {
        let subscriber =
            ["subscribe", "plant/+", "--filter", "celsius > 80", "--json", "--count", "1", "--at", to];
        let mut subscriber = events(&subscriber);
        // the subscriber may not have subscribed yet, so the event is published again until it has been
        // delivered
        let publish = ["publish", "plant/1", "hot", "--field", "celsius=81.5", "--json", "--at", from];
        let start = Instant::now();
        loop {
            let mut publisher = events(&publish);
            let mut line = String::new();
            BufReader::new(publisher.0.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
            let told: Value = serde_json::from_str(&line).expect("an object");
            if told["consumers"] == 1 {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{told}");
        }
        let lines = BufReader::new(subscriber.0.stdout.take().expect("piped")).lines();
        let mut objects =
            lines.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("an object"));
        // skips notices: a publisher whose event nobody got may leave after the subscription has begun
        let got = objects.find(|told| told["notice"].is_null()).expect("an event");
        assert_eq!(
            (&got["topic"], &got["payload"], &got["fields"]["celsius"]),
            (&"plant/1".into(), &"hot".into(), &81.5.into())
        );
        assert!(subscriber.0.wait().expect("it ends").success());
    }
    signal(&broker, rustix::process::Signal::INT);
    let mut broker = broker;
    assert!(broker.0.wait().expect("it ends").success() && !socket.exists());
    Ok(())
}

/// Returns the number of files with names in this host's shared memory.
fn named_memory() -> usize {
    std::fs::read_dir("/dev/shm").map_or(0, Iterator::count)
}

fn mapped_regions(process: &Killed) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.0.id())).expect("it runs");
    maps.lines().filter(|line| line.contains("/memfd:")).count()
}

fn a_party_that_is_killed_leaves_nothing_and_nobody_else_notices() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let socket = scratch.path().join("bus");
    for kind in ["unix:", ""] {
        let address = format!("{kind}{}", socket.display());
        killed(&address);
        let names: Vec<_> = std::fs::read_dir(scratch.path()).expect("it is there").collect();
        // a broker that root has started leaves no socket behind
        assert!(names.len() <= 1, "the last broker's socket alone: {names:?}");
    }
    Ok(())
}

fn what_removes_the_socket_of_a_killed_broker_leaves_that_of_the_next_one() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let socket = scratch.path().join("bus");
    let _next = std::os::unix::net::UnixListener::bind(&socket).expect("room");
    // the killed broker's socket was another file
    let sweep = ["events", "sweep", "--", "1:2:3:4", socket.to_str().expect("plain")];
    let swept =
        Command::new(program::unisono()).args(sweep).stdin(Stdio::null()).output().expect("it starts");
    assert!(swept.status.success() && socket.exists(), "{swept:?}");
    Ok(())
}

/// Kills a consumer, a supplier and the broker, each while events pass.
fn killed(address: &str) {
    let (named, text) = (named_memory(), "x".repeat(3000));
    let broker = serve(&[address]);
    let mut client = connect(address);
    let topic = client.advertise(&Advertisement::new("own")).expect("a topic");
    client.subscribe(&SubscriptionSpec::new("own")).expect("it fits");
    client.subscribe(&SubscriptionSpec::new("other")).expect("it fits");
    let own = |client: &mut Client| {
        client.publish(topic, &EventDraft::new(b"own")).expect("the broker is there");
        while next(client) != Ok(b"own".to_vec()) {}
    };
    own(&mut client);
    let before = (descriptors(&broker), mapped_regions(&broker));

    let publish = ["publish", "other", &text, "--count", "1000000", "--every", "1ms", "--at", address];
    let supplier = events(&publish);
    for _ in 0..20 {
        assert_eq!(next(&mut client), Ok(text.clone().into_bytes()));
    }
    let consumer = events(&["subscribe", "other", "--at", address]);
    let start = Instant::now();
    while client.statistics().expect("it answers").consumers.len() < 3 {
        assert!(start.elapsed() < Duration::from_secs(60), "the consumer never comes");
    }
    drop(consumer);
    for _ in 0..20 {
        assert_eq!(next(&mut client), Ok(text.clone().into_bytes()), "the supplier goes on");
    }
    drop(supplier);
    let told = loop {
        match next(&mut client) {
            Ok(event) => assert_eq!(event, text.as_bytes(), "no half event"),
            Err(notice) => break notice,
        }
    };
    assert!(matches!(told, NoticeText::Gone { died: true, .. }), "{told:?}");
    own(&mut client);
    let statistics = client.statistics().expect("it answers");
    assert_eq!((statistics.clients, statistics.consumers.len()), (1, 2));
    assert_eq!((descriptors(&broker), mapped_regions(&broker)), before, "descriptors and memory");

    drop(broker);
    assert!(client.receive(Some(Duration::from_secs(60))).is_err(), "its programs are told");
    let _second = serve(&[address]);
    let mut client = connect(address);
    client.statistics().expect("it answers");
    assert_eq!(named_memory(), named, "no name of shared memory is left");
}

fn a_consumer_that_is_stopped_costs_the_others_no_event() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let socket = scratch.path().join("bus");
    let unix = socket.to_str().expect("plain");
    let _broker = serve(&[unix]);
    let (mut supplier, mut fast) = (connect(unix), connect(unix));
    let topic: TopicHandle = supplier.advertise(&Advertisement::new("feed")).expect("a topic");
    let all = SubscriptionSpec { full: WhenFull::BlockSupplier, ..SubscriptionSpec::new("feed") };
    fast.subscribe(&all).expect("it fits");
    let mut stopped = events(&["subscribe", "feed", "--json", "--at", unix]);
    let start = Instant::now();
    while supplier.statistics().expect("it answers").consumers.len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "the consumer never comes");
    }
    signal(&stopped, rustix::process::Signal::STOP);
    let payload = vec![b'x'; 2000];
    for _ in 0..3000 {
        supplier.publish(topic, &EventDraft::new(&payload)).expect("the broker is there");
        assert_eq!(next(&mut fast).map(|bytes| bytes.len()), Ok(2000));
    }
    signal(&stopped, rustix::process::Signal::CONT);
    // the consumer goes on, with notices of what it missed
    let lines = BufReader::new(stopped.0.stdout.take().expect("piped")).lines();
    let (mut got, mut lost) = (0, 0);
    for line in lines {
        let line: Value = serde_json::from_str(&line.expect("text")).expect("an object");
        match line["notice"].as_str() {
            Some("gap") => lost += line["lost"].as_u64().expect("a number"),
            _ => got += 1,
        }
        if got + lost >= 3000 {
            break;
        }
    }
    assert_eq!(got + lost, 3000);
    assert!(lost > 0, "6 MB fit into no queue of 1024 events");
    Ok(())
}

fn programs_that_speak_garbage_are_closed_and_the_broker_serves_on() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let socket = scratch.path().join("bus");
    let unix = socket.to_str().expect("plain");
    let _broker = serve(&[unix]);
    let mut client = connect(unix);
    let mut state = 1_u64;
    // four bytes of 1 are the beginning of a connection through shared memory
    for begin in [[16, 0, 0, 0], [1; 4]].into_iter().cycle().take(200) {
        let mut stream = UnixStream::connect(unix).expect("it listens");
        let bytes: Vec<u8> = (0..500)
            .map(|_| {
                // xorshift64: the same pseudo-random bytes each time
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        // fails if the broker closes the connection meanwhile
        let _ = stream.write_all(&[&begin[..], &bytes].concat());
    }
    // a client that does not disconnect by itself: only the broker's refusal ends it
    let mut stays = UnixStream::connect(unix).expect("it listens");
    stays.write_all(&[1, 1, 1, 1, 7]).expect("it is connected");
    let start = Instant::now();
    loop {
        let statistics = client.statistics().expect("it answers");
        if statistics.sent_away > 100 && statistics.clients == 1 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "garbage is tolerated: {statistics:?}");
    }
    drop(stays);
    Ok(())
}

/// A process that publishes on an exclusive topic each line that it reads.
struct Standing {
    process: Killed,
    said: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Standing {
    fn start(socket: &str, strength: &str) -> Self {
        let mut command = Command::new(program::unisono());
        command.args([
            "events",
            "publish",
            "speed",
            "--exclusive",
            "--json",
            "--strength",
            strength,
            "--at",
            socket,
        ]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unisono starts");
        let said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { process: Killed(child), said }
    }

    /// Publishes a line. Returns the outcome.
    fn publish(&mut self, line: &str) -> String {
        let to = self.process.0.stdin.as_mut().expect("a pipe");
        writeln!(to, "{line}").expect("it reads");
        let answer = self.said.next().expect("it answers").expect("a text");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        answer["outcome"].as_str().expect("a word").to_owned()
    }
}

fn a_weaker_supplier_goes_on_where_the_stronger_one_was_killed() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a directory");
    let socket = scratch.path().join("events").display().to_string();
    let _broker = serve(&[&socket]);
    let mut client = connect(&socket);
    client.subscribe(&SubscriptionSpec::new("speed")).expect("it fits");
    let mut strong = Standing::start(&socket, "2");
    assert_eq!(strong.publish("1"), "taken");
    // the stronger one begins; otherwise consumers would get two notices of the owner
    let mut weak = Standing::start(&socket, "1");
    assert_eq!(
        (weak.publish("1"), strong.publish("2"), weak.publish("2")),
        three("standby", "taken", "standby")
    );
    strong.process.0.kill().expect("it runs"); // kill -9
    strong.process.0.wait().expect("our child");
    assert_eq!((next(&mut client), next(&mut client)), (Ok(b"1".to_vec()), Ok(b"2".to_vec())));
    let (gone, owner) = (next(&mut client), next(&mut client));
    let Err(NoticeText::Gone { supplier: dead, died: true, .. }) = gone else { panic!("{gone:?}") };
    let Err(NoticeText::Owner { supplier: heir, .. }) = owner else { panic!("{owner:?}") };
    assert_ne!(dead, heir);
    assert_eq!((weak.publish("3"), next(&mut client)), ("taken".to_owned(), Ok(b"3".to_vec())));
    let more = client.receive(Some(Duration::from_millis(100))).expect("the broker is there");
    assert!(more.is_none(), "nothing comes twice: {more:?}");
    Ok(())
}

/// A client of MQTT 3.1.1. Messages that it does not read stay at the broker.
struct MqttSocket(TcpStream);

impl MqttSocket {
    fn connect(at: &str, name: &str) -> Self {
        let socket = TcpStream::connect(at).expect("it listens");
        socket.set_nodelay(true).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        let mut client = Self(socket);
        // a clean session, and no keep-alive
        let front = [0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, name.len() as u8];
        client.send(0x10, &[&front, name.as_bytes()]);
        assert_eq!(client.receive(), (0x20, vec![0, 0]), "it is connected");
        client
    }

    fn subscribed(at: &str, name: &str, topic: &str) -> Self {
        let mut client = Self::connect(at, name);
        client.send(0x82, &[&[0, 1, 0, topic.len() as u8], topic.as_bytes(), &[0]]);
        assert_eq!(client.receive(), (0x90, vec![0, 1, 0]), "it has subscribed with quality 0");
        client
    }

    fn publish(&mut self, topic: &str, payload: &[u8]) {
        self.send(0x30, &[&[0, topic.len() as u8], topic.as_bytes(), payload]);
    }

    fn send(&mut self, kind: u8, parts: &[&[u8]]) {
        let body = parts.concat();
        let (mut packet, mut length) = (vec![kind], body.len());
        while length > 0x7F {
            packet.push((length & 0x7F) as u8 | 0x80);
            length >>= 7;
        }
        packet.push(length as u8);
        packet.extend(body);
        self.0.write_all(&packet).expect("the broker reads");
    }

    /// Receives a packet. Returns its first byte, and the bytes after its length.
    fn receive(&mut self) -> (u8, Vec<u8>) {
        let mut byte = || {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("a packet comes");
            byte[0]
        };
        let (kind, mut length) = (byte(), 0);
        for place in 0.. {
            let digit = byte();
            length |= usize::from(digit & 0x7F) << (7 * place);
            if digit < 0x80 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("the rest follows");
        (kind, body)
    }
}

/// Returns a number of /proc/PID/status, in KiB.
fn memory(process: &Killed, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
    line.trim_matches(|letter: char| !letter.is_ascii_digit()).parse().expect("a number")
}

fn an_mqtt_subscriber_that_is_stopped_costs_a_fast_one_no_message_and_the_broker_its_queue_alone()
-> TestOutcome {
    const MESSAGES: usize = 4000;
    const UNDERWAY: usize = 8;
    /// The greatest growth of the broker's memory: the queue of the stopped subscriber holds 1 MiB; without a
    /// bound it would hold some 60 MiB.
    const MAX_KIB: u64 = 8 << 10;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let unix = scratch.path().join("bus").display().to_string();
    let mut command = Command::new(program::unisono());
    command.args(["events", "serve", "--mqtt", "127.0.0.1:0", "--listen", &unix]);
    let mut broker = Killed(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut said = BufReader::new(broker.0.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let at = said.find_map(|line| Some(line.strip_prefix("serving MQTT at ")?.split(';').next()?.to_owned()));
    let at = at.expect("it says where it listens");
    let (mut fast, mut writer) =
        (MqttSocket::subscribed(&at, "fast", "flood"), MqttSocket::connect(&at, "writer"));
    let (mut times, mut before) = (Vec::new(), 0);
    for round in 0..4 {
        let stopped = (round % 2 == 1).then(|| MqttSocket::subscribed(&at, "stopped", "flood"));
        let start = Instant::now();
        for message in 0..MESSAGES + UNDERWAY {
            if message < MESSAGES {
                let mut payload = vec![7; 16 << 10];
                payload[..8].copy_from_slice(&message.to_le_bytes());
                writer.publish("flood", &payload);
            }
            if let Some(due) = message.checked_sub(UNDERWAY) {
                let (kind, body) = fast.receive();
                let number = body[7..].first_chunk().map(|number| usize::from_le_bytes(*number));
                assert_eq!((kind, number), (0x30, Some(due)), "none is lost");
            }
        }
        times.push(start.elapsed());
        match stopped {
            None => before = memory(&broker, "VmRSS:"),
            Some(_) => {
                let consumers = connect(&unix).statistics().expect("the broker is there").consumers;
                let lost: u64 = consumers.iter().map(|consumer| consumer.dropped_full).sum();
                assert!(lost > 0, "the stopped one's queue was full: {consumers:?}");
                let more = memory(&broker, "VmRSS:").saturating_sub(before);
                assert!(more < MAX_KIB, "{more} KiB for what the stopped one does not read");
            }
        }
    }
    eprintln!("{MESSAGES} messages without, with, without and with a stopped subscriber: {times:?}");
    Ok(())
}

fn three(a: &str, b: &str, c: &str) -> (String, String, String) {
    (a.to_owned(), b.to_owned(), c.to_owned())
}

/// The maximum memory of the broker for an idle program with a subscription, in KiB. With a buffer of its own
/// for incoming frames, it takes 80 KiB.
const MAX_IDLE: u64 = 8;

/// Returns the memory that belongs to a process alone, in KiB.
fn own_memory(process: &Killed) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("Linux 4.5");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB")
}

fn idle_programs_take_little_memory_and_leave_it_to_others() -> TestOutcome {
    const PROGRAMS: u64 = 400;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let [port] = free_ports();
    let (unix, tcp) = (format!("unix:{}", scratch.path().join("bus").display()), format!("tcp:{port}"));
    for address in [&unix, &tcp] {
        let broker = events(&["serve", "--clients", "2000", "--listen", &unix, "--listen", &tcp]);
        let idle = || {
            let mut client = connect(address);
            client.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
            client
        };
        let mut first = idle();
        let before = own_memory(&broker);
        // the memory of programs that have left is for those that come
        for _ in 0..2 {
            let programs: Vec<Client> = (0..PROGRAMS).map(|_| idle()).collect();
            let each = (own_memory(&broker) - before) / PROGRAMS;
            assert!(each <= MAX_IDLE, "{each} KiB for a program at {address}");
            drop(programs);
            while first.statistics().expect("it serves").clients > 1 {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    Ok(())
}

host_tests![needs Nothing;
    idle_programs_take_little_memory_and_leave_it_to_others within 120,
    a_weaker_supplier_goes_on_where_the_stronger_one_was_killed within 120,
    what_one_program_publishes_another_prints_over_each_transport within 120,
    a_party_that_is_killed_leaves_nothing_and_nobody_else_notices within 120,
    what_removes_the_socket_of_a_killed_broker_leaves_that_of_the_next_one,
    a_consumer_that_is_stopped_costs_the_others_no_event within 120,
    programs_that_speak_garbage_are_closed_and_the_broker_serves_on within 120,
    an_mqtt_subscriber_that_is_stopped_costs_a_fast_one_no_message_and_the_broker_its_queue_alone within 120,
];
