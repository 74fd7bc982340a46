//! Descriptors of other processes of this host that have jobs with this process.
//!
//! The idea: a job knows its members by their process numbers and start times. All jobs of this process share
//! one pidfd and one descriptor of the memory for each other process, because a binding to MPI has a job for
//! each communicator. The last job that ends closes them. So a program has two descriptors for each process
//! of its jobs, and none for a window. Cost: a search of the known processes at a job's first use. Reference:
//! pidfd_open(2), proc_pid_mem(5).

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use unisono_linux::pidfd::start_time;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process_vm;

/// The processes whose descriptors any job holds.
static KNOWN: Mutex<Vec<Weak<Kin>>> = Mutex::new(Vec::new());

/// Another process of this host, with its descriptors.
#[derive(Debug)]
pub(crate) struct Kin {
    pub(crate) process: PinnedProcess,
    memory: OnceLock<Option<process_vm::HeldMemory>>,
}

/// The reason why there is no descriptor of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unheld {
    Ended,
    /// The process lives, by its number and its start time, but the kernel or the limit of descriptors
    /// refuses a pidfd.
    Refused,
}

impl Kin {
    /// Opens the process with this number and this start time.
    pub(crate) fn hold(number: u32, started: u64) -> Result<Arc<Self>, Unheld> {
        // No code panics with the lock held.
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|kin| kin.strong_count() > 0);
        let is_it = |kin: &Arc<Self>| kin.process.number() == number && kin.process.started() == started;
        if let Some(kin) = known.iter().filter_map(Weak::upgrade).find(is_it) {
            return Ok(kin);
        }
        let process = PinnedProcess::identified(number, started)
            .map_err(|_| if start_time(number) == Some(started) { Unheld::Refused } else { Unheld::Ended })?;
        let kin = Arc::new(Self { process, memory: OnceLock::new() });
        known.push(Arc::downgrade(&kin));
        Ok(kin)
    }

    /// Opens the process's memory, if the kernel lets this process read `word` at `address` there.
    pub(crate) fn hold_memory(&self, address: usize, word: u64) {
        self.memory.get_or_init(|| {
            let held = process_vm::HeldMemory::open(&self.process).ok()?;
            let mut found = [0; 8];
            let is_it = held.read(address, &mut found).is_ok() && u64::from_ne_bytes(found) == word;
            is_it.then_some(held)
        });
    }

    /// The process's memory, if it is open.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&process_vm::HeldMemory> {
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
        assert!(Arc::ptr_eq(&one, &other) && one.process.lives());
        assert_eq!(Kin::hold(child.id(), started + 1).err(), Some(Unheld::Ended), "another process's time");
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert!(!one.process.lives());
        drop((one, other));
        assert_eq!(Kin::hold(child.id(), started).err(), Some(Unheld::Ended));
    }
}
