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

fn stage(
    writer: &mut StagingWriter,
    ring: StagingRing<'_>,
    stamp: Stamp,
    offset: i64,
    length: usize,
) -> bool {
    let head = Head { how: None, offset, length };
    // SAFETY: the array has seventeen bytes, the length is at most that, and the ring is the test's.
    unsafe { writer.push(ring, stamp, head, [7_u8; 17].as_ptr()) }
}

#[test]
fn entries_come_out_in_order_epoch_by_epoch_and_the_ring_wraps() {
    let mut memory = vec![0_u128; 16];
    let words = Words::default();
    let ring = words.beside(memory.as_mut_ptr().cast::<u8>(), 256);
    let (mut writer, mut reader) = (StagingWriter::default(), StagingReader::default());
    for epoch in 1..200_u32 {
        let stamp = Stamp::fence(epoch);
        let lengths = [epoch as usize % 17, 8, epoch as usize % 5];
        for (offset, length) in lengths.into_iter().enumerate() {
            assert!(stage(&mut writer, ring, stamp, offset as i64, length), "room in {epoch}");
        }
        reader.drain(ring, stamp, |_, _| unreachable!("not committed"));
        if epoch.is_multiple_of(3) {
            let mut again = 0;
            writer.withdraw(ring, stamp, |_, _| again += 1);
            assert_eq!(again, 3, "taken back in epoch {epoch}");
            writer.commit(ring);
            reader.drain(ring, stamp, |_, _| unreachable!("taken back"));
            continue;
        }
        writer.commit(ring);
        reader.drain(ring, Stamp::fence(epoch + 1), |_, _| unreachable!("another epoch"));
        let mut places = Vec::new();
        reader.drain(ring, stamp, |head, data| {
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
    let (mut writer, mut reader) = (StagingWriter::default(), StagingReader::default());
    let mut staged = 0;
    while stage(&mut writer, ring, Stamp::completion(1), 0, 16) {
        staged += 1;
    }
    assert_eq!(staged, 8);
    writer.commit(ring);
    let mut seen = 0;
    reader.drain(ring, Stamp::completion(1), |_, _| seen += 1);
    assert_eq!(seen, staged);
    assert!(stage(&mut writer, ring, Stamp::completion(2), 0, 16));
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
    let (mut writer, mut reader) = (StagingWriter::default(), StagingReader::default());
    let (data, mut bytes) = ([7; MAX_STAGED_BYTES], 0_u64);
    for epoch in 1.. {
        let (stamp, head) = (Stamp::fence(epoch), Head { how: None, offset: 0, length: MAX_STAGED_BYTES });
        // SAFETY: the data is an array of this length, the ring is the test's.
        assert!(unsafe { writer.push(ring, stamp, head, data.as_ptr()) }, "room after {bytes} bytes");
        writer.commit(ring);
        let mut came_out = 0;
        reader.drain(ring, stamp, |_, _| came_out += 1);
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
        let (mut writer, mut reader) = (StagingWriter::default(), StagingReader::default());
        let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
        for (number, lengths) in (1..).zip(epochs) {
            let (stamp, mut staged) = (Stamp::fence(number), Vec::new());
            for length in lengths {
                let data: Vec<u8> = (0..length).map(|at| (at + length) as u8 ^ number as u8).collect();
                let head = Head { how: None, offset: length as i64, length };
                // SAFETY: the data is a vector of this length, the ring is the test's.
                if unsafe { writer.push(ring, stamp, head, data.as_ptr()) } {
                    staged.push(data);
                }
            }
            writer.commit(ring);
            let mut taken = Vec::new();
            reader.drain(ring, stamp, |head, data| {
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
                let found_room = unsafe { writer.push(ring, stamp, head, data.as_ptr()) };
                prop_assert!(found_room, "entry {}", entry);
            }
            writer.withdraw(ring, stamp, |head, _| assert_eq!(head.length, length));
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
            let code = if long { LONG_ENTRY.to_le_bytes() } else { [byte; 2] };
            memory.0[at * 16 + 4..at * 16 + 6].copy_from_slice(&code);
        }
        let words = Words::default();
        words.filled.store(SIZE as u32, Ordering::Relaxed);
        let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
        let mut reader = StagingReader::default();
        let start = ring.start as usize;
        let visit = |head: Head, data: *const u8| {
            let from = data as usize - start;
            assert!(from <= SIZE && from + head.length <= SIZE, "{from} {}", head.length);
        };
        reader.drain(ring, Stamp(0), visit);
    }
}

#[test]
fn a_position_that_no_origin_would_claim_is_rounded_and_what_is_out_of_the_ring_is_not_read() {
    let mut memory = vec![0_u128; 16];
    let words = Words::default();
    let ring = words.beside(memory.as_mut_ptr().cast::<u8>(), 256);
    let (mut writer, mut reader) = (StagingWriter::default(), StagingReader::default());
    assert!(
        stage(&mut writer, ring, Stamp::PASSIVE, 0, 16) && stage(&mut writer, ring, Stamp::PASSIVE, 16, 16)
    );
    let mut seen = 0;
    reader.drain_to(ring, writer.span(ring).end | 0xe, Stamp::PASSIVE, |_, _| seen += 1);
    assert_eq!((seen, reader.position()), (2, 64), "read at multiples of sixteen");
    reader
        .drain_to(ring, 64 + (1 << 30), Stamp::PASSIVE, |_, _| unreachable!("further than the ring is long"));
    assert_eq!(reader.position(), 64 + (1 << 30));
}

#[test]
fn a_short_put_is_found_only_if_it_is_the_epochs_only_entry() {
    let mut memory = Box::new(Memory([0; SIZE]));
    let words = Words::default();
    let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
    let mut writer = StagingWriter::default();
    let data = [9_u8; 64];
    for length in 0..=64 {
        let head = Head { how: None, offset: 5, length };
        // SAFETY: the data is an array of 64 bytes, the ring is the test's.
        assert!(unsafe { writer.push(ring, Stamp::PASSIVE, head, data.as_ptr()) });
        let found = writer.only_short_put(ring, Stamp::PASSIVE).map(|(head, _)| (head.offset, head.length));
        assert_eq!(found, (length <= CARRIED).then_some((5, length)));
        assert!(stage(&mut writer, ring, Stamp::PASSIVE, 0, 0));
        assert!(
            writer.only_short_put(ring, Stamp::PASSIVE).is_none(),
            "two entries, the first of {length}"
        );
        writer.mark_applied();
    }
    let how = Some((Element::U8, Operation::Sum));
    // SAFETY: as above.
    let staged =
        unsafe { writer.push(ring, Stamp::PASSIVE, Head { how, offset: 0, length: 1 }, data.as_ptr()) };
    assert!(staged && writer.only_short_put(ring, Stamp::PASSIVE).is_none(), "no put");
}

#[test]
fn how_far_was_read_is_told_before_it_is_so_old_that_it_seems_to_lie_ahead() {
    let mut memory = Box::new(Memory([0; SIZE]));
    let words = Words::default();
    let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
    let (mut writer, mut reader) = (StagingWriter::default(), StagingReader::default());
    for turn in 0..(9_u64 << 28) / SIZE as u64 {
        let head = Head { how: None, offset: 0, length: SIZE - 256 };
        // SAFETY: the ring itself is as long as the data.
        let found_room = unsafe { writer.push(ring, Stamp::PASSIVE, head, [0; SIZE].as_ptr()) };
        assert!(found_room, "turn {turn}");
        let span = writer.span(ring);
        assert!(reader.is_next(ring, span.start), "turn {turn}");
        reader.skip_to(span.end);
        reader.publish_given_back_if_old(ring);
        writer.mark_applied();
    }
}
