//! Measures the duration and the completeness of a switch, without help from the programs.
//!
//! Some turns are watched. Shortly before the switch the kernel begins to record every context switch on the
//! gangs' processors, and it stops shortly before the turn ends. The records show when each core first ran a
//! thread of the incoming gang. The *switch* ends at the last core; the *skew* is the time between the first
//! and the last core. The *leak* is the time in which a core ran a thread of a waiting gang; it includes the
//! switch. All times count from the planned moment, so a late wake-up of the scheduler is part of the switch.
//!
//! If a gang leaves a core idle for the whole turn, the time of its switch cannot be measured. Threads that
//! start and exit within the turn count for no gang. If the kernel refuses to record, no turn is measured,
//! and the summary says so.
//!
//! The same records show how many cores a gang could have used: the time in which its threads ran or were
//! preempted. Time that other programs took from a gang does not count as idle. Without records, cores are
//! lent by the number of a gang's threads alone.
//!
//! Cost: 0.3 to 0.6 ms of one core per watched turn and 0.2 us per context switch. The first ten turns with
//! an awake gang are watched, then every 17th (one turn in 340 ms if turns are short), and after 75 turns of
//! each gang every 51st. A gang whose last two watched turns differed, or that may be about to rest, is
//! watched again as soon as 85 ms have passed since the last watched turn.

use super::worth::WatchedUse;
use crate::gang::GangId;
use std::collections::{BTreeMap, BTreeSet};
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::ControlGroup;
use unisono_linux::clock::{Duration, Instant};
use unisono_linux::switches::{ContextSwitch, Recorder, Recording, SwitchReason};

/// A gang's use is counted from this long after a switch, and recording stops this long before the turn's
/// end.
const RECORD_MARGIN: Duration = Duration::from_millis(1);
/// Number of consecutive turns watched at the beginning. Turns whose gang is asleep do not count: programs
/// may wait for each other before they begin.
const FIRST_WATCHED: u64 = 10;
/// Limit of the initial turns, so that sleeping programs are not watched for ever: two seconds with the
/// default slice.
const MAX_FIRST_WATCHED: u64 = 100;
/// Minimum time between two watched turns after the initial ones: 17 turns of the default slice. Watching
/// costs 0.5 ms, so this is 0.15 % of one core. After [`STEADY_AFTER_TURNS`] turns of each gang it is
/// three times as long.
const WATCH_INTERVAL: Duration = Duration::from_millis(340);
/// After this many turns of each gang, most programs have reached the behavior that they keep for long. For
/// two gangs and the default slice that is three seconds.
const STEADY_AFTER_TURNS: u64 = 75;
/// Minimum time between two watched turns when the policy is unsure of a gang: watching costs 0.5 ms, so this
/// is at most 0.6 % of one core.
const UNSURE_WATCH_INTERVAL: Duration = Duration::from_millis(85);
/// Recording begins this long before a switch.
const RECORDING_LEAD: Duration = Duration::from_micros(500);
/// Recording ends at most this long after a switch.
const MAX_RECORDED: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Times from the planned switch until the mechanism had finished, in microseconds, one sample per
    /// switch.
    pub(crate) enforced_us: Vec<f64>,
    /// Times from the planned switch until all cores ran the new gang, in microseconds.
    pub(crate) switch_us: Vec<f64>,
    /// Times between the switches of the first and the last core, in microseconds.
    pub(crate) skew_us: Vec<f64>,
    /// Processor time that waiting gangs used in watched turns.
    pub(crate) leaked: Duration,
    /// Total processor time of the watched turns.
    pub(crate) watched: Duration,
    /// Watched turns whose gang left some of its cores idle.
    pub(crate) unfilled: usize,
    /// Watched turns without usable records.
    pub(crate) unreadable: usize,
    /// The reason if no turn can be watched.
    pub(crate) refused: Option<String>,
}

impl Samples {
    /// Returns the reason if no switch time was measured.
    pub(crate) fn not_measured(&self) -> Option<String> {
        if !self.switch_us.is_empty() {
            return None;
        }
        Some(match (&self.refused, self.unfilled, self.unreadable) {
            (Some(why), ..) => why.clone(),
            (None, 0, 0) => "no switch was watched: the run or its turns were too short".into(),
            (None, 0, turns) => format!("the records of all {turns} watched turns could not be read"),
            (None, turns, _) => format!("in all {turns} watched turns the gang left a core of its own idle"),
        })
    }
}

/// Returns whether turn number `turn`, which lasts `length`, is watched. `awake`: number of watched turns
/// whose gang was awake. The stride is odd, so that two gangs are watched alternately.
pub(crate) fn is_watched(turn: u64, awake: u64, length: Duration, gangs: usize) -> bool {
    let often = if turn < STEADY_AFTER_TURNS * gangs as u64 { 1 } else { 3 };
    let stride = (WATCH_INTERVAL.as_nanos() / length.as_nanos().max(1)).max(17).saturating_mul(often) | 1;
    let begins = awake < FIRST_WATCHED && turn < MAX_FIRST_WATCHED;
    length >= RECORD_MARGIN * 4 && (begins || turn.is_multiple_of(stride))
}

/// Returns whether a turn of this length may be watched out of order, if the last watched turn began at
/// `last`.
pub(crate) fn may_watch_again(last: Instant, from: Instant, length: Duration) -> bool {
    length >= RECORD_MARGIN * 4 && from - last >= UNSURE_WATCH_INTERVAL
}

/// Returns the time at which the recording of a switch starts.
pub(crate) fn begin(switch: Instant) -> Instant {
    switch - RECORDING_LEAD
}

pub(crate) fn end(from: Instant, until: Instant) -> Instant {
    (until - RECORD_MARGIN).min(from + MAX_RECORDED)
}

/// The threads of each gang, before and after a turn.
#[derive(Debug, Default)]
pub(crate) struct Members(BTreeMap<GangId, BTreeSet<Tid>>);

impl Members {
    /// Adds the threads that these control groups contain now.
    pub(crate) fn add_threads(&mut self, controls: &BTreeMap<GangId, ControlGroup>) {
        for (gang, control) in controls {
            let threads = control.threads().unwrap_or_default();
            self.0.entry(*gang).or_default().extend(threads);
        }
    }

    fn threads_of(&self, gangs: &[GangId]) -> BTreeSet<Tid> {
        gangs.iter().filter_map(|gang| self.0.get(gang)).flatten().copied().collect()
    }
}

/// Records the context switches on the gangs' processors.
#[derive(Debug)]
pub(crate) struct Watcher {
    recorders: Vec<Recorder>,
}

impl Watcher {
    /// Makes a watcher of these processors; the error is a text with the kernel's reason.
    pub(crate) fn new(cpus: &[usize]) -> Result<Watcher, String> {
        let recorders: std::io::Result<Vec<Recorder>> = cpus.iter().map(|cpu| Recorder::new(*cpu)).collect();
        recorders.map(|recorders| Watcher { recorders }).map_err(|error| {
            format!("the kernel does not let us record context switches (perf events, CAP_PERFMON): {error}")
        })
    }

    /// Begins to record; `false` on failure.
    pub(crate) fn start(&mut self) -> bool {
        self.recorders.iter_mut().all(|recorder| recorder.start().is_ok())
    }

    /// Stops and returns the records of each processor; `None` if some record cannot be read.
    pub(crate) fn stop(&mut self) -> Option<TurnRecords> {
        let stopped: Vec<_> =
            self.recorders.iter_mut().map(|recorder| recorder.stop().ok().flatten()).collect();
        stopped.into_iter().collect::<Option<Vec<Recording>>>().map(TurnRecords::new)
    }
}

/// The records of one turn.
#[derive(Debug)]
pub(crate) struct TurnRecords {
    /// The context switches of each processor.
    pub(crate) changes: Vec<Vec<ContextSwitch>>,
    /// If a ring was full, the moment until which all processors' records are complete.
    pub(crate) full: Option<Instant>,
}

impl TurnRecords {
    fn new(recordings: Vec<Recording>) -> TurnRecords {
        let full = recordings.iter().filter_map(|recording| recording.full).min();
        TurnRecords { changes: recordings.into_iter().map(|recording| recording.changes).collect(), full }
    }
}

/// The measurement of one switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwitchRecord {
    /// Time from the planned moment until the first and until the last core ran the new gang.
    pub(crate) started: Option<(Duration, Duration)>,
    /// Processor time of threads of waiting gangs, summed over all cores.
    pub(crate) leaked: Duration,
}

/// The effect of a switch on the threads of the incoming gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchEffect {
    /// The switch woke every thread, sleepers too, as the freezer of cgroup version 2 does: a thread that has
    /// not run since then waits for a processor. (A thread in uninterruptible sleep is not woken, but counts
    /// as waiting, too.)
    Woken,
    /// Sleeping threads stayed asleep.
    Unchanged,
}

/// One watched turn, as planned.
#[derive(Debug)]
pub(crate) struct WatchedTurn<'a> {
    /// The recorded interval.
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    /// Gangs whose turn it is, and gangs that wait.
    pub(crate) runs: &'a [GangId],
    pub(crate) waits: &'a [GangId],
    /// Indices of the recorded processors that the running gangs should fill.
    pub(crate) cores: &'a [usize],
    /// The effect of the switch at `from` on the threads of `runs`.
    pub(crate) arrival: SwitchEffect,
}

impl WatchedTurn<'_> {
    /// Evaluates the records of all processors; `None` if a processor has no record, because the thread that
    /// ran there is then unknown.
    pub(crate) fn read(&self, records: &[Vec<ContextSwitch>], members: &Members) -> Option<SwitchRecord> {
        let (runs, waits) = (members.threads_of(self.runs), members.threads_of(self.waits));
        let (mut leaked, mut starts) = (Duration::ZERO, Vec::new());
        for (core, changes) in records.iter().enumerate() {
            let first = changes.first()?;
            let mut start = None;
            let begins =
                std::iter::once((Instant::ZERO, first.from)).chain(changes.iter().map(|c| (c.time, c.to)));
            let ends = changes.iter().map(|c| c.time).chain(std::iter::once(Instant::NEVER));
            for ((begin, who), end) in begins.zip(ends) {
                let (begin, end) = (begin.max(self.from), end.min(self.until));
                if begin >= end {
                    continue;
                }
                if waits.contains(&who) {
                    leaked += end - begin;
                }
                if start.is_none() && runs.contains(&who) {
                    start = Some(begin - self.from);
                }
            }
            if self.cores.contains(&core) {
                starts.push(start);
            }
        }
        let starts: Option<Vec<Duration>> = starts.into_iter().collect();
        let started = starts.and_then(|starts| Some((*starts.iter().min()?, *starts.iter().max()?)));
        Some(SwitchRecord { started, leaked })
    }

    /// Returns the use of the turn by `gang`, on at most `cores` cores at once. The gang wants a core for
    /// each thread that runs, was preempted, or has not yet run since the switch woke it. A thread that wakes
    /// later and has to wait is seen only when it runs.
    pub(crate) fn used(
        &self,
        records: &[Vec<ContextSwitch>],
        members: &Members,
        gang: GangId,
        cores: usize,
    ) -> WatchedUse {
        let own = members.threads_of(&[gang]);
        let from = (self.from + RECORD_MARGIN).min(self.until);
        let mut runs: Vec<Option<Tid>> =
            records.iter().map(|changes| changes.first().map(|change| change.from)).collect();
        let mut all: Vec<(usize, &ContextSwitch)> = records
            .iter()
            .enumerate()
            .flat_map(|(core, changes)| changes.iter().map(move |c| (core, c)))
            .collect();
        all.sort_by_key(|(_, change)| change.time);
        let mut interrupted: BTreeSet<Tid> = match self.arrival {
            SwitchEffect::Woken => {
                own.iter().filter(|thread| !runs.contains(&Some(**thread))).copied().collect()
            }
            SwitchEffect::Unchanged => BTreeSet::new(),
        };
        let (mut wanted, mut before, mut sleeps) = (Duration::ZERO, from, 0);
        for (core, change) in all {
            let now = change.time.clamp(before, self.until.max(before));
            let running = runs.iter().flatten().filter(|thread| own.contains(thread)).count();
            let used = (running + interrupted.len()).min(cores) as u64;
            wanted += (now - before) * used;
            before = now;
            runs[core] = Some(change.to);
            interrupted.remove(&change.to);
            if own.contains(&change.from) {
                match change.reason {
                    SwitchReason::Preempted | SwitchReason::Unknown => {
                        interrupted.insert(change.from);
                    }
                    SwitchReason::Asleep => sleeps += u64::from((from..self.until).contains(&change.time)),
                }
            }
        }
        let running = runs.iter().flatten().filter(|thread| own.contains(thread)).count();
        let used = (running + interrupted.len()).min(cores) as u64;
        let wanted = wanted + ((self.until - before) * used);
        WatchedUse { wanted, sleeps, time: self.until - from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(time: u64, from: i32, to: i32) -> ContextSwitch {
        ContextSwitch {
            time: Instant::from_nanos(time),
            from: Tid(from),
            reason: SwitchReason::Preempted,
            to: Tid(to),
        }
    }

    /// Evaluates records of a turn in which gang 0 waits with threads 10 and 11, and gang 1 runs with threads
    /// 20 and 21.
    fn read(cores: &[usize], records: &[Vec<ContextSwitch>]) -> Option<SwitchRecord> {
        let gang = |id, threads: [i32; 2]| (GangId(id), threads.map(Tid).into_iter().collect());
        let members = Members([gang(0, [10, 11]), gang(1, [20, 21])].into_iter().collect());
        let plan = WatchedTurn {
            from: Instant::from_nanos(1000),
            until: Instant::from_nanos(2000),
            runs: &[GangId(1)],
            waits: &[GangId(0)],
            cores,
            arrival: SwitchEffect::Unchanged,
        };
        plan.read(records, &members)
    }

    #[test]
    fn a_switch_ends_when_the_last_core_runs_the_new_gang_and_leaks_until_then() {
        // the scheduler (5) preempts one core before the planned moment; the other core goes on with gang 0
        // for 70 ns
        let records = [
            vec![change(990, 10, 5), change(1030, 5, 20)],
            vec![change(1070, 11, 21), change(1500, 21, 0), change(1510, 0, 21)],
        ];
        assert_eq!(
            read(&[0, 1], &records),
            Some(SwitchRecord {
                started: Some((Duration::from_nanos(30), Duration::from_nanos(70))),
                leaked: Duration::from_nanos(70)
            })
        );
    }

    #[test]
    fn time_outside_the_turn_does_not_count() {
        let records =
            [vec![change(500, 5, 10), change(1010, 10, 20), change(2500, 20, 10), change(2600, 10, 20)]];
        assert_eq!(
            read(&[0], &records),
            Some(SwitchRecord {
                started: Some((Duration::from_nanos(10), Duration::from_nanos(10))),
                leaked: Duration::from_nanos(10)
            })
        );
    }

    #[test]
    fn a_core_that_the_gang_leaves_idle_gives_no_switch_unless_it_is_not_the_gangs() {
        let records =
            [vec![change(1001, 10, 20)], vec![change(1200, 11, 0), change(1300, 0, 11), change(1310, 11, 0)]];
        assert_eq!(
            read(&[0, 1], &records),
            Some(SwitchRecord { started: None, leaked: Duration::from_nanos(211) })
        );
        assert_eq!(
            read(&[0], &records),
            Some(SwitchRecord {
                started: Some((Duration::from_nanos(1), Duration::from_nanos(1))),
                leaked: Duration::from_nanos(211)
            })
        );
    }

    /// Returns the number of cores, of two, that the running gang wanted between 3 and 11 ms, if the switch
    /// wakes no thread.
    fn wanted(records: &[Vec<ContextSwitch>]) -> f64 {
        wanted_after(SwitchEffect::Unchanged, records)
    }

    fn wanted_after(arrival: SwitchEffect, records: &[Vec<ContextSwitch>]) -> f64 {
        let threads = |threads: [i32; 2]| threads.map(Tid).into_iter().collect();
        let members = Members([(GangId(0), threads([10, 11])), (GangId(1), threads([20, 21]))].into());
        let plan = WatchedTurn {
            from: Instant::from_millis(2),
            until: Instant::from_millis(11),
            runs: &[GangId(1)],
            waits: &[GangId(0)],
            cores: &[0, 1],
            arrival,
        };
        let used = plan.used(records, &members, GangId(1), 2);
        used.wanted.as_nanos() as f64 / used.time.as_nanos() as f64
    }

    fn asleep(time: u64, from: i32, to: i32) -> ContextSwitch {
        ContextSwitch { reason: SwitchReason::Asleep, ..change(time, from, to) }
    }

    #[test]
    fn what_other_programs_take_from_a_gang_is_not_idle() {
        let busy = vec![change(2_000_010, 5, 20)];
        let taken = vec![change(2_000_010, 5, 21), change(4_000_000, 21, 77), change(9_000_000, 77, 21)];
        assert!((wanted(&[busy.clone(), taken]) - 2.0).abs() < 1e-9);
        // but time in which the gang's own thread sleeps is idle, even if another program uses it
        let sleeps = vec![change(2_000_010, 5, 21), asleep(5_000_000, 21, 77), change(9_000_000, 77, 21)];
        assert!((wanted(&[busy.clone(), sleeps]) - 1.5).abs() < 1e-9);
        assert!((wanted(&[busy, vec![asleep(2_000_010, 5, 0)]]) - 1.0).abs() < 1e-9);
        assert!(wanted(&[vec![change(1, 0, 10)], vec![change(1, 0, 11)]]) < 1e-9, "the lent gang runs");
    }

    #[test]
    fn a_thread_that_another_program_keeps_from_running_since_the_switch_is_not_idle() {
        let busy = vec![change(2_000_010, 5, 20)];
        let taken = vec![change(2_000_010, 5, 77)];
        assert!((wanted_after(SwitchEffect::Woken, &[busy.clone(), taken.clone()]) - 2.0).abs() < 1e-9);
        assert!((wanted(&[busy.clone(), taken]) - 1.0).abs() < 1e-9, "one that slept on does not wait");
        let slept = vec![change(2_000_010, 5, 21), asleep(2_000_030, 21, 77)];
        assert!(
            (wanted_after(SwitchEffect::Woken, &[busy, slept]) - 1.0).abs() < 1e-9,
            "it ran and fell asleep"
        );
    }

    #[test]
    fn a_thread_that_moves_to_another_core_counts_once() {
        let one = vec![change(2_000_010, 5, 20), change(5_000_000, 20, 10)];
        let other = vec![change(2_000_010, 5, 11), change(5_000_001, 11, 20)];
        assert!((wanted(&[one, other]) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn short_turns_are_watched_less_often_and_both_of_two_gangs() {
        let among = |gangs: usize, ms: u64| {
            let is_watched = |turn: &u64| is_watched(*turn, FIRST_WATCHED, Duration::from_millis(ms), gangs);
            (10..5_000).filter(is_watched).collect::<Vec<u64>>()
        };
        let watched = |ms| among(2, ms);
        for ms in [4, 5, 20, 100] {
            let turns = watched(ms);
            let (first, later) = (turns.iter().find(|turn| **turn >= 17), turns.iter().rev().take(2));
            let stride = later.copied().reduce(|last, before| last - before).expect("many are watched");
            assert!(stride * ms >= 1_000 && stride % 2 == 1, "every {stride}th of {ms} ms");
            assert!(first.expect("one is watched") * ms <= 1_700, "{ms} ms");
        }
        assert_eq!(watched(20)[..4], [17, 34, 51, 68]);
        assert_eq!(among(10, 20)[..44].last(), Some(&748), "each of ten has its first turns");
        assert!(watched(3).is_empty(), "too short to look at");
    }

    #[test]
    fn a_core_without_records_tells_nothing() {
        assert_eq!(read(&[0], &[vec![change(1001, 10, 20)], vec![]]), None);
    }
}
