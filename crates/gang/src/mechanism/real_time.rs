//! Real-time priorities: the incoming gang gets a higher priority than all running threads.
//!
//! Only the incoming gang's threads are touched: each turn uses the next higher priority, so the threads that
//! ran before are preempted without a system call for each, and wait at their lower priority, ready to fill
//! idle cores. When the priorities are used up, all gangs are put back to the lowest. The class is round
//! robin, so that threads of one gang that share a core take turns.
//!
//! Cost: one system call for each thread of the incoming gang (1.2 us warm), and one for all of them to check
//! that each still lives. New threads inherit the priority. When not to use: ordinary programs get no time at
//! all (they cannot even exit) while a gang keeps its cores busy, except for the reserve of real-time
//! throttling (5 % by default), which also interrupts the gangs. With `--isolate`, the user accepts this. Not
//! possible inside a version 1 `cpu` group.
//!
//! Reference: sched(7), Documentation/scheduler/sched-rt-group.rst.

use super::{Idle, Mechanism, MechanismKind, Promise, Standing, known};
use crate::cgroups::GangCgroups;
use crate::class;
use crate::error::Result;
use crate::gang::GangId;
use crate::journal::{GangJournal, UndoEntry};
use std::collections::{BTreeMap, BTreeSet};
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::ControlGroup;
use unisono_linux::clock::Duration;
use unisono_linux::pinned::PinnedThread;
use unisono_linux::scheduling::{SchedulingPolicy, Urgency};

#[derive(Debug)]
pub struct RealTime {
    gangs: Vec<ControlGroup>,
    standings: Vec<Standing>,
    level: u8,
    removed: BTreeSet<GangId>,
    /// The threads of each gang that have been promoted.
    held: Vec<BTreeMap<Tid, PinnedThread>>,
}

const LOWEST: u8 = 1;
/// The highest priority of a gang: below interrupt threads (50) and the scheduler's thread.
const HIGHEST: u8 = 40;

impl RealTime {
    /// Prepares to promote the gangs of these groups; their threads are unchanged so far.
    pub fn new(cgroups: &GangCgroups, journal: &mut GangJournal) -> Result<RealTime> {
        let gangs: Vec<ControlGroup> = cgroups.gangs.iter().map(|groups| groups.control.clone()).collect();
        for group in &gangs {
            journal.write(&UndoEntry::reclassed(group))?;
        }
        Ok(RealTime {
            standings: vec![Standing::Waiting; gangs.len()],
            held: gangs.iter().map(|_| BTreeMap::new()).collect(),
            gangs,
            level: LOWEST,
            removed: BTreeSet::new(),
        })
    }

    fn promote(&mut self, gang: usize, level: u8) -> Result<()> {
        let policy = SchedulingPolicy::RoundRobin(Urgency::new(level));
        let (group, held) = (&self.gangs[gang], &mut self.held[gang]);
        let mut done = BTreeSet::new();
        // a new thread may inherit from a thread that is not promoted yet: list the threads again
        loop {
            let new: Vec<Tid> = group.threads()?.into_iter().filter(|thread| done.insert(*thread)).collect();
            if new.is_empty() {
                held.retain(|number, _| done.contains(number));
                return Ok(());
            }
            if new.iter().any(|number| !held.contains_key(number)) {
                held.extend(class::pinned_in(group)?.into_iter().map(|thread| (thread.number(), thread)));
            }
            let threads: Vec<&PinnedThread> = new.iter().filter_map(|number| held.get(number)).collect();
            // a thread that has taken a reused number is promoted in the gang's next turn
            for number in class::set_all(&threads, policy)? {
                held.remove(&number);
            }
        }
    }
}

impl Mechanism for RealTime {
    fn kind(&self) -> MechanismKind {
        MechanismKind::RealTime
    }

    fn promise(&self) -> Promise {
        // a gang not promoted yet is an ordinary program, so it shares the kernel's reserve
        Promise { overrun: Duration::from_millis(4), leftover: 0.05, idle: Idle::Used }
    }

    fn apply(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        known(standings, |gang| gang.0 < self.gangs.len() && !self.removed.contains(&gang))?;
        if self.level >= HIGHEST {
            self.level = LOWEST;
            for (id, _) in standings {
                self.promote(id.0, LOWEST)?;
            }
        }
        let incoming = standings
            .iter()
            .any(|(id, s)| *s == Standing::Running && self.standings[id.0] != Standing::Running);
        if incoming {
            self.level += 1;
        }
        for (id, standing) in standings {
            // gangs that continue to run are promoted too: the incoming gangs must not preempt them
            if *standing == Standing::Running && incoming {
                self.promote(id.0, self.level)?;
            }
            self.standings[id.0] = *standing;
        }
        Ok(())
    }

    fn remove(&mut self, gang: GangId) {
        let Some(group) = self.gangs.get(gang.0).filter(|_| self.removed.insert(gang)) else { return };
        // an empty group has no threads to restore
        if group.threads().is_ok_and(|threads| !threads.is_empty()) {
            let _ = class::put_back(std::slice::from_ref(group)); // what cannot be done now is in the journal
        }
    }

    fn release(&mut self) -> Result<()> {
        let (_, result) = class::put_back(&self.gangs);
        self.standings.fill(Standing::Waiting);
        self.level = LOWEST;
        result
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        let _ = self.release(); // what cannot be done now is in the journal
    }
}
