//! What a switch was worth, measured while it happens, without help from the programs.
//!
//! Some turns are watched: a millisecond after the switch the scheduler wakes, brings the clocks of the
//! incoming gang's processes up to date, and looks how long each of its threads has run. A thread that was
//! hardly interrupted since the switch and still runs started at most `now - ran` ago; the last of them is when
//! all cores ran the new gang, the spread between them the skew. Programs whose threads sleep, and
//! gangs with more threads than cores, give no such sample; the summary says how many there were.
//! Leak is counted from the same turns: what gangs that wait used between that look and one just before
//! the turn ends, plus the switch itself.
//!
//! Cost: about 50 us of one core in a watched turn; the first ten and every 17th are watched.

use super::arena::Arena;
use crate::gang::{GangId, Nanos};
use std::collections::BTreeMap;
use unisono_linux::affinity::Tid;
use unisono_linux::schedstat::{self, RunTime};
use unisono_linux::timer;

/// How long after a switch the first look is, and how long before the end the second.
const LOOK: u64 = 1_000_000;

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
}

/// A look at the threads of gangs before a switch.
#[derive(Debug, Default)]
pub(crate) struct Before {
    threads: BTreeMap<Tid, RunTime>,
}

/// Whether a turn that lasts so long is watched.
pub(crate) fn is_watched(turn: u64, length: Nanos) -> bool {
    length.0 >= 4 * LOOK && (turn < 10 || turn.is_multiple_of(17))
}

pub(crate) fn first_look(from: Nanos) -> u64 {
    from.0 + LOOK
}

pub(crate) fn second_look(until: Nanos) -> u64 {
    until.0.saturating_sub(LOOK)
}

impl Before {
    /// Looks at the threads of a gang that is about to run; it waits now, so its figures are still.
    pub(crate) fn look(arena: &Arena, incoming: &[GangId]) -> Before {
        let mut threads = BTreeMap::new();
        for gang in incoming {
            for thread in arena.of(*gang).control.threads().unwrap_or_default() {
                if let Ok(time) = schedstat::of(thread) {
                    threads.insert(thread, time);
                }
            }
        }
        Before { threads }
    }
}

/// The first look after a switch: when did each core start with the new gang?
pub(crate) fn starts(
    arena: &Arena,
    gang: GangId,
    before: &Before,
    cores: usize,
    from: Nanos,
) -> Option<(f64, f64)> {
    let control = &arena.of(gang).control;
    let mut starts = Vec::new();
    for process in control.processes().ok()? {
        let _ = schedstat::refresh(process); // it has ended
        let now = timer::now();
        for thread in threads_of(process) {
            let (Some(old), Ok(new)) = (before.threads.get(&thread), schedstat::of(thread)) else { continue };
            let ran = new.ran_ns.saturating_sub(old.ran_ns);
            if ran > 0 {
                // the outgoing thread and the scheduler may each interrupt it for microseconds, which count as later
                if new.times > old.times + 3 || !is_running(thread) {
                    return None;
                }
                starts.push(now.saturating_sub(ran).saturating_sub(from.0));
            }
        }
    }
    if starts.is_empty() || starts.len() > cores {
        return None;
    }
    let (first, last) = (*starts.iter().min()?, *starts.iter().max()?);
    Some((last as f64 / 1e3, (last - first) as f64 / 1e3))
}

pub(super) fn threads_of(process: Tid) -> Vec<Tid> {
    let dir = std::fs::read_dir(format!("/proc/{process}/task"));
    let names = dir.map(|dir| dir.filter_map(std::result::Result::ok).map(|e| e.file_name()));
    let parse = |name: std::ffi::OsString| name.to_str()?.parse().ok().map(Tid);
    names.map(|names| names.filter_map(parse).collect()).unwrap_or_default()
}

fn is_running(thread: Tid) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

/// Processor time used so far by each of these gangs, exact also for threads that run.
pub(crate) fn used(arena: &Arena, gangs: &[GangId], running: bool) -> BTreeMap<GangId, u64> {
    let mut used = BTreeMap::new();
    for gang in gangs {
        let control = &arena.of(*gang).control;
        if running {
            for process in control.processes().unwrap_or_default().into_iter().take(16) {
                let _ = schedstat::refresh(process); // it has ended
            }
        }
        if let Ok(ns) = control.used_ns() {
            used.insert(*gang, ns);
        }
    }
    used
}
