//! Rings with a power of two of entries, written by one side and read by the other.

use crate::mapping::Mapping;
use rustix::mm::MapFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A ring in memory shared with the kernel. `T` is the type of an entry: plain numbers.
#[derive(Debug)]
pub(super) struct XdpRing<T> {
    /// The memory that the pointers refer to.
    _memory: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    /// This process's position; the other side sees it after `publish`.
    mine: u32,
    /// The other side's position when it was last read.
    theirs: u32,
}

// SAFETY: the mapping belongs to the process; a ring is used through one exclusive reference at a time.
unsafe impl<T: Send> Send for XdpRing<T> {}

/// The offsets of a ring's parts, as reported by the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLayout {
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) entries: u64,
}

/// A ring that this process fills and the kernel empties.
#[derive(Debug)]
pub(super) struct Producer<T>(XdpRing<T>);

/// A ring that the kernel fills and this process empties.
#[derive(Debug)]
pub(super) struct Consumer<T>(XdpRing<T>);

impl<T: Copy> XdpRing<T> {
    fn map(socket: &OwnedFd, page: u64, layout: RingLayout, size: u32) -> io::Result<Self> {
        assert!(size.is_power_of_two(), "rings have a power of two entries");
        let bytes = layout.entries as usize + size as usize * size_of::<T>();
        let memory = Mapping::shared(socket.as_fd(), page, bytes, MapFlags::POPULATE)?;
        let at = |offset: u64| {
            // SAFETY: the kernel's offsets lie within the mapping, whose length was computed from the
            // greatest offset.
            unsafe { memory.start().add(offset as usize) }
        };
        Ok(Self {
            producer: at(layout.producer).cast(),
            consumer: at(layout.consumer).cast(),
            entries: at(layout.entries).cast(),
            _memory: memory,
            mask: size - 1,
            mine: 0,
            theirs: 0,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: an aligned word in the mapping, which lives as long as `self`.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: an aligned word in the mapping, which lives as long as `self`.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, at: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the index below the number of entries.
        unsafe { self.entries.add((at & self.mask) as usize) }
    }
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(socket: &OwnedFd, page: u64, layout: RingLayout, size: u32) -> io::Result<Self> {
        XdpRing::map(socket, page, layout, size).map(Self)
    }

    /// Returns the number of free entries; reads the kernel's position only if fewer than `wanted` are known.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let ring = &mut self.0;
        let size = ring.mask + 1;
        let room = size - ring.mine.wrapping_sub(ring.theirs);
        if room >= wanted {
            return room;
        }
        // SYNC(xdp-ring) acquire: the kernel has read the entries that this side is about to overwrite
        ring.theirs = ring.consumer().load(Ordering::Acquire);
        size - ring.mine.wrapping_sub(ring.theirs)
    }

    /// Writes an entry for the kernel, which sees it after [`publish`](Self::publish); there must be room.
    pub(super) fn put(&mut self, entry: T) {
        let ring = &mut self.0;
        assert!(ring.mine.wrapping_sub(ring.theirs) <= ring.mask, "the caller has looked for room");
        let at = ring.entry(ring.mine);
        // SAFETY: the kernel does not read an entry between its own position and ours before it is published.
        unsafe { at.write_volatile(entry) };
        ring.mine = ring.mine.wrapping_add(1);
    }

    pub(super) fn publish(&mut self) {
        // SYNC(xdp-ring) release: the entries were written before the kernel sees the new position
        self.0.producer().store(self.0.mine, Ordering::Release);
    }
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(socket: &OwnedFd, page: u64, layout: RingLayout, size: u32) -> io::Result<Self> {
        XdpRing::map(socket, page, layout, size).map(Self)
    }

    /// Takes at most `max` entries, and tells the kernel that it may reuse their places.
    pub(super) fn take(&mut self, max: usize, mut each: impl FnMut(T)) -> usize {
        let ring = &mut self.0;
        if ring.theirs == ring.mine {
            // SYNC(xdp-ring) acquire: the entries were written before the kernel moved its position
            ring.theirs = ring.producer().load(Ordering::Acquire);
        }
        let ready = ring.theirs.wrapping_sub(ring.mine).min(ring.mask + 1) as usize;
        let count = ready.min(max);
        for _ in 0..count {
            // SAFETY: the kernel has published this entry and does not write it again until our position
            // moves on.
            let entry = unsafe { ring.entry(ring.mine).read_volatile() };
            ring.mine = ring.mine.wrapping_add(1);
            each(entry);
        }
        if count > 0 {
            // SYNC(xdp-ring) release: this side has read the entries before the kernel may overwrite them
            ring.consumer().store(ring.mine, Ordering::Release);
        }
        count
    }
}
