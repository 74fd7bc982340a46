//! Finds out how many ranks of an MPI program share this host's processors: each should start only its part
//! of the threads.
//!
//! The number is in the launcher's arguments (`mpiexec -n 8`), and the launcher passes it to each rank in a
//! variable. A launcher may also bind its ranks to processors, so the processors that all ranks of the host
//! share are those of the launcher's process on this host.
//!
//! Reference: mpiexec(1) of MPICH and Open MPI; srun(1), "OUTPUT ENVIRONMENT VARIABLES".

use crate::effective::{Effective, LimitedBy, effective};
use std::ffi::OsString;
use std::fs;
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::process_stat::ProcessStat;
use unisono_linux::quota::ProcessorLimits;

/// Variables that only ranks of MPI programs have. The launcher that started a rank also places its threads.
pub(crate) const RANK: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];

/// The ranks of an MPI program on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRanks {
    /// The number of ranks, at least 1.
    pub count: usize,
    /// The processors that all ranks share; a rank may be bound to some of these.
    pub cpus: CpuSet,
}

impl LocalRanks {
    /// Returns the processors of each rank, if one rank alone could use `own`.
    pub(crate) fn part_of_each(&self, limits: &ProcessorLimits, own: &Effective) -> Effective {
        let all = effective(&ProcessorLimits { affinity: self.cpus.clone(), ..limits.clone() });
        let part = (all.processors / self.count).max(1);
        if part < own.processors {
            Effective { processors: part, limited_by: LimitedBy::Ranks(self.count) }
        } else {
            own.clone()
        }
    }
}

/// The variables in which launchers tell a rank the number of ranks on its host.
const LOCAL_SIZES: [&str; 4] = [
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS", // MPICH and Intel MPI
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "SLURM_STEP_TASKS_PER_NODE", // `2(x3),1`; the first host's number stands for all
];
/// The names of processes that start the ranks of a host, as `/proc/PID/comm` shortens them.
const STARTERS: [&str; 8] =
    ["hydra_pmi_proxy", "mpiexec", "mpirun", "orted", "orterun", "prted", "prterun", "slurmstepd"];
/// Options that name other hosts, so that the number of ranks on this one is unknown.
const HOSTS: [&str; 9] =
    ["-f", "-host", "--host", "-H", "-hosts", "-hostfile", "--hostfile", "-machinefile", "--machinefile"];

/// Returns the number of ranks on this rank's host, or `None` if this process is no rank or its launcher sets
/// no such variable.
pub(crate) fn of_this_host(user: impl Fn(&str) -> Option<String>) -> Option<usize> {
    LOCAL_SIZES.into_iter().find_map(|name| first_number(&user(name)?))
}

fn first_number(text: &str) -> Option<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok()
}

/// Returns the number of ranks that a launcher starts on this host with arguments such as `mpiexec -n 8`,
/// `mpirun -np 4 a : -np 2 b`, `mpiexec -ppn 2` and `srun --ntasks=8`, or `None` if the arguments do not name
/// it.
pub(crate) fn launched(arguments: &[OsString]) -> Option<usize> {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let number_of = |names: &[&str]| {
        let mut numbers = words.iter().enumerate().filter_map(|(at, word)| match word.split_once('=') {
            Some((name, number)) if names.contains(&name) => number.parse::<usize>().ok(),
            _ if names.contains(&&**word) => words.get(at + 1)?.parse().ok(),
            _ => None,
        });
        let first = numbers.next()?;
        // a lone colon separates programs, each with its own number
        Some(if words.iter().any(|word| word == ":") { first + numbers.sum::<usize>() } else { first })
    };
    let on_each = number_of(&["-ppn", "-perhost", "-npernode", "--npernode", "--ntasks-per-node"]);
    let elsewhere = words.iter().any(|word| HOSTS.contains(&word.split('=').next().unwrap_or_default()));
    let all = || number_of(&["-n", "-np", "--np", "-c", "--ntasks"]);
    on_each.or_else(|| if elsewhere { None } else { all() })
}

/// Returns the processors of the process that started the ranks of this host, if this process descends from
/// one.
pub(crate) fn starters_processors() -> Option<CpuSet> {
    let mut number = ProcessStat::read("self")?.parent;
    while number > 1 {
        let name = fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
        if STARTERS.iter().any(|starter| name.trim().split('.').next() == Some(starter)) {
            return affinity::allowed(Tid(number)).ok();
        }
        number = ProcessStat::read(number)?.parent;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_ranks_is_read_as_launchers_take_it() {
        let ranks = |line: &str| launched(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(ranks("-n 8 ./program"), Some(8));
        assert_eq!(ranks("--oversubscribe -np 4 ./program"), Some(4));
        assert_eq!(ranks("--ntasks=16 ./program"), Some(16));
        assert_eq!(ranks("-n 4 ./program -n 100"), Some(4), "the program's own option");
        assert_eq!(ranks("-n 1 ./a : -n 3 ./b"), Some(4));
        assert_eq!(ranks("-n 8 -ppn 2 ./program"), Some(2));
        assert_eq!(ranks("-n 8 -hosts a,b ./program"), None, "some of them on other hosts");
        assert_eq!(ranks("--hostfile=hosts -n 8 ./program"), None);
        assert_eq!(ranks("./program"), None);
        assert_eq!(ranks("-n"), None);
    }

    #[test]
    fn a_rank_reads_how_many_its_host_has() {
        let of = |set: &'static str, value: &'static str| {
            of_this_host(move |name| (name == set).then(|| value.to_owned()))
        };
        assert_eq!(of("MPI_LOCALNRANKS", "4"), Some(4));
        assert_eq!(of("OMPI_COMM_WORLD_LOCAL_SIZE", "2"), Some(2));
        assert_eq!(of("SLURM_STEP_TASKS_PER_NODE", "2(x3),1"), Some(2));
        assert_eq!(of("SLURM_STEP_TASKS_PER_NODE", "x"), None);
        assert_eq!(of("PMI_RANK", "0"), None);
    }
}
