//! The waiting events of an inbox in which suppliers share the consumer's time: start-time fair queuing
//! between suppliers, and earliest deadline first among the events of one supplier.
//!
//! ```text
//!   supplier 3  share 2   [due 5] [due 9]      start tag 40   <- least tag: served next
//!   supplier 7  share 1   [due 1]              start tag 60
//! ```
//! With deadlines alone, a supplier that gives all its events short deadlines, or publishes the most, takes a
//! consumer's time and queue from the other suppliers. Here each supplier with waiting events gets time in
//! proportion to its share, measured in the consumer's execution time. A full queue drops an event of the
//! supplier with the most memory per share.
//!
//! When a supplier becomes backlogged, its start tag is the virtual time (the start tag of the supplier
//! served last), or its own finish tag if that is later: unused time is not saved up. When the inbox is
//! empty, all tags are dropped. The scheduler of `unisono-fairqueue` does the same for the classes of a
//! policy; suppliers come and go with each connection, so this module keeps them in a map.
//!
//! Cost: a few operations logarithmic in the number of suppliers, in addition to the operations of
//! [`WaitingParcels`]. When not to use it: if the deadlines of several suppliers have to be met together.
//! Then the earliest deadline of all has to come first, as without shares.
//!
//! Reference: Goyal, Vin, Cheng, "Start-time fair queuing" (SIGCOMM 1996); for the queue, McKenney,
//! "Stochastic fairness queueing" (INFOCOM 1990), section 3: the longest queue loses.

use super::waiting::WaitingParcels;
use super::{DueTurn, FullInbox, Parcel};
use crate::event::EventPayload;
use crate::ids::SupplierId;
use crate::number_map::NumberMap;
use std::collections::BTreeSet;
use unisono_time::{Duration, Instant};

/// Fractional bits of virtual time, so that a charge divided by a large share does not round to zero.
const SCALE: u32 = 32;

#[derive(Debug)]
pub(super) struct SharedParcels<P> {
    lanes: NumberMap<SupplierId, SupplierLane<P>>,
    /// Suppliers with waiting events, by start tag.
    busy: BTreeSet<(u128, SupplierId)>,
    /// Suppliers without waiting events whose finish tags are later than the virtual time.
    idle: BTreeSet<(u128, SupplierId)>,
    /// Suppliers with waiting events, by memory per share.
    loads: BTreeSet<(u128, SupplierId)>,
    /// The virtual time.
    now: u128,
    waiting: usize,
}

#[derive(Debug)]
struct SupplierLane<P> {
    queue: WaitingParcels<P>,
    /// The start tag of the next event, or the finish tag of the last one while the queue is empty.
    tag: u128,
    memory: usize,
    load: u128,
}

fn divided(amount: u64, share: u32) -> u128 {
    (u128::from(amount) << SCALE) / u128::from(share.max(1))
}

impl<P: EventPayload> SharedParcels<P> {
    pub(super) fn new() -> Self {
        Self {
            lanes: NumberMap::default(),
            busy: BTreeSet::new(),
            idle: BTreeSet::new(),
            loads: BTreeSet::new(),
            now: 0,
            waiting: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Parcel<P>> {
        self.lanes.values().flat_map(|lane| lane.queue.iter())
    }

    /// Returns the next turn: the earliest turn of the supplier with the least start tag.
    pub(super) fn first(&self) -> Option<DueTurn> {
        self.lanes.get(&self.busy.first()?.1)?.queue.first()
    }

    pub(super) fn insert(&mut self, turn: DueTurn, parcel: Parcel<P>) {
        let (supplier, share) = (parcel.event.supplier, parcel.event.share);
        let now = self.now;
        let lane = self.lanes.entry(supplier).or_insert_with(|| SupplierLane {
            queue: WaitingParcels::new(),
            tag: now,
            memory: 0,
            load: 0,
        });
        if lane.queue.len() == 0 {
            self.idle.remove(&(lane.tag, supplier));
            lane.tag = lane.tag.max(now);
            self.busy.insert((lane.tag, supplier));
        }
        self.waiting += 1;
        lane.memory += parcel.memory();
        lane.queue.insert(turn, parcel);
        self.weigh(supplier, share);
    }

    /// Makes a waiting event due earlier.
    pub(super) fn advance(&mut self, supplier: SupplierId, turn: DueTurn, due: Instant) {
        if let Some(lane) = self.lanes.get_mut(&supplier) {
            lane.queue.advance(turn, due);
        }
    }

    /// Removes and returns the next event. The supplier is charged later, by [`charge`](Self::charge).
    pub(super) fn take_first(&mut self) -> Option<(DueTurn, Parcel<P>)> {
        let supplier = self.busy.first()?.1;
        let turn = self.lanes.get(&supplier)?.queue.first()?;
        Some((turn, self.take(supplier, turn)?))
    }

    /// Removes and returns the event that a full inbox drops.
    pub(super) fn take_victim(&mut self, now: Instant, full: FullInbox) -> Option<(DueTurn, Parcel<P>)> {
        let supplier = self.loads.last()?.1;
        let turn = self.lanes.get_mut(&supplier)?.queue.victim(now, full)?;
        Some((turn, self.take(supplier, turn)?))
    }

    fn take(&mut self, supplier: SupplierId, turn: DueTurn) -> Option<Parcel<P>> {
        let lane = self.lanes.get_mut(&supplier)?;
        let parcel = lane.queue.remove(turn)?;
        lane.memory -= parcel.memory();
        self.waiting -= 1;
        if lane.queue.len() == 0 {
            self.busy.remove(&(lane.tag, supplier));
            self.idle.insert((lane.tag, supplier));
        }
        self.weigh(supplier, parcel.event.share);
        if self.waiting == 0 {
            self.lanes.clear();
            self.busy.clear();
            self.idle.clear();
            self.now = 0;
        }
        Some(parcel)
    }

    /// Charges a supplier for an event that [`take_first`](Self::take_first) returned and that took this
    /// long.
    pub(super) fn charge(&mut self, supplier: SupplierId, share: u32, took: Duration) {
        let Some(lane) = self.lanes.get_mut(&supplier) else { return };
        let before = lane.tag;
        self.now = self.now.max(before);
        lane.tag += divided(took.as_nanos().max(1), share);
        let set = if lane.queue.len() == 0 { &mut self.idle } else { &mut self.busy };
        set.remove(&(before, supplier));
        set.insert((lane.tag, supplier));
        // a supplier whose finish tag is no later than the virtual time needs no state: a new one would get
        // the same tag
        while let Some((_, supplier)) = self.idle.first().copied().filter(|(tag, _)| *tag <= self.now) {
            self.idle.pop_first();
            self.lanes.remove(&supplier);
        }
    }

    /// Updates a supplier's memory per share after its queue changed.
    fn weigh(&mut self, supplier: SupplierId, share: u32) {
        let Some(lane) = self.lanes.get_mut(&supplier) else { return };
        self.loads.remove(&(lane.load, supplier));
        if lane.queue.len() > 0 {
            lane.load = divided(lane.memory as u64, share);
            self.loads.insert((lane.load, supplier));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ChannelEvent, Criticality, NO_DEADLINE};
    use crate::ids::{SubscriptionId, TopicId};
    use crate::quality::{DispatchOrder, EventOrigin};
    use crate::value::FieldSet;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn parcel(supplier: usize, share: u32, bytes: usize) -> Parcel<Vec<u8>> {
        let event = ChannelEvent {
            topic: TopicId(1),
            key: None,
            fields: FieldSet::new(),
            payload: vec![0; bytes],
            supplier: SupplierId(supplier as u32),
            origin: EventOrigin::Local,
            share,
            order: DispatchOrder::Deadlines,
            sequence: 1,
            published: Instant::ZERO,
            deadline: NO_DEADLINE,
            criticality: Criticality::default(),
        };
        Parcel::new(Arc::new(event), SubscriptionId(1))
    }

    const SUPPLIERS: usize = 3;
    const MAX_RUN: u64 = 500;

    proptest! {
        #[test]
        fn suppliers_of_whom_events_wait_get_time_by_their_shares_and_their_events_by_deadline(
            shares in prop::array::uniform3(1..20_u32),
            steps in prop::collection::vec((0..SUPPLIERS + 2, 1..50_u64, 1..MAX_RUN), 1..400),
        ) {
            let mut queue = SharedParcels::new();
            let mut naive: [Vec<(DueTurn, u64)>; SUPPLIERS] = Default::default();
            // the service of each of two suppliers, in ns, since both have been backlogged
            let mut since = [[[0_u64; 2]; SUPPLIERS]; SUPPLIERS];
            for (arrival, (what, due, took)) in (0..).zip(steps) {
                if what < SUPPLIERS {
                    let turn = (Instant::from_nanos(due), arrival);
                    if naive[what].is_empty() {
                        since[what] = Default::default();
                        since.iter_mut().for_each(|of| of[what] = [0; 2]);
                    }
                    naive[what].push((turn, took));
                    queue.insert(turn, parcel(what, shares[what], took as usize));
                } else {
                    let Some((turn, parcel)) = queue.take_first() else {
                        prop_assert!(naive.iter().all(Vec::is_empty));
                        continue;
                    };
                    let served = parcel.event.supplier.0 as usize;
                    let first = naive[served].iter().min().copied();
                    let took = parcel.event.payload.len() as u64;
                    prop_assert_eq!(Some((turn, took)), first);
                    queue.charge(parcel.event.supplier, parcel.event.share, Duration::from_nanos(took));
                    naive[served].retain(|(other, _)| *other != turn);
                    for other in (0..SUPPLIERS).filter(|other| *other != served) {
                        if naive[other].is_empty() {
                            continue;
                        }
                        since[served][other][0] += took;
                        since[other][served][1] += took;
                        let [ours, theirs] = since[served][other];
                        let (one, two) = (f64::from(shares[served]), f64::from(shares[other]));
                        let apart = (ours as f64 / one - theirs as f64 / two).abs();
                        let bound = MAX_RUN as f64 / one + MAX_RUN as f64 / two;
                        prop_assert!(apart <= bound + 1e-6, "{apart} apart, {bound} at most");
                    }
                    if naive[served].is_empty() {
                        since[served] = Default::default();
                        since.iter_mut().for_each(|of| of[served] = [0; 2]);
                    }
                }
                prop_assert_eq!(queue.len(), naive.iter().map(Vec::len).sum::<usize>());
                prop_assert_eq!(queue.iter().count(), queue.len());
            }
        }

        #[test]
        fn a_full_queue_drops_of_the_supplier_that_holds_most_for_its_share(
            shares in prop::array::uniform3(1..20_u32),
            came in prop::collection::vec((0..SUPPLIERS, 0..300_usize), 1..60),
        ) {
            let mut queue = SharedParcels::new();
            let mut naive: [Vec<(u64, usize)>; SUPPLIERS] = Default::default();
            for (arrival, (supplier, bytes)) in (0..).zip(came) {
                let parcel = parcel(supplier, shares[supplier], bytes);
                naive[supplier].push((arrival, parcel.memory()));
                queue.insert((NO_DEADLINE, arrival), parcel);
            }
            let load = |naive: &[Vec<(u64, usize)>; SUPPLIERS], of: usize| {
                let memory: usize = naive[of].iter().map(|(_, memory)| memory).sum();
                (u128::from(memory as u64) << SCALE) / u128::from(shares[of])
            };
            while let Some(((_, arrival), parcel)) = queue.take_victim(Instant::ZERO, FullInbox::DropOldest) {
                let loser = parcel.event.supplier.0 as usize;
                prop_assert!((0..SUPPLIERS).all(|other| load(&naive, other) <= load(&naive, loser)));
                prop_assert_eq!(naive[loser].remove(0).0, arrival, "its oldest");
            }
            prop_assert!(naive.iter().all(Vec::is_empty));
        }
    }
}
