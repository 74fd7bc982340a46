//! Payloads of events that have arrived: in this process's heap, or in the shared memory of a transport.
//! Clones share the same bytes, so a broker copies none.
//!
//! The memory of a payload is reused by the next payload of the same length in the same thread. Otherwise,
//! for each event, glibc's allocator would split 1 KB off a free block and merge it again, and would return
//! the end of the heap to the kernel.

use crate::transport::{PayloadRef, SharedPayload};
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// The payload of an event; clones share the same bytes.
#[derive(Clone, Debug, Default)]
pub struct EventBytes(PayloadPlace);

#[derive(Clone, Debug)]
enum PayloadPlace {
    Heap(HeapBytes),
    Shared(SharedPayload),
}

impl Default for PayloadPlace {
    fn default() -> Self {
        Self::Heap(HeapBytes::default())
    }
}

/// The maximum number of spare payloads per thread: twice the number of events that the broker takes from one
/// program in a turn.
const MAX_SPARE: usize = 128;
/// The maximum length of a spare payload. The memory of a larger payload is freed, so that a thread keeps at
/// most 2 MiB.
const MAX_SPARE_BYTES: usize = 16 << 10;

thread_local! {
    /// Memory of unused payloads, the most recent one last.
    static SPARE: RefCell<Vec<Arc<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes in this process's heap. `None`: there are none, and no memory is kept for them.
#[derive(Clone, Debug, Default)]
struct HeapBytes(Option<Arc<[u8]>>);

impl HeapBytes {
    #[inline]
    fn new(bytes: &[u8]) -> Self {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        if let Some(mut spare) = spare
            && spare.len() == bytes.len()
            && let Some(place) = Arc::get_mut(&mut spare)
        {
            place.copy_from_slice(bytes);
            return Self(Some(spare));
        }
        Self(Some(bytes.into()))
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Drop for HeapBytes {
    fn drop(&mut self) {
        let Some(mut bytes) = self.0.take() else { return };
        if bytes.len() > MAX_SPARE_BYTES || Arc::get_mut(&mut bytes).is_none() {
            return;
        }
        // a thread that is exiting keeps no memory
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MAX_SPARE {
                spare.push(bytes);
            }
        });
    }
}

impl EventBytes {
    /// Takes the payload in shared memory if there is one, or else copies `bytes`, the part of the frame
    /// after its head.
    #[inline]
    pub fn new(bytes: &[u8], shared_payload: Option<SharedPayload>) -> Self {
        Self(shared_payload.map_or_else(|| PayloadPlace::Heap(HeapBytes::new(bytes)), PayloadPlace::Shared))
    }

    #[must_use]
    #[inline]
    pub fn as_payload(&self) -> PayloadRef<'_> {
        match &self.0 {
            PayloadPlace::Heap(heap) => PayloadRef::Bytes(heap.bytes()),
            PayloadPlace::Shared(shared) => PayloadRef::Shared(shared),
        }
    }

    /// Returns the bytes, or a copy if another process can change them.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.0 {
            PayloadPlace::Heap(heap) => Cow::Borrowed(heap.bytes()),
            PayloadPlace::Shared(shared) => Cow::Owned(shared.to_vec()),
        }
    }

    /// Returns the bytes in place, in memory that another process can change, or `None` if the bytes are in
    /// this process's heap or cannot be read in place.
    #[must_use]
    pub fn in_place(&self) -> Option<&[AtomicU8]> {
        match &self.0 {
            PayloadPlace::Heap(_) => None,
            PayloadPlace::Shared(shared) => shared.0.in_place(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare() -> usize {
        SPARE.with(|spare| spare.borrow().len())
    }

    #[test]
    fn memory_is_used_again_only_when_nobody_reads_it_and_the_length_is_the_same() {
        let first = EventBytes::new(b"first", None);
        let reader = first.clone();
        drop(first);
        assert_eq!(spare(), 0, "somebody reads it");
        drop(reader);
        assert_eq!(spare(), 1);
        let second = EventBytes::new(b"2nd", None);
        assert_eq!((&*second.bytes(), spare()), (&b"2nd"[..], 0), "what is longer is given back");
        let place = second.bytes().as_ptr();
        drop(second);
        let third = EventBytes::new(b"3rd", None);
        assert_eq!((&*third.bytes(), spare()), (&b"3rd"[..], 0));
        assert_eq!(third.bytes().as_ptr(), place);
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_bound() {
        let bodies =
            |length: usize| (0..300).map(|_| EventBytes::new(&vec![7; length], None)).collect::<Vec<_>>();
        drop(bodies(1024));
        assert_eq!(spare(), MAX_SPARE);
        SPARE.with(|spare| spare.borrow_mut().clear());
        drop(bodies(MAX_SPARE_BYTES + 1));
        assert_eq!(spare(), 0);
    }
}
