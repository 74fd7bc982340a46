//! The scheduler's thread: asks the policy for turns, applies the mechanism on time, and records samples.

use super::hold::{self, Holders};
use super::resting::Resting;
use super::trace::{TraceEvent, Tracer};
use super::turn_status::TurnStatus;
use super::watch::{self, Members, Samples, SwitchEffect, WatchedTurn, Watcher};
use crate::cgroups::GangGroups;
use crate::error::Result;
use crate::gang::{GangId, GangOwner, GangWeight};
use crate::mechanism::{Fit, Mechanism, MechanismKind, Standing, TurnsOrRest};
use crate::policy::{Rotation, Turn};
use crate::turn_quota::TurnQuota;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration as StdDuration;
use unisono_linux::cgroup::{CgroupVersion, ControlGroup};
use unisono_linux::clock::{self, Duration};
use unisono_linux::scheduling::{self, Children, SchedulingPolicy, Urgency};
use unisono_linux::timer::{Sleeper, Woken};

#[derive(Debug)]
pub(crate) enum Notice {
    /// A new gang, which runs without turns so far. The answer is sent when the gang takes turns, or when the
    /// mechanism refuses it.
    Joins(JoiningGang, Sender<Result<()>>),
    Left(GangId),
    /// Stops scheduling a gang whose processes live on. The answer is sent when the processes run and will
    /// not be stopped again.
    Released(GangId, Sender<()>),
    Weight(GangId, GangWeight),
    Slice(Duration),
    /// Multiplies the length of turns by this factor from now on.
    Lengthen(u32),
    /// The gang runs all the time from now on. `Wakes`: it takes turns again.
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
    /// The time of day, which is the same on all hosts, determines the next turn.
    Clock,
}

/// The results of the thread, available after its end.
#[derive(Debug, Default)]
pub(crate) struct SchedulerOutcome {
    pub(crate) samples: Samples,
    pub(crate) switches: u64,
    pub(crate) slices: BTreeMap<GangId, u64>,
    /// Time for which each gang ran without turns because it blocked.
    pub(crate) rested: BTreeMap<GangId, Duration>,
    /// The scheduling class of this thread.
    pub(crate) class: &'static str,
    /// Why cores are not held during switches, although the caller asked for that.
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

impl GangScheduler {
    /// Runs until [`Notice::Finish`]; all gangs are released at the end, also after a failure.
    pub(crate) fn run(mut self, slice: Duration) -> SchedulerOutcome {
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
        outcome.rested = std::mem::take(&mut self.resting).rested(clock::now());
        if let Err(error) = self.mechanism.release() {
            outcome.failure.get_or_insert(error.to_string());
        }
        outcome
    }

    pub(super) fn trace(&self, event: TraceEvent) {
        if let Some(tracer) = &self.tracer {
            tracer.record(event);
        }
    }

    pub(super) fn trace_end(&mut self) {
        if let Some(tracer) = &mut self.tracer {
            tracer.end(clock::now());
        }
    }

    pub(super) fn begin_to_watch(&mut self) -> Members {
        let mut members = Members::default();
        if let Some(watcher) = &mut self.watcher {
            members.add_threads(&self.controls);
            watcher.start();
        }
        members
    }

    /// Reads the records of this turn, shortly before its end.
    pub(super) fn watch(&mut self, mut members: Members, turn: &Turn, samples: &mut Samples) {
        let woken = self.alarm.wait_until(watch::end(turn.from, turn.until));
        let until = clock::now();
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
        members.add_threads(&self.controls);
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
            samples.leaked += found.leaked;
            self.trace(TraceEvent::Leaked { at: turn.from, leaked: found.leaked });
            let watched = (until - turn.from) * (self.cpus.len() as u64);
            samples.watched += watched;
        }
        match found.and_then(|found| found.started) {
            Some((first, last)) => {
                samples.switch_us.push(last.as_nanos() as f64 / 1e3);
                samples.skew_us.push((last - first).as_nanos() as f64 / 1e3);
            }
            None => samples.unfilled += 1,
        }
    }

    /// Returns the effect of a switch on threads of the incoming gang; only turns of incoming gangs are
    /// recorded.
    fn arrival(&self) -> SwitchEffect {
        let version = self.controls.values().next().map(ControlGroup::version);
        if self.mechanism.kind() == MechanismKind::Freeze && version == Some(CgroupVersion::V2) {
            SwitchEffect::Woken
        } else {
            SwitchEffect::Unchanged
        }
    }

    pub(super) fn handle_notices(&mut self) -> NoticeEffect {
        let mut effect = NoticeEffect::Nothing;
        let mut notices = std::mem::take(&mut self.own);
        notices.extend(self.notices.try_iter());
        for notice in notices {
            let handled = match notice {
                Notice::Finish => return NoticeEffect::Finish,
                Notice::Continued => NoticeEffect::Continued,
                Notice::Joins(JoiningGang { id, name, weight, owner, groups }, reply) => {
                    let joined = self.mechanism.join(id, &groups);
                    if joined.is_ok() {
                        self.controls.insert(id, groups.control);
                        self.gangs.push(id);
                        self.rotation.join(id, weight);
                        self.rotation.belongs_to(id, owner);
                        self.rotation.name(id, &name);
                        self.trace(TraceEvent::Joined { gang: id, name });
                    }
                    let _ = reply.send(joined); // nobody waits any more
                    NoticeEffect::Regrouped
                }
                Notice::Left(gang) => {
                    self.remove(gang);
                    self.trace(TraceEvent::Left { at: clock::now(), gang });
                    NoticeEffect::Changed
                }
                Notice::Released(gang, reply) => {
                    self.remove(gang);
                    self.trace(TraceEvent::Released { at: clock::now(), gang });
                    let _ = reply.send(()); // nobody waits any more
                    NoticeEffect::Changed
                }
                Notice::Weight(gang, weight) => {
                    self.rotation.set_weight(gang, weight);
                    NoticeEffect::Changed
                }
                Notice::Quota(gang, quota) => {
                    self.rotation.set_quota(gang, quota);
                    NoticeEffect::Changed
                }
                Notice::Slice(slice) => {
                    self.rotation.set_slice(slice);
                    NoticeEffect::Changed
                }
                Notice::Lengthen(factor) => {
                    self.rotation.lengthen(factor);
                    NoticeEffect::Changed
                }
                Notice::Rests(gang) if self.rotation.begin_rest(gang) => {
                    self.mechanism.set_turns_or_rest(gang, TurnsOrRest::Rest);
                    self.resting.begins(gang, clock::now());
                    self.turn_status.set_resting(gang, true);
                    NoticeEffect::Regrouped
                }
                Notice::Wakes(gang) if self.rotation.wake(gang) => {
                    self.mechanism.set_turns_or_rest(gang, TurnsOrRest::Turns);
                    self.resting.ends(gang, clock::now());
                    self.turn_status.set_resting(gang, false);
                    NoticeEffect::Regrouped
                }
                Notice::Rests(_) | Notice::Wakes(_) => NoticeEffect::Nothing,
                Notice::Width(gang, width) => {
                    let fit = if width > self.cpus.len() { Fit::Queues } else { Fit::Fits };
                    self.mechanism.fit(gang, fit);
                    if self.rotation.set_width(gang, width) {
                        NoticeEffect::Changed
                    } else {
                        NoticeEffect::Nothing
                    }
                }
            };
            effect = effect.max(handled);
        }
        effect
    }

    /// Gives each gang an equal part of the quota.
    pub(super) fn share_quota(&mut self) {
        let Some(quota) = self.quota else { return };
        let part = quota.shared_by(self.gangs.len());
        self.gangs.iter().for_each(|gang| self.rotation.set_quota(*gang, Some(part)));
    }

    fn remove(&mut self, gang: GangId) {
        self.rotation.remove(gang);
        self.resting.ends(gang, clock::now());
        self.gangs.retain(|other| *other != gang);
        self.controls.remove(&gang);
        self.mechanism.remove(gang);
        self.turn_status.remove(gang);
        self.share_quota();
    }
}

/// The combined meaning of the notices since the last turn; a later variant includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NoticeEffect {
    Nothing,
    Changed,
    /// Gangs joined, rest, or take turns again: the standings that the mechanism applied for this turn are
    /// stale.
    Regrouped,
    /// The programs were stopped and have continued: the mechanism's stops are undone.
    Continued,
    Finish,
}

/// Puts this thread above the threads that it schedules. With [`MechanismKind::Freeze`], which stops a gang's
/// threads one after the other, this thread becomes real-time on a single core, and holders keep the other
/// cores during switches. With another mechanism, or if that is refused, it takes the deadline class, which
/// cannot be bound to a core but is above gangs in real-time classes and not throttled with them. If neither
/// is permitted, the class does not change.
fn own_class(
    kind: MechanismKind,
    slice: Duration,
    cpus: &[usize],
) -> (&'static str, std::result::Result<Option<Holders>, String>) {
    let mut holders = Ok(None);
    if let (MechanismKind::Freeze, Some((own, others))) = (kind, cpus.split_first()) {
        holders = Holders::post(others).map(Some);
        if holders.is_ok() && hold::take(*own) {
            return ("fifo", holders);
        }
    }
    let period = StdDuration::from(slice.clamp(Duration::from_millis(1), Duration::from_millis(10)));
    let deadline = SchedulingPolicy::Deadline { runtime: period / 4, deadline: period, period };
    if scheduling::set_own(deadline, Children::Reset).is_ok() {
        return ("deadline", holders);
    }
    if scheduling::set_own(SchedulingPolicy::Fifo(Urgency::new(49)), Children::Reset).is_ok() {
        return ("fifo", holders);
    }
    ("fair", holders)
}
