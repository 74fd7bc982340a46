//! Staged operations: short puts and accumulates for a target that is not known to be in its epoch yet, or
//! whose memory is out of reach.
//!
//! The idea: the origin writes them into a ring that only it writes, each stamped with its epoch; the target
//! applies those of the epoch that it is ending, after the call that shows that the origin has ended its own
//! (the barrier of a fence, the completion flag). Nobody waits for the target to begin its epoch, and no word
//! says how far the ring is filled: the stamp after the last entry is zero.
//!
//! ```text
//!   ... | stamp kind element operation | place | length | data, padded | stamp 0 ...
//! ```
//! An origin that finds the target in its epoch after all takes its own entries back ([`Out::take_back`]) and
//! does them directly, so that the order of accumulates stays. Cost: 24 bytes and the data, one or two cache
//! lines for a few short puts. Entries are untrusted: lengths and places are checked by the target.

use crate::element::Element;
use crate::operation::Operation;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of an entry's head.
const HEAD: usize = 24;
/// Longer data is not staged.
pub(super) const MOST: usize = 1024;

/// The epoch of an entry, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u32);

impl Stamp {
    pub(super) const fn fence(epoch: u32) -> Self {
        Self(1 << 31 | epoch)
    }

    pub(super) const fn completion(number: u32) -> Self {
        Self(1 << 30 | number & 0x3fff_ffff)
    }
}

/// The head of an entry, without its stamp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// How it is combined; `None`: put.
    pub(super) how: Option<(Element, Operation)>,
    pub(super) place: i64,
    pub(super) length: usize,
}

/// Marks an entry that only fills the ring's end.
const FILLER: u8 = 0xff;

/// The origin's end of a ring.
#[derive(Debug, Default)]
pub(super) struct Out {
    /// Bytes ever written, and how many of them the target is known to have given back.
    written: u32,
    given_back: u32,
    /// Where this epoch's entries begin.
    epoch_start: u32,
}

/// The target's end of a ring.
#[derive(Debug, Default)]
pub(super) struct In {
    read: u32,
}

fn stamp_at<'a>(ring: *mut u8, at: usize) -> &'a AtomicU32 {
    let address = ring.wrapping_add(at).cast::<u32>();
    // SAFETY: rings are mapped as long as the window lives, start at a cache line, and entries are padded to
    // eight bytes.
    unsafe { AtomicU32::from_ptr(address) }
}

fn entry_bytes(length: usize) -> usize {
    (HEAD + length).next_multiple_of(8)
}

impl Out {
    pub(super) fn is_empty(&self) -> bool {
        self.written == self.epoch_start
    }

    /// The epoch is over: its entries are the target's.
    pub(super) fn commit(&mut self) {
        self.epoch_start = self.written;
    }

    /// Writes an entry, if there is room.
    #[inline]
    pub(super) fn stage(
        &mut self,
        (ring, size): (*mut u8, usize),
        given_back: &unisono_sync::atomics::AtomicU32,
        stamp: Stamp,
        head: Head,
        data: &[u8],
    ) -> bool {
        let bytes = entry_bytes(data.len());
        let at = self.written as usize % size;
        // The stamp after the entry must lie in the ring too; at its very end it is the one at its start.
        let filler = if at + bytes > size { size - at } else { 0 };
        let needed = filler + bytes + 8;
        if self.written.wrapping_sub(self.given_back) as usize + needed > size {
            // SYNC(given-back) acquire: the target has read what it gave back
            self.given_back = given_back.load(Ordering::Acquire);
            if self.written.wrapping_sub(self.given_back) as usize + needed > size {
                return false;
            }
        }
        if filler > 0 {
            let start = if filler >= HEAD { at } else { usize::MAX };
            stamp_at(ring, 0).store(0, Ordering::Relaxed);
            if start == at {
                self.write_head(ring, at, FILLER, Head { how: None, place: 0, length: 0 });
            }
            // SYNC(stamp) release: a filler shorter than a head is known by its place alone
            stamp_at(ring, at).store(stamp.0, Ordering::Release);
            self.written = self.written.wrapping_add(filler as u32);
        }
        let at = self.written as usize % size;
        stamp_at(ring, (at + bytes) % size).store(0, Ordering::Relaxed);
        self.write_head(ring, at, 0, head);
        // SAFETY: the entry lies within the ring, as computed above; the target reads it after its stamp.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), ring.wrapping_add(at + HEAD), data.len()) };
        // SYNC(stamp) release: the entry before its stamp
        stamp_at(ring, at).store(stamp.0, Ordering::Release);
        self.written = self.written.wrapping_add(bytes as u32);
        true
    }

    fn write_head(&self, ring: *mut u8, at: usize, kind: u8, head: Head) {
        let (element, operation) =
            head.how.map_or((0, 0), |(element, operation)| (element as u8, operation as u8));
        let mut bytes = [0_u8; HEAD - 4];
        bytes[0] = kind;
        bytes[1] = element;
        bytes[2] = operation;
        bytes[4..12].copy_from_slice(&head.place.to_le_bytes());
        bytes[12..16].copy_from_slice(&(head.length as u32).to_le_bytes());
        let into = ring.wrapping_add(at + 4);
        // SAFETY: the head lies within the ring, as computed by `stage`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len()) };
    }

    /// Takes this epoch's entries back, in order, before the target may look at them.
    pub(super) fn take_back(
        &mut self,
        (ring, size): (*mut u8, usize),
        stamp: Stamp,
        mut visit: impl FnMut(Head, &[u8]),
    ) {
        let mut reader = In { read: self.epoch_start };
        while reader.next((ring, size), stamp, &mut visit) {}
        stamp_at(ring, self.epoch_start as usize % size).store(0, Ordering::Relaxed);
        self.written = self.epoch_start;
    }
}

impl In {
    /// Applies all entries of an epoch.
    #[inline]
    pub(super) fn drain(
        &mut self,
        (ring, size): (*mut u8, usize),
        given_back: &unisono_sync::atomics::AtomicU32,
        stamp: Stamp,
        mut visit: impl FnMut(Head, &[u8]),
    ) {
        let before = self.read;
        while self.next((ring, size), stamp, &mut visit) {}
        if self.read != before {
            // SYNC(given-back) release: the copies before the room is given back
            given_back.store(self.read, Ordering::Release);
        }
    }

    /// Visits the next entry, if it has this stamp.
    #[inline]
    fn next(
        &mut self,
        (ring, size): (*mut u8, usize),
        stamp: Stamp,
        visit: &mut impl FnMut(Head, &[u8]),
    ) -> bool {
        let at = self.read as usize % size;
        // SYNC(stamp) acquire: the entry after its stamp
        if stamp_at(ring, at).load(Ordering::Acquire) != stamp.0 {
            return false;
        }
        let rest = size - at;
        if rest < HEAD {
            self.read = self.read.wrapping_add(rest as u32);
            return true;
        }
        let mut bytes = [0_u8; HEAD - 4];
        // SAFETY: a whole head lies between here and the ring's end.
        unsafe {
            std::ptr::copy_nonoverlapping(ring.wrapping_add(at + 4), bytes.as_mut_ptr(), bytes.len());
        }
        let [kind, element, operation, _, a, b, c, d, e, f, g, h, i, j, k, l, ..] = bytes;
        if kind == FILLER {
            self.read = self.read.wrapping_add(rest as u32);
            return true;
        }
        let place = i64::from_le_bytes([a, b, c, d, e, f, g, h]);
        // Another process wrote this length, and may write it again: the copy is what counts.
        let length = (u32::from_le_bytes([i, j, k, l]) as usize).min(MOST).min(rest - HEAD);
        let how = Element::from_code(element)
            .zip(Operation::from_code(operation))
            .filter(|(element, operation)| operation.is_defined_for(*element));
        let head = Head { how, place, length };
        // SAFETY: `length` was limited to what lies between the head and the ring's end; the origin does not
        // write there before the room is given back.
        let data = unsafe { std::slice::from_raw_parts(ring.wrapping_add(at + HEAD), length) };
        visit(head, data);
        self.read = self.read.wrapping_add(entry_bytes(length) as u32);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_in_order_epoch_by_epoch_and_the_ring_wraps() {
        let mut memory = vec![0_u64; 32];
        let ring = (memory.as_mut_ptr().cast::<u8>(), 256);
        let given_back = unisono_sync::atomics::AtomicU32::new(0);
        let (mut out, mut came) = (Out::default(), In::default());
        for epoch in 1..200_u32 {
            let lengths = [epoch as usize % 17, 8, epoch as usize % 5];
            let mut staged = 0;
            for (index, length) in lengths.into_iter().enumerate() {
                let head = Head { how: None, place: index as i64, length };
                staged +=
                    usize::from(out.stage(ring, &given_back, Stamp::fence(epoch), head, &[7; 17][..length]));
            }
            assert_eq!(staged, 3, "an empty ring of this size has room for three in epoch {epoch}");
            if epoch % 3 == 0 {
                let mut again = Vec::new();
                out.take_back(ring, Stamp::fence(epoch), |head, data| {
                    again.push((head.place, data.to_vec()));
                });
                assert_eq!(again.len(), 3, "taken back in epoch {epoch}");
                came.drain(ring, &given_back, Stamp::fence(epoch), |_, _| unreachable!("taken back"));
                continue;
            }
            out.commit();
            came.drain(ring, &given_back, Stamp::fence(epoch + 1), |_, _| unreachable!("another epoch"));
            let mut places = Vec::new();
            came.drain(ring, &given_back, Stamp::fence(epoch), |head, data| {
                assert_eq!(data, &[7; 17][..head.length]);
                places.push((head.place, head.length));
            });
            let expected: Vec<_> = lengths.iter().enumerate().map(|(at, n)| (at as i64, *n)).collect();
            assert_eq!(places, expected);
        }
    }

    #[test]
    fn a_full_ring_takes_no_more_until_room_is_given_back() {
        let mut memory = vec![0_u64; 32];
        let ring = (memory.as_mut_ptr().cast::<u8>(), 256);
        let given_back = unisono_sync::atomics::AtomicU32::new(0);
        let (mut out, mut came) = (Out::default(), In::default());
        let head = Head { how: None, place: 0, length: 16 };
        let mut staged = 0;
        while out.stage(ring, &given_back, Stamp::completion(1), head, &[0; 16]) {
            staged += 1;
        }
        assert_eq!(staged, 6);
        out.commit();
        let mut seen = 0;
        came.drain(ring, &given_back, Stamp::completion(1), |_, _| seen += 1);
        assert_eq!(seen, staged);
        assert!(out.stage(ring, &given_back, Stamp::completion(2), head, &[0; 16]));
    }
}
