//! Turns: gangs by this crate's [`Rotation`], gangs in pairs, and one program after the other.
//!
//! All threads of a program that waits for its turn are held: none is in a queue. In its turn thread i of a
//! gang has the i-th core of the gang's place. A program that only fills idle cores gives way to all others.
//!
//! Pairs: a program that leaves cores idle (it pauses, or its threads have unequal work) shares its turns
//! with another one, if both together need no more than the machine; the kernel shares the cores between the
//! two. Reference: Wiseman and Feitelson, "Paired gang scheduling", 2003.

use super::model::Sharing;
use super::state::{CoreSimulation, Event, GangTurns, Joining, Part};
use crate::gang::GangId;
use crate::policy::{Backfill, Rotation};
use unisono_linux::clock::{Duration, Instant};

/// Maximum part of the machine that the two programs of a pair may want together: a program that uses all
/// cores can be paired with a program that uses at most a tenth of them.
const PAIR_FITS: f64 = 1.1;
/// Number of turns of a program after which its use of the cores is known.
const TURNS_BEFORE_PAIRING: u64 = 2;

impl GangTurns {
    pub(super) fn new(sharing: Sharing, cores: usize, programs: usize) -> Self {
        let rotation = match sharing {
            Sharing::Gang { slice, backfill } => Some(Rotation::new(cores, slice, backfill)),
            Sharing::PairedGang { slice } => Some(Rotation::new(cores, slice, Backfill::Never)),
            _ => None,
        };
        Self {
            rotation,
            is_batch: sharing == Sharing::Batch,
            leader: (0..programs).collect(),
            parts: vec![Part::Held; programs],
            served: vec![false; programs],
            busy: vec![1.0; programs],
            since: 0,
            number: 0,
            taken: 0,
        }
    }

    /// Returns whether programs wait for turns at all.
    pub(super) fn decides(&self) -> bool {
        self.is_batch || self.rotation.is_some()
    }
}

impl CoreSimulation<'_> {
    pub(super) fn join(&mut self, p: usize) {
        if !self.turns.decides() {
            return;
        }
        let nobody = self.turns.parts.iter().all(|part| *part == Part::Held);
        if let Some(rotation) = &mut self.turns.rotation {
            let description = self.programs[p].description;
            rotation.join(GangId(p), description.weight);
            rotation.set_width(GangId(p), description.threads);
        }
        if nobody {
            self.next_turn_at(self.now);
        }
    }

    pub(super) fn remove(&mut self, p: usize) {
        if !self.turns.decides() {
            return;
        }
        let partner = (0..self.programs.len()).find(|other| *other != p && self.turns.leader[*other] == p);
        if let Some(rotation) = &mut self.turns.rotation {
            rotation.remove(GangId(p));
        }
        self.turns.parts[p] = Part::Held;
        if let Some(partner) = partner {
            self.turns.leader[partner] = partner;
            self.turns.parts[partner] = Part::Held;
            self.hold(partner);
            self.join(partner);
        }
        self.next_turn_at(self.now);
    }

    fn next_turn_at(&mut self, time: u64) {
        self.turns.number += 1;
        let number = self.turns.number;
        self.at(time, Event::Turn(number));
    }

    pub(super) fn turn(&mut self, number: u64) {
        if number != self.turns.number {
            return;
        }
        for c in 0..self.cores.len() {
            self.charge(c);
        }
        self.observe();
        let parts = if self.turns.is_batch { self.next_of_batch() } else { self.next_gangs() };
        self.turns.since = self.now;
        self.turns.taken += 1;
        self.apply(&parts);
    }

    /// Reports each gang's use of its turn to the policy.
    fn observe(&mut self) {
        let length = self.now - self.turns.since;
        let capacity = (length * self.machine.cores as u64).max(1) as f64;
        for p in 0..self.programs.len() {
            let used = std::mem::take(&mut self.programs[p].used);
            if !matches!(self.turns.parts[p], Part::Runs(..)) {
                continue;
            }
            self.turns.busy[p] = used as f64 / capacity;
            if let Some(rotation) = &mut self.turns.rotation {
                rotation.observe(GangId(p), Duration::from_nanos(used), Duration::from_nanos(length));
            }
        }
        if matches!(self.sharing, Sharing::PairedGang { .. }) {
            self.pair();
        }
    }

    /// Finds a partner for a program that leaves cores idle: the program that fills them best.
    fn pair(&mut self) {
        let known = |p: &usize| {
            let state = &self.programs[*p];
            let is_paired =
                self.turns.leader.iter().filter(|leader| **leader == self.turns.leader[*p]).count() > 1;
            state.is_here && state.ended.is_none() && !is_paired && state.slices >= TURNS_BEFORE_PAIRING
        };
        let free: Vec<usize> = (0..self.programs.len()).filter(known).collect();
        let busy = &self.turns.busy;
        let pairs = free.iter().flat_map(|a| free.iter().map(move |b| (*a, *b))).filter(|(a, b)| a < b);
        let best = pairs
            .filter(|(a, b)| busy[*a] + busy[*b] <= PAIR_FITS)
            .max_by(|x, y| (busy[x.0] + busy[x.1]).total_cmp(&(busy[y.0] + busy[y.1])));
        if let (Some((a, b)), Some(rotation)) = (best, &mut self.turns.rotation) {
            rotation.remove(GangId(b));
            self.turns.leader[b] = a;
        }
    }

    fn next_gangs(&mut self) -> Vec<Part> {
        let mut parts = vec![Part::Held; self.programs.len()];
        let turn = self
            .turns
            .rotation
            .as_mut()
            .and_then(|rotation| rotation.next_turn(Instant::from_nanos(self.now)));
        let Some(turn) = turn else { return parts };
        for place in &turn.run {
            for (p, part) in parts.iter_mut().enumerate() {
                let state = &self.programs[p];
                if self.turns.leader[p] == place.gang.0 && state.is_here && state.ended.is_none() {
                    *part = Part::Runs(place.cores.start, place.cores.len());
                }
            }
        }
        for gang in &turn.backfill {
            parts[gang.0] = Part::Fills;
        }
        self.next_turn_at(turn.until.as_nanos().max(self.now + 1));
        parts
    }

    /// Chooses, in the order of arrival, the next program that has not had its share. The share of a program
    /// that ends is its whole run; the share of any other program is an equal part of the remaining time.
    fn next_of_batch(&mut self) -> Vec<Part> {
        for p in 0..self.programs.len() {
            let was_running = self.turns.parts[p] != Part::Held;
            self.turns.served[p] |= was_running && self.now > self.turns.since;
        }
        let waits = |p: &usize| {
            let state = &self.programs[*p];
            !self.turns.served[*p] && state.ended.is_none()
        };
        let left = (0..self.programs.len()).filter(waits).count() as u64;
        let here = |p: &usize| waits(p) && self.programs[*p].is_here;
        let next =
            (0..self.programs.len()).filter(here).min_by_key(|p| self.programs[*p].description.arrives);
        let mut parts = vec![Part::Held; self.programs.len()];
        if let Some(p) = next {
            parts[p] = Part::Runs(0, self.machine.cores);
            if self.programs[p].description.work.is_none() {
                self.next_turn_at(self.now + (self.end - self.now) / left.max(1));
            }
        }
        parts
    }

    fn hold(&mut self, p: usize) {
        for t in self.programs[p].threads() {
            self.take(t);
            self.threads[t].held = true;
        }
    }

    /// Stops and starts the programs whose part has changed.
    fn apply(&mut self, parts: &[Part]) {
        let before = std::mem::replace(&mut self.turns.parts, parts.to_vec());
        let changed = |p: &usize| before[*p] != parts[*p];
        for p in (0..parts.len()).filter(changed) {
            self.hold(p);
        }
        for (p, part) in parts.iter().enumerate() {
            let Part::Runs(first, count) = *part else { continue };
            self.programs[p].slices += 1;
            if !changed(&p) {
                continue;
            }
            for (number, t) in self.programs[p].threads().enumerate() {
                let thread = &mut self.threads[t];
                thread.held = false;
                thread.is_filler = false;
                thread.allowed = (first + number % count, 1);
                // only the first thread on a core pays for the switch of the core
                if number < count {
                    thread.overhead += self.machine.costs.gang_switch.as_nanos();
                }
                self.enqueue_runnable(first + number % count, t, Joining::Woken);
            }
        }
        for c in 0..self.cores.len() {
            self.choose(c);
        }
        for p in (0..parts.len()).filter(|p| parts[*p] == Part::Fills && changed(p)) {
            for t in self.programs[p].threads() {
                let thread = &mut self.threads[t];
                thread.held = false;
                thread.is_filler = true;
                thread.allowed = (0, self.machine.cores);
                if thread.wants {
                    self.put(t);
                }
            }
        }
    }
}
