//! The scheduler behind a link of the policy's rate: decides the order and the times of frames.
//!
//! ```text
//!   accept(now, class, frame) --> hierarchical fair queuing --> next(now): a frame, or when to ask
//!                                        ^ held            ^ free
//!                                   classes at            the link
//!                                   their ceiling       (a virtual clock, LinkPace)
//! ```
//! In a class with fair flows, each flow waits in a leaf of its own below the class (`flows/mod.rs`). A class
//! at its ceiling is held until its own virtual clock lets it send again; meanwhile its siblings have the
//! link. A class without a limit gets a limit that bounds its delay, because programs fill any queue that
//! they find.
//!
//! Pure logic: time is an argument. Cost of a frame: the scheduler's, and some 30 ns for the clocks and the
//! statistics; no allocation.

mod parts;

pub use parts::{EngineChange, ReplacedParts};

use super::flows::{self, FlowNumber, FlowTree};
use parts::EngineParts;
use serde::{Deserialize, Serialize};
use unisono_fairqueue::{
    Backlog, ClassId, Discipline, Fifo, HierarchyError, LinkPace, LiveClass, Packet, Policy, Scheduler,
    TermsChange, TermsChangeError,
};
use unisono_linux::clock::{Duration, Instant};

/// The greatest lateness of the worker that is made up for. (Unless the policy says otherwise, the rate
/// counts whole frames with their Ethernet header, without preamble, checksum and gap, as HTB does.)
const MAX_LATENESS: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum EngineDiscipline {
    #[default]
    Fair,
    /// For comparison: counts classes, but ignores weights, ceilings and limits.
    Fifo,
}

impl EngineDiscipline {
    /// All values, each with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 2] = [
        (Self::Fair, "hsfq", "Hierarchical start-time fair queuing"),
        (Self::Fifo, "fifo", "First in, first out"),
    ];
}

#[derive(Clone, Debug)]
struct WaitingFrame<F> {
    arrival: Instant,
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
    Class(#[from] TermsChangeError),
    #[error("the policy in force has no class `{class}`")]
    NoClass { class: String },
    #[error(transparent)]
    Hierarchy(#[from] HierarchyError),
    #[error(transparent)]
    Packets(#[from] unisono_fairqueue::ChangeError),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextFrame<F> {
    Send(F),
    /// No frame may leave before this time. Ask again then, or when a frame has arrived.
    Wait(Instant),
    /// No frame waits. Ask again when a frame has arrived.
    Rest,
}

#[derive(Debug)]
pub struct Engine<F> {
    parts: EngineParts,
    queue: EngineQueue<F>,
    link: LinkPace,
    /// The classes at their ceilings, each with the time at which it may send again.
    held: Vec<(Instant, ClassId)>,
    /// Whether the last call of `next` found the link free, but no frame that may leave.
    is_resting: bool,
    /// Whether the frame that was sent last waited longer than its class's `ecn`.
    was_late: bool,
}

impl<F> Engine<F> {
    /// Returns an engine without frames. Does not fail for a policy that [`Policy::parse`] returned.
    pub fn new(policy: Policy, choice: EngineDiscipline) -> Result<Self, HierarchyError> {
        let (mut parts, tree) = EngineParts::new(policy)?;
        let queue = match choice {
            EngineDiscipline::Fair => EngineQueue::Fair(Box::new(Scheduler::new(tree))),
            EngineDiscipline::Fifo => {
                parts.layout = FlowTree::plain(&parts.policy);
                parts.ceilings.fill(None);
                EngineQueue::Fifo(Fifo::default())
            }
        };
        Ok(Self {
            link: LinkPace::new(parts.policy.rate, MAX_LATENESS),
            held: Vec::new(),
            is_resting: true,
            was_late: false,
            queue,
            parts,
        })
    }

    pub fn policy(&self) -> &Policy {
        &self.parts.policy
    }

    /// Replaces the policy. No waiting frame is lost, and the statistics of classes with the same name
    /// continue. The ceilings of all classes begin anew, so a class that was held at its ceiling may send at
    /// once. After an error the previous policy stays in force, and only the restart of the ceilings has an
    /// effect. Returns the parts that the engine no longer needs, so that another thread can free them.
    pub fn change(&mut self, change: EngineChange) -> Result<ReplacedParts, EngineChangeError> {
        let EngineQueue::Fair(scheduler) = &mut self.queue else { return Err(EngineChangeError::Fifo) };
        for (_, class) in self.held.drain(..) {
            scheduler.release(self.parts.layout.place(class));
        }
        let EngineChange { mut parts, tree } = change;
        scheduler.apply(tree)?;
        let old = &mut self.parts;
        for (id, class) in parts.policy.hierarchy.classes() {
            if let Some(before) = old.policy.hierarchy.find(&class.name) {
                parts.served[id.index()] = old.served[before.index()];
                std::mem::swap(&mut parts.delays[id.index()], &mut old.delays[before.index()]);
            }
        }
        self.link.set_rate(parts.policy.rate);
        Ok(ReplacedParts(std::mem::replace(&mut self.parts, parts)))
    }

    /// Changes the terms of one class; the caller has checked them. The others keep their places in order,
    /// and no waiting frame is lost. Cost: for another weight, a part of a microsecond for each sibling,
    /// whose limits depend on all their weights; no frame leaves meanwhile.
    pub fn change_class(&mut self, change: &TermsChange) -> Result<(), EngineChangeError> {
        let EngineQueue::Fair(scheduler) = &mut self.queue else { return Err(EngineChangeError::Fifo) };
        let weight = change.new_weight()?;
        let parts = &mut self.parts;
        let Some(class) = parts.policy.hierarchy.find(&change.class) else {
            return Err(EngineChangeError::NoClass { class: change.class.clone() });
        };
        parts.policy.set_terms(class, weight, change.ceiling);
        if let Some(ceiling) = change.ceiling {
            match &mut parts.ceilings[class.index()] {
                Some(pacer) => pacer.set_rate(ceiling),
                none => *none = Some(LinkPace::new(ceiling, MAX_LATENESS)),
            }
        }
        if let Some(weight) = weight {
            scheduler.set_weight(parts.layout.place(class), weight);
            let parent = parts.policy.hierarchy.class(class).parent;
            for (class, limit) in flows::default_limits(&parts.policy, parent) {
                scheduler.set_limit(parts.layout.place(class), limit);
            }
        }
        Ok(())
    }

    /// Queues a frame of a leaf. If a class is full, drops frames, which [`dropped`](Self::dropped) returns.
    pub fn accept(&mut self, now: Instant, class: ClassId, flow: FlowNumber, length: u32, frame: F) {
        if self.is_resting || self.waiting() == 0 {
            self.link.skip_until(now);
            if self.link.free_at() <= now {
                self.finish(now);
            }
            self.is_resting = false;
        }
        let charged = self.parts.policy.framing.charged(length);
        let packet = Packet::new(charged, WaitingFrame { arrival: now, frame });
        let taken = match &mut self.queue {
            EngineQueue::Fair(queue) => {
                let leaf = self.parts.layout.leaf(queue.hierarchy(), class, flow);
                queue.enqueue(now, leaf, packet)
            }
            EngineQueue::Fifo(queue) => queue.enqueue(now, class, packet),
        };
        debug_assert!(taken.is_ok(), "rules name leaves, and no device has frames of 16 MiB");
    }

    /// Ends the service of the frame that was on the link.
    fn finish(&mut self, now: Instant) {
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
        self.parts.served[self.parts.layout.owner(class).index()].dropped += 1;
        Some(packet.item.frame)
    }

    pub fn waiting(&self) -> u64 {
        let backlog = match &self.queue {
            EngineQueue::Fair(queue) => queue.backlog(),
            EngineQueue::Fifo(queue) => queue.backlog(),
        };
        backlog.packets
    }

    pub fn next(&mut self, now: Instant) -> NextFrame<F> {
        if self.link.free_at() > now {
            return NextFrame::Wait(self.link.free_at());
        }
        let earliest = if self.held.is_empty() { Instant::NEVER } else { self.release(now) };
        if self.is_resting {
            // while all waiting frames were held, the link was idle, and that capacity is lost
            self.link.skip_until(now);
        }
        let chosen = match &mut self.queue {
            EngineQueue::Fair(queue) => queue.dequeue(now),
            EngineQueue::Fifo(queue) => queue.dequeue(now),
        };
        let Some((class, packet)) = chosen else {
            self.is_resting = true;
            self.link.skip_until(now);
            return if earliest == Instant::NEVER { NextFrame::Rest } else { NextFrame::Wait(earliest) };
        };
        let class = self.parts.layout.owner(class);
        self.is_resting = false;
        self.link.carry(now, packet.length);
        self.charge(now, class, packet.length);
        let served = &mut self.parts.served[class.index()];
        served.packets += 1;
        served.bytes += u64::from(packet.length);
        let waited = now - packet.item.arrival;
        self.parts.delays[class.index()].record_nanos(waited.as_nanos());
        self.was_late = self.parts.policy.congestion(class).is_some_and(|threshold| waited > threshold);
        NextFrame::Send(packet.item.frame)
    }

    /// Returns whether the frame that was sent last waited longer than its class's `ecn`.
    pub fn was_late(&self) -> bool {
        self.was_late
    }

    /// Charges a packet to the ceilings of its class and of the classes above, and holds each class that has
    /// reached its ceiling.
    fn charge(&mut self, now: Instant, mut class: ClassId, length: u32) {
        let EngineQueue::Fair(queue) = &mut self.queue else { return };
        while class != ClassId::ROOT {
            if let Some(pacer) = &mut self.parts.ceilings[class.index()] {
                pacer.carry(now, length);
                let place = self.parts.layout.place(class);
                if pacer.free_at() > now && !queue.is_held(place) {
                    queue.hold(place);
                    self.held.push((pacer.free_at(), class));
                }
            }
            class = self.parts.policy.hierarchy.class(class).parent;
        }
    }

    /// Releases the classes that may send again. Returns the time of the next release.
    fn release(&mut self, now: Instant) -> Instant {
        let EngineQueue::Fair(queue) = &mut self.queue else { return Instant::NEVER };
        let (ceilings, layout) = (&self.parts.ceilings, &self.parts.layout);
        let mut earliest = Instant::NEVER;
        self.held.retain_mut(|(until, class)| {
            // a class below may have sent a further frame since this class was held, so ask the clock again
            *until = ceilings[class.index()].map_or(Instant::ZERO, |pacer| pacer.free_at());
            if *until <= now {
                queue.release(layout.place(*class));
                return false;
            }
            earliest = earliest.min(*until);
            true
        });
        earliest
    }

    /// Returns the statistics of each class. A class with children has the sums of its leaves.
    pub fn live(&self) -> Vec<LiveClass> {
        let backlog = |leaf| match &self.queue {
            EngineQueue::Fair(queue) => queue.waiting(self.parts.layout.place(leaf)),
            EngineQueue::Fifo(_) => Backlog::default(),
        };
        self.parts.live(backlog)
    }
}

#[cfg(test)]
mod tests;
