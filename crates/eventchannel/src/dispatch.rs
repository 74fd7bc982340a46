//! Chooses the inbox to serve next: shares between classes, the earliest deadline first inside a class.
//!
//! ```text
//!   fairqueue::Processor over the classes --> a leaf --> its ready inboxes, by
//!                                                        (reserved first, deadline, arrival)
//! ```
//! Between classes, start-time fair queuing decides. It ignores deadlines, so that no class can take the
//! share of another by early deadlines. Inside a class, the inbox whose first event has the earliest deadline
//! is served. Inboxes without a reservation come after those with one, so that they cannot break the
//! guarantees of admission control.
//!
//! A class is charged the duration of a delivery, or the worst-case time if the caller gives no duration. The
//! duration is known only after the delivery, and start-time fair queuing does not need it earlier. Cost:
//! logarithmic in the number of ready inboxes of the class, unless the served inbox stays first; plus the
//! scheduler's own cost.
//!
//! Reference: Liu, Layland (JACM 1973), earliest deadline first; Goyal, Guo, Vin (OSDI 1996), a hierarchy
//! whose leaves have schedulers of their own.

use crate::ids::InboxId;
use crate::inbox::DueTurn;
use std::collections::BTreeSet;
use unisono_fairqueue::{ClassId, Hierarchy, Processor, Served, Wants};
use unisono_time::Duration;

/// The position of an inbox in its class. The derived order of the fields is the order of dispatch within a
/// class: inboxes with `behind` come after all inboxes with a reservation; after that, the turn decides.
/// `Receiver::standing_now` (`channel/mod.rs`) fills in the fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClassStanding {
    pub(crate) behind: bool,
    pub(crate) turn: DueTurn,
}

/// The maximum charge for one delivery: the scheduler has 24 bits for a length.
pub(crate) const MAX_CHARGE: Duration = Duration::from_nanos(UNIT * ((1 << 24) - 1));
/// The nanoseconds of a unit of service. With 24 bits for a length ([`MAX_CHARGE`]), one delivery can be
/// charged up to 1.07 s. A delivery takes longer than 64 ns, so that no charge is rounded to zero.
const UNIT: u64 = 64;

#[derive(Debug)]
pub(crate) struct Dispatcher {
    shares: Processor,
    /// The ready inboxes of each class, indexed by class.
    ready: Vec<ReadyInboxes>,
    /// Number of classes with a ready inbox.
    wanting: usize,
    running: Option<ClassId>,
}

/// The ready inboxes of a class. The first one is stored outside the tree: as long as it stays first or is
/// the only one, a change of its turn needs no change of the tree.
#[derive(Clone, Debug, Default)]
struct ReadyInboxes {
    first: Option<(ClassStanding, InboxId)>,
    /// All other inboxes; none of them precedes `first`.
    others: BTreeSet<(ClassStanding, InboxId)>,
}

impl ReadyInboxes {
    /// Moves an inbox from the position `before` to the position `after`.
    fn place(&mut self, before: Option<(ClassStanding, InboxId)>, after: Option<(ClassStanding, InboxId)>) {
        if before == self.first && self.others.is_empty() {
            self.first = after;
            return;
        }
        if before.is_some() && before == self.first {
            self.first = None;
        } else if let Some(before) = before {
            self.others.remove(&before);
        }
        let Some(after) = after else {
            self.first = self.first.or_else(|| self.others.pop_first());
            return;
        };
        match self.first {
            Some(first) if first < after => drop(self.others.insert(after)),
            Some(first) => {
                self.others.insert(first);
                self.first = Some(after);
            }
            None if self.others.first().is_some_and(|other| *other < after) => {
                self.first = self.others.pop_first();
                self.others.insert(after);
            }
            None => self.first = Some(after),
        }
    }
}

impl Dispatcher {
    pub(crate) fn new(hierarchy: Hierarchy) -> Self {
        let ready = vec![ReadyInboxes::default(); hierarchy.classes().count()];
        Self { shares: Processor::new(hierarchy, 1), ready, wanting: 0, running: None }
    }

    pub(crate) fn hierarchy(&self) -> &Hierarchy {
        self.shares.shares().hierarchy()
    }

    /// Returns the service that a class has received. In the result, "bytes" are units of 64 ns.
    pub(crate) fn served(&self, class: ClassId) -> Served {
        self.shares.shares().served(class)
    }

    /// Returns whether several classes have ready inboxes.
    pub(crate) fn classes_compete(&self) -> bool {
        self.wanting > 1
    }

    /// Changes the position of an inbox of a leaf class. `None` stands for an inbox that was not ready, or
    /// that no longer is.
    pub(crate) fn place(
        &mut self,
        class: ClassId,
        inbox: InboxId,
        (before, after): (Option<ClassStanding>, Option<ClassStanding>),
    ) {
        let of = |standing: Option<ClassStanding>| standing.map(|standing| (standing, inbox));
        let ready = &mut self.ready[class.index()];
        let wanted = ready.first.is_some();
        ready.place(of(before), of(after));
        match (wanted, ready.first.is_some()) {
            (false, true) => {
                self.wanting += 1;
                self.shares.wake(class).expect("a leaf because inboxes are made for leaves alone");
            }
            (true, false) => self.wanting -= 1,
            _ => {}
        }
    }

    /// Changes the classes. `homes` has the new leaf of each old leaf, by class number; the inboxes of one
    /// class stay together. The service of the last delivery must have ended.
    pub(crate) fn change_classes(&mut self, hierarchy: Hierarchy, homes: &[Option<ClassId>]) {
        self.finish(Duration::ZERO);
        let mut ready = vec![ReadyInboxes::default(); hierarchy.classes().count()];
        for (class, before) in std::mem::take(&mut self.ready).into_iter().enumerate() {
            let Some(home) = homes[class] else { continue };
            let inboxes = before.first.into_iter().chain(before.others);
            inboxes.for_each(|inbox| ready[home.index()].place(None, Some(inbox)));
        }
        self.ready = ready;
        self.shares.apply(hierarchy).expect("nothing waits because the processor takes all quanta back");
        self.wanting = 0;
        let classes: Vec<ClassId> = self.hierarchy().classes().map(|(id, _)| id).collect();
        for class in classes.into_iter().filter(|class| self.ready[class.index()].first.is_some()) {
            self.wanting += 1;
            self.shares.wake(class).expect("a leaf because inboxes are in leaves alone");
        }
    }

    /// Returns the inbox to serve next. Its class is in service until [`finish`](Self::finish).
    pub(crate) fn next(&mut self) -> Option<InboxId> {
        loop {
            self.finish(Duration::ZERO);
            let (class, _) = self.shares.dispatch()?;
            self.running = Some(class);
            if let Some((_, inbox)) = self.ready[class.index()].first {
                return Some(inbox);
            }
            // the class has no ready inbox any more: all of them were paused or emptied since the class was
            // woken
        }
    }

    /// Does the work of [`finish`](Self::finish) and [`next`](Self::next) in one step if the same inbox is
    /// next: if no other class has a ready inbox, and no inbox of its own class precedes it. Otherwise
    /// changes nothing and returns false.
    #[inline]
    pub(crate) fn continue_service(&mut self, inbox: InboxId, took: Duration) -> bool {
        let first = self.running.and_then(|class| self.ready[class.index()].first);
        first.is_some_and(|(_, first)| first == inbox) && self.shares.go_on(units(took))
    }

    /// Ends the service that [`next`](Self::next) began and charges the class for it.
    pub(crate) fn finish(&mut self, took: Duration) {
        let Some(class) = self.running.take() else { return };
        let wants = if self.ready[class.index()].first.is_none() { Wants::Sleep } else { Wants::More };
        self.shares.ran(units(took), wants);
    }
}

fn units(took: Duration) -> u32 {
    u32::try_from(took.as_nanos().min(MAX_CHARGE.as_nanos()).div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unisono_time::Instant;

    proptest! {
        #[test]
        fn the_first_inbox_is_that_of_a_sorted_set(
            steps in proptest::collection::vec((0..6_u32, proptest::option::of(0..8_u64)), 0..80),
        ) {
            let (mut ready, mut model) = (ReadyInboxes::default(), BTreeSet::new());
            let mut stands = std::collections::BTreeMap::new();
            for (inbox, due) in steps {
                let inbox = InboxId(inbox);
                let standing = due.map(|due| ClassStanding { behind: due % 2 == 1, turn: (Instant::from_nanos(due), 7) });
                let before = stands.remove(&inbox).map(|before| (before, inbox));
                let after = standing.map(|standing| (standing, inbox));
                ready.place(before, after);
                if let Some(before) = before {
                    model.remove(&before);
                }
                model.extend(after);
                stands.extend(standing.map(|standing| (inbox, standing)));
                prop_assert_eq!(ready.first, model.first().copied());
                prop_assert!(ready.first.iter().chain(&ready.others).eq(model.iter()));
            }
        }
    }
}
