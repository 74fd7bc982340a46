//! Measures how long threads work between two sleeps, from the kernel's records of context switches.
//!
//! The counts of sleeps in `/proc/TID/status` give only the number of sleeps. The records give the length of
//! the work before each sleep, and so the distribution of these lengths. The kernel records until a
//! processor's ring of 4,000 switches is full; each call of `work_since_last` empties the rings. Needs
//! `CAP_PERFMON`.
//!
//! Cost: 0.2 us for each recorded switch. Each call of `work_since_last` interrupts each processor twice.

use crate::tree::TreeReading;
use std::collections::{BTreeMap, BTreeSet};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::clock::{Duration, Instant};
use unisono_linux::switches::{Recorder, Recording, SwitchReason};

/// Maximum number of processors that are recorded: each ring takes 260 KB of memory that is never swapped.
const MAX_PROCESSORS: usize = 64;

/// Records the context switches of all processors that this thread may use.
#[derive(Debug)]
pub struct SwitchWatch {
    recorders: Vec<Recorder>,
    problem: Option<String>,
}

impl SwitchWatch {
    /// Starts recording. If recording is not possible, [`SwitchWatch::problem`] says why.
    pub fn start() -> Self {
        let (recorders, problem) = match start_recorders() {
            Ok(recorders) => (recorders, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        Self { recorders, problem }
    }

    /// Returns the reason why nothing is recorded.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Returns the work between two sleeps of this reading's threads, as recorded since the previous call.
    /// The error says why nothing was recorded.
    pub fn work_since_last(&mut self, reading: &TreeReading) -> Result<RecordedWork, String> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        let stopped: Vec<_> = self.recorders.iter_mut().map(Recorder::stop).collect();
        if let Err(error) = self.recorders.iter_mut().try_for_each(Recorder::start) {
            self.recorders.clear();
            self.problem = Some(format!("the kernel does not record them any more: {error}"));
        }
        // without valid records of one processor, the records of the others are useless, too, because threads
        // move between processors
        let Some(recordings) = stopped.into_iter().map(|one| one.ok().flatten()).collect::<Option<Vec<_>>>()
        else {
            return Err("the records of a processor cannot be read".into());
        };
        let threads: BTreeSet<Tid> = reading.threads.keys().map(|(_, thread)| Tid(*thread)).collect();
        Ok(between_sleeps(&recordings, &threads))
    }
}

/// Starts a recorder on each processor that this thread may use, or returns the reason why that is
/// impossible.
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

/// The times that threads worked between two recorded sleeps, without the time in which they were preempted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedWork {
    pub whole: Vec<Duration>,
    /// Number of pairs of sleeps with unknown work between them: the kernel did not record each time that the
    /// thread got and lost a processor.
    pub incomplete: usize,
}

/// The work of a thread since its last sleep.
#[derive(Default)]
struct Work {
    running_since: Option<Instant>,
    sum: Duration,
    /// Whether that last sleep was recorded.
    follows_sleep: bool,
    /// Whether a start or an end of a run on a processor since then was not recorded.
    has_gap: bool,
}

impl Work {
    fn start(&mut self, at: Instant) {
        self.has_gap |= self.running_since.replace(at).is_some();
    }

    fn stop(&mut self, at: Instant) {
        match self.running_since.take() {
            Some(since) => self.sum += at - since,
            None => self.has_gap = true,
        }
    }

    fn start_or_stop_unrecorded(&mut self) {
        (self.running_since, self.has_gap) = (None, true);
    }

    /// Ends the work at a sleep; `None` if the previous sleep was not recorded.
    fn sleep(&mut self) -> Option<Result<Duration, UnknownLength>> {
        let Work { sum, follows_sleep, has_gap, .. } = std::mem::take(self);
        self.follows_sleep = true;
        // a thread that ran used some time, so a sum of zero means that the clock of the records is too
        // coarse
        let length = if has_gap || sum.is_zero() { Err(UnknownLength) } else { Ok(sum) };
        follows_sleep.then_some(length)
    }
}

struct UnknownLength;

fn between_sleeps(recordings: &[Recording], threads: &BTreeSet<Tid>) -> RecordedWork {
    let complete = recordings.iter().filter_map(|one| one.full).min().unwrap_or(Instant::NEVER);
    let with_before = |one: &'_ Recording| {
        let before = std::iter::once(None).chain(one.changes.iter().map(|change| Some(change.to)));
        one.changes.iter().copied().zip(before).collect::<Vec<_>>()
    };
    let mut changes: Vec<_> = recordings.iter().flat_map(with_before).collect();
    changes.retain(|(change, _)| change.time <= complete);
    changes.sort_by_key(|(change, _)| change.time);
    let mut works = BTreeMap::<Tid, Work>::new();
    let mut recorded = RecordedWork::default();
    let ours = |thread: &Tid| threads.contains(thread);
    for (change, before) in changes {
        if let Some(before) = before.filter(|before| *before != change.from) {
            for thread in [before, change.from].into_iter().filter(ours) {
                works.entry(thread).or_default().start_or_stop_unrecorded();
            }
        }
        if ours(&change.from) {
            let work = works.entry(change.from).or_default();
            work.stop(change.time);
            match change.reason {
                SwitchReason::Preempted => {}
                SwitchReason::Unknown => work.has_gap = true,
                SwitchReason::Asleep => match work.sleep() {
                    Some(Ok(length)) => recorded.whole.push(length),
                    Some(Err(UnknownLength)) => recorded.incomplete += 1,
                    None => {}
                },
            }
        }
        if ours(&change.to) {
            works.entry(change.to).or_default().start(change.time);
        }
    }
    recorded
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::switches::ContextSwitch;

    const IDLE: Tid = Tid(0);

    fn change(time: u64, from: Tid, reason: SwitchReason, to: Tid) -> ContextSwitch {
        ContextSwitch { time: Instant::from_nanos(time), from, reason, to }
    }

    fn complete(changes: &[ContextSwitch]) -> Recording {
        Recording { changes: changes.to_vec(), full: None }
    }

    /// Returns the recorded work of thread 7 in nanoseconds, and the number of its pairs of sleeps with
    /// unknown work.
    fn work(recordings: &[Recording]) -> (Vec<u64>, usize) {
        let RecordedWork { whole, incomplete } = between_sleeps(recordings, &BTreeSet::from([Tid(7)]));
        (whole.into_iter().map(Duration::as_nanos).collect(), incomplete)
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
        assert_eq!(work(&[second, first]), (vec![50], 0), "the last work has no end yet");
    }

    #[test]
    fn work_whose_begin_or_end_was_not_recorded_is_left_out() {
        let thread = Tid(7);
        let before = [
            change(10, IDLE, SwitchReason::Preempted, thread),
            change(20, thread, SwitchReason::Asleep, IDLE),
        ];
        assert_eq!(work(&[complete(&before)]), (vec![], 0));
        let later = [
            change(30, IDLE, SwitchReason::Preempted, thread),
            change(45, thread, SwitchReason::Asleep, IDLE),
        ];
        let all = complete(&[before, later].concat());
        assert_eq!(work(std::slice::from_ref(&all)), (vec![15], 0));
        let full = Recording { changes: Vec::new(), full: Some(Instant::from_nanos(40)) };
        assert_eq!(work(&[all, full]), (vec![], 0), "the other processor's records end before");
    }

    #[test]
    fn a_kernel_that_records_no_start_after_the_idle_loop_gives_no_work_of_zero() {
        let sleeps = [10, 20, 30].map(|time| change(time, Tid(7), SwitchReason::Asleep, IDLE));
        assert_eq!(work(&[complete(&sleeps)]), (vec![], 2));
    }

    #[test]
    fn a_clock_that_does_not_advance_during_a_run_gives_no_work_of_zero() {
        let same = [
            change(10, Tid(7), SwitchReason::Asleep, IDLE),
            change(20, IDLE, SwitchReason::Preempted, Tid(7)),
            change(20, Tid(7), SwitchReason::Asleep, IDLE),
        ];
        assert_eq!(work(&[complete(&same)]), (vec![], 1));
    }

    #[test]
    fn a_run_whose_end_was_not_recorded_does_not_last_until_the_next_end() {
        let (thread, other) = (Tid(7), Tid(9));
        let begins = complete(&[
            change(10, thread, SwitchReason::Asleep, IDLE),
            change(20, IDLE, SwitchReason::Preempted, thread),
            change(60, other, SwitchReason::Asleep, IDLE),
        ]);
        let ends = complete(&[
            change(15, IDLE, SwitchReason::Preempted, other),
            change(90, thread, SwitchReason::Asleep, IDLE),
        ]);
        assert_eq!(work(&[begins, ends]), (vec![], 1));
        let twice = complete(&[
            change(10, thread, SwitchReason::Asleep, IDLE),
            change(20, IDLE, SwitchReason::Preempted, thread),
            change(50, IDLE, SwitchReason::Preempted, thread),
            change(60, thread, SwitchReason::Asleep, IDLE),
        ]);
        assert_eq!(work(&[twice]), (vec![], 1), "it slept in between without a record");
    }
}
