//! The cgroup freezer: waiting gangs are frozen, running gangs are thawed.
//!
//! A frozen thread stops itself when it is next about to run its program. Two threads on two cores stop at
//! once; but of 64 threads on two cores 62 wait in run queues, and the kernel has to pick each of them once
//! only to stop it. So a gang with more threads than cores also gets the least weight when its turn ends and
//! the most when it begins: the incoming gang is picked first, and most threads of the outgoing gang are
//! thawed again before they were ever picked. The remaining cost per thread is to set and to clear a mark.
//! Weights alone do not make gangs: the kernel makes a gang pay for its overrun at the next switch
//! (`docs/decisions/0004`); a marked thread overruns by at most the 2 us in which it stops.
//!
//! Backfill: a gang that may use idle cores is stopped with the others at the switch and thawed with
//! `cpu.idle` right after it, so that any thread of the gang whose turn it is preempts it. Without a `cpu`
//! controller gangs are not backfilled.
//!
//! Cost: two to four writes; two of them walk the threads of a gang (0.2 to 0.5 us each). The writes are made
//! while all cores are held (`host/hold.rs`); without the right to hold them the cores switch one by one.
//! When not to use: beside a heavy foreign load without a `cpu` controller, because the kernel does not
//! compensate a gang for the time in which it was frozen.
//!
//! Reference: Documentation/admin-guide/cgroup-v2.rst, cgroup.freeze.

use super::{Fit, Idle, Mechanism, MechanismKind, Promise, Standing, TurnsOrRest, known};
use crate::cgroups::{GangCgroups, GangGroups};
use crate::error::Result;
use crate::gang::GangId;
use std::collections::BTreeMap;
use unisono_linux::cgroup::{self, ControlGroup, FreezeFile, Frozen, WeightFile};
use unisono_linux::clock::Duration;

/// A gang's rank against its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuRank {
    First,
    Last,
    /// The gang runs last, and any waking sibling preempts it.
    Idle,
}

#[derive(Debug)]
struct Gang {
    freeze_file: FreezeFile,
    frozen: Frozen,
    cpu: Option<FrozenCpu>,
    rank: CpuRank,
    fit: Fit,
    turns: TurnsOrRest,
}

#[derive(Debug)]
struct FrozenCpu {
    group: ControlGroup,
    weight_file: WeightFile,
    can_idle: bool,
}

#[derive(Debug)]
pub struct Freeze {
    gangs: BTreeMap<GangId, Gang>,
}

/// Weight, inside the scheduler's group, of the gang whose turn it is; waiting gangs have the least weight.
const TURN_WEIGHT: f64 = 100.0;
/// Weight of a resting gang. Linux divides the weight of a group among the cores on which its threads want to
/// run. In a gang that blocks, mostly one of two threads is awake, and that thread has the weight of both. A
/// program that spins beside three that block got 0.89 of the processor time that it gets when all threads
/// are pinned. With half the weight for the three it got 1.10, and they 1.03 of theirs (medians of six runs
/// of 2.5 s, two cores).
const RESTING_WEIGHT: f64 = TURN_WEIGHT / 2.0;

impl Freeze {
    /// Prepares to freeze the gangs of these groups; no gang is frozen yet.
    pub fn new(cgroups: &GangCgroups) -> Result<Freeze> {
        let mut freeze = Freeze::empty();
        for (gang, groups) in cgroups.gangs.iter().enumerate() {
            freeze.join(GangId(gang), groups)?;
        }
        Ok(freeze)
    }

    /// Makes a freezer without gangs.
    pub fn empty() -> Freeze {
        Freeze { gangs: BTreeMap::new() }
    }

    fn for_each_with(
        &mut self,
        standings: &[(GangId, Standing)],
        meant: impl Fn(Standing) -> bool,
        act: impl Fn(&mut Gang) -> Result<()>,
    ) -> Result<()> {
        for (id, _) in standings.iter().filter(|(_, standing)| meant(*standing)) {
            self.gangs.get_mut(id).map_or(Ok(()), &act)?;
        }
        Ok(())
    }
}

/// Ignores the error of a removed group: it contains no thread that could run out of turn.
fn unless_gone(result: std::result::Result<(), cgroup::Error>) -> Result<()> {
    match result {
        Err(error) if error.is_gone() => Ok(()),
        other => Ok(other?),
    }
}

impl Gang {
    fn set(&mut self, frozen: Frozen) -> Result<()> {
        if self.frozen != frozen {
            unless_gone(self.freeze_file.set(frozen))?;
            self.frozen = frozen;
        }
        Ok(())
    }

    fn rank(&mut self, rank: CpuRank) -> Result<()> {
        let Some(cpu) = self.cpu.as_ref().filter(|_| self.rank != rank) else { return Ok(()) };
        match rank {
            CpuRank::First => {
                if self.rank == CpuRank::Idle && cpu.can_idle {
                    // resets the weight to the default
                    unless_gone(cpu.group.write("cpu.idle", "0"))?;
                }
                unless_gone(cpu.weight_file.set(match self.turns {
                    TurnsOrRest::Turns => TURN_WEIGHT,
                    TurnsOrRest::Rest => RESTING_WEIGHT,
                }))?;
            }
            // `cpu.idle` is lower than the least weight
            CpuRank::Last if self.rank == CpuRank::Idle => return Ok(()),
            CpuRank::Idle if cpu.can_idle => unless_gone(cpu.group.write("cpu.idle", "1"))?,
            CpuRank::Last | CpuRank::Idle => unless_gone(cpu.weight_file.set(0.0))?,
        }
        self.rank = rank;
        Ok(())
    }
}

impl Mechanism for Freeze {
    fn kind(&self) -> MechanismKind {
        MechanismKind::Freeze
    }

    fn promise(&self) -> Promise {
        // a thread inside the kernel runs on until it returns to its program
        Promise { overrun: Duration::from_millis(1), leftover: 0.0, idle: Idle::Left }
    }

    fn stop(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        known(standings, |gang| self.gangs.contains_key(&gang))?;
        let stops = |standing| standing != Standing::Running;
        self.for_each_with(standings, stops, |gang| gang.set(Frozen::Yes))?;
        self.for_each_with(standings, stops, |gang| match gang.fit {
            Fit::Queues => gang.rank(CpuRank::Last),
            Fit::Fits => Ok(()), // the gang has stopped by now
        })
    }

    fn apply(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        self.stop(standings)?;
        self.for_each_with(
            standings,
            |standing| standing == Standing::Running,
            |gang| {
                gang.rank(CpuRank::First)?;
                gang.set(Frozen::No)
            },
        )
    }

    fn fit(&mut self, gang: GangId, fit: Fit) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.fit = fit;
        }
    }

    fn set_turns_or_rest(&mut self, gang: GangId, turns: TurnsOrRest) {
        if let Some(gang) = self.gangs.get_mut(&gang) {
            gang.turns = turns;
            if gang.rank == CpuRank::First {
                gang.rank = CpuRank::Last; // so that the weight is written again
            }
        }
    }

    fn join(&mut self, gang: GangId, groups: &GangGroups) -> Result<()> {
        let cpu = match &groups.cpu {
            Some(cpu) => Some(FrozenCpu {
                group: cpu.clone(),
                weight_file: cpu.weight_file()?,
                can_idle: cpu.has("cpu.idle"),
            }),
            None => None,
        };
        let (freeze_file, fit) = (groups.control.freeze_file()?, Fit::Fits);
        let (rank, turns) = (CpuRank::Last, TurnsOrRest::Turns);
        let mut joining = Gang { freeze_file, frozen: Frozen::No, cpu, rank, fit, turns };
        joining.rank(CpuRank::First)?;
        self.gangs.insert(gang, joining);
        Ok(())
    }

    fn remove(&mut self, gang: GangId) {
        if let Some(mut gone) = self.gangs.remove(&gang) {
            let _ = gone.set(Frozen::No); // the journal has the changes that cannot be undone now
        }
    }

    fn lend(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        self.for_each_with(
            standings,
            |standing| standing == Standing::Backfill,
            |gang| {
                // without a weight it would compete with the gang whose turn it is
                if gang.cpu.is_none() {
                    return Ok(());
                }
                gang.rank(CpuRank::Idle)?;
                gang.set(Frozen::No)
            },
        )
    }

    fn release(&mut self) -> Result<()> {
        let mut result = Ok(());
        for gang in self.gangs.values_mut() {
            // a gang whose group refuses must not keep the others frozen
            if let Err(error) = unless_gone(gang.freeze_file.set(Frozen::No)) {
                result = Err(error);
            }
            gang.frozen = Frozen::No;
            result = result.and(gang.rank(CpuRank::First));
        }
        result
    }
}

impl Drop for Freeze {
    fn drop(&mut self) {
        let _ = self.release(); // the journal has the changes that cannot be undone now
    }
}
