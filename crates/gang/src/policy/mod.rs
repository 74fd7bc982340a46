//! The policy: which gangs run now, and until when, as a state machine without a clock.
//!
//! The caller passes the time and asks for the next [`Turn`]. Gangs join, leave and change their width in
//! between. The slots of the [`Matrix`] take turns. The user with the least virtual time is next, and of that
//! user's slots the slot that has waited longest: sixteen gangs of one user together get as much as one gang
//! of another (`shares.rs`). A slot lasts as many slices as the heaviest gang in it weighs. Turns follow one
//! another on a grid of planned times, so a late wake-up shortens one turn and does not shift the others.
//! After a pause of more than a slice (the machine was suspended) the grid starts anew. Cores that a slot
//! does not need are offered to the gangs that have waited longest (backfill).
//!
//! Slots can also follow a clock that several hosts share ([`Rotation::follow_clock`]): then the clock
//! chooses the turn, and hosts with the same gangs switch at the same moment. Each slot then has its turn in
//! each round, whichever users own its gangs.
//!
//! A gang can rest: it has no turns and always runs, because turns would not help it (it blocks, or is
//! asleep). With a single slot and without quotas there is no switch ([`Rotation::is_contended`]), and the
//! caller needs no timer.
//!
//! Property tests compare the policy with a slow reference. Every gang runs in each round. Over any number of
//! rounds, gangs with a slot of their own receive time in proportion to their weights, within one slice. No
//! core belongs to two gangs of a turn. A backfilled gang does not lose its turn.
//!
//! Cost: a turn examines each gang once. The policy does not know threads, cgroups or cores by name.
//!
//! Reference: Ousterhout 1982; Peter et al., ETH TR 745, section 3.5 (GangHi).

mod shares;

use crate::gang::{GangId, GangOwner, GangWeight};
use crate::matrix::{Matrix, Slot, SlotPlace};
use crate::shared_clock::turn_at;
use crate::turn_quota::{MIN_TURN, TurnQuota};
use shares::{UserShares, VirtualTime};
use std::collections::BTreeSet;
use unisono_linux::clock::{Duration, Instant};

/// The policy's state of a gang.
#[derive(Clone, Debug)]
struct Member {
    id: GangId,
    owner: GangOwner,
    weight: GangWeight,
    width: usize,
    /// Number of cores that the gang kept busy in its own turns: an average, with weight [`EWMA_WEIGHT`] for
    /// the last observation. All cores before the first observation.
    busy: f64,
    /// Whether the last observation was far from the average.
    unsure: bool,
    /// Number of the gang's last turn, backfill not counted; 0: none yet.
    served: u64,
    turns: TakesTurns,
    quota: Option<TurnQuota>,
    /// The earliest moment at which the gang's quota allows its next turn.
    ready: Instant,
    /// The sort key of the gang where several hosts have to agree; gangs of equal names are ordered by
    /// number.
    name: Box<str>,
}

/// Whether a gang takes part in the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TakesTurns {
    Yes,
    /// The gang always runs, beside the gang whose turn it is.
    Rests,
}

/// Weight of the newest observation in the average. One observation of a gang that kept half of two cores
/// busy (it was starting, or another program held its core) must not be enough to lend the other half: 2
/// becomes 1.6.
const EWMA_WEIGHT: f64 = 0.4;
/// Fewer idle cores than this are not lent. A gang on idle cores is not stopped by a switch but by the next
/// tick, so lending the short idle times that interruptions cause would cost both gangs more than it gains.
const WORTH_LENDING: f64 = 0.5;

/// The gangs that run from one moment to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub from: Instant,
    /// Planned end: ask again then, or earlier after a gang has left.
    pub until: Instant,
    /// The gangs of this slot, with their cores. Empty: all gangs have used up their quota for now.
    pub run: Vec<SlotPlace>,
    /// Gangs that may use cores left idle by the gangs in `run`, in order of precedence.
    pub backfill: Vec<GangId>,
}

/// Whether idle cores are offered to waiting gangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backfill {
    Offer,
    /// Idle cores stay idle, or are left to other programs.
    Never,
}

/// The state before the last turn, for [`Rotation::undo_turn`].
#[derive(Clone, Debug)]
struct Last {
    until: Option<Instant>,
    /// For each gang of the last turn: the turn in which it ran before, and the earlier value of `ready`.
    served: Vec<(GangId, u64, Instant)>,
    /// The earlier virtual times of the users who had the turn.
    charged: Vec<(GangOwner, VirtualTime)>,
}

#[derive(Clone, Debug)]
pub struct Rotation {
    cores: usize,
    slice: Duration,
    backfill: Backfill,
    members: Vec<Member>,
    matrix: Matrix,
    turns: u64,
    until: Option<Instant>,
    /// The changes made by the last turn, to undo them.
    last: Option<Last>,
    /// Difference between the shared clock and the caller's clock; `None`: turns go by waiting time.
    clock: Option<Duration>,
    shares: UserShares,
    /// Turns are this many times as long as requested.
    factor: u32,
}

impl Rotation {
    /// Makes a rotation without gangs; `slice` is the length of a turn of weight 1.
    pub fn new(cores: usize, slice: Duration, backfill: Backfill) -> Self {
        let (cores, slice) = (cores.max(1), slice.max(Duration::from_nanos(1)));
        Self {
            cores,
            slice,
            backfill,
            members: Vec::new(),
            matrix: Matrix::default(),
            turns: 0,
            until: None,
            last: None,
            clock: None,
            shares: UserShares::default(),
            factor: 1,
        }
    }

    /// Adds a gang. Until its width is known, it gets the whole machine.
    pub fn join(&mut self, id: GangId, weight: GangWeight) {
        if self.members.iter().all(|member| member.id != id) {
            // as if served just now: gangs that waited before it go first
            let served = self.turns;
            self.members.push(Member {
                id,
                owner: GangOwner::default(),
                weight,
                width: self.cores,
                busy: self.cores as f64,
                unsure: false,
                served,
                turns: TakesTurns::Yes,
                quota: None,
                ready: Instant::ZERO,
                name: Box::default(),
            });
            self.enter(GangOwner::default());
            self.repack();
        }
    }

    /// Sets the user who owns the gang's processes. Until then, all gangs belong to one user.
    pub fn belongs_to(&mut self, id: GangId, owner: GangOwner) {
        let is_new = self.turn_takers().all(|member| member.owner != owner);
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            member.owner = owner;
            if is_new {
                self.enter(owner);
            }
        }
    }

    /// Enters a user into the shares, unless the user already had a gang that takes turns.
    fn enter(&mut self, owner: GangOwner) {
        if self.turn_takers().filter(|member| member.owner == owner).count() <= 1 {
            let present: BTreeSet<GangOwner> = self.turn_takers().map(|member| member.owner).collect();
            self.shares.enter(owner, &present);
        }
    }

    /// Makes turns `factor` times as long as requested, from the next one on.
    pub fn lengthen(&mut self, factor: u32) {
        self.factor = factor.max(1);
    }

    /// Sets the gang's name, equal on every host.
    pub fn name(&mut self, id: GangId, name: &str) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            member.name = name.into();
        }
    }

    /// Lets a shared clock, which is `ahead` of the caller's clock, choose the turns from the next one on.
    /// Call this before each turn, because a clock may be set meanwhile.
    pub fn follow_clock(&mut self, ahead: Duration) {
        self.clock = Some(ahead);
    }

    /// Removes a gang that has ended. If it was running, ask for the next turn at once.
    pub fn remove(&mut self, id: GangId) {
        self.members.retain(|member| member.id != id);
        self.repack();
    }

    /// Sets the gang's weight, which takes effect at its next turn.
    pub fn set_weight(&mut self, id: GangId, weight: GangWeight) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            member.weight = weight;
        }
    }

    /// Sets the processor time that the gang may use. Takes effect at its next turn.
    pub fn set_quota(&mut self, id: GangId, quota: Option<TurnQuota>) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            (member.quota, member.ready) = (quota, Instant::ZERO);
        }
    }

    /// Sets the length of a turn of weight 1, from the next turn on.
    pub fn set_slice(&mut self, slice: Duration) {
        self.slice = slice.max(Duration::from_nanos(1));
    }

    /// Removes a gang from the turns until [`wake`](Self::wake); meanwhile it may always run. Returns whether
    /// it took turns before.
    pub fn begin_rest(&mut self, id: GangId) -> bool {
        self.take_part(id, TakesTurns::Rests)
    }

    /// Lets a gang take turns again, as if it had just been served. Returns whether it rested before.
    pub fn wake(&mut self, id: GangId) -> bool {
        self.take_part(id, TakesTurns::Yes)
    }

    fn take_part(&mut self, id: GangId, turns: TakesTurns) -> bool {
        let served = self.turns;
        let changes = |member: &&mut Member| member.id == id && member.turns != turns;
        let Some(member) = self.members.iter_mut().find(changes) else { return false };
        (member.turns, member.served) = (turns, served);
        let owner = member.owner;
        if turns == TakesTurns::Yes {
            self.enter(owner);
        }
        self.repack();
        true
    }

    pub fn is_resting(&self, id: GangId) -> bool {
        self.member(id).is_some_and(|member| member.turns == TakesTurns::Rests)
    }

    /// Returns whether gangs have to wait, for each other or for their quota. If not, the present turn need
    /// not end.
    pub fn is_contended(&self) -> bool {
        self.slots() > 1 || self.turn_takers().any(|member| member.quota.is_some())
    }

    /// Sets the number of cores that the gang can use at once. Returns whether the packing changed.
    pub fn set_width(&mut self, id: GangId, width: usize) -> bool {
        let width = width.clamp(1, self.cores);
        match self.members.iter_mut().find(|member| member.id == id) {
            Some(member) if member.width != width => {
                member.width = width;
                self.repack();
                true
            }
            _ => false,
        }
    }

    /// Records that the gang used `used` of processor time in a turn of its own of this length.
    pub fn observe(&mut self, id: GangId, used: Duration, length: Duration) {
        let Some(member) = self.members.iter_mut().find(|member| member.id == id) else { return };
        if !length.is_zero() {
            let cores = used.as_nanos() as f64 / length.as_nanos() as f64;
            member.busy = member.busy * (1.0 - EWMA_WEIGHT) + cores * EWMA_WEIGHT;
            member.unsure = (cores - member.busy).abs() > WORTH_LENDING;
        }
    }

    /// Returns whether the last observation of this gang was far from the average, so that one more
    /// observation could change the number of cores that the gang lends.
    pub fn is_unsure(&self, id: GangId) -> bool {
        self.member(id).is_some_and(|member| member.unsure)
    }

    pub fn gangs(&self) -> usize {
        self.members.len()
    }

    pub fn slots(&self) -> usize {
        self.matrix.slots().len()
    }

    /// Decides the next turn; `None` if no gang takes turns.
    pub fn next_turn(&mut self, now: Instant) -> Option<Turn> {
        let from = match self.until {
            // on the grid, unless the turn was cut short or the caller slept through a slice
            Some(planned) if now >= planned && now - planned <= self.slice => planned,
            _ => now,
        };
        let first_ready = self.turn_takers().map(|member| member.ready).min()?;
        let (run, mut length) = match self.clock {
            None => match self.longest_waiting(from) {
                Some(run) => {
                    let length = self.length(&run);
                    (run, length)
                }
                None => {
                    self.last = Some(Last {
                        until: self.until.replace(first_ready),
                        served: Vec::new(),
                        charged: Vec::new(),
                    });
                    return Some(Turn { from, until: first_ready, run: Vec::new(), backfill: Vec::new() });
                }
            },
            Some(ahead) => {
                let (slot, left) = self.of_clock((from - Instant::ZERO) + ahead)?;
                // a turn that a quota forbids passes unused: on the other hosts it belongs to this gang
                (self.allowed(&slot.places, from), left)
            }
        };
        self.turns += 1;
        let shortest = MIN_TURN * u64::from(self.factor);
        let mut served = Vec::new();
        for place in &run {
            let Some(member) = self.members.iter_mut().find(|m| m.id == place.gang) else { continue };
            served.push((member.id, std::mem::replace(&mut member.served, self.turns), member.ready));
            let quota = member.quota.and_then(|quota| quota.turn(place.cores.len(), length, shortest));
            if let Some(turn) = quota {
                length = turn.length;
                member.ready = from + turn.again;
            }
        }
        let until = from + length;
        let charged = if self.clock.is_none() { self.charge(&run, length) } else { Vec::new() };
        self.last = Some(Last { until: self.until.replace(until), served, charged });
        let backfill = self.fill(&run);
        Some(Turn { from, until, run, backfill })
    }

    /// Returns the slot that has the turn at a moment of the shared clock, and the rest of its turn.
    fn of_clock(&self, clock: Duration) -> Option<(&Slot, Duration)> {
        let mut slots: Vec<&Slot> = self.matrix.slots().iter().collect();
        slots.sort_by_key(|slot| self.members_of(&slot.places).map(|member| (&member.name, member.id)).min());
        let lengths: Vec<Duration> = slots.iter().map(|slot| self.length(&slot.places)).collect();
        let turn = turn_at(clock, &lengths)?;
        Some((slots[turn.slot], turn.remaining))
    }

    fn length(&self, places: &[SlotPlace]) -> Duration {
        let weight = self.members_of(places).map(|member| member.weight).max().unwrap_or(GangWeight::ONE);
        self.slice * (u64::from(weight.number()) * u64::from(self.factor))
    }

    /// Returns the weight of a user: the greatest weight of the user's gangs.
    fn weight_of(&self, owner: GangOwner) -> GangWeight {
        let gangs = self.turn_takers().filter(|member| member.owner == owner);
        gangs.map(|member| member.weight).max().unwrap_or(GangWeight::ONE)
    }

    /// Charges a turn to the users whose gangs have it, once to each. Returns their earlier virtual times.
    fn charge(&mut self, run: &[SlotPlace], length: Duration) -> Vec<(GangOwner, VirtualTime)> {
        let owners: BTreeSet<GangOwner> = self.members_of(run).map(|member| member.owner).collect();
        let each = owners.into_iter().map(|owner| {
            let weight = self.weight_of(owner);
            (owner, self.shares.charge(owner, length, weight))
        });
        each.collect()
    }

    fn members_of(&self, places: &[SlotPlace]) -> impl Iterator<Item = &Member> {
        places.iter().filter_map(|place| self.member(place.gang))
    }

    /// Returns the places of the gangs whose quota allows a turn now.
    fn allowed(&self, places: &[SlotPlace], now: Instant) -> Vec<SlotPlace> {
        let may = |place: &&SlotPlace| self.member(place.gang).is_some_and(|member| member.ready <= now);
        places.iter().filter(may).cloned().collect()
    }

    /// Undoes the last turn, which was not used; its gangs keep their places in the queue. This allows the
    /// caller to plan a turn ahead of its time.
    pub fn undo_turn(&mut self) {
        let Some(Last { until, served, charged }) = self.last.take() else { return };
        self.until = until;
        charged.into_iter().for_each(|(owner, before)| self.shares.refund(owner, before));
        for (id, turn, ready) in served {
            if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
                (member.served, member.ready) = (turn, ready);
            }
        }
    }

    /// Finds the longest waiting slot of the user with the least virtual time, without the gangs whose quota
    /// allows no turn now.
    fn longest_waiting(&mut self, now: Instant) -> Option<Vec<SlotPlace>> {
        let slots = self.matrix.slots().iter().map(|slot| self.allowed(&slot.places, now));
        let slots: Vec<Vec<SlotPlace>> = slots.filter(|allowed| !allowed.is_empty()).collect();
        let may: Vec<&Member> = slots.iter().flat_map(|slot| self.members_of(slot)).collect();
        let first = |member: &&&Member| (self.shares.virtual_time(member.owner), member.served, member.id);
        let owner = may.iter().min_by_key(first)?.owner;
        let waited = |slot: &Vec<SlotPlace>| {
            self.members_of(slot).filter(|one| one.owner == owner).map(|one| (one.served, one.id)).min()
        };
        let chosen =
            slots.iter().filter_map(|slot| Some((waited(slot)?, slot))).min_by_key(|(waited, _)| *waited);
        let chosen = chosen.map(|(_, slot)| slot.clone());
        let able: BTreeSet<GangOwner> = may.iter().map(|member| member.owner).collect();
        let unable: BTreeSet<GangOwner> =
            self.turn_takers().map(|member| member.owner).filter(|owner| !able.contains(owner)).collect();
        unable.into_iter().for_each(|other| self.shares.pass_over(other, owner));
        chosen
    }

    /// Chooses waiting gangs for the cores that `run` leaves idle, the longest waiting first.
    fn fill(&self, run: &[SlotPlace]) -> Vec<GangId> {
        if self.backfill == Backfill::Never {
            return Vec::new();
        }
        let demand = |member: &Member| member.busy.min(member.width as f64);
        let used: f64 = run.iter().filter_map(|place| self.member(place.gang)).map(demand).sum();
        let mut idle = self.cores as f64 - used;
        let mut waiting: Vec<&Member> =
            self.turn_takers().filter(|m| run.iter().all(|place| place.gang != m.id)).collect();
        waiting.retain(|member| member.quota.is_none());
        waiting.sort_by_key(|member| (member.served, member.id));
        let mut fill = Vec::new();
        for member in waiting {
            if idle < WORTH_LENDING {
                break;
            }
            idle -= demand(member);
            fill.push(member.id);
        }
        fill
    }

    fn member(&self, id: GangId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    fn turn_takers(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.turns == TakesTurns::Yes)
    }

    fn repack(&mut self) {
        let widths: Vec<_> = self.turn_takers().map(|member| (member.id, member.width)).collect();
        self.matrix = Matrix::pack(self.cores, &widths);
    }
}

#[cfg(test)]
mod tests;
