//! Tests `unisono events` with a log while processes of every role are killed at random, brokers take over
//! from each other, and rules are read again: no acknowledged event is lost, a reader that keeps its position
//! gets each event once, a message of QoS 2 comes once, and the broker's memory does not grow.
//!
//! The test takes ten seconds, or ten minutes in `cargo xtask nightly soak`; `UNISONO_SOAK_SECONDS` sets
//! another time. The parties are processes, and are killed without warning (SIGKILL): the broker; two writers
//! that number their events, one at a Unix socket and one in shared memory; an MQTT client that publishes
//! with QoS 1 and publishes again what was not confirmed; a reader that resumes by name, over TCP; a reader
//! that keeps its position itself, in shared memory; a supplier and a consumer with a ring between them,
//! whose events no log keeps. Beside them live three MQTT clients of `events_sessions.rs`, which connect
//! again: one publishes with QoS 2, and two receive in sessions, with QoS 1 and 2. In the middle third the
//! broker is not replaced, because a broker that lives only for seconds would hide a leak.

use crate::events_sessions::{MqttLink, read, write};
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use unisono_events_client::{Advertisement, Client, Durability, EventDraft, LogStatistics};
use unisono_host_tests::ports::free_ports;
use unisono_host_tests::{TestOutcome, host_tests, is_long, program, require};

/// The number of writers; the last one is the MQTT client.
const WRITERS: usize = 3;
const BY_MQTT: usize = WRITERS - 1;
/// The writer of the event after all others.
const MARKER: usize = WRITERS;
/// The rate at which the writers publish, as a part of their rate without pauses.
const LOAD: f64 = 0.8;
/// The most growth of the broker's memory, in kilobytes. The queues of two readers that are behind are far
/// smaller. In 200 s there are more than 300,000 events, so a leak of 30 bytes for each would exceed it.
const FLAT: u64 = 8 << 10;
/// The environment variable that sets the length of the test.
const SECONDS: &str = "UNISONO_SOAK_SECONDS";

/// What happens to the parties at random.
#[derive(Clone, Copy)]
enum Disturbance<'a> {
    Kill(&'a Party),
    /// Another broker takes over.
    HandOver,
    /// The broker reads its policy again, with other weights.
    Reload,
}

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
        // reaps the process only after its number is removed, so that no thread kills another process that
        // gets the same number
        while child.try_wait().expect("it is a child").is_none() && lock(&self.pid).is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        *lock(&self.pid) = None;
        child.wait().expect("it is a child");
    }

    fn kill(&self) {
        if let Some(pid) = *lock(&self.pid) {
            // the process may have ended, but it is reaped only after its number is removed under this lock
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn unisono(arguments: &[&str]) -> Command {
    let mut command = Command::new(program::unisono());
    command.arg("events").args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// What the test has observed.
#[derive(Default)]
struct Seen {
    /// The last number of each writer that was acknowledged to it.
    acknowledged: [AtomicU64; WRITERS],
    /// All numbers of each writer that the reader that resumes by name has received.
    by_name: Mutex<BTreeSet<(usize, u64)>>,
    /// Position, writer and number of each event that the reader that keeps its position has received, in the
    /// order of arrival.
    exact: Mutex<Vec<(u64, usize, u64)>>,
    /// The number of events that came through the ring.
    by_ring: AtomicU64,
}

/// Where the broker listens.
struct Addresses {
    unix: String,
    shared: String,
    tcp: String,
    /// The port for MQTT clients.
    mqtt: String,
}

struct Soak<'a> {
    scratch: &'a Path,
    at: Addresses,
    is_over: AtomicBool,
    /// Set when no more events are to be written; readers go on.
    is_written: AtomicBool,
    broker: Party,
    /// Set when another broker is to take over.
    hand_over_is_due: AtomicBool,
    hand_overs: AtomicU32,
    reloads: AtomicU32,
    writers: [Party; WRITERS],
    readers: [Party; 2],
    /// The supplier and the consumer of the ring.
    ring: [Party; 2],
    seen: Seen,
    /// The least and the most memory of the broker in kilobytes, without the pages of the program's file,
    /// because the number of those depends on what the broker has executed since its start.
    memory: Mutex<Option<(u64, u64)>>,
    /// The pause of a writer between two events, in microseconds; 0 for none.
    pause: AtomicU64,
}

impl Soak<'_> {
    fn start_broker(&self, more: &[&str]) -> Child {
        let path = |name: &str| self.scratch.join(name).display().to_string();
        let (log, policy) = (path("log"), path("policy"));
        let Addresses { shared, tcp, mqtt, .. } = &self.at;
        let keep = ["--log", &log, "--log-bytes", "1GiB", "--log-topics", "soak"];
        let listen = ["serve", &policy, "--listen", shared, "--listen", tcp, "--mqtt", mqtt];
        unisono(&[&listen[..], &keep, more].concat()).spawn().expect("unisono starts")
    }

    /// Keeps a broker running: the one that has taken over, or a new one.
    fn serve(&self) {
        let mut broker = self.start_broker(&[]);
        self.broker.started(&broker);
        loop {
            let mut successor: Option<Child> = None;
            while broker.try_wait().expect("it is a child").is_none() {
                if self.hand_over_is_due.swap(false, Ordering::Relaxed) && successor.is_none() {
                    successor = Some(self.start_broker(&["--take-over"]));
                }
                // its predecessor serves on
                if successor.as_mut().is_some_and(|one| one.try_wait().expect("it is a child").is_some()) {
                    successor = None;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            if self.is_over.load(Ordering::Relaxed) {
                if let Some(mut successor) = successor {
                    successor.kill().expect("it is a child");
                    successor.wait().expect("it is a child");
                }
                return;
            }
            self.hand_overs.fetch_add(u32::from(successor.is_some()), Ordering::Relaxed);
            broker = successor.unwrap_or_else(|| self.start_broker(&[]));
            self.broker.started(&broker);
        }
    }

    /// Writes a policy, in one step for a broker that reads it.
    fn write_policy(&self, weight: u32) {
        let (new, place) = (self.scratch.join("policy.new"), self.scratch.join("policy"));
        let text = format!(
            "rate = \"1gbit\"\ndefault = \"rest\"\n[class.rest]\nweight = {weight}\n[class.other]\nweight = 1\n"
        );
        std::fs::write(&new, text).expect("there is room");
        std::fs::rename(&new, &place).expect("it is ours");
    }

    fn reload(&self, weight: u32) {
        self.write_policy(weight);
        let mut reload = unisono(&["reload", "--at", &self.at.shared]);
        // there may be no broker, or one that ends before it answers
        let done = reload.stdin(Stdio::null()).stdout(Stdio::null()).status().expect("unisono starts");
        self.reloads.fetch_add(u32::from(done.success()), Ordering::Relaxed);
        assert_ne!(done.code(), Some(2), "the file is right");
    }

    /// Keeps one party of the ring running: starts it again whenever it ends.
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

    /// Writes the numbers from `first` on, a line each, to a writer's process until it ends.
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

    /// Keeps the MQTT writer running. The messages that were not confirmed before it was killed are published
    /// again.
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
                // confirmations come in order; after a reconnection the client would number its messages anew
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
                self.writers[which].kill(); // so that the thread that writes ends, too
            });
            self.writers[which].wait(&mut child);
            std::thread::sleep(Duration::from_millis(20)); // while there is no broker, it ends at once
        }
    }

    /// Keeps a writer running: after each start it publishes numbers from the first one on that was not
    /// acknowledged.
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
                // a line that a kill has cut off counts as not read
                let objects = BufReader::new(said).lines().map_while(Result::ok);
                for (at, line) in (first..).zip(objects) {
                    let Ok(told) = serde_json::from_str::<Value>(&line) else { break };
                    let outcome = told["outcome"].as_str().expect("a word");
                    if outcome == "refused" {
                        break; // this ends the command, and the next one publishes the event
                    }
                    assert!(outcome == durability || outcome == "duplicate", "{line}");
                    self.seen.acknowledged[which].store(at, Ordering::Relaxed);
                }
                self.writers[which].kill(); // so that the thread that writes ends, too
            });
            self.writers[which].wait(&mut child);
        }
    }

    /// Keeps a reader running. With `exact` it resumes after the last position that this test has recorded,
    /// otherwise after the last event whose acknowledgement the broker has recorded.
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
                // a reader whose name the broker does not know would begin with the next event, not with the
                // first
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

    /// Publishes an event after all others, so that readers that have it have all.
    fn publish_marker(&self) {
        let publish = || {
            let mut client = Client::at(&self.at.unix.parse().expect("an address")).ok()?;
            let written = Advertisement { durability: Durability::Written, ..Advertisement::new("soak") };
            let topic = client.advertise(&written).ok()?;
            client.try_publish(topic, &EventDraft::new(format!("{MARKER} 1").as_bytes())).ok()
        };
        while publish().is_none() {
            std::thread::sleep(Duration::from_millis(20)); // a broker starts
        }
    }

    fn statistics(&self) -> Option<LogStatistics> {
        Client::at(&self.at.unix.parse().ok()?).ok()?.statistics().ok()?.log
    }

    /// Records the broker's memory.
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

    /// Disturbs the parties at random, one after the other, for `time`. Calls `before_each` before each
    /// disturbance.
    fn disturb_for(
        &self,
        time: Duration,
        random: &mut Pcg64Mcg,
        disturbances: &[Disturbance<'_>],
        before_each: impl Fn(),
    ) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::thread::sleep(Duration::from_millis(random.random_range(100..1500)));
            before_each();
            match disturbances[random.random_range(0..disturbances.len())] {
                Disturbance::Kill(party) => party.kill(),
                Disturbance::HandOver => self.hand_over_is_due.store(true, Ordering::Relaxed),
                Disturbance::Reload => self.reload(random.random_range(1..9)),
            }
        }
    }
}

fn nothing_that_was_acknowledged_is_lost_while_parties_are_killed_and_replaced_at_random() -> TestOutcome {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    // the user that the broker becomes reads the policy again
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o711)).expect("it is ours");
    let usual = if is_long() { 600 } else { 10 };
    let time = std::env::var(SECONDS).map_or(usual, |set| set.parse().expect("a number of seconds"));
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
    let (messages, ends) = (AtomicU32::new(0), [(); 2].map(|()| AtomicBool::new(false)));
    let soak = Soak {
        scratch: scratch.path(),
        at,
        is_over: AtomicBool::new(false),
        is_written: AtomicBool::new(false),
        broker: Party::default(),
        hand_over_is_due: AtomicBool::new(false),
        hand_overs: AtomicU32::new(0),
        reloads: AtomicU32::new(0),
        writers: Default::default(),
        readers: Default::default(),
        ring: Default::default(),
        seen: Seen::default(),
        memory: Mutex::new(None),
        pause: AtomicU64::new(0),
    };
    soak.write_policy(1);
    let (one, two, messages) = std::thread::scope(|scope| {
        let soak = &soak;
        let (address, messages) = (&soak.at.mqtt, &messages);
        let [is_over, is_written] = &ends;
        scope.spawn(|| soak.serve());
        for (name, qos) in [("one", 1), ("two", 2)] {
            MqttLink::connect(address, name).0.subscribe(qos);
        }
        let session_writer = scope.spawn(move || write(address, messages, is_over));
        let sessions = [("one", 1), ("two", 2)]
            .map(|reader| scope.spawn(move || read(address, reader, messages, is_written)));
        (0..BY_MQTT).for_each(|which| drop(scope.spawn(move || soak.write(which))));
        with_mqtt.iter().for_each(|()| drop(scope.spawn(move || soak.write_by_mqtt())));
        (0..2).for_each(|which| drop(scope.spawn(move || soak.by_ring(which))));
        [false, true].into_iter().for_each(|exact| drop(scope.spawn(move || soak.read(exact))));
        // measures the rate without pauses, once all parties run
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
        let mut of_programs: Vec<_> = programs.into_iter().map(Disturbance::Kill).collect();
        of_programs.push(Disturbance::Reload);
        let all = [&of_programs[..], &[Disturbance::Kill(&soak.broker), Disturbance::HandOver]].concat();
        soak.disturb_for(third, &mut random, &all, || ());
        // a broker that was just started has not touched all its memory yet
        while soak.statistics().is_none_or(|log| log.consumers.len() < 2) {
            std::thread::sleep(Duration::from_millis(10));
        }
        soak.disturb_for(third, &mut random, &of_programs, || soak.look());
        soak.disturb_for(third, &mut random, &all, || ());
        // chance alone might leave one of them out of a short test
        while soak.hand_overs.load(Ordering::Relaxed) == 0 {
            soak.hand_over_is_due.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(1));
        }
        while soak.reloads.load(Ordering::Relaxed) == 0 {
            soak.reload(3);
        }
        is_over.store(true, Ordering::Relaxed);
        session_writer.join().expect("it writes");
        is_written.store(true, Ordering::Release);
        soak.is_written.store(true, Ordering::Relaxed);
        soak.writers.iter().for_each(Party::kill);
        soak.publish_marker();
        let all_read = || {
            lock(&soak.seen.exact).iter().any(|(_, writer, _)| *writer == MARKER)
                && lock(&soak.seen.by_name).contains(&(MARKER, 1))
        };
        while !all_read() {
            std::thread::sleep(Duration::from_millis(200));
        }
        let [one, two] = sessions.map(|reader| reader.join().expect("it reads"));
        soak.is_over.store(true, Ordering::Relaxed);
        soak.readers.iter().chain(&soak.ring).chain([&soak.broker]).for_each(Party::kill);
        (one, two, messages.load(Ordering::Relaxed))
    });
    assert!(
        messages > 10 && two == (0..messages).collect::<Vec<u32>>(),
        "of QoS 2 each of {messages} comes once"
    );
    let one: BTreeSet<u32> = one.into_iter().collect();
    assert_eq!(one, (0..messages).collect(), "of QoS 1 each comes");
    let exact = lock(&soak.seen.exact);
    let mut numbers: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    exact.iter().for_each(|(_, writer, number)| numbers.entry(*writer).or_default().push(*number));
    for which in 0..WRITERS {
        let acknowledged = soak.seen.acknowledged[which].load(Ordering::Relaxed);
        let mut got = numbers.remove(&which).unwrap_or_default();
        if which == BY_MQTT {
            // messages that were not confirmed were published again, so they may come a second time, after
            // later ones
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
    // an event of a killed writer may come after the marker, to one reader and not yet to the other
    let mut before_marker = exact.iter().take_while(|(_, writer, _)| *writer != MARKER);
    let missed = before_marker.find(|(_, writer, number)| !by_name.contains(&(*writer, *number)));
    assert_eq!(missed, None, "the reader that resumes by name has them all");
    let positions: Vec<u64> = exact.iter().map(|(position, ..)| *position).collect();
    assert!(positions.is_sorted_by(|one, next| one < next), "each event comes once");
    let (least, most) = lock(&soak.memory).expect("it was looked at");
    assert!(most - least <= FLAT, "the broker had {least} to {most} KiB");
    let starts = |party: &Party| party.starts.load(Ordering::Relaxed);
    eprintln!(
        "{} events, {by_ring} by ring, {messages} messages of QoS 2; {} hand-overs, {} reloads; started: broker {} times, \
         writers {:?}, readers {:?}, ring {:?}; memory \
         {least} to {most} KiB",
        positions.len(),
        soak.hand_overs.load(Ordering::Relaxed),
        soak.reloads.load(Ordering::Relaxed),
        starts(&soak.broker),
        soak.writers.each_ref().map(starts),
        soak.readers.each_ref().map(starts),
        soak.ring.each_ref().map(starts)
    );
    Ok(())
}

host_tests![needs Nothing;
    nothing_that_was_acknowledged_is_lost_while_parties_are_killed_and_replaced_at_random within 900,
];
