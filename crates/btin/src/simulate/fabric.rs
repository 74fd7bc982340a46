//! The cables of a simulated network: the time of a crossing, waiting messages, and lost messages.

use super::wiring::{CableDirection, PortPeer, Wiring};
use super::{Channels, Conditions, SimulatedTime};
use crate::{NodeId, SwitchLink};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// All cables, with their state and their counters.
pub(super) struct SimulatedFabric<'a> {
    pub(super) wiring: &'a Wiring,
    conditions: &'a Conditions,
    /// By channel: the time at which it is free again. Empty if messages do not wait for each other.
    free: Vec<SimulatedTime>,
    /// By channel: the time from which it loses all messages. Empty: no channel fails.
    fails: Vec<Option<SimulatedTime>>,
    pub(super) load: Vec<u32>,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) random: Pcg64Mcg,
    crossed: u64,
    /// Called with the number of crossings after every [`BETWEEN`] crossings.
    watch: &'a mut dyn FnMut(u64),
}

/// The number of crossings between two calls of `watch`: some milliseconds of work.
const BETWEEN: u64 = 1 << 16;

impl<'a> SimulatedFabric<'a> {
    pub(super) fn new(
        wiring: &'a Wiring,
        links: &[SwitchLink],
        conditions: &'a Conditions,
        watch: &'a mut dyn FnMut(u64),
    ) -> Self {
        let contended = conditions.channels == Channels::Contended;
        let mut fails = Vec::new();
        if !conditions.faults.failing.is_empty() {
            fails.resize(wiring.channels(), None);
            for (link, when) in &conditions.faults.failing {
                let Some(link) = links.get(*link as usize) else { continue };
                for end in [link.a, link.b] {
                    fails[wiring.out_of(end.switch, end.port).0 as usize] = Some(*when);
                }
            }
        }
        Self {
            wiring,
            conditions,
            free: vec![SimulatedTime::ZERO; if contended { wiring.channels() } else { 0 }],
            fails,
            load: vec![0; wiring.channels()],
            lost: 0,
            duplicated: 0,
            random: Pcg64Mcg::seed_from_u64(conditions.seed),
            crossed: 0,
            watch,
        }
    }

    /// Returns whether a message's whole way can be computed at once, because no other message can delay it.
    pub(super) fn is_free(&self) -> bool {
        self.free.is_empty()
    }

    /// Sends a message into a channel. Returns the times at which the message and its duplicate, if any,
    /// leave the channel.
    pub(super) fn cross(
        &mut self,
        channel: CableDirection,
        now: SimulatedTime,
    ) -> [Option<SimulatedTime>; 2] {
        let at = channel.0 as usize;
        self.load[at] += 1;
        self.crossed += 1;
        if self.crossed.is_multiple_of(BETWEEN) {
            (self.watch)(self.crossed);
        }
        let costs = &self.conditions.costs;
        let mut start = now;
        if let Some(free) = self.free.get_mut(at) {
            start = now.max(*free);
            *free = start + costs.switch + costs.propagation;
        }
        if self.fails.get(at).copied().flatten().is_some_and(|when| start >= when) {
            self.lost += 1;
            return [None, None];
        }
        let faults = &self.conditions.faults;
        if faults.loss > 0.0 && self.random.random_bool(faults.loss) {
            self.lost += 1;
            return [None, None];
        }
        let first = start + costs.propagation + late(&mut self.random, faults.jitter);
        if faults.duplicate > 0.0 && self.random.random_bool(faults.duplicate) {
            self.duplicated += 1;
            let copy = start + costs.propagation + late(&mut self.random, faults.jitter);
            return [Some(first), Some(copy)];
        }
        [Some(first), None]
    }

    /// Counts a trip from a switch to its node and back, for a register that the node keeps.
    pub(super) fn count_visit(&mut self, node: NodeId) {
        let back = self.wiring.out_of_node(node);
        if let PortPeer::Switch(end) = self.wiring.far(back) {
            self.load[self.wiring.out_of(end.switch, end.port).0 as usize] += 1;
            self.load[back.0 as usize] += 1;
        }
    }

    /// Draws a random time within [`Conditions::arrivals`].
    pub(super) fn arrival(&mut self) -> SimulatedTime {
        late(&mut self.random, self.conditions.arrivals)
    }

    /// Returns the number of crossings of cables by messages.
    pub(super) fn hops(&self) -> u64 {
        self.load.iter().map(|load| u64::from(*load)).sum()
    }
}

/// Draws a random time up to `max`, uniformly distributed.
fn late(random: &mut Pcg64Mcg, max: SimulatedTime) -> SimulatedTime {
    match max.as_picoseconds() {
        0 => SimulatedTime::ZERO,
        max => SimulatedTime::picoseconds(random.random_range(0..=max)),
    }
}
