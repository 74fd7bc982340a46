//! Rings that wrap, are full, are begun again, or hold bytes that no origin wrote.

use super::*;
use crate::path::mapped::hand_off::CARRIED;
use proptest::prelude::*;
use unisono_sync::atomics::Ordering;

#[derive(Default)]
struct Words {
    filled: AtomicU32,
    begin: AtomicU32,
    given_back: AtomicU32,
}

impl Words {
    fn beside(&self, start: *mut u8, size: usize) -> StagingRing<'_> {
        StagingRing { start, size, filled: &self.filled, begin: &self.begin, given_back: &self.given_back }
    }
}

fn stage(out: &mut Out, ring: StagingRing<'_>, stamp: Stamp, offset: i64, length: usize) -> bool {
    let head = Head { how: None, offset, length };
    // SAFETY: the array has seventeen bytes, the length is at most that, and the ring is the test's.
    unsafe { out.stage(ring, stamp, head, [7_u8; 17].as_ptr()) }
}

#[test]
fn entries_come_out_in_order_epoch_by_epoch_and_the_ring_wraps() {
    let mut memory = vec![0_u128; 16];
    let words = Words::default();
    let ring = words.beside(memory.as_mut_ptr().cast::<u8>(), 256);
    let (mut out, mut came) = (Out::default(), In::default());
    for epoch in 1..200_u32 {
        let stamp = Stamp::fence(epoch);
        let lengths = [epoch as usize % 17, 8, epoch as usize % 5];
        for (offset, length) in lengths.into_iter().enumerate() {
            assert!(stage(&mut out, ring, stamp, offset as i64, length), "room in {epoch}");
        }
        came.drain(ring, stamp, |_, _| unreachable!("not committed"));
        if epoch.is_multiple_of(3) {
            let mut again = 0;
            out.take_back(ring, stamp, |_, _| again += 1);
            assert_eq!(again, 3, "taken back in epoch {epoch}");
            out.commit(ring);
            came.drain(ring, stamp, |_, _| unreachable!("taken back"));
            continue;
        }
        out.commit(ring);
        came.drain(ring, Stamp::fence(epoch + 1), |_, _| unreachable!("another epoch"));
        let mut places = Vec::new();
        came.drain(ring, stamp, |head, data| {
            // SAFETY: the entry's data lies in the ring.
            let data = unsafe { std::slice::from_raw_parts(data, head.length) };
            assert_eq!(data, &[7; 17][..head.length]);
            places.push((head.offset, head.length));
        });
        let expected: Vec<_> = lengths.iter().enumerate().map(|(at, n)| (at as i64, *n)).collect();
        assert_eq!(places, expected);
    }
}

#[test]
fn a_full_ring_takes_no_more_until_room_is_given_back() {
    let mut memory = vec![0_u128; 16];
    let words = Words::default();
    let ring = words.beside(memory.as_mut_ptr().cast::<u8>(), 256);
    let (mut out, mut came) = (Out::default(), In::default());
    let mut staged = 0;
    while stage(&mut out, ring, Stamp::completion(1), 0, 16) {
        staged += 1;
    }
    assert_eq!(staged, 8);
    out.commit(ring);
    let mut seen = 0;
    came.drain(ring, Stamp::completion(1), |_, _| seen += 1);
    assert_eq!(seen, staged);
    assert!(stage(&mut out, ring, Stamp::completion(2), 0, 16));
}

/// The memory of a ring, aligned as in a segment.
#[repr(align(64))]
#[derive(Clone)]
struct Memory([u8; SIZE]);
const SIZE: usize = 16 << 10;

#[test]
fn a_beginning_so_old_that_its_number_seems_to_lie_ahead_is_none() {
    let mut memory = Box::new(Memory([0; SIZE]));
    let words = Words::default();
    let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
    let (mut out, mut came) = (Out::default(), In::default());
    let (data, mut bytes) = ([7; MAX_STAGED_BYTES], 0_u64);
    for epoch in 1.. {
        let (stamp, head) = (Stamp::fence(epoch), Head { how: None, offset: 0, length: MAX_STAGED_BYTES });
        // SAFETY: the data is an array of this length, the ring is the test's.
        assert!(unsafe { out.stage(ring, stamp, head, data.as_ptr()) }, "room after {bytes} bytes");
        out.commit(ring);
        let mut came_out = 0;
        came.drain(ring, stamp, |_, _| came_out += 1);
        assert_eq!(came_out, 1, "after {bytes} bytes");
        bytes += (HEAD + MAX_STAGED_BYTES) as u64;
        if bytes > (1 << 31) + 8 * SIZE as u64 {
            break;
        }
    }
}

proptest! {
    #[test]
    fn entries_of_any_length_that_found_room_come_out_as_they_went_in(
        epochs in prop::collection::vec(prop::collection::vec(0..room(SIZE), 1..6), 1..30),
    ) {
        let mut memory = Box::new(Memory([0; SIZE]));
        let words = Words::default();
        let (mut out, mut came) = (Out::default(), In::default());
        let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
        for (number, lengths) in (1..).zip(epochs) {
            let (stamp, mut staged) = (Stamp::fence(number), Vec::new());
            for length in lengths {
                let data: Vec<u8> = (0..length).map(|at| (at + length) as u8 ^ number as u8).collect();
                let head = Head { how: None, offset: length as i64, length };
                // SAFETY: the data is a vector of this length, the ring is the test's.
                if unsafe { out.stage(ring, stamp, head, data.as_ptr()) } {
                    staged.push(data);
                }
            }
            out.commit(ring);
            let mut taken = Vec::new();
            came.drain(ring, stamp, |head, data| {
                assert_eq!(head.offset, head.length as i64);
                // SAFETY: the entry's data lies in the ring.
                taken.push(unsafe { std::slice::from_raw_parts(data, head.length) }.to_vec());
            });
            prop_assert_eq!(&taken, &staged);
            // An empty ring has room for all of the data, wherever the last entry ended.
            let length = SIZE / 4 - 64;
            let (head, data) = (Head { how: None, offset: 0, length }, vec![1; length]);
            for entry in 0..4 {
                // SAFETY: the data is a vector of this length, the ring is the test's.
                let found_room = unsafe { out.stage(ring, stamp, head, data.as_ptr()) };
                prop_assert!(found_room, "entry {}", entry);
            }
            out.take_back(ring, stamp, |head, _| assert_eq!(head.length, length));
        }
    }

    #[test]
    fn no_bytes_in_a_ring_make_anybody_read_beyond_it(
        bytes in prop::collection::vec(any::<u8>(), SIZE / 16),
        long in any::<bool>(),
    ) {
        let mut memory = Box::new(Memory([0; SIZE]));
        for (at, byte) in bytes.into_iter().enumerate() {
            memory.0[at * 16 + 6] = byte;
            let code = if long { LONG.to_le_bytes() } else { [byte; 2] };
            memory.0[at * 16 + 4..at * 16 + 6].copy_from_slice(&code);
        }
        let words = Words::default();
        words.filled.store(SIZE as u32, Ordering::Relaxed);
        let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
        let mut came = In::default();
        let start = ring.start as usize;
        let reader = |head: Head, data: *const u8| {
            let from = data as usize - start;
            assert!(from <= SIZE && from + head.length <= SIZE, "{from} {}", head.length);
        };
        came.drain(ring, Stamp(0), reader);
    }
}

#[test]
fn a_position_that_no_origin_would_claim_is_rounded_and_what_is_out_of_the_ring_is_not_read() {
    let mut memory = vec![0_u128; 16];
    let words = Words::default();
    let ring = words.beside(memory.as_mut_ptr().cast::<u8>(), 256);
    let (mut out, mut came) = (Out::default(), In::default());
    assert!(stage(&mut out, ring, Stamp::PASSIVE, 0, 16) && stage(&mut out, ring, Stamp::PASSIVE, 16, 16));
    let mut seen = 0;
    came.drain_to(ring, out.span(ring).end | 0xe, Stamp::PASSIVE, |_, _| seen += 1);
    assert_eq!((seen, came.position()), (2, 64), "read at multiples of sixteen");
    came.drain_to(ring, 64 + (1 << 30), Stamp::PASSIVE, |_, _| unreachable!("further than the ring is long"));
    assert_eq!(came.position(), 64 + (1 << 30));
}

#[test]
fn a_short_put_is_found_only_if_it_is_the_epochs_only_entry() {
    let mut memory = Box::new(Memory([0; SIZE]));
    let words = Words::default();
    let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
    let mut out = Out::default();
    let data = [9_u8; 64];
    for length in 0..=64 {
        let head = Head { how: None, offset: 5, length };
        // SAFETY: the data is an array of 64 bytes, the ring is the test's.
        assert!(unsafe { out.stage(ring, Stamp::PASSIVE, head, data.as_ptr()) });
        let found = out.only_short_put(ring, Stamp::PASSIVE).map(|(head, _)| (head.offset, head.length));
        assert_eq!(found, (length <= CARRIED).then_some((5, length)));
        assert!(stage(&mut out, ring, Stamp::PASSIVE, 0, 0));
        assert!(out.only_short_put(ring, Stamp::PASSIVE).is_none(), "two entries, the first of {length}");
        out.handed_over();
    }
    let how = Some((Element::U8, Operation::Sum));
    // SAFETY: as above.
    let staged =
        unsafe { out.stage(ring, Stamp::PASSIVE, Head { how, offset: 0, length: 1 }, data.as_ptr()) };
    assert!(staged && out.only_short_put(ring, Stamp::PASSIVE).is_none(), "no put");
}

#[test]
fn how_far_was_read_is_told_before_it_is_so_old_that_it_seems_to_lie_ahead() {
    let mut memory = Box::new(Memory([0; SIZE]));
    let words = Words::default();
    let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
    let (mut out, mut came) = (Out::default(), In::default());
    for turn in 0..(9_u64 << 28) / SIZE as u64 {
        let head = Head { how: None, offset: 0, length: SIZE - 256 };
        // SAFETY: the ring itself is as long as the data.
        let found_room = unsafe { out.stage(ring, Stamp::PASSIVE, head, [0; SIZE].as_ptr()) };
        assert!(found_room, "turn {turn}");
        let span = out.span(ring);
        assert!(came.is_next(ring, span.start), "turn {turn}");
        came.skip_to(span.end);
        came.renew_given_back(ring);
        out.handed_over();
    }
}
