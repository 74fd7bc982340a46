//! Tests classes in which hosts take turns: a host with one connection gets as much as a host with eight,
//! also if a router translates the addresses of both.

use crate::interposed_shared::{Flow, QueueUnderTest};
use crate::queue_shared::{file, looks, on_a_host, queue_apply};
use std::process::Stdio;
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::processes::text;
use unisono_host_tests::{TestOutcome, host_tests, require};

/// The addresses of two receivers. The first gets eight connections, the second gets one.
const RECEIVERS: [&str; 2] = ["10.77.0.102", "10.77.0.103"];
const CONNECTIONS: [u16; 2] = [8, 1];

fn policy(class: &str) -> String {
    let [one, other] = RECEIVERS;
    format!(
        "rate = \"40mbit\"\ndefault = \"rest\"\n[class.cell]\n{class}\n\
         match = [{{ address = \"{one}\" }}, {{ address = \"{other}\" }}]\n[class.rest]\n"
    )
}

/// Gives the second host the addresses of both receivers.
fn add_receivers(place: &QueueUnderTest) {
    for receiver in RECEIVERS {
        let address = format!("{receiver}/24");
        ip(&["-n", place.hosts.name(1), "addr", "add", &address, "dev", "cable"]).expect("it is free");
    }
}

/// Starts the connections to both receivers, from the host `sender`.
fn connections(place: &QueueUnderTest, sender: usize) -> [Vec<Flow>; 2] {
    [0, 1].map(|receiver| {
        let ports = 0..CONNECTIONS[receiver];
        ports.map(|port| place.flow_between(sender, 1, RECEIVERS[receiver], 5001 + port)).collect()
    })
}

/// Waits until the receivers have got bytes in the ratio `wanted` in two periods in a row. On a busy machine
/// a sender may pause for a moment, and its unused share is lost, so many periods are tried.
fn share(connections: &[Vec<Flow>; 2], wanted: impl Fn(f64) -> bool, what: &str) {
    let mut seen: Vec<f64> = Vec::new();
    for _ in 0..12 {
        let got = || connections.each_ref().map(|flows| flows.iter().map(Flow::got).sum::<u64>());
        let start = got();
        connections[1][0].wait_for(1_000_000);
        let [many, one] = [0, 1].map(|receiver| (got()[receiver] - start[receiver]) as f64);
        seen.push(many / one);
        if seen.len() > 1 && seen[seen.len() - 2..].iter().all(|ratio| wanted(*ratio)) {
            return;
        }
    }
    panic!("{what}: {seen:.2?}");
}

fn is_equal(ratio: f64) -> bool {
    (0.85..1.18).contains(&ratio)
}

fn a_host_with_one_connection_gets_as_much_as_one_with_eight() -> TestOutcome {
    // as a check of the test: by flows, the host with eight connections gets eight times as much
    let place = QueueUnderTest::new(&policy("fair = \"flow\""))?;
    add_receivers(&place);
    place.apply("tun")?;
    let connections = connections(&place, 0);
    share(&connections, |ratio| ratio > 5.0, "by flows");
    for fair in ["host", "receiver"] {
        place.set_policy(&policy(&format!("fair = \"{fair}\"")));
        place.apply("tun")?;
        share(&connections, is_equal, fair);
    }
    Ok(())
}

fn hosts_behind_a_translated_address_take_turns() -> TestOutcome {
    require::program("nft", "apt-get install nftables")?;
    let policy = "rate = \"40mbit\"\ndefault = \"rest\"\n[class.rest]\nfair = \"host\"\n";
    let place = QueueUnderTest::at_three(policy)?;
    add_receivers(&place);
    place.enter(0);
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("root may");
    require::path("/proc/thread-self/net/nf_conntrack", "a kernel with CONFIG_NF_CONNTRACK_PROCFS")?;
    let rules =
        "table ip unisono {\n chain out {\n  type nat hook postrouting priority 100\n  masquerade\n }\n}\n";
    let mut nft = place.hosts.command(0, "nft".as_ref());
    let nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().and_then(|mut child| {
        std::io::Write::write_all(&mut child.stdin.take().expect("it is piped"), rules.as_bytes())?;
        child.wait()
    });
    assert!(nft.expect("nft starts").success());
    // the third host stands for two hosts: it sends to each receiver from an address of its own
    let (third, router) = (place.hosts.name(2), Hosts::address_towards(0, 2));
    for (number, receiver) in (0..).zip(RECEIVERS) {
        let own = format!("10.77.1.{}", 200 + number);
        ip(&["-n", third, "addr", "add", &format!("{own}/24"), "dev", "to-a"]).expect("it is free");
        ip(&["-n", third, "route", "add", receiver, "via", &router, "src", &own]).expect("a neighbor");
    }
    place.apply("tun")?;
    let connections = connections(&place, 2);
    share(&connections, is_equal, "behind a router");
    Ok(())
}

fn the_kernel_refuses_turns_of_hosts_and_names_the_backend_that_has_them() -> TestOutcome {
    let _hosts = on_a_host()?;
    let before = looks();
    for fair in ["host", "receiver"] {
        let policy = file(&policy(&format!("fair = \"{fair}\"")));
        for options in [&["--backend", "kernel"][..], &["--direction", "in"]] {
            let output = queue_apply(&policy, options);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            let why = "class `cell`: hosts take turns (`fair`) with --backend interposed only";
            assert!(said.contains(why), "{said}");
            assert_eq!(looks(), before);
        }
    }
    Ok(())
}

host_tests![needs OwnQueues;
    the_kernel_refuses_turns_of_hosts_and_names_the_backend_that_has_them within 60,
    a_host_with_one_connection_gets_as_much_as_one_with_eight within 180,
    hosts_behind_a_translated_address_take_turns within 180,
];
