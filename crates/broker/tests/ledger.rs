//! The broker's memory for a client is at most its charge in the ledger: each request with the largest
//! arguments, again and again, by clients whose rule allows each 4 MiB. Each kind of request runs in a
//! process of its own, whose memory is measured.

mod common;

#[path = "common/requests.rs"]
mod requests;

use requests::{Asker, KINDS};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use unisono_broker::log::{EventLog, LogBounds};
use unisono_broker::{Broker, Limits, Permissions};
use unisono_events_client::Instant;
use unisono_fairqueue::{ClassSpec, Hierarchy};

/// Bytes that a client may use beyond its charge: one frame of the largest size (4.25 MiB) during parsing,
/// its answers, and memory that the allocator keeps.
const ALLOWANCE: u64 = 16 << 20;
/// The limit of one user; a rule allows each of its clients 4 MiB of that.
const OF_USER: u64 = 32 << 20;
/// The environment variable with the kind of request that a process measures.
const KIND: &str = "UNISONO_TEST_KIND";
const TEST: &str = "the_broker_grows_by_what_its_ledger_says_whatever_a_client_asks_for";

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has memory");
    let kibibytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kibibytes.expect("a number") << 10
}

/// Makes a broker with a log in this directory.
fn broker(log: &Path) -> Broker {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let rules = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\nmemory = 4194304";
    let rules = Permissions::parse(rules, &|_| None).expect("it is sound");
    let limits = Limits { memory: 2 * OF_USER, memory_of_user: OF_USER, ..Limits::default() };
    let log = EventLog::open(log, LogBounds::default()).expect("it is empty");
    let mut broker = Broker::new(tree.expect("it is sound"), limits).with_permissions(rules);
    broker.add_log(log, unisono_events_client::Duration::ZERO, Vec::new());
    broker.keep_again(Instant::from_nanos(1)).expect("it is read");
    broker
}

fn measure(kind: &str) {
    let (name, ask) = KINDS.into_iter().find(|(name, _)| *name == kind).expect("a kind of request");
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut broker = broker(directory.path());
    let before = resident();
    let mut asker = Asker::new(&mut broker);
    ask(&mut asker);
    let grown = resident().saturating_sub(before);
    let ledger = asker.ledger();
    assert!(ledger <= OF_USER, "{name}: {ledger} bytes by the ledger");
    assert!(grown <= ledger + ALLOWANCE, "{name}: {grown} bytes, and {ledger} by the ledger");
    let kept = asker.leave();
    assert_eq!(asker.ledger(), kept, "{name}: all comes back, but what topics keep and their names");
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn the_broker_grows_by_what_its_ledger_says_whatever_a_client_asks_for() {
    if let Ok(kind) = std::env::var(KIND) {
        return measure(&kind);
    }
    let tests = std::env::current_exe().expect("it runs");
    let kinds = Mutex::new(KINDS.into_iter());
    let measure_kinds = || {
        while let Some((kind, _)) = { kinds.lock().expect("no panic inside").next() } {
            let mut measured = Command::new(&tests);
            measured.args([TEST, "--exact", "--include-ignored", "--nocapture"]).env(KIND, kind);
            assert!(measured.status().expect("it starts").success(), "{kind}");
        }
    };
    thread::scope(|threads| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(measure_kinds);
        }
    });
}
