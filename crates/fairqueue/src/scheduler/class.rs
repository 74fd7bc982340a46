//! The state of each class in the scheduler, laid out so that a decision touches one cache line for each
//! level.

use super::{NONE, Served};
use crate::lines::PacketLine;

/// A class as one of its parent's children.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sibling {
    /// In its parent's virtual time: while it waits or is in service its start tag, else the finish tag of
    /// its last packet.
    pub(super) tag: u64,
    /// What a byte costs in its parent's virtual time.
    pub(super) cost: u64,
    /// Which inner class it is part of; the root's is NONE.
    pub(super) parent: u32,
    /// Whether it waits among those that want service, or is in service.
    pub(super) busy: bool,
    /// Whether it is held: it does not wait there even if packets wait in it.
    pub(super) held: bool,
    /// Its place among its siblings, if they are few.
    pub(super) place: u8,
    /// If it has children itself: whether they are many, in a calendar.
    pub(super) many: bool,
}

/// What a decision needs of a leaf: one cache line. An inner class has one, too, which names it.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Leaf {
    pub(super) child: Sibling,
    pub(super) line: PacketLine,
    pub(super) served: Served,
    /// Whether it is none.
    pub(super) inner: bool,
}

/// What a decision needs of a class with children: one cache line, and the children that want service.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Inner {
    pub(super) child: Sibling,
    /// The virtual time: the start tag of the child in service, or of the last one.
    pub(super) now: u64,
    /// The greatest finish tag so far.
    pub(super) last_finish: u64,
    /// The start tag of the child in service.
    pub(super) last_tag: u64,
    /// The child in service, or none.
    pub(super) last: u32,
    /// Which of the fews or of the calendars has the children that wait.
    pub(super) queue: u32,
    /// How many levels there are below it, at most.
    pub(super) height: u32,
}

impl Inner {
    /// The child in service has been served, at this cost. Returns its finish tag.
    #[inline]
    pub(super) fn end(&mut self, cost: u64) -> u64 {
        let tag = self.last_tag.wrapping_add(cost);
        self.last_finish = self.last_finish.max(tag);
        self.last = NONE;
        tag
    }
}
