//! The waiting events of an inbox: the next event, and the event to drop when the inbox is full.
//!
//! Most suppliers give all their events the same relative deadline, so turns ascend in order of arrival. Such
//! turns are kept in a ring; only an event that is due before an earlier arrival goes into a tree. While all
//! turns ascend and no event is critical, a full inbox drops an event at one end of the ring. Otherwise, a
//! full inbox that drops the oldest event takes the first event of the least criticality, also from a ring.
//! So an event for a full inbox whose consumer takes nothing costs the supplier the same few instructions,
//! whatever the length of the inbox.
//!
//! Cost: constant for events with ascending turns, otherwise logarithmic.

use super::ascending::AscendingQueue;
use super::{DueTurn, FullInbox, Parcel};
use crate::event::{Criticality, EventPayload};
use std::collections::{BTreeMap, BTreeSet};
use unisono_time::Instant;

#[derive(Debug)]
pub(super) struct WaitingParcels<P> {
    ascending: AscendingQueue<DueTurn, Parcel<P>>,
    /// The events whose turn, at their arrival, was earlier than the last one in `ascending`.
    early: BTreeMap<DueTurn, Parcel<P>>,
    /// The number of waiting events above the lowest criticality.
    critical: usize,
    /// The order in which a full inbox drops events. `None`: since the inbox was last empty, each event to
    /// drop has been at an end of the ring.
    victims: Option<VictimOrder>,
}

/// The drop order of a full inbox: the least critical event first, then by arrival or by turn.
#[derive(Debug)]
enum VictimOrder {
    Arrival(BTreeMap<Criticality, AscendingQueue<u64, DueTurn>>),
    Turn(BTreeSet<(Criticality, DueTurn)>),
}

impl<P: EventPayload> WaitingParcels<P> {
    pub(super) fn new() -> Self {
        Self { ascending: AscendingQueue::default(), early: BTreeMap::new(), critical: 0, victims: None }
    }

    pub(super) fn len(&self) -> usize {
        self.ascending.len() + self.early.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Parcel<P>> {
        self.ascending.iter().map(|(_, parcel)| parcel).chain(self.early.values())
    }

    /// Returns the earliest turn.
    pub(super) fn first(&self) -> Option<DueTurn> {
        self.front().map(|(turn, _)| *turn)
    }

    /// Returns the event with the earliest turn, and that turn.
    pub(super) fn front(&self) -> Option<(&DueTurn, &Parcel<P>)> {
        match (self.ascending.first(), self.early.first_key_value()) {
            (Some(one), Some(early)) => Some(if early.0 < one.0 { early } else { one }),
            (one, early) => one.or(early),
        }
    }

    pub(super) fn insert(&mut self, turn: DueTurn, parcel: Parcel<P>) {
        self.critical += usize::from(parcel.event.criticality > Criticality::default());
        if let Some(victims) = &mut self.victims {
            victims.insert(parcel.event.criticality, turn);
        }
        match self.ascending.last() {
            Some((last, _)) if *last > turn => drop(self.early.insert(turn, parcel)),
            _ => self.ascending.push(turn, parcel),
        }
    }

    /// Makes a waiting event due earlier. The event keeps its place in the order of arrival.
    pub(super) fn advance(&mut self, turn: DueTurn, due: Instant) {
        let Some(parcel) = self.ascending.remove(&turn).or_else(|| self.early.remove(&turn)) else { return };
        let advanced = (due, turn.1);
        if let Some(victims) = &mut self.victims {
            victims.advance(parcel.event.criticality, turn, advanced);
        }
        self.early.insert(advanced, parcel);
    }

    pub(super) fn remove(&mut self, turn: DueTurn) -> Option<Parcel<P>> {
        let parcel = self.ascending.remove(&turn).or_else(|| self.early.remove(&turn))?;
        self.critical -= usize::from(parcel.event.criticality > Criticality::default());
        if self.len() == 0 {
            self.victims = None;
        } else if let Some(victims) = &mut self.victims {
            victims.remove(parcel.event.criticality, turn);
        }
        Some(parcel)
    }

    /// Returns the turn of the event that a full inbox with this policy drops.
    pub(super) fn victim(&mut self, now: Instant, full: FullInbox) -> Option<DueTurn> {
        if self.victims.is_none() && self.critical == 0 && self.early.is_empty() {
            let (first, _) = self.ascending.first()?;
            return match full {
                FullInbox::DropByDeadline if first.0 >= now => self.ascending.last().map(|(turn, _)| *turn),
                _ => Some(*first),
            };
        }
        if self.victims.is_none() {
            let turns = self.ascending.iter().chain(&self.early);
            let mut all: Vec<_> = turns.map(|(turn, it)| (it.event.criticality, *turn)).collect();
            let mut order = match full {
                FullInbox::DropByDeadline => VictimOrder::Turn(BTreeSet::new()),
                FullInbox::DropOldest | FullInbox::BlockSupplier => VictimOrder::Arrival(BTreeMap::new()),
            };
            all.sort_unstable_by_key(|(_, (_, arrival))| *arrival);
            all.into_iter().for_each(|(criticality, turn)| order.insert(criticality, turn));
            self.victims = Some(order);
        }
        match self.victims.as_ref()? {
            VictimOrder::Arrival(of) => of.first_key_value()?.1.first().map(|(_, turn)| *turn),
            VictimOrder::Turn(turns) => {
                let (least, first) = *turns.first()?;
                // if no event is late, the one with the latest deadline is dropped
                let last = || turns.range(..=(least, (Instant::NEVER, u64::MAX))).next_back();
                if first.0 < now { Some(first) } else { last().map(|(_, turn)| *turn) }
            }
        }
    }
}

impl VictimOrder {
    /// Adds an event to the drop order. Arrival numbers must ascend from one insertion to the next.
    fn insert(&mut self, criticality: Criticality, turn: DueTurn) {
        match self {
            Self::Arrival(of) => of.entry(criticality).or_default().push(turn.1, turn),
            Self::Turn(turns) => drop(turns.insert((criticality, turn))),
        }
    }

    fn advance(&mut self, criticality: Criticality, turn: DueTurn, advanced: DueTurn) {
        match self {
            Self::Arrival(of) => {
                if let Some(turns) = of.get_mut(&criticality) {
                    turns.replace(&turn.1, advanced);
                }
            }
            Self::Turn(turns) => {
                turns.remove(&(criticality, turn));
                turns.insert((criticality, advanced));
            }
        }
    }

    fn remove(&mut self, criticality: Criticality, turn: DueTurn) {
        match self {
            Self::Arrival(of) => {
                if let Some(turns) = of.get_mut(&criticality) {
                    turns.remove(&turn.1);
                    if turns.len() == 0 {
                        of.remove(&criticality);
                    }
                }
            }
            Self::Turn(turns) => drop(turns.remove(&(criticality, turn))),
        }
    }
}
