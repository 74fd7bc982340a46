//! Leases of processors. A program that effectively has fewer processors than its affinity can be bound to as
//! many as it has. Then a runtime that counts the processors of the affinity counts right, without a
//! variable.
//!
//! Without coordination, programs would choose the same processors. So each choice is recorded where every
//! `unisono fit` of the host reads it: as locks on bytes of a file, one byte for each processor. The locks
//! belong to an open file description that the program inherits, so a lease ends with the program, however it
//! ends. Programs that it starts inherit the lease, too.
//!
//! ```text
//!   /run/unisono/leases     root makes the file, and every user may lock bytes of it, but not write
//!       byte = slot * CpuSet::LIMIT + processor; each lease has a slot of its own
//! ```
//! Leases are advisory: if a user locks too many bytes, others choose worse processors, and nothing else
//! happens. If that file does not exist, the file is in a directory of the user's own, and only the user's
//! leases are taken into account.
//!
//! Cost: one reading of the load by processor ([`load::others_by_processor`]), and two system calls for each
//! lease of the host. When not to use them: see docs/decisions/0022.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use unisono_linux::affinity::CpuSet;
use unisono_linux::clock::{self, Duration};
use unisono_linux::private_directory::{PrivateDirectory, make_enterable, runtime_directory};
use unisono_linux::topology::Topology;
use unisono_linux::{load, process, record_lock};

/// The file in which all users record their leases.
pub const SHARED_FILE: &str = "/run/unisono/leases";
/// More slots than programs that any host runs at a time. Chosen, not measured.
const SLOTS: u64 = 4096;
/// A choice waits at most this long for another choice to end, and again for the leases that it reads. After
/// that, both may choose the same processors.
const CHOICE_TIMEOUT: Duration = Duration::from_millis(100);
const WIDTH: u64 = CpuSet::LIMIT as u64;

/// The processors to bind a program to, and the descriptor whose locks record them.
#[derive(Debug)]
pub struct ProcessorLease {
    pub cpus: CpuSet,
    /// The lease lasts while this descriptor, which programs inherit, is open in any process.
    _recorded: OwnedFd,
}

impl ProcessorLease {
    /// Takes a lease of `count` of the processors `allowed`, recorded in the file that all users share, or
    /// else in this user's own.
    pub fn take(allowed: &CpuSet, count: usize) -> io::Result<Self> {
        let shared = Path::new(SHARED_FILE);
        if process::is_root() {
            // if this fails, the lease is recorded in this user's own file
            let _ = make_shared(shared);
        }
        Self::take_in(shared, allowed, count).or_else(|_| Self::take_in(&own_file()?, allowed, count))
    }

    /// Takes a lease that is recorded in a file of [`record_lock::make`].
    pub fn take_in(file: &Path, allowed: &CpuSet, count: usize) -> io::Result<Self> {
        let own = record_lock::open(file)?;
        // before the lock is taken, because it takes long
        let load = load::others_by_processor(allowed).unwrap_or_default();
        let _choosing = one_at_a_time(file)?;
        let leases = RecordedLeases::read(&own)?;
        // leases count first, because they stay, while threads that are not bound move to processors that
        // become free
        let of = |counts: &BTreeMap<usize, usize>, cpu| counts.get(&cpu).copied().unwrap_or(0);
        let used = |cpu| (of(&leases.by_processor, cpu), of(&load, cpu));
        let cpus = choose(&Topology::read(), allowed, count, used);
        record(&own, &cpus, &leases.slots)?;
        Ok(Self { cpus, _recorded: record_lock::inheritable(&own)? })
    }
}

fn make_shared(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), make_enterable)?;
    record_lock::make(file)
}

fn own_file() -> io::Result<PathBuf> {
    let file = PrivateDirectory::open(&runtime_directory())?.path().join("leases");
    record_lock::make(&file)?;
    Ok(file)
}

/// Waits until no other process is choosing, but not for longer than [`CHOICE_TIMEOUT`], because any user
/// could lock the file for ever.
fn one_at_a_time(file: &Path) -> io::Result<File> {
    let file = record_lock::open(file)?;
    let until = clock::now() + CHOICE_TIMEOUT;
    while file.try_lock().is_err() && clock::now() < until {
        thread::sleep(Duration::from_millis(1).into());
    }
    Ok(file)
}

/// The leases of all users, as far as they could be read in time.
#[derive(Debug, Default, PartialEq, Eq)]
struct RecordedLeases {
    /// The number of leases of each processor.
    by_processor: BTreeMap<usize, usize>,
    /// The slots in use.
    slots: BTreeSet<u64>,
}

impl RecordedLeases {
    fn read(file: &File) -> io::Result<Self> {
        let mut found = Self::default();
        for range in record_lock::locked(file, 0..SLOTS * WIDTH, clock::now() + CHOICE_TIMEOUT)? {
            found.slots.extend(range.start / WIDTH..=(range.end - 1) / WIDTH);
            // ignores bytes beyond one slot's length, because a lease lies within one slot
            for byte in range.start..range.end.min(range.start + WIDTH) {
                *found.by_processor.entry((byte % WIDTH) as usize).or_default() += 1;
            }
        }
        Ok(found)
    }
}

/// Locks the processors' bytes in a slot that no other lease uses.
fn record(own: &File, cpus: &CpuSet, used: &BTreeSet<u64>) -> io::Result<()> {
    let until = clock::now() + CHOICE_TIMEOUT;
    for slot in (0..SLOTS).filter(|slot| !used.contains(slot)) {
        let bytes = slot * WIDTH..(slot + 1) * WIDTH;
        for cpu in cpus.iter() {
            let byte = bytes.start + cpu as u64;
            record_lock::lock(own, byte..byte + 1)?;
        }
        // after the timeout another process may choose the slot at the same time, and both look for another
        if record_lock::locked(own, bytes.clone(), clock::now() + CHOICE_TIMEOUT)?.is_empty() {
            return Ok(());
        }
        record_lock::unlock(own, bytes)?;
        if clock::now() >= until {
            break;
        }
    }
    Err(io::Error::other("no slot is free"))
}

/// Chooses `count` processors of `allowed`: those with the fewest leases; among these, those with the fewest
/// threads of other programs (`used` returns both numbers); among these, those on whose core, and then at
/// whose last-level cache, the fewest processors were chosen so far.
fn choose(
    machine: &Topology,
    allowed: &CpuSet,
    count: usize,
    used: impl Fn(usize) -> (usize, usize),
) -> CpuSet {
    let neighbors = |cpu: usize, chosen: &CpuSet| {
        let core = machine.cpus.iter().find(|one| one.number == cpu).map(|one| one.siblings.clone());
        let core = core.unwrap_or_else(|| CpuSet::single(cpu));
        let caches = machine.caches.iter().filter(|cache| cache.shared_by.contains(cpu));
        let last = caches.max_by_key(|cache| cache.level).map(|cache| cache.shared_by.clone());
        let in_core = core.intersection(chosen).len();
        let beside: usize = core
            .iter()
            .filter(|sibling| *sibling != cpu)
            .map(&used)
            .map(|(leases, load)| leases + load)
            .sum();
        (in_core, beside, last.map_or(0, |cpus| cpus.intersection(chosen).len()))
    };
    let mut chosen = CpuSet::empty();
    while chosen.len() < count {
        let rest = allowed.iter().filter(|cpu| !chosen.contains(*cpu));
        let Some(next) = rest.min_by_key(|cpu| (used(*cpu), neighbors(*cpu, &chosen), *cpu)) else { break };
        chosen.insert(next);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::topology::{Cache, CacheKind, Cpu};

    /// Returns a machine of two packages (0-3 and 4-7), each with a cache and two cores of two hardware
    /// threads (0-1, 2-3, ...).
    fn machine() -> Topology {
        let core = |cpu: usize| (cpu / 2 * 2..cpu / 2 * 2 + 2).collect();
        let cache = |first: usize| Cache {
            level: 3,
            kind: CacheKind::Unified,
            bytes: 1 << 20,
            shared_by: (first..first + 4).collect(),
        };
        Topology {
            cpus: (0..8).map(|number| Cpu { number, package: number / 4, siblings: core(number) }).collect(),
            caches: vec![cache(0), cache(4)],
            ..Topology::default()
        }
    }

    #[test]
    fn the_least_used_processors_are_chosen_and_spread_over_caches_and_cores() {
        let all: CpuSet = (0..8).collect();
        let chosen = |count, used: &[usize]| {
            let used = |cpu| (used.iter().filter(|one| **one == cpu).count(), 0);
            choose(&machine(), &all, count, used).to_string()
        };
        assert_eq!(chosen(1, &[]), "0");
        assert_eq!(chosen(2, &[]), "0,4");
        assert_eq!(chosen(4, &[]), "0,2,4,6");
        assert_eq!(chosen(5, &[]), "0-2,4,6");
        assert_eq!(chosen(1, &[0]), "2", "1 shares a core with a used processor");
        assert_eq!(chosen(2, &[0, 2, 4, 6]), "1,5");
        assert_eq!(chosen(3, &[0, 1, 2, 3, 4, 5]), "0,6-7");
        assert_eq!(chosen(20, &[]), "0-7");
        assert_eq!(choose(&machine(), &(2..4).collect(), 1, |_| (9, 9)).to_string(), "2", "it stays inside");
        let load = |cpu| (usize::from(cpu == 4), usize::from(cpu < 4));
        assert_eq!(choose(&machine(), &all, 1, load).to_string(), "6", "neither leased nor busy");
    }

    #[test]
    fn leases_are_seen_until_they_end_and_programs_that_start_together_choose_different_processors() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("leases");
        record_lock::make(&path).expect("our own directory");
        let read = || RecordedLeases::read(&record_lock::open(&path).expect("a file")).expect("our own file");
        let leases = || read().by_processor;
        let own = |cpus: &str| {
            let file = record_lock::open(&path).expect("a file");
            record(&file, &cpus.parse().expect("a list"), &read().slots).expect("a free slot");
            file
        };
        let first = own("1,3-4");
        let second = own("3");
        assert_eq!(leases(), BTreeMap::from([(1, 1), (3, 2), (4, 1)]));
        drop(first);
        assert_eq!(leases(), BTreeMap::from([(3, 1)]));
        let third = own("0");
        assert_eq!(leases(), BTreeMap::from([(0, 1), (3, 1)]));
        assert_eq!(read().slots, BTreeSet::from([0, 1]), "the first slot is free again");
        // two that choose at the same time have the same slot in mind
        let late = record_lock::open(&path).expect("a file");
        record(&late, &CpuSet::single(2), &BTreeSet::new()).expect("a free slot");
        assert_eq!(read().slots, BTreeSet::from([0, 1, 2]));
        drop((second, third, late));
        assert_eq!(read(), RecordedLeases::default());
    }
}
