//! Weighted fair queuing. An ideal link would serve all classes at the same time, in proportion to their
//! weights. This discipline sends packets in the order of their ends on that ideal link.
//!
//! Unlike start-time fair queuing it needs the speed of the link, to follow the ideal link. On a link whose
//! speed varies it is unfair. A leaf's weight is its share in the whole tree.
//!
//! Cost: a heap of the leaves with packets, and another one for the ideal link.
//!
//! Reference: Demers, Keshav, Shenker, "Analysis and Simulation of a Fair Queueing Algorithm" (SIGCOMM 1989);
//! Parekh, Gallager (1993).

use crate::discipline::{Backlog, Discipline, EnqueueError};
use crate::hierarchy::{ClassId, Hierarchy};
use crate::packet::Packet;
use crate::rate::Rate;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use unisono_time::Instant;

#[derive(Clone, Debug)]
pub struct Weighted<T> {
    hierarchy: Hierarchy,
    flows: Vec<Flow<T>>,
    /// The leaves with packets, by the finish tag of their first packet.
    next: BinaryHeap<Reverse<(FinishTag, ClassId)>>,
    /// The rate of the link in bytes a nanosecond.
    rate: f64,
    /// The ideal link's virtual time at the moment `computed`. `active` is the sum of the shares of the
    /// classes that the ideal link was then serving.
    virtual_time: f64,
    computed: Instant,
    active: f64,
    /// The leaves that the ideal link serves, by their last finish tag: the virtual time at which it has
    /// served all their packets.
    leaving: BinaryHeap<Reverse<(FinishTag, ClassId)>>,
    backlog: Backlog,
}

#[derive(Clone, Debug)]
struct Flow<T> {
    share: f64,
    last_finish: f64,
    /// Whether the ideal link is serving the flow.
    active: bool,
    waiting: VecDeque<(f64, Packet<T>)>,
}

/// A tag in a heap; never a NaN.
#[derive(Clone, Copy, Debug)]
struct FinishTag(f64);

impl PartialEq for FinishTag {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for FinishTag {}

impl PartialOrd for FinishTag {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FinishTag {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl<T> Weighted<T> {
    /// Returns a discipline without packets, for a link of this rate.
    pub fn new(hierarchy: Hierarchy, rate: Rate) -> Self {
        let shares = hierarchy.shares();
        let flow = |id: ClassId| Flow {
            share: if hierarchy.is_leaf(id) { shares[id.index()] } else { 0.0 },
            last_finish: 0.0,
            active: false,
            waiting: VecDeque::new(),
        };
        let flows = hierarchy.classes().map(|(id, _)| flow(id)).collect();
        Self {
            hierarchy,
            flows,
            next: BinaryHeap::new(),
            rate: rate.bytes_per_second() / 1e9,
            virtual_time: 0.0,
            computed: Instant::ZERO,
            active: 0.0,
            leaving: BinaryHeap::new(),
            backlog: Backlog::default(),
        }
    }

    /// Advances the ideal link to `now`. Its virtual time runs faster the fewer classes it serves.
    fn advance(&mut self, now: Instant) {
        let mut left = (now - self.computed).as_nanos() as f64;
        self.computed = self.computed.max(now);
        while let Some(Reverse((FinishTag(finish), class))) = self.leaving.peek().copied() {
            let flow = &mut self.flows[class.index()];
            if finish < flow.last_finish {
                self.leaving.pop(); // packets have arrived since, so that the leaf has a later entry
                continue;
            }
            let needs = ((finish - self.virtual_time) * self.active / self.rate).max(0.0);
            if needs > left {
                self.virtual_time += left * self.rate / self.active;
                return;
            }
            left -= needs;
            self.virtual_time = self.virtual_time.max(finish);
            flow.active = false;
            self.active -= flow.share;
            self.leaving.pop();
        }
        self.active = 0.0; // exactly 0, because no class is served; sums leave rounding errors
    }
}

impl<T> Discipline<T> for Weighted<T> {
    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet<T>) -> Result<(), EnqueueError> {
        if !self.hierarchy.is_leaf(class) {
            return Err(EnqueueError::NotALeaf { class: self.hierarchy.class(class).name.clone() });
        }
        self.advance(now);
        self.backlog += Backlog { packets: 1, bytes: u64::from(packet.length) };
        let flow = &mut self.flows[class.index()];
        let finish = flow.last_finish.max(self.virtual_time) + f64::from(packet.length) / flow.share;
        flow.last_finish = finish;
        if !flow.active {
            flow.active = true;
            self.active += flow.share;
        }
        self.leaving.push(Reverse((FinishTag(finish), class)));
        if flow.waiting.is_empty() {
            self.next.push(Reverse((FinishTag(finish), class)));
        }
        flow.waiting.push_back((finish, packet));
        Ok(())
    }

    fn finish(&mut self, now: Instant) {
        self.advance(now);
    }

    fn dequeue(&mut self, now: Instant) -> Option<(ClassId, Packet<T>)> {
        self.advance(now);
        let Reverse((_, class)) = self.next.pop()?;
        let flow = &mut self.flows[class.index()];
        let (_, packet) = flow.waiting.pop_front()?;
        if let Some((finish, _)) = flow.waiting.front() {
            self.next.push(Reverse((FinishTag(*finish), class)));
        }
        self.backlog.packets -= 1;
        self.backlog.bytes -= u64::from(packet.length);
        Some((class, packet))
    }

    fn dropped(&mut self) -> Option<(ClassId, Packet<T>)> {
        None
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
