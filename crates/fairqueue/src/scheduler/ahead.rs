//! Service out of turn, and service that turns out longer or shorter than the packet's length.
//!
//! Out of turn: a class may be served although its start tag is not the least. It is charged as usual, and so
//! waits longer afterwards: it gets the same share, but earlier. The caller sets by how many bytes a class
//! may be ahead; the fairness bound grows by that number.
//!
//! Different length: start-time fair queuing needs the length of a packet only when its service ends. So a
//! quantum of a processor may end early, and the caller may choose which request of a class it serves.
//!
//! Alone: while only one leaf has packets, its next packet is served whatever the tags are. Then
//! [`serve_again`](Scheduler::serve_again) advances the tags as usual without touching a queue.

use super::class::Leaf;
use super::{INNER, MAX_NOW, NONE, Scheduler, Sibling};
use crate::discipline::Discipline;
use crate::hierarchy::ClassId;
use crate::packed_queue::TaggedSlot;
use crate::packet::Packet;
use unisono_time::Instant;

impl<T> Scheduler<T> {
    /// Takes the first packet of a leaf into service out of turn. Returns `None` if the leaf has no packet,
    /// or if on some level the class is ahead of its parent's virtual time by more than `max_bytes` bytes
    /// (not counting the packet itself).
    pub fn dequeue_ahead(&mut self, now: Instant, class: ClassId, max_bytes: u32) -> Option<Packet<T>> {
        self.finish(now);
        let leaf = self.slots[class.index()];
        if leaf & INNER != 0 || !self.has_more(leaf) {
            return None;
        }
        let mut slot = leaf;
        loop {
            let Sibling { tag, cost, parent, busy, held, .. } = *self.child(slot);
            let Some(inner) = self.inner.get(parent as usize) else { break };
            if !busy || held || tag.saturating_sub(inner.now) > u64::from(max_bytes) * cost {
                return None;
            }
            slot = INNER | parent;
        }
        slot = leaf;
        loop {
            let Sibling { tag, parent, place, .. } = *self.child(slot);
            if parent == NONE {
                break;
            }
            self.remove(parent, place, TaggedSlot::new(tag, slot));
            let inner = &mut self.inner[parent as usize];
            (inner.last, inner.last_tag) = (slot, tag);
            slot = INNER | parent;
        }
        self.serve(leaf).map(|(_, packet)| packet)
    }

    /// Charges the packet in service for `length` instead of its own length.
    pub fn charge(&mut self, length: u32) {
        let Some(leaf) = self.in_service else { return };
        let charged = std::mem::replace(&mut self.charged, length);
        let served = &mut self.leaves[leaf as usize].served;
        served.bytes = served.bytes - u64::from(charged) + u64::from(length);
    }

    /// Ends the service of a packet and takes the next one of the same leaf into service: a packet of
    /// `length` bytes that has just arrived and is not stored here. The state is then the same as after
    /// [`enqueue`](Discipline::enqueue) and [`dequeue`](Discipline::dequeue) of that packet. Returns false,
    /// and changes nothing, if other packets wait, if the leaf or a class above it is held, if any class of
    /// the tree has a limit, if one of the classes above the leaf has too many children for
    /// `packed_queue.rs`, or if the tags have grown so large that they have to be reduced.
    #[inline]
    pub fn serve_again(&mut self, length: u32) -> bool {
        let Some(slot) = self.in_service else { return false };
        let due = u64::from(self.charged).wrapping_sub(u64::from(self.paid));
        let Leaf { child, queue, .. } = &self.leaves[slot as usize];
        if !queue.is_empty() || !self.limits.is_empty() {
            return false;
        }
        let mut child = *child;
        while let Some(inner) = self.inner.get(child.parent as usize) {
            let tag = inner.last_tag.wrapping_add(due.wrapping_mul(child.cost));
            if child.held || inner.child.many || tag > MAX_NOW || !self.nobody_waits(inner) {
                return false;
            }
            child = inner.child;
        }
        let Leaf { child, served, .. } = &mut self.leaves[slot as usize];
        served.packets += 1;
        served.bytes += u64::from(length);
        let (mut slot, mut at, mut cost) = (slot, child.parent, child.cost);
        while let Some(inner) = self.inner.get_mut(at as usize) {
            let tag = inner.end(due.wrapping_mul(cost));
            (inner.last, inner.last_tag, inner.now) = (slot, tag, tag);
            let above = (INNER | at, inner.child.parent, inner.child.cost);
            self.child(slot).tag = tag;
            (slot, at, cost) = above;
        }
        (self.charged, self.paid) = (length, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::{ClassId, ClassSpec, Discipline, Hierarchy, Packet, Scheduler};
    use unisono_time::Instant;

    fn two() -> (Scheduler<u32>, [ClassId; 2]) {
        let tree = Hierarchy::new(ClassSpec::new("link").with([ClassSpec::new("a"), ClassSpec::new("b")]));
        let tree = tree.expect("unique names");
        let ids = ["a", "b"].map(|name| tree.find(name).expect("it is there"));
        (Scheduler::new(tree), ids)
    }

    #[test]
    fn who_is_served_out_of_turn_waits_for_it_afterwards() {
        let (mut scheduler, [a, b]) = two();
        for item in 0..6 {
            scheduler.enqueue(Instant::ZERO, a, Packet::new(100, item)).expect("a leaf");
            scheduler.enqueue(Instant::ZERO, b, Packet::new(100, 10 + item)).expect("a leaf");
        }
        let ahead = |scheduler: &mut Scheduler<u32>| {
            scheduler.dequeue_ahead(Instant::ZERO, b, 200).map(|packet| packet.item)
        };
        assert_eq!(
            [ahead(&mut scheduler), ahead(&mut scheduler), ahead(&mut scheduler)],
            [Some(10), Some(11), Some(12)]
        );
        assert_eq!(ahead(&mut scheduler), None, "it is 300 bytes ahead");
        let order: Vec<u32> =
            std::iter::from_fn(|| scheduler.dequeue(Instant::ZERO)).map(|(_, packet)| packet.item).collect();
        // class `a` first catches up with three packets, then both classes take turns, and `a` begins because
        // it was inserted first
        assert_eq!(order, [0, 1, 2, 13, 3, 14, 4, 15, 5]);
        assert_eq!(scheduler.dequeue_ahead(Instant::ZERO, a, u32::MAX), None, "nothing waits");
    }

    /// Returns the order of quanta if class a uses half of each of its quanta.
    fn halves(meanwhile: impl Fn(&mut Scheduler<u32>)) -> Vec<u32> {
        let (mut scheduler, [a, b]) = two();
        for item in 0..4 {
            scheduler.enqueue(Instant::ZERO, a, Packet::new(100, item)).expect("a leaf");
            scheduler.enqueue(Instant::ZERO, b, Packet::new(100, 10 + item)).expect("a leaf");
        }
        let mut order = vec![];
        while let Some((class, packet)) = scheduler.dequeue(Instant::ZERO) {
            meanwhile(&mut scheduler);
            if class == a {
                scheduler.charge(50);
            }
            order.push(packet.item);
        }
        assert_eq!((scheduler.served(a).bytes, scheduler.served(b).bytes), (200, 400));
        order
    }

    #[test]
    fn what_a_quantum_did_not_use_is_not_charged() {
        assert_eq!(halves(|_| ()), [0, 10, 1, 11, 2, 3, 12, 13]);
    }

    #[test]
    fn nor_is_it_if_the_classes_change_before_that_is_known() {
        let again = |scheduler: &mut Scheduler<u32>| {
            scheduler.apply(scheduler.hierarchy().clone()).expect("nothing moves");
        };
        assert_eq!(halves(again), [0, 10, 1, 11, 2, 3, 12, 13]);
    }
}
