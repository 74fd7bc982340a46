//! The state of the turns, published by the scheduler's thread: which gangs run, on which cores, and how long
//! each gang has run.
//!
//! The scheduler writes once a turn. Other threads read when they place threads, list gangs or judge whether
//! turns help. Cost: an uncontended lock per turn; a reader holds the lock while it copies one gang's status.

use crate::gang::GangId;
use crate::matrix::SlotPlace;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use unisono_linux::clock::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct TurnStatus(Mutex<TurnTable>);

#[derive(Debug, Default)]
struct TurnTable {
    gangs: BTreeMap<GangId, GangTurnStatus>,
    /// When the present turn was enforced.
    since: Instant,
    switches: u64,
}

/// The published state of one gang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GangTurnStatus {
    /// The gang's cores, as indices into the list of scheduled cores.
    pub(crate) cores: Range<usize>,
    pub(crate) turns: u64,
    /// Sum of the gang's turns, the present one included.
    pub(crate) had: Duration,
    pub(crate) runs: bool,
    /// The gang rests: it takes no turns.
    pub(crate) rests: bool,
}

impl TurnStatus {
    /// Records that from `now` on exactly these gangs run.
    pub(crate) fn turn(&self, now: Instant, run: &[SlotPlace]) {
        let mut table = self.lock();
        let had = now - table.since;
        table.since = now;
        let mut switched = false;
        for (gang, status) in &mut table.gangs {
            if status.runs {
                status.had += had;
                status.runs = run.iter().any(|place| place.gang == *gang);
            }
        }
        for place in run {
            let status = table.gangs.entry(place.gang).or_default();
            if status.cores != place.cores {
                status.cores = place.cores.clone();
            }
            switched |= !std::mem::replace(&mut status.runs, true);
            status.turns += 1;
        }
        table.switches += u64::from(switched);
    }

    /// Sets whether this gang rests from now on.
    pub(crate) fn set_resting(&self, gang: GangId, rests: bool) {
        self.lock().gangs.entry(gang).or_default().rests = rests;
    }

    pub(crate) fn remove(&self, gang: GangId) {
        self.lock().gangs.remove(&gang);
    }

    /// Returns the state of a gang at `now`; `None`: the gang has had no turn yet.
    pub(crate) fn of_gang(&self, gang: GangId, now: Instant) -> Option<GangTurnStatus> {
        let table = self.lock();
        let mut status = table.gangs.get(&gang)?.clone();
        if status.runs {
            status.had += now - table.since;
        }
        Some(status)
    }

    /// Returns the number of switches from one gang to another.
    pub(crate) fn switches(&self) -> u64 {
        self.lock().switches
    }

    fn lock(&self) -> MutexGuard<'_, TurnTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(gang: usize) -> SlotPlace {
        SlotPlace { gang: GangId(gang), cores: 0..2 }
    }

    #[test]
    fn a_gang_has_had_its_turns_and_the_part_of_the_present_one_that_is_over() {
        let turn_status = TurnStatus::default();
        assert_eq!(turn_status.of_gang(GangId(0), Instant::from_nanos(5)), None);
        turn_status.turn(Instant::from_nanos(10), &[place(0)]);
        turn_status.turn(Instant::from_nanos(30), &[place(1)]);
        turn_status.turn(Instant::from_nanos(35), &[place(0), place(1)]);
        let status =
            |gang, now| turn_status.of_gang(GangId(gang), Instant::from_nanos(now)).expect("it had a turn");
        assert_eq!((status(0, 40).had, status(0, 40).turns), (Duration::from_nanos(25), 2));
        assert_eq!((status(1, 40).had, turn_status.switches()), (Duration::from_nanos(10), 3));
        turn_status.turn(Instant::from_nanos(50), &[]);
        assert_eq!((status(0, 90).had, status(0, 90).runs), (Duration::from_nanos(35), false));
        turn_status.remove(GangId(0));
        assert_eq!(turn_status.of_gang(GangId(0), Instant::from_nanos(99)), None);
    }
}
