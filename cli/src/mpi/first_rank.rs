//! Lets only the first rank of each host report an error that all ranks have in common.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::process::parent_id;
use std::time::Duration;

/// The variables in which launchers write a process's rank. Variables that number the ranks of each host
/// separately come first, because an error may differ between hosts.
const RANK_VARIABLES: [&str; 5] =
    ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"];

/// Time that the other ranks wait before they end, because a launcher may drop the output of the first rank
/// once another rank has failed.
const REPORT_DELAY: Duration = Duration::from_millis(300);

/// Returns whether this process should end without a message, because the first rank of this host reports the
/// same error. A process that is not the first rank first waits for [`REPORT_DELAY`], so that the launcher
/// can pass that report on.
pub(super) fn first_rank_reports() -> bool {
    if is_first_rank() {
        return false;
    }
    std::thread::sleep(REPORT_DELAY);
    !others_run_another_program()
}

/// Returns whether this process is the first rank of this host, or not a rank of a job at all.
pub(super) fn is_first_rank() -> bool {
    is_first_by(|name| env::var(name).ok())
}

fn is_first_by(variable: impl Fn(&str) -> Option<String>) -> bool {
    RANK_VARIABLES.into_iter().find_map(variable).is_none_or(|rank| rank.trim() == "0")
}

/// Returns whether the launcher also started another program (`mpiexec -n 1 A : -n 3 B`). The first rank may
/// then have no error, so this process must report its own. Children with the launcher's command line are
/// ignored, because they have not called execve(2) yet; children without a command line have ended.
fn others_run_another_program() -> bool {
    let command_line = |process: &str| fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let launcher = parent_id().to_string();
    let known = BTreeSet::from([command_line("self"), command_line(&launcher), Vec::new()]);
    let Ok(threads) = fs::read_dir(format!("/proc/{launcher}/task")) else { return false };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .any(|children| children.split_whitespace().any(|child| !known.contains(&command_line(child))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_of_each_host_speaks_and_so_does_a_process_that_is_no_rank() {
        let speaks = |variables: &'static [(&str, &str)]| {
            is_first_by(move |name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(speaks(&[]));
        assert!(speaks(&[("PMI_RANK", "0")]) && !speaks(&[("PMI_RANK", "1")]));
        assert!(speaks(&[("PMI_RANK", "8"), ("MPI_LOCALRANKID", "0")]), "the first of the second host");
        assert!(!speaks(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")]));
    }
}
