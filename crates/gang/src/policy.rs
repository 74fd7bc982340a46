//! Which gangs run now, and until when: the policy, as a state machine without a clock.
//!
//! The caller passes the time and asks for the next [`Turn`]. Gangs join, leave and change their width in
//! between. The slots of the [`Matrix`] take turns; the slot that has waited longest is next. A slot lasts as
//! many slices as the heaviest gang in it weighs. Turns follow one another on a grid of planned times, so a
//! late wake-up shortens one turn and does not shift the others. After a pause of more than a slice (the
//! machine was suspended) the grid starts anew. Cores that a slot does not need are offered to the gangs that
//! have waited longest (backfill).
//!
//! Slots can also follow a clock that several hosts share ([`Rotation::follow_clock`]): then the clock says
//! whose turn it is, and hosts with the same gangs switch at the same moment.
//!
//! A gang can rest: it has no turns and always runs, because turns would not help it (it blocks, or is
//! asleep). With a single slot there is nothing to switch ([`Rotation::is_contended`]), and the caller needs
//! no timer.
//!
//! Property tests compare the policy with a slow reference. Every gang runs in each round. Over any number of
//! rounds, gangs that have a slot alone receive time in proportion to their weights, within one slice. No
//! core belongs to two gangs of a turn. A gang that is backfilled does not lose its turn.
//!
//! Cost: a turn looks at each gang once. It does not know threads, cgroups or cores by name.
//!
//! Reference: Ousterhout 1982; Peter et al., ETH TR 745, section 3.5 (GangHi).

use crate::gang::{GangId, GangWeight};
use crate::matrix::{Matrix, Slot, SlotPlace};
use crate::shared_clock::turn_at;
use crate::turn_quota::TurnQuota;
use unisono_linux::clock::Nanos;

/// A gang as the policy sees it.
#[derive(Clone, Debug)]
struct Member {
    id: GangId,
    weight: GangWeight,
    width: usize,
    /// Cores it kept busy in its own turns: an average in which the last observation counts [`NEWEST`].
    /// All cores before the first observation.
    busy: f64,
    /// The last observation was far from the average.
    unsure: bool,
    /// The turn in which it last ran by right; 0: never.
    served: u64,
    turns: TakesTurns,
    quota: Option<TurnQuota>,
    /// When its quota allows its next turn.
    ready: Nanos,
    /// By which it is ordered among the gangs of several hosts; its number orders it among those of this one.
    name: Box<str>,
}

/// Whether a gang takes part in the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TakesTurns {
    Yes,
    /// It always runs, beside whoever has the turn.
    Rests,
}

/// How much the newest observation of a gang counts. A single turn in which a gang kept half of two cores
/// busy (it was starting, or another program held its core) must not be enough to lend the other half: 2
/// becomes 1.6.
const NEWEST: f64 = 0.4;
/// Fewer idle cores than this are not lent. A gang on idle cores is not stopped by a switch but by the next
/// tick, so lending what interruptions leave would cost both gangs more than it gives.
const WORTH_LENDING: f64 = 0.5;

/// Which gangs run, from when to when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub from: Nanos,
    /// Planned end: ask again then, or earlier when a gang left.
    pub until: Nanos,
    /// The gangs of this slot, with their cores. None: all have used their quota up for now.
    pub run: Vec<SlotPlace>,
    /// Gangs that may use what those leave idle, in order.
    pub backfill: Vec<GangId>,
}

/// Whether idle cores are offered to waiting gangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backfill {
    Offer,
    /// They stay idle (or are left to others).
    Never,
}

/// The state before the last turn.
#[derive(Clone, Debug)]
struct Last {
    until: Option<Nanos>,
    /// Of each gang that had the turn: the turn in which it ran before, and when its quota allowed this one.
    served: Vec<(GangId, u64, Nanos)>,
}

#[derive(Clone, Debug)]
pub struct Rotation {
    cores: usize,
    slice: Nanos,
    backfill: Backfill,
    members: Vec<Member>,
    matrix: Matrix,
    turns: u64,
    until: Option<Nanos>,
    /// What the last turn changed, to take it back.
    last: Option<Last>,
    /// How far the clock that decides is ahead of the caller's; `None`: waiting decides.
    clock: Option<Nanos>,
}

impl Rotation {
    /// No gangs yet; `slice` is the length of a turn of weight 1.
    pub fn new(cores: usize, slice: Nanos, backfill: Backfill) -> Self {
        let (cores, slice) = (cores.max(1), Nanos(slice.0.max(1)));
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
        }
    }

    /// A gang arrives. Until its width is known, it gets the whole machine.
    pub fn join(&mut self, id: GangId, weight: GangWeight) {
        if self.members.iter().all(|member| member.id != id) {
            // as if served just now: it waits for those who waited before it
            let served = if self.turns == 0 { 0 } else { self.turns };
            self.members.push(Member {
                id,
                weight,
                width: self.cores,
                busy: self.cores as f64,
                unsure: false,
                served,
                turns: TakesTurns::Yes,
                quota: None,
                ready: Nanos::ZERO,
                name: Box::default(),
            });
            self.repack();
        }
    }

    /// What the gang is called on every host.
    pub fn name(&mut self, id: GangId, name: &str) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            member.name = name.into();
        }
    }

    /// From the next turn on a clock decides, which is `ahead` of the one that the caller's times are of.
    /// Tell anew before each turn, because clocks are set.
    pub fn follow_clock(&mut self, ahead: Nanos) {
        self.clock = Some(ahead);
    }

    /// A gang has ended. If it was running, ask for the next turn at once.
    pub fn leave(&mut self, id: GangId) {
        self.members.retain(|member| member.id != id);
        self.repack();
    }

    /// Counts from the gang's next turn on.
    pub fn set_weight(&mut self, id: GangId, weight: GangWeight) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            member.weight = weight;
        }
    }

    /// The processor time that the gang may use. Counts from its next turn on.
    pub fn set_quota(&mut self, id: GangId, quota: Option<TurnQuota>) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            (member.quota, member.ready) = (quota, Nanos::ZERO);
        }
    }

    /// The length of a turn of weight 1, from the next turn on.
    pub fn set_slice(&mut self, slice: Nanos) {
        self.slice = Nanos(slice.0.max(1));
    }

    /// The gang takes no turns until it is woken; it may always run. Answers whether that is new.
    pub fn rest(&mut self, id: GangId) -> bool {
        self.take_part(id, TakesTurns::Rests)
    }

    /// The gang takes turns again, as one that has just been served. Answers whether that is new.
    pub fn wake(&mut self, id: GangId) -> bool {
        self.take_part(id, TakesTurns::Yes)
    }

    fn take_part(&mut self, id: GangId, turns: TakesTurns) -> bool {
        let served = self.turns;
        let changes = |member: &&mut Member| member.id == id && member.turns != turns;
        let Some(member) = self.members.iter_mut().find(changes) else { return false };
        (member.turns, member.served) = (turns, served);
        self.repack();
        true
    }

    pub fn is_resting(&self, id: GangId) -> bool {
        self.member(id).is_some_and(|member| member.turns == TakesTurns::Rests)
    }

    /// Whether gangs have to wait, for each other or for their quota. If not, the present turn need not end.
    pub fn is_contended(&self) -> bool {
        self.slots() > 1 || self.turn_takers().any(|member| member.quota.is_some())
    }

    /// How many cores the gang can use at once. Answers whether that changed the packing.
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

    /// The gang used `used` of processor time in a turn of its own that lasted `length`.
    pub fn observe(&mut self, id: GangId, used: Nanos, length: Nanos) {
        let Some(member) = self.members.iter_mut().find(|member| member.id == id) else { return };
        if length.0 > 0 {
            let cores = used.0 as f64 / length.0 as f64;
            member.busy = member.busy * (1.0 - NEWEST) + cores * NEWEST;
            member.unsure = (cores - member.busy).abs() > WORTH_LENDING;
        }
    }

    /// Whether the last observation of this gang was far from those before it, so that one more could change
    /// how many cores it lends.
    pub fn is_unsure(&self, id: GangId) -> bool {
        self.member(id).is_some_and(|member| member.unsure)
    }

    pub fn gangs(&self) -> usize {
        self.members.len()
    }

    pub fn slots(&self) -> usize {
        self.matrix.slots().len()
    }

    /// The next turn, or `None` when no gang takes turns.
    pub fn next_turn(&mut self, now: Nanos) -> Option<Turn> {
        let from = match self.until {
            // on the grid, unless the turn was cut short or the caller slept through a slice
            Some(planned) if now >= planned && now.since(planned) <= self.slice => planned,
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
                    self.last = Some(Last { until: self.until.replace(first_ready), served: Vec::new() });
                    return Some(Turn { from, until: first_ready, run: Vec::new(), backfill: Vec::new() });
                }
            },
            Some(ahead) => {
                let (slot, left) = self.of_clock(ahead.after(from))?;
                // a turn that a quota forbids passes unused: on the other hosts it is this gang's
                (self.allowed(&slot.places, from), left)
            }
        };
        self.turns += 1;
        let mut served = Vec::new();
        for place in &run {
            let Some(member) = self.members.iter_mut().find(|m| m.id == place.gang) else { continue };
            served.push((member.id, std::mem::replace(&mut member.served, self.turns), member.ready));
            let quota = member.quota.and_then(|quota| quota.turn(place.cores.len(), length));
            if let Some(turn) = quota {
                length = turn.length;
                member.ready = turn.again.after(from);
            }
        }
        let until = length.after(from);
        self.last = Some(Last { until: self.until.replace(until), served });
        let backfill = self.fill(&run);
        Some(Turn { from, until, run, backfill })
    }

    /// The slot whose turn it is at a moment of the shared clock, and how long it still lasts.
    fn of_clock(&self, moment: Nanos) -> Option<(&Slot, Nanos)> {
        let mut slots: Vec<&Slot> = self.matrix.slots().iter().collect();
        slots.sort_by_key(|slot| self.members_of(&slot.places).map(|member| (&member.name, member.id)).min());
        let lengths: Vec<Nanos> = slots.iter().map(|slot| self.length(&slot.places)).collect();
        let turn = turn_at(moment, &lengths)?;
        Some((slots[turn.slot], turn.left))
    }

    fn length(&self, places: &[SlotPlace]) -> Nanos {
        let weight = self.members_of(places).map(|member| member.weight).max().unwrap_or(GangWeight::ONE);
        self.slice.times(weight.number().into())
    }

    fn members_of(&self, places: &[SlotPlace]) -> impl Iterator<Item = &Member> {
        places.iter().filter_map(|place| self.member(place.gang))
    }

    /// The gangs whose quota allows a turn now.
    fn allowed(&self, places: &[SlotPlace], now: Nanos) -> Vec<SlotPlace> {
        let may = |place: &&SlotPlace| self.member(place.gang).is_some_and(|member| member.ready <= now);
        places.iter().filter(may).cloned().collect()
    }

    /// Takes back the last turn, which was not used; its gangs keep their place in the queue. This allows the
    /// caller to decide a turn ahead of its time.
    pub fn take_back(&mut self) {
        let Some(Last { until, served }) = self.last.take() else { return };
        self.until = until;
        for (id, turn, ready) in served {
            if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
                (member.served, member.ready) = (turn, ready);
            }
        }
    }

    /// The slot that has waited longest of those in which some quota allows a turn now, without the gangs
    /// whose quota does not.
    fn longest_waiting(&self, now: Nanos) -> Option<Vec<SlotPlace>> {
        let slots = self.matrix.slots().iter().map(|slot| self.allowed(&slot.places, now));
        slots
            .filter(|allowed| !allowed.is_empty())
            .min_by_key(|allowed| self.members_of(allowed).map(|member| (member.served, member.id)).min())
    }

    /// Waiting gangs for the cores that `run` leaves idle, the longest waiting first.
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const SLICE: Nanos = Nanos(20_000_000);

    fn rotation(cores: usize, weights: &[u32]) -> Rotation {
        let mut rotation = Rotation::new(cores, SLICE, Backfill::Offer);
        for (i, weight) in weights.iter().enumerate() {
            rotation.join(GangId(i), GangWeight::new(*weight).expect("a weight"));
        }
        rotation
    }

    fn ids(turn: &Turn) -> Vec<usize> {
        turn.run.iter().map(|place| place.gang.0).collect()
    }

    #[test]
    fn whole_machine_gangs_take_turns_as_long_as_they_weigh() {
        let mut rotation = rotation(2, &[1, 2]);
        let first = rotation.next_turn(Nanos(0)).expect("a turn");
        assert_eq!((ids(&first), first.until), (vec![0], SLICE));
        let second = rotation.next_turn(first.until).expect("a turn");
        assert_eq!((ids(&second), second.until), (vec![1], SLICE.times(3)));
        assert_eq!(ids(&rotation.next_turn(second.until).expect("a turn")), [0]);
    }

    #[test]
    fn a_gang_that_fills_its_cores_but_for_interruptions_is_not_backfilled_upon() {
        let mut rotation = rotation(2, &[1, 1]);
        for _ in 0..10 {
            rotation.observe(GangId(0), Nanos(32_000_000), SLICE);
        }
        let first = rotation.next_turn(Nanos(0)).expect("a turn");
        assert_eq!((ids(&first), first.backfill), (vec![0], vec![]), "1.6 of 2 cores are busy");
    }

    #[test]
    fn one_turn_of_a_gang_that_is_still_starting_lends_nothing_and_asks_for_another_look() {
        let mut rotation = rotation(2, &[1, 1]);
        rotation.observe(GangId(0), SLICE, SLICE);
        let first = rotation.next_turn(Nanos(0)).expect("a turn");
        assert_eq!((ids(&first), first.backfill), (vec![0], vec![]), "one of 2 cores was busy, once");
        assert!(rotation.is_unsure(GangId(0)) && !rotation.is_unsure(GangId(1)));
        rotation.observe(GangId(0), SLICE.times(2), SLICE);
        assert!(!rotation.is_unsure(GangId(0)), "both cores are busy after all");
    }

    #[test]
    fn a_gang_that_leaves_a_core_idle_twice_lends_it() {
        let mut rotation = rotation(2, &[1, 1]);
        rotation.observe(GangId(0), SLICE, SLICE);
        rotation.observe(GangId(0), SLICE, SLICE);
        assert!(!rotation.is_unsure(GangId(0)));
        assert_eq!(rotation.next_turn(Nanos(0)).expect("a turn").backfill, [GangId(1)]);
    }

    #[test]
    fn a_late_wake_up_does_not_shift_the_grid_but_a_long_pause_does() {
        let mut rotation = rotation(2, &[1, 1]);
        let first = rotation.next_turn(Nanos(0)).expect("a turn");
        let late = rotation.next_turn(Nanos(3_000_000).after(first.until)).expect("a turn");
        assert_eq!(late.until, SLICE.times(2));
        let slept = Nanos(5_000_000_000);
        assert_eq!(rotation.next_turn(slept).expect("a turn").until, SLICE.after(slept));
    }

    #[test]
    fn idle_cores_are_offered_to_the_gang_that_waits_longest() {
        let mut rotation = rotation(4, &[1, 1, 1]);
        rotation.observe(GangId(0), Nanos(SLICE.0), SLICE);
        assert_eq!(rotation.next_turn(Nanos(0)).expect("a turn").backfill, [GangId(1)]);
        let busy = rotation.next_turn(SLICE).expect("a turn");
        assert_eq!((ids(&busy), busy.backfill), (vec![1], vec![]));
    }

    #[test]
    fn a_gang_that_leaves_in_its_turn_gives_way_at_once() {
        let mut rotation = rotation(2, &[5, 1]);
        rotation.next_turn(Nanos(0));
        rotation.leave(GangId(0));
        let next = rotation.next_turn(Nanos(7)).expect("a turn");
        assert_eq!((ids(&next), next.from), (vec![1], Nanos(7)));
        rotation.leave(GangId(1));
        assert_eq!(rotation.next_turn(Nanos(9)), None);
    }

    #[test]
    fn a_turn_that_was_taken_back_is_given_again() {
        let mut rotation = rotation(2, &[1, 1, 1]);
        let first = rotation.next_turn(Nanos(0)).expect("a turn");
        let ahead = rotation.next_turn(first.until).expect("a turn");
        assert_eq!(ids(&ahead), [1]);
        rotation.take_back();
        rotation.leave(GangId(2));
        assert_eq!(rotation.next_turn(first.until), Some(ahead));
    }

    #[test]
    fn hosts_that_follow_a_clock_give_a_gang_its_turn_at_the_same_moment() {
        let ahead = [Nanos(1_000_000_007), Nanos(5_000_003)];
        // the gangs came in another order on the second host, whose own clock began later
        let mut hosts = [rotation(2, &[1, 2]), rotation(4, &[2, 1])];
        hosts[0].name(GangId(0), "b");
        hosts[0].name(GangId(1), "a");
        hosts[1].name(GangId(0), "a");
        hosts[1].name(GangId(1), "b");
        let mut turns: [Vec<(bool, u64)>; 2] = Default::default();
        for (host, (rotation, ahead)) in hosts.iter_mut().zip(ahead).enumerate() {
            let mut now = Nanos(1_500_000_000).since(ahead);
            while ahead.after(now) < Nanos(2_500_000_000) {
                rotation.follow_clock(ahead);
                let turn = rotation.next_turn(now).expect("a turn");
                let is_a = turn.run[0].gang.0 != host;
                turns[host].push((is_a, ahead.after(turn.until).0));
                now = turn.until;
            }
        }
        assert_eq!(turns[0], turns[1]);
        assert!(turns[0].len() > 30 && turns[0].windows(2).all(|turns| turns[0].0 != turns[1].0));
    }

    #[test]
    fn a_gang_that_rests_has_no_turns_and_keeps_its_weight() {
        let mut rotation = rotation(2, &[3, 1]);
        assert!(rotation.is_contended() && rotation.rest(GangId(0)) && !rotation.rest(GangId(0)));
        assert!(rotation.is_resting(GangId(0)) && !rotation.is_contended());
        let lone = rotation.next_turn(Nanos(0)).expect("a turn");
        assert_eq!((ids(&lone), lone.backfill), (vec![1], vec![]), "nothing is lent to one that runs anyway");
        assert!(rotation.rest(GangId(1)));
        assert_eq!(rotation.next_turn(SLICE), None, "nobody takes turns");
        assert!(rotation.wake(GangId(0)) && rotation.wake(GangId(1)) && !rotation.wake(GangId(1)));
        let first = rotation.next_turn(SLICE).expect("a turn");
        assert_eq!((ids(&first), first.until), (vec![0], SLICE.times(4)));
    }

    #[test]
    fn a_new_weight_and_a_new_slice_count_from_the_next_turn() {
        let mut rotation = rotation(2, &[1, 1]);
        let first = rotation.next_turn(Nanos(0)).expect("a turn");
        rotation.set_weight(GangId(1), GangWeight::new(4).expect("a weight"));
        let second = rotation.next_turn(first.until).expect("a turn");
        assert_eq!((ids(&second), second.until), (vec![1], SLICE.times(5)));
        rotation.set_slice(Nanos(SLICE.0 / 4));
        let third = rotation.next_turn(second.until).expect("a turn");
        assert_eq!(third.until.since(third.from), Nanos(SLICE.0 / 4));
    }

    /// Two of two cores; the first may use the time of one.
    fn with_a_quota(weights: &[u32]) -> Rotation {
        let mut rotation = rotation(2, weights);
        let period = Nanos(100_000_000);
        rotation.set_quota(GangId(0), Some(TurnQuota { time: period, period }));
        rotation
    }

    #[test]
    fn a_lone_gang_is_stopped_as_a_whole_before_its_quota_is_used_up() {
        let mut rotation = with_a_quota(&[1]);
        assert!(rotation.is_contended(), "its turns end");
        let (mut now, mut ran) = (Nanos::ZERO, 0);
        while now < Nanos(1_000_000_000) {
            let turn = rotation.next_turn(now).expect("a turn");
            ran += turn.run.len() as u64 * turn.until.since(turn.from).0;
            now = turn.until;
        }
        assert!((460_000_000..=495_000_000).contains(&ran), "{ran} ns of 500 ms");
    }

    #[test]
    fn others_have_the_time_that_a_quota_leaves_and_a_turn_taken_back_costs_none_of_it() {
        let mut rotation = with_a_quota(&[3, 1]);
        let first = rotation.next_turn(Nanos::ZERO).expect("a turn");
        assert_eq!((ids(&first), first.until.0 / 1_000_000), (vec![0], 47), "instead of three slices");
        rotation.take_back();
        assert_eq!(rotation.next_turn(Nanos::ZERO).expect("a turn"), first);
        let mut now = first.until;
        for _ in 0..2 {
            let turn = rotation.next_turn(now).expect("a turn");
            assert_eq!(ids(&turn), [1]);
            now = turn.until;
        }
        let third = rotation.next_turn(now).expect("a turn");
        assert_eq!(ids(&third), [1], "the quota allows the first at 100 ms, and it is 87");
        assert_eq!(ids(&rotation.next_turn(third.until).expect("a turn")), [0]);
    }

    /// The slow reference: hands out single slices, always to the gang with the least time for its weight.
    fn reference(weights: &[u32], slices: u64) -> Vec<u64> {
        let mut given = vec![0u64; weights.len()];
        for _ in 0..slices {
            let ratio = |i: usize| given[i] as f64 / f64::from(weights[i]);
            let next = (0..weights.len()).min_by(|a, b| ratio(*a).total_cmp(&ratio(*b))).expect("not empty");
            given[next] += 1;
        }
        given
    }

    proptest! {
        #[test]
        fn time_is_served_as_the_weights_say_within_a_slice(
            weights in proptest::collection::vec(1u32..7, 1..9), rounds in 1u64..9
        ) {
            let mut rotation = rotation(4, &weights);
            let slices: u64 = weights.iter().map(|w| u64::from(*w)).sum::<u64>() * rounds;
            let mut served = vec![0u64; weights.len()];
            let mut now = Nanos(0);
            while now < SLICE.times(slices) {
                let turn = rotation.next_turn(now).expect("a turn");
                served[turn.run[0].gang.0] += turn.until.since(turn.from).0;
                now = turn.until;
            }
            for (served, expected) in served.iter().zip(reference(&weights, slices)) {
                prop_assert!(served.abs_diff(SLICE.times(expected).0) <= SLICE.0);
            }
        }

        #[test]
        fn every_gang_runs_in_each_round_whatever_comes_and_goes(
            cores in 1usize..9,
            steps in proptest::collection::vec((0u8..8, 0usize..12, 0usize..10), 1..60)
        ) {
            let mut rotation = Rotation::new(cores, SLICE, Backfill::Offer);
            let mut waited: BTreeMap<GangId, usize> = BTreeMap::new();
            let mut rests = BTreeSet::new();
            let (mut now, mut next) = (Nanos(0), 0);
            for (kind, which, width) in steps {
                let chosen = waited.keys().nth(which % waited.len().max(1)).copied();
                match (kind, chosen) {
                    (0, _) => {
                        rotation.join(GangId(next), GangWeight::ONE);
                        waited.insert(GangId(next), 0);
                        next += 1;
                    }
                    (1, Some(gang)) => {
                        rotation.leave(gang);
                        waited.remove(&gang);
                        rests.remove(&gang);
                    }
                    (2, Some(gang)) => { rotation.set_width(gang, width); }
                    (3, Some(gang)) => prop_assert_eq!(rotation.rest(gang), rests.insert(gang)),
                    (4, Some(gang)) => {
                        prop_assert_eq!(rotation.wake(gang), rests.remove(&gang));
                        waited.insert(gang, 0);
                    }
                    (5, Some(gang)) => {
                        rotation.set_weight(gang, GangWeight::new(width as u32 + 1).expect("a weight"));
                        rotation.set_slice(Nanos(SLICE.0 * (width as u64 + 1)));
                    }
                    _ => {
                        let takers = waited.keys().filter(|gang| !rests.contains(gang)).count();
                        let Some(turn) = rotation.next_turn(now) else {
                            prop_assert_eq!(takers, 0);
                            continue;
                        };
                        prop_assert!(rotation.is_contended() || turn.run.len() == takers);
                        prop_assert!(turn.until > now);
                        now = turn.until;
                        let mut taken = vec![false; cores];
                        for core in turn.run.iter().flat_map(|place| place.cores.clone()) {
                            prop_assert!(!std::mem::replace(&mut taken[core], true));
                        }
                        for (gang, turns) in &mut waited {
                            if rests.contains(gang) {
                                prop_assert!(turn.run.iter().all(|place| place.gang != *gang));
                                prop_assert!(rotation.is_resting(*gang) && !turn.backfill.contains(gang));
                                continue;
                            }
                            let runs = turn.run.iter().any(|place| place.gang == *gang);
                            prop_assert!(!(runs && turn.backfill.contains(gang)));
                            *turns = if runs { 0 } else { *turns + 1 };
                        }
                        // the longest wait is bounded by the gangs there are or were in this round
                        prop_assert!(waited.values().all(|turns| *turns <= next));
                    }
                }
            }
        }
    }
}
