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
//! Cost: a packet takes one insertion and one removal a level, in a list (few siblings) or a radix wheel
//! (many), none of which allocates. Exact: tags are whole numbers in a unit that all siblings share
//! (`weight.rs`); ties go to the child that has waited longest.
//!
//! Conventions: arrivals at the instant of a choice come before it, and an arrival exactly at the end of a
//! class's last packet begins a new busy period: so call [`finish`](Discipline::finish), then
//! [`enqueue`](Discipline::enqueue) what has arrived, then [`dequeue`](Discipline::dequeue).
//!
//! Reference: Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996), section 2; the hierarchy: section 3
//! there, and QLinux in Pruthi et al., section 2.3.1.

mod change;
mod hold;

pub use change::{ChangeError, Changes, Closed};

use crate::discipline::{Backlog, Discipline, EnqueueError};
use crate::hierarchy::{ClassId, Hierarchy};
use crate::limits::Limits;
use crate::packet::{Line, Packet};
use crate::siblings::Siblings;
use crate::weight::{Scale, Weight};
use std::collections::VecDeque;

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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Wants nothing.
    Idle,
    /// Among its parent's children that want service.
    Waiting,
    /// Its packet is in service.
    Serving,
    /// Not among them, whatever waits in it, until it is released.
    Held,
    /// Its packet is in service, and then it is held.
    LastService,
}

/// What a decision needs of a class: one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Class<T> {
    /// In its parent's virtual time: while it waits its start tag, else the finish tag of its last packet.
    tag: u64,
    /// What a byte costs in its parent's virtual time.
    cost: u64,
    parent: u32,
    /// Which entry of `inner`; a leaf has none.
    inner: u32,
    state: State,
    line: Line<T>,
}

#[derive(Clone, Debug)]
struct Inner {
    /// The virtual time: the start tag of the child in service, or of the last one.
    now: u64,
    /// The greatest finish tag so far.
    last_finish: u64,
    /// The children that want service.
    next: Siblings,
    children: Vec<u32>,
    exact: bool,
}

const LEAF: u32 = u32::MAX;
const ROOT: usize = 0;
/// Beyond this virtual time tags are moved back, all by the same amount.
const MOST_NOW: u64 = 1 << 62;

/// The scheduler.
#[derive(Clone, Debug)]
pub struct Scheduler<T> {
    hierarchy: Hierarchy,
    classes: Vec<Class<T>>,
    inner: Vec<Inner>,
    served: Vec<Served>,
    limits: Limits,
    dropped: VecDeque<(ClassId, Packet<T>)>,
    in_service: Option<u32>,
    waiting: Backlog,
}

impl<T> Scheduler<T> {
    /// A scheduler without packets.
    #[must_use]
    pub fn new(hierarchy: Hierarchy) -> Self {
        let mut inners = 0..;
        let mut classes: Vec<Class<T>> = hierarchy
            .classes()
            .map(|(id, class)| Class {
                tag: 0,
                cost: 1,
                parent: class.parent.0,
                inner: if hierarchy.is_leaf(id) { LEAF } else { inners.next().expect("endless") },
                state: State::Idle,
                line: Line::new(class.order),
            })
            .collect();
        let mut inner = Vec::new();
        for (_, class) in hierarchy.classes().filter(|(id, _)| !hierarchy.is_leaf(*id)) {
            let weights: Vec<Weight> =
                class.children.iter().map(|child| hierarchy.class(*child).weight).collect();
            let Scale { costs, exact } = Scale::of(&weights);
            for (child, cost) in class.children.iter().zip(costs) {
                classes[child.index()].cost = cost;
            }
            let children = class.children.iter().map(|child| child.0).collect();
            let next = Siblings::new(class.children.len());
            inner.push(Inner { now: 0, last_finish: 0, next, children, exact });
        }
        let limits = Limits::of(&hierarchy);
        let served = vec![Served::default(); classes.len()];
        Self {
            hierarchy,
            classes,
            inner,
            served,
            limits,
            dropped: VecDeque::new(),
            in_service: None,
            waiting: Backlog::default(),
        }
    }

    /// The classes.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Whether costs relate exactly as weights do everywhere, so that no tag is rounded.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.inner.iter().all(|inner| inner.exact)
    }

    /// What a class and all below it have got.
    #[must_use]
    pub fn served(&self, class: ClassId) -> Served {
        self.sum(class, |leaf| self.served[leaf])
    }

    /// What waits in a class and all below it.
    #[must_use]
    pub fn waiting(&self, class: ClassId) -> Backlog {
        self.sum(class, |leaf| self.classes[leaf].line.waiting())
    }

    fn sum<S: Default + std::ops::AddAssign>(&self, class: ClassId, of: impl Fn(usize) -> S) -> S {
        let (mut sum, mut open) = (S::default(), vec![class.0]);
        while let Some(at) = open.pop() {
            let class = &self.classes[at as usize];
            match class.inner {
                LEAF => sum += of(at as usize),
                inner => open.extend(&self.inner[inner as usize].children),
            }
        }
        sum
    }

    /// Moves all tags below a class back, so that its virtual time becomes 0.
    fn move_tags(&mut self, at: usize) {
        let inner = &mut self.inner[at];
        let now = inner.now;
        let tag = |tag: u64| tag.saturating_sub(now);
        for child in &inner.children {
            let class = &mut self.classes[*child as usize];
            class.tag = tag(class.tag);
        }
        inner.next.retag(tag);
        inner.last_finish = tag(inner.last_finish);
        inner.now = 0;
    }

    #[inline]
    fn has_more(&self, at: usize) -> bool {
        let class = &self.classes[at];
        match class.inner {
            LEAF => !class.line.is_empty(),
            inner => !self.inner[inner as usize].next.is_empty(),
        }
    }

    /// The inner class that a class is a child of, and which child it is.
    #[inline]
    fn parent(&mut self, at: usize) -> (usize, &mut Inner) {
        let parent = self.classes[at].parent as usize;
        (parent, &mut self.inner[self.classes[parent].inner as usize])
    }

    /// A class that was idle begins to want service, and so do those it is part of.
    #[inline]
    fn wake(&mut self, mut at: usize) {
        while at != ROOT && self.classes[at].state == State::Idle {
            let tag = self.classes[at].tag;
            let (parent, inner) = self.parent(at);
            let start = inner.now.max(tag);
            inner.next.insert(number(at), start);
            self.classes[at].tag = start;
            self.classes[at].state = State::Waiting;
            at = parent;
        }
    }

    /// A class that waited has nothing left to serve, since its packets were dropped.
    fn give_up(&mut self, mut at: usize) {
        while at != ROOT && self.classes[at].state == State::Waiting && !self.has_more(at) {
            // its start tag may stay: it is no earlier than its last finish tag, and no later than any virtual
            // time from now on
            let tag = self.classes[at].tag;
            let (parent, inner) = self.parent(at);
            inner.next.remove(number(at), tag);
            self.classes[at].state = State::Idle;
            self.end_unless_serving(parent);
            at = parent;
        }
    }

    /// Ends a class's busy period if nothing wants service and nothing is in service.
    fn end_unless_serving(&mut self, at: usize) {
        let serves = match at {
            ROOT => self.in_service.is_some(),
            at => matches!(self.classes[at].state, State::Serving | State::LastService),
        };
        if !serves {
            self.end_if_empty(at);
        }
    }

    /// Ends a class's busy period if nothing wants service.
    #[inline]
    fn end_if_empty(&mut self, at: usize) {
        let inner = &mut self.inner[self.classes[at].inner as usize];
        if inner.next.is_empty() {
            inner.now = inner.last_finish;
            inner.next.restart(inner.now);
        }
    }

    /// Takes the next packet of a leaf.
    #[inline]
    fn leave(&mut self, at: usize) -> Packet<T> {
        let packet = self.classes[at].line.pop().expect("present because the class wanted service");
        let served = &mut self.served[at];
        served.packets += 1;
        served.bytes += u64::from(packet.length);
        self.left(at, packet.length);
        packet
    }

    #[inline]
    fn left(&mut self, at: usize, length: u32) {
        self.waiting.packets -= 1;
        self.waiting.bytes -= u64::from(length);
        if !self.limits.is_empty() {
            self.limits.left(at, length);
        }
    }

    fn drop_last(&mut self, at: usize) {
        let packet = self.classes[at].line.pop_last().expect("present because it was counted");
        self.served[at].dropped += 1;
        self.left(at, packet.length);
        self.dropped.push_back((ClassId(number(at)), packet));
        self.give_up(at);
    }
}

impl<T> Discipline<T> for Scheduler<T> {
    #[inline]
    fn enqueue(&mut self, _now: u64, class: ClassId, packet: Packet<T>) -> Result<(), EnqueueError> {
        let at = class.index();
        if self.classes[at].inner != LEAF {
            return Err(EnqueueError::NotALeaf { class: self.hierarchy.class(class).name.clone() });
        }
        let length = packet.length;
        if length > Packet::<T>::MOST_LENGTH {
            return Err(EnqueueError::TooLong { length, most: Packet::<T>::MOST_LENGTH });
        }
        if !self.limits.is_empty() {
            if self.limits.refuse(at, length) {
                self.served[at].dropped += 1;
                self.dropped.push_back((class, packet));
                return Ok(());
            }
            self.limits.came(at, length);
        }
        self.waiting.packets += 1;
        self.waiting.bytes += u64::from(length);
        self.classes[at].line.push(packet);
        if self.classes[at].state == State::Idle {
            self.wake(at);
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
        let mut at = leaf as usize;
        while at != ROOT {
            let more = self.has_more(at);
            let Class { tag, state, .. } = self.classes[at];
            let (parent, inner) = self.parent(at);
            if more && state == State::Serving {
                inner.next.insert(number(at), tag);
                self.classes[at].state = State::Waiting;
            } else {
                self.classes[at].state = if state == State::Serving { State::Idle } else { State::Held };
                self.end_if_empty(parent);
            }
            at = parent;
        }
    }

    #[inline]
    fn dequeue(&mut self, now: u64) -> Option<(ClassId, Packet<T>)> {
        self.finish(now);
        let mut at = ROOT;
        while let Some(inner) = self.inner.get_mut(self.classes[at].inner as usize) {
            let (child, start) = inner.next.take()?; // empty at the root only
            inner.now = start;
            let child = child as usize;
            if start > MOST_NOW {
                self.move_tags(self.classes[at].inner as usize);
            }
            self.classes[child].state = State::Serving;
            at = child;
        }
        if at == ROOT && self.classes[ROOT].line.is_empty() {
            return None;
        }
        let leaf = at;
        let packet = self.leave(leaf);
        while at != ROOT {
            let parent = self.classes[at].parent as usize;
            let inner = &mut self.inner[self.classes[parent].inner as usize];
            let class = &mut self.classes[at];
            class.tag = inner.now + u64::from(packet.length) * class.cost;
            inner.last_finish = inner.last_finish.max(class.tag);
            at = parent;
        }
        let leaf = number(leaf);
        self.in_service = Some(leaf);
        Some((ClassId(leaf), packet))
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
