//! How long threads work between two sleeps, from the kernel's records of context switches.
//!
//! The counts of sleeps in `/proc/TID/status` give the number of sleeps. The records give the length of the
//! work before each sleep, and so the spread of these lengths. The kernel records all the time, until a
//! processor's ring of 4,000 switches is full; each call of `work_since_last` empties the rings. Needs
//! `CAP_PERFMON`.
//!
//! Cost: 0.2 us for each recorded switch. Each call of `work_since_last` interrupts each processor twice.

use crate::tree::TreeReading;
use std::collections::{BTreeMap, BTreeSet};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::clock::Nanos;
use unisono_linux::switches::{Recorder, Recording, SwitchReason};

/// The most processors that are recorded: each ring takes 260 KB of memory that is never swapped.
const MAX_PROCESSORS: usize = 64;

/// Records the context switches of all processors that this thread may use.
#[derive(Debug)]
pub struct SwitchWatch {
    recorders: Vec<Recorder>,
    problem: Option<String>,
}

impl SwitchWatch {
    /// Starts recording. If recording is not possible, `work_since_last` returns nothing and
    /// [`SwitchWatch::problem`] says why.
    pub fn start() -> Self {
        let (recorders, problem) = match start_recorders() {
            Ok(recorders) => (recorders, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        Self { recorders, problem }
    }

    /// The reason why nothing is recorded.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The work of this reading's threads between two sleeps, as recorded since the previous call.
    pub fn work_since_last(&mut self, reading: &TreeReading) -> Vec<Nanos> {
        let stopped: Vec<_> = self.recorders.iter_mut().map(Recorder::stop).collect();
        if let Err(error) = self.recorders.iter_mut().try_for_each(Recorder::start) {
            self.recorders.clear();
            self.problem = Some(format!("the kernel does not record them any more: {error}"));
        }
        // without valid records of one processor, the others' records are useless too, because threads move
        // between processors
        let Some(recordings) = stopped.into_iter().map(|one| one.ok().flatten()).collect::<Option<Vec<_>>>()
        else {
            return Vec::new();
        };
        let threads: BTreeSet<Tid> = reading.threads.keys().map(|(_, thread)| Tid(*thread)).collect();
        between_sleeps(&recordings, &threads)
    }
}

/// Recorders for all processors that this thread may use, or the reason why recording is impossible.
fn start_recorders() -> Result<Vec<Recorder>, String> {
    let refused = |error| format!("the kernel does not record them for this user: {error}");
    let cpus = affinity::allowed(Tid::SELF).map_err(refused)?;
    if cpus.len() > MAX_PROCESSORS {
        return Err(format!("there are more than {MAX_PROCESSORS} processors"));
    }
    let mut recorders: Vec<Recorder> =
        cpus.iter().map(Recorder::new).collect::<Result<_, _>>().map_err(refused)?;
    recorders.iter_mut().try_for_each(Recorder::start).map_err(refused)?;
    Ok(recorders)
}

/// A thread's work since its last sleep.
#[derive(Default)]
struct Work {
    running_since: Option<Nanos>,
    sum: Nanos,
    /// Whether that last sleep, and the start of each run since then, was recorded.
    is_whole: bool,
}

/// Work between two recorded sleeps, without the interruptions in between.
fn between_sleeps(recordings: &[Recording], threads: &BTreeSet<Tid>) -> Vec<Nanos> {
    let complete = recordings.iter().filter_map(|one| one.full).min().unwrap_or(Nanos(u64::MAX));
    let mut changes: Vec<_> =
        recordings.iter().flat_map(|one| &one.changes).filter(|change| change.time <= complete).collect();
    changes.sort_by_key(|change| change.time);
    let mut works = BTreeMap::<Tid, Work>::new();
    let mut all = Vec::new();
    for change in changes {
        if threads.contains(&change.from) {
            let work = works.entry(change.from).or_default();
            match work.running_since.take() {
                Some(since) => work.sum = work.sum.after(change.time.since(since)),
                None => work.is_whole = false,
            }
            match change.reason {
                SwitchReason::Preempted => {}
                SwitchReason::Unknown => work.is_whole = false,
                SwitchReason::Asleep => {
                    if work.is_whole {
                        all.push(work.sum);
                    }
                    *work = Work { is_whole: true, ..Work::default() };
                }
            }
        }
        if threads.contains(&change.to) {
            works.entry(change.to).or_default().running_since = Some(change.time);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::switches::SwitchChange;

    const IDLE: Tid = Tid(0);

    fn change(time: u64, from: Tid, reason: SwitchReason, to: Tid) -> SwitchChange {
        SwitchChange { time: Nanos(time), from, reason, to }
    }

    fn complete(changes: &[SwitchChange]) -> Recording {
        Recording { changes: changes.to_vec(), full: None }
    }

    fn ours() -> BTreeSet<Tid> {
        BTreeSet::from([Tid(7)])
    }

    #[test]
    fn work_is_counted_across_processors_and_without_interruptions() {
        let (thread, other) = (Tid(7), Tid(9));
        let first = complete(&[
            change(10, thread, SwitchReason::Asleep, IDLE),
            change(100, IDLE, SwitchReason::Preempted, thread),
            change(130, thread, SwitchReason::Preempted, other),
        ]);
        let second = complete(&[
            change(150, IDLE, SwitchReason::Preempted, thread),
            change(170, thread, SwitchReason::Asleep, other),
            change(300, other, SwitchReason::Preempted, thread),
        ]);
        assert_eq!(between_sleeps(&[second, first], &ours()), [Nanos(50)], "the last work has no end yet");
    }

    #[test]
    fn work_whose_begin_or_end_was_not_recorded_is_left_out() {
        let thread = Tid(7);
        let before = [
            change(10, IDLE, SwitchReason::Preempted, thread),
            change(20, thread, SwitchReason::Asleep, IDLE),
        ];
        assert_eq!(between_sleeps(&[complete(&before)], &ours()), []);
        let later = [
            change(30, IDLE, SwitchReason::Preempted, thread),
            change(45, thread, SwitchReason::Asleep, IDLE),
        ];
        let all = complete(&[before, later].concat());
        assert_eq!(between_sleeps(std::slice::from_ref(&all), &ours()), [Nanos(15)]);
        let unknown = complete(&[
            change(10, thread, SwitchReason::Asleep, IDLE),
            change(20, thread, SwitchReason::Asleep, IDLE),
        ]);
        assert_eq!(between_sleeps(&[unknown], &ours()), [], "no start was recorded");
        let full = Recording { changes: Vec::new(), full: Some(Nanos(40)) };
        assert_eq!(between_sleeps(&[all, full], &ours()), [], "the other processor's records end before");
    }
}
