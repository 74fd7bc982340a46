//! `unisono events` with a log, while every kind of party is killed at random: no acknowledged event is
//! lost, a reader that keeps its place gets each one once, and the broker's memory stays flat.
//!
//! Ten seconds; ten minutes in `cargo xtask nightly soak`. All parties are processes of their own, and end
//! without a trace (SIGKILL): the broker; two writers that number their events, one at a Unix socket and one
//! in shared memory; an MQTT client that publishes with QoS 1 and publishes again what was not confirmed; a
//! reader that resumes by name, over TCP; a reader that keeps its position itself, in shared memory; a
//! supplier and a consumer with a ring between them, whose events no log keeps. In the middle third the
//! broker lives on, because a broker that lives for seconds would hide what it does not give back.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use unisono_events_client::{Client, LogStatistics};
use unisono_host_tests::ports::free_ports;
use unisono_host_tests::{TestOutcome, host_tests, is_long, program, require};

/// The last one is the MQTT client.
const WRITERS: usize = 3;
const BY_MQTT: usize = WRITERS - 1;
/// The part of the rate without pauses that the writers publish at.
const LOAD: f64 = 0.8;
/// Kilobytes. What two readers that are behind may have in their queues is far below. In 200 s there are more
/// than 300,000 events, so the loss of 30 bytes for each would be above.
const FLAT: u64 = 8 << 10;

/// A process that is started again when it ends, and may be killed at any time.
#[derive(Default)]
struct Party {
    pid: Mutex<Option<Pid>>,
    starts: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Party {
    fn started(&self, child: &Child) {
        self.starts.fetch_add(1, Ordering::Relaxed);
        *lock(&self.pid) = Some(Pid::from_child(child));
    }

    /// Waits for the end of a process that this party has started.
    fn wait(&self, child: &mut Child) {
        // nobody may kill it once its number can be another process's
        while child.try_wait().expect("it is a child").is_none() && lock(&self.pid).is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        *lock(&self.pid) = None;
        child.wait().expect("it is a child");
    }

    fn kill(&self) {
        if let Some(pid) = *lock(&self.pid) {
            // it may have ended, and is waited for only under this lock's owner
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn unisono(arguments: &[&str]) -> Command {
    let mut command = Command::new(program::unisono());
    command.arg("events").args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// What the soak has seen.
#[derive(Default)]
struct Seen {
    /// The last number that was acknowledged to each writer.
    acknowledged: [AtomicU64; WRITERS],
    /// By the reader that resumes by name: every number of each writer.
    by_name: Mutex<BTreeSet<(usize, u64)>>,
    /// By the reader that keeps its place: position and number, in the order of its coming.
    exact: Mutex<Vec<(u64, usize, u64)>>,
    /// Events that came through the ring.
    by_ring: AtomicU64,
}

/// Where the broker listens.
struct Addresses {
    unix: String,
    shared: String,
    tcp: String,
    /// Of MQTT clients.
    mqtt: String,
}

struct Soak<'a> {
    scratch: &'a Path,
    at: Addresses,
    is_over: AtomicBool,
    /// No more events; readers go on.
    is_written: AtomicBool,
    broker: Party,
    writers: [Party; WRITERS],
    readers: [Party; 2],
    /// The supplier and the consumer of the ring.
    ring: [Party; 2],
    seen: Seen,
    /// Kilobytes of the broker's memory, the least and the most, without the pages of the program's file: how
    /// many of these are there depends on how far the broker has come since it was started.
    memory: Mutex<Option<(u64, u64)>>,
    /// Between two events of a writer, in microseconds. 0: none.
    pause: AtomicU64,
}

impl Soak<'_> {
    fn serve(&self) {
        let log = self.scratch.join("log").display().to_string();
        let Addresses { shared, tcp, mqtt, .. } = &self.at;
        let keep = ["--log", &log, "--log-bytes", "1GiB", "--log-topics", "soak"];
        let listen = ["serve", "--listen", shared, "--listen", tcp, "--mqtt", mqtt];
        while !self.is_over.load(Ordering::Relaxed) {
            let mut broker = unisono(&[&listen[..], &keep].concat()).spawn().expect("unisono starts");
            self.broker.started(&broker);
            self.broker.wait(&mut broker);
        }
    }

    /// The life of a party of the ring.
    fn by_ring(&self, which: usize) {
        let publish =
            ["publish", "ring", "--every", "1ms", "--count", "1000000", "--at", &self.at.shared, "turn"];
        let subscribe = ["subscribe", "ring", "--json", "--at", &self.at.shared];
        let arguments = [&publish[..], &subscribe[..]][which];
        while !self.is_over.load(Ordering::Relaxed) {
            let mut child = unisono(arguments).spawn().expect("unisono starts");
            self.ring[which].started(&child);
            for line in BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok) {
                let told = serde_json::from_str::<Value>(&line).unwrap_or_default();
                self.seen.by_ring.fetch_add(u64::from(told["payload"] == "turn"), Ordering::Relaxed);
            }
            self.ring[which].kill();
            self.ring[which].wait(&mut child);
        }
    }

    /// Gives a writer's process the numbers from `first` on, a line each, until it ends.
    fn number(&self, which: usize, first: u64, mut lines: impl Write) {
        for number in first.. {
            let over = self.is_written.load(Ordering::Relaxed);
            if over || writeln!(lines, "{which} {number}").is_err() {
                break;
            }
            let pause = self.pause.load(Ordering::Relaxed);
            if pause > 0 {
                std::thread::sleep(Duration::from_micros(pause));
            }
        }
    }

    /// The life of a writer that knows no numbers of its own: what was not confirmed before it was killed, it
    /// publishes again.
    fn write_by_mqtt(&self) {
        let (which, port) = (BY_MQTT, self.at.mqtt.rsplit(':').next().expect("it has a port"));
        while !self.is_written.load(Ordering::Relaxed) {
            let first = self.seen.acknowledged[which].load(Ordering::Relaxed) + 1;
            let mut command = Command::new("stdbuf");
            command.args(["-oL", "mosquitto_pub", "-p", port, "-q", "1", "-t", "soak", "-l", "-d"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().expect("it was looked for");
            self.writers[which].started(&child);
            let (lines, said) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
            std::thread::scope(|scope| {
                scope.spawn(|| self.number(which, first, lines));
                // it confirms in order; after a new connection it would number anew
                let said = BufReader::new(said).lines().map_while(Result::ok);
                let mut connections = 0;
                for line in said {
                    connections += u32::from(line.contains("sending CONNECT"));
                    if connections > 1 {
                        break;
                    }
                    if line.contains("received PUBACK") {
                        self.seen.acknowledged[which].fetch_add(1, Ordering::Relaxed);
                    }
                }
                self.writers[which].kill(); // so that the other thread ends, too
            });
            self.writers[which].wait(&mut child);
            std::thread::sleep(Duration::from_millis(20)); // without a broker it ends at once
        }
    }

    /// A writer's life: publishes numbers, from the first one that was not acknowledged on, until it is
    /// killed.
    fn write(&self, which: usize) {
        let name = format!("w{which}");
        let durability = ["written", "synced"][which % 2];
        let socket = [&self.at.unix, &self.at.shared][which];
        while !self.is_written.load(Ordering::Relaxed) {
            let first = self.seen.acknowledged[which].load(Ordering::Relaxed) + 1;
            let number = first.to_string();
            let arguments = [
                "publish",
                "soak",
                "--writer",
                &name,
                "--number",
                &number,
                "--durability",
                durability,
                "--json",
                "--at",
                socket,
            ];
            let mut child = unisono(&arguments).stdin(Stdio::piped()).spawn().expect("unisono starts");
            self.writers[which].started(&child);
            let (lines, said) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
            std::thread::scope(|scope| {
                scope.spawn(|| self.number(which, first, lines));
                // a line that was cut off by a death was not heard
                let objects = BufReader::new(said).lines().map_while(Result::ok);
                for (at, line) in (first..).zip(objects) {
                    let Ok(told) = serde_json::from_str::<Value>(&line) else { break };
                    let outcome = told["outcome"].as_str().expect("a word");
                    assert!(outcome == durability || outcome == "duplicate", "{line}");
                    self.seen.acknowledged[which].store(at, Ordering::Relaxed);
                }
                self.writers[which].kill(); // so that the other thread ends, too
            });
            self.writers[which].wait(&mut child);
        }
    }

    /// A reader's life. With `exact` it goes on after what this test has taken note of, else after what the
    /// broker knows it has acknowledged.
    fn read(&self, exact: bool) {
        let socket = if exact { &self.at.shared } else { &self.at.tcp };
        let name = if exact { "exact" } else { "named" };
        let party = &self.readers[usize::from(exact)];
        while !self.is_over.load(Ordering::Relaxed) {
            let last = lock(&self.seen.exact).last().map_or(0, |(position, ..)| *position).to_string();
            let mut arguments = vec!["subscribe", "soak", "--resume", name, "--json", "--at", socket];
            if exact {
                arguments.extend(["--after", &last]);
            } else if lock(&self.seen.by_name).is_empty() {
                // a name that the broker does not know begins with the next event, not with the first
                arguments.extend(["--after", "0"]);
            }
            let mut child = unisono(&arguments).spawn().expect("unisono starts");
            party.started(&child);
            for line in BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok) {
                let Ok(event) = serde_json::from_str::<Value>(&line) else { break };
                assert!(event["notice"].is_null(), "nothing is lost: {line}");
                let payload = event["payload"].as_str().expect("a text");
                let (writer, number) = payload.split_once(' ').expect("two numbers");
                let (writer, number) = (writer.parse().expect("one"), number.parse().expect("one"));
                match exact {
                    true => {
                        let position = event["delivery"].as_u64().expect("a position");
                        lock(&self.seen.exact).push((position, writer, number));
                    }
                    false => drop(lock(&self.seen.by_name).insert((writer, number))),
                }
            }
            party.kill();
            party.wait(&mut child);
        }
    }

    fn statistics(&self) -> Option<LogStatistics> {
        Client::at(&self.at.unix.parse().ok()?).ok()?.statistics().ok()?.log
    }

    /// Takes note of the broker's memory.
    fn look(&self) {
        let Some(pid) = *lock(&self.broker.pid) else { return };
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
        let resident = status.ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("RssAnon:"))?.to_owned();
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        if let Some(resident) = resident {
            let mut memory = lock(&self.memory);
            let (least, most) = memory.unwrap_or((resident, resident));
            *memory = Some((least.min(resident), most.max(resident)));
        }
    }

    /// Kills one party after the other for that long; `before_each` is called before each kill.
    fn kill_for(&self, time: Duration, random: &mut Pcg64Mcg, parties: &[&Party], before_each: impl Fn()) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::thread::sleep(Duration::from_millis(random.random_range(100..1500)));
            before_each();
            parties[random.random_range(0..parties.len())].kill();
        }
    }
}

fn nothing_that_was_acknowledged_is_lost_while_every_party_is_killed_at_random() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let time = if is_long() { 600 } else { 10 };
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let [tcp, mqtt] = free_ports();
    let (tcp, mqtt) = (format!("tcp:{tcp}"), mqtt.to_string());
    let at = Addresses { unix: format!("unix:{}", path("bus")), shared: path("bus"), tcp, mqtt };
    let with_mqtt = require::program("mosquitto_pub", "apt-get install mosquitto-clients");
    if let Err(why) = &with_mqtt {
        eprintln!("without the MQTT client: {why:?}");
    }
    let seed = unisono_linux::clock::now().as_nanos();
    eprintln!("seed {seed}, {time} s");
    let soak = Soak {
        scratch: scratch.path(),
        at,
        is_over: AtomicBool::new(false),
        is_written: AtomicBool::new(false),
        broker: Party::default(),
        writers: Default::default(),
        readers: Default::default(),
        ring: Default::default(),
        seen: Seen::default(),
        memory: Mutex::new(None),
        pause: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let soak = &soak;
        scope.spawn(|| soak.serve());
        (0..BY_MQTT).for_each(|which| drop(scope.spawn(move || soak.write(which))));
        with_mqtt.iter().for_each(|()| drop(scope.spawn(move || soak.write_by_mqtt())));
        (0..2).for_each(|which| drop(scope.spawn(move || soak.by_ring(which))));
        [false, true].into_iter().for_each(|exact| drop(scope.spawn(move || soak.read(exact))));
        // how much is taken without pauses, once all are there
        let count = || soak.seen.acknowledged.iter().map(|last| last.load(Ordering::Relaxed)).sum::<u64>();
        while count() < 100 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let before = count();
        std::thread::sleep(Duration::from_secs(2));
        let rate = (count() - before) as f64 / 2.0;
        let pause = WRITERS as f64 / (rate.max(1.0) * LOAD);
        soak.pause.store((pause * 1e6) as u64, Ordering::Relaxed);
        eprintln!("{rate:.0} events/s without pauses");
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let third = Duration::from_secs(time) / 3;
        let programs: Vec<&Party> = soak.writers.iter().chain(&soak.readers).chain(&soak.ring).collect();
        let all = [&programs[..], &[&soak.broker]].concat();
        soak.kill_for(third, &mut random, &all, || ());
        // a broker that has just been started has not yet touched what it needs
        while soak.statistics().is_none_or(|log| log.consumers.len() < 2) {
            std::thread::sleep(Duration::from_millis(10));
        }
        soak.kill_for(third, &mut random, &programs, || soak.look());
        soak.kill_for(third, &mut random, &all, || ());
        soak.is_written.store(true, Ordering::Relaxed);
        soak.writers.iter().for_each(Party::kill);
        // what a reader acknowledged, it has written: its thread reads that to the end after its death
        let all_read = || {
            soak.statistics().is_some_and(|log| {
                ["named", "exact"].iter().all(|name| log.consumers.get(*name) == Some(&(log.next - 1)))
            })
        };
        while !all_read() {
            std::thread::sleep(Duration::from_millis(200));
        }
        soak.is_over.store(true, Ordering::Relaxed);
        soak.readers.iter().chain(&soak.ring).chain([&soak.broker]).for_each(Party::kill);
    });
    let exact = lock(&soak.seen.exact);
    let mut numbers: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    exact.iter().for_each(|(_, writer, number)| numbers.entry(*writer).or_default().push(*number));
    for which in 0..WRITERS {
        let acknowledged = soak.seen.acknowledged[which].load(Ordering::Relaxed);
        let mut got = numbers.remove(&which).unwrap_or_default();
        if which == BY_MQTT {
            // what was not confirmed came again, behind what had come
            let mut last = 0;
            got.retain(|number| {
                let is_new = *number > last;
                last = last.max(*number);
                is_new
            });
        }
        let expected: Vec<u64> = (1..=got.len() as u64).collect();
        assert!(got == expected, "writer {which}: each number once, in order");
        assert!(got.len() as u64 >= acknowledged, "{acknowledged} were acknowledged, {} came", got.len());
    }
    let by_ring = soak.seen.by_ring.load(Ordering::Relaxed);
    assert!(by_ring > 0, "nothing came through the ring");
    let by_name = lock(&soak.seen.by_name);
    let missed = exact.iter().find(|(_, writer, number)| !by_name.contains(&(*writer, *number)));
    assert_eq!(missed, None, "the reader that resumes by name has them all");
    let positions: Vec<u64> = exact.iter().map(|(position, ..)| *position).collect();
    assert!(positions.is_sorted() && positions.len() as u64 == positions[positions.len() - 1]);
    let (least, most) = lock(&soak.memory).expect("it was looked at");
    assert!(most - least <= FLAT, "the broker had {least} to {most} KiB");
    let starts = |party: &Party| party.starts.load(Ordering::Relaxed);
    eprintln!(
        "{} events, {by_ring} by ring; started: broker {} times, writers {:?}, readers {:?}, ring {:?}; memory \
         {least} to {most} KiB",
        positions.len(),
        starts(&soak.broker),
        soak.writers.each_ref().map(starts),
        soak.readers.each_ref().map(starts),
        soak.ring.each_ref().map(starts)
    );
    Ok(())
}

host_tests![needs Nothing;
    nothing_that_was_acknowledged_is_lost_while_every_party_is_killed_at_random within 900,
];
