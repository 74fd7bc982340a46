//! Tests a queue between unmodified programs and a device: it enforces a policy, distinguishes senders, and
//! is removed without a trace. If it dies, the traffic continues.

use crate::interposed_shared::{DEVICE, Flow, POLICY, QueueUnderTest, WAYS, kill};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::{Skipped, TestOutcome, groups, host_tests, program};
use unisono_linux::ethtool::{self, Offload, On};
use unisono_linux::interface::Interface;
use unisono_linux::packet::PacketSocket;
use unisono_linux::process_stat::is_gone;
use unisono_linux::socket::set_priority;

fn filters_that_others_have_put_beside_ours_outlive_a_policy() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    let before = place.looks();
    let tc = |words: &str, last: &[&str]| {
        let near = place.hosts.name(0);
        let all =
            ["netns", "exec", near, "tc"].into_iter().chain(words.split(' ')).chain(last.iter().copied());
        let output = Command::new("ip").args(all).output().expect("ip starts");
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for side in ["ingress", "egress"] {
        place.apply("tun")?;
        // a classic BPF filter that matches no packet
        tc(&format!("filter add dev {DEVICE} {side} bpf bytecode"), &["1,6 0 0 0", "classid", "1:1"]);
        assert!(place.queue(&["clear"]).status.success());
        let left = tc(&format!("filter show dev {DEVICE} {side}"), &[]);
        assert!(left.contains("bytecode") && !left.contains("unisono"), "{side}: {left}");
        tc(&format!("qdisc del dev {DEVICE} clsact"), &[]);
        assert_eq!(place.looks(), before, "{side}");
    }
    Ok(())
}

/// Asserts that two flows that both have packets waiting share by weight. On a busy machine a sender may
/// pause for a moment, and its unused share is lost, so several periods are tried.
fn shares(flows: &[Flow; 2], wanted: f64, way: &str) {
    let mut seen = Vec::new();
    for _ in 0..8 {
        let start = flows.each_ref().map(Flow::got);
        flows[1].wait_for(1_000_000);
        let got: Vec<f64> =
            flows.iter().zip(start).map(|(flow, start)| (flow.got() - start) as f64).collect();
        seen.push(got[0] / got[1]);
        let near = |ratio: &f64| (ratio / wanted - 1.0).abs() < 0.1;
        if seen.len() > 1 && seen[seen.len() - 2..].iter().all(near) {
            return;
        }
    }
    panic!("{way}: {seen:.2?} instead of {wanted}");
}

fn classes_share_by_weight_and_the_device_is_as_before_when_the_policy_is_cleared() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    let before = place.looks();
    for way in WAYS {
        place.apply(way)?;
        assert!(place.looks() != before, "there is a queue");
        let flows = [place.flow(5001), place.flow(5002)];
        flows[0].wait_for(2_000_000);
        shares(&flows, 3.0, way);
        let (live, counters) = place.figures();
        assert!(live.classes[0].delay.is_some() && counters.received > 1000, "{live:?}");
        drop(flows);
        let cleared = place.queue(&["clear"]);
        assert!(cleared.status.success(), "{}", String::from_utf8_lossy(&cleared.stderr));
        assert_eq!(place.looks(), before, "{way}");
    }
    Ok(())
}

fn the_traffic_flows_on_when_the_queue_is_killed() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    let before = place.looks();
    for way in WAYS {
        place.apply(way)?;
        let flow = place.flow(5001);
        flow.wait_for(200_000);
        kill(place.processes().1, "-KILL");
        flow.wait_for(5_000_000);
        place.wait_until_it_looks(&before);
    }
    Ok(())
}

fn the_next_command_puts_back_what_a_killed_guard_left() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    let before = place.looks();
    for (way, next) in [("tun", "clear"), ("af-xdp", "apply")] {
        place.apply(way)?;
        let flow = place.flow(5001);
        flow.wait_for(200_000);
        let (guard, worker) = place.processes();
        kill(guard, "-KILL");
        flow.wait_for(5_000_000);
        while !is_gone(worker) {
            thread::sleep(Duration::from_millis(5));
        }
        assert_ne!(place.looks(), before, "the program at the device is still there");
        if next == "apply" {
            place.apply(way)?;
            flow.wait_for(200_000);
        }
        drop(flow);
        let cleared = place.queue(&["clear"]);
        assert!(cleared.status.success(), "{}", String::from_utf8_lossy(&cleared.stderr));
        place.wait_until_it_looks(&before);
    }
    Ok(())
}

fn a_queue_that_is_stopped_is_passed_by_and_goes_on_afterwards() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    place.apply("tun")?;
    let flow = place.flow(5001);
    flow.wait_for(200_000);
    let (_, worker) = place.processes();
    kill(worker, "-STOP");
    flow.wait_for(5_000_000);
    kill(worker, "-CONT");
    let before = place.class("a").packets;
    flow.wait_for(2_000_000);
    assert!(place.class("a").packets > before, "it is used again");
    Ok(())
}

fn a_signal_ends_a_queue_in_the_foreground_and_puts_everything_back() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    let before = place.looks();
    for signal in ["-TERM", "-INT", "-HUP"] {
        place.enter(0);
        let mut served = Command::new(program::unisono())
            .args([
                "queue",
                "apply",
                place.policy.path().to_str().expect("letters"),
                "--backend",
                "interposed",
            ])
            .args(["--dev", DEVICE, "--foreground"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut said = [0; 6];
        served.stdout.as_mut().expect("asked for").read_exact(&mut said).expect("it speaks");
        assert_eq!(&said, b"ready\n");
        let flow = place.flow(5001);
        flow.wait_for(100_000);
        kill(served.id(), signal);
        assert!(served.wait().expect("it ends").success());
        assert_eq!(place.looks(), before, "{signal}");
        flow.wait_for(1_000_000);
    }
    Ok(())
}

fn senders_are_told_apart_by_priority_and_by_control_group() -> TestOutcome {
    let group = format!("/{}", groups::name("senders"));
    let all = unisono_linux::cgroup::hierarchies().expect("proc is mounted");
    let tree =
        unisono_linux::cgroup::CgroupHierarchy::of_version(&all, unisono_linux::cgroup::CgroupVersion::V2)
            .ok_or_else(|| Skipped::because("no control groups of version 2 are mounted"))?;
    let here = tree.root.join(&group[1..]);
    let inner = here.join("inner");
    fs::create_dir_all(&inner).map_err(|error| Skipped::because(format!("no control group: {error}")))?;
    let policy = format!(
        "rate = \"50mbit\"\ndefault = \"rest\"\n[class.inner]\nmatch = [{{ cgroup = \"{group}/inner\" }}]\n\
         [class.group]\nmatch = [{{ cgroup = \"{group}\" }}]\n[class.six]\nmatch = [{{ priority = 6 }}]\n"
    );
    let place = QueueUnderTest::new(&policy)?;
    for way in WAYS {
        place.apply(way)?;
        let to = SocketAddr::new(Hosts::address(1).parse().expect("an address"), 9);
        for (directory, class) in [(Some(&inner), "inner"), (Some(&here), "group"), (None, "rest")] {
            let before = place.class(class).packets;
            place.enter(0);
            let join = directory.map(|directory| fs::write(directory.join("cgroup.procs"), "0"));
            if let Some(Err(error)) = join {
                return Err(Skipped::because(format!("a control group cannot be joined: {error}")));
            }
            // the group of a socket is the group of the process that made it, at that time
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
            fs::write(tree.root.join("cgroup.procs"), "0").expect("the root can be joined");
            for _ in 0..5 {
                socket.send_to(&[1; 100], to).expect("a route");
            }
            while place.class(class).packets < before + 5 {
                thread::sleep(Duration::from_millis(5));
            }
        }
        let before = place.class("six").packets;
        place.enter(0);
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
        set_priority(&socket, 6).expect("anybody may");
        for _ in 0..5 {
            socket.send_to(&[1; 100], to).expect("a route");
        }
        while place.class("six").packets < before + 5 {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(place.queue(&["clear"]).status.success());
    }
    Ok(())
}

fn frames_that_contradict_themselves_are_dropped_and_counted() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    for way in WAYS {
        place.apply(way)?;
        place.enter(0);
        let device = Interface::find(DEVICE).expect("it was made");
        // through the network stack, as a program would send, not past the queueing discipline
        let socket = PacketSocket::open_queued(device.index, 0).expect("root may");
        let mut frame = vec![0xff; 12];
        frame.extend([8, 0, 0x45, 0, 0xff, 0xff]);
        frame.resize(64, 0);
        for length in [15, 20, 34, 64] {
            socket.send(&frame[..length]).expect("it is sent");
        }
        while place.figures().1.malformed < 4 {
            thread::sleep(Duration::from_millis(5));
        }
        let flow = place.flow(5001);
        flow.wait_for(100_000);
        drop(flow);
        assert!(place.queue(&["clear"]).status.success());
    }
    Ok(())
}

fn a_burst_that_is_too_much_is_dropped_and_counted_and_the_queue_goes_on() -> TestOutcome {
    let place = QueueUnderTest::new(&POLICY.replace("50mbit", "2mbit"))?;
    for way in WAYS {
        place.apply(way)?;
        place.enter(0);
        let to = SocketAddr::new(Hosts::address(1).parse().expect("an address"), 5002);
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
        for _ in 0..20_000 {
            // fails if the queue before it is full
            let _ = socket.send_to(&[1; 1400], to);
        }
        while place.class("b").dropped == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        let flow = place.flow(5001);
        flow.wait_for(100_000);
        drop(flow);
        assert!(place.queue(&["clear"]).status.success());
    }
    Ok(())
}

fn frames_handed_over_as_one_arrive_as_they_were_also_where_the_device_cannot_cut_them() -> TestOutcome {
    let place = QueueUnderTest::new(&POLICY.replace("50mbit", "100gbit"))?;
    for cuts in [On::Yes, On::No] {
        place.apply("af-xdp")?;
        place.enter(0);
        let device = Interface::find(DEVICE).expect("it was made");
        ethtool::set(device.index, Offload::Segmentation, cuts).expect("a pair of devices can be told");
        let to = SocketAddr::new(Hosts::address(1).parse().expect("an address"), 5001);
        place.enter(1);
        let listener = TcpListener::bind(to).expect("the port is free");
        place.enter(0);
        let mut near = TcpStream::connect(to).expect("the far host answers");
        let (mut far, _) = listener.accept().expect("it connected");
        // a period that is no divisor of a segment's length
        let pattern: Vec<u8> = (0..251_u8).collect();
        let bytes: Vec<u8> = pattern.iter().copied().cycle().take(251 << 16).collect();
        let sent = bytes.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let writer = thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                near.write_all(&sent).expect("it is taken");
            }
        });
        let mut got = vec![0; bytes.len()];
        let mut rounds = 0;
        while rounds < 3 || (cuts == On::Yes && place.figures().1.merged == 0) {
            far.read_exact(&mut got).expect("it arrives");
            assert!(got == bytes, "other bytes arrive than were sent");
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
        drain(&mut far);
        writer.join().expect("it ended");
        assert!(place.queue(&["clear"]).status.success());
    }
    Ok(())
}

/// Reads until the end of the stream.
fn drain(stream: &mut TcpStream) {
    let mut bytes = vec![0; 1 << 16];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::Interrupted => panic!("{error}"),
            _ => {}
        }
    }
}

fn another_policy_takes_over_while_packets_wait() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    place.apply("tun")?;
    let flows = [place.flow(5001), place.flow(5002)];
    flows[0].wait_for(500_000);
    fs::write(place.policy.path(), POLICY.replace("weight = 3", "weight = 1")).expect("room");
    place.apply("tun")?;
    flows[0].wait_for(500_000);
    shares(&flows, 1.0, "tun");
    Ok(())
}

fn what_cannot_be_interposed_is_refused_and_nothing_changes() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    let before = place.looks();
    let policy = place.policy.path().to_str().expect("letters").to_owned();
    for (device, says) in [("none", "there is no device none"), ("lo", "lo is no Ethernet device")] {
        place.enter(0);
        let output = Command::new(program::unisono())
            .args(["queue", "apply", &policy, "--backend", "interposed", "--dev", device])
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(says), "{said}");
    }
    ip(&["-n", place.hosts.name(0), "link", "set", DEVICE, "mtu", "9000"]).expect("a veth can");
    let output = place.queue(&["apply", &policy, "--backend", "interposed", "--way", "af-xdp"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("use --way tun"), "{said}");
    assert_eq!(place.looks(), before);
    Ok(())
}

fn a_device_of_others_with_the_name_of_the_queues_stays() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    place.enter(0);
    let name = format!("unisono{}", Interface::find(DEVICE).expect("it was made").index.0);
    let policy = place.policy.path().to_str().expect("letters").to_owned();
    let near = place.hosts.name(0);
    let kinds: [&[&str]; 2] = [
        &["link", "add", &name, "type", "bridge"],
        &["tuntap", "add", "dev", &name, "mode", "tap"], // a TAP device to which another program could attach
    ];
    for kind in kinds {
        ip(&[&["-n", near], kind].concat()).expect("root may");
        let before = place.looks();
        for way in WAYS {
            let output = place.queue(&["apply", &policy, "--backend", "interposed", "--way", way]);
            assert!(!output.status.success(), "{way} beside {kind:?}");
            assert_eq!(place.looks(), before, "{way} beside {kind:?}");
        }
        place.queue(&["clear"]);
        assert_eq!(place.looks(), before, "{kind:?}");
        ip(&["-n", near, "link", "del", &name]).expect("it is there");
    }
    Ok(())
}

host_tests![needs OwnQueues;
    classes_share_by_weight_and_the_device_is_as_before_when_the_policy_is_cleared within 120,
    filters_that_others_have_put_beside_ours_outlive_a_policy within 120,
    the_traffic_flows_on_when_the_queue_is_killed within 120,
    the_next_command_puts_back_what_a_killed_guard_left within 120,
    a_queue_that_is_stopped_is_passed_by_and_goes_on_afterwards within 120,
    a_signal_ends_a_queue_in_the_foreground_and_puts_everything_back within 120,
    senders_are_told_apart_by_priority_and_by_control_group within 120,
    frames_that_contradict_themselves_are_dropped_and_counted within 120,
    a_burst_that_is_too_much_is_dropped_and_counted_and_the_queue_goes_on within 120,
    frames_handed_over_as_one_arrive_as_they_were_also_where_the_device_cannot_cut_them within 120,
    another_policy_takes_over_while_packets_wait within 120,
    what_cannot_be_interposed_is_refused_and_nothing_changes,
    a_device_of_others_with_the_name_of_the_queues_stays,
];
