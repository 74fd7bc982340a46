//! How long threads work between two sleeps, by the kernel's own records of context switches.
//!
//! Counts of sleeps (`/proc/TID/status`) say how often a thread slept. The records say how long it worked
//! each time, and so how much the times differ. The kernel records all the time, until a ring of 4,000
//! switches is full; each look empties the rings. Needs `CAP_PERFMON`.
//!
//! Cost: 0.2 us a recorded switch, and two interrupts of each processor a look.

use crate::tree::TreeReading;
use std::collections::{BTreeMap, BTreeSet};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::clock::Nanos;
use unisono_linux::switches::{Left, Recorder, Recording};

/// Processors that are recorded, at most: a ring takes 260 KB of memory that is not swapped.
const MOST: usize = 64;

/// Records the context switches of all processors that this thread may use.
#[derive(Debug, Default)]
pub struct SwitchWatch {
    recorders: Vec<Recorder>,
    problem: Option<String>,
}

impl SwitchWatch {
    /// Begins to record. If that is not possible, every look is empty and [`SwitchWatch::problem`] says why.
    pub fn start() -> Self {
        let cpus = affinity::allowed(Tid::SELF).unwrap_or_default();
        if cpus.len() > MOST {
            let problem = Some(format!("there are more than {MOST} processors"));
            return Self { recorders: Vec::new(), problem };
        }
        Self::of(&cpus).unwrap_or_else(|error| Self {
            recorders: Vec::new(),
            problem: Some(format!("the kernel does not record them for this user: {error}")),
        })
    }

    fn of(cpus: &CpuSet) -> std::io::Result<Self> {
        let mut recorders: Vec<Recorder> = cpus.iter().map(Recorder::new).collect::<Result<_, _>>()?;
        recorders.iter_mut().try_for_each(Recorder::start)?;
        Ok(Self { recorders, problem: None })
    }

    /// Why nothing is recorded.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// How long the threads of this reading worked between two sleeps, since the look before.
    pub fn look(&mut self, reading: &TreeReading) -> Vec<Nanos> {
        let mut recordings = Vec::new();
        for recorder in &mut self.recorders {
            // records that make no sense say nothing of the other processors either: threads move
            let Ok(Some(recording)) = recorder.stop() else { return Vec::new() };
            recordings.push(recording);
        }
        for recorder in &mut self.recorders {
            if let Err(error) = recorder.start() {
                self.problem = Some(format!("the kernel does not record them any more: {error}"));
            }
        }
        let threads: BTreeSet<Tid> = reading.threads.keys().map(|(_, thread)| Tid(*thread)).collect();
        between_sleeps(&recordings, &threads)
    }
}

/// A thread's work since it slept last.
#[derive(Default)]
struct Work {
    running_since: Option<Nanos>,
    sum: Nanos,
    /// Its last sleep was seen.
    is_whole: bool,
}

/// Work between two sleeps that both were recorded, whatever interrupted it meanwhile.
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
            if let Some(since) = work.running_since.take() {
                work.sum = work.sum.after(change.time.since(since));
            }
            if change.left == Left::Asleep {
                if work.is_whole {
                    all.push(work.sum);
                }
                *work = Work { is_whole: true, ..Work::default() };
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

    fn change(time: u64, from: Tid, left: Left, to: Tid) -> SwitchChange {
        SwitchChange { time: Nanos(time), from, left, to }
    }

    fn ours() -> BTreeSet<Tid> {
        BTreeSet::from([Tid(7)])
    }

    #[test]
    fn work_is_counted_across_processors_and_without_interruptions() {
        let (thread, other) = (Tid(7), Tid(9));
        let first = Recording {
            changes: vec![
                change(10, thread, Left::Asleep, IDLE),
                change(100, IDLE, Left::Preempted, thread),
                change(130, thread, Left::Preempted, other),
            ],
            full: None,
        };
        let second = Recording {
            changes: vec![
                change(150, IDLE, Left::Preempted, thread),
                change(170, thread, Left::Asleep, other),
                change(300, other, Left::Preempted, thread),
            ],
            full: None,
        };
        assert_eq!(between_sleeps(&[second, first], &ours()), [Nanos(50)], "the last work has no end yet");
    }

    #[test]
    fn work_whose_begin_or_end_was_not_recorded_is_left_out() {
        let thread = Tid(7);
        let before = vec![change(10, IDLE, Left::Preempted, thread), change(20, thread, Left::Asleep, IDLE)];
        assert_eq!(between_sleeps(&[Recording { changes: before.clone(), full: None }], &ours()), []);
        let later = [change(30, IDLE, Left::Preempted, thread), change(45, thread, Left::Asleep, IDLE)];
        let changes = [before, later.to_vec()].concat();
        let all = Recording { changes, full: None };
        assert_eq!(between_sleeps(std::slice::from_ref(&all), &ours()), [Nanos(15)]);
        let full = Recording { changes: Vec::new(), full: Some(Nanos(40)) };
        assert_eq!(between_sleeps(&[all, full], &ours()), [], "the other processor's records end before");
    }
}
