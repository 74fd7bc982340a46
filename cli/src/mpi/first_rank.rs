//! Lets only the first rank of each host report an error that all ranks have in common.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::process::parent_id;
use std::time::Duration;
use unisono_fit::ranks;

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
    ranks::is_first(|name| env::var(name).ok())
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
