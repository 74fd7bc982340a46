//! Decides which group has its turn. Groups do not report when their programs want to run, so this is
//! inferred from the time that they used.
//!
//! ```text
//!                       has used half a turn since it was charged
//!            free  ------------------------------------------>  waits
//!        (runs at will) <-------------------------------------- (frozen)
//!             ^          its turn, but it seems to want little     |
//!             |                                                    | its turn
//!             |  left most of its turn unused                      v
//!             +------------------------------------------------  runs  --> waits again
//! ```
//! A group that mostly sleeps stays free, so that its programs run as soon as they wake up. The time that a
//! free group uses is a debt, which is charged when its turn comes. A group that uses less than its share
//! therefore hardly waits. A group that uses more is frozen until the others have had their turns. No group
//! is frozen while no other waits.
//!
//! Pure logic: time is an argument, and control groups are numbers. Cost: one decision of the scheduler for
//! each turn.

use unisono_fairqueue::{ClassId, Hierarchy, Processor, Wants};

/// If a group that seems to want little only pays its debt in this many turns, its next turn is a whole one.
/// Without whole turns, a group of one busy thread beside a free group of many threads would look like a
/// sleeping group, because the kernel gives it just as little time. A group that really sleeps wastes at most
/// one of its turns in 17 (6 %); with 32 turns instead of 16, a busy group would be detected half as fast.
/// Chosen by this argument, and checked by the simulation in the tests below.
const ASK: u32 = 16;

type Micros = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TurnState {
    /// It may run: it sleeps most of the time.
    Free,
    /// It is frozen until its turn comes.
    Waits,
    /// It runs: this is its turn.
    Runs,
}

#[derive(Debug)]
struct TurnGroup {
    class: ClassId,
    state: TurnState,
    /// Used time that has not been charged.
    owes: Micros,
    /// Whether the group gets a whole turn; otherwise its next turn only pays its debt.
    hungry: bool,
    /// The number of its turns since its last whole turn.
    light: u32,
}

#[derive(Debug)]
pub(super) struct TurnTaking {
    processor: Processor,
    groups: Vec<TurnGroup>,
    quantum: Micros,
}

impl TurnTaking {
    /// Returns the state at the start, in which all groups are free. `leaves` are the groups' classes.
    pub(super) fn new(hierarchy: Hierarchy, leaves: &[ClassId], quantum: u32) -> Self {
        let group = |class: &ClassId| TurnGroup {
            class: *class,
            state: TurnState::Free,
            owes: 0,
            hungry: false,
            light: 0,
        };
        let groups = leaves.iter().map(group).collect();
        Self { processor: Processor::new(hierarchy, quantum), groups, quantum: quantum.into() }
    }

    /// Returns the group whose turn it is, or `None`.
    pub(super) fn running(&self) -> Option<usize> {
        self.groups.iter().position(|group| group.state == TurnState::Runs)
    }

    pub(super) fn state(&self, group: usize) -> TurnState {
        self.groups[group].state
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.groups.iter().any(|group| group.state == TurnState::Waits)
    }

    /// Ends a turn that took `elapsed`, and chooses the next one. `used` is the time that each group used in
    /// the turn. `wants` is `More` if the group whose turn ended has more to do although it used little,
    /// because a program outside the groups had the processor.
    pub(super) fn next(&mut self, used: &[Micros], elapsed: Micros, wants: Wants) {
        let ran = self.running();
        if let Some(running) = ran {
            let others: Micros = used.iter().sum::<Micros>() - used[running];
            self.end_turn(running, used[running], elapsed.saturating_sub(others), wants);
        }
        let enough = (self.quantum / 2).max(1);
        // a free group that is always busy gets from the kernel about as much as the group that gets most
        let max_used = used.iter().copied().max().unwrap_or(0);
        for (at, (group, used)) in self.groups.iter_mut().zip(used).enumerate() {
            match group.state {
                _ if ran == Some(at) => {} // already charged
                // time used while the group was being frozen is not lost
                TurnState::Waits => group.owes += used,
                TurnState::Free => {
                    group.owes += used;
                    if group.owes >= enough && self.processor.wake(group.class).is_ok() {
                        group.state = TurnState::Waits;
                        group.hungry = used * 4 >= max_used * 3 || group.light >= ASK;
                    }
                }
                TurnState::Runs => {}
            }
        }
        while let Some((class, _)) = self.processor.dispatch() {
            let Some(at) = self.groups.iter().position(|group| group.class == class) else { return };
            let group = &mut self.groups[at];
            if group.hungry || group.owes == 0 {
                group.state = TurnState::Runs;
                group.light = 0;
                return;
            }
            // it has used its turn in advance: this turn only pays the debt
            group.state = TurnState::Free;
            group.light += 1;
            self.processor.ran(charge(std::mem::take(&mut group.owes)), Wants::Sleep);
        }
    }

    /// Charges the group whose turn has ended. `max_used` is the time that it could have used.
    fn end_turn(&mut self, running: usize, used: Micros, max_used: Micros, wants: Wants) {
        let group = &mut self.groups[running];
        let wants = if wants == Wants::More || is_busy(used, max_used) { Wants::More } else { Wants::Sleep };
        let used = used + std::mem::take(&mut group.owes);
        group.hungry = wants == Wants::More;
        group.state = if wants == Wants::More { TurnState::Waits } else { TurnState::Free };
        self.processor.ran(charge(used), wants);
    }
}

/// Returns whether a group that used `used` of `max_used` possible microseconds seems to have more to do.
pub(super) fn is_busy(used: Micros, max_used: Micros) -> bool {
    used * 2 >= max_used
}

fn charge(used: Micros) -> u32 {
    u32::try_from(used).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_fairqueue::{ClassSpec, Weight};

    const QUANTUM: u32 = 4000;

    fn turns(weights: &[u32]) -> TurnTaking {
        let leaf = |(at, weight): (usize, &u32)| {
            let weight: Weight = weight.to_string().parse().expect("a weight");
            ClassSpec::new(format!("/{at}")).weighing(weight)
        };
        let tree = Hierarchy::new(ClassSpec::new("processor").with(weights.iter().enumerate().map(leaf)));
        let tree = tree.expect("names differ");
        let leaves: Vec<ClassId> = tree.classes().skip(1).map(|(id, _)| id).collect();
        TurnTaking::new(tree, &leaves, QUANTUM)
    }

    /// Simulates a processor that divides each quantum equally among the groups that may run and have work.
    /// `wants` is the part of a processor for which each group has work; from 1 on, a group has a whole
    /// quantum of work in each quantum. Returns the part of the processor that each group got.
    fn run(turns: &mut TurnTaking, wants: &[f64], quanta: usize) -> Vec<f64> {
        let mut shares = vec![0.0; wants.len()];
        let mut backlog = vec![0.0; wants.len()];
        for _ in 0..quanta {
            let quantum = f64::from(QUANTUM);
            let mut used = vec![0.0; wants.len()];
            let mut left = quantum;
            for (backlog, wants) in backlog.iter_mut().zip(wants) {
                *backlog =
                    (*backlog + wants * quantum).min(if *wants >= 1.0 { quantum } else { 8.0 * quantum });
            }
            loop {
                let may =
                    |at: &usize| turns.state(*at) != TurnState::Waits && backlog[*at] - used[*at] > 1e-6;
                let who: Vec<usize> = (0..wants.len()).filter(may).collect();
                if who.is_empty() || left < 1e-6 {
                    break;
                }
                let min_owed =
                    who.iter().map(|at| backlog[*at] - used[*at]).fold(left / who.len() as f64, f64::min);
                for at in &who {
                    used[*at] += min_owed;
                }
                left -= min_owed * who.len() as f64;
            }
            for at in 0..wants.len() {
                backlog[at] -= used[at];
                shares[at] += used[at];
            }
            let used: Vec<u64> = used.iter().map(|used| used.round() as u64).collect();
            turns.next(&used, QUANTUM.into(), Wants::Sleep);
        }
        let all = f64::from(QUANTUM) * quanta as f64;
        shares.iter().map(|share| share / all).collect()
    }

    #[test]
    fn who_is_always_busy_gets_time_by_weight() {
        let shares = run(&mut turns(&[6, 3, 1]), &[1.0, 1.0, 1.0], 20_000);
        for (part, share) in shares.iter().zip([0.6, 0.3, 0.1]) {
            assert!((part / share - 1.0).abs() < 0.01, "{shares:?}");
        }
    }

    #[test]
    fn who_wants_less_than_its_share_gets_it_and_hardly_anything_is_wasted() {
        let shares = run(&mut turns(&[2, 1, 1]), &[0.2, 1.0, 1.0], 20_000);
        assert!((shares[0] - 0.2).abs() < 0.01, "{shares:?}");
        assert!((shares[1] - shares[2]).abs() < 0.01 && shares.iter().sum::<f64>() > 0.98, "{shares:?}");
    }

    #[test]
    fn who_sleeps_a_little_but_wants_more_than_its_share_is_held_to_it() {
        let shares = run(&mut turns(&[1, 9]), &[0.4, 1.0], 20_000);
        assert!((shares[0] - 0.1).abs() < 0.02 && shares.iter().sum::<f64>() > 0.98, "{shares:?}");
    }

    #[test]
    fn threads_make_no_share() {
        let shares = run(&mut turns(&[1, 1, 2]), &[8.0, 1.0, 1.0], 20_000);
        for (part, share) in shares.iter().zip([0.25, 0.25, 0.5]) {
            assert!((part / share - 1.0).abs() < 0.02, "{shares:?}");
        }
    }

    #[test]
    fn shares_hold_beside_somebody_who_is_no_group() {
        let mut turns = turns(&[3, 1]);
        let mut shares = [0, 0];
        for _ in 0..20_000 {
            // another program takes three quarters of the processor
            let mut used = [0, 0];
            for at in 0..2 {
                used[at] = if turns.state(at) == TurnState::Waits { 0 } else { 1000 };
                shares[at] += used[at];
            }
            turns.next(&used, 4000, Wants::More);
        }
        let ratio = shares[0] as f64 / shares[1] as f64;
        assert!((ratio / 3.0 - 1.0).abs() < 0.02, "{shares:?}");
    }

    #[test]
    fn who_is_alone_is_never_stopped_and_sleepers_are_free() {
        let mut turns = turns(&[1, 1]);
        for _ in 0..100 {
            turns.next(&[4000, 0], 4000, Wants::Sleep);
            assert!(turns.state(0) != TurnState::Waits && turns.state(1) == TurnState::Free);
        }
        turns.next(&[0, 0], 4000, Wants::Sleep);
        assert_eq!((turns.state(0), turns.running()), (TurnState::Free, None));
    }

    #[test]
    fn a_class_above_shares_for_all_below_it() {
        let leaf = |name: &str| ClassSpec::new(name);
        let pair = ClassSpec::new("/a").with([leaf("/a/x"), leaf("/a/y")]);
        let tree =
            Hierarchy::new(ClassSpec::new("processor").with([pair, leaf("/b")])).expect("names differ");
        let leaves = ["/a/x", "/a/y", "/b"].map(|name| tree.find(name).expect("it is there"));
        let shares = run(&mut TurnTaking::new(tree, &leaves, QUANTUM), &[1.0, 1.0, 1.0], 20_000);
        for (part, share) in shares.iter().zip([0.25, 0.25, 0.5]) {
            assert!((part / share - 1.0).abs() < 0.01, "{shares:?}");
        }
    }
}
