//! The scheduler's thread: asks the policy for turns, applies the mechanism on time, and records samples.

use super::hold::{self, Holders, Lead};
use super::resting::Resting;
use super::trace::{TraceEvent, Tracer};
use super::turn_status::TurnStatus;
use super::watch::{self, Members, Samples, SwitchEffect, WatchedTurn, Watcher};
use crate::cgroups::GangGroups;
use crate::error::Result;
use crate::gang::{GangId, GangOwner, GangWeight};
use crate::matrix::SlotPlace;
use crate::mechanism::{Fit, Mechanism, MechanismKind, Standing, TurnsOrRest};
use crate::policy::{Rotation, Turn};
use crate::turn_quota::TurnQuota;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;
use unisono_linux::cgroup::{CgroupVersion, ControlGroup};
use unisono_linux::clock::{Nanos, now, wall_ahead};
use unisono_linux::scheduling::{self, Children, SchedulingPolicy, Urgency};
use unisono_linux::timer::{Sleeper, Woken};

#[derive(Debug)]
pub(crate) enum Notice {
    /// A new gang, which runs without turns so far. Answered when it takes turns, or when the mechanism
    /// refuses it.
    Joins(JoiningGang, Sender<Result<()>>),
    Left(GangId),
    /// Stops scheduling a gang whose processes live on. Answered when they run and will not be stopped again.
    Released(GangId, Sender<()>),
    Weight(GangId, GangWeight),
    Slice(Nanos),
    /// Multiplies the length of turns by this factor from now on.
    Lengthen(u32),
    /// The gang runs all the time from now on, or takes turns again.
    Rests(GangId),
    Wakes(GangId),
    /// The processor time that the gang may use, where its turns enforce the limit.
    Quota(GangId, Option<TurnQuota>),
    /// The number of cores that the gang can use at the same time.
    Width(GangId, usize),
    /// This process was stopped and has continued, and so have the programs, whether it was their turn or
    /// not.
    Continued,
    /// Release all gangs and end.
    Finish,
}

#[derive(Debug)]
pub(crate) struct JoiningGang {
    pub(crate) id: GangId,
    /// The gang's name, the same on every host.
    pub(crate) name: String,
    pub(crate) weight: GangWeight,
    pub(crate) owner: GangOwner,
    pub(crate) groups: Box<GangGroups>,
}

/// How the next turn is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnsBy {
    /// The gang that has waited longest has the next turn.
    Waiting,
    /// The time of day, which the hosts share, chooses.
    Clock,
}

/// The results of the thread, available after its end.
#[derive(Debug, Default)]
pub(crate) struct SchedulerOutcome {
    pub(crate) samples: Samples,
    pub(crate) switches: u64,
    pub(crate) slices: BTreeMap<GangId, u64>,
    /// Time for which each gang ran without turns because it blocked.
    pub(crate) rested: BTreeMap<GangId, Nanos>,
    /// The scheduling class of this thread.
    pub(crate) class: &'static str,
    /// Why cores are not held during switches, if the caller asked for it.
    pub(crate) unheld: Option<String>,
    /// Why the thread stopped scheduling early.
    pub(crate) failure: Option<String>,
}

pub(crate) struct GangScheduler {
    pub(crate) rotation: Rotation,
    pub(crate) turns_by: TurnsBy,
    pub(crate) mechanism: Box<dyn Mechanism>,
    /// The groups that list the threads of each gang; empty without groups.
    pub(crate) controls: BTreeMap<GangId, ControlGroup>,
    pub(crate) cpus: Vec<usize>,
    pub(crate) watcher: Option<Watcher>,
    pub(crate) notices: Receiver<Notice>,
    pub(crate) alarm: Sleeper,
    pub(crate) turn_status: Arc<TurnStatus>,
    pub(crate) gangs: Vec<GangId>,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) resting: Resting,
    /// Processor time of all gangs together, where their turns enforce the limit.
    pub(crate) quota: Option<TurnQuota>,
    /// Notices that this thread sends to itself.
    pub(crate) own: Vec<Notice>,
}

/// Wait when there is nothing to switch; a notice ends it early.
const IDLE: Nanos = Nanos(60_000_000_000);
/// Maximum number of switches whose lateness is recorded: 8 MiB, half a day of turns of 20 ms.
const MAX_SAMPLES: usize = 1 << 20;
/// Time from a switch to the scheduler's next activity: its own core has to run the new gang meanwhile. Later
/// than the next tick, so that no timer has to be set earlier than it is, which takes 8 us in a virtual
/// machine.
const SETTLED: Nanos = Nanos(4_200_000);
/// The same time when cores are lent: they are idle until then, so it is just long enough for a switch to be
/// over (24 to 32 us with 2 threads a gang, 76 to 165 with 64; gang run, slices of 20 ms).
const LENT: Nanos = Nanos(200_000);

impl GangScheduler {
    /// Runs until [`Notice::Finish`]; all gangs are released at the end, also after a failure.
    pub(crate) fn run(mut self, slice: Nanos) -> SchedulerOutcome {
        let (class, holders) = own_class(self.mechanism.kind(), slice, &self.cpus);
        let mut outcome = SchedulerOutcome { class, ..SchedulerOutcome::default() };
        let holders = holders.unwrap_or_else(|why| {
            outcome.unheld = Some(why);
            None
        });
        if let Err(error) = self.turns(&mut outcome, holders.as_ref()) {
            outcome.failure = Some(error.to_string());
        }
        drop(holders);
        self.trace_end();
        outcome.rested = std::mem::take(&mut self.resting).rested(now());
        if let Err(error) = self.mechanism.release() {
            outcome.failure.get_or_insert(error.to_string());
        }
        outcome
    }

    fn turns(&mut self, outcome: &mut SchedulerOutcome, holders: Option<&Holders>) -> Result<()> {
        self.share_quota();
        let mut lead = Lead::new();
        let mut running: Vec<GangId> = Vec::new();
        // the gangs whose arrival is being recorded, and all threads that existed before
        let mut watched: Option<(Vec<GangId>, Members)> = None;
        let mut last_watched = Nanos::ZERO;
        let mut prepared = self.prepare(now(), &running);
        loop {
            let Some(next) = prepared.take() else {
                // no gang takes turns; a notice reports the next change
                self.trace_end();
                running.clear();
                self.mechanism.apply(&self.standings(None))?;
                self.turn_status.turn(now(), &[]);
                let _ = self.alarm.wait_until(IDLE.after(now()));
                if self.listen() == Listened::Finish {
                    return Ok(());
                }
                prepared = self.prepare(now(), &running);
                continue;
            };
            let ReadyTurn { turn, standings, incoming, .. } = next;
            let members = match watched.take() {
                Some((gangs, members)) if gangs == incoming => Some(members),
                other => {
                    // the plan has changed since the recording began
                    if let (Some(_), Some(watcher)) = (other, &mut self.watcher) {
                        watcher.stop();
                    }
                    None
                }
            };
            self.mechanism.apply(&standings)?;
            let enforced = now();
            if let Some(holders) = holders {
                holders.let_go(turn.from, self.rotation.is_contended().then_some(turn.until));
            }
            // all other work can wait until this core runs the new gang, and mostly until shortly before the
            // next switch
            if !turn.backfill.is_empty() {
                let called = self.alarm.wait_until(settled(&turn)) == Woken::Called;
                self.mechanism.lend(&standings)?;
                if called {
                    self.alarm.call();
                }
            }
            if let Some(tracer) = &mut self.tracer {
                tracer.begin(enforced, enforced.since(turn.from), &turn.run, &turn.backfill);
            }
            if !incoming.is_empty() {
                if outcome.samples.enforced_us.len() < MAX_SAMPLES {
                    outcome.samples.enforced_us.push(enforced.since(turn.from).0 as f64 / 1e3);
                }
                outcome.switches += 1;
            }
            self.turn_status.turn(enforced, &turn.run);
            running = turn.run.iter().map(|place| place.gang).collect();
            if let Some(members) = members {
                self.watch(members, &turn, &mut outcome.samples);
            }
            // the next turn is prepared now, so that the moment of the switch has no other work
            prepared = self.prepare(turn.until, &running);
            let mut until = turn.until;
            loop {
                // while no gang has to wait, the end of a turn needs no switch
                let lone = !self.rotation.is_contended()
                    && prepared.as_ref().is_some_and(|next| next.incoming.is_empty());
                let watch = !lone
                    && watched.is_none()
                    && self.watcher.is_some()
                    && prepared
                        .as_ref()
                        .is_some_and(|next| next.is_watched(outcome, &self.resting, last_watched));
                let planned = prepared.as_ref().filter(|next| !next.incoming.is_empty()).map(|_| until);
                if let Some(holders) = holders {
                    holders.plan(planned);
                }
                let wake = match (lone, watch) {
                    (true, _) => IDLE.after(now()),
                    (_, true) => watch::begin(until),
                    _ => lead.before(until),
                };
                let late_already = now() >= wake;
                if self.alarm.wait_until(wake) == Woken::Time {
                    if lone {
                        continue;
                    }
                    if !watch {
                        if !late_already {
                            lead.learn(now().since(wake));
                        }
                        // the outgoing gang is stopped during the time in which this thread would only wait
                        // for the planned moment
                        if let Some(next) = prepared.as_ref().filter(|next| !next.incoming.is_empty()) {
                            self.mechanism.stop(&next.standings)?;
                        }
                        hold::spin_until(until);
                        break;
                    }
                    watched = prepared.as_ref().map(|next| (next.incoming.clone(), self.begin_to_watch()));
                    last_watched = until;
                    continue;
                }
                match self.listen() {
                    Listened::Finish => {
                        count_slices(outcome, &turn, until.min(now()));
                        return Ok(());
                    }
                    Listened::Nothing => {}
                    Listened::Continued => {
                        // the signal has undone the mechanism's stops, so the next turn applies all of them
                        // again
                        self.mechanism.release()?;
                        running.clear();
                        until = now();
                        self.rotation.take_back();
                        prepared = self.prepare(until, &running);
                    }
                    changed @ (Listened::Changed | Listened::Regrouped) => {
                        // the prepared turn may name gangs that have ended
                        running.retain(|gang| self.gangs.contains(gang) && !self.rotation.is_resting(*gang));
                        if running.is_empty() || lone {
                            until = now();
                        }
                        if changed == Listened::Regrouped {
                            let standings = self.standings(Some(&turn));
                            self.mechanism.apply(&standings)?;
                            self.mechanism.lend(&standings)?;
                        }
                        self.rotation.take_back();
                        prepared = self.prepare(until, &running);
                    }
                }
            }
            count_slices(outcome, &turn, until);
            if now() > slept_through(&turn).after(until) {
                self.rotation.take_back();
                prepared = self.prepare(now(), &running);
            }
        }
    }

    /// Decides the turn that begins at `from`.
    fn prepare(&mut self, from: Nanos, running: &[GangId]) -> Option<ReadyTurn> {
        if self.turns_by == TurnsBy::Clock {
            self.rotation.follow_clock(wall_ahead());
        }
        let turn = self.rotation.next_turn(from)?;
        let standings = self.standings(Some(&turn));
        let incoming =
            turn.run.iter().map(|place| place.gang).filter(|gang| !running.contains(gang)).collect();
        let is_unsure =
            |place: &SlotPlace| self.rotation.is_unsure(place.gang) || self.resting.is_unsure(place.gang);
        let unsure = turn.run.iter().any(is_unsure);
        Some(ReadyTurn { turn, standings, incoming, unsure })
    }

    /// The standing of each gang in a turn, or while no gang takes turns.
    fn standings(&self, turn: Option<&Turn>) -> Vec<(GangId, Standing)> {
        let standing = |gang: &GangId| {
            let runs = turn.is_some_and(|turn| turn.run.iter().any(|place| place.gang == *gang));
            if runs || self.rotation.is_resting(*gang) {
                Standing::Running
            } else if turn.is_some_and(|turn| turn.backfill.contains(gang)) {
                Standing::Backfill
            } else {
                Standing::Waiting
            }
        };
        self.gangs.iter().map(|gang| (*gang, standing(gang))).collect()
    }

    fn trace(&self, event: TraceEvent) {
        if let Some(tracer) = &self.tracer {
            tracer.tell(event);
        }
    }

    fn trace_end(&mut self) {
        if let Some(tracer) = &mut self.tracer {
            tracer.end(now());
        }
    }

    fn begin_to_watch(&mut self) -> Members {
        let mut members = Members::default();
        if let Some(watcher) = &mut self.watcher {
            members.look(&self.controls);
            watcher.start();
        }
        members
    }

    /// Reads the records of this turn, shortly before its end.
    fn watch(&mut self, mut members: Members, turn: &Turn, samples: &mut Samples) {
        let woken = self.alarm.wait_until(watch::end(turn.from, turn.until));
        let until = now();
        let records = self.watcher.as_mut().map(Watcher::stop);
        if woken == Woken::Called {
            // a gang that ends or changes during the recording must not be noticed late
            self.alarm.call();
            return;
        }
        let records = match records {
            None => return,
            Some(None) => {
                samples.unreadable += 1;
                return;
            }
            Some(Some(records)) => records,
        };
        // when the buffer was full, the turn counts as ended at the last record
        let until = records.full.unwrap_or(until).max(turn.from).min(until);
        let records = records.changes;
        members.look(&self.controls);
        let waits: Vec<GangId> = self
            .standings(Some(turn))
            .into_iter()
            .filter_map(|(gang, standing)| (standing == Standing::Waiting).then_some(gang))
            .collect();
        let runs: Vec<GangId> = turn.run.iter().map(|place| place.gang).collect();
        let cores: Vec<usize> = turn.run.iter().flat_map(|place| place.cores.clone()).collect();
        let arrival = self.arrival();
        let plan = WatchedTurn { from: turn.from, until, runs: &runs, waits: &waits, cores: &cores, arrival };
        for place in &turn.run {
            let used = plan.used(&records, &members, place.gang, place.cores.len());
            self.rotation.observe(place.gang, used.wanted, used.time);
            if self.resting.saw(place.gang, used, place.cores.len()) {
                self.own.push(Notice::Rests(place.gang));
                self.alarm.call();
            }
        }
        let found = plan.read(&records, &members);
        if let Some(found) = found {
            samples.leaked = found.leaked.after(samples.leaked);
            self.trace(TraceEvent::Leaked { at: turn.from, leaked: found.leaked });
            let watched = until.since(turn.from).times(self.cpus.len() as u64);
            samples.watched = watched.after(samples.watched);
        }
        match found.and_then(|found| found.started) {
            Some((first, last)) => {
                samples.switch_us.push(last.0 as f64 / 1e3);
                samples.skew_us.push(last.since(first).0 as f64 / 1e3);
            }
            None => samples.unfilled += 1,
        }
    }

    /// The effect of a switch on threads of the incoming gang; only turns of incoming gangs are recorded.
    fn arrival(&self) -> SwitchEffect {
        let version = self.controls.values().next().map(ControlGroup::version);
        if self.mechanism.kind() == MechanismKind::Freeze && version == Some(CgroupVersion::V2) {
            SwitchEffect::Woken
        } else {
            SwitchEffect::AsItWas
        }
    }

    fn listen(&mut self) -> Listened {
        let mut listened = Listened::Nothing;
        let mut notices = std::mem::take(&mut self.own);
        notices.extend(self.notices.try_iter());
        for notice in notices {
            let means = match notice {
                Notice::Finish => return Listened::Finish,
                Notice::Continued => Listened::Continued,
                Notice::Joins(JoiningGang { id, name, weight, owner, groups }, told) => {
                    let joined = self.mechanism.join(id, &groups);
                    if joined.is_ok() {
                        self.controls.insert(id, groups.control);
                        self.gangs.push(id);
                        self.rotation.join(id, weight);
                        self.rotation.belongs_to(id, owner);
                        self.rotation.name(id, &name);
                        self.trace(TraceEvent::Joined { gang: id, name });
                    }
                    let _ = told.send(joined); // nobody waits any more
                    Listened::Regrouped
                }
                Notice::Left(gang) => {
                    self.leave(gang);
                    self.trace(TraceEvent::Left { at: now(), gang });
                    Listened::Changed
                }
                Notice::Released(gang, told) => {
                    self.leave(gang);
                    self.trace(TraceEvent::Released { at: now(), gang });
                    let _ = told.send(()); // nobody waits any more
                    Listened::Changed
                }
                Notice::Weight(gang, weight) => {
                    self.rotation.set_weight(gang, weight);
                    Listened::Changed
                }
                Notice::Quota(gang, quota) => {
                    self.rotation.set_quota(gang, quota);
                    Listened::Changed
                }
                Notice::Slice(slice) => {
                    self.rotation.set_slice(slice);
                    Listened::Changed
                }
                Notice::Lengthen(factor) => {
                    self.rotation.lengthen(factor);
                    Listened::Changed
                }
                Notice::Rests(gang) if self.rotation.rest(gang) => {
                    self.mechanism.turns_or_rest(gang, TurnsOrRest::Rest);
                    self.resting.begins(gang, now());
                    self.turn_status.rest(gang, true);
                    Listened::Regrouped
                }
                Notice::Wakes(gang) if self.rotation.wake(gang) => {
                    self.mechanism.turns_or_rest(gang, TurnsOrRest::Turns);
                    self.resting.ends(gang, now());
                    self.turn_status.rest(gang, false);
                    Listened::Regrouped
                }
                Notice::Rests(_) | Notice::Wakes(_) => Listened::Nothing,
                Notice::Width(gang, width) => {
                    let fit = if width > self.cpus.len() { Fit::Queues } else { Fit::Fits };
                    self.mechanism.fit(gang, fit);
                    if self.rotation.set_width(gang, width) { Listened::Changed } else { Listened::Nothing }
                }
            };
            listened = listened.max(means);
        }
        listened
    }

    /// Gives each gang an equal part of the quota.
    fn share_quota(&mut self) {
        let Some(quota) = self.quota else { return };
        let part = quota.shared_by(self.gangs.len());
        self.gangs.iter().for_each(|gang| self.rotation.set_quota(*gang, Some(part)));
    }

    fn leave(&mut self, gang: GangId) {
        self.rotation.leave(gang);
        self.resting.ends(gang, now());
        self.gangs.retain(|other| *other != gang);
        self.controls.remove(&gang);
        self.mechanism.leave(gang);
        self.turn_status.leave(gang);
        self.share_quota();
    }
}

/// Counts the slices of a turn; a turn without a waiting gang may have lasted many.
fn count_slices(outcome: &mut SchedulerOutcome, turn: &Turn, until: Nanos) {
    let planned = turn.until.since(turn.from).0.max(1);
    let slices = until.since(turn.from).0.div_ceil(planned).max(1);
    for place in &turn.run {
        *outcome.slices.entry(place.gang).or_default() += slices;
    }
}

struct ReadyTurn {
    turn: Turn,
    standings: Vec<(GangId, Standing)>,
    incoming: Vec<GangId>,
    /// Whether one more check of a gang of this turn could change the lent cores.
    unsure: bool,
}

impl ReadyTurn {
    fn is_watched(&self, outcome: &SchedulerOutcome, resting: &Resting, last: Nanos) -> bool {
        let (from, length) = (self.turn.from, self.turn.until.since(self.turn.from));
        let again = self.unsure && watch::may_watch_again(last, from, length);
        let (turn, gangs) = (outcome.switches, self.standings.len());
        !self.incoming.is_empty() && (again || watch::is_watched(turn, resting.awake(), length, gangs))
    }
}

/// The lateness of a wake-up beyond which the machine was suspended, and the grid starts anew.
fn slept_through(turn: &Turn) -> Nanos {
    turn.until.since(turn.from)
}

/// The combined meaning of the notices since the last turn; a later variant includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Listened {
    Nothing,
    Changed,
    /// Gangs joined, rest, or take turns again: the standings that the mechanism applied for this turn are
    /// stale.
    Regrouped,
    Continued,
    Finish,
}

/// The time at which the machine has settled after a switch, at most a quarter of the turn after its start.
fn settled(turn: &Turn) -> Nanos {
    let settled = if turn.backfill.is_empty() { SETTLED } else { LENT };
    settled.min(Nanos(turn.until.since(turn.from).0 / 4)).after(turn.from)
}

/// Puts this thread above the threads that it schedules and has the other cores held at switches. Where the
/// mechanism stops gangs one thread after the other, it becomes real-time on a core of its own. Otherwise it
/// takes the deadline class, which cannot be bound to a core but is above gangs in real-time classes and not
/// throttled with them. If neither is permitted, the class does not change.
fn own_class(
    kind: MechanismKind,
    slice: Nanos,
    cpus: &[usize],
) -> (&'static str, std::result::Result<Option<Holders>, String>) {
    let mut holders = Ok(None);
    if let (MechanismKind::Freeze, Some((own, others))) = (kind, cpus.split_first()) {
        holders = Holders::post(others).map(Some);
        if holders.is_ok() && hold::take(*own) {
            return ("fifo", holders);
        }
    }
    let period = Duration::from(slice).clamp(Duration::from_millis(1), Duration::from_millis(10));
    let deadline = SchedulingPolicy::Deadline { runtime: period / 4, deadline: period, period };
    if scheduling::set_own(deadline, Children::Reset).is_ok() {
        return ("deadline", holders);
    }
    if scheduling::set_own(SchedulingPolicy::Fifo(Urgency::new(49)), Children::Reset).is_ok() {
        return ("fifo", holders);
    }
    ("fair", holders)
}
