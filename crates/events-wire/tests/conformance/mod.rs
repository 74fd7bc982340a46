//! The conformance suite of transports, which tests the contract in `src/transport/mod.rs` point by point.
//! `conforms!(name, pair)` tests a transport with the suite; `pair` makes two connected ends whose frames may
//! have at least [`MAX_EVENT_BYTES`] bytes.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use unisono_events_wire::transport::{
    Drained, FrameTransport, PayloadMemory, PayloadRef, SharedPayload, Taken, TransportError, wait,
};

/// Minimum frame size, in bytes, that each transport in the suite supports.
pub(crate) const MAX_EVENT_BYTES: usize = 1 << 20;

pub(crate) type End = Box<dyn FrameTransport>;

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(20));

#[macro_export]
macro_rules! conforms {
    ($name:ident, $pair:path) => {
        mod $name {
            use $crate::conformance;
            #[test]
            fn frames_of_all_lengths_arrive_whole_and_in_order_both_ways() {
                conformance::order($pair);
            }
            #[test]
            fn a_frame_that_is_too_large_is_refused_and_the_next_one_passes() {
                conformance::too_large($pair);
            }
            #[test]
            fn a_reader_that_stops_makes_the_sender_full_and_loses_nothing() {
                conformance::full($pair);
            }
            #[test]
            fn what_had_left_arrives_before_the_end_is_seen() {
                conformance::close($pair);
            }
            #[test]
            fn the_descriptor_tells_of_frames_and_of_the_end() {
                conformance::readiness($pair);
            }
            #[test]
            fn two_threads_that_sleep_between_frames_wake_each_other() {
                conformance::ping_pong($pair);
            }
        }
    };
}

/// Makes bytes that depend on their position and on the frame's number.
fn content(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ number.wrapping_mul(7)) as u8).collect()
}

/// Payload memory of this process alone: transports that cannot pass it by reference copy it.
#[derive(Debug)]
struct PlainMemory(Vec<u8>);

impl PayloadMemory for PlainMemory {
    fn length(&self) -> usize {
        self.0.len()
    }

    fn copy(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0[offset..offset + into.len()]);
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn send(end: &mut End, head: &[u8], payload: PayloadRef<'_>) {
    while end.send(head, payload).expect("the other end is there") == Taken::Full {
        assert!(wait(&mut **end, TIMEOUT).expect("the other end is there"), "no room for long");
    }
}

/// Waits for a frame. Returns its bytes, followed by a payload that came separately.
fn receive(end: &mut End) -> Result<Vec<u8>, TransportError> {
    loop {
        let _ = end.flush();
        if let Some(frame) = end.receive()? {
            let mut bytes = frame.bytes.to_vec();
            bytes.extend(frame.shared_payload.map(|apart| apart.to_vec()).unwrap_or_default());
            return Ok(bytes);
        }
        assert!(wait(&mut **end, TIMEOUT)?, "no frame for long");
    }
}

pub(crate) fn order(pair: fn() -> (End, End)) {
    let (mut one, mut other) = pair();
    let lengths = [0, 1, 7, 8, 1024, 4095, 16 << 10, 65_537, 3, MAX_EVENT_BYTES - 8, 0, 100];
    for round in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (number, length) in lengths.iter().enumerate() {
                    let payload = content(number + round, *length);
                    let shared = SharedPayload(Arc::new(PlainMemory(payload.clone())));
                    let by_handle = round == 2;
                    let payload =
                        if by_handle { PayloadRef::Shared(&shared) } else { PayloadRef::Bytes(&payload) };
                    send(&mut one, &(number as u64).to_le_bytes(), payload);
                    if number % 3 == 0 {
                        let _ = one.flush().expect("the other end is there");
                    }
                }
                while one.flush().expect("the other end is there") == Drained::Part {
                    wait(&mut *one, TIMEOUT).expect("the other end is there");
                }
            });
            for (number, length) in lengths.iter().enumerate() {
                let bytes = receive(&mut other).expect("a frame");
                assert_eq!(bytes[..8], (number as u64).to_le_bytes());
                assert!(bytes[8..] == content(number + round, *length), "frame {number} of round {round}");
            }
        });
        std::mem::swap(&mut one, &mut other);
    }
}

pub(crate) fn too_large(pair: fn() -> (End, End)) {
    let (mut one, mut other) = pair();
    let most = one.largest();
    let refused = one.send(b"head", PayloadRef::Bytes(&vec![0; most - 3])).expect_err("a byte too many");
    assert!(
        matches!(refused, TransportError::TooLarge { bytes, most: said } if bytes == most + 1 && said == most)
    );
    send(&mut one, b"head", PayloadRef::Bytes(b"small"));
    let _ = one.flush().expect("the other end is there");
    assert_eq!(receive(&mut other).expect("a frame"), b"headsmall");
}

pub(crate) fn full(pair: fn() -> (End, End)) {
    let (mut one, mut other) = pair();
    let mut taken = 0_usize;
    // a transport that never reports that it is full ends the loop at twice the permitted amount
    while taken < 64 << 10 {
        let answer = one.send(&taken.to_le_bytes(), PayloadRef::Bytes(&content(taken, 1000)));
        if answer.expect("the other end is there") == Taken::Full {
            break;
        }
        taken += 1;
    }
    assert!(taken < 64 << 10, "64 MiB were taken for a reader that reads nothing");
    for number in 0..taken {
        let bytes = loop {
            let _ = one.flush().expect("the other end is there");
            if let Some(frame) = other.receive().expect("the other end is there") {
                break frame.bytes.to_vec();
            }
        };
        assert_eq!(bytes[..8], number.to_le_bytes());
        assert!(bytes[8..] == content(number, 1000));
    }
    send(&mut one, b"again", PayloadRef::Bytes(b""));
    let _ = one.flush().expect("the other end is there");
    assert_eq!(receive(&mut other).expect("a frame"), b"again");
}

pub(crate) fn close(pair: fn() -> (End, End)) {
    for drops in [false, true] {
        let (mut one, mut other) = pair();
        for number in 0..10_u8 {
            send(&mut one, &[number], PayloadRef::Bytes(&[7; 500]));
        }
        let _ = one.flush().expect("the other end is there");
        if drops {
            drop(one);
        } else {
            one.close();
        }
        for number in 0..10_u8 {
            assert_eq!(receive(&mut other).expect("it had left")[0], number);
        }
        assert!(matches!(receive(&mut other), Err(TransportError::Closed)));
        assert!(matches!(other.receive(), Err(TransportError::Closed)), "it stays closed");
    }
    // a sender detects the end, too
    let (mut one, other) = pair();
    drop(other);
    let failed = (0..1_000_000)
        .find_map(|_| one.send(b"", PayloadRef::Bytes(&[0; 100])).and_then(|_| one.flush()).err());
    assert!(matches!(failed, Some(TransportError::Closed)), "{failed:?}");
}

pub(crate) fn readiness(pair: fn() -> (End, End)) {
    let (mut one, mut other) = pair();
    let short = Some(Duration::from_millis(20));
    // the traffic of the ends themselves, such as acknowledgements, comes to an end
    let is_quiet = (0..1000).any(|_| {
        for end in [&mut one, &mut other] {
            assert!(end.receive().expect("the other end is there").is_none());
        }
        !wait(&mut *other, short).expect("the other end is there")
    });
    assert!(is_quiet, "ready without a frame, again and again");
    let before = std::os::fd::AsRawFd::as_raw_fd(&other.as_fd());
    send(&mut one, b"frame", PayloadRef::Bytes(b""));
    let _ = one.flush().expect("the other end is there");
    assert!(wait(&mut *other, TIMEOUT).expect("the other end is there"), "not ready");
    assert_eq!(receive(&mut other).expect("a frame"), b"frame");
    drop(one);
    assert!(wait(&mut *other, TIMEOUT).unwrap_or(true), "the end was not told");
    assert!(matches!(receive(&mut other), Err(TransportError::Closed)));
    assert_eq!(
        before,
        std::os::fd::AsRawFd::as_raw_fd(&other.as_fd()),
        "the descriptor is always the same"
    );
}

pub(crate) fn ping_pong(pair: fn() -> (End, End)) {
    let (mut one, mut other) = pair();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                let bytes = receive(&mut other).expect("a frame");
                send(&mut other, &bytes, PayloadRef::Bytes(b""));
                let _ = other.flush().expect("the other end is there");
            }
        });
        for number in 0..2000_u32 {
            send(&mut one, &number.to_le_bytes(), PayloadRef::Bytes(b""));
            let _ = one.flush().expect("the other end is there");
            assert_eq!(receive(&mut one).expect("an answer"), number.to_le_bytes());
        }
    });
}
