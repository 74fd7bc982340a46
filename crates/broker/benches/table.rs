//! Measures a broker beside the least that could do its work, in turns on one host, and prints one table.
//!
//! ```text
//! cargo bench -p unisono-broker --bench table -- [ROW...] [samples=7] [ms=500]
//! ```
//! Each row names this broker's figure, that of the other program, their ratio (the median of the pairs, with
//! the least and the greatest one) and the ratio to reach. Each sample has new processes; the order changes
//! from sample to sample. Where there are three processors, publisher, broker and consumer have one each.
//! Where there are two, publisher and consumer share one if the events pass a third program, and have one
//! each if not.
//!
//! | row | this broker | beside it |
//! |---|---|---|
//! | `throughput` | events of 1 KB a second through a broker on TCP | a program that only receives and sends |
//! | `alone` | one way of an event of 1 KB that comes alone, through a broker on TCP | a TCP connection |
//! | `request` | a request of no bytes and its reply, through a broker on TCP | an echo over TCP |
//! | `request-direct` | the same over a direct link between the two programs | an echo over TCP |
//! | `request-shared` | a request and its reply through shared memory, where all spin | an echo over TCP |
//! | `connection` | memory of the broker for an idle connection over TCP, or over a Unix socket | 8 KiB |
//! | `subscription` | memory of the broker for a subscription | 0.5 KiB |
//!
//! `unisono-laboratory study middleware-rivals --paper` has the rows beside iceoryx2, ZeroMQ and mosquitto
//! for events of 1 MB and for stopped consumers, and `--bench memory` the exchange in shared memory.

#![cfg(not(loom))]
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use unisono_broker::{Broker, Exposure, Limits, OWNER, Server};
use unisono_events_client::{
    Advertisement, BrokerAddress, ChannelWait, Client, ClientOptions, EventDraft, Reception,
    SubscriptionSpec, WhenFull, now,
};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::clock;
use unisono_measure::quantile::median;

const KB: usize = 1 << 10;
/// Bytes of a read or a write of the programs that are not this broker's.
const PIECE: usize = 128 << 10;
/// Events that come alone come this far apart.
const EVENT_INTERVAL: Duration = Duration::from_millis(2);
/// The time before a stream is counted.
const WARM_UP: Duration = Duration::from_millis(150);
/// Connections, or subscriptions, whose memory is measured together.
const MANY: usize = 500;
/// The environment variable with the role of a process and the role's words.
const ROLE: &str = "UNISONO_TABLE_ROLE";

/// A process of this program, killed on drop.
struct Party {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Party {
    fn start(processor: usize, role: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(ROLE, format!("{processor} {}", role.join(" ")));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, said }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn figure(mut self) -> f64 {
        self.line().parse().expect("a figure")
    }

    /// Bytes of memory that belong to the process alone.
    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("Linux 4.5");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).expect("KiB") * 1024.0
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn print_line(what: impl std::fmt::Display) {
    println!("{what}");
    std::io::stdout().flush().expect("the parent reads");
}

// ---- the roles of processes ----

fn play(words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    if processors() >= 2
        && let Ok(processor) = words[0].parse::<usize>()
    {
        affinity::restrict_own(&CpuSet::single(processor % processors())).expect("an allowed processor");
    }
    let at = || words[2].parse::<BrokerAddress>().expect("an address");
    let time = || Duration::from_millis(words[3].parse().expect("milliseconds"));
    match words[1] {
        "broker" => serve(&PathBuf::from(words[2]), wait(words[3]), false),
        "introducer" => serve(&PathBuf::from(words[2]), wait(words[3]), true),
        "source" => publish(&at()),
        "sink" => print_line(count(&at(), time())),
        "stamped" => stamp_over(&at(), time()),
        "timed" => print_line(time_over(&at(), time())),
        "replier" => reply(&at(), wait(words[3])),
        "requester" => print_line(request(&at(), time(), wait(words[4]))),
        "relay" => relay(),
        "plain-source" => pour(words[2]),
        "plain-sink" => print_line(count_plain(words[2], time())),
        "plain-stamped" => stamp_plain(words[2], time()),
        "plain-timed" => time_plain(time()),
        "echo" => echo(),
        "asker" => print_line(ask(words[2], time())),
        other => panic!("no role {other}"),
    }
}

/// The processors on which this program may run, which are numbered from 0 on.
fn processors() -> usize {
    affinity::allowed(Tid::current()).map_or(1, |set| set.len())
}

fn wait(name: &str) -> ChannelWait {
    if name == "spin" { ChannelWait::Spin } else { ChannelWait::Sleep }
}

fn serve(path: &std::path::Path, wait: ChannelWait, introduces: bool) {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let broker = Broker::new(tree.expect("it is sound"), Limits::for_clients(4 * MANY as u32));
    let broker = if introduces { broker.with_direct_tcp() } else { broker };
    let mut server = Server::new(broker, wait).expect("descriptors are left");
    let tcp = server.listen_tcp("127.0.0.1:0".parse().expect("an address"), Exposure::Loopback);
    server.listen_unix(path, OWNER).expect("it listens");
    print_line(format!("tcp:{}", tcp.expect("it listens")));
    server.serve(&|| false).expect("it serves");
}

fn publish(at: &BrokerAddress) {
    let mut client = Client::at(at).expect("it listens");
    let topic = client.advertise(&Advertisement::new("t")).expect("a topic");
    let payload = [7; KB];
    while client.publish_buffered(topic, &EventDraft::new(&payload)).is_ok() {}
}

fn count(at: &BrokerAddress, time: Duration) -> f64 {
    let mut client = Client::at(at).expect("it listens");
    let spec = SubscriptionSpec { full: WhenFull::BlockSupplier, ..SubscriptionSpec::new("t") };
    client.subscribe(&spec).expect("it fits");
    print_line("ready");
    let mut take = || matches!(client.receive(None).expect("it serves"), Some(Reception::Event(_)));
    per_second(time, || u64::from(take()))
}

/// Counts what `take` takes, after the first of it and a warm-up.
fn per_second(time: Duration, mut take: impl FnMut() -> u64) -> f64 {
    while take() == 0 {}
    let from = now() + WARM_UP.into();
    while now() < from {
        take();
    }
    let (start, mut taken) = (now(), 0);
    // a reading of the clock for each event would cost as much as the event
    while now() - start < time.into() {
        for _ in 0..64 {
            taken += take();
        }
    }
    taken as f64 / Duration::from(now() - start).as_secs_f64()
}

fn stamp_over(at: &BrokerAddress, time: Duration) {
    let mut client = Client::at(at).expect("it listens");
    let topic = client.advertise(&Advertisement::new("t")).expect("a topic");
    stamp(time, |event| client.publish(topic, &EventDraft::new(event)).is_ok());
}

/// Sends an event with the time in it, again and again.
fn stamp(time: Duration, mut send: impl FnMut(&[u8]) -> bool) {
    let (until, mut event) = (now() + (time + 2 * WARM_UP).into(), vec![7; KB]);
    while now() < until {
        std::thread::sleep(EVENT_INTERVAL);
        event[..8].copy_from_slice(&now().as_nanos().to_le_bytes());
        if !send(&event) {
            return;
        }
    }
}

/// Returns the nanoseconds since the time in an event.
fn age(event: &[u8]) -> f64 {
    let sent = u64::from_le_bytes(event[..8].try_into().expect("eight bytes"));
    (now() - clock::Instant::from_nanos(sent)).as_nanos() as f64
}

fn time_over(at: &BrokerAddress, time: Duration) -> f64 {
    let mut client = Client::at(at).expect("it listens");
    client.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
    print_line("ready");
    let (until, mut ages) = (now() + (time + WARM_UP).into(), Vec::new());
    while now() < until {
        if let Some(Reception::Event(event)) = client.receive(Some(EVENT_INTERVAL)).expect("it serves") {
            ages.push(age(&event.payload.bytes()));
        }
    }
    median(&ages).expect("events came")
}

fn reply(at: &BrokerAddress, wait: ChannelWait) {
    let mut client = ClientOptions::new().waiting(wait).connect(at).expect("it listens");
    client.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
    print_line("ready");
    while let Ok(reception) = client.receive(None) {
        if let Some(Reception::Event(event)) = reception {
            client.reply(&event, EventDraft::new(b"")).expect("it serves");
        }
    }
}

fn request(at: &BrokerAddress, time: Duration, wait: ChannelWait) -> f64 {
    let mut client = ClientOptions::new().waiting(wait).connect(at).expect("it listens");
    let topic = client.advertise(&Advertisement::new("t")).expect("a topic");
    exchange(time, || {
        client.request(topic, EventDraft::new(b""), Duration::from_secs(5)).expect("a reply");
    })
}

/// Returns the median nanoseconds of an exchange.
fn exchange(time: Duration, mut exchange: impl FnMut()) -> f64 {
    (0..100).for_each(|_| exchange());
    let (start, mut took) = (now(), Vec::new());
    while now() - start < time.into() {
        let before = now();
        exchange();
        took.push((now() - before).as_nanos() as f64);
    }
    median(&took).expect("exchanges")
}

fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    print_line(listener.local_addr().expect("bound"));
    listener
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (socket, _) = listener.accept().expect("it connects");
    socket.set_nodelay(true).expect("a TCP socket");
    socket
}

fn connect(at: &str) -> TcpStream {
    let socket = TcpStream::connect(at.parse::<SocketAddr>().expect("an address")).expect("it listens");
    socket.set_nodelay(true).expect("a TCP socket");
    socket
}

/// Receives from the second connection and sends to the first one, and does nothing else.
fn relay() {
    let listener = listen();
    let (mut to, mut from, mut piece) = (accept(&listener), accept(&listener), vec![0; PIECE]);
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..count]).is_err() {
            return;
        }
    }
}

fn pour(at: &str) {
    let (mut socket, piece) = (connect(at), vec![7; PIECE]);
    while socket.write_all(&piece).is_ok() {}
}

fn count_plain(at: &str, time: Duration) -> f64 {
    let (mut socket, mut piece) = (connect(at), vec![0; PIECE]);
    print_line("ready");
    per_second(time, || socket.read(&mut piece).expect("it goes on") as u64) / KB as f64
}

fn stamp_plain(at: &str, time: Duration) {
    let mut socket = connect(at);
    stamp(time, |event| socket.write_all(event).is_ok());
}

fn time_plain(time: Duration) {
    let mut socket = accept(&listen());
    let (until, mut ages, mut event) = (now() + (time + WARM_UP).into(), Vec::new(), vec![0; KB]);
    while now() < until && socket.read_exact(&mut event).is_ok() {
        ages.push(age(&event));
    }
    print_line(median(&ages).expect("events came"));
}

fn echo() {
    let (mut socket, mut event) = (accept(&listen()), [0; 8]);
    while socket.read_exact(&mut event).is_ok() && socket.write_all(&event).is_ok() {}
}

fn ask(at: &str, time: Duration) -> f64 {
    let (mut socket, mut event) = (connect(at), [0; 8]);
    exchange(time, || {
        socket.write_all(&event).expect("it listens");
        socket.read_exact(&mut event).expect("it answers");
    })
}

// ---- the rows ----

/// The processors of the parties.
const SOURCE: usize = 0;
const MIDDLE: usize = 1;
const SINK: usize = 2;

/// The processor of a program that exchanges messages with the source directly. If there are two processors,
/// a sink shares one with the source, because the broker between them has the other; a direct partner does
/// not.
fn partner() -> usize {
    if processors() >= 3 { SINK } else { MIDDLE }
}

/// What all rows need.
struct Bench {
    directory: tempfile::TempDir,
    ms: String,
}

impl Bench {
    fn broker(&self, wait: &str) -> (Party, String) {
        self.start("broker", wait)
    }

    fn start(&self, role: &str, wait: &str) -> (Party, String) {
        let path = self.directory.path().join("events").display().to_string();
        let _ = std::fs::remove_file(&path);
        let mut broker = Party::start(MIDDLE, &[role, &path, wait]);
        let tcp = broker.line();
        (broker, tcp)
    }

    fn throughput(&self) -> f64 {
        let (_broker, at) = self.broker("sleep");
        let mut sink = Party::start(SINK, &["sink", &at, &self.ms]);
        sink.line();
        let _source = Party::start(SOURCE, &["source", &at]);
        sink.figure()
    }

    fn relayed(&self) -> f64 {
        let mut relay = Party::start(MIDDLE, &["relay"]);
        let at = relay.line();
        let mut sink = Party::start(SINK, &["plain-sink", &at, &self.ms]);
        sink.line();
        let _source = Party::start(SOURCE, &["plain-source", &at]);
        sink.figure()
    }

    fn alone(&self) -> f64 {
        let (_broker, at) = self.broker("sleep");
        let mut sink = Party::start(SINK, &["timed", &at, &self.ms]);
        sink.line();
        let _source = Party::start(SOURCE, &["stamped", &at, &self.ms]);
        sink.figure()
    }

    fn alone_plain(&self) -> f64 {
        let mut sink = Party::start(partner(), &["plain-timed", "", &self.ms]);
        let at = sink.line();
        let _source = Party::start(SOURCE, &["plain-stamped", &at, &self.ms]);
        sink.figure()
    }

    fn request(&self, role: &str, wait: &str) -> f64 {
        // A broker that spins takes a processor from the two programs where there is no third one.
        let (_broker, tcp) = self.start(role, if processors() >= 3 { wait } else { "sleep" });
        let shared = self.directory.path().join("events").display().to_string();
        let at = if wait == "spin" { shared } else { tcp };
        let mut replier = Party::start(partner(), &["replier", &at, wait]);
        replier.line();
        Party::start(SOURCE, &["requester", &at, &self.ms, wait]).figure()
    }

    fn echo(&self) -> f64 {
        let mut echo = Party::start(partner(), &["echo"]);
        let at = echo.line();
        Party::start(SOURCE, &["asker", &at, &self.ms]).figure()
    }

    /// Bytes of the broker's memory for each of many things that `make` makes with the addresses for TCP and
    /// for the Unix socket.
    fn memory<T>(&self, mut make: impl FnMut(&BrokerAddress, &BrokerAddress) -> T) -> f64 {
        let (broker, tcp) = self.broker("sleep");
        let tcp = tcp.parse().expect("an address");
        let unix = BrokerAddress::Unix(self.directory.path().join("events"));
        let mut first = make(&tcp, &unix);
        let before = broker.memory();
        let kept: Vec<T> = (0..MANY).map(|_| std::mem::replace(&mut first, make(&tcp, &unix))).collect();
        // buffers of connections that are idle go after at most a fifth of the time for dead peers
        std::thread::sleep(Duration::from_secs(3));
        let each = (broker.memory() - before) / kept.len() as f64;
        drop((kept, first));
        each
    }

    fn connection(&self) -> f64 {
        let mut turn = 0;
        self.memory(|tcp, unix| {
            turn += 1;
            Client::at(if turn % 2 == 0 { tcp } else { unix }).expect("there is room")
        })
    }

    fn subscription(&self) -> f64 {
        let mut client = None;
        self.memory(|tcp, _| {
            let client = client.get_or_insert_with(|| Client::at(tcp).expect("there is room"));
            client.subscribe(&SubscriptionSpec::new("t")).expect("there is room")
        })
    }
}

/// A row: its name, its unit, this broker's figure, the other one, and the limit of their ratio.
struct Row<'a> {
    name: &'a str,
    unit: &'a str,
    scale: f64,
    ours: Box<dyn Fn() -> f64 + 'a>,
    theirs: Box<dyn Fn() -> f64 + 'a>,
    reach: &'a str,
}

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return play(&role);
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let number = |name: &str, otherwise: usize| {
        let given = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        given.map_or(otherwise, |given| given.parse().expect("a number"))
    };
    let (samples, ms) = (number("samples", 7), number("ms", 500));
    let bench = &Bench { directory: tempfile::tempdir().expect("a directory"), ms: ms.to_string() };
    let row = |name, unit, scale, ours: Box<dyn Fn() -> f64>, theirs: Box<dyn Fn() -> f64>, reach| Row {
        name,
        unit,
        scale,
        ours,
        theirs,
        reach,
    };
    let rows = [
        row(
            "throughput",
            "M/s",
            1e6,
            Box::new(|| bench.throughput()),
            Box::new(|| bench.relayed()),
            ">= 0.9",
        ),
        row("alone", "us", 1e3, Box::new(|| bench.alone()), Box::new(|| bench.alone_plain()), "<= 1.6"),
        row(
            "request",
            "us",
            1e3,
            Box::new(|| bench.request("broker", "sleep")),
            Box::new(|| bench.echo()),
            "-",
        ),
        row(
            "request-direct",
            "us",
            1e3,
            Box::new(|| bench.request("introducer", "sleep")),
            Box::new(|| bench.echo()),
            "<= 1.2",
        ),
        row(
            "request-shared",
            "us",
            1e3,
            Box::new(|| bench.request("broker", "spin")),
            Box::new(|| bench.echo()),
            "<= 0.011",
        ),
        row("connection", "KiB", 1024.0, Box::new(|| bench.connection()), Box::new(|| 8192.0), "<= 1"),
        row(
            "subscription",
            "KiB",
            1024.0,
            Box::new(|| bench.subscription()),
            Box::new(|| 512.0),
            "<= 1",
        ),
    ];
    let chosen = |row: &&Row<'_>| {
        let mut names = words.iter().filter(|word| !word.contains('=')).peekable();
        names.peek().is_none() || names.any(|name| name == row.name)
    };
    println!(
        "{:<15} {:>9} {:>9} {:<5} {:>7} {:>7} {:>7}  n  reach",
        "row", "ours", "theirs", "unit", "ratio", "least", "most"
    );
    for row in rows.iter().filter(chosen) {
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for sample in 0..samples {
            // in the order A B B A
            let first = (sample % 2 == 1).then(|| (row.theirs)());
            let own = (row.ours)();
            let other = first.unwrap_or_else(|| (row.theirs)());
            ours.push(own / row.scale);
            theirs.push(other / row.scale);
            ratios.push(own / other);
        }
        ratios.sort_by(f64::total_cmp);
        println!(
            "{:<15} {:>9.3} {:>9.3} {:<5} {:>7.3} {:>7.3} {:>7.3} {:>2}  {}",
            row.name,
            median(&ours).expect("samples"),
            median(&theirs).expect("samples"),
            row.unit,
            median(&ratios).expect("samples"),
            ratios[0],
            ratios[ratios.len() - 1],
            ratios.len(),
            row.reach
        );
    }
}
