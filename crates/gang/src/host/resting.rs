//! Resting gangs of `gang run`: a gang that blocks runs outside the turns, and takes turns again when it
//! wants its cores.
//!
//! ```text
//!   scheduler's thread                                    main thread
//!   watched turn: the gang's use -> Resting        --turn status-->  BlockedGang: its use during the rest
//!          ^----------------------------- Notice::Wakes ------------'
//! ```
//! A resting gang has no turns to watch, so its processor time is read instead. Both threads judge by
//! `worth.rs`. If the kernel does not count the groups' processor time, or does not record context switches,
//! no gang rests.
//!
//! Cost: reading two small files for each resting gang, five times a second. Also, at growing intervals, the
//! gang gets a few turns again to be judged, and blocks in them.

use super::worth::{GangTimes, TurnsVerdict, TurnsWorth, WatchedUse, WatchedVerdict, WatchedWorth};
use crate::gang::GangId;
use std::collections::{BTreeMap, BTreeSet};
use unisono_linux::cgroup::{ControlGroup, GroupMeter};
use unisono_linux::clock::{Duration, Instant};

/// The treatment of a gang that blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockedGangs {
    /// The gang rests: it runs outside the turns, until it wants its cores again.
    Rest,
    #[default]
    TakeTurns,
}

/// The resting gangs, as the scheduler's thread knows them.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    blocked: BlockedGangs,
    worths: BTreeMap<GangId, WatchedWorth>,
    /// Gangs that rest if their next watched turn is like the last one.
    unsure: BTreeSet<GangId>,
    /// Number of watched turns whose gang was awake.
    awake: u64,
    since: BTreeMap<GangId, Instant>,
    /// Total length of each gang's earlier rests.
    rested: BTreeMap<GangId, Duration>,
}

impl Resting {
    pub(crate) fn new(blocked: BlockedGangs) -> Resting {
        Resting { blocked, ..Resting::default() }
    }

    /// Records a gang's use of a watched turn of its own. Returns whether the gang should rest from now on.
    pub(crate) fn saw(&mut self, gang: GangId, used: WatchedUse, cores: usize) -> bool {
        let verdict = self.worths.entry(gang).or_default().saw(used, cores);
        self.awake += u64::from(verdict != WatchedVerdict::Asleep);
        if verdict == WatchedVerdict::Unsure && self.blocked == BlockedGangs::Rest {
            self.unsure.insert(gang);
        } else if verdict != WatchedVerdict::Asleep {
            self.unsure.remove(&gang);
        }
        verdict == WatchedVerdict::Rest && self.blocked == BlockedGangs::Rest
    }

    pub(crate) fn is_unsure(&self, gang: GangId) -> bool {
        self.unsure.contains(&gang)
    }

    /// Returns the number of watched turns whose gang was awake.
    pub(crate) fn awake(&self) -> u64 {
        self.awake
    }

    pub(crate) fn begins(&mut self, gang: GangId, now: Instant) {
        self.since.insert(gang, now);
    }

    /// Ends the rest of a gang that takes turns again, or has ended.
    pub(crate) fn ends(&mut self, gang: GangId, now: Instant) {
        let Some(since) = self.since.remove(&gang) else { return };
        let rested = self.rested.entry(gang).or_default();
        *rested += now - since;
        self.worths.remove(&gang);
        self.unsure.remove(&gang);
    }

    /// Returns the total rest of each gang until now.
    pub(crate) fn rested(mut self, now: Instant) -> BTreeMap<GangId, Duration> {
        for gang in self.since.keys().copied().collect::<Vec<_>>() {
            self.ends(gang, now);
        }
        self.rested
    }
}

/// Samples a resting gang.
pub(crate) struct BlockedGang {
    worth: TurnsWorth,
    meter: GroupMeter,
    next: Instant,
}

/// The time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);

impl BlockedGang {
    /// Starts to sample a gang that begins to rest; `before` is the number of its earlier rests. `None` if
    /// the kernel does not count the group's processor time.
    pub(crate) fn new(group: &ControlGroup, before: u32) -> Option<BlockedGang> {
        let meter = group.meter().ok().filter(|meter| meter.used_ns().is_ok())?;
        Some(BlockedGang { worth: TurnsWorth::resting(before), meter, next: Instant::ZERO })
    }

    /// Returns whether the gang, which can use `cores` cores at once, should take turns again.
    pub(crate) fn wakes(&mut self, group: &ControlGroup, cores: usize, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + SAMPLE_INTERVAL;
        let Ok(used) = self.meter.used_ns() else { return false };
        let times = GangTimes {
            might: now - Instant::ZERO,
            used: Duration::from_nanos(used),
            pressed: pressed(group),
        };
        self.worth.evaluate(times, cores) == Some(TurnsVerdict::Wake)
    }
}

/// Returns the total time in which some thread of the group waited for a processor; zero if the kernel does
/// not count it.
pub(crate) fn pressed(group: &ControlGroup) -> Duration {
    let text = group.read("cpu.pressure").unwrap_or_default();
    let total =
        text.lines().find(|line| line.starts_with("some ")).and_then(|line| line.rsplit_once("total="));
    Duration::from_micros(total.and_then(|(_, micros)| micros.trim().parse::<u64>().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gang_rests_only_if_it_may_and_its_time_adds_up() {
        let gang = GangId(1);
        let asleep = WatchedUse { wanted: Duration::ZERO, sleeps: 0, time: Duration::from_micros(1) };
        let little = WatchedUse { wanted: Duration::from_nanos(200), ..asleep };
        let mut never = Resting::new(BlockedGangs::TakeTurns);
        assert!((0..9).all(|_| !never.saw(gang, little, 2)) && !never.is_unsure(gang));
        let mut resting = Resting::new(BlockedGangs::Rest);
        assert!(!resting.saw(gang, little, 2) && resting.is_unsure(gang));
        assert!(!resting.saw(gang, asleep, 2) && resting.is_unsure(gang), "it was asleep");
        assert!(resting.saw(gang, little, 2) && resting.awake() == 2);
        resting.begins(gang, Instant::from_nanos(10));
        resting.ends(gang, Instant::from_nanos(25));
        resting.ends(gang, Instant::from_nanos(99));
        assert!(!resting.saw(gang, little, 2), "it is judged anew");
        resting.begins(gang, Instant::from_nanos(100));
        assert_eq!(
            resting.rested(Instant::from_nanos(105)),
            BTreeMap::from([(gang, Duration::from_nanos(20))])
        );
    }
}
