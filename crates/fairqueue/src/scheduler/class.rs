//! The state of each class in the scheduler. A decision touches one cache line a level.

use super::{NONE, Served};
use crate::packet_queues::PacketQueue;

/// The data of a class that its parent's queue needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sibling {
    /// In the parent's virtual time: the start tag while the class waits or is in service, else the finish
    /// tag of its last packet.
    pub(super) tag: u64,
    /// The cost of a byte in the parent's virtual time.
    pub(super) cost: u64,
    /// The index of the parent among the inner classes, or `NONE` at the root.
    pub(super) parent: u32,
    /// Whether the class waits among its siblings or is in service.
    pub(super) busy: bool,
    /// Whether the class is held: it does not wait among its siblings even if it has packets.
    pub(super) held: bool,
    /// Its place among its siblings, if they are in a `PackedQueue`.
    pub(super) place: u8,
    /// For an inner class: whether its own children are in a `Calendar`.
    pub(super) many: bool,
}

/// The data of a leaf that a decision needs, in one cache line. An inner class has an unused one, with
/// `inner` set.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Leaf {
    pub(super) child: Sibling,
    pub(super) queue: PacketQueue,
    pub(super) served: Served,
    /// Whether the class is an inner class, so that this entry is unused.
    pub(super) inner: bool,
}

/// The data of an inner class that a decision needs, in one cache line; the queue of its children is
/// elsewhere.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Inner {
    pub(super) child: Sibling,
    /// The virtual time: the start tag of the child in service, or of the last one served.
    pub(super) now: u64,
    /// The greatest finish tag so far.
    pub(super) last_finish: u64,
    /// The start tag of the child in service.
    pub(super) last_tag: u64,
    /// The child in service, or `NONE`.
    pub(super) last: u32,
    /// The index of the children's queue in `packed` or `calendars`.
    pub(super) queue: u32,
    /// The number of levels below the class.
    pub(super) height: u32,
}

impl Inner {
    /// Ends the service of the child in service, whose packet costs `cost`. Returns the child's finish tag.
    #[inline]
    pub(super) fn end(&mut self, cost: u64) -> u64 {
        let tag = self.last_tag.wrapping_add(cost);
        self.last_finish = self.last_finish.max(tag);
        self.last = NONE;
        tag
    }
}
