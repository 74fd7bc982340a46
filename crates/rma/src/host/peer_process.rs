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
static KNOWN: Mutex<Vec<Weak<PeerProcess>>> = Mutex::new(Vec::new());

/// Another process of this host, with its descriptors.
#[derive(Debug)]
pub(crate) struct PeerProcess {
    pub(crate) process: PinnedProcess,
    memory: OnceLock<Option<process_vm::HeldMemory>>,
}

/// The reason why there is no descriptor of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessUnavailable {
    Ended,
    /// The process lives, by its number and its start time, but the kernel or the limit of descriptors
    /// refuses a pidfd.
    Refused,
}

impl PeerProcess {
    /// Opens the process with this number and this start time.
    pub(crate) fn open(number: u32, started: u64) -> Result<Arc<Self>, ProcessUnavailable> {
        // No code panics with the lock held.
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|process| process.strong_count() > 0);
        let is_it = |peer: &Arc<Self>| peer.process.number() == number && peer.process.started() == started;
        if let Some(peer) = known.iter().filter_map(Weak::upgrade).find(is_it) {
            return Ok(peer);
        }
        let process = PinnedProcess::identified(number, started).map_err(|_| {
            let lives = start_time(number) == Some(started);
            if lives { ProcessUnavailable::Refused } else { ProcessUnavailable::Ended }
        })?;
        let peer = Arc::new(Self { process, memory: OnceLock::new() });
        known.push(Arc::downgrade(&peer));
        Ok(peer)
    }

    /// Opens the process's memory, if the kernel lets this process read `word` at `address` there.
    pub(crate) fn open_memory(&self, address: usize, word: u64) {
        self.memory.get_or_init(|| {
            let held = process_vm::HeldMemory::open(&self.process).ok()?;
            let mut found = [0; 8];
            let is_it = held.read(address, &mut found).is_ok() && u64::from_ne_bytes(found) == word;
            is_it.then_some(held)
        });
    }

    /// Returns the process's memory, if it is open.
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
        let one = PeerProcess::open(child.id(), started).expect("our child");
        let other = PeerProcess::open(child.id(), started).expect("our child");
        assert!(Arc::ptr_eq(&one, &other) && one.process.lives());
        assert_eq!(
            PeerProcess::open(child.id(), started + 1).err(),
            Some(ProcessUnavailable::Ended),
            "another process's time"
        );
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert!(!one.process.lives());
        drop((one, other));
        assert_eq!(PeerProcess::open(child.id(), started).err(), Some(ProcessUnavailable::Ended));
    }
}
