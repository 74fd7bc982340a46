//! Measures the cost of an event between two processes through shared memory, TCP, a Unix socket and
//! iceoryx2.
//!
//! ```text
//! cargo bench -p unisono-broker --bench memory -- [CASE...] [samples=7] [ms=200]
//! ```
//! Every case runs its variants interleaved, in the order A B C C B A. Each sample has a new process at the
//! other end; the two processes are pinned to processors 0 and 1. Printed for each variant: the least, the
//! median and the greatest of its samples. `1KB` and `1MB` are nanoseconds one way: half of an exchange in
//! which both ends hold the event once. `throughput` is events of 1 KB a second, which the receiver copies.
//! `stopped` is the throughput of a fast consumer beside one that is stopped.
//!
//! Variants: `copy` writes the event from a buffer and copies it out; `place` leaves it in its slot and reads
//! none of its bytes, as iceoryx2's own benchmark does; `spin`, `sleep` and `adaptive` are the ways to wait.
//! `iceoryx2` is built from the peers of `laboratory` when it is selected, alone or by name; if the build
//! fails, the reason is printed.

#![cfg(not(loom))]
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_events_wire::memory::{
    Doorbell, DoorbellWatch, MemoryConsumer, MemoryGeometry, MemoryOffer, MemorySupplier, NextEvent,
    PublishRefused, WhenBehind,
};
use unisono_linux::affinity::{self, CpuSet};
use unisono_sync::{SpinBudget, Unwatched, Wait, WatchVerdict};

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;

const CASES: [(&str, usize, &[&str]); 4] = [
    (
        "1KB",
        KB,
        &["tcp", "unix", "copy-spin", "copy-sleep", "copy-adaptive", "place-spin", "iceoryx2"],
    ),
    ("1MB", MB, &["tcp", "unix", "copy-spin", "place-spin", "iceoryx2"]),
    ("throughput", KB, &["tcp", "unix", "copy-spin", "copy-adaptive", "place-spin"]),
    ("stopped", KB, &["alone", "beside"]),
];

/// The environment variable of the other process, with its variant, its kind of case and the bytes of an
/// event.
const ROLE: &str = "UNISONO_BENCH_ROLE";
/// Events between two readings of the clock, and between two wake-ups of sleepers.
const BATCH: usize = 64;
/// Events in a ring.
const DEPTH: u32 = 256;

fn way(variant: &str) -> (Wait, SpinBudget) {
    let wait = match variant.rsplit('-').next() {
        Some("spin") => Wait::Spin,
        Some("sleep") => Wait::Block,
        _ => Wait::Adaptive,
    };
    (wait, SpinBudget::DEFAULT)
}

fn pin(processor: usize) {
    affinity::restrict_own(&CpuSet::single(processor)).expect("two processors");
}

/// The other process, with one end of a socket as its standard input.
struct Other {
    child: Child,
    socket: OwnedFd,
}

impl Other {
    fn start(variant: &str, kind: &str, bytes: usize) -> Self {
        let (ours, theirs): (OwnedFd, OwnedFd) = if variant == "tcp" {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let ours = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
            ours.set_nodelay(true).expect("a TCP socket");
            let (theirs, _) = listener.accept().expect("it connects");
            theirs.set_nodelay(true).expect("a TCP socket");
            (ours.into(), theirs.into())
        } else {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            (ours.into(), theirs.into())
        };
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(ROLE, format!("{variant} {kind} {bytes}")).stdin(Stdio::from(theirs));
        Self { child: command.stdout(Stdio::null()).spawn().expect("it starts"), socket: ours }
    }

    fn stream(&self) -> UnixStream {
        // Reads and writes of a socket do not depend on its family.
        UnixStream::from(self.socket.try_clone().expect("a descriptor is free"))
    }

    fn doorbell(&self) -> Doorbell {
        Doorbell::new(self.socket.try_clone().expect("a descriptor is free"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn supplier(bytes: usize, depth: u32, way: (Wait, SpinBudget)) -> MemorySupplier {
    let geometry = MemoryGeometry::new(depth, bytes as u32, 4).expect("within the limits");
    MemorySupplier::create(geometry, way).expect("a memfd")
}

fn join(doorbell: &Doorbell, way: (Wait, SpinBudget)) -> MemoryConsumer {
    loop {
        if let Some(offer) = MemoryOffer::receive(doorbell).expect("the other end is there") {
            return offer.accept(way, doorbell).expect("a supplier's memory");
        }
        let _ = unisono_linux::poll::readable([doorbell.as_fd()], None).expect("poll");
    }
}

/// One end of an exchange of events.
#[expect(clippy::large_enum_variant, reason = "there are two in a run")]
enum End {
    Stream(UnixStream, Vec<u8>),
    Memory {
        supplier: MemorySupplier,
        consumer: MemoryConsumer,
        doorbell: Doorbell,
        event: Vec<u8>,
        copies: bool,
    },
}

impl End {
    fn new(variant: &str, bytes: usize, socket: OwnedFd) -> Self {
        if matches!(variant, "tcp" | "unix") {
            return Self::Stream(UnixStream::from(socket), vec![1; bytes]);
        }
        let doorbell = Doorbell::new(socket);
        let mut supplier = supplier(bytes, 8, way(variant));
        supplier.offer(WhenBehind::BlocksSupplier, &doorbell).expect("the other end is there");
        let consumer = join(&doorbell, way(variant));
        Self::Memory {
            supplier,
            consumer,
            doorbell,
            event: vec![1; bytes],
            copies: variant.starts_with("copy"),
        }
    }

    fn send(&mut self) -> std::io::Result<()> {
        match self {
            Self::Stream(stream, event) => stream.write_all(event),
            Self::Memory { supplier, event, copies, .. } => {
                if *copies {
                    supplier.publish(0, event).expect("there is room");
                } else {
                    supplier.loan(event.len()).expect("there is room").publish(0);
                }
                supplier.wake_consumers();
                Ok(())
            }
        }
    }

    fn receive(&mut self) -> std::io::Result<()> {
        let Self::Memory { consumer, doorbell, event, copies, .. } = self else {
            let Self::Stream(stream, event) = self else { return Ok(()) };
            return stream.read_exact(event);
        };
        loop {
            if *copies {
                event.clear();
                if let NextEvent::Event(_) = consumer.receive_copy(event).expect("an honest supplier") {
                    return Ok(());
                }
            } else if let NextEvent::Event(_) = consumer.receive().expect("an honest supplier") {
                return Ok(());
            }
            let verdict = consumer.wait(&mut DoorbellWatch::new(doorbell, None));
            if verdict == WatchVerdict::Stop {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Returns the nanoseconds one way.
fn exchange(variant: &str, bytes: usize, time: Duration) -> f64 {
    let other = Other::start(variant, "exchange", bytes);
    let mut end = End::new(variant, bytes, other.socket.try_clone().expect("a descriptor is free"));
    let mut rounds = |time: Duration| {
        let (start, mut rounds) = (Instant::now(), 0_u32);
        while start.elapsed() < time {
            for _ in 0..10 {
                end.send().expect("the other end is there");
                end.receive().expect("the other end is there");
            }
            rounds += 10;
        }
        start.elapsed().as_nanos() as f64 / f64::from(2 * rounds)
    };
    rounds(time / 5);
    rounds(time)
}

fn answer(variant: &str, bytes: usize, socket: OwnedFd) {
    let mut end = End::new(variant, bytes, socket);
    while end.receive().and_then(|()| end.send()).is_ok() {}
}

/// Publishes for `time`; returns events a second.
fn publish_for(supplier: &mut MemorySupplier, event: &[u8], copies: bool, time: Duration) -> f64 {
    let (start, first) = (Instant::now(), supplier.turn());
    while start.elapsed() < time {
        for _ in 0..BATCH {
            loop {
                let published = if copies {
                    supplier.publish(0, event)
                } else {
                    supplier.loan(event.len()).map(|loan| loan.publish(0))
                };
                match published {
                    Ok(_) => break,
                    Err(PublishRefused::NoRoom(number)) => {
                        let _ = supplier.wait_for(number, &mut Unwatched);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        supplier.wake_consumers();
    }
    (supplier.turn() - first) as f64 / start.elapsed().as_secs_f64()
}

/// Returns the events a second.
fn throughput(variant: &str, bytes: usize, time: Duration) -> f64 {
    let other = Other::start(variant, "throughput", bytes);
    let event = vec![1; bytes];
    if matches!(variant, "tcp" | "unix") {
        let (mut stream, batch) = (other.stream(), event.repeat(BATCH));
        let (start, mut events) = (Instant::now(), 0);
        while start.elapsed() < time {
            stream.write_all(&batch).expect("the other end is there");
            events += BATCH;
        }
        return events as f64 / start.elapsed().as_secs_f64();
    }
    let doorbell = other.doorbell();
    let mut supplier = supplier(bytes, DEPTH, way(variant));
    supplier.offer(WhenBehind::BlocksSupplier, &doorbell).expect("room");
    let copies = variant.starts_with("copy");
    publish_for(&mut supplier, &event, copies, time / 5);
    publish_for(&mut supplier, &event, copies, time)
}

fn swallow(variant: &str, bytes: usize, socket: OwnedFd) {
    if matches!(variant, "tcp" | "unix") {
        let (mut stream, mut events) = (UnixStream::from(socket), vec![0; bytes * BATCH]);
        while stream.read(&mut events).is_ok_and(|count| count > 0) {}
        return;
    }
    let doorbell = Doorbell::new(socket);
    let mut consumer = join(&doorbell, way(variant));
    let (copies, mut event) = (variant.starts_with("copy"), Vec::with_capacity(bytes));
    loop {
        event.clear();
        let came = if copies {
            matches!(consumer.receive_copy(&mut event).expect("honest"), NextEvent::Event(_))
        } else {
            matches!(consumer.receive().expect("honest"), NextEvent::Event(_))
        };
        std::hint::black_box(&event);
        if !came && consumer.wait(&mut DoorbellWatch::new(&doorbell, None)) == WatchVerdict::Stop {
            return;
        }
    }
}

/// Returns the events a second of a fast consumer, alone or beside a stopped one.
fn stopped(variant: &str, bytes: usize, time: Duration) -> f64 {
    let (fast, slow) = (
        Other::start("copy-adaptive", "throughput", bytes),
        Other::start("copy-adaptive", "throughput", bytes),
    );
    let mut supplier = supplier(bytes, DEPTH, way("adaptive"));
    supplier.offer(WhenBehind::BlocksSupplier, &fast.doorbell()).expect("room");
    let number = supplier.offer(WhenBehind::LosesOldest, &slow.doorbell()).expect("room");
    let event = vec![1; bytes];
    publish_for(&mut supplier, &event, true, time / 10);
    // In both cases there is a stopped process; they differ only in whether it is attached.
    let _ = Command::new("kill").args(["-STOP", &slow.child.id().to_string()]).status();
    if variant == "alone" {
        supplier.detach(number);
    }
    publish_for(&mut supplier, &event, true, time / 5);
    publish_for(&mut supplier, &event, true, time)
}

/// Builds the peer, once: returns its program, or the reason of the failure.
fn peer() -> Result<PathBuf, String> {
    let project = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../laboratory/peers/cargo");
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--quiet", "--manifest-path"]).arg(project.join("Cargo.toml"));
    cargo.args(["--features", "iceoryx2", "--bin", "ping_iceoryx2"]);
    let output = cargo.arg("--target-dir").arg(&built).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(built.join("release/ping_iceoryx2"));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().find(|line| line.starts_with("error")).unwrap_or("cargo said nothing").to_owned())
}

/// Returns the nanoseconds one way through iceoryx2.
fn iceoryx2(program: &PathBuf, bytes: usize, time: Duration) -> f64 {
    let name = format!("unisono-bench-{}-{:?}", std::process::id(), Instant::now());
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    // An exchange takes about 200 ns, so that this case takes as long as the others.
    let rounds = (time.as_nanos() / 200).to_string();
    let start = |role: &str, processor: &str| {
        let mut command = Command::new(program);
        command.args([role, &bytes.to_string(), &rounds, processor, &name]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it was built")
    };
    let mut pong = start("pong", "1");
    let mut ping = start("ping", "0");
    let lines = BufReader::new(ping.stdout.take().expect("piped")).lines();
    let mut groups: Vec<f64> = lines.map_while(Result::ok).filter_map(|line| line.parse().ok()).collect();
    let _ = ping.wait();
    let _ = pong.kill();
    let _ = pong.wait();
    groups.sort_by(f64::total_cmp);
    groups.get(groups.len() / 2).copied().unwrap_or(f64::NAN)
}

fn play(role: &str) {
    pin(1);
    let words: Vec<&str> = role.split(' ').collect();
    let [variant, kind, bytes] = words[..] else { return };
    let bytes = bytes.parse().expect("a number");
    let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor is free");
    if kind == "exchange" { answer(variant, bytes, socket) } else { swallow(variant, bytes, socket) }
}

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return play(&role);
    }
    pin(0);
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let number = |name: &str, default: u64| {
        let found = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.map_or(default, |number| number.parse().expect("a number"))
    };
    let (samples, time) = (number("samples", 7) as usize, Duration::from_millis(number("ms", 200)));
    let asked: Vec<&String> = words.iter().filter(|word| !word.contains('=')).collect();
    for (case, bytes, variants) in CASES {
        if !asked.is_empty() && !asked.iter().any(|word| *word == case) {
            continue;
        }
        let mut runs: Vec<(&str, Vec<f64>)> = variants.iter().map(|name| (*name, Vec::new())).collect();
        let program = if variants.contains(&"iceoryx2") { peer() } else { Err(String::new()) };
        if let Err(reason) = &program
            && !reason.is_empty()
        {
            println!("{case:<11} iceoryx2       skipped: {reason}");
        }
        for sample in 0..samples {
            let mut order: Vec<usize> = (0..runs.len()).collect();
            if sample % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let variant = runs[at].0;
                let figure = match (case, variant, &program) {
                    (_, "iceoryx2", Err(_)) => continue,
                    (_, "iceoryx2", Ok(program)) => iceoryx2(program, bytes, time),
                    ("throughput", ..) => throughput(variant, bytes, time),
                    ("stopped", ..) => stopped(variant, bytes, time),
                    _ => exchange(variant, bytes, time),
                };
                runs[at].1.push(figure);
            }
        }
        for (variant, mut figures) in runs.into_iter().filter(|(_, figures)| !figures.is_empty()) {
            figures.sort_by(f64::total_cmp);
            let (least, median) = (figures[0], figures[figures.len() / 2]);
            let most = figures[figures.len() - 1];
            let n = figures.len();
            println!("{case:<11} {variant:<14} n={n} {least:>12.0} {median:>12.0} {most:>12.0}");
        }
    }
}
