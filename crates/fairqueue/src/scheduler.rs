//! Hierarchical start-time fair queuing.
//!
//! Each class keeps a *virtual time*, the start tag of the child it serves. A child that begins to want service
//! gets the start tag `max(virtual time, its last finish tag)`; when it is served, its finish tag is its start
//! tag plus the length of the packet over its weight; if it wants more, that is its next start tag. The child with
//! the least start tag is served next, and if it has children itself it decides among them in the same way.
//! When nothing is left to serve, the virtual time becomes the greatest finish tag.
//!
//! Why start tags: the order does not depend on how fast the link is, which on a shared machine nobody knows,
//! and a class is never punished for bandwidth that it used while nobody else wanted it.
//!
//! Cost: a packet takes one exchange a level, in a list (few siblings) or a calendar (many), none of which allocates.
//! A class that has been served and wants more is entered among its siblings only when the next of them is
//! chosen (or another one is entered), so that a decision looks at each class on its way once. Exact: tags are whole
//! numbers in a unit that all siblings share (`weight.rs`); ties go to the child that has waited longest.
//!
//! Conventions: arrivals at the instant of a choice come before it, and an arrival exactly at the end of a
//! class's last packet begins a new busy period: so call [`finish`](Discipline::finish), then
//! [`enqueue`](Discipline::enqueue) what has arrived, then [`dequeue`](Discipline::dequeue).
//!
//! Reference: Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996), section 2; the hierarchy: section 3
//! there, and QLinux in Pruthi et al., section 2.3.1.

mod ahead;
mod change;
mod hold;

pub use change::{ChangeError, Changes, Closed};

use crate::calendar::Calendar;
use crate::discipline::{Backlog, Discipline, EnqueueError};
use crate::few::{self, Entry, FEW};
use crate::hierarchy::{ClassId, Hierarchy};
use crate::limits::Limits;
use crate::lines::{Line, Lines, NONE};
use crate::packet::Packet;
use std::collections::VecDeque;
use unisono_sync::prefetch;

/// What a class has got so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    /// Packets chosen for service.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped.
    pub dropped: u64,
}

impl std::ops::AddAssign for Served {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.dropped += other.dropped;
    }
}

/// A class among its siblings: a leaf by its number, an inner one by its number among the inner ones and this bit.
const INNER: u32 = 1 << 31;
const ROOT: u32 = INNER;
/// Beyond this virtual time tags are moved back, all by the same amount.
const MOST_NOW: u64 = 1 << 62;
/// From so many classes on they do not fit the cache, and asking for their memory early pays.
const LARGE: usize = 8192;

/// A class as one of its parent's children.
#[derive(Clone, Copy, Debug)]
struct Child {
    /// In its parent's virtual time: while it waits its start tag, else the finish tag of its last packet.
    tag: u64,
    /// What a byte costs in its parent's virtual time.
    cost: u64,
    /// Which inner class it is part of; the root's is NONE.
    parent: u32,
    /// Whether it waits among those that want service, or is in service.
    busy: bool,
    /// Whether it may not wait there, whatever waits in it.
    held: bool,
    /// If it has children itself: how many of them are in its list, or [`MANY`] if they are in a calendar.
    list: u8,
}

/// What a decision needs of a leaf: one cache line. An inner class has one, too, which says which it is.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Leaf {
    child: Child,
    line: Line,
    served: Served,
}

/// What a decision needs of a class with children: one cache line, and the list of those that want service.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Inner {
    child: Child,
    /// The virtual time: the start tag of the child in service, or of the last one.
    now: u64,
    /// The greatest finish tag so far.
    last_finish: u64,
    /// The start tag, then the finish tag of the child chosen last, while it is in service or wants more and has not
    /// been entered among those that wait.
    last_tag: u64,
    /// In which service it was chosen; while that lasts it is not to be entered yet.
    service: u64,
    /// The child chosen last, or none if it wants no more or has been entered.
    last: u32,
    /// Where its list of waiting children begins, or its calendar.
    queue: u32,
}

const MANY: u8 = u8::MAX;

impl Inner {
    /// The child in service costs so much; answers its finish tag.
    #[inline]
    fn charge(&mut self, cost: u64) -> u64 {
        let tag = self.last_tag + cost;
        self.last_tag = tag;
        self.last_finish = self.last_finish.max(tag);
        tag
    }
}

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Scheduler<T> {
    hierarchy: Hierarchy,
    leaves: Vec<Leaf>,
    inner: Vec<Inner>,
    /// For each class: itself among its siblings.
    slots: Vec<u32>,
    /// The inner classes' numbers.
    numbers: Vec<ClassId>,
    /// The lists of all classes with few children.
    lists: Vec<Entry>,
    calendars: Vec<Calendar>,
    lines: Lines<T>,
    limits: Limits,
    dropped: VecDeque<(ClassId, Packet<T>)>,
    in_service: Option<u32>,
    /// What the packet in service costs its classes.
    charged: u32,
    /// Counts what has been in service.
    service: u64,
    /// Whether a class has been held while its packet was in service.
    held_in_service: bool,
    waiting: Backlog,
    exact: bool,
}

impl<T> Scheduler<T> {
    /// A scheduler without packets.
    #[must_use]
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
            lists: Vec::new(),
            calendars: Vec::new(),
            lines: Lines::new(),
            limits: Limits::of(&hierarchy),
            dropped: VecDeque::new(),
            in_service: None,
            charged: 0,
            service: 0,
            held_in_service: false,
            waiting: Backlog::default(),
            exact: true,
            hierarchy,
        };
        let mut costs = vec![1; this.slots.len()];
        for (id, class) in this.hierarchy.classes() {
            let parent = match id {
                ClassId::ROOT => NONE,
                _ => this.slots[class.parent.index()] & !INNER,
            };
            let cost = costs[id.index()];
            let mut child = Child { tag: 0, cost, parent, busy: false, held: false, list: 0 };
            let line = this.lines.line(class.order);
            this.leaves.push(Leaf { child, line, served: Served::default() });
            if this.hierarchy.is_leaf(id) {
                continue;
            }
            this.numbers.push(id);
            let scale = this.hierarchy.scale(id);
            this.exact &= scale.exact;
            let queue = if class.children.len() <= FEW {
                let from = this.lists.len();
                this.lists.resize(from + class.children.len(), Entry::default());
                from
            } else {
                child.list = MANY;
                this.calendars.push(Calendar::new(class.children.len(), scale.span()));
                this.calendars.len() - 1
            };
            for (child, cost) in class.children.iter().zip(scale.costs) {
                costs[child.index()] = cost; // children come after their parents
            }
            let queue = number(queue);
            this.inner.push(Inner {
                child,
                now: 0,
                last_finish: 0,
                last_tag: 0,
                service: 0,
                last: NONE,
                queue,
            });
        }
        this
    }

    /// The classes.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Whether costs relate exactly as weights do everywhere, so that no tag is rounded.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// What a class and all below it have got.
    #[must_use]
    pub fn served(&self, class: ClassId) -> Served {
        self.sum(class, |leaf| leaf.served)
    }

    /// What waits in a class and all below it. Counts the packets one by one.
    #[must_use]
    pub fn waiting(&self, class: ClassId) -> Backlog {
        self.sum(class, |leaf| self.lines.waiting(&leaf.line))
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
    fn child(&mut self, slot: u32) -> &mut Child {
        match slot & INNER {
            0 => &mut self.leaves[slot as usize].child,
            _ => &mut self.inner[(slot & !INNER) as usize].child,
        }
    }

    #[inline]
    fn has_more(&self, slot: u32) -> bool {
        match slot & INNER {
            0 => !self.leaves[slot as usize].line.is_empty(),
            _ => {
                let inner = &self.inner[(slot & !INNER) as usize];
                inner.last != NONE || !self.nobody_waits(inner)
            }
        }
    }

    #[inline]
    fn nobody_waits(&self, inner: &Inner) -> bool {
        match inner.child.list {
            MANY => self.calendars[inner.queue as usize].is_empty(),
            waiting => waiting == 0,
        }
    }

    /// Enters a child among those of a class that wait.
    #[inline]
    fn enter(&mut self, parent: u32, entry: Entry) {
        let inner = &mut self.inner[parent as usize];
        match &mut inner.child.list {
            &mut MANY => self.calendars[inner.queue as usize].insert(entry),
            waiting => {
                *waiting += 1;
                let from = inner.queue as usize;
                few::insert(&mut self.lists[from..from + usize::from(*waiting)], entry);
            }
        }
    }

    /// Takes out one of those that wait.
    fn remove(&mut self, parent: u32, entry: Entry) {
        let inner = &mut self.inner[parent as usize];
        match &mut inner.child.list {
            &mut MANY => self.calendars[inner.queue as usize].remove(entry),
            waiting => {
                let from = inner.queue as usize;
                let list = &mut self.lists[from..from + usize::from(*waiting)];
                if let Some(at) = list.iter().position(|other| other.slot == entry.slot) {
                    few::close(list, at);
                    *waiting -= 1;
                }
            }
        }
    }

    /// Enters the child chosen last, if it has been served and wants more, and takes the one that is next.
    #[inline]
    fn choose(&mut self, at: u32) -> Option<Entry> {
        let inner = &mut self.inner[at as usize];
        let last = Entry::new(inner.last_tag, inner.last);
        let next = match &mut inner.child.list {
            &mut MANY => {
                let calendar = &mut self.calendars[inner.queue as usize];
                if last.slot == NONE { calendar.take()? } else { calendar.exchange(last) }
            }
            waiting => {
                let from = inner.queue as usize;
                let list = &mut self.lists[from..from + usize::from(*waiting)];
                if last.slot == NONE {
                    let next = *list.first()?;
                    few::close(list, 0);
                    *waiting -= 1;
                    next
                } else {
                    few::exchange(list, last)
                }
            }
        };
        (inner.last, inner.last_tag) = (next.slot, next.tag);
        inner.now = next.tag;
        inner.service = self.service;
        if next.tag > MOST_NOW {
            self.move_tags(at);
        }
        Some(next)
    }

    /// Moves all tags below a class back, so that its virtual time becomes 0.
    #[cold]
    fn move_tags(&mut self, at: u32) {
        let inner = &mut self.inner[at as usize];
        let now = std::mem::take(&mut inner.now);
        let tag = |tag: u64| tag.saturating_sub(now);
        inner.last_tag = tag(inner.last_tag);
        inner.last_finish = tag(inner.last_finish);
        match inner.child.list {
            MANY => self.calendars[inner.queue as usize].rebuild(tag),
            waiting => {
                let from = inner.queue as usize;
                for entry in &mut self.lists[from..from + usize::from(waiting)] {
                    entry.tag = tag(entry.tag);
                }
            }
        }
        for child in self.hierarchy.class(self.numbers[at as usize]).children.clone() {
            let child = self.child(self.slots[child.index()]);
            child.tag = tag(child.tag);
        }
    }

    /// A class that was idle begins to want service, and so do those it is part of.
    #[inline]
    fn wake(&mut self, mut slot: u32) {
        while slot != ROOT {
            let Child { tag, parent, busy, held, .. } = *self.child(slot);
            if busy || held || parent == NONE {
                return;
            }
            let inner = &mut self.inner[parent as usize];
            let start = inner.now.max(tag);
            if inner.last != NONE && inner.service != self.service {
                // it has waited longer
                let last = std::mem::replace(&mut inner.last, NONE);
                let last = Entry::new(inner.last_tag, last);
                self.enter(parent, last);
            }
            self.enter(parent, Entry::new(start, slot));
            let child = self.child(slot);
            (child.tag, child.busy) = (start, true);
            slot = INNER | parent;
        }
    }

    /// A class that waited has nothing left to serve, since its packets were dropped.
    fn give_up(&mut self, mut slot: u32) {
        while slot != ROOT && self.child(slot).parent != NONE && self.child(slot).busy && !self.has_more(slot)
        {
            match self.stop_waiting(slot) {
                Some(parent) => slot = parent,
                None => return,
            }
        }
    }

    /// Takes a class that waits out of those that want service; answers whose child it is. Not if it is in service.
    fn stop_waiting(&mut self, slot: u32) -> Option<u32> {
        let Child { tag, parent, .. } = *self.child(slot);
        let inner = &mut self.inner[parent as usize];
        if inner.last != slot {
            self.remove(parent, Entry::new(tag, slot));
        } else if inner.service == self.service {
            return None;
        } else {
            inner.last = NONE;
        }
        // its start tag may stay: it is no earlier than its last finish tag, and no later than any virtual time from
        // now on
        self.child(slot).busy = false;
        self.end_if_empty(parent);
        Some(INNER | parent)
    }

    /// Ends a class's busy period if nothing wants service and nothing is in service.
    #[inline]
    fn end_if_empty(&mut self, at: u32) {
        let inner = &self.inner[at as usize];
        if inner.last == NONE && self.nobody_waits(inner) {
            let inner = &mut self.inner[at as usize];
            inner.now = inner.last_finish;
            if inner.child.list == MANY {
                self.calendars[inner.queue as usize].restart(inner.now);
            }
        }
    }

    /// The packet in service has been served, and the last of its class or the last before it is held: those that want
    /// no more are not entered again.
    fn settle(&mut self, mut slot: u32) {
        let held_below = std::mem::take(&mut self.held_in_service);
        while slot != ROOT {
            let Child { parent, held, .. } = *self.child(slot);
            if parent == NONE {
                return;
            }
            if held || !self.has_more(slot) {
                self.inner[parent as usize].last = NONE;
                self.child(slot).busy = false;
                self.end_if_empty(parent);
            } else if !held_below {
                return;
            }
            slot = INNER | parent;
        }
    }

    fn drop_last(&mut self, at: usize) {
        let leaf = &mut self.leaves[at];
        let packet = self.lines.pop_last(&mut leaf.line).expect("present because it was counted");
        leaf.served.dropped += 1;
        self.left(at, packet.length);
        self.dropped.push_back((ClassId(number(at)), packet));
        self.give_up(number(at));
    }

    #[inline]
    fn left(&mut self, at: usize, length: u32) {
        self.waiting.packets -= 1;
        self.waiting.bytes -= u64::from(length);
        if !self.limits.is_empty() {
            self.limits.left(at, length);
        }
    }

    /// Takes the first packet of a leaf that has been chosen on every level into service.
    #[inline]
    fn serve(&mut self, slot: u32) -> Option<(ClassId, Packet<T>)> {
        let at = slot as usize;
        let leaf = &mut self.leaves[at];
        let packet = self.lines.detach(&mut leaf.line)?;
        let bytes = self.lines.length(packet);
        let length = u64::from(bytes);
        leaf.served.packets += 1;
        leaf.served.bytes += length;
        let Child { parent, cost, .. } = leaf.child;
        if parent != NONE {
            leaf.child.tag = self.inner[parent as usize].charge(length * cost);
            let mut at = parent as usize;
            while at != 0 {
                let Child { parent, cost, .. } = self.inner[at].child;
                self.inner[at].child.tag = self.inner[parent as usize].charge(length * cost);
                at = parent as usize;
            }
        }
        self.left(at, bytes);
        self.in_service = Some(slot);
        self.charged = bytes;
        self.fetch_next();
        Some((ClassId(slot), self.lines.take(packet)))
    }

    /// Asks for the memory that the next decisions will need.
    #[inline]
    fn fetch_next(&self) {
        if self.leaves.len() < LARGE {
            return;
        }
        self.fetch(0);
    }

    fn fetch(&self, root: usize) {
        let inner = &self.inner[root];
        if inner.child.list != MANY {
            return;
        }
        let calendar = &self.calendars[inner.queue as usize];
        if let Some(next) = calendar.peek(0)
            && let Some(leaf) = self.leaves.get(next as usize)
        {
            self.lines.fetch_next(&leaf.line);
        }
        if let Some(leaf) = calendar.peek(1).or_else(|| calendar.peek_page())
            && let Some(leaf) = self.leaves.get(leaf as usize)
        {
            prefetch(leaf);
        }
    }
}

impl<T> Discipline<T> for Scheduler<T> {
    #[inline]
    fn enqueue(&mut self, _now: u64, class: ClassId, packet: Packet<T>) -> Result<(), EnqueueError> {
        let at = class.index();
        if self.slots[at] & INNER != 0 {
            return Err(EnqueueError::NotALeaf { class: self.hierarchy.class(class).name.clone() });
        }
        let length = packet.length;
        if length > Packet::<T>::MOST_LENGTH {
            return Err(EnqueueError::TooLong { length, most: Packet::<T>::MOST_LENGTH });
        }
        if !self.limits.is_empty() {
            if self.limits.refuse(at, length) {
                self.leaves[at].served.dropped += 1;
                self.dropped.push_back((class, packet));
                return Ok(());
            }
            self.limits.came(at, length);
        }
        self.waiting.packets += 1;
        self.waiting.bytes += u64::from(length);
        let leaf = &mut self.leaves[at];
        self.lines.push(&mut leaf.line, packet);
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
    fn finish(&mut self, _now: u64) {
        let Some(leaf) = self.in_service.take() else { return };
        self.service += 1;
        // else all that it is part of want more, too, and are entered when the next is chosen there
        if self.leaves[leaf as usize].line.is_empty() || self.held_in_service {
            self.settle(leaf);
        }
    }

    #[inline]
    fn dequeue(&mut self, now: u64) -> Option<(ClassId, Packet<T>)> {
        self.finish(now);
        let mut slot = self.slots[0];
        while slot & INNER != 0 {
            slot = self.choose(slot & !INNER)?.slot; // nothing at the root only
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
