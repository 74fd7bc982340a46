//! Real-time priorities: the incoming gang becomes more urgent than all that run.
//!
//! Only the incoming gang's threads are touched: each turn takes the next higher priority, so those that
//! ran before are preempted without a call of their own and wait below, ready to fill cores that fall idle.
//! When the priorities are used up, everybody is put back to the lowest. Round robin, so that threads of one
//! gang that share a core take turns.
//!
//! Cost: one system call for each thread of the incoming gang (1.2 us warm). New threads inherit.
//! When not: ordinary programs, and even their ends, wait absolutely while a gang keeps its cores busy,
//! except for the reserve of real-time throttling (5 % by default), which also interrupts the gangs. This is
//! what `--isolate` means. Not possible inside a version 1 `cpu` group.
//!
//! Reference: sched(7), Documentation/scheduler/sched-rt-group.rst.

use super::{Idle, Kind, Mechanism, Promise, Standing, known};
use crate::error::{Error, Result};
use crate::gang::GangId;
use crate::host::arena::Arena;
use crate::host::journal::{Journal, UndoEntry};
use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::Duration;
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::ControlGroup;
use unisono_linux::scheduling::{self, Children, SchedulingPolicy, Urgency};

/// See the module's text.
#[derive(Debug)]
pub struct RealTime {
    gangs: Vec<ControlGroup>,
    standings: Vec<Standing>,
    level: u8,
}

const LOWEST: u8 = 1;
/// Below interrupt threads (50) and the scheduler.
const HIGHEST: u8 = 40;

impl RealTime {
    /// Ready to promote the gangs of this arena; their threads are unchanged so far.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn new(arena: &Arena, journal: &mut Journal) -> Result<RealTime> {
        let gangs: Vec<ControlGroup> = arena.gangs.iter().map(|groups| groups.control.clone()).collect();
        for group in &gangs {
            journal.write(&UndoEntry::real_time(group))?;
        }
        Ok(RealTime { standings: vec![Standing::Waiting; gangs.len()], gangs, level: LOWEST })
    }

    fn promote(&self, gang: usize, level: u8) -> Result<()> {
        let policy = SchedulingPolicy::RoundRobin(Urgency::new(level));
        let mut done = BTreeSet::new();
        // a thread that starts meanwhile inherits from one that may not be promoted yet: look again
        loop {
            let threads = self.gangs[gang].threads()?;
            let new: Vec<Tid> = threads.into_iter().filter(|thread| done.insert(thread.0)).collect();
            if new.is_empty() {
                return Ok(());
            }
            for thread in new {
                set(thread, policy)?;
            }
        }
    }
}

/// Puts all threads of some groups back, those too that are being born: a thread that its parent began while
/// it was urgent may come to its group a little later, and then has inherited. So it is looked again until
/// nothing has been found a few times, at most for a while. Says how many were put back.
pub(crate) fn put_back(groups: &[ControlGroup]) -> (usize, Result<()>) {
    let (mut result, mut quiet, mut done) = (Ok(()), 0, 0);
    for _ in 0..MOST_LOOKS {
        quiet += 1;
        for thread in groups.iter().flat_map(|group| group.threads().unwrap_or_default()) {
            if matches!(scheduling::of(thread), Ok(SchedulingPolicy::RoundRobin(_))) {
                quiet = 0;
                let put = scheduling::set_fair(thread);
                done += usize::from(put.is_ok());
                // one that cannot be put back must not keep the others where they are
                result = result.and(changed(thread, put));
            }
        }
        if quiet == QUIET_LOOKS || result.is_err() {
            break;
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    (done, result)
}

const QUIET_LOOKS: u32 = 3;
const MOST_LOOKS: u32 = 50;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

fn set(thread: Tid, policy: SchedulingPolicy) -> Result<()> {
    changed(thread, scheduling::set(thread, policy, Children::Inherit))
}

fn changed(thread: Tid, result: io::Result<()>) -> Result<()> {
    match result {
        // it has ended
        Err(error) if error.raw_os_error() == Some(3) => Ok(()),
        Err(error) => Err(Error::Host(format!(
            "cannot put thread {thread} into a real-time class or back: {error}; it needs CAP_SYS_NICE and must not \
             be inside a version 1 cpu group without a real-time budget"
        ))),
        Ok(()) => Ok(()),
    }
}

impl Mechanism for RealTime {
    fn kind(&self) -> Kind {
        Kind::RealTime
    }

    fn promise(&self) -> Promise {
        // the kernel's reserve for ordinary programs goes to a gang that was never promoted, too
        Promise { overrun: Duration::from_millis(4), leftover: 0.05, idle: Idle::Used }
    }

    fn apply(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        known(standings, self.gangs.len())?;
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
            // those that stay on are lifted too: the incoming ones must not preempt them
            if *standing == Standing::Running && incoming {
                self.promote(id.0, self.level)?;
            }
            self.standings[id.0] = *standing;
        }
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let (_, result) = put_back(&self.gangs);
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
