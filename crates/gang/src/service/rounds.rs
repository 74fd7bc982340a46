//! Periodic work of the daemon: scanning its gangs, deciding which gangs rest, and limiting the time of
//! switching.
//!
//! A gang that cannot be scanned or released causes a warning and never ends the daemon: the gang's owner may
//! have caused the failure.

use super::adopt::{self, groups_below, threads_in};
use super::daemon::{GangDaemon, ManagedGang, SlicePace, switching_time};
use super::limits::{self, GangQuota};
use super::own_time;
use super::pace::{self, GangSleeps};
use super::scan_times::GangScan;
use super::state::ROOT;
use crate::error::{Error, Result};
use crate::gang::GangId;
use crate::host::resting::pressed;
use crate::host::scheduler::Notice;
use crate::host::threads::GangThreads;
use crate::host::worth::{GangTimes, TurnsVerdict};
use crate::journal::UndoEntry;
use std::thread::JoinHandle;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::usage;

/// Rounds between two searches for new groups below a gang's group.
const ROUNDS_A_WALK: u64 = 8;

impl GangDaemon {
    /// Sends the scheduler the quota of each gang, where it has changed.
    pub(super) fn divide_quotas(&mut self) {
        let quotas = self.managed.iter().filter_map(|(id, gang)| Some((*id, gang.quota.clone()?))).collect();
        let mut parts = limits::parts(&quotas);
        let mut changed = Vec::new();
        for (id, gang) in &mut self.managed {
            let part = parts.remove(id);
            if std::mem::replace(&mut gang.keeps_to, part) != part {
                changed.push(Notice::Quota(*id, part));
            }
        }
        changed.into_iter().for_each(|notice| self.notify(notice));
    }

    /// Adapts the slice to the intervals between barriers of the gangs that take turns.
    fn keep_pace(&mut self) {
        if self.terms.pace == SlicePace::Fixed {
            return;
        }
        let turns = self.managed.values().filter(|gang| !gang.worth.rests());
        if let Some(slice) = pace::slice(self.terms.slice, turns.filter_map(|gang| gang.interval)) {
            self.set_slice(slice, SlicePace::Follows);
        }
    }

    /// Does the periodic work; called by the main loop. If a scan is due, it scans all gangs; if only a
    /// judgement is due, it decides which gangs rest. Fails if the scheduler's thread has failed.
    pub(super) fn tend(&mut self) -> Result<()> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            let outcome = self.thread.take().and_then(|thread| thread.join().ok());
            let why = outcome.and_then(|outcome| outcome.failure).unwrap_or_else(|| "it panicked".into());
            return Err(Error::Host(format!("scheduling ended: {why}")));
        }
        let used = usage::of_this_thread();
        let took = || Duration::from(usage::of_this_thread().since(used).cpu);
        self.bound_switching();
        let ended = |gang: &mut ManagedGang| {
            let ended =
                |leader: &PinnedProcess| leader.has_ended(Some(Duration::ZERO.into())).unwrap_or(true);
            gang.leader.take_if(|leader| ended(leader)).is_some()
        };
        let any_ended = self.managed.values_mut().map(ended).fold(false, |any, one| any | one);
        match self.scan_times.due(clock::now()) {
            None if !any_ended => {}
            Some(GangScan::Judgement) if !any_ended => {
                let ids: Vec<GangId> = self.managed.keys().copied().collect();
                for id in ids {
                    let judged = self.judge(id);
                    self.warn_of(id, judged);
                }
                self.scan_times.judged(took(), clock::now());
            }
            _ => {
                let changed = self.go_round();
                self.scan_times.went_round(took(), changed, clock::now());
            }
        }
        Ok(())
    }

    /// Scans all gangs. Returns whether the threads of any gang have changed.
    fn go_round(&mut self) -> bool {
        self.rounds += 1;
        let ids: Vec<GangId> = self.managed.keys().copied().collect();
        let mut changed = false;
        for id in ids {
            let scanned = self.scan_gang(id);
            changed |= self.warn_of(id, scanned).unwrap_or(false);
        }
        self.divide_quotas();
        self.keep_pace();
        if let Err(error) = self.journal.compact() {
            self.warn(error.to_string());
        }
        changed
    }

    /// Reports a failure for a gang, once.
    fn warn_of<T>(&mut self, id: GangId, done: Result<T>) -> Option<T> {
        let error = match done {
            Ok(done) => return Some(done),
            Err(error) => error,
        };
        let name =
            self.state.get(id).map_or_else(|| id.to_string(), |gang| format!("the gang {}", gang.name));
        self.warn(format!("{name}: {error}"));
        None
    }

    /// Lengthens turns while switching takes more time than permitted.
    fn bound_switching(&mut self) {
        let Some(factor) = self.own_time.update(clock::now(), switching_time(), self.all_cpus.len()) else {
            return;
        };
        let (percent, max) = (self.own_time.share() * 100.0, own_time::MAX_SHARE * 100.0);
        self.notify(Notice::Lengthen(factor));
        self.warn(if factor == 1 {
            "turns are as long as asked for again".to_owned()
        } else {
            format!(
                "switching took {percent:.1} % of the cores' time, and {max:.0} % is the most: turns last \
                 {factor} times as long; set a longer slice"
            )
        });
    }

    /// Scans one gang. Returns whether its threads have changed.
    fn scan_gang(&mut self, id: GangId) -> Result<bool> {
        let walk = self.rounds.is_multiple_of(ROUNDS_A_WALK);
        let Some(gang) = self.managed.get_mut(&id) else { return Ok(false) };
        if walk {
            gang.groups = groups_below(gang.home.group());
            let one = gang.groups.iter().find_map(|group| group.processes().ok()?.first().copied());
            gang.quota = one.and_then(GangQuota::for_process);
        }
        let count = threads_in(&gang.groups).len();
        let changed = std::mem::replace(&mut gang.count, count) != count;
        if count == 0 && adopt::is_over(&gang.home) {
            if !self.jobs.is_leaving(id) {
                self.begin_release(ROOT, id, None);
            }
            return Ok(false);
        }
        if !gang.everywhere {
            return self.judge(id).map(|()| changed);
        }
        if let Some(width) = gang.threads.measure(&gang.groups) {
            gang.width = width;
            let _ = self.notices.send(Notice::Width(id, width));
            self.alarm.call();
        }
        if !gang.worth.rests()
            && let Some(line) = self.turn_status.of_gang(id, clock::now())
        {
            if self.terms.spread {
                gang.threads.place(&gang.groups, &line.cores, &mut self.journal)?;
            }
            if self.terms.pace == SlicePace::Follows {
                let slept = GangSleeps { threads: gang.threads.slept(&gang.groups), turns: line.turns };
                gang.interval = slept.interval(std::mem::replace(&mut gang.slept, slept));
            }
        }
        self.judge(id).map(|()| changed)
    }

    /// Lets a blocking gang rest, and wakes a resting gang that has stopped blocking.
    fn judge(&mut self, id: GangId) -> Result<()> {
        let at = clock::now();
        let Some(gang) = self.managed.get_mut(&id) else { return Ok(()) };
        let Some(used) = gang.meter.as_ref().and_then(|meter| meter.used_ns().ok()) else { return Ok(()) };
        let had = self.turn_status.of_gang(id, at).map_or(Duration::ZERO, |line| line.had);
        let might = if gang.worth.rests() { at - Instant::ZERO } else { had };
        let times =
            GangTimes { might, used: Duration::from_nanos(used), pressed: pressed(gang.home.group()) };
        match gang.worth.evaluate(times, gang.width.min(self.all_cpus.len())) {
            Some(TurnsVerdict::Wake) => self.notify(Notice::Wakes(id)),
            Some(TurnsVerdict::Rest) => {
                // the gang runs beside others now, and Linux finds free cores for its threads
                let threads = threads_in(&gang.groups);
                gang.threads = GangThreads::new(self.all_cpus.clone());
                self.journal.undo(
                    |entry| matches!(entry, UndoEntry::Affinity { thread, .. } if threads.contains(thread)),
                )?;
                self.notify(Notice::Rests(id));
            }
            None => {}
        }
        Ok(())
    }
}
