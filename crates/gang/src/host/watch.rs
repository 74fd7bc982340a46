//! What a switch was worth, measured while it happens, without help from the programs.
//!
//! Some turns are watched: a millisecond after the switch a visitor goes from core to core and looks how long
//! the threads of the incoming gang have run there since. A core that is busy with them started `now - ran`
//! ago, at the latest; the last core is when all ran the new gang, the spread between them the skew. Gangs that
//! leave a core idle at that moment give no such sample; the summary says how many there were. Leak is
//! counted from the same turns: what waiting gangs used between that look and one just before the turn ends,
//! plus the switch itself on every core.
//!
//! Cost: about 100 us in a watched turn; the first ten and every 17th are watched.

use super::arena::Arena;
use crate::gang::{GangId, Nanos};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender as Channel, channel};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::schedstat::{self, RunTime};
use unisono_linux::scheduling::{self, Children, Policy, Urgency};
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

/// Goes from core to core and looks since when each runs the incoming gang.
///
/// Where it arrives the thread that ran is interrupted, so that its figures are exact, and nobody of the gang
/// runs there while they are read. It waits for its work in the real-time class: a fair thread would arrive
/// milliseconds late.
#[derive(Debug)]
pub(crate) struct Visitor {
    orders: Channel<(Before, Nanos)>,
    answers: Receiver<Option<(f64, f64)>>,
}

impl Visitor {
    /// Starts it for these processors; `None` when it may not be in a real-time class.
    pub(crate) fn start(cpus: Vec<usize>) -> Option<Visitor> {
        let (orders, inbox) = channel::<(Before, Nanos)>();
        let (outbox, answers) = channel();
        let visits = move || {
            let class = scheduling::set(Tid::SELF, Policy::Fifo(Urgency::new(48)), Children::Inherit);
            // the first answer says whether there will be others
            if outbox.send(class.is_ok().then_some((0.0, 0.0))).is_err() || class.is_err() {
                return;
            }
            for (before, from) in inbox {
                if outbox.send(starts(&before, &cpus, from)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("gang-visitor".into()).spawn(visits).ok()?;
        answers.recv().ok().flatten()?;
        Some(Visitor { orders, answers })
    }

    /// When, after `from`, the last core ran the new gang, and how much earlier the first; microseconds.
    pub(crate) fn visit(&self, before: Before, from: Nanos) -> Option<(f64, f64)> {
        self.orders.send((before, from)).ok()?;
        self.answers.recv().ok().flatten()
    }
}

fn starts(before: &Before, cpus: &[usize], from: Nanos) -> Option<(f64, f64)> {
    let mut starts = Vec::new();
    for cpu in cpus {
        affinity::restrict(Tid::SELF, &CpuSet::single(*cpu)).ok()?;
        let now = timer::now();
        let (mut ran, mut runnable) = (0, false);
        for (thread, old) in &before.threads {
            let Some(place) = Place::of(*thread).filter(|place| place.cpu == *cpu) else { continue };
            let new = schedstat::of(*thread).ok()?;
            ran += new.ran_ns.saturating_sub(old.ran_ns);
            runnable |= place.runnable && new.ran_ns > old.ran_ns;
        }
        // a core that the gang let go idle tells nothing
        if !runnable {
            return None;
        }
        starts.push(now.saturating_sub(ran).saturating_sub(from.0) as f64 / 1e3);
    }
    let last = starts.iter().copied().fold(f64::MIN, f64::max);
    let first = starts.iter().copied().fold(f64::MAX, f64::min);
    Some((last, last - first))
}

/// Where a thread is and whether it wants to run.
struct Place {
    cpu: usize,
    runnable: bool,
}

impl Place {
    fn of(thread: Tid) -> Option<Place> {
        let text = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
        let rest = text.rsplit_once(") ")?.1;
        // the processor is the 37th field after the name, the state the first
        Some(Place { cpu: rest.split(' ').nth(36)?.parse().ok()?, runnable: rest.starts_with('R') })
    }
}

pub(super) fn threads_of(process: Tid) -> Vec<Tid> {
    let dir = std::fs::read_dir(format!("/proc/{process}/task"));
    let names = dir.map(|dir| dir.filter_map(std::result::Result::ok).map(|e| e.file_name()));
    let parse = |name: std::ffi::OsString| name.to_str()?.parse().ok().map(Tid);
    names.map(|names| names.filter_map(parse).collect()).unwrap_or_default()
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
