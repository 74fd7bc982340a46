//! Finds out how many ranks of an MPI program share this host's processors: each should start only its part
//! of the threads.
//!
//! The number is in the launcher's arguments (`mpiexec -n 8`), and the launcher passes it to each rank in a
//! variable. A launcher may also bind its ranks to processors, so all ranks of the host share the processors
//! of the launcher's process on this host.
//!
//! Reference: mpiexec(1) of MPICH and Open MPI; srun(1), "OUTPUT ENVIRONMENT VARIABLES".

use crate::command_line::LaunchArguments;
use crate::effective::{Effective, LimitedBy, effective};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
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
/// Options of a launcher that name its hosts, and options that name a file of hosts.
const HOSTS: [&str; 3] = ["host", "H", "hosts"];
const HOST_FILES: [&str; 5] = ["f", "hostfile", "machinefile", "default-hostfile", "configfile"];

/// Returns the number of ranks on this rank's host, or `None` if this process is no rank or its launcher sets
/// no such variable.
pub(crate) fn of_this_host(user: impl Fn(&str) -> Option<String>) -> Option<usize> {
    LOCAL_SIZES.into_iter().find_map(|name| first_number(&user(name)?))
}

/// The variables in which launchers tell a process its rank. Those that number the ranks of each host
/// separately come first, because the answer may differ between hosts. `SLURM_LOCALID` comes behind the other
/// launchers': a batch script of Slurm passes its own to the launcher that it starts.
const RANK_NUMBERS: [&str; 8] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID", // MPICH and Intel MPI
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "UNISONO_RANK",
];
/// The ranks of this host under `UNISONO_RANK`, if there are several hosts: `4-7`.
const OWN_RANKS: &str = "UNISONO_HERE";

/// Returns whether this process is the first rank of this host, or no rank. A remark that holds for
/// all ranks is printed once, by this process.
pub fn is_first(user: impl Fn(&str) -> Option<String>) -> bool {
    let first = user(OWN_RANKS).as_deref().and_then(first_number).unwrap_or(0);
    RANK_NUMBERS.into_iter().find_map(user).is_none_or(|rank| rank.trim().parse() == Ok(first))
}

fn first_number(text: &str) -> Option<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok()
}

/// Returns the number of ranks that a launcher starts on this host with arguments such as `mpiexec -n 8`,
/// `mpirun -np 4 a : -np 2 b`, `mpiexec -ppn 2` and `srun --ntasks=8`, or `None` if the arguments do not name
/// it. `own_name` is this host's name.
pub(crate) fn launched(launcher: &OsString, arguments: &LaunchArguments, own_name: &str) -> Option<usize> {
    let number = |names: &[&str]| arguments.value(names)?.parse::<usize>().ok();
    let is_srun = launcher_name(launcher) == "srun";
    let on_each = if is_srun {
        number(&["ntasks-per-node"])
    } else {
        number(&["ppn", "perhost", "npernode", "N"]).or_else(|| on_each_node(arguments.value(&["map-by"])?))
    };
    if is_srun {
        let nodes = arguments.value(&["N", "nodes"]).map_or(Some(1), first_number)?;
        return on_each.or_else(|| Some(number(&["n", "ntasks"])?.div_ceil(nodes.max(1))));
    }
    let slots: Vec<&str> = arguments.values(&HOSTS).flat_map(|hosts| hosts.split(',')).collect();
    let is_own = |slot: &&str| {
        let host = slot.split(':').next().unwrap_or_default();
        ["localhost", "127.0.0.1", "::1"].contains(&host) || host == own_name
    };
    let elsewhere = arguments.values(&HOST_FILES).next().is_some() || !slots.iter().all(is_own);
    let all = || {
        // each program behind a colon has its own number
        let mut numbers = arguments.values(&["n", "np", "c"]).map(|number| number.parse::<usize>().ok());
        numbers.try_fold(None, |sum, number| Some(Some(sum.unwrap_or(0) + number?))).flatten()
    };
    on_each.or_else(|| if elsewhere { None } else { all() })
}

fn launcher_name(launcher: &OsString) -> String {
    let name = Path::new(launcher).file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Returns the ranks of each host in Open MPI's `ppr:2:node`.
fn on_each_node(mapping: &str) -> Option<usize> {
    let (number, object) = mapping.strip_prefix("ppr:")?.split_once(':')?;
    (object.split(':').next() == Some("node")).then(|| number.parse().ok()).flatten()
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
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            launched(&words[0], &LaunchArguments::read(&words[0], &words[1..]), "me")
        };
        let ranks = |arguments: &str| of(&format!("mpiexec {arguments}"));
        assert_eq!(ranks("-n 8 ./program"), Some(8));
        assert_eq!(ranks("--oversubscribe -np 4 ./program"), Some(4));
        assert_eq!(ranks("-np=4 ./program"), Some(4));
        assert_eq!(ranks("-n 4 ./program -n 100"), Some(4), "the program's own option");
        assert_eq!(ranks("./program -n 100"), None, "the program's own option");
        assert_eq!(ranks("-n 1 ./a -n 7 : -n 3 ./b"), Some(4));
        assert_eq!(ranks("-n 8 -ppn 2 ./program"), Some(2));
        assert_eq!(ranks("-N 2 ./program"), Some(2));
        assert_eq!(ranks("--map-by ppr:2:node ./program"), Some(2));
        assert_eq!(ranks("--map-by ppr:1:socket ./program"), None, "the number of sockets is unknown");
        assert_eq!(ranks("-n 8 -hosts a,b ./program"), None, "some of them on other hosts");
        assert_eq!(ranks("-n 8 --host localhost:8,me:8 ./program"), Some(8));
        assert_eq!(ranks("--hostfile=hosts -n 8 ./program"), None);
        assert_eq!(ranks("./program"), None);
        assert_eq!(of("srun --ntasks=16 ./program"), Some(16));
        assert_eq!(of("/usr/bin/srun -c 2 -n4 ./program"), Some(4), "-c: processors of a rank");
        assert_eq!(of("srun -N2 -n 8 ./program"), Some(4));
        assert_eq!(of("srun -N 2-4 -n 8 ./program"), Some(4));
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

    #[test]
    fn the_first_rank_of_each_host_speaks_and_so_does_a_process_that_is_no_rank() {
        let speaks = |variables: &'static [(&str, &str)]| {
            is_first(move |name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(speaks(&[]));
        assert!(speaks(&[("PMI_RANK", "0")]) && !speaks(&[("PMI_RANK", "1")]));
        assert!(!speaks(&[("PMIX_RANK", "1")]) && !speaks(&[("PMIX_RANK", "1"), ("SLURM_LOCALID", "1")]));
        assert!(speaks(&[("PMI_RANK", "8"), ("MPI_LOCALRANKID", "0")]), "the first of the second host");
        assert!(!speaks(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")]));
        assert!(!speaks(&[("SLURM_LOCALID", "0"), ("MPI_LOCALRANKID", "1")]), "mpiexec in a batch script");
        assert!(speaks(&[("UNISONO_RANK", "0")]) && !speaks(&[("UNISONO_RANK", "1")]));
        assert!(speaks(&[("UNISONO_RANK", "4"), ("UNISONO_HERE", "4-7")]));
    }
}
