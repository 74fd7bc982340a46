//! What waits in an inbox: who is next, and who goes first if it is full.
//!
//! Most suppliers give all their events the same time, so turns ascend as they come. These are in one ring;
//! only an event that is due before one that came earlier is in a tree. While all turns ascend and no event
//! is critical, an end of the ring is what goes from a full inbox. Else a full inbox that drops the oldest
//! looks at the first of the least critical, in a ring, too. So one that nobody empties costs its suppliers
//! the same few instructions for each event, however much waits in it.
//!
//! Cost: constant for events whose turns ascend, else a logarithm.

use super::ascending::AscendingQueue;
use super::{DueTurn, FullInbox, Parcel};
use crate::event::{Criticality, EventPayload};
use std::collections::{BTreeMap, BTreeSet};
use unisono_linux::clock::Nanos;

#[derive(Debug)]
pub(super) struct WaitingParcels<P> {
    ascending: AscendingQueue<DueTurn, Parcel<P>>,
    /// What came with an earlier turn than the last of those.
    early: BTreeMap<DueTurn, Parcel<P>>,
    /// How many of them are more than least critical.
    critical: usize,
    /// `None`: since it was empty, it has not been full while the ring did not say who goes.
    victims: Option<VictimOrder>,
}

/// Who goes when it is full: the least critical, then by arrival or by turn.
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

    /// The turn that comes first.
    pub(super) fn first(&self) -> Option<DueTurn> {
        let ascending = self.ascending.first().map(|(turn, _)| *turn);
        let early = self.early.first_key_value().map(|(turn, _)| *turn);
        early.filter(|early| ascending.is_none_or(|turn| *early < turn)).or(ascending)
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

    /// Who goes, if an inbox with this policy is full.
    pub(super) fn victim(&mut self, now: Nanos, full: FullInbox) -> Option<DueTurn> {
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
                // without one that is late already, the one that is due last
                let last = || turns.range(..=(least, (Nanos(u64::MAX), u64::MAX))).next_back();
                if first.0 < now { Some(first) } else { last().map(|(_, turn)| *turn) }
            }
        }
    }
}

impl VictimOrder {
    /// Of arrivals, each has to be later than those before.
    fn insert(&mut self, criticality: Criticality, turn: DueTurn) {
        match self {
            Self::Arrival(of) => of.entry(criticality).or_default().push(turn.1, turn),
            Self::Turn(turns) => drop(turns.insert((criticality, turn))),
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
