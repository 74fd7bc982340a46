//! Tests that a broker refuses a program's ring that is larger than its own, and that reading unwritten
//! memory of a program's ring does not allocate this memory.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::OwnedFd;
use unisono_events_wire::memory::{Doorbell, MemoryGeometry, MemorySupplier, MemoryTransport, WhenBehind};
use unisono_events_wire::transport::{FrameTransport, TransportError};
use unisono_sync::{SpinBudget, Wait};

const MAX_EVENT_BYTES: u32 = 1 << 20;
/// The tag of an entry of the short ring whose frame is in the long one.
const LONG: u32 = 1 << 31;

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("descriptors")
}

/// Makes a ring and offers it over a program's socket.
fn offer(doorbell: &Doorbell, depth: u32, largest: u32, consumers: u32) -> MemorySupplier {
    let geometry = MemoryGeometry::new(depth, largest, consumers).expect("within the limits");
    let mut ring = MemorySupplier::create(geometry, (Wait::Block, SpinBudget::DEFAULT)).expect("a memfd");
    ring.offer(WhenBehind::BlocksSupplier, doorbell).expect("it is there");
    ring
}

fn shared_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is Linux");
    let line = status.lines().find(|line| line.starts_with("RssShmem:")).expect("a process has memory");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn a_ring_that_is_larger_than_the_brokers_own_is_refused() {
    for (depth, consumers) in [(8192, 1), (256, 1000)] {
        let (one, other) = pair();
        let mut broker = MemoryTransport::new(one, MAX_EVENT_BYTES as usize).expect("memory is left");
        let _short = offer(&Doorbell::new(other), depth, 4096 + 256, consumers);
        let refused = broker.receive().expect_err("it is too large");
        assert!(matches!(refused, TransportError::Broken(_)), "{refused}");
        assert!(refused.to_string().contains("the largest that is taken has"), "{refused}");
    }
}

#[test]
fn memory_that_a_program_never_wrote_arrives_as_zeros_and_stays_unused() {
    let (one, other) = pair();
    let mut broker = MemoryTransport::new(one, MAX_EVENT_BYTES as usize).expect("memory is left");
    let doorbell = Doorbell::new(other);
    let mut short = offer(&doorbell, 256, 4096 + 256, 1);
    let mut long = offer(&doorbell, 8, MAX_EVENT_BYTES, 1);
    let before = shared_memory();
    for number in 0..40_u8 {
        let mut loan = long.loan(MAX_EVENT_BYTES as usize).expect("the broker takes it");
        loan.bytes()[..16].fill(number + 1);
        loan.publish(16);
        short.publish(LONG, &[]).expect("there is room");
        let frame = broker.receive().expect("it goes on").expect("a frame");
        assert!(frame.shared_payload.is_none(), "a payload that is not there is not held");
        assert_eq!(frame.bytes.len(), MAX_EVENT_BYTES as usize);
        assert!(frame.bytes[..16].iter().all(|byte| *byte == number + 1));
        assert!(frame.bytes[16..].iter().all(|byte| *byte == 0));
    }
    let grown = shared_memory() - before;
    assert!(grown < 2048, "{grown} KiB, where 14 MiB were announced and some pages written");
}
