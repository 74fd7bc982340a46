//! Changes weights and classes while packets wait.
//!
//! The *lead* of a class is how far its tag is ahead of its parent's virtual time: the service that the class
//! has received before its siblings. In bytes it is at most the longest packet of the class. A change keeps
//! the lead of each class in bytes, although weight and parent may change, and restarts all virtual times
//! from 0. So no class is further ahead than it could have been without the change; the fairness bound holds
//! for the new weights from the change on; and no class gains from changes. A new class has no lead.
//!
//! Tags are whole numbers in the unit of the siblings. In a new unit a lead loses the fraction of a unit,
//! less than a byte.
//!
//! Cost: as much as making a new scheduler, plus a move of every packet that waits. Another weight of one
//! class ([`Scheduler::set_weight`]) costs no more than a packet, however many siblings the class has, if a
//! byte costs the class a whole number in the unit of its siblings. Otherwise the siblings get another unit,
//! and all their tags change.

use super::{INNER, Inner, MAX_NOW, NONE, ROOT, Scheduler, Served, Sibling, number};
use crate::calendar::Calendar;
use crate::hierarchy::{ClassId, Hierarchy, Limit};
use crate::packed_queue::TaggedSlot;
use crate::weight::Weight;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    pub added: Vec<ClassId>,
    /// Leaves that are gone, or have children now.
    pub closed: Vec<Closed>,
}

/// The account of a leaf that takes no more packets.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Closed {
    pub name: String,
    pub served: Served,
    pub moved: u64,
}

/// Why the classes cannot be changed. After this error nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    #[error(
        "{packets} packets wait in class `{class}`. The new tree has no such leaf, and no default class for \
         them; add one of the two"
    )]
    NoDefault { class: String, packets: u64 },
}

impl<T> Scheduler<T> {
    /// Changes the weight of a class. No packet is lost. The class keeps its lead in bytes; with ten times
    /// the weight, its siblings catch up with that lead ten times as fast.
    pub fn set_weight(&mut self, class: ClassId, weight: Weight) {
        let before = std::mem::replace(&mut self.hierarchy.class_mut(class).weight, weight);
        if class == ClassId::ROOT {
            return;
        }
        let parent = self.hierarchy.class(class).parent;
        let at = self.slots[parent.index()] & !INNER;
        let slot = self.slots[class.index()];
        let cost = self.child(slot).cost;
        if self.exact[at as usize]
            && let Some(cost) = weight.cost_beside(before, cost)
        {
            self.set_cost(slot, cost);
            return;
        }
        let scale = self.hierarchy.scale(parent);
        let waiting = self.take_all(at);
        let Inner { now, last, .. } = self.inner[at as usize];
        let mut last_finish = 0;
        for (number, cost) in scale.costs.iter().enumerate() {
            let slot = self.slots[self.hierarchy.class(parent).children[number].index()];
            let child = self.child(slot);
            child.tag = in_unit(child.tag.saturating_sub(now), child.cost, *cost);
            child.cost = *cost;
            last_finish = last_finish.max(child.tag);
        }
        let last_tag = if last == NONE { 0 } else { self.child(last).tag };
        let inner = &mut self.inner[at as usize];
        (inner.now, inner.last_finish, inner.last_tag) = (0, last_finish, last_tag);
        if inner.child.many {
            self.calendars[inner.queue as usize] = Calendar::new(scale.costs.len(), scale.span());
        }
        self.enter_all(at, waiting);
        self.exact[at as usize] = scale.exact;
    }

    /// Changes the cost of a byte of one class, in the unit of its siblings. They keep their tags.
    fn set_cost(&mut self, slot: u32, cost: u64) {
        let Sibling { tag, cost: before, parent, busy, place, .. } = *self.child(slot);
        let Inner { now, last, .. } = self.inner[parent as usize];
        let waits = busy && last != slot;
        if waits {
            self.remove(parent, place, TaggedSlot::new(tag, slot));
        }
        let tag = now + in_unit(tag.saturating_sub(now), before, cost);
        let child = self.child(slot);
        (child.tag, child.cost) = (tag, cost);
        let inner = &mut self.inner[parent as usize];
        // it may stay beyond all tags: when no child waits, the virtual time becomes this, and no child has a
        // lead any more
        inner.last_finish = inner.last_finish.max(tag);
        if last == slot {
            inner.last_tag = tag;
        }
        if waits {
            self.enter(parent, place, TaggedSlot::new(tag, slot));
        }
    }

    /// Changes how much may wait in a class that has a limit, but not which packet is dropped beyond it. No
    /// waiting packet is dropped, as with [`Self::apply`]. Does nothing for a class without a limit.
    pub fn set_limit(&mut self, class: ClassId, limit: Limit) {
        let Some(present) = &mut self.hierarchy.class_mut(class).limit else { return };
        let limit = Limit { overflow: present.overflow, ..limit };
        if *present != limit {
            *present = limit;
            self.limits.set(class.index(), limit);
        }
    }

    /// Takes all waiting children of a class, in their order, without the child in service.
    fn take_all(&mut self, at: u32) -> Vec<u32> {
        let Inner { child, queue, .. } = &self.inner[at as usize];
        if child.many {
            let calendar = &mut self.calendars[*queue as usize];
            std::iter::from_fn(|| calendar.take()).map(|entry| entry.slot).collect()
        } else {
            let packed = &mut self.packed[*queue as usize];
            std::iter::from_fn(|| packed.take()).map(|entry| entry.slot).collect()
        }
    }

    /// Inserts children of a class by their tags; equal tags keep the order given.
    fn enter_all(&mut self, at: u32, slots: Vec<u32>) {
        let mut entries: Vec<TaggedSlot> =
            slots.into_iter().map(|slot| TaggedSlot::new(self.child(slot).tag, slot)).collect();
        entries.sort_by_key(|entry| entry.tag);
        for entry in entries {
            let place = self.child(entry.slot).place;
            self.enter(at, place, entry);
        }
    }

    /// Changes the classes while packets wait: weights, limits, orders, and the tree itself. Classes are
    /// matched by their names; afterwards class numbers refer to the new hierarchy.
    ///
    /// No packet is lost. A class that is still a leaf keeps its packets in their order. Packets of a class
    /// that is no longer a leaf move behind the packets of the default class, in their order. The backlog may
    /// then exceed a new limit. No waiting packet is dropped for that. But until enough packets have left, a
    /// packet that arrives is dropped itself, or causes the longest queue to drop about as many bytes as it
    /// adds. The packet in service stays in service. Fails if packets wait in a class that is gone or is no
    /// longer a leaf, and the new hierarchy has no default class.
    ///
    /// ```
    /// use unisono_fairqueue::{ClassSpec, Discipline, Hierarchy, Instant, Packet, Scheduler};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let link = |children: &[&str]| {
    ///     let children = children.iter().map(|name| ClassSpec::new(*name));
    ///     Hierarchy::new(ClassSpec::new("link").with(children))?.with_default("rest")
    /// };
    /// let mut scheduler = Scheduler::new(link(&["video"])?);
    /// let video = scheduler.hierarchy().find("video").ok_or("?")?;
    /// scheduler.enqueue(Instant::ZERO, video, Packet::new(1500, ()))?;
    /// let changes = scheduler.apply(link(&["voice"])?)?;
    /// assert_eq!((changes.closed[0].name.as_str(), changes.closed[0].moved), ("video", 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn apply(&mut self, hierarchy: Hierarchy) -> Result<Changes, ChangeError> {
        let places = NewSlots::new(&self.hierarchy, &hierarchy);
        for (at, class) in self.named_leaves() {
            let packets = self.queues.waiting(&self.leaves[at].queue).packets;
            if packets > 0 && places.home(at).is_none() {
                return Err(ChangeError::NoDefault { class: class.to_owned(), packets });
            }
        }
        let mut old = std::mem::replace(self, Self::new(hierarchy));
        old.pay();
        let mut changes = Changes { added: places.added(&self.hierarchy), closed: vec![] };
        let waited = self.take_leads(&mut old, &places);
        self.take_packets(&mut old, &places, &mut changes);
        self.in_service = old.in_service.and_then(|leaf| places.same[leaf as usize]);
        self.in_service = self.in_service.filter(|leaf| self.slots[*leaf as usize] & INNER == 0);
        (self.charged, self.paid) = (old.charged, old.paid);
        for (at, new) in places.same.iter().enumerate() {
            if let Some(new) = new {
                let held = old.child(old.slots[at]).held;
                self.child(self.slots[*new as usize]).held = held;
            }
        }
        self.want_service(waited);
        Ok(changes)
    }

    /// Charges the packet in service before its service ends, so that the tags of the new tree include it.
    fn pay(&mut self) {
        let due = u64::from(self.charged).wrapping_sub(u64::from(self.paid));
        let mut slot = self.in_service.unwrap_or(ROOT);
        while slot != ROOT {
            let child = self.child(slot);
            child.tag = child.tag.wrapping_add(due.wrapping_mul(child.cost));
            slot = if child.parent == NONE { ROOT } else { INNER | child.parent };
        }
        self.paid = self.charged;
    }

    fn named_leaves(&self) -> impl Iterator<Item = (usize, &str)> {
        let leaves = self.hierarchy.classes().filter(|(id, _)| self.hierarchy.is_leaf(*id));
        leaves.map(|(id, class)| (id.index(), class.name.as_str()))
    }

    /// Copies the leads of all classes from the old scheduler. Returns the new slots of the classes that
    /// waited, in their order.
    fn take_leads(&mut self, old: &mut Self, places: &NewSlots) -> Vec<u32> {
        let mut waited = vec![];
        let new_slot = |old: &Self, slot: u32, this: &Self| {
            let id = if slot & INNER == 0 { slot } else { old.numbers[(slot & !INNER) as usize].0 };
            places.same[id as usize].map(|new| this.slots[new as usize])
        };
        for at in 0..number(old.inner.len()) {
            let Inner { now, .. } = old.inner[at as usize];
            for child in old.hierarchy.class(old.numbers[at as usize]).children.clone() {
                let from = *old.child(old.slots[child.index()]);
                let Some(new) = places.same[child.index()] else { continue };
                let to = self.child(self.slots[new as usize]);
                to.tag = in_unit(from.tag.saturating_sub(now), from.cost, to.cost);
            }
            waited.extend(old.take_all(at).into_iter().filter_map(|slot| new_slot(old, slot, self)));
        }
        waited
    }

    /// Moves the packets and the service counters of all leaves.
    fn take_packets(&mut self, old: &mut Self, places: &NewSlots, changes: &mut Changes) {
        let leaves: Vec<(usize, String)> =
            old.named_leaves().map(|(at, name)| (at, name.to_owned())).collect();
        let stays = |at: usize| places.same[at].is_some() && places.same[at] == places.home(at);
        // first the leaves that keep their packets, so that packets from other leaves queue behind these
        for (at, _) in leaves.iter().filter(|(at, _)| stays(*at)) {
            self.take_line(old, *at, places);
            if let Some(to) = places.home(*at) {
                self.leaves[to as usize].served = old.leaves[*at].served;
            }
        }
        for (at, name) in leaves.into_iter().filter(|(at, _)| !stays(*at)) {
            let moved = self.take_line(old, at, places);
            changes.closed.push(Closed { name, served: old.leaves[at].served, moved });
        }
        self.waiting = old.waiting;
        for (at, leaf) in self.leaves.iter().enumerate() {
            self.limits.start(at, self.queues.waiting(&leaf.queue));
        }
        let class = |id: ClassId| places.same[id.index()].or(places.default).unwrap_or(ClassId::ROOT.0);
        self.dropped = old.dropped.drain(..).map(|(id, packet)| (ClassId(class(id)), packet)).collect();
    }

    /// Moves the packets of a leaf behind the packets of its new leaf. Returns their number.
    fn take_line(&mut self, old: &mut Self, at: usize, places: &NewSlots) -> u64 {
        let Some(home) = places.home(at) else { return 0 };
        let mut packets = 0;
        while let Some(packet) = old.queues.pop(&mut old.leaves[at].queue) {
            self.queues.push(&mut self.leaves[home as usize].queue, packet);
            packets += 1;
        }
        packets
    }

    /// Inserts, among its siblings, every class that has packets: first the classes that waited before, in
    /// their order, then the others.
    fn want_service(&mut self, waited: Vec<u32>) {
        let mut slot = self.in_service.unwrap_or(ROOT);
        while slot != ROOT {
            let Sibling { tag, parent, .. } = *self.child(slot);
            if parent == NONE {
                break;
            }
            self.child(slot).busy = true;
            let inner = &mut self.inner[parent as usize];
            (inner.last, inner.last_tag) = (slot, tag);
            slot = INNER | parent;
        }
        let mut ranks = vec![usize::MAX; self.slots.len()];
        for (rank, slot) in waited.into_iter().enumerate() {
            let id = if slot & INNER == 0 { ClassId(slot) } else { self.numbers[(slot & !INNER) as usize] };
            ranks[id.index()] = rank;
        }
        // children come after their parents
        for at in (0..number(self.inner.len())).rev() {
            let mut children = self.hierarchy.class(self.numbers[at as usize]).children.clone();
            children.sort_by_key(|child| ranks[child.index()]); // stable
            let mut waiting = vec![];
            for child in children {
                let slot = self.slots[child.index()];
                let more = self.has_more(slot);
                let child = self.child(slot);
                let tag = child.tag;
                if more && !child.busy && !child.held {
                    child.busy = true;
                    waiting.push(slot);
                }
                let inner = &mut self.inner[at as usize];
                inner.last_finish = inner.last_finish.max(tag);
            }
            self.enter_all(at, waiting);
            self.end_if_empty(at);
        }
    }
}

/// The mapping of classes from the old hierarchy to the new one.
struct NewSlots {
    /// For each old class, the number of the new class of the same name.
    same: Vec<Option<u32>>,
    /// For each new class, whether it is a leaf.
    leaf: Vec<bool>,
    /// The new class for packets whose class is gone.
    default: Option<u32>,
}

impl NewSlots {
    fn new(old: &Hierarchy, new: &Hierarchy) -> Self {
        let same = old.classes().map(|(id, class)| match id {
            ClassId::ROOT => Some(0),
            _ => new.find(&class.name).filter(|id| *id != ClassId::ROOT).map(|id| id.0),
        });
        let same = same.collect();
        let leaf: Vec<bool> = new.classes().map(|(id, _)| new.is_leaf(id)).collect();
        let only = Some(ClassId::ROOT).filter(|root| new.is_leaf(*root));
        Self { same, leaf, default: new.default_class().or(only).map(|id| id.0) }
    }

    /// Returns the new leaf for the packets of an old leaf.
    fn home(&self, leaf: usize) -> Option<u32> {
        self.same[leaf].filter(|at| self.leaf[*at as usize]).or(self.default)
    }

    fn added(&self, new: &Hierarchy) -> Vec<ClassId> {
        let mut known = vec![false; self.leaf.len()];
        for at in self.same.iter().flatten() {
            known[*at as usize] = true;
        }
        new.classes().map(|(id, _)| id).filter(|id| !known[id.index()]).collect()
    }
}

/// Converts a distance between tags to another cost of a byte; the distance in bytes stays the same.
fn in_unit(ahead: u64, cost: u64, new_cost: u64) -> u64 {
    let ahead = u128::from(ahead) * u128::from(new_cost) / u128::from(cost);
    u64::try_from(ahead).unwrap_or(MAX_NOW).min(MAX_NOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::Discipline;
    use crate::hierarchy::ClassSpec;
    use crate::packet::Packet;
    use unisono_time::Instant;

    #[test]
    fn another_weight_of_one_class_of_many_leaves_the_tags_of_its_siblings() {
        let weight = |weight: &str| weight.parse().expect("a weight");
        let class = |number: u32| ClassSpec::new(format!("c{number}")).weighing(weight("6"));
        let tree = Hierarchy::new(ClassSpec::new("link").with((0..100).map(class))).expect("unique names");
        let mut scheduler = Scheduler::new(tree);
        let classes: Vec<ClassId> = scheduler.hierarchy().classes().skip(1).map(|(id, _)| id).collect();
        for class in classes.iter().chain(&classes) {
            scheduler.enqueue(Instant::ZERO, *class, Packet::new(500, ())).expect("a leaf");
        }
        for _ in 0..150 {
            scheduler.dequeue(Instant::ZERO).expect("packets wait");
        }
        let tags = |scheduler: &Scheduler<()>| -> Vec<u64> {
            let others = classes.iter().filter(|class| **class != classes[7]);
            others.map(|class| scheduler.leaves[class.index()].child.tag).collect()
        };
        let before = tags(&scheduler);
        assert!(before.iter().any(|tag| *tag > 0));
        // first a unit in which all weights fit, which the first siblings had not; then only the class's own
        scheduler.set_weight(classes[7], weight("4"));
        let rescaled = tags(&scheduler);
        assert_ne!(rescaled, before);
        for other in ["6", "2", "12", "4"] {
            scheduler.set_weight(classes[7], weight(other));
            assert_eq!(tags(&scheduler), rescaled, "{other}");
        }
    }
}
