//! Stop signals to process groups: the mechanism that needs no privilege at all.
//!
//! Each gang is a process group. A signal stops a thread only when it next runs, so threads that queue for a
//! processor stop milliseconds late. A process that leaves its process group escapes. Parents see their
//! children stop. A program cannot read the terminal. Use this mechanism to try gangs, not to rely on them.
//!
//! Cost: one signal per gang; the kernel walks the processes of the group.
//!
//! Reference: kill(2), setpgid(2), signal(7).

use super::{Idle, Mechanism, MechanismKind, Promise, Standing, known};
use crate::error::Result;
use crate::gang::GangId;
use std::collections::BTreeSet;
use unisono_linux::clock::Duration;
use unisono_linux::process_group::ProcessGroup;
use unisono_linux::signal::Signal;

#[derive(Debug)]
pub struct Stop {
    /// The process groups, each with its last standing; `None`: no signal was sent yet.
    gangs: Vec<(ProcessGroup, Option<Standing>)>,
    removed: BTreeSet<GangId>,
}

impl Stop {
    /// Prepares to stop these process groups.
    pub fn new(groups: Vec<ProcessGroup>) -> Stop {
        Stop { gangs: groups.into_iter().map(|group| (group, None)).collect(), removed: BTreeSet::new() }
    }

    fn signal(&mut self, gang: usize, standing: Standing) {
        let signal = if standing == Standing::Running { Signal::Continue } else { Signal::Stop };
        // fails if all processes of the group changed to another user
        let _ = self.gangs[gang].0.send_signal(signal);
        self.gangs[gang].1 = Some(standing);
    }
}

impl Mechanism for Stop {
    fn kind(&self) -> MechanismKind {
        MechanismKind::Stop
    }

    fn promise(&self) -> Promise {
        // queued threads get the signal one after the other, as the kernel picks each
        Promise { overrun: Duration::from_millis(8), leftover: 0.0, idle: Idle::Left }
    }

    fn apply(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        known(standings, |gang| gang.0 < self.gangs.len() && !self.removed.contains(&gang))?;
        for now in [Standing::Running, Standing::Waiting] {
            for (id, standing) in standings {
                // no signal can make a backfilled gang yield to the running one
                let wanted =
                    if *standing == Standing::Running { Standing::Running } else { Standing::Waiting };
                if wanted == now && self.gangs[id.0].1 != Some(now) {
                    self.signal(id.0, now);
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, gang: GangId) {
        if gang.0 < self.gangs.len() && self.removed.insert(gang) {
            self.signal(gang.0, Standing::Running);
        }
    }

    fn release(&mut self) -> Result<()> {
        for gang in 0..self.gangs.len() {
            if !self.removed.contains(&GangId(gang)) {
                self.signal(gang, Standing::Running);
            }
        }
        Ok(())
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        let _ = self.release(); // always succeeds
    }
}
