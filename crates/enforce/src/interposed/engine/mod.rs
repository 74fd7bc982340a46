//! The scheduler behind a link of the policy's rate: decides the order and the times of frames.
//!
//! ```text
//!   accept(now, class, frame) --> hierarchical fair queuing --> next(now): a frame, or when to ask
//!                                        ^ held            ^ free
//!                                   classes at            the link
//!                                   their ceiling       (a virtual clock, LinkPace)
//! ```
//! Where a class has fair flows, each flow waits in a leaf of its own below the class (`flows/mod.rs`). A
//! class at its ceiling is held until its own clock is free; its siblings have the link meanwhile. A class
//! without a limit gets one that bounds its delay, because programs fill any queue that they find.
//!
//! Pure: time is an argument. Cost: the scheduler's, and some 30 ns for the clocks and the statistics; no
//! frame causes an allocation.

use super::flows::{self, FlowNumber, FlowTree};
use serde::{Deserialize, Serialize};
use unisono_fairqueue::{
    Backlog, ClassId, DelayFigures, Discipline, Fifo, Hierarchy, HierarchyError, LinkPace, LiveClass, Packet,
    Policy, Scheduler, Served,
};
use unisono_linux::clock::Nanos;
use unisono_measure::Histogram;

/// The greatest lateness that the worker catches up on. Lengths are whole frames with their Ethernet header,
/// without preamble, checksum and gap, as with HTB.
const MAX_LATENESS: Nanos = Nanos(5_000_000);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum EngineDiscipline {
    #[default]
    Fair,
    /// For comparison: counts classes, but ignores weights, ceilings and limits.
    Fifo,
}

impl EngineDiscipline {
    /// Each with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 2] = [
        (Self::Fair, "hsfq", "Hierarchical start-time fair queuing"),
        (Self::Fifo, "fifo", "First in, first out"),
    ];
}

#[derive(Clone, Debug)]
struct WaitingFrame<F> {
    since: Nanos,
    frame: F,
}

#[derive(Debug)]
enum EngineQueue<F> {
    Fair(Box<Scheduler<WaitingFrame<F>>>),
    Fifo(Fifo<WaitingFrame<F>>),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineChangeError {
    #[error("the discipline fifo has no classes to change; first run: unisono queue clear")]
    Fifo,
    #[error(transparent)]
    Hierarchy(#[from] HierarchyError),
    #[error(transparent)]
    Packets(#[from] unisono_fairqueue::ChangeError),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextFrame<F> {
    Send(F),
    /// Ask again at this time, or when a frame has arrived.
    Wait(Nanos),
    /// Ask again when a frame has arrived.
    Rest,
}

#[derive(Debug)]
pub struct Engine<F> {
    policy: Policy,
    queue: EngineQueue<F>,
    /// Maps the policy's classes to the scheduler's.
    layout: FlowTree,
    link: LinkPace,
    /// The clock of each class that has a ceiling.
    ceilings: Vec<Option<LinkPace>>,
    /// Classes at their ceilings, each with its time of release.
    held: Vec<(Nanos, ClassId)>,
    /// The last call of `next` found no frame that may leave.
    is_resting: bool,
    /// The frame sent last waited longer than its class's `ecn`.
    was_late: bool,
    /// By class number.
    served: Vec<Served>,
    delays: Vec<Histogram>,
}

impl<F> Engine<F> {
    /// An empty queue. Does not fail for a policy that was parsed.
    pub fn new(policy: Policy, choice: EngineDiscipline) -> Result<Self, HierarchyError> {
        let (queue, layout) = match choice {
            EngineDiscipline::Fair => {
                let tree = flows::tree(&policy)?;
                let layout = FlowTree::new(&policy, &tree);
                (EngineQueue::Fair(Box::new(Scheduler::new(tree))), layout)
            }
            EngineDiscipline::Fifo => (EngineQueue::Fifo(Fifo::default()), FlowTree::plain(&policy)),
        };
        let classes = policy.hierarchy.classes().count();
        Ok(Self {
            link: LinkPace::new(policy.rate, MAX_LATENESS),
            ceilings: ceilings(&policy, choice),
            held: Vec::new(),
            is_resting: true,
            was_late: false,
            served: vec![Served::default(); classes],
            delays: vec![Histogram::new(); classes],
            policy,
            queue,
            layout,
        })
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Replaces the policy. No waiting frame is lost, and the statistics of classes with the same name
    /// continue. A class at its ceiling may begin anew. If this fails, nothing has changed.
    pub fn change(&mut self, policy: Policy) -> Result<(), EngineChangeError> {
        let EngineQueue::Fair(scheduler) = &mut self.queue else { return Err(EngineChangeError::Fifo) };
        for (_, class) in self.held.drain(..) {
            scheduler.release(self.layout.place(class));
        }
        let tree = flows::tree(&policy)?;
        let layout = FlowTree::new(&policy, &tree);
        scheduler.apply(tree)?;
        self.layout = layout;
        let old = &self.policy.hierarchy;
        let (mut served, mut delays) = (Vec::new(), Vec::new());
        for (_, class) in policy.hierarchy.classes() {
            let before = old.find(&class.name).map(ClassId::index);
            served.push(before.map(|at| self.served[at]).unwrap_or_default());
            delays.push(before.map_or_else(Histogram::new, |at| self.delays[at].clone()));
        }
        (self.served, self.delays) = (served, delays);
        self.link.set_rate(policy.rate);
        self.ceilings = ceilings(&policy, EngineDiscipline::Fair);
        self.policy = policy;
        Ok(())
    }

    /// Queues a frame of a leaf. If a class is full, frames are dropped; [`dropped`](Self::dropped) returns
    /// them.
    pub fn accept(&mut self, now: Nanos, class: ClassId, flow: FlowNumber, length: u32, frame: F) {
        if self.is_resting || self.waiting() == 0 {
            self.link.skip_until(now);
            if self.link.free_at() <= now {
                self.finish(now);
            }
            self.is_resting = false;
        }
        let packet = Packet::new(length, WaitingFrame { since: now, frame });
        let taken = match &mut self.queue {
            EngineQueue::Fair(queue) => {
                let leaf = self.layout.leaf(queue.hierarchy(), class, flow);
                queue.enqueue(now, leaf, packet)
            }
            EngineQueue::Fifo(queue) => queue.enqueue(now, class, packet),
        };
        debug_assert!(taken.is_ok(), "rules name leaves, and no device has frames of 16 MiB");
    }

    /// Ends the service of the frame that was on the link.
    fn finish(&mut self, now: Nanos) {
        match &mut self.queue {
            EngineQueue::Fair(queue) => queue.finish(now),
            EngineQueue::Fifo(queue) => queue.finish(now),
        }
    }

    pub fn dropped(&mut self) -> Option<F> {
        let (class, packet) = match &mut self.queue {
            EngineQueue::Fair(queue) => queue.dropped(),
            EngineQueue::Fifo(queue) => queue.dropped(),
        }?;
        self.served[self.layout.owner(class).index()].dropped += 1;
        Some(packet.item.frame)
    }

    pub fn waiting(&self) -> u64 {
        let backlog = match &self.queue {
            EngineQueue::Fair(queue) => queue.backlog(),
            EngineQueue::Fifo(queue) => queue.backlog(),
        };
        backlog.packets
    }

    pub fn next(&mut self, now: Nanos) -> NextFrame<F> {
        if self.link.free_at() > now {
            return NextFrame::Wait(self.link.free_at());
        }
        let earliest = if self.held.is_empty() { Nanos::NEVER } else { self.release(now) };
        if self.is_resting {
            // the link's capacity while all waiting frames were held is lost
            self.link.skip_until(now);
        }
        let chosen = match &mut self.queue {
            EngineQueue::Fair(queue) => queue.dequeue(now),
            EngineQueue::Fifo(queue) => queue.dequeue(now),
        };
        let Some((class, packet)) = chosen else {
            self.is_resting = true;
            self.link.skip_until(now);
            return if earliest == Nanos::NEVER { NextFrame::Rest } else { NextFrame::Wait(earliest) };
        };
        let class = self.layout.owner(class);
        self.is_resting = false;
        self.link.carry(now, packet.length);
        self.charge(now, class, packet.length);
        let served = &mut self.served[class.index()];
        served.packets += 1;
        served.bytes += u64::from(packet.length);
        let waited = now.since(packet.item.since);
        self.delays[class.index()].record_nanos(waited.0);
        self.was_late = self.policy.congestion(class).is_some_and(|threshold| waited > threshold);
        NextFrame::Send(packet.item.frame)
    }

    /// Whether the frame that was sent last waited longer than its class's `ecn`.
    pub fn was_late(&self) -> bool {
        self.was_late
    }

    /// Counts a packet towards the ceilings of its class and of the classes above, and holds the classes that
    /// have reached theirs.
    fn charge(&mut self, now: Nanos, mut class: ClassId, length: u32) {
        let EngineQueue::Fair(queue) = &mut self.queue else { return };
        while class != ClassId::ROOT {
            if let Some(pacer) = &mut self.ceilings[class.index()] {
                pacer.carry(now, length);
                let place = self.layout.place(class);
                if pacer.free_at() > now && !queue.is_held(place) {
                    queue.hold(place);
                    self.held.push((pacer.free_at(), class));
                }
            }
            class = self.policy.hierarchy.class(class).parent;
        }
    }

    /// Releases classes whose time has come. Returns the next time of release.
    fn release(&mut self, now: Nanos) -> Nanos {
        let EngineQueue::Fair(queue) = &mut self.queue else { return Nanos::NEVER };
        let (ceilings, layout) = (&self.ceilings, &self.layout);
        let mut earliest = Nanos::NEVER;
        self.held.retain_mut(|(until, class)| {
            // after the frame in service when the class was held, a class below may have sent another one
            *until = ceilings[class.index()].map_or(Nanos::ZERO, |pacer| pacer.free_at());
            if *until <= now {
                queue.release(layout.place(*class));
                return false;
            }
            earliest = earliest.min(*until);
            true
        });
        earliest
    }

    /// The statistics of each class. A class with children has the sums of its leaves.
    pub fn live(&self) -> Vec<LiveClass> {
        let hierarchy = &self.policy.hierarchy;
        let classes = hierarchy.classes().filter(|(id, _)| *id != ClassId::ROOT);
        classes
            .map(|(id, class)| {
                let leaves: Vec<ClassId> = hierarchy
                    .classes()
                    .map(|(leaf, _)| leaf)
                    .filter(|leaf| hierarchy.is_leaf(*leaf) && is_below(hierarchy, *leaf, id))
                    .collect();
                let (mut served, mut backlog, mut delays) =
                    (Served::default(), Backlog::default(), Histogram::new());
                for leaf in leaves {
                    served += self.served[leaf.index()];
                    delays.merge(&self.delays[leaf.index()]);
                    if let EngineQueue::Fair(queue) = &self.queue {
                        backlog += queue.waiting(self.layout.place(leaf));
                    }
                }
                LiveClass {
                    name: class.name.clone(),
                    parent: (class.parent != ClassId::ROOT)
                        .then(|| hierarchy.class(class.parent).name.clone()),
                    guarantee: self.policy.guarantee(id),
                    packets: served.packets,
                    bytes: served.bytes,
                    dropped: served.dropped,
                    backlog,
                    queue: None,
                    delay: figures(&delays),
                }
            })
            .collect()
    }
}

fn figures(delays: &Histogram) -> Option<DelayFigures> {
    let distribution = delays.distribution(1.0)?;
    let nanos = |value: f64| value.max(0.0) as u64;
    Some(DelayFigures {
        min_ns: nanos(distribution.min),
        median_ns: nanos(distribution.median),
        mean_ns: nanos(delays.mean()),
        p99_ns: nanos(distribution.p99),
        max_ns: nanos(distribution.max),
    })
}

fn is_below(hierarchy: &Hierarchy, mut class: ClassId, above: ClassId) -> bool {
    while class != ClassId::ROOT {
        if class == above {
            return true;
        }
        class = hierarchy.class(class).parent;
    }
    false
}

fn ceilings(policy: &Policy, choice: EngineDiscipline) -> Vec<Option<LinkPace>> {
    let pacer = |(id, _): (ClassId, _)| {
        let ceiling = policy.ceilings.get(id.index()).copied().flatten()?;
        (choice == EngineDiscipline::Fair).then(|| LinkPace::new(ceiling, MAX_LATENESS))
    };
    policy.hierarchy.classes().map(pacer).collect()
}

#[cfg(test)]
mod tests;
