//! Tests policies for packets that a device receives: they are enforced and do not change the other
//! direction. After a kill, a renaming or a removal, the next command leaves nothing behind.

use crate::queue_shared::{
    DEVICE, THREE, applied, cleared, file, looks, name, on_a_host, queue_apply, unisono, wait_until_it_looks,
};
use serde_json::Value;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use unisono_enforce::journal::{Journal, LinkSide};
use unisono_enforce::kernel::Kernel;
use unisono_enforce::{Error, switch};
use unisono_fairqueue::{Policy, TrafficDirection};
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::processes::words;
use unisono_host_tests::{TestOutcome, host_tests, one_in, program, require};
use unisono_linux::network_namespace::NetworkNamespace;

const CEILINGS: &str = "rate = \"10mbit\"\ndefault = \"rest\"\n\
    [class.gold]\nceiling = \"2mbit\"\nmatch = [{ port = 5001 }]\n\
    [class.silver]\nceiling = \"1mbit\"\nmatch = [{ port = 5002 }]\n\
    [class.rest]\n";

const IN: [&str; 2] = ["--direction", "in"];

fn refused(arguments: &[&str], why: &str) {
    let output = unisono(arguments);
    assert_eq!(output.status.code(), Some(2), "{}", words(&output));
    assert!(words(&output).contains(why), "{}", words(&output));
}

fn journal(direction: TrafficDirection) -> Journal {
    Journal::for_side(&LinkSide { device: DEVICE.to_owned(), direction }).expect("proc is mounted")
}

fn show(options: &[&str]) -> Value {
    let interval: &[&str] = if options.contains(&"--interval") { &[] } else { &["--interval", "10ms"] };
    let output = unisono(&[&["queue", "show", "--once", "--json"], interval, options].concat());
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(
        crate::schema::formats_of(&String::from_utf8_lossy(&output.stdout)),
        ["unisono-queue-show-1"]
    );
    serde_json::from_slice(&output.stdout).expect("one object")
}

/// Lets the second host flood these ports of the first host until `is_over` returns true.
fn flood(
    hosts: &Hosts,
    ports: &[u16],
    is_over: impl Fn() -> bool + Send + 'static,
) -> thread::JoinHandle<()> {
    let far = NetworkNamespace::named(hosts.name(1)).expect("it is there");
    let ports = ports.to_vec();
    thread::spawn(move || {
        far.enter().expect("root may");
        let socket = UdpSocket::bind("10.77.0.2:0").expect("the address is ours");
        while !is_over() {
            for port in ports.iter().cycle().take(20) {
                // a full queue blocks the sender: between namespaces of one kernel, waiting packets still
                // count for their socket
                let _ = socket.send_to(&[7; 1400], ("10.77.0.1", *port));
            }
            // far more than both classes may have, but not too much for a busy host
            thread::sleep(Duration::from_millis(1));
        }
    })
}

/// Returns the bits a second that the first host receives at each port while the second host floods all of
/// them.
fn received(hosts: &Hosts, ports: &[u16]) -> Vec<f64> {
    let sockets: Vec<UdpSocket> = ports
        .iter()
        .map(|port| UdpSocket::bind(("10.77.0.1", *port)).expect("the address is ours"))
        .collect();
    for socket in &sockets {
        socket.set_nonblocking(true).expect("it is ours");
    }
    let until = Instant::now() + Duration::from_secs(3);
    let flood = flood(hosts, ports, move || Instant::now() >= until);
    // the first second does not count, because the queues let a burst through at the beginning
    let begin = Instant::now() + Duration::from_secs(1);
    let (mut bytes, mut packet) = (vec![0_usize; sockets.len()], [0; 2000]);
    while Instant::now() < until {
        for (socket, bytes) in sockets.iter().zip(&mut bytes) {
            while let Ok(length) = socket.recv(&mut packet) {
                // with the headers, because ceilings count them
                *bytes += if Instant::now() < begin { 0 } else { length + 42 };
            }
        }
        thread::sleep(Duration::from_micros(500));
    }
    flood.join().expect("no panic");
    let seconds = (until - begin).as_secs_f64();
    bytes.into_iter().map(|bytes| bytes as f64 * 8.0 / seconds).collect()
}

fn what_is_received_keeps_to_the_ceilings_and_is_as_before_after_clear() -> TestOutcome {
    let hosts = on_a_host()?;
    let before = looks();
    applied(&file(CEILINGS), &IN)?;
    let [gold, silver] = received(&hosts, &[5001, 5002])[..] else { panic!("two ports") };
    // the lower bounds are low, for a busy machine
    assert!((0.8e6..2.1e6).contains(&gold) && (0.4e6..1.05e6).contains(&silver), "{gold} {silver}");
    let shown = show(&["--dev", DEVICE]);
    assert_eq!((&shown["device"], &shown["direction"]), (&DEVICE.into(), &"in".into()));
    assert!(shown["classes"][0]["packets"].as_u64() > Some(100), "{shown}");
    let metrics = words(&unisono(&["queue", "metrics", "--dev", DEVICE]));
    assert!(metrics.contains("direction=\"in\",class=\"gold\""), "{metrics}");
    assert!(cleared(&["--dev", DEVICE]).contains("cable (in): as before the policy"));
    assert_eq!(looks(), before);
    assert!(!journal(TrafficDirection::In).path().exists());
    Ok(())
}

fn a_policy_for_the_direction_that_carries_nothing_is_told_where_the_traffic_is() -> TestOutcome {
    let hosts = on_a_host()?;
    applied(&file(THREE), &[])?;
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = is_over.clone();
    let sender = flood(&hosts, &[5001], move || ends.load(Ordering::Relaxed));
    let shown = unisono(&["queue", "show", "--once", "--interval", "1s"]);
    let json = show(&["--dev", DEVICE, "--interval", "1s"]);
    let waited = queue_apply(&file(THREE), &["--watch"]);
    is_over.store(true, Ordering::Relaxed);
    sender.join().expect("no panic");
    for said in [words(&shown), words(&waited)] {
        assert!(said.contains("most traffic of cable is not seen"), "{said}");
        assert!(said.contains("unisono queue apply POLICY --dev cable --direction in"), "{said}");
    }
    assert_eq!(json["passage"]["unseen"]["direction"], "in", "{json}");
    Ok(())
}

fn both_directions_of_a_device_have_policies_that_know_nothing_of_each_other() -> TestOutcome {
    let _hosts = on_a_host()?;
    require::path("/dev/net/tun", "load the module `tun`")?;
    let before = looks();
    let (incoming, outgoing) = (file(CEILINGS), file(THREE));
    let out: [&[&str]; 2] = [&[], &["--backend", "interposed"]];
    for options in out {
        let apply_out = || applied(&outgoing, options);
        for in_goes_first in [true, false] {
            for in_comes_first in [true, false] {
                if in_comes_first {
                    applied(&incoming, &IN)?;
                    apply_out()?;
                } else {
                    apply_out()?;
                    applied(&incoming, &IN)?;
                }
                applied(&incoming, &IN)?; // once more, over the same policy
                let classes = |direction| {
                    show(&["--dev", DEVICE, "--direction", direction])["classes"][1]["guarantee"].clone()
                };
                assert_ne!(classes("in"), classes("out"));
                let [first, then] = if in_goes_first { ["in", "out"] } else { ["out", "in"] };
                cleared(&["--dev", DEVICE, "--direction", first]);
                assert_eq!(show(&[])["direction"], then);
                cleared(&["--dev", DEVICE, "--direction", then]);
                wait_until_it_looks(&before); // the queue's own device is removed a moment later
            }
        }
    }
    applied(&incoming, &IN)?;
    applied(&outgoing, &[])?;
    let said = cleared(&[]);
    assert!(said.contains("cable, cable (in): as before"), "{said}");
    assert_eq!(looks(), before);
    Ok(())
}

fn one_policy_for_both_directions_is_in_force_in_both_or_in_neither() -> TestOutcome {
    let _hosts = on_a_host()?;
    let before = looks();
    let held = |direction| {
        let record = journal(direction).read::<Value>().expect("it can be read");
        record.map(|record| record.policy)
    };
    let both = || TrafficDirection::ALL.map(|(direction, ..)| held(direction));
    let first = file(CEILINGS);
    applied(&first, &["--direction", "both"])?;
    assert_eq!(both(), [Some(CEILINGS.to_owned()), Some(CEILINGS.to_owned())]);
    let shown = unisono(&["queue", "show", "--dev", DEVICE, "--direction", "both", "--once", "--json"]);
    assert_eq!(String::from_utf8_lossy(&shown.stdout).lines().count(), 2, "{}", words(&shown));
    let told = cleared(&["--dev", DEVICE, "--direction", "both"]);
    assert!(told.contains("cable, cable (in): as before the policy"), "{told}");
    assert_eq!((looks(), both()), (before.clone(), [None, None]));

    // the second direction fails when the first one has the policy already
    let three = Policy::parse(THREE).expect("it is sound");
    for earlier in [None, Some(CEILINGS)] {
        if earlier.is_some() {
            applied(&first, &IN)?;
        }
        let mut outgoing = Kernel::new(DEVICE).with_interrupt_check(|| Some("a test".to_owned()));
        let mut incoming =
            Kernel::at(LinkSide { device: DEVICE.to_owned(), direction: TrafficDirection::In });
        let mut notes = Vec::new();
        let done = switch::apply_to_both(
            &mut outgoing,
            &mut incoming,
            &three,
            |_| unreachable!("no queue was interposed"),
            &mut notes,
        );
        assert!(matches!(done, Err(Error::Stopped { .. })), "{done:?} {notes:?}");
        assert_eq!(both(), [None, earlier.map(str::to_owned)]);
        cleared(&[]);
        assert_eq!(looks(), before);
    }
    let with_mark = file("rate = \"1mbit\"\n[class.a]\nmatch = [{ mark = 1 }]\n");
    let output = queue_apply(&with_mark, &["--direction", "both"]);
    assert!(!output.status.success() && both() == [None, None], "{}", words(&output));
    assert_eq!(looks(), before);
    Ok(())
}

fn an_apply_that_is_killed_anywhere_leaves_nothing_once_clear_has_answered() -> TestOutcome {
    let _hosts = on_a_host()?;
    let policy = file(CEILINGS);
    let before = looks();
    let begin = Instant::now();
    applied(&policy, &IN)?;
    let whole = begin.elapsed();
    cleared(&["--dev", DEVICE]);
    for part in (0..40).step_by(one_in(4)) {
        let mut command = Command::new(program::unisono())
            .args(["queue", "apply", name(&policy), "--dev", DEVICE, "--direction", "in"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        thread::sleep(whole * part / 40);
        command.kill().expect("it is ours");
        command.wait().expect("it is ours");
        cleared(&[]);
        assert_eq!(looks(), before, "killed after {part} fortieths of {whole:?}");
        assert!(!journal(TrafficDirection::In).path().exists());
    }
    Ok(())
}

fn a_policy_of_incoming_packets_follows_its_device_and_goes_with_it() -> TestOutcome {
    let hosts = on_a_host()?;
    let policy = file(CEILINGS);
    let before = looks();
    let on_host = |words: &[&str]| ip(&[&["-n", hosts.name(0)], words].concat()).expect("it can");
    let rename = |from: &str, to: &str| {
        on_host(&["link", "set", from, "down"]);
        on_host(&["link", "set", from, "name", to]);
        on_host(&["link", "set", to, "up"]);
    };
    for by in [DEVICE, "renamed"] {
        applied(&policy, &IN)?;
        rename(DEVICE, "renamed");
        assert_eq!(show(&["--dev", by])["device"], "renamed");
        assert!(cleared(&["--dev", by]).contains("renamed (in): as before"));
        rename("renamed", DEVICE);
        wait_until_it_looks(&before); // the cable comes up again
    }
    // another program removes the IFB
    applied(&policy, &IN)?;
    let index = journal(TrafficDirection::In).read::<Value>().expect("sound").expect("it holds").index;
    on_host(&["link", "del", &format!("ifb-u{index}")]);
    let shown = unisono(&["queue", "show", "--dev", DEVICE, "--once"]);
    assert!(words(&shown).contains("somebody else has removed ifb-u"), "{}", words(&shown));
    assert_eq!(looks(), before, "packets come in again");
    // the device itself is removed
    applied(&policy, &IN)?;
    on_host(&["link", "del", DEVICE]);
    assert!(cleared(&[]).contains("cable (in): as before"));
    let left = looks();
    assert!(!left.contains("ifb-u") && !left.contains("htb"), "{left}");
    Ok(())
}

fn what_others_have_where_packets_come_in_is_refused_with_words_and_stays() -> TestOutcome {
    let hosts = on_a_host()?;
    let policy = file(CEILINGS);
    applied(&policy, &IN)?;
    let index = journal(TrafficDirection::In).read::<Value>().expect("sound").expect("it holds").index;
    cleared(&[]);
    let apply = ["queue", "apply", name(&policy), "--dev", DEVICE, "--direction", "in"];
    let name = format!("ifb-u{index}");
    ip(&["-n", hosts.name(0), "link", "add", &name, "type", "ifb"]).expect("root may");
    let theirs = looks();
    refused(&apply, &format!("ip link del {name}"));
    assert_eq!(looks(), theirs);
    ip(&["-n", hosts.name(0), "link", "del", &name]).expect("it is there");
    for elsewhere in [&["--backend", "interposed"][..], &["--kernel-queue", "bpf"]] {
        refused(
            &[&apply[..], elsewhere].concat(),
            "works only with --backend kernel and --kernel-queue htb",
        );
    }
    let groups = file("rate = \"1mbit\"\n[class.a]\nmatch = [{ cgroup = \"/a\" }]\n");
    let arguments =
        ["queue", "apply", crate::queue_shared::name(&groups), "--dev", DEVICE, "--direction", "in"];
    refused(&arguments, ":3:10: a packet that comes in has no control group");
    assert!(!journal(TrafficDirection::In).path().exists());
    Ok(())
}

host_tests![needs OwnQueues;
    what_is_received_keeps_to_the_ceilings_and_is_as_before_after_clear,
    a_policy_for_the_direction_that_carries_nothing_is_told_where_the_traffic_is within 60,
    both_directions_of_a_device_have_policies_that_know_nothing_of_each_other within 120,
    one_policy_for_both_directions_is_in_force_in_both_or_in_neither within 60,
    an_apply_that_is_killed_anywhere_leaves_nothing_once_clear_has_answered within 120,
    a_policy_of_incoming_packets_follows_its_device_and_goes_with_it,
    what_others_have_where_packets_come_in_is_refused_with_words_and_stays,
];
