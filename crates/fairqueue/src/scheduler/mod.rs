//! Hierarchical start-time fair queuing.
//!
//! Each class keeps a *virtual time*, the start tag of the child that it serves. A child that becomes
//! backlogged gets the start tag `max(virtual time, its last finish tag)`. When it is served, its finish tag
//! is its start tag plus the length of the packet divided by its weight. If it has more packets, that is its
//! next start tag. The child with the least start tag is served next. If that child has children itself, it
//! chooses among them in the same way. When no child is left to serve, the virtual time becomes the greatest
//! finish tag.
//!
//! Why start tags: the order does not depend on the speed of the link; on a shared machine that speed is
//! unknown. And a class is never punished for bandwidth that it used while its siblings were idle.
//!
//! Cost: on each level a packet inserts one child and takes one, among few siblings (`packed_queue.rs`) or in
//! a calendar of many (`calendar.rs`). Neither allocates. When the service of a packet ends, its classes are
//! inserted again on every level. A processor executes this for all levels in parallel; only the choices on
//! the way down depend on each other. Tags are exact: whole numbers in a unit that all siblings share
//! (`weight.rs`). Among equal tags the child that has waited longest is served first.
//!
//! Conventions: arrivals at the instant of a choice come before it, and an arrival exactly at the end of a
//! class's last packet begins a new busy period. So call [`finish`](Discipline::finish), then
//! [`enqueue`](Discipline::enqueue) for each arrival, then [`dequeue`](Discipline::dequeue).
//!
//! Reference: Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996), section 2; for the hierarchy
//! section 3 there, and QLinux in Pruthi et al., section 2.3.1.

mod ahead;
mod change;
mod class;
mod fetch;
mod hold;

pub use change::{ChangeError, Changes, Closed};

use crate::buffer_limits::BufferLimits;
use crate::calendar::Calendar;
use crate::discipline::{Backlog, Discipline, EnqueueError};
use crate::hierarchy::{ClassId, Hierarchy};
use crate::packed_queue::{MAX_PACKED, PackedQueue, TaggedSlot};
use crate::packet::Packet;
use crate::packet_queues::{NONE, PacketQueues};
use class::{Inner, Leaf, Sibling};
use std::collections::VecDeque;
use unisono_time::Instant;

/// The service that a class has received so far, and the number of its dropped packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Served {
    pub packets: u64,
    pub bytes: u64,
    pub dropped: u64,
}

impl std::ops::AddAssign for Served {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.dropped += other.dropped;
    }
}

/// The bit of a *slot* that marks an inner class. The slot of a leaf is its class number; the slot of an
/// inner class is this bit plus its index among the inner classes.
const INNER: u32 = 1 << 31;
const ROOT: u32 = INNER;
/// Beyond this virtual time all tags of a class are reduced by the same amount.
const MAX_NOW: u64 = 1 << 62;

#[derive(Clone, Debug)]
pub struct Scheduler<T> {
    hierarchy: Hierarchy,
    leaves: Vec<Leaf>,
    inner: Vec<Inner>,
    /// The slot of each class, by class number.
    slots: Vec<u32>,
    numbers: Vec<ClassId>,
    packed: Vec<PackedQueue>,
    calendars: Vec<Calendar>,
    queues: PacketQueues<T>,
    limits: BufferLimits,
    dropped: VecDeque<(ClassId, Packet<T>)>,
    in_service: Option<u32>,
    /// The bytes that the packet in service will be charged when its service ends.
    charged: u32,
    /// The part of `charged` that is already in the tags.
    paid: u32,
    waiting: Backlog,
    /// Whether the costs of the children of each inner class are exact.
    exact: Vec<bool>,
}

impl<T> Scheduler<T> {
    pub fn new(hierarchy: Hierarchy) -> Self {
        let mut inners = 0..;
        let slot = |(id, _): (ClassId, &_)| match hierarchy.is_leaf(id) {
            true => id.0,
            false => INNER | inners.next().expect("endless"),
        };
        let slots: Vec<u32> = hierarchy.classes().map(slot).collect();
        let mut this = Self {
            leaves: Vec::with_capacity(slots.len()),
            inner: Vec::new(),
            slots,
            numbers: Vec::new(),
            packed: Vec::new(),
            calendars: Vec::new(),
            queues: PacketQueues::new(),
            limits: BufferLimits::new(&hierarchy),
            dropped: VecDeque::new(),
            in_service: None,
            charged: 0,
            paid: 0,
            waiting: Backlog::default(),
            exact: Vec::new(),
            hierarchy,
        };
        let mut costs = vec![1; this.slots.len()];
        let mut places = vec![0; this.slots.len()];
        for (id, class) in this.hierarchy.classes() {
            let parent = match id {
                ClassId::ROOT => NONE,
                _ => this.slots[class.parent.index()] & !INNER,
            };
            let cost = costs[id.index()];
            let many = class.children.len() > MAX_PACKED;
            let place = places[id.index()];
            let child = Sibling { tag: 0, cost, parent, busy: false, held: false, place, many };
            let queue = this.queues.queue(class.order);
            let is_inner = !this.hierarchy.is_leaf(id);
            this.leaves.push(Leaf { child, queue, served: Served::default(), inner: is_inner });
            if !is_inner {
                continue;
            }
            this.numbers.push(id);
            let scale = this.hierarchy.scale(id);
            this.exact.push(scale.exact);
            let queue = number(if many { this.calendars.len() } else { this.packed.len() });
            if many {
                this.calendars.push(Calendar::new(class.children.len(), scale.span()));
            } else {
                let children: Vec<u32> =
                    class.children.iter().map(|child| this.slots[child.index()]).collect();
                this.packed.push(PackedQueue::new(&children));
            }
            // children come after their parents
            for (place, (child, cost)) in class.children.iter().zip(scale.costs).enumerate() {
                costs[child.index()] = cost;
                places[child.index()] = u8::try_from(place).unwrap_or(0); // unused if the children are many
            }
            this.inner.push(Inner {
                child,
                now: 0,
                last_finish: 0,
                last_tag: 0,
                last: NONE,
                queue,
                height: 1,
            });
        }
        for at in (1..this.inner.len()).rev() {
            // parents come before their children
            let above = this.inner[at].child.parent as usize;
            this.inner[above].height = this.inner[above].height.max(this.inner[at].height + 1);
        }
        this
    }

    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Returns whether the costs of all classes are exactly in inverse proportion to their weights, so that
    /// no tag is rounded.
    pub fn is_exact(&self) -> bool {
        self.exact.iter().all(|exact| *exact)
    }

    /// Returns the service that a class and all classes below it have received.
    pub fn served(&self, class: ClassId) -> Served {
        self.sum(class, |leaf| leaf.served)
    }

    /// Returns the backlog of a class and all classes below it. Visits every packet in them.
    pub fn waiting(&self, class: ClassId) -> Backlog {
        self.sum(class, |leaf| self.queues.waiting(&leaf.queue))
    }

    fn sum<S: Default + std::ops::AddAssign>(&self, class: ClassId, of: impl Fn(&Leaf) -> S) -> S {
        let (mut sum, mut open) = (S::default(), vec![class]);
        while let Some(at) = open.pop() {
            let children = &self.hierarchy.class(at).children;
            if children.is_empty() {
                sum += of(&self.leaves[at.index()]);
            }
            open.extend(children);
        }
        sum
    }

    #[inline]
    fn child(&mut self, slot: u32) -> &mut Sibling {
        match slot & INNER {
            0 => &mut self.leaves[slot as usize].child,
            _ => &mut self.inner[(slot & !INNER) as usize].child,
        }
    }

    #[inline]
    fn has_more(&self, slot: u32) -> bool {
        match slot & INNER {
            0 => !self.leaves[slot as usize].queue.is_empty(),
            _ => {
                let inner = &self.inner[(slot & !INNER) as usize];
                inner.last != NONE || !self.nobody_waits(inner)
            }
        }
    }

    #[inline]
    fn nobody_waits(&self, inner: &Inner) -> bool {
        match inner.child.many {
            true => self.calendars[inner.queue as usize].is_empty(),
            false => self.packed[inner.queue as usize].is_empty(),
        }
    }

    /// Inserts a child among the waiting children of a class.
    #[inline]
    fn enter(&mut self, parent: u32, place: u8, entry: TaggedSlot) {
        let inner = &self.inner[parent as usize];
        match inner.child.many {
            true => self.calendars[inner.queue as usize].insert(entry),
            false => self.packed[inner.queue as usize].insert(place, entry.tag),
        }
    }

    /// Takes a child out of the waiting children of a class.
    fn remove(&mut self, parent: u32, place: u8, entry: TaggedSlot) {
        let inner = &self.inner[parent as usize];
        match inner.child.many {
            true => self.calendars[inner.queue as usize].remove(entry),
            false => self.packed[inner.queue as usize].remove(place),
        }
    }

    #[inline]
    fn choose(&mut self, at: u32) -> Option<u32> {
        let inner = &mut self.inner[at as usize];
        let next = match inner.child.many {
            true => self.calendars[inner.queue as usize].take()?,
            false => self.packed[inner.queue as usize].take()?,
        };
        (inner.last, inner.last_tag, inner.now) = (next.slot, next.tag, next.tag);
        if next.tag > MAX_NOW {
            self.move_tags(at);
        }
        Some(next.slot)
    }

    /// Reduces all tags below a class, so that its virtual time becomes 0.
    #[cold]
    fn move_tags(&mut self, at: u32) {
        let inner = &mut self.inner[at as usize];
        let now = std::mem::take(&mut inner.now);
        let tag = |tag: u64| tag.saturating_sub(now);
        inner.last_tag = tag(inner.last_tag);
        inner.last_finish = tag(inner.last_finish);
        match inner.child.many {
            true => self.calendars[inner.queue as usize].rebuild(tag),
            false => self.packed[inner.queue as usize].change(tag),
        }
        for child in self.hierarchy.class(self.numbers[at as usize]).children.clone() {
            let child = self.child(self.slots[child.index()]);
            child.tag = tag(child.tag);
        }
    }

    /// Lets an idle class that has become backlogged wait among its siblings, and its idle ancestors with it.
    #[inline]
    fn wake(&mut self, mut slot: u32) {
        while slot != ROOT {
            let Sibling { tag, parent, busy, held, place, .. } = *self.child(slot);
            if busy || held || parent == NONE {
                return;
            }
            let start = self.inner[parent as usize].now.max(tag);
            self.enter(parent, place, TaggedSlot::new(start, slot));
            let child = self.child(slot);
            (child.tag, child.busy) = (start, true);
            slot = INNER | parent;
        }
    }

    /// Stops a class from waiting after its last packet was dropped, and each ancestor that has no packet
    /// left.
    fn stop_idle_ancestors(&mut self, mut slot: u32) {
        while slot != ROOT && self.child(slot).parent != NONE && self.child(slot).busy && !self.has_more(slot)
        {
            match self.stop_waiting(slot) {
                Some(parent) => slot = parent,
                None => return,
            }
        }
    }

    /// Takes a class out of its parent's queue and returns the parent's slot. Returns `None` if the class is
    /// in service.
    fn stop_waiting(&mut self, slot: u32) -> Option<u32> {
        let Sibling { tag, parent, place, .. } = *self.child(slot);
        if self.inner[parent as usize].last == slot {
            return None;
        }
        self.remove(parent, place, TaggedSlot::new(tag, slot));
        // the start tag may stay: it is no earlier than the last finish tag, and no later than any virtual
        // time from now on
        self.child(slot).busy = false;
        self.end_if_empty(parent);
        Some(INNER | parent)
    }

    /// Ends a class's busy period if no child waits or is in service.
    #[inline]
    fn end_if_empty(&mut self, at: u32) {
        let inner = &self.inner[at as usize];
        if inner.last == NONE && self.nobody_waits(inner) {
            let inner = &mut self.inner[at as usize];
            inner.now = inner.last_finish;
            if inner.child.many {
                self.calendars[inner.queue as usize].restart(inner.now);
            }
        }
    }

    /// Ends the service of the packet in service: charges its classes, and inserts again, among its siblings,
    /// each class that has more packets.
    #[inline]
    fn end_service(&mut self, leaf: u32) {
        let due = u64::from(self.charged).wrapping_sub(u64::from(self.paid));
        let Leaf { child, queue, .. } = &mut self.leaves[leaf as usize];
        let mut at = child.parent;
        if at == NONE {
            return;
        }
        let mut more = !child.held && !queue.is_empty();
        let (mut slot, mut place) = (leaf, child.place);
        let mut tag = self.inner[at as usize].end(due.wrapping_mul(child.cost));
        (child.tag, child.busy) = (tag, more);
        loop {
            if more {
                self.enter(at, place, TaggedSlot::new(tag, slot));
            } else {
                self.end_if_empty(at);
                more = !self.nobody_waits(&self.inner[at as usize]);
            }
            let Sibling { cost, parent, held, place: its_place, .. } = self.inner[at as usize].child;
            if parent == NONE {
                return;
            }
            more &= !held;
            tag = self.inner[parent as usize].end(due.wrapping_mul(cost));
            let child = &mut self.inner[at as usize].child;
            (child.tag, child.busy) = (tag, more);
            (slot, place, at) = (INNER | at, its_place, parent);
        }
    }

    fn drop_last(&mut self, at: usize) {
        let leaf = &mut self.leaves[at];
        let packet = self.queues.pop_last(&mut leaf.queue).expect("present because it was counted");
        leaf.served.dropped += 1;
        self.dequeued(at, packet.length);
        self.dropped.push_back((ClassId(number(at)), packet));
        self.stop_idle_ancestors(number(at));
    }

    #[inline]
    fn dequeued(&mut self, at: usize, length: u32) {
        self.waiting.packets -= 1;
        self.waiting.bytes -= u64::from(length);
        if !self.limits.is_empty() {
            self.limits.dequeued(at, length);
        }
    }

    /// Takes the first packet of a leaf into service. The leaf has been chosen on every level.
    #[inline]
    fn serve(&mut self, slot: u32) -> Option<(ClassId, Packet<T>)> {
        let at = slot as usize;
        let leaf = &mut self.leaves[at];
        let packet = self.queues.detach(&mut leaf.queue)?;
        let bytes = self.queues.length(packet);
        let length = u64::from(bytes);
        leaf.served.packets += 1;
        leaf.served.bytes += length;
        self.dequeued(at, bytes);
        self.in_service = Some(slot);
        (self.charged, self.paid) = (bytes, 0);
        self.fetch_next();
        Some((ClassId(slot), self.queues.take(packet)))
    }
}

impl<T> Discipline<T> for Scheduler<T> {
    #[inline]
    fn enqueue(&mut self, _now: Instant, class: ClassId, packet: Packet<T>) -> Result<(), EnqueueError> {
        let at = class.index();
        if self.leaves[at].inner {
            return Err(EnqueueError::NotALeaf { class: self.hierarchy.class(class).name.clone() });
        }
        let length = packet.length;
        if length > Packet::<T>::MAX_LENGTH {
            return Err(EnqueueError::TooLong { length, max: Packet::<T>::MAX_LENGTH });
        }
        if !self.limits.is_empty() {
            if self.limits.refuses(at, length) {
                self.leaves[at].served.dropped += 1;
                self.dropped.push_back((class, packet));
                return Ok(());
            }
            self.limits.enqueued(at, length);
        }
        self.waiting.packets += 1;
        self.waiting.bytes += u64::from(length);
        let leaf = &mut self.leaves[at];
        self.queues.push(&mut leaf.queue, packet);
        if !leaf.child.busy {
            self.wake(class.0);
        }
        if !self.limits.is_empty() {
            while let Some(longest) = self.limits.longest_to_drop(at) {
                self.drop_last(longest);
            }
        }
        Ok(())
    }

    #[inline]
    fn finish(&mut self, _now: Instant) {
        if let Some(leaf) = self.in_service.take() {
            self.end_service(leaf);
        }
    }

    #[inline]
    fn dequeue(&mut self, now: Instant) -> Option<(ClassId, Packet<T>)> {
        self.finish(now);
        let mut slot = self.slots[0];
        while slot & INNER != 0 {
            slot = self.choose(slot & !INNER)?; // `None` at the root only
        }
        self.serve(slot)
    }

    fn dropped(&mut self) -> Option<(ClassId, Packet<T>)> {
        self.dropped.pop_front()
    }

    fn backlog(&self) -> Backlog {
        self.waiting
    }
}

#[inline]
fn number(at: usize) -> u32 {
    u32::try_from(at).expect("a class has a number of 30 bits")
}
