//! The other processes of this host that this one has jobs with: held on to once, whatever the number of
//! jobs.
//!
//! The idea: a job knows its members by their processes' numbers and start times. A process that is in
//! several jobs (a communicator each, for a binding to MPI) is held on to by one pidfd, and its memory by one
//! descriptor, which the jobs share; the last job that ends lets go. So a program has two descriptors for
//! each process that it deals with, and none for a window. Cost: a search of the processes known when a job
//! first asks. Reference: pidfd_open(2), proc_pid_mem(5).

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use unisono_linux::pidfd::{PidFd, start_time};
use unisono_linux::process_vm;

/// The processes that some job holds on to.
static KNOWN: Mutex<Vec<Weak<Kin>>> = Mutex::new(Vec::new());

/// A process held on to.
#[derive(Debug)]
pub(crate) struct Kin {
    pub(crate) number: u32,
    started: u64,
    pub(crate) process: PidFd,
    memory: OnceLock<Option<process_vm::Held>>,
}

/// Why a process is not held on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unheld {
    /// It has ended.
    Ended,
    /// It lives, as far as its number and its start time tell; the kernel or the limit on descriptors forbids
    /// more.
    Refused,
}

impl Kin {
    /// Holds on to the process of this number that started then.
    pub(crate) fn hold(number: u32, started: u64) -> Result<Arc<Self>, Unheld> {
        // Nothing panics with the lock held.
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|kin| kin.strong_count() > 0);
        let is_it = |kin: &Arc<Self>| kin.number == number && kin.started == started;
        if let Some(kin) = known.iter().filter_map(Weak::upgrade).find(is_it) {
            return Ok(kin);
        }
        // Held first, then looked at: the number cannot change hands in between.
        let process = PidFd::open(number);
        if start_time(number) != Some(started) {
            return Err(Unheld::Ended);
        }
        let process = process.map_err(|_| Unheld::Refused)?;
        let kin = Arc::new(Self { number, started, process, memory: OnceLock::new() });
        known.push(Arc::downgrade(&kin));
        Ok(kin)
    }

    /// Whether the process still runs.
    pub(crate) fn lives(&self) -> bool {
        !self.process.has_ended(Some(Duration::ZERO)).unwrap_or(true)
    }

    /// Holds on to the process's memory if it is in reach, which it is if this word is found at this address.
    pub(crate) fn hold_memory(&self, address: usize, word: u64) {
        self.memory.get_or_init(|| {
            let held = process_vm::Held::open(self.number).ok()?;
            let mut found = [0; 8];
            let is_it = held.read(address, &mut found).is_ok() && u64::from_ne_bytes(found) == word;
            // The number was the process's when the memory was opened, because it still is.
            (is_it && self.lives()).then_some(held)
        });
    }

    /// The process's memory, if it is held.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&process_vm::Held> {
        self.memory.get()?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_share_what_they_hold_of_a_process_and_the_last_lets_go() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep(1) exists");
        let started = start_time(child.id()).expect("our child");
        let one = Kin::hold(child.id(), started).expect("our child");
        let other = Kin::hold(child.id(), started).expect("our child");
        assert!(Arc::ptr_eq(&one, &other) && one.lives());
        assert_eq!(Kin::hold(child.id(), started + 1).err(), Some(Unheld::Ended), "another process's time");
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert!(!one.lives());
        drop((one, other));
        assert_eq!(Kin::hold(child.id(), started).err(), Some(Unheld::Ended));
    }
}
