//! Helpers of tests with hosts whose brokers are joined.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use unisono_events_client::{
    Advertisement, Client, EventDraft, NoticeText, ReceivedEvent, Reception, SubscriptionSpec,
};
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::processes::Killed;
use unisono_host_tests::{Skipped, program, require};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Builds `unisono-join`, and returns its path.
fn join_program() -> Result<PathBuf, Skipped> {
    require::nightly("joined")?;
    let place = program::target().join("join");
    let built = program::cargo()
        .args(["build", "--quiet", "--locked", "--manifest-path", "crates/join/Cargo.toml"])
        .env("CARGO_TARGET_DIR", &place)
        .current_dir(program::workspace())
        .stdin(Stdio::null())
        .output();
    let built = built.expect("cargo starts because it runs this test");
    let said = String::from_utf8_lossy(&built.stderr);
    if said.contains("failed to download") || said.contains("failed to get") {
        return Err(Skipped::because(format!("the crates of zenoh cannot be had here: {}", said.trim())));
    }
    assert!(built.status.success(), "{said}");
    Ok(place.join("debug/unisono-join"))
}

/// Hosts with brokers that are joined.
pub(crate) struct Joined {
    pub(crate) hosts: Hosts,
    program: PathBuf,
    scratch: tempfile::TempDir,
}

impl Joined {
    pub(crate) fn new(hosts: Hosts) -> Result<Self, Skipped> {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        Ok(Self { hosts, program: join_program()?, scratch })
    }

    pub(crate) fn socket(&self, host: usize) -> PathBuf {
        self.scratch.path().join(format!("broker-{host}"))
    }

    fn start(mut command: Command) -> Killed {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Killed(command.spawn().expect("it starts"))
    }

    pub(crate) fn broker(&self, host: usize) -> Killed {
        let mut command = self.hosts.command(host, &program::unisono());
        command.args(["events", "serve", "--json", "--listen"]).arg(self.socket(host));
        Self::start(command)
    }

    pub(crate) fn join(&self, host: usize, arguments: &[&str]) -> Killed {
        self.join_called(&format!("host-{host}"), host, arguments)
    }

    pub(crate) fn join_called(&self, name: &str, host: usize, arguments: &[&str]) -> Killed {
        let mut command = self.hosts.command(host, &self.program);
        command
            // nobody else is in the network of these hosts
            .args(["--insecure", "--name", name, "--json", "--every", "1", "--at"])
            .arg(self.socket(host))
            .args(arguments);
        Self::start(command)
    }

    /// Writes the configuration file of a join process. `ENDS` and `ADDRESS` in the text are replaced by
    /// whether and where it listens or connects.
    pub(crate) fn file(&self, host: usize, text: &str, ends: &str, address: &str) -> String {
        let path = self.scratch.path().join(format!("join-{host}.toml"));
        let text = text.replace("ENDS", ends).replace("ADDRESS", address);
        std::fs::write(&path, text).expect("it is written");
        path.to_str().expect("plain").to_owned()
    }

    pub(crate) fn client(&self, host: usize) -> Client {
        let start = Instant::now();
        loop {
            match Client::connect_unix(&self.socket(host)) {
                Ok(client) => return client,
                Err(error) => assert!(start.elapsed() < MINUTE, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn reader(&self, host: usize, topics: &str) -> Client {
        let mut client = self.client(host);
        client
            .subscribe(&SubscriptionSpec { queue_events: 60_000, ..SubscriptionSpec::new(topics) })
            .expect("it fits");
        client
    }
}

/// The counters that a join process prints.
pub(crate) struct Counters(mpsc::Receiver<String>);

impl Counters {
    pub(crate) fn of(join: &mut Killed) -> Self {
        let lines = BufReader::new(join.0.stdout.take().expect("piped")).lines();
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // if the receiver is gone, lines are still read, so that the program does not block
                let _ = sender.send(line);
            }
        });
        Self(said)
    }

    /// Waits until `so` returns true for a class's counters, and returns these.
    pub(crate) fn until(&mut self, class: &str, mut so: impl FnMut(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let line = self.0.recv_timeout(MINUTE).expect("it runs");
            let all: Value = serde_json::from_str(&line).expect("an object");
            let counters = &all["classes"][class];
            if so(counters) {
                return counters.clone();
            }
            assert!(start.elapsed() < MINUTE, "never: {all}");
        }
    }

    /// Waits until the join counts this number of other hosts.
    pub(crate) fn hosts(&mut self, class: &str, count: usize) {
        self.until(class, |of| of["hosts"].as_array().is_some_and(|hosts| hosts.len() == count));
    }

    pub(crate) fn last(self) -> Value {
        let last = self.0.iter().last().expect("it says what it did");
        let all: Value = serde_json::from_str(&last).expect("an object");
        all["classes"].clone()
    }
}

/// Receives the next event or notice.
pub(crate) fn next(client: &mut Client) -> Result<ReceivedEvent, NoticeText> {
    match client.receive(Some(MINUTE)).expect("the broker is there") {
        Some(Reception::Event(event)) => Ok(event),
        Some(Reception::Notice { notice, .. }) => Err(notice),
        other => panic!("{other:?}"),
    }
}

/// Publishes an event every two milliseconds on a topic of a host, and counts them, while `meanwhile` runs.
pub(crate) fn stream<T>(
    joined: &Joined,
    host: usize,
    topic: &str,
    meanwhile: impl FnOnce(&AtomicU64) -> T,
) -> T {
    let (stop, published) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut client = joined.client(host);
    let outlet = client.advertise(&Advertisement::new(topic)).expect("a topic");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                client.publish(outlet, &EventDraft::new(b"x")).expect("the broker is there");
                published.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        // stops the publisher even if `meanwhile` panics
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        meanwhile(&published)
    })
}

/// Reads until there was a gap and 20 events have come after it. Asserts that all numbers ascend by one,
/// except for those in gaps. Returns the number of missing events.
pub(crate) fn reads_over_a_gap(reader: &mut Client, last: &mut u64) -> u64 {
    let (mut missing, mut after) = (0, 0);
    let start = Instant::now();
    while after < 20 {
        match next(reader) {
            Ok(event) => {
                assert_eq!(event.sequence, *last + 1, "each once, in order");
                *last = event.sequence;
                after += u64::from(missing > 0);
            }
            Err(NoticeText::Gap { first, last: end, lost, cause, .. }) => {
                assert_eq!((first, lost, cause.as_str()), (*last + 1, end - *last, "not-received"));
                *last = end;
                missing += lost;
            }
            Err(other) => panic!("{other:?}"),
        }
        assert!(start.elapsed() < MINUTE, "no gap: {last}");
    }
    missing
}

pub(crate) fn follow(reader: &mut Client, events: usize) -> u64 {
    let first = next(reader).expect("an event").sequence;
    for number in 1..events as u64 {
        assert_eq!(next(reader).expect("an event").sequence, first + number);
    }
    first + events as u64 - 1
}
