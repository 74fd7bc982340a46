//! Tests receiving by class: each class has kernel threads of its own, and nothing of them stays behind.

use crate::queue_shared::{DEVICE, applied, cleared, file, looks, name, on_a_host, queue_apply, unisono};
use serde_json::Value;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;
use unisono_enforce::journal::{Journal, LinkSide};
use unisono_fairqueue::TrafficDirection;
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::processes::words;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, one_in, program};
use unisono_linux::bpf::assembler::{Assembler, R0};
use unisono_linux::bpf::{LoadedProgram, ProcessorMap, Redirector};
use unisono_linux::ethtool::{self, Offload, On};
use unisono_linux::interface::Interface;
use unisono_linux::netlink::link::Index;
use unisono_linux::netlink::{NetlinkSocket, xdp};
use unisono_linux::network_namespace::NetworkNamespace;
use unisono_linux::scheduling::SchedulingPolicy;

/// 1.25 to the fifth is about 3, so rest's threads have a nice value of 5.
const POLICY: &str = "rate = \"1gbit\"\ndefault = \"rest\"\nreceive = \"by-class\"\n\
    receive_checksums = \"complete\"\n[class.gold]\nweight = 3\nmatch = [{ port = 5001 }]\n[class.rest]\n";
const PLAIN: &str = "rate = \"1gbit\"\ndefault = \"rest\"\n[class.gold]\nmatch = [{ port = 5001 }]\n";
const IN: [&str; 2] = ["--direction", "in"];
const PORTS: [u16; 2] = [5001, 5002];

/// Does as [`on_a_host`], with a cable whose far end finishes checksums.
fn on_a_receiver() -> Result<Hosts, Skipped> {
    let hosts = on_a_host()?;
    let set = at_the_sender(&hosts, || ethtool::set(cable(), Offload::SendChecksums, On::No));
    set.map_err(|error| Skipped::because(format!("checksums cannot be set: {error}")))?;
    Ok(hosts)
}

/// Calls `act` in the second host.
fn at_the_sender<T: Send + 'static>(hosts: &Hosts, act: impl FnOnce() -> T + Send + 'static) -> T {
    let far = NetworkNamespace::named(hosts.name(1)).expect("it is there");
    let there = thread::spawn(move || {
        far.enter().expect("root may");
        act()
    });
    there.join().expect("no panic")
}

fn cable() -> Index {
    Interface::find(DEVICE).expect("it is there").index
}

/// Returns the number of the XDP program of the cable.
fn attached() -> Option<u32> {
    let mut socket = NetlinkSocket::open().expect("the kernel answers");
    xdp::program_of(&mut socket, cable()).expect("the cable is there")
}

fn journal() -> Journal {
    let side = LinkSide { device: DEVICE.to_owned(), direction: TrafficDirection::In };
    Journal::for_side(&side).expect("proc is mounted")
}

/// Returns the maps of the classes, by the record of the policy in force.
fn maps() -> Vec<u32> {
    let record = journal().read::<Value>().expect("it can be read").expect("it holds");
    let classes = record.before["receiving"]["classes"].as_array().expect("it receives by class").clone();
    let map = |class: &Value| u32::try_from(class[1].as_u64().expect("a number")).expect("32 bits");
    classes.iter().map(map).collect()
}

/// Returns the nice values of the threads of a map.
fn nice_values(map: u32) -> Vec<i32> {
    let nice = |class| match class {
        SchedulingPolicy::Other { nice, .. } => nice,
        other => panic!("{other:?}"),
    };
    ProcessorMap::threads(&[map]).map(|(_, thread)| nice(thread.class().expect("it lives"))).collect()
}

fn show() -> Value {
    let output = unisono(&["queue", "show", "--dev", DEVICE, "--once", "--json", "--interval", "10ms"]);
    assert!(output.status.success(), "{}", words(&output));
    serde_json::from_slice(&output.stdout).expect("one object")
}

/// Lets the second host send datagrams to each socket, and reads all of them.
fn exchange(hosts: &Hosts, sockets: &[UdpSocket], count: usize) {
    at_the_sender(hosts, move || {
        let socket = UdpSocket::bind("10.77.0.2:0").expect("the address is ours");
        for port in PORTS.iter().cycle().take(count * PORTS.len()) {
            socket.send_to(&[7; 100], ("10.77.0.1", *port)).expect("the cable is up");
        }
    });
    let mut datagram = [0; 200];
    for socket in sockets {
        for _ in 0..count {
            assert_eq!(socket.recv(&mut datagram).expect("it is bound"), 100);
        }
    }
}

fn each_class_is_received_by_threads_of_its_own_until_the_policy_is_cleared() -> TestOutcome {
    let hosts = on_a_receiver()?;
    let before = looks();
    applied(&file(POLICY), &IN)?;
    let (first, maps) = (attached().expect("a program"), maps());
    for (map, wanted) in maps.iter().zip([0, 5]) {
        let values = nice_values(*map);
        assert!(!values.is_empty() && values.iter().all(|nice| *nice == wanted), "{values:?}");
    }
    let sockets = PORTS.map(|port| UdpSocket::bind(("10.77.0.1", port)).expect("the address is ours"));
    // the first packets wait for the neighbor's address; fewer than a queue holds follow at a time
    exchange(&hosts, &sockets, 1);
    exchange(&hosts, &sockets, 100);
    let shown = show();
    let of = |class: usize, key: &str| shown["classes"][class]["receiving"][key].as_u64().expect("a number");
    assert_eq!((of(0, "frames"), of(0, "accepted")), (101, 101), "{shown}");
    assert!(of(1, "frames") >= 101 && of(1, "accepted") >= 101, "{shown}");
    assert!(of(0, "ran_ns") > 0 && of(1, "ran_ns") > 0, "{shown}");
    let table = words(&unisono(&["queue", "show", "--dev", DEVICE, "--once", "--interval", "10ms"]));
    assert!(table.contains("receiving"), "{table}");
    let metrics = words(&unisono(&["queue", "metrics", "--dev", DEVICE]));
    assert!(
        metrics.contains("unisono_queue_class_accepted_frames_total{device=\"cable\""),
        "{metrics}"
    );

    // other terms, and another policy in its place
    let change = ["queue", "change", "gold", "--weight", "1", "--dev", DEVICE, "--direction", "in"];
    let changed = unisono(&change);
    assert!(changed.status.success(), "{}", words(&changed));
    assert!(nice_values(maps[1]).iter().all(|nice| *nice == 0), "both have equal weights");
    applied(&file(&POLICY.replace("5001", "5002")), &IN)?;
    assert!(attached().is_some_and(|second| second != first));
    exchange(&hosts, &sockets, 100);
    assert_eq!(show()["classes"][0]["receiving"]["accepted"], 100);
    applied(&file(PLAIN), &IN)?;
    assert_eq!((attached(), &show()["classes"][0]["receiving"]), (None, &Value::Null));
    applied(&file(POLICY), &IN)?;
    let last = self::maps();
    cleared(&["--dev", DEVICE]);
    assert_eq!((attached(), looks()), (None, before));
    // the kernel ends the threads of a program that is gone a moment later
    while ProcessorMap::threads(&[&maps[..], &last].concat()).next().is_some() {
        thread::yield_now();
    }
    Ok(())
}

fn an_apply_that_is_killed_anywhere_leaves_no_program() -> TestOutcome {
    let _hosts = on_a_receiver()?;
    let policy = file(POLICY);
    let before = looks();
    let begin = Instant::now();
    applied(&policy, &IN)?;
    let whole = begin.elapsed();
    cleared(&["--dev", DEVICE]);
    for held in [false, true] {
        for part in (0..40).step_by(one_in(4)) {
            if held {
                applied(&policy, &IN)?;
            }
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
            assert_eq!((attached(), looks()), (None, before.clone()), "killed after {part} of 40 parts");
            assert!(!journal().path().exists());
        }
    }
    Ok(())
}

fn the_program_of_somebody_else_is_refused_and_stays() -> TestOutcome {
    let _hosts = on_a_receiver()?;
    let before = looks();
    let mut code = Assembler::default();
    code.set(R0, 2).exit();
    let theirs = Redirector::load("theirs", &code.finish().expect("it is short"));
    let theirs = theirs.map_err(|error| Skipped::because(error.to_string()))?;
    let number = theirs.id().expect("it is there");
    let set = |request| NetlinkSocket::open().expect("the kernel answers").run(&[request]).expect("root may");
    set(xdp::attach(cable(), theirs.as_fd()));
    let refused = queue_apply(&file(POLICY), &IN);
    assert_eq!(refused.status.code(), Some(2), "{}", words(&refused));
    assert!(words(&refused).contains("cable has the XDP program \"theirs\""), "{}", words(&refused));
    assert_eq!((attached(), looks()), (Some(number), before.clone()));
    assert!(!journal().path().exists());

    // one that somebody attaches in place of ours
    set(xdp::detach(cable(), theirs.as_fd()));
    applied(&file(POLICY), &IN)?;
    let ours = LoadedProgram::by_id(attached().expect("a program"));
    let ours = ours.expect("root may").expect("it is there");
    set(xdp::replace(cable(), theirs.as_fd(), ours.as_fd()));
    drop(ours);
    let said = cleared(&["--dev", DEVICE]);
    assert!(said.contains("somebody else has replaced the XDP program of cable"), "{said}");
    assert_eq!((attached(), looks()), (Some(number), before));
    set(xdp::detach(cable(), theirs.as_fd()));
    Ok(())
}

fn what_cannot_be_received_by_class_is_refused_with_words() -> TestOutcome {
    let _hosts = on_a_host()?;
    let before = looks();
    let vlan = POLICY.replace("port = 5001", "vlan = 5");
    for (policy, options, why) in [
        (
            POLICY.replace("receive_checksums = \"complete\"\n", ""),
            &IN[..],
            "ethtool -K DEVICE tx off",
        ),
        (vlan, &IN[..], "a card may take the VLAN tag out of a frame"),
        (POLICY.to_owned(), &["--backend", "interposed"][..], "comes with --direction in"),
        (
            POLICY.replace("[class.gold]", "receive_processors = \"8191\"\n[class.gold]"),
            &IN[..],
            "processor 8191 is not online",
        ),
    ] {
        let refused = queue_apply(&file(&policy), options);
        assert!(!refused.status.success() && words(&refused).contains(why), "{why}: {}", words(&refused));
        assert_eq!((attached(), looks()), (None, before.clone()), "{why}");
    }
    // for packets that are sent the key does nothing, and the command says so
    let output = queue_apply(&file(POLICY), &[]);
    assert!(output.status.success(), "{}", words(&output));
    assert!(words(&output).contains("does nothing here"), "{}", words(&output));
    cleared(&["--dev", DEVICE]);
    Ok(())
}

host_tests![needs OwnQueues;
    each_class_is_received_by_threads_of_its_own_until_the_policy_is_cleared within 60,
    an_apply_that_is_killed_anywhere_leaves_no_program within 180,
    the_program_of_somebody_else_is_refused_and_stays,
    what_cannot_be_received_by_class_is_refused_with_words,
];
