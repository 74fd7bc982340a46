//! Tests which event `unisono events serve POLICY` sends first, to a consumer process that is stopped
//! meanwhile.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;
use unisono_events_client::{Advertisement, BrokerAddress, Client, EventDraft};
use unisono_host_tests::ports::free_ports;
use unisono_host_tests::processes::{Killed, send, until};
use unisono_host_tests::{TestOutcome, host_tests, program};
use unisono_linux::process::Signal;

const POLICY: &str =
    "rate = \"1gbit\"\ndefault = \"rest\"\n[class.control]\nweight = 3\n[class.rest]\nweight = 1\n";
const HOUR: Duration = Duration::from_secs(3600);

fn start(arguments: &[&str]) -> Killed {
    let mut command = Command::new(program::unisono());
    command.arg("events").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    Killed(command.spawn().expect("unisono starts"))
}

fn connect(address: &BrokerAddress) -> Client {
    let mut client = None;
    until("the broker listens", || {
        client = Client::at(address).ok();
        client.is_some()
    });
    client.expect("it was waited for")
}

fn publish(client: &mut Client, topic: &str, count: u32, due: Duration) {
    let topic = client.advertise(&Advertisement::new(topic)).expect("a topic");
    let payload = vec![b'x'; 10_000];
    for _ in 0..count {
        client.publish(topic, &EventDraft::new(&payload).due_in(due)).expect("the broker is there");
    }
    client.statistics().expect("all of it has come");
}

/// Returns topic and number of the next event that a consumer prints.
fn event(lines: &mut impl Iterator<Item = String>) -> (String, u64) {
    loop {
        let told: Value = serde_json::from_str(&lines.next().expect("it goes on")).expect("an object");
        if let (Some(topic), Some(sequence)) = (told["topic"].as_str(), told["sequence"].as_u64())
            && told["notice"].is_null()
        {
            return (topic.to_owned(), sequence);
        }
    }
}

fn a_consumer_that_was_stopped_gets_first_what_is_due_first() -> TestOutcome {
    const BEFORE: u32 = 300;
    const LATE: u32 = 900;
    const SOON: u32 = 9;
    /// Events that have left for the consumer already cannot be overtaken: some hundred KB in a socket, or a
    /// ring of 256 events in shared memory.
    const IN_SOCKET: usize = 100;
    const IN_RING: usize = 256;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (socket, policy) = (scratch.path().join("bus"), scratch.path().join("classes.toml"));
    std::fs::write(&policy, POLICY).expect("room for a policy");
    let (shared, policy) = (socket.to_str().expect("plain"), policy.to_str().expect("plain"));
    let [tcp] = free_ports().map(|port| format!("tcp:{port}"));
    let unix = format!("unix:{shared}");
    let _broker = start(&["serve", policy, "--listen", shared, "--listen", &tcp]);
    for (at, most) in [(&*unix, IN_SOCKET), (&tcp, IN_SOCKET), (shared, IN_RING)] {
        let mut supplier = connect(&BrokerAddress::Unix(socket.clone()));
        let count = (BEFORE + LATE + SOON).to_string();
        let subscribe = ["subscribe", "#", "--class", "control", "--queue", "2000", "--queue-bytes", "64MiB"];
        let mut stopped = start(&[&subscribe[..], &["--count", &count, "--json", "--at", at]].concat());
        until("it subscribes", || supplier.statistics().expect("an answer").consumers.len() == 1);
        let lines = BufReader::new(stopped.0.stdout.take().expect("piped")).lines();
        let mut lines = lines.map(|line| line.expect("text"));
        // only a few, because the kernel enlarges the socket buffer of a consumer that reads fast
        publish(&mut supplier, "before", BEFORE, HOUR);
        for _ in 0..BEFORE {
            assert_eq!(event(&mut lines).0, "before");
        }
        let pid = i32::try_from(stopped.0.id()).expect("a process id");
        send(pid, Signal::Stop);
        publish(&mut supplier, "late", LATE, HOUR);
        publish(&mut supplier, "soon", SOON, HOUR / 2);
        send(pid, Signal::Continue);
        let came: Vec<(String, u64)> = (0..LATE + SOON).map(|_| event(&mut lines)).collect();
        for (topic, count) in [("late", LATE), ("soon", SOON)] {
            let of = came.iter().filter(|(its, _)| its == topic).map(|(_, number)| *number);
            assert!(of.eq(1..=u64::from(count)), "{topic}: each once, in order");
        }
        let first = came.iter().position(|(topic, _)| topic == "soon").expect("they came");
        assert!(came[first..first + SOON as usize].iter().all(|(topic, _)| topic == "soon"), "together");
        assert!(first <= most, "{at}: {first} of {LATE} that are due later came before");
        assert!(stopped.0.wait().expect("our child").success());
        until("it is gone", || supplier.statistics().expect("an answer").consumers.is_empty());
    }
    Ok(())
}

host_tests![needs Machine;
    a_consumer_that_was_stopped_gets_first_what_is_due_first within 120,
];
