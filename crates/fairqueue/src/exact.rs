//! Start-time fair queuing with tags that are never rounded, for any weights.
//!
//! The [`Scheduler`] counts tags in 64 bits, in a unit such that a byte costs each sibling a whole number.
//! With several weights such as 999,983 and 1,000,003, tags in that unit do not fit into 64 bits, and the
//! scheduler rounds. Here tags are whole numbers of any length in that unit. Apart from rounding, both decide
//! in the same way: the child with the least start tag is served; among equal tags, the child that has waited
//! longest.
//!
//! Cost: a choice compares all children of each class on the way down, and a tag has as many digits as the
//! weights of all siblings together. When not to use it: where time matters, and where
//! [`Scheduler::is_exact`] holds; [`start_time`] then uses the scheduler. Limits of classes are not applied.
//!
//! Reference: the same as for [`Scheduler`].

use crate::discipline::{Backlog, Discipline, EnqueueError};
use crate::hierarchy::{ClassId, Hierarchy};
use crate::natural::Natural;
use crate::packet::Packet;
use crate::packet_queues::{PacketQueue, PacketQueues};
use crate::scheduler::Scheduler;
use crate::weight::{Weight, to_integers};
use unisono_time::Instant;

/// Returns a scheduler without rounding: a [`Scheduler`] if its tags are exact, else an [`Exact`], whose tags
/// may be longer.
pub fn start_time<T: 'static>(hierarchy: Hierarchy) -> Box<dyn Discipline<T>> {
    let scheduler = Scheduler::new(hierarchy.clone());
    if scheduler.is_exact() { Box::new(scheduler) } else { Box::new(Exact::new(hierarchy)) }
}

struct ExactClass {
    /// The parent's index; the root is its own parent.
    parent: usize,
    /// The cost of a byte in the parent's virtual time.
    cost: Natural,
    /// In the parent's virtual time: the start tag while the class waits or is in service, else the last
    /// finish tag.
    tag: Natural,
    /// Whether the class waits among its siblings or is in service.
    busy: bool,
    /// The value of `entered` when the class began to wait, or `None` while it does not wait.
    since: Option<u64>,
    /// The virtual time among its children: the start tag of the child served last.
    now: Natural,
    /// The greatest finish tag of its children.
    last_finish: Natural,
    queue: PacketQueue,
}

pub struct Exact<T> {
    hierarchy: Hierarchy,
    classes: Vec<ExactClass>,
    queues: PacketQueues<T>,
    /// The leaf in service, and the length of its packet in bytes.
    in_service: Option<(usize, u32)>,
    /// The number of times that any class has begun to wait.
    entered: u64,
    waiting: Backlog,
}

impl<T> Exact<T> {
    pub fn new(hierarchy: Hierarchy) -> Self {
        let mut queues = PacketQueues::new();
        let mut classes: Vec<ExactClass> = hierarchy
            .classes()
            .map(|(_, class)| ExactClass {
                parent: class.parent.index(),
                cost: Natural::default(),
                tag: Natural::default(),
                busy: false,
                since: None,
                now: Natural::default(),
                last_finish: Natural::default(),
                queue: queues.queue(class.order),
            })
            .collect();
        for (_, class) in hierarchy.classes() {
            let weights: Vec<Weight> =
                class.children.iter().map(|child| hierarchy.class(*child).weight).collect();
            let weights = to_integers(&weights);
            let unit = weights.iter().fold(Natural::from(1), |unit, weight| unit.common_multiple(*weight));
            for (child, weight) in class.children.iter().zip(weights) {
                classes[child.index()].cost = unit.divided_by(weight).0;
            }
        }
        let waiting = Backlog::default();
        Self { hierarchy, classes, queues, in_service: None, entered: 0, waiting }
    }

    /// Inserts a class among its waiting siblings.
    fn enter(&mut self, at: usize, start: Natural) {
        self.entered += 1;
        let class = &mut self.classes[at];
        (class.tag, class.busy, class.since) = (start, true, Some(self.entered));
    }

    fn next(&self, at: usize) -> Option<usize> {
        let children = self.hierarchy.class(ClassId(u32::try_from(at).ok()?)).children.iter();
        let waiting =
            children.map(|child| child.index()).filter(|child| self.classes[*child].since.is_some());
        waiting.min_by_key(|child| (&self.classes[*child].tag, self.classes[*child].since))
    }
}

impl<T> Discipline<T> for Exact<T> {
    fn enqueue(&mut self, _now: Instant, class: ClassId, packet: Packet<T>) -> Result<(), EnqueueError> {
        if !self.hierarchy.is_leaf(class) {
            return Err(EnqueueError::NotALeaf { class: self.hierarchy.class(class).name.clone() });
        }
        let length = packet.length;
        if length > Packet::<T>::MAX_LENGTH {
            return Err(EnqueueError::TooLong { length, max: Packet::<T>::MAX_LENGTH });
        }
        self.waiting += Backlog { packets: 1, bytes: u64::from(length) };
        let mut at = class.index();
        self.queues.push(&mut self.classes[at].queue, packet);
        while at != 0 && !self.classes[at].busy {
            let parent = self.classes[at].parent;
            let start = self.classes[parent].now.clone().max(self.classes[at].tag.clone());
            self.enter(at, start);
            at = parent;
        }
        Ok(())
    }

    fn finish(&mut self, _now: Instant) {
        let Some((leaf, length)) = self.in_service.take() else { return };
        let (mut at, mut more) = (leaf, !self.classes[leaf].queue.is_empty());
        while at != 0 {
            let class = &mut self.classes[at];
            let parent = class.parent;
            let finish = class.tag.plus(&class.cost.times(length.into()));
            (class.tag, class.busy) = (finish.clone(), more);
            let last = &mut self.classes[parent].last_finish;
            *last = finish.clone().max(std::mem::take(last));
            if more {
                self.enter(at, finish);
            } else {
                more = self.next(parent).is_some();
                if !more {
                    self.classes[parent].now = self.classes[parent].last_finish.clone();
                }
            }
            at = parent;
        }
    }

    fn dequeue(&mut self, now: Instant) -> Option<(ClassId, Packet<T>)> {
        self.finish(now);
        let mut at = 0;
        while let Some(next) = self.next(at) {
            self.classes[at].now = self.classes[next].tag.clone();
            self.classes[next].since = None;
            at = next;
        }
        let packet = self.queues.detach(&mut self.classes[at].queue)?;
        let length = self.queues.length(packet);
        self.in_service = Some((at, length));
        self.waiting.packets -= 1;
        self.waiting.bytes -= u64::from(length);
        Some((ClassId(u32::try_from(at).ok()?), self.queues.take(packet)))
    }

    fn dropped(&mut self) -> Option<(ClassId, Packet<T>)> {
        None
    }

    fn backlog(&self) -> Backlog {
        self.waiting
    }
}
