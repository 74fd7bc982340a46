use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use unisono_fairqueue::{
    Backlog, DelayFigures, LinkFraming, Policy, Rate, ReceivingFigures, TrafficDirection,
};
use unisono_linux::programs::python_with;

/// Reads OpenMetrics from standard input; prints every sample as name, sorted labels, value. Fails on invalid
/// OpenMetrics.
const PARSER: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
for family in parse(sys.stdin.read()):
    for sample in family.samples:
        print(family.type, family.unit, sample.name, sorted(sample.labels.items()), sample.value, sep='|')
";

fn readings() -> Vec<Scrape> {
    let class = |name: &str, parent: Option<&str>, packets: u64| LiveClass {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        guarantee: 2.5e7,
        packets,
        bytes: packets * 1000,
        dropped: 3,
        backlog: Backlog { packets: 2, bytes: 2000 },
        queue: None,
        delay: Some(DelayFigures {
            min_ns: 1000,
            median_ns: 20_000,
            mean_ns: 30_000,
            p99_ns: 4_000_000,
            max_ns: 5_000_000_000,
        }),
        receiving: (name == "office").then_some(ReceivingFigures {
            ran_ns: 2_500_000_000,
            frames: 700,
            accepted: 650,
        }),
    };
    let live = Live {
        backend: "interposed".to_owned(),
        device: "eth0".to_owned(),
        direction: TrafficDirection::Out,
        at_ns: 7,
        rate: Rate::new(100_000_000).expect("above zero"),
        framing: LinkFraming::default(),
        classes: vec![class("office", None, 12), class(NASTY, Some("office"), u64::MAX / 2000)],
    };
    let text =
        "rate = \"1mbit\"\n[class.a]\nmatch = [{ cgroup = \"/a \\\"b\\\"\" }]\n[cpu]\na = 2.5\n[io]\na = 2\n";
    let Policy { cpu, io, .. } = Policy::parse(text).expect("it is sound");
    let counted = |shares: Option<unisono_fairqueue::GroupShares>, count: u64| {
        shares.into_iter().flat_map(|shares| shares.shares).map(|share| (share, Some(count))).collect()
    };
    let counters = Counters { received: 90, malformed: 1, ..Counters::default() };
    let answers = Scrape {
        side: LinkSide::out("eth0"),
        figures: Some((live, Some(counters))),
        processor_time: counted(cpu, 1_500_000_000),
        disk_bytes: counted(io, 4096),
    };
    let silent = Scrape {
        side: LinkSide::out("eth1"),
        figures: None,
        processor_time: Vec::new(),
        disk_bytes: Vec::new(),
    };
    vec![answers, silent]
}

/// A name of a class with all characters that have to be escaped.
const NASTY: &str = "a\\b \"c\"\nd,e={f}# EOF";

#[test]
fn another_program_reads_from_the_text_what_was_measured() {
    let Some(python) = python_with("prometheus_client.openmetrics.parser") else {
        eprintln!("skipped: no OpenMetrics parser here: apt-get install python3-prometheus-client");
        return;
    };
    let mut python = Command::new(python)
        .args(["-c", PARSER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was there just now");
    let text = openmetrics(readings());
    let mut input = python.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{text}");
    let read = String::from_utf8(output.stdout).expect("python writes UTF-8");
    let link = "('device', 'eth0'), ('direction', 'out')";
    let nasty = format!("[('class', 'a\\\\b \"c\"\\nd,e={{f}}# EOF'), {link}, ('parent', 'office')]");
    let office = format!("('class', 'office'), {link}");
    for line in [
        format!("gauge||unisono_queue_up|[{link}]|1.0"),
        "gauge||unisono_queue_up|[('device', 'eth1'), ('direction', 'out')]|0.0".to_owned(),
        format!("counter||unisono_queue_class_packets_total|[{office}, ('parent', '')]|12.0"),
        format!("counter|bytes|unisono_queue_class_sent_bytes_total|[{office}, ('parent', '')]|12000.0"),
        format!("gauge|bytes|unisono_queue_class_waiting_bytes|{nasty}|2000.0"),
        format!(
            "gauge|seconds|unisono_queue_class_delay_seconds|[{office}, ('figure', 'p99'), ('parent', '')]|0.004"
        ),
        format!("counter|seconds|unisono_queue_class_receiving_seconds_total|[{office}, ('parent', '')]|2.5"),
        format!("counter||unisono_queue_class_arrived_frames_total|[{office}, ('parent', '')]|700.0"),
        format!("counter||unisono_queue_class_accepted_frames_total|[{office}, ('parent', '')]|650.0"),
        format!("gauge|bits_per_second|unisono_queue_link_rate_bits_per_second|[{link}]|100000000.0"),
        format!("counter||unisono_queue_malformed_frames_total|[{link}]|1.0"),
        "counter|seconds|unisono_queue_cpu_seconds_total|[('cgroup', '/a \"b\"'), ('device', 'eth0')]|1.5"
            .to_owned(),
        "counter|bytes|unisono_queue_io_bytes_total|[('cgroup', '/a \"b\"'), ('device', 'eth0')]|4096.0"
            .to_owned(),
    ] {
        assert!(read.lines().any(|other| sample(other) == sample(&line)), "{line}\n{read}\n{text}");
    }
}

/// Splits a line into its names and its number, which is parsed because older versions of the parser print
/// whole numbers without `.0`.
fn sample(line: &str) -> Option<(&str, f64)> {
    let (names, number) = line.rsplit_once('|')?;
    Some((names, number.parse().ok()?))
}

#[test]
fn without_a_device_the_text_is_still_openmetrics() {
    assert_eq!(openmetrics(Vec::new()), "# EOF\n");
}

fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_client_that_says_nothing_holds_up_no_scrape() {
    let listener = ScrapeListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = listener.address().expect("it is bound").to_string();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope
            .spawn(|| serve_scrapes(&listener, || Ok("# EOF\n".to_owned()), || over.load(Ordering::Relaxed)));
        let silent = TcpStream::connect(&address).expect("somebody listens");
        let answer = ask(&address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"),
            "{answer}"
        );
        assert!(answer.ends_with("\r\n\r\n# EOF\n"), "{answer}");
        let index = ask(&address, "GET / HTTP/1.0\r\n\r\n");
        assert!(index.starts_with("HTTP/1.1 200 ") && index.contains("href=\"/metrics\""), "{index}");
        assert!(ask(&address, "GET /other HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
        let two = "GET /metrics HTTP/1.1\r\nHost: here\r\nhost: there\r\n\r\n";
        for wrong in [two, "GET /metrics HTTP/1.1\r\n\r\n"] {
            assert!(ask(&address, wrong).starts_with("HTTP/1.1 400 "), "RFC 9112, section 3.2");
        }
        assert!(ask(&address, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405 "));
        over.store(true, Ordering::Relaxed);
        drop(silent);
    });
}

#[test]
fn a_socket_that_a_killed_program_left_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("metrics");
    let place = path.to_str().expect("a plain name");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("there is room"));
    assert!(path.exists(), "it was left");
    let listener = ScrapeListener::bind(place).expect("nobody listens there");
    let refused = ScrapeListener::bind(place).expect_err("somebody listens there");
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
    drop(listener);
    assert!(!path.exists());
}

/// Serves `text` at a loopback address while `during` runs, which gets the address.
fn while_serving(text: &str, during: impl FnOnce(&str)) {
    let listener = ScrapeListener::bind("127.0.0.1:0").expect("loopback is there");
    let address = listener.address().expect("it is bound").to_string();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| serve_scrapes(&listener, || Ok(text.to_owned()), || over.load(Ordering::Relaxed)));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| during(&address)));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn clients_that_take_all_places_and_say_nothing_keep_nobody_out() {
    while_serving("# EOF\n", |address| {
        let silent: Vec<_> =
            (0..40).map(|_| TcpStream::connect(address).expect("somebody listens")).collect();
        for _ in 0..40 {
            let answer = ask(address, "GET /metrics HTTP/1.0\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
        // clients with an incomplete request keep no place, either
        for mut client in silent {
            // fails for a client that has lost its place
            let _ = client.write_all(b"GET /metrics HTTP/1.1\r\n");
        }
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
    });
}

#[test]
fn a_client_that_reads_a_little_now_and_then_is_given_up() {
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        while_serving(&"x".repeat(64 << 20), |address| {
            let mut slow = TcpStream::connect(address).expect("somebody listens");
            slow.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
            let mut some = vec![0; 64 << 10];
            assert!(slow.read(&mut some).expect("it answers") > 0);
            // reads often enough that no time limit of a single call would expire
            std::thread::spawn(move || {
                while slow.read(&mut some).is_ok_and(|count| count > 0) {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
            });
        });
        ended.send(()).expect("it waits");
    });
    let end = end.recv_timeout(std::time::Duration::from_secs(60));
    assert!(end.is_ok(), "the server waits for a client without an end");
}

#[test]
fn a_socket_lets_its_owner_in_and_nobody_else() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path().join("metrics");
    let _listener = ScrapeListener::bind(path.to_str().expect("a plain name")).expect("room");
    assert_eq!(path.metadata().expect("it is there").mode() & 0o777, 0o600);
}
