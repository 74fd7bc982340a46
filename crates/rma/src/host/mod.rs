//! Processes (or threads) of one host that share memory: membership, detection of deaths, waiting.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the job's segment, membership, members that are gone |
//! | `peer_process.rs` | descriptors of the other processes |
//! | `rendezvous.rs`, `name.rs` | how processes without a common parent find the segment |
//! | `flag_waiter.rs` | adaptive waiting for a flag of another member |
//!
//! The segment is a memfd, which disappears with the last process that maps it; nothing is left after kill
//! -9. Each member has a line with its identity and its *standing*, the state of its membership (absent,
//! coming, present, left, panicked or died), and a second line with its processors:
//!
//! ```text
//!   first line     word 0 standing   1 process   2,3 start time   flag 4 its bell, whose count is word 8
//!   second line    word 0,1 processors that it may use (bits)   2 whether membarrier(2) works for it
//!                  8 the rank that was declared gone first, plus one (in rank 0's line only)
//! ```
//! Reference: memfd_create(2), pidfd_open(2).

pub(crate) mod flag_waiter;
mod name;
mod peer_process;
pub(crate) mod rendezvous;

use crate::model::{Error, Gone, Rank};
use peer_process::{PeerProcess, ProcessUnavailable};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::clock::{Duration, Instant, now};
use unisono_linux::futex::Scope;
use unisono_linux::membarrier;
use unisono_linux::pidfd::start_time;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process_vm::{self, MemoryOf};
use unisono_linux::shared_memory::SharedMemory;
use unisono_sync::atomics::{AtomicU32, Ordering};
use unisono_sync::{CacheLine, Flag, Lines, Wakeups};
use unisono_text::counted;

const ABSENT: u32 = 0;
const COMING: u32 = 1;
const PRESENT: u32 = 2;
const LEFT: u32 = 3;
const PANICKED: u32 = 4;
const DIED: u32 = 5;

/// The time between two checks that the other processes live. Each check is a system call for each member, so
/// a waiter does not check at every poll. A person who waits 0.1 s longer for the report of a dead rank does
/// not notice. Chosen by this argument, not measured.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(100);

/// The members of a job that share this host's memory.
#[derive(Debug)]
pub(crate) struct HostMembers {
    pub(crate) lines: Lines,
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    /// Whether members outnumber the processors that they may use.
    pub(crate) crowded: bool,
    /// The number of processors that the members may use together.
    pub(crate) processors: usize,
    /// The fences with which this job's flags are signalled. All members use the same.
    wakeups: Wakeups,
    /// The barrier of this job's fences, once a window or the job has needed it.
    pub(crate) barrier: OnceLock<unisono_barrier::GroupSpec>,
    /// The other members' processes, opened when a call first checks whether they live.
    processes: Box<[OnceLock<Arc<PeerProcess>>]>,
    next_liveness_check: AtomicU64,
}

/// The largest job whose members open each other's memory. A descriptor for each member's memory saves 0.6 us
/// of each short copy by the kernel (16 bytes: 1.0 us instead of 1.6). But a process has 1,024 descriptors by
/// default, and the program needs most of them.
const MAX_HELD: usize = 64;

const MEMBERS: usize = 1;

impl HostMembers {
    /// Returns the number of lines of a segment that this module uses.
    pub(crate) const fn lines(size: usize) -> usize {
        MEMBERS + 2 * size
    }

    /// Takes the line of `rank` in a segment, and waits until all members have taken theirs, at
    /// most until `limit`.
    pub(crate) fn join(region: SharedMemory, rank: Rank, size: usize, limit: Instant) -> Result<Self, Error> {
        // The others find the segment through rank 0's descriptor: it stays open until all have mapped it.
        let (mapping, descriptor) = region.into_parts();
        let lines = Lines::in_mapping(mapping);
        if lines.count() < Self::lines(size) {
            return Err(Error::Job(format!(
                "the job's segment is too short for {}; use one version",
                counted(size, "rank")
            )));
        }
        let line = lines.line(MEMBERS + rank.index());
        // SYNC(standing) release: no other process takes this line; SYNC(standing) acquire: none has taken it
        let free = line.word(0).compare_exchange(ABSENT, COMING, Ordering::AcqRel, Ordering::Acquire);
        if free.is_err() {
            return Err(Error::Job(format!("rank {rank} is taken; give every process a rank of its own")));
        }
        let process = std::process::id();
        let start = start_time(process).unwrap_or(0);
        line.word(1).store(process, Ordering::Relaxed);
        line.word(2).store((start & 0xffff_ffff) as u32, Ordering::Relaxed);
        line.word(3).store((start >> 32) as u32, Ordering::Relaxed);
        let allowed = affinity::allowed(Tid::current())
            .map_or(u64::MAX, |set| set.iter().fold(0, |bits, cpu| bits | 1_u64 << (cpu % 64)));
        let processors = lines.line(MEMBERS + size + rank.index());
        processors.word(0).store((allowed & 0xffff_ffff) as u32, Ordering::Relaxed);
        processors.word(1).store((allowed >> 32) as u32, Ordering::Relaxed);
        let fences =
            membarrier::register(Scope::Shared).is_ok() && membarrier::fence_all(Scope::Shared).is_ok();
        processors.word(2).store(u32::from(fences), Ordering::Relaxed);
        // SYNC(standing) release: the process and its processors are written before the standing
        line.word(0).store(PRESENT, Ordering::Release);
        let mut host = Self {
            lines,
            rank,
            size,
            crowded: false,
            processors: 1,
            wakeups: Wakeups::Symmetric(Scope::Shared),
            barrier: OnceLock::new(),
            processes: std::iter::repeat_with(OnceLock::new).take(size).collect(),
            next_liveness_check: AtomicU64::new(0),
        };
        host.await_all(limit)?;
        drop(descriptor);
        let bits = (0..size).fold(0, |bits, index| {
            let line = host.lines.line(MEMBERS + size + index);
            let half = |at: usize| u64::from(line.word(at).load(Ordering::Relaxed));
            bits | half(0) | half(1) << 32
        });
        host.processors = (bits.count_ones() as usize).max(1);
        host.crowded = size > host.processors;
        let fences =
            |index: usize| host.lines.line(MEMBERS + size + index).word(2).load(Ordering::Relaxed) == 1;
        if !host.crowded && (0..size).all(fences) {
            // With a processor for every member, sleeping is rare; an asymmetric signal costs only a store.
            host.wakeups = Wakeups::Asymmetric(Scope::Shared);
        }
        Ok(host)
    }

    fn await_all(&self, limit: Instant) -> Result<(), Error> {
        loop {
            let all = (0..self.size).map(Rank::at);
            let absent: Vec<Rank> = all.filter(|rank| self.standing(*rank) <= COMING).collect();
            if absent.is_empty() {
                return Ok(());
            }
            let gone = self.gone_member();
            if let Some(gone) = &gone
                && self.standing(gone.rank) == DIED
            {
                return Err(gone.clone().into());
            }
            // A member that has left has given up waiting for the others.
            if gone.is_some() || now() >= limit {
                // Rank 0 made the segment and takes its own line last, after all others have taken theirs. So
                // the error names rank 0 only if no other rank is missing.
                let others = absent.iter().filter(|rank| **rank != Rank(0) || absent.len() == 1);
                let list: Vec<String> = others.map(Rank::to_string).collect();
                let word = if list.len() == 1 { "rank" } else { "ranks" };
                let waiting_for = format!("{word} {} of {}", list.join(", "), self.size);
                return Err(Error::TimedOut { call: "joining the job", waiting_for });
            }
            std::thread::sleep(Duration::from_micros(500).into());
        }
    }

    fn member(&self, rank: Rank) -> &CacheLine {
        self.lines.line(MEMBERS + rank.index())
    }

    fn standing(&self, rank: Rank) -> u32 {
        // SYNC(standing) acquire: the process and its processors are read after the standing
        self.member(rank).word(0).load(Ordering::Acquire)
    }

    pub(crate) fn process(&self, rank: Rank) -> u32 {
        self.member(rank).word(1).load(Ordering::Relaxed)
    }

    /// Opens a member's memory, if the kernel lets this process read `word` at `address` there.
    pub(crate) fn open_memory(&self, rank: Rank, address: usize, word: u64) {
        if self.size <= MAX_HELD
            && let Some(process) = self.open_process(rank)
        {
            process.open_memory(address, word);
        }
    }

    /// Returns a member's memory, if it is open.
    #[inline]
    pub(crate) fn memory(&self, rank: Rank) -> Option<&process_vm::HeldMemory> {
        self.processes[rank.index()].get()?.memory()
    }

    /// Returns a member's bell: the flag at which the member's transport sleeps.
    pub(crate) fn bell(&self, rank: Rank) -> Flag<'_> {
        self.lines.line(MEMBERS + rank.index()).flag(4)
    }

    /// Counts an event at a member's bell, and wakes the member if it sleeps. Any member may do so at any
    /// time.
    #[inline]
    pub(crate) fn ring(&self, rank: Rank) {
        let events = self.lines.line(MEMBERS + rank.index()).word(8);
        // SYNC(flag) release: packets are written before their event is counted
        events.fetch_add(1, Ordering::Release);
        // SYNC(sleepers) fence: the event is counted before the sleepers are read, as in `Flag::signal`
        unisono_sync::atomics::fence(Ordering::SeqCst);
        let bell = self.bell(rank);
        if bell.has_sleepers() {
            bell.disturb(Scope::Shared);
        }
    }

    pub(crate) const fn wakeups(&self) -> Wakeups {
        self.wakeups
    }

    /// Returns the word that holds the rank that was declared gone first, plus one. Members that got the
    /// error may end as well, and a member that checks later must not name one of these.
    fn first_gone(&self) -> &AtomicU32 {
        self.lines.line(MEMBERS + self.size).word(8)
    }

    /// Finds a member that is gone, if there is one; of several, the first that was declared gone. Reads
    /// every member's line, and ten times a second checks every process.
    pub(crate) fn gone_member(&self) -> Option<Gone> {
        let moment = now();
        let next = self.next_liveness_check.load(std::sync::atomic::Ordering::Relaxed);
        if moment >= Instant::from_nanos(next) {
            let next = (moment + LIVENESS_INTERVAL).as_nanos();
            self.next_liveness_check.store(next, std::sync::atomic::Ordering::Relaxed);
            self.check_processes();
        }
        let all = (0..self.size).map(Rank::at);
        self.first().into_iter().chain(all).filter(|rank| *rank != self.rank).find_map(|rank| self.gone(rank))
    }

    /// Returns the member that was declared gone first.
    fn first(&self) -> Option<Rank> {
        // SYNC(first-gone) acquire: the member's standing is read after its place
        let first = self.first_gone().load(Ordering::Acquire) as usize;
        first.checked_sub(1).filter(|rank| *rank < self.size).map(Rank::at)
    }

    /// Records that a member's process died, as the caller found out by other means.
    pub(crate) fn died(&self, rank: Rank) {
        self.declare(rank, DIED);
    }

    /// Finds a member as [`gone_member`](Self::gone_member) does, but ignores members that left by
    /// themselves.
    pub(crate) fn dead_member(&self) -> Option<Gone> {
        self.gone_member()?;
        let all = (0..self.size).map(Rank::at);
        let mut others = self.first().into_iter().chain(all).filter(|rank| *rank != self.rank);
        others.find(|rank| matches!(self.standing(*rank), PANICKED | DIED)).and_then(|rank| self.gone(rank))
    }

    /// Returns the reason why a member is gone, or `None` if it is not gone.
    pub(crate) fn gone(&self, rank: Rank) -> Option<Gone> {
        let process = self.process(rank);
        let why = match self.standing(rank) {
            LEFT => format!("process {process} left the job"),
            PANICKED => format!("its thread in process {process} panicked"),
            DIED => format!("process {process} died"),
            _ => return None,
        };
        Some(Gone { rank, why })
    }

    fn check_processes(&self) {
        let (mut ranks, mut held) = (Vec::new(), Vec::new());
        for rank in (0..self.size).map(Rank::at).filter(|rank| self.standing(*rank) == PRESENT) {
            if let Some(process) = self.open_process(rank) {
                ranks.push(rank);
                held.push(&process.process);
            }
        }
        for at in PinnedProcess::ended(held).unwrap_or_default() {
            self.declare(ranks[at], DIED);
        }
    }

    /// Opens a member's process. Returns `None` if it is this process, if it has ended (it is then declared
    /// gone), or if the kernel or the limit of descriptors refuses.
    fn open_process(&self, rank: Rank) -> Option<&PeerProcess> {
        let known = &self.processes[rank.index()];
        if known.get().is_none() {
            let number = self.process(rank);
            if number == std::process::id() {
                return None;
            }
            match PeerProcess::open(number, self.started(rank)) {
                Ok(process) => drop(known.set(process)),
                Err(ProcessUnavailable::Ended) => self.declare(rank, DIED),
                Err(ProcessUnavailable::Refused) => {}
            }
        }
        known.get().map(|process| &**process)
    }

    fn started(&self, rank: Rank) -> u64 {
        let word = |at: usize| u64::from(self.member(rank).word(at).load(Ordering::Relaxed));
        word(2) | word(3) << 32
    }

    /// Returns a member's process, for a system call that copies its memory and checks that the process
    /// lives. Fails with [`Error::Gone`] for a process that has ended.
    pub(crate) fn memory_of(&self, rank: Rank) -> Result<MemoryOf<'_>, Error> {
        let held = self.open_process(rank);
        // A process that lives but has executed another program no longer has the member's memory.
        if self.standing(rank) == DIED {
            return Err(self.lost(rank));
        }
        let number = self.process(rank);
        Ok(match held {
            Some(held) => MemoryOf::Pinned(&held.process),
            None if number == std::process::id() => MemoryOf::Own,
            None => MemoryOf::Identified { number, started: self.started(rank) },
        })
    }

    /// Declares a member gone whose process has ended or has given up the memory that it announced; returns
    /// the error.
    #[cold]
    pub(crate) fn lost(&self, rank: Rank) -> Error {
        self.declare(rank, DIED);
        let why = || format!("process {} died", self.process(rank));
        self.gone(rank).unwrap_or_else(|| Gone { rank, why: why() }).into()
    }

    fn declare(&self, rank: Rank, standing: u32) {
        let word = self.member(rank).word(0);
        // SYNC(standing) release: publishes this rank's earlier writes; SYNC(standing) acquire: sees an
        // earlier declaration
        let first = word.compare_exchange(PRESENT, standing, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            // SYNC(first-gone) release: the member's standing is written before its place; an earlier place
            // stays
            let _ = self.first_gone().compare_exchange(0, rank.0 + 1, Ordering::Release, Ordering::Relaxed);
            (0..self.size).map(Rank::at).for_each(|other| self.ring(other));
        }
    }
}

impl Drop for HostMembers {
    fn drop(&mut self) {
        // If this member leaves because another died, the others have to name the dead member.
        self.check_processes();
        self.declare(self.rank, if std::thread::panicking() { PANICKED } else { LEFT });
    }
}

/// Maps a segment that another member made.
pub(crate) fn open(path: &Path) -> Result<SharedMemory, Error> {
    SharedMemory::open(path).map_err(Error::system(format!("cannot map {}", path.display())))
}

pub(crate) fn create(bytes: usize) -> Result<SharedMemory, Error> {
    SharedMemory::create(bytes).map_err(Error::system(format!("cannot make {bytes} bytes of shared memory")))
}
