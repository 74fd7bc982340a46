//! A scheduler in the kernel, made of BPF programs (sched_ext): the kernel itself runs only threads of the
//! gang that has the turn.
//!
//! ```text
//!   policy --> apply: standings ---------> map `turn` <-- gangs.bpf.c: queue of each gang, next thread
//!                     switch_gangs ------> every processor chooses anew
//! ```
//! The gangs' threads get the policy `SCHED_EXT` once; their new threads and children inherit it. A switch
//! writes one value and makes one call, however many threads there are. Then every processor is interrupted,
//! puts back the thread that it ran, and takes a thread of the gang that has the turn. All other programs
//! stay in the fair class.
//!
//! Backfill: a gang that uses idle cores is preempted by any waking thread of the gang that has the turn.
//!
//! Cost: two system calls and an interrupt for each processor; the first turn of a gang one more call for
//! each thread. When not to use: beside programs that keep the processors busy, because on each processor the
//! fair class goes first and leaves the gangs the remaining time, at least a twentieth. The kernel's quotas
//! (`cpu.max`) do not hold for these threads; the turns of the policy enforce them instead. A gang that waits
//! for longer than 3 s runs for a slice in each 3 s, so that no thread waits long for a kernel lock of the
//! gang's threads.
//!
//! Reference: Documentation/scheduler/sched-ext.rst; `docs/decisions/0020`.

mod loaded;

use super::{Idle, Mechanism, MechanismKind, Promise, Standing, known};
use crate::cgroups::GangCgroups;
use crate::class;
use crate::error::{Error, Result};
use crate::gang::GangId;
use crate::journal::{GangJournal, UndoEntry};
pub use loaded::KernelExceptions;
use loaded::{KernelStanding, LoadedScheduler, MAX_GANGS, MAX_KERNEL_TIMEOUT};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use unisono_linux::bpf::compile::{CSource, ProgramError, REPEAT};
use unisono_linux::cgroup::{CgroupVersion, ControlGroup};
use unisono_linux::clock::Duration;

/// The source of the program; it is compiled on each machine.
pub const GANGS: CSource = CSource {
    what: "the scheduler of gangs",
    files: &[("gangs.bpf.c", include_str!("gangs.bpf.c")), REPEAT],
};

impl From<ProgramError> for Error {
    fn from(error: ProgramError) -> Error {
        Error::Host(error.to_string())
    }
}

/// Maximum number of threads per processor. Beside programs that never leave a processor, threads of gangs
/// get a twentieth of it. A thread that has waited long then runs for a slice of at most 10 ms, so after 15 s
/// all of 75 threads have had a slice. The scheduler gives up before a thread has waited for 18 s.
const MAX_PER_PROCESSOR: usize = 75;

/// Returns the maximum number of threads of each of `gangs` gangs.
pub fn max_threads(gangs: usize, processors: usize) -> u32 {
    (MAX_PER_PROCESSOR * processors / gangs.max(1)).max(1) as u32
}

#[derive(Debug)]
pub struct SchedExt {
    groups: Vec<ControlGroup>,
    standings: Vec<KernelStanding>,
    /// Gangs whose threads have the policy `SCHED_EXT`.
    enrolled: BTreeSet<GangId>,
    removed: BTreeSet<GangId>,
    /// Whether a gang has had a turn.
    begun: bool,
    scheduler: LoadedScheduler,
}

impl SchedExt {
    /// Loads the scheduler, for the gangs of these groups; their threads are unchanged so far. Fails with
    /// [`Error::Host`] where the kernel cannot have one, or has another one, or there is no compiler.
    pub fn new(cgroups: &GangCgroups, journal: &mut GangJournal) -> Result<SchedExt> {
        SchedExt::with_timeout(cgroups, journal, MAX_KERNEL_TIMEOUT)
    }

    /// Does the same as [`SchedExt::new`], with a timeout for tests: the kernel ends the scheduler if a
    /// runnable thread waits longer. A gang that waits so long therefore runs for a moment, one thread after
    /// the other.
    pub fn with_timeout(
        cgroups: &GangCgroups,
        journal: &mut GangJournal,
        timeout: Duration,
    ) -> Result<SchedExt> {
        let groups: Vec<ControlGroup> = cgroups.gangs.iter().map(|gang| gang.control.clone()).collect();
        if groups.len() > MAX_GANGS {
            return Err(Error::Input(format!(
                "{} gangs are more than the scheduler in the kernel can have ({MAX_GANGS}); use freeze",
                groups.len()
            )));
        }
        if groups.iter().any(|group| group.version() != CgroupVersion::V2) {
            return Err(Error::Host(
                "the scheduler in the kernel knows a gang by its group of cgroup version 2, which is not mounted; \
                 try: mount -t cgroup2 none /sys/fs/cgroup"
                    .to_owned(),
            ));
        }
        let scheduler = LoadedScheduler::load(groups.len(), timeout)?;
        for (gang, group) in groups.iter().enumerate() {
            let directory = fs::metadata(group.path())
                .map_err(|error| Error::System { action: "look at a gang's group", source: error })?;
            scheduler.know(directory.ino(), gang)?;
        }
        for group in &groups {
            journal.write(&UndoEntry::reclassed(group))?;
        }
        let standings = vec![KernelStanding::Runs; groups.len()];
        scheduler.write(&standings)?;
        Ok(SchedExt {
            groups,
            standings,
            enrolled: BTreeSet::new(),
            removed: BTreeSet::new(),
            begun: false,
            scheduler,
        })
    }

    /// Returns the number of times that the kernel has let a thread run outside its gang's turn, to avoid
    /// starvation.
    pub fn exceptions(&self) -> Result<KernelExceptions> {
        Ok(self.scheduler.exceptions()?)
    }

    /// Gives all threads of a gang the policy `SCHED_EXT`. Their later threads and children inherit it.
    fn enrol(&mut self, gang: GangId) -> Result<()> {
        let mut done = BTreeSet::new();
        // a new thread may inherit from a thread without the policy: list the threads again
        loop {
            let threads = class::pinned_in(&self.groups[gang.0])?;
            let new: Vec<_> = threads.into_iter().filter(|thread| done.insert(thread.number())).collect();
            if new.is_empty() {
                break;
            }
            for thread in &new {
                class::set_extensible(thread)?;
            }
        }
        if !done.is_empty() {
            self.enrolled.insert(gang);
        }
        Ok(())
    }
}

impl Mechanism for SchedExt {
    fn kind(&self) -> MechanismKind {
        MechanismKind::SchedExt
    }

    fn promise(&self) -> Promise {
        // the interrupt may be late, for example on a virtual processor that does not run just now
        Promise { overrun: Duration::from_millis(1), leftover: 0.0, idle: Idle::Left }
    }

    fn apply(&mut self, standings: &[(GangId, Standing)]) -> Result<()> {
        known(standings, |gang| gang.0 < self.groups.len() && !self.removed.contains(&gang))?;
        // A thread may be stopped inside the kernel while it holds a lock that the start of the next gang
        // needs. So no thread waits for a turn until the first gang has one.
        self.begun |= standings.iter().any(|(_, standing)| *standing == Standing::Running);
        for (gang, standing) in standings {
            self.standings[gang.0] = match standing {
                _ if !self.begun => KernelStanding::Runs,
                Standing::Running => KernelStanding::Runs,
                Standing::Backfill => KernelStanding::Lent,
                Standing::Waiting => KernelStanding::Waits,
            };
        }
        self.scheduler.write(&self.standings)?;
        for (gang, _) in standings {
            if !self.enrolled.contains(gang) {
                self.enrol(*gang)?;
            }
        }
        Ok(self.scheduler.switch()?)
    }

    fn remove(&mut self, gang: GangId) {
        let Some(group) = self.groups.get(gang.0).filter(|_| self.removed.insert(gang)) else { return };
        self.standings[gang.0] = KernelStanding::Runs;
        // if one of these calls fails, the journal has the change and undoes it later
        let _ = self.scheduler.write(&self.standings);
        let _ = self.scheduler.switch();
        // an empty group has no threads to restore
        if group.threads().is_ok_and(|threads| !threads.is_empty()) {
            let _ = class::put_back(std::slice::from_ref(group));
        }
    }

    fn release(&mut self) -> Result<()> {
        self.standings.fill(KernelStanding::Runs);
        let freed = self.scheduler.write(&self.standings).and_then(|()| self.scheduler.switch());
        let (_, result) = class::put_back(&self.groups);
        self.enrolled.clear();
        // a scheduler that the kernel has ended stops no thread
        match freed {
            Err(ProgramError::Host(_)) | Ok(()) => result,
            Err(error) => result.and(Err(error.into())),
        }
    }
}

impl Drop for SchedExt {
    fn drop(&mut self) {
        let _ = self.release(); // what cannot be done now is in the journal
    }
}
