//! Moves threads into another scheduling class and back.
//!
//! The mechanisms `real-time` and `sched-ext` put the threads of gangs into another scheduling class. A
//! scheduler that is killed leaves its gangs' threads in that class; `put_back` returns the threads to the
//! fair class when the scheduler's journal is undone.

use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::Duration;
use unisono_linux::Errno;
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::ControlGroup;
use unisono_linux::pinned::PinnedThread;
use unisono_linux::scheduling::SchedulingPolicy;

/// Puts all threads of some groups back into the fair class; returns how many. A thread that was just created
/// by a parent in another class inherits that class, and may appear in the group a little later. So the
/// groups are read again until a few readings in a row find no thread in another class.
pub(crate) fn put_back(groups: &[ControlGroup]) -> (usize, Result<()>) {
    let (mut result, mut quiet, mut done) = (Ok(()), 0, 0);
    for _ in 0..MAX_SCANS {
        quiet += 1;
        for thread in groups.iter().flat_map(|group| pinned_in(group).unwrap_or_default()) {
            let class = thread.class();
            if matches!(class, Ok(SchedulingPolicy::RoundRobin(_) | SchedulingPolicy::Extensible { .. })) {
                quiet = 0;
                let put = thread.set_fair();
                done += usize::from(put.is_ok());
                // a thread that cannot be put back must not keep the others in the class
                result = result.and(changed(thread.number(), put));
            }
        }
        if quiet == QUIET_SCANS || result.is_err() {
            break;
        }
        thread::sleep(SCAN_INTERVAL);
    }
    (done, result)
}

/// A thread appears in its group within microseconds of its creation, so three empty readings 2 ms apart are
/// enough; 50 readings bound the time (0.1 s) where a program creates threads all the time.
const QUIET_SCANS: u32 = 3;
const MAX_SCANS: u32 = 50;
const SCAN_INTERVAL: Duration = Duration::from_millis(2);

/// Returns the threads of a group, as pinned handles. The kernel may reuse a number between the listing and
/// the pinning, so the group is listed again, and only threads in both lists count.
pub(crate) fn pinned_in(group: &ControlGroup) -> Result<Vec<PinnedThread>> {
    let mut pinned: Vec<PinnedThread> =
        group.threads()?.into_iter().filter_map(|number| PinnedThread::now(number).ok()).collect();
    if !pinned.is_empty() {
        let there: BTreeSet<Tid> = group.threads()?.into_iter().collect();
        pinned.retain(|thread| there.contains(&thread.number()));
    }
    Ok(pinned)
}

/// Puts a thread under the scheduler that is loaded into the kernel; the thread keeps its nice value.
pub(crate) fn set_extensible(thread: &PinnedThread) -> Result<()> {
    changed(thread.number(), thread.set_extensible())
}

/// Puts threads into a class. Returns the numbers of the threads that have ended.
pub(crate) fn set_all(threads: &[&PinnedThread], policy: SchedulingPolicy) -> Result<Vec<Tid>> {
    match PinnedThread::set_class_of_all(threads, policy) {
        Ok(ended) => Ok(ended.into_iter().map(|at| threads[at].number()).collect()),
        Err(error) => {
            let first = threads.first().map_or(Tid::SELF, |thread| thread.number());
            changed(first, Err(error)).map(|()| Vec::new())
        }
    }
}

fn changed(thread: Tid, result: io::Result<()>) -> Result<()> {
    match result {
        // the thread has ended
        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(()),
        Err(error) => Err(Error::Host(format!(
            "cannot put thread {thread} into another class or back: {error}; it needs CAP_SYS_NICE, and for a \
             real-time class must not be inside a version 1 cpu group without a real-time budget"
        ))),
        Ok(()) => Ok(()),
    }
}
