//! The threads of a gang: how many cores they can use at once, and a core for each.
//!
//! This module reads the threads and sets their affinities; `width.rs` and `placement.rs` decide. Cost: a
//! file for each thread (about 10 us), so in gangs with more than four threads per core, the threads are only
//! counted.

use super::placement::{Spread, Thread};
use super::width::Width;
use crate::error::Result;
use crate::journal::{GangJournal, UndoEntry};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::cgroup::ControlGroup;
use unisono_linux::clock::Duration;
use unisono_linux::pinned::PinnedThread;
use unisono_linux::schedstat;
use unisono_linux::scheduling::threads_of;

/// Maximum number of threads per core that are read one by one.
const MAX_PER_CORE: usize = 4;

/// Activity of threads since their creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadSleeps {
    pub(crate) threads: usize,
    pub(crate) ran: Duration,
    /// Number of sleeps.
    pub(crate) sleeps: u64,
}

pub(crate) struct GangThreads {
    all_cpus: CpuSet,
    spread: Spread,
    width: Width,
}

impl GangThreads {
    /// Starts without measurements; threads start with the affinity `all_cpus`.
    pub(crate) fn new(all_cpus: CpuSet) -> Self {
        Self { spread: Spread::new(all_cpus.clone()), width: Width::default(), all_cpus }
    }

    fn max_threads(&self) -> usize {
        MAX_PER_CORE * self.all_cpus.len()
    }

    /// Returns the number of cores that the threads in these groups can use at once, if it changed.
    pub(crate) fn measure(&mut self, groups: &[ControlGroup]) -> Option<usize> {
        let threads = threads_in(groups);
        if threads.len() > self.max_threads() {
            return self.width.count(threads.len());
        }
        // time in a run queue does not count: a sleeper that the thaw wakes may queue for a tick
        let ran = |thread: &Tid| Some((*thread, Duration::from_nanos(schedstat::read(*thread).ok()?.ran_ns)));
        self.width.update(&threads.iter().filter_map(ran).collect::<BTreeMap<_, _>>())
    }

    /// Returns the running time and the sleeps of the threads in these groups that want to run; all values
    /// are zero if there are too many threads.
    pub(crate) fn slept(&self, groups: &[ControlGroup]) -> ThreadSleeps {
        let threads = threads_in(groups);
        let mut all = ThreadSleeps::default();
        if threads.len() > self.max_threads() {
            return all;
        }
        for thread in threads.into_iter().filter(|thread| self.width.wants(*thread)) {
            if let (Ok(times), Ok(sleeps)) = (schedstat::read(thread), schedstat::sleeps(thread)) {
                all.threads += 1;
                all.ran += Duration::from_nanos(times.ran_ns);
                all.sleeps += sleeps;
            }
        }
        all
    }

    /// Gives the threads in these groups cores of the gang, if there are not too many threads.
    pub(crate) fn place(
        &mut self,
        groups: &[ControlGroup],
        home: &Range<usize>,
        journal: &mut GangJournal,
    ) -> Result<()> {
        if self.all_cpus.len() < 2 || threads_in(groups).len() > self.max_threads() {
            return Ok(());
        }
        self.spread.set_home(self.all_cpus.iter().skip(home.start).take(home.len()).collect());
        let mut threads = Vec::new();
        for process in groups.iter().flat_map(|group| group.processes().unwrap_or_default()) {
            for thread in threads_of(process.into()).unwrap_or_default() {
                if let Ok(allowed) = affinity::allowed(thread) {
                    let wants = self.width.wants(thread);
                    threads.push(Thread { thread, process, allowed, wants });
                }
            }
        }
        let changes: Vec<_> = self.spread.update(&threads).into_iter().collect();
        let held: Vec<_> = changes
            .into_iter()
            .filter_map(|change| Some((PinnedThread::now(change.thread).ok()?, change.to)))
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        // the threads are listed again after they were pinned, because a number may have belonged to another
        // thread before
        let there: BTreeSet<Tid> = threads_in(groups).into_iter().collect();
        for (thread, to) in held.iter().filter(|(thread, _)| there.contains(&thread.number())) {
            journal.write(&UndoEntry::affinity(thread, &self.all_cpus, to))?;
            let _ = thread.restrict(to); // fails if the thread has ended
        }
        Ok(())
    }
}

fn threads_in(groups: &[ControlGroup]) -> Vec<Tid> {
    groups.iter().flat_map(|group| group.threads().unwrap_or_default()).collect()
}
