//! Tests that a queue follows its device: another MTU, down and up, another name, removal.

use crate::interposed_shared::{DEVICE, POLICY, QueueUnderTest, WAYS};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;
use unisono_enforce::Backend as _;
use unisono_enforce::interposed::Interposed;
use unisono_host_tests::hosts::{Hosts, ip};
use unisono_host_tests::{TestOutcome, host_tests, program};
use unisono_linux::process_stat::is_gone;

/// Changes the device of a host with `ip link set`.
fn set(place: &QueueUnderTest, host: usize, words: &[&str]) {
    let all = ["-n", place.hosts.name(host), "link", "set"];
    ip(&[&all[..], words].concat()).expect("ip can");
}

/// Sends a datagram of this length again and again, until one arrives whole.
fn arrives(place: &QueueUnderTest, length: usize) {
    let to = SocketAddr::new(Hosts::address(1).parse().expect("an address"), 5001);
    place.enter(1);
    let far = UdpSocket::bind(to).expect("the port is free");
    far.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
    place.enter(0);
    let near = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
    let mut bytes = vec![0; length + 1];
    loop {
        // fails while the device is not up again
        let _ = near.send_to(&vec![7; length], to);
        if far.recv(&mut bytes).is_ok_and(|got| got == length) {
            return;
        }
    }
}

fn frames_that_a_raised_mtu_allows_go_through_the_queue_or_pass_by_it_and_none_is_lost() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    for way in WAYS {
        place.apply(way)?;
        for mtu in ["1700", "3000", "9000", "1300", "1500"] {
            for host in [1, 0] {
                set(&place, host, &[DEVICE, "mtu", mtu]);
            }
            let before = place.figures();
            let length = mtu.parse::<usize>().expect("a number") - 28;
            // until the queue has noticed the change, datagrams may bypass it
            while {
                arrives(&place, length);
                place.class("a").packets == before.0.classes[0].packets
            } {
                if way == "af-xdp" && length > 1700 && place.figures().1.too_long > before.1.too_long {
                    break;
                }
            }
        }
        let counters = place.figures().1;
        assert_eq!((counters.malformed, counters.unsent), (0, 0), "{way}: {counters:?}");
        assert!(place.queue(&["clear"]).status.success());
    }
    Ok(())
}

fn a_device_that_was_down_is_used_again_when_it_is_up() -> TestOutcome {
    let place = QueueUnderTest::new(POLICY)?;
    for way in WAYS {
        place.apply(way)?;
        let flow = place.flow(5001);
        flow.wait_for(200_000);
        set(&place, 0, &[DEVICE, "down"]);
        thread::sleep(Duration::from_millis(300));
        set(&place, 0, &[DEVICE, "up"]);
        let before = place.class("a").packets;
        flow.wait_for(200_000);
        assert!(place.class("a").packets > before, "{way}: it passes the queue by");
        drop(flow);
        assert!(place.queue(&["clear"]).status.success());
    }
    Ok(())
}

fn a_renamed_device_keeps_its_queue_under_the_new_name() -> TestOutcome {
    const NEW: &str = "wire";
    let place = QueueUnderTest::new(POLICY)?;
    let before = place.looks();
    for way in WAYS {
        place.apply(way)?;
        set(&place, 0, &[DEVICE, "down"]);
        set(&place, 0, &[DEVICE, "name", NEW]);
        set(&place, 0, &[NEW, "up"]);
        place.enter(0);
        while Interposed::at(NEW).figures().expect("a queue is there").0.device != NEW {
            thread::sleep(Duration::from_millis(10));
        }
        arrives(&place, 1000);
        place.enter(0);
        assert!(Interposed::at(NEW).figures().expect("a queue is there").0.classes[0].packets > 0);
        let cleared = Command::new(program::unisono())
            .args(["queue", "clear", "--dev", NEW])
            .output()
            .expect("it starts");
        assert!(cleared.status.success(), "{}", String::from_utf8_lossy(&cleared.stderr));
        set(&place, 0, &[NEW, "down"]);
        set(&place, 0, &[NEW, "name", DEVICE]);
        set(&place, 0, &[DEVICE, "up"]);
        place.wait_until_it_looks(&before);
    }
    Ok(())
}

fn the_queue_of_a_device_that_is_removed_ends_and_leaves_no_journal() -> TestOutcome {
    for way in WAYS {
        let place = QueueUnderTest::new(POLICY)?;
        place.apply(way)?;
        let (guard, worker) = place.processes();
        let journal = unisono_enforce::journal::Journal::for_device(DEVICE).expect("proc is mounted");
        ip(&["-n", place.hosts.name(0), "link", "del", DEVICE]).expect("ip can");
        // waits, because the process that has adopted them may reap them late
        while journal.path().exists() || !is_gone(guard) || !is_gone(worker) {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(!journal.path().with_extension("socket").exists());
    }
    Ok(())
}

host_tests![needs OwnQueues;
    frames_that_a_raised_mtu_allows_go_through_the_queue_or_pass_by_it_and_none_is_lost within 60,
    a_device_that_was_down_is_used_again_when_it_is_up within 60,
    a_renamed_device_keeps_its_queue_under_the_new_name within 60,
    the_queue_of_a_device_that_is_removed_ends_and_leaves_no_journal within 60,
];
