use super::*;
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use unisono_events_wire::frame::Frame;
use unisono_events_wire::memory::{MemoryGeometry, MemorySupplier, WhenBehind};

const MAX_READ_BYTES: usize = 64 << 10;

/// Makes a reading, and the ring that the test fills with arbitrary bytes.
fn reading() -> (DirectReading, MemorySupplier, Doorbell) {
    reading_with(MAX_READ_BYTES * 5 / 4)
}

fn reading_with(slot: usize) -> (DirectReading, MemorySupplier, Doorbell) {
    let (one, other) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a pair");
    let geometry = MemoryGeometry::new(8, slot as u32, 1).expect("small");
    let mut ring = MemorySupplier::create(geometry, WAY).expect("memory is left");
    let bell = Doorbell::new(other);
    ring.offer(WhenBehind::BlocksSupplier, &bell).expect("the first");
    let of = ReadingOf {
        link: 1,
        subscription: SubscriptionHandle(1),
        topic: 2,
        name: "t".into(),
        event_type: None,
        supplier: 3,
        last: 0,
        terms: (&SubscriptionSpec::default()).into(),
        largest: MAX_READ_BYTES,
    };
    (DirectReading::new(of, one), ring, bell)
}

fn frame(sequence: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let head = DeliverHead { sequence, ..DeliverHead::default() };
    Frame::Deliver { head, payload: b"payload" }.write(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn whatever_a_supplier_writes_a_consumer_takes_events_or_ends_the_link(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        is_a_delivery in any::<bool>(), repeat in 0..400_usize, tag in any::<u32>(), small in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if let [first, a, b, c, ..] = &mut bytes[..] && is_a_delivery {
            (*first, *a, *b, *c) = (135, 0, 0, 0);
        }
        let bytes = bytes.repeat(1 + repeat);
        let (mut reading, mut ring, _bell) = reading();
        ring.publish(0, &frame(1)).expect("it is empty");
        let tag = if small { tag % 300 } else { tag };
        ring.publish(tag, &bytes).expect("it fits");
        prop_assert!(matches!(reading.take(), Ok(Some(Reception::Event(_)))));
        loop {
            match reading.take() {
                Ok(Some(_)) => {}
                end => {
                    prop_assert!(matches!(end, Err(ReadingEnd::Broken) | Ok(None)), "{end:?}");
                    break;
                }
            }
        }
    }
}

#[test]
fn numbers_that_go_back_and_events_beyond_the_largest_end_the_link() {
    let (mut reading, mut ring, _bell) = reading();
    for number in [5, 6, 6] {
        ring.publish(0, &frame(number)).expect("there is room");
    }
    assert!(matches!(reading.take(), Ok(Some(Reception::Event(_)))));
    assert!(matches!(reading.take(), Ok(Some(Reception::Event(_)))));
    assert!(matches!(reading.take(), Err(ReadingEnd::Broken)));
    let (mut reading, mut ring, _bell) = self::reading();
    let mut large = frame(1);
    let head = large.len() - b"payload".len();
    large.resize(MAX_READ_BYTES + 1, 0);
    ring.publish(head as u32, &large).expect("there is room");
    assert!(matches!(reading.take(), Err(ReadingEnd::Broken)));
}

#[test]
fn a_ring_for_larger_events_than_a_supplier_may_publish_is_refused() {
    let (mut reading, mut ring, _bell) = reading_with(2 * MAX_READ_BYTES);
    ring.publish(0, &frame(1)).expect("there is room");
    assert!(matches!(reading.take(), Err(ReadingEnd::Broken)));
}

#[test]
fn what_a_supplier_wrote_before_it_died_is_taken_and_then_the_link_ends() {
    let (mut reading, mut ring, bell) = reading();
    ring.publish(0, &frame(1)).expect("there is room");
    assert!(matches!(reading.take(), Ok(Some(Reception::Event(_)))));
    ring.publish(0, &frame(2)).expect("there is room");
    // the supplier is killed: its socket is closed, and no call closes the ring
    std::mem::forget(ring);
    bell.close();
    assert!(!reading.woken());
    assert!(matches!(reading.take(), Ok(Some(Reception::Event(_)))));
    assert!(matches!(reading.take(), Err(ReadingEnd::Ended)));
}
