//! Tests matches by marks, code points, VLANs and MAC addresses with each backend, counted as a monitoring
//! program reads them; and the flows inside a class.

use std::net::UdpSocket;
use std::process::{Command, Output};
use std::time::Duration;
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::socket::{set_mark, set_type_of_service};

const DEVICE: &str = "cable";
const POLICY: &str = "rate = \"100mbit\"\ndefault = \"rest\"\n\
    [class.marked]\nmatch = [{ mark = 7, port = 9 }]\n\
    [class.voice]\nmatch = [{ dscp = \"ef\" }]\n\
    [class.vlan]\nmatch = [{ vlan = 5 }]\n\
    [class.neighbor]\nmatch = [{ mac = \"02:00:00:00:00:03\", port = 9 }]\n";
const DATAGRAMS: u64 = 10;

fn unisono(arguments: &[&str]) -> Output {
    Command::new(program::unisono()).args(arguments).output().expect("it starts")
}

fn apply(policy: &str, backend: &str) -> TestOutcome {
    let file = tempfile::NamedTempFile::new().expect("there is room");
    std::fs::write(&file, policy).expect("there is room");
    let path = file.path().to_str().expect("a plain name");
    let applied = unisono(&["queue", "apply", path, "--dev", DEVICE, "--backend", backend]);
    match applied.status.code() {
        Some(0) => Ok(()),
        Some(3) => Err(Skipped::because(String::from_utf8_lossy(&applied.stderr))),
        _ => panic!("{applied:?}"),
    }
}

/// Returns the number of packets that a class has sent, from the text that monitoring programs read.
fn packets(class: &str) -> u64 {
    let output = unisono(&["queue", "metrics", "--dev", DEVICE]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.ends_with("# EOF\n"), "{output:?}");
    let labels = format!("{{device=\"{DEVICE}\",direction=\"out\",class=\"{class}\",parent=\"\"}} ");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("unisono_queue_class_packets_total")?.strip_prefix(&labels));
    line.unwrap_or_else(|| panic!("{class} is not in {text}")).parse().expect("a whole number")
}

fn send(to: &str, mark: u32, field: u8) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    set_mark(&socket, mark).expect("root may");
    set_type_of_service(&socket, field).expect("it is IPv4");
    for _ in 0..DATAGRAMS {
        socket.send_to(b"hello", to).expect("the cable is up");
    }
}

fn found_by(backend: &str) -> TestOutcome {
    let hosts = Hosts::new()?;
    let near = NetworkNamespace::named(hosts.name(0)).expect("it was just made");
    near.enter().map_err(|error| Skipped::because(format!("no namespace can be entered: {error}")))?;
    apply(POLICY, backend)?;
    let on = |arguments: &[&str]| ip(&[&["-n", hosts.name(0)], arguments].concat());
    let vlan = on(&["link", "add", "link", DEVICE, "name", "five", "type", "vlan", "id", "5"]);
    if vlan.is_ok() {
        on(&["addr", "add", "10.78.0.1/24", "dev", "five"]).expect("root may");
        on(&["link", "set", "five", "up"]).expect("root may");
        on(&["neigh", "add", "10.78.0.2", "lladdr", "02:00:00:00:00:02", "dev", "five"]).expect("root may");
    }
    on(&["neigh", "add", "10.77.0.3", "lladdr", "02:00:00:00:00:03", "dev", DEVICE]).expect("root may");
    // packets that the host sends by itself (neighbor discovery, IPv6) belong to the default class
    for (class, to, mark, field, is_there) in [
        ("marked", "10.77.0.2:9", 7, 0, true),
        ("marked", "10.77.0.2:9", 7, 0xb8, true),
        ("voice", "10.77.0.2:9", 8, 0xb8, true),
        ("voice", "10.77.0.2:10", 7, 0xba, true),
        ("rest", "10.77.0.2:9", 0, 0, true),
        ("neighbor", "10.77.0.3:9", 0, 0, true),
        ("rest", "10.77.0.3:10", 0, 0, true),
        ("vlan", "10.78.0.2:9", 0, 0, vlan.is_ok()),
    ] {
        if !is_there {
            eprintln!("no VLAN devices here: {}", vlan.as_ref().expect_err("it is not there"));
            continue;
        }
        let before = packets(class);
        send(to, mark, field);
        // the interposed queue sends a moment later
        while packets(class) < before + DATAGRAMS {
            std::thread::sleep(Duration::from_millis(10));
        }
        if class != "rest" && class != "vlan" {
            assert_eq!(packets(class), before + DATAGRAMS, "{class} {to} {mark} {field:#x}");
        }
    }
    assert!(unisono(&["queue", "clear", "--dev", DEVICE]).status.success());
    Ok(())
}

fn the_kernels_place_finds_marks_code_points_and_vlans() -> TestOutcome {
    found_by("kernel")
}

fn the_interposed_place_finds_marks_code_points_and_vlans() -> TestOutcome {
    found_by("interposed")
}

fn a_flow_beside_a_bulk_one_in_its_class_does_not_wait_for_all_of_it() -> TestOutcome {
    for (flows, is_early) in [("fair", true), ("together", false)] {
        let hosts = Hosts::new()?;
        let far = NetworkNamespace::named(hosts.name(1)).expect("it was just made");
        far.enter().map_err(|error| Skipped::because(format!("no namespace can be entered: {error}")))?;
        let receiver = UdpSocket::bind("10.77.0.2:5001").expect("the address is ours");
        receiver.set_read_timeout(Some(Duration::from_secs(30))).expect("it is positive");
        let near = NetworkNamespace::named(hosts.name(0)).expect("it was just made");
        near.enter().expect("the other one could be entered");
        // 40 frames of 1.4 kB take nearly half a second, so all are waiting before the small one leaves
        apply(
            &format!("rate = \"1mbit\"\ndefault = \"a\"\n[class.a]\nflows = \"{flows}\"\n"),
            "interposed",
        )?;
        let [bulk, small] = [(); 2].map(|()| UdpSocket::bind("10.77.0.1:0").expect("a port is free"));
        const BULK: usize = 40;
        // from one processor, because packets that two processors send may be reordered
        let allowed = affinity::allowed(Tid::SELF).expect("own");
        let one = allowed.iter().next().map_or_else(CpuSet::empty, CpuSet::single);
        affinity::restrict_own(&one).expect("it is allowed");
        for _ in 0..BULK {
            bulk.send_to(&[0; 1400], "10.77.0.2:5001").expect("the cable is up");
        }
        small.send_to(b"ping", "10.77.0.2:5001").expect("the cable is up");
        affinity::restrict_own(&allowed).expect("it was allowed");
        let mut bytes = [0; 2048];
        let lengths = (0..=BULK).map(|_| receiver.recv(&mut bytes).expect("nothing is lost"));
        let place = lengths.collect::<Vec<_>>().iter().position(|length| *length == 4).expect("it has come");
        assert_eq!(place < BULK / 2, is_early, "{flows}: {place} of {BULK} before the small one");
        assert!(unisono(&["queue", "clear", "--dev", DEVICE]).status.success());
    }
    Ok(())
}

host_tests![needs OwnQueues;
    the_kernels_place_finds_marks_code_points_and_vlans,
    the_interposed_place_finds_marks_code_points_and_vlans,
    a_flow_beside_a_bulk_one_in_its_class_does_not_wait_for_all_of_it,
];
