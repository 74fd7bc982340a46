//! What a switch was worth, measured while it happens, without help from the programs.
//!
//! Some turns are watched: shortly before the switch the kernel begins to record every context switch of the
//! gangs' processors, with its time, and stops shortly before the turn ends. From that follows exactly when each
//! core first ran a thread of the gang whose turn it is (the last core is the switch, the spread between them the
//! skew), and for how long any core ran a thread of a gang that had to wait (the leak, which includes the
//! switch). A gang that leaves a core idle for the whole turn gives no switch; threads that are born and die within the
//! turn belong to no gang here. Where the kernel does not let us record, nothing is measured, and the summary says so.
//!
//! Times count from the planned moment, so a late wake-up of the scheduler is part of the switch.
//!
//! Cost: about 100 us in a watched turn and 0.2 us a context switch; the first ten and every 17th are watched.

use super::arena::Arena;
use crate::gang::{GangId, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use unisono_linux::affinity::Tid;
use unisono_linux::schedstat;
use unisono_linux::switches::{Change, Recorder};

/// How long after a switch the first look at processor time is, and how long before the end the second.
const LOOK: u64 = 1_000_000;
/// How long before a switch recording begins.
const LEAD: u64 = 500_000;
/// The longest time after a switch that is recorded.
const LONGEST: u64 = 100_000_000;

/// Samples of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// From the planned switch until the mechanism had done its part, in microseconds, one a switch.
    pub(crate) enforced_us: Vec<f64>,
    /// From the planned switch until all cores ran the new gang, in microseconds.
    pub(crate) switch_us: Vec<f64>,
    /// Between the first and the last core.
    pub(crate) skew_us: Vec<f64>,
    /// Processor time of waiting gangs in watched turns, nanoseconds.
    pub(crate) leaked_ns: u64,
    /// Processor time that there was in watched turns, nanoseconds.
    pub(crate) watched_ns: u64,
    /// Watched turns in which the gang did not run on all of its cores.
    pub(crate) unfilled: usize,
    /// Watched turns with more context switches than fit.
    pub(crate) overflowed: usize,
    /// Why no turn can be watched.
    pub(crate) refused: Option<String>,
}

impl Samples {
    /// Why there is no switch time, if there is none.
    pub(crate) fn not_measured(&self) -> Option<String> {
        if !self.switch_us.is_empty() {
            return None;
        }
        Some(match (&self.refused, self.unfilled, self.overflowed) {
            (Some(why), ..) => why.clone(),
            (None, 0, 0) => "no switch was watched: the run or its turns were too short".into(),
            (None, 0, lost) => {
                format!("in all {lost} watched turns threads slept and woke too often to record")
            }
            (None, turns, _) => format!("in all {turns} watched turns the gang left a core of its own idle"),
        })
    }
}

/// Whether a turn that lasts so long is watched.
pub(crate) fn is_watched(turn: u64, length: Nanos) -> bool {
    length.0 >= 4 * LOOK && (turn < 10 || turn.is_multiple_of(17))
}

/// When to begin to watch a switch.
pub(crate) fn begin(switch: Nanos) -> u64 {
    switch.0.saturating_sub(LEAD)
}

pub(crate) fn first_look(from: Nanos) -> u64 {
    from.0 + LOOK
}

pub(crate) fn second_look(from: Nanos, until: Nanos) -> u64 {
    until.0.saturating_sub(LOOK).min(from.0 + LONGEST)
}

/// Threads that belong to gangs; of a turn, before and after.
#[derive(Debug, Default)]
pub(crate) struct Members(BTreeMap<GangId, BTreeSet<Tid>>);

impl Members {
    /// Adds the threads that the gangs have now.
    pub(crate) fn look(&mut self, arena: &Arena, gangs: &[GangId]) {
        for gang in gangs {
            let threads = arena.of(*gang).control.threads().unwrap_or_default();
            self.0.entry(*gang).or_default().extend(threads);
        }
    }

    fn of(&self, gangs: &[GangId]) -> BTreeSet<Tid> {
        gangs.iter().filter_map(|gang| self.0.get(gang)).flatten().copied().collect()
    }
}

/// Records who runs on the gangs' processors.
#[derive(Debug)]
pub(crate) struct Watcher {
    recorders: Vec<Recorder>,
}

impl Watcher {
    /// For these processors; the reason, in words, where the kernel refuses.
    pub(crate) fn new(cpus: &[usize]) -> Result<Watcher, String> {
        let recorders: std::io::Result<Vec<Recorder>> = cpus.iter().map(|cpu| Recorder::new(*cpu)).collect();
        recorders.map(|recorders| Watcher { recorders }).map_err(|error| {
            format!("the kernel does not let us record context switches (perf events, CAP_PERFMON): {error}")
        })
    }

    /// Begins to record; `false` when that failed.
    pub(crate) fn start(&mut self) -> bool {
        self.recorders.iter_mut().all(|recorder| recorder.start().is_ok())
    }

    /// Stops; what was recorded on each processor, `None` when some of it was lost.
    pub(crate) fn stop(&mut self) -> Option<Vec<Vec<Change>>> {
        let stopped: Vec<_> =
            self.recorders.iter_mut().map(|recorder| recorder.stop().ok().flatten()).collect();
        stopped.into_iter().collect()
    }
}

/// What records say about one switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// When, after the planned moment, the first and the last core ran the new gang; nanoseconds.
    pub(crate) started: Option<(u64, u64)>,
    /// Time of those who had to wait, on all cores; nanoseconds.
    pub(crate) leaked_ns: u64,
}

/// One watched turn, as planned.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// The time looked at.
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// Gangs whose turn it is, and those that wait.
    pub(crate) runs: &'a [GangId],
    pub(crate) waits: &'a [GangId],
    /// Which of the recorded processors those that run should fill.
    pub(crate) cores: &'a [usize],
}

impl Plan<'_> {
    /// Reads the records of all processors; `None` when one has none, so that nobody knows who ran there.
    pub(crate) fn read(&self, records: &[Vec<Change>], members: &Members) -> Option<Found> {
        let (runs, waits) = (members.of(self.runs), members.of(self.waits));
        let (mut leaked_ns, mut starts) = (0, Vec::new());
        for (core, changes) in records.iter().enumerate() {
            let first = changes.first()?;
            let mut start = None;
            let begins = std::iter::once((0, first.from)).chain(changes.iter().map(|c| (c.time, c.to)));
            let ends = changes.iter().map(|c| c.time).chain(std::iter::once(u64::MAX));
            for ((begin, who), end) in begins.zip(ends) {
                let (begin, end) = (begin.max(self.from), end.min(self.until));
                if begin >= end {
                    continue;
                }
                if waits.contains(&who) {
                    leaked_ns += end - begin;
                }
                if start.is_none() && runs.contains(&who) {
                    start = Some(begin - self.from);
                }
            }
            if self.cores.contains(&core) {
                starts.push(start);
            }
        }
        let starts: Option<Vec<u64>> = starts.into_iter().collect();
        let started = starts.and_then(|starts| Some((*starts.iter().min()?, *starts.iter().max()?)));
        Some(Found { started, leaked_ns })
    }
}

pub(super) fn threads_of(process: Tid) -> Vec<Tid> {
    let dir = std::fs::read_dir(format!("/proc/{process}/task"));
    let names = dir.map(|dir| dir.filter_map(std::result::Result::ok).map(|e| e.file_name()));
    let parse = |name: std::ffi::OsString| name.to_str()?.parse().ok().map(Tid);
    names.map(|names| names.filter_map(parse).collect()).unwrap_or_default()
}

/// Processor time used so far by each of these gangs, exact also for threads that run.
pub(crate) fn used(arena: &Arena, gangs: &[GangId]) -> BTreeMap<GangId, u64> {
    let mut used = BTreeMap::new();
    for gang in gangs {
        let control = &arena.of(*gang).control;
        for process in control.processes().unwrap_or_default().into_iter().take(16) {
            let _ = schedstat::refresh(process); // it has ended
        }
        if let Ok(ns) = control.used_ns() {
            used.insert(*gang, ns);
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(time: u64, from: i32, to: i32) -> Change {
        Change { time, from: Tid(from), to: Tid(to) }
    }

    /// Gang 0 waits with threads 10 and 11, gang 1 runs with 20 and 21.
    fn read(cores: &[usize], records: &[Vec<Change>]) -> Option<Found> {
        let gang = |id, threads: [i32; 2]| (GangId(id), threads.map(Tid).into_iter().collect());
        let members = Members([gang(0, [10, 11]), gang(1, [20, 21])].into_iter().collect());
        let plan = Plan { from: 1000, until: 2000, runs: &[GangId(1)], waits: &[GangId(0)], cores };
        plan.read(records, &members)
    }

    #[test]
    fn a_switch_ends_when_the_last_core_runs_the_new_gang_and_leaks_until_then() {
        // the scheduler (5) comes before the planned moment on one core, the other goes on for 70
        let records = [
            vec![change(990, 10, 5), change(1030, 5, 20)],
            vec![change(1070, 11, 21), change(1500, 21, 0), change(1510, 0, 21)],
        ];
        assert_eq!(read(&[0, 1], &records), Some(Found { started: Some((30, 70)), leaked_ns: 70 }));
    }

    #[test]
    fn time_outside_the_turn_does_not_count() {
        let records =
            [vec![change(500, 5, 10), change(1010, 10, 20), change(2500, 20, 10), change(2600, 10, 20)]];
        assert_eq!(read(&[0], &records), Some(Found { started: Some((10, 10)), leaked_ns: 10 }));
    }

    #[test]
    fn a_core_that_the_gang_leaves_idle_gives_no_switch_unless_it_is_not_the_gangs() {
        let records =
            [vec![change(1001, 10, 20)], vec![change(1200, 11, 0), change(1300, 0, 11), change(1310, 11, 0)]];
        assert_eq!(read(&[0, 1], &records), Some(Found { started: None, leaked_ns: 211 }));
        assert_eq!(read(&[0], &records), Some(Found { started: Some((1, 1)), leaked_ns: 211 }));
    }

    #[test]
    fn a_core_without_records_tells_nothing() {
        assert_eq!(read(&[0], &[vec![change(1001, 10, 20)], vec![]]), None);
    }
}
