//! Tests a router with thousands of subscribers from a table, with each backend.

use crate::queue_shared::{DEVICE, on_a_host, unisono};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::Duration;
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::processes::text;
use unisono_host_tests::{Skipped, TestOutcome, host_tests};

/// More than a list of comparisons may have.
const SUBSCRIBERS: u32 = 4200;
const DATAGRAMS: u64 = 10;
const POLICY: &str = "rate = \"1gbit\"\ndefault = \"rest\"\nsubscribers = \"subscribers.csv\"\n\
    [class.tower0]\nweight = 400\n[class.tower1]\nweight = 400\n\
    [class.names]\nmatch = [{ port = 53 }]\n";

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a58_0000 + number)
}

/// Returns the table; the first subscriber has this ceiling. The last one has a network.
fn table(ceiling: u32) -> String {
    let mut table = String::from("Name,Parent,Addresses,Rate,Ceiling\r\n");
    for number in 0..SUBSCRIBERS {
        let ceiling = if number == 0 { ceiling } else { 20 };
        let _ = write!(table, "s{number},tower{},\"{}\",0.1,{ceiling}\r\n", number % 2, address(number));
    }
    table + "school,tower1,\"10.89.0.0/24,2001:db8::/48\",0.1,30\r\n"
}

/// Returns the number of packets that a class has sent.
fn packets(class: &str) -> u64 {
    let output = unisono(&["queue", "metrics", "--dev", DEVICE]);
    assert!(output.status.success(), "{output:?}");
    let all = text(&output.stdout);
    let line = all.lines().find(|line| {
        line.starts_with("unisono_queue_class_packets_total") && line.contains(&format!("class=\"{class}\""))
    });
    let number = line.and_then(|line| line.rsplit_once(' ')).unwrap_or_else(|| panic!("no {class} in {all}"));
    number.1.parse().expect("a whole number")
}

fn send(to: &str) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    for _ in 0..DATAGRAMS {
        socket.send_to(b"hello", to).expect("the cable is up");
    }
}

fn apply(directory: &Path, backend: &str) -> TestOutcome {
    let policy = directory.join("policy.toml");
    let policy = policy.to_str().expect("a plain name");
    let applied = unisono(&["queue", "apply", policy, "--dev", DEVICE, "--backend", backend]);
    match applied.status.code() {
        Some(0) => Ok(()),
        Some(3) => Err(Skipped::because(text(&applied.stderr))),
        _ => panic!("{}", text(&applied.stderr)),
    }
}

fn each_gets_its_class(backend: &str) -> TestOutcome {
    let hosts: Hosts = on_a_host()?;
    let directory = tempfile::tempdir().expect("there is room");
    let write = |name: &str, content: &str| {
        std::fs::write(directory.path().join(name), content).expect("there is room");
    };
    ip(&["-n", hosts.name(0), "route", "add", "10.88.0.0/15", "via", "10.77.0.2"]).expect("root may");
    write("policy.toml", POLICY);
    write("subscribers.csv", &table(20));
    apply(directory.path(), backend)?;
    let check = |class: &str, to: &str| {
        let before = packets(class);
        send(to);
        // the interposed queue sends a moment later
        while packets(class) < before + DATAGRAMS {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(packets(class), before + DATAGRAMS, "{class}");
    };
    check("s0", &format!("{}:9", address(0)));
    check("s4199", &format!("{}:9", address(SUBSCRIBERS - 1)));
    check("school", "10.89.0.77:9");
    check("s4199", &format!("{}:9", address(SUBSCRIBERS - 1)));
    // the classes stand before the subscribers, and the first match in the file decides
    check("names", &format!("{}:53", address(7)));
    let before = packets("s4199");
    write("subscribers.csv", &table(40));
    apply(directory.path(), backend)?;
    assert_eq!(packets("s4199"), before, "a change of one leaves the others alone");
    check("s0", &format!("{}:9", address(0)));
    assert!(unisono(&["queue", "clear", "--dev", DEVICE]).status.success());
    Ok(())
}

fn the_kernels_place_finds_each_of_thousands_of_subscribers() -> TestOutcome {
    each_gets_its_class("kernel")
}

fn the_interposed_place_finds_each_of_thousands_of_subscribers() -> TestOutcome {
    each_gets_its_class("interposed")
}

host_tests![needs Queues;
    the_kernels_place_finds_each_of_thousands_of_subscribers,
    the_interposed_place_finds_each_of_thousands_of_subscribers,
];
