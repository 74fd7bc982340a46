//! The cgroup freezer: what waits is frozen, what runs is thawed.
//!
//! A frozen thread stops itself when it is next about to run its program. For a gang of two that is at once;
//! of 64 threads on two cores 62 stand in the queues, and each has to be picked once, only to stop. So such a
//! gang also gets the least weight when its turn ends and the most when it begins: the incoming gang is
//! picked first, and most threads of the outgoing one are thawed again before they were ever picked. What is
//! left for every thread is a mark to set and to clear. Weights alone do not make gangs: what a gang overran
//! it owes at the next switch (`docs/decisions/0004`); a marked thread can owe no more than the 2 us in which
//! it stops.
//!
//! Backfill: a gang that may use idle cores is stopped with the others at the switch and thawed with
//! `cpu.idle` right after it, so that any thread of the gang whose turn it is preempts it. Without a `cpu`
//! controller gangs are not backfilled.
//!
//! Cost: two to four writes; two of them walk the threads of a gang (0.2 to 0.5 us each). Made while all
//! cores are held (`host/hold.rs`); without the right to that the cores follow one by one. When not: beside a
//! heavy foreign load without a `cpu` controller, frozen time is not given back.
//!
//! Reference: Documentation/admin-guide/cgroup-v2.rst, cgroup.freeze.

use super::{Crowd, Idle, Mechanism, MechanismKind, Promise, Standing, known};
use crate::arena::Arena;
use crate::error::Result;
use crate::gang::GangId;
use std::time::Duration;
use unisono_linux::cgroup::{ControlGroup, Dial, Frozen, Valve};

/// How a gang competes with its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuRank {
    First,
    Last,
    /// Last, and preempted by any sibling that wakes.
    Idle,
}

#[derive(Debug)]
struct Gang {
    valve: Valve,
    frozen: Frozen,
    cpu: Option<FrozenCpu>,
    rank: CpuRank,
    crowd: Crowd,
}

#[derive(Debug)]
struct FrozenCpu {
    group: ControlGroup,
    dial: Dial,
    can_idle: bool,
}

#[derive(Debug)]
pub struct Freeze {
    gangs: Vec<Gang>,
}

/// Weight of the gang whose turn it is inside the scheduler's group; the others have the least.
const FULL: f64 = 100.0;

impl Freeze {
    /// Ready to freeze the gangs of this arena; nothing is frozen yet.
    pub fn new(arena: &Arena) -> Result<Freeze> {
        let mut gangs = Vec::new();
        for groups in &arena.gangs {
            let cpu = match &groups.cpu {
                Some(cpu) => {
                    Some(FrozenCpu { group: cpu.clone(), dial: cpu.dial()?, can_idle: cpu.has("cpu.idle") })
                }
                None => None,
            };
            let (valve, crowd) = (groups.control.valve()?, Crowd::Fits);
            let mut gang = Gang { valve, frozen: Frozen::No, cpu, rank: CpuRank::Last, crowd };
            gang.rank(CpuRank::First)?;
            gangs.push(gang);
        }
        Ok(Freeze { gangs })
    }
}

impl Gang {
    fn set(&mut self, frozen: Frozen) -> Result<()> {
        if self.frozen != frozen {
            self.valve.set(frozen)?;
            self.frozen = frozen;
        }
        Ok(())
    }

    fn rank(&mut self, rank: CpuRank) -> Result<()> {
        let Some(cpu) = self.cpu.as_ref().filter(|_| self.rank != rank) else { return Ok(()) };
        match rank {
            CpuRank::First => {
                if self.rank == CpuRank::Idle && cpu.can_idle {
                    // this resets the weight to the default
                    cpu.group.write("cpu.idle", "0")?;
                }
                cpu.dial.set(FULL)?;
            }
            // idle is low enough
            CpuRank::Last if self.rank == CpuRank::Idle => return Ok(()),
            CpuRank::Idle if cpu.can_idle => cpu.group.write("cpu.idle", "1")?,
            CpuRank::Last | CpuRank::Idle => cpu.dial.set(0.0)?,
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
        // a thread in the kernel goes on until it would return to its program
        Promise { overrun: Duration::from_millis(1), leftover: 0.0, idle: Idle::Left }
    }

    fn apply(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        known(standings, self.gangs.len())?;
        for (id, _) in standings.iter().filter(|(_, standing)| *standing != Standing::Running) {
            self.gangs[id.0].set(Frozen::Yes)?;
        }
        for (id, _) in standings.iter().filter(|(_, standing)| *standing != Standing::Running) {
            let gang = &mut self.gangs[id.0];
            // a gang without queues has stopped by now
            if gang.crowd == Crowd::Queues {
                gang.rank(CpuRank::Last)?;
            }
        }
        for (id, _) in standings.iter().filter(|(_, standing)| *standing == Standing::Running) {
            let gang = &mut self.gangs[id.0];
            gang.rank(CpuRank::First)?;
            gang.set(Frozen::No)?;
        }
        Ok(())
    }

    fn crowd(&mut self, gang: GangId, crowd: Crowd) {
        self.gangs[gang.0].crowd = crowd;
    }

    fn lend(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        for (id, _) in standings.iter().filter(|(_, standing)| *standing == Standing::Backfill) {
            let gang = &mut self.gangs[id.0];
            // without weights it would compete with the gang whose turn it is
            if gang.cpu.is_some() {
                gang.rank(CpuRank::Idle)?;
                gang.set(Frozen::No)?;
            }
        }
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let mut result = Ok(());
        for gang in &mut self.gangs {
            // one that is gone must not keep the others frozen
            if let Err(error) = gang.valve.set(Frozen::No) {
                result = Err(error.into());
            }
            gang.frozen = Frozen::No;
            result = result.and(gang.rank(CpuRank::First));
        }
        result
    }
}

impl Drop for Freeze {
    fn drop(&mut self) {
        let _ = self.release(); // what cannot be done now is in the journal
    }
}
