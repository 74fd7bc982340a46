//! The cgroup freezer: what waits is frozen, what runs is thawed.
//!
//! The incoming gang is thawed *before* the outgoing one is frozen: in the other order the processors go
//! idle in between, and a halted virtual processor wakes late. Measured, this helps gangs of few threads and
//! not those of many; single switches take milliseconds (`docs/decisions/0004`).
//!
//! Backfill: a gang that may only use idle cores is thawed with `cpu.idle`, so that any thread of the gang
//! whose turn it is preempts it when it wakes; one that was running when it was demoted stays until the next tick
//! (up to 4 ms). Without a `cpu` controller gangs are not backfilled.
//!
//! Cost: two writes and one interrupt a core; both walk the tasks of a gang (about 0.5 us each).
//! When not: beside a heavy foreign load without a `cpu` controller, frozen time is not given back.
//!
//! Reference: Documentation/admin-guide/cgroup-v2.rst, cgroup.freeze.

use super::{Kind, Mechanism, Standing};
use crate::error::Result;
use crate::gang::GangId;
use crate::host::arena::Arena;
use unisono_linux::cgroup::{Frozen, Group, Valve};

#[derive(Debug)]
struct Gang {
    valve: Valve,
    cpu: Option<Group>,
    standing: Standing,
}

/// See the module's text.
#[derive(Debug)]
pub struct Freeze {
    gangs: Vec<Gang>,
}

/// Weight of a gang inside the scheduler's group; only a backfilled sibling competes with it.
const FULL: f64 = 100.0;

impl Freeze {
    /// Ready to freeze the gangs of this arena; nothing is frozen yet.
    ///
    /// # Errors
    /// A group cannot be frozen.
    pub fn new(arena: &Arena) -> Result<Freeze> {
        let mut gangs = Vec::new();
        for groups in &arena.gangs {
            let gang =
                Gang { valve: groups.control.valve()?, cpu: groups.cpu.clone(), standing: Standing::Running };
            if let Some(cpu) = &gang.cpu {
                cpu.set_weight(FULL)?;
            }
            gangs.push(gang);
        }
        Ok(Freeze { gangs })
    }
}

impl Gang {
    /// Sets how it competes with its siblings; before it is thawed.
    fn weigh(&self, standing: Standing) -> Result<()> {
        let Some(cpu) = &self.cpu else { return Ok(()) };
        let idles = standing == Standing::Backfill;
        if cpu.has("cpu.idle") {
            cpu.write("cpu.idle", if idles { "1" } else { "0" })?;
            // leaving idle resets the weight to the default
            if !idles {
                cpu.set_weight(FULL)?;
            }
        } else {
            cpu.set_weight(if idles { 0.0 } else { FULL })?;
        }
        Ok(())
    }
}

impl Mechanism for Freeze {
    fn kind(&self) -> Kind {
        Kind::Freeze
    }

    fn apply(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        // without weights a backfilled gang would compete with the one whose turn it is
        let effective = |gang: &Gang, standing| match standing {
            Standing::Backfill if gang.cpu.is_none() => Standing::Waiting,
            other => other,
        };
        for (id, standing) in standings {
            let gang = &mut self.gangs[id.0];
            let wanted = effective(gang, *standing);
            let weighted_as =
                if gang.standing == Standing::Backfill { Standing::Backfill } else { Standing::Running };
            match (gang.standing, wanted) {
                (_, Standing::Waiting) => {}
                (before, after) if before == after => {}
                (before, after) => {
                    if weighted_as != after {
                        gang.weigh(after)?;
                    }
                    if before == Standing::Waiting {
                        gang.valve.set(Frozen::No)?;
                    }
                    gang.standing = after;
                }
            }
        }
        for (id, standing) in standings {
            let gang = &mut self.gangs[id.0];
            if effective(gang, *standing) == Standing::Waiting && gang.standing != Standing::Waiting {
                gang.valve.set(Frozen::Yes)?;
                if gang.standing == Standing::Backfill {
                    gang.weigh(Standing::Running)?;
                }
                gang.standing = Standing::Waiting;
            }
        }
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let mut result = Ok(());
        for gang in &mut self.gangs {
            gang.standing = Standing::Running;
            // one that is gone must not keep the others frozen
            if let Err(error) = gang.valve.set(Frozen::No) {
                result = Err(error.into());
            }
        }
        result
    }
}
