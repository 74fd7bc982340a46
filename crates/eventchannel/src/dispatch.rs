//! Which inbox is served next: shares between classes, the earliest deadline inside a class.
//!
//! ```text
//!   fairqueue::Processor over the classes --> a leaf --> its ready inboxes, by
//!                                                        (reserved first, deadline, arrival)
//! ```
//! Between classes start-time fair queuing decides. It knows no deadlines, and no class can take the share of
//! another. Inside a class the inbox whose first event is due first is served. Inboxes without a reservation
//! come after those with one, so that they cannot break what admission promised.
//!
//! A class is charged for the time that a delivery took, or for the worst case if the caller does not say.
//! The time is known only after the delivery; start-time fair queuing needs it no earlier. Cost: a logarithm
//! of the ready inboxes of the class, and the scheduler's own cost.
//!
//! Reference: Liu, Layland (JACM 1973), earliest deadline first; Goyal, Guo, Vin (OSDI 1996), leaves of a
//! hierarchy with schedulers of their own.

use crate::ids::InboxId;
use crate::inbox::DueTurn;
use std::collections::BTreeSet;
use unisono_fairqueue::{ClassId, Hierarchy, Processor, Served, Wants};
use unisono_linux::clock::Nanos;

/// A turn, and whether it waits behind all reservations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClassStanding {
    pub(crate) behind: bool,
    pub(crate) turn: DueTurn,
}

/// The longest time that a class is charged for one delivery: beyond, start tags have no more digits.
pub(crate) const MOST_CHARGE: Nanos = Nanos(UNIT * ((1 << 24) - 1));
/// Nanoseconds in which service is counted.
const UNIT: u64 = 64;

#[derive(Debug)]
pub(crate) struct Dispatcher {
    shares: Processor,
    /// For each class by its number: the inboxes that want service.
    ready: Vec<BTreeSet<(ClassStanding, InboxId)>>,
    running: Option<ClassId>,
}

impl Dispatcher {
    pub(crate) fn new(hierarchy: Hierarchy) -> Self {
        let ready = vec![BTreeSet::new(); hierarchy.classes().count()];
        Self { shares: Processor::new(hierarchy, 1), ready, running: None }
    }

    pub(crate) fn hierarchy(&self) -> &Hierarchy {
        self.shares.shares().hierarchy()
    }

    /// What a class has got; its bytes are units of 64 ns.
    pub(crate) fn served(&self, class: ClassId) -> Served {
        self.shares.shares().served(class)
    }

    /// An inbox of a leaf stands elsewhere now, or nowhere.
    pub(crate) fn place(
        &mut self,
        class: ClassId,
        inbox: InboxId,
        (before, after): (Option<ClassStanding>, Option<ClassStanding>),
    ) {
        let ready = &mut self.ready[class.index()];
        if let Some(before) = before {
            ready.remove(&(before, inbox));
        }
        if let Some(after) = after {
            ready.insert((after, inbox));
            self.shares.wake(class).expect("a leaf because inboxes are made for leaves alone");
        }
    }

    /// The inbox to serve next; its class is in service until [`finish`](Self::finish).
    pub(crate) fn next(&mut self) -> Option<InboxId> {
        loop {
            self.finish(Nanos::ZERO);
            let (class, _) = self.shares.dispatch()?;
            self.running = Some(class);
            if let Some((_, inbox)) = self.ready[class.index()].first() {
                return Some(*inbox);
            }
            // all its inboxes have been paused or emptied since it was woken
        }
    }

    /// The service that [`next`](Self::next) began has ended; the class is charged for it.
    pub(crate) fn finish(&mut self, took: Nanos) {
        let Some(class) = self.running.take() else { return };
        let wants = if self.ready[class.index()].is_empty() { Wants::Sleep } else { Wants::More };
        let units = u32::try_from(took.0.min(MOST_CHARGE.0).div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.shares.ran(units, wants);
    }
}
