//! The scheduler's thread: asks the policy, applies the mechanism, keeps the beat, takes the samples.

use super::arena::Arena;
use super::watch::{self, Before, Samples, Visitor};
use crate::error::Result;
use crate::gang::{GangId, Nanos};
use crate::matrix::Place;
use crate::mechanism::{Mechanism, Standing};
use crate::policy::{Rotation, Turn};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use unisono_linux::affinity::Tid;
use unisono_linux::scheduling::{self, Children, Policy, Urgency};
use unisono_linux::timer::{self, Alarm, Woken};

/// What the thread is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The gang has ended.
    Left(GangId),
    /// The gang can use so many cores at once.
    Width(GangId, usize),
    /// Release everybody and end.
    Finish,
}

/// Where each gang's cores are, for those who place threads.
pub(crate) type Places = Arc<Mutex<BTreeMap<GangId, Range<usize>>>>;

/// What the thread found when it ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) samples: Samples,
    pub(crate) switches: u64,
    pub(crate) slices: BTreeMap<GangId, u64>,
    /// How this thread itself was scheduled.
    pub(crate) class: &'static str,
    /// Why it stopped scheduling before its time.
    pub(crate) failure: Option<String>,
}

/// The thread's state.
pub(crate) struct Scheduler {
    pub(crate) rotation: Rotation,
    pub(crate) mechanism: Box<dyn Mechanism>,
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) cpus: Vec<usize>,
    pub(crate) visitor: Option<Visitor>,
    pub(crate) notices: Receiver<Notice>,
    pub(crate) alarm: Alarm,
    pub(crate) places: Places,
    pub(crate) gangs: Vec<GangId>,
}

impl Scheduler {
    /// Runs until told to finish; everybody is released at the end, also after a failure.
    pub(crate) fn run(mut self, slice: Nanos) -> Outcome {
        let mut outcome = Outcome { class: own_class(slice), ..Outcome::default() };
        if let Err(error) = self.turns(&mut outcome) {
            outcome.failure = Some(error.to_string());
        }
        if let Err(error) = self.mechanism.release() {
            outcome.failure.get_or_insert(error.to_string());
        }
        outcome
    }

    fn turns(&mut self, outcome: &mut Outcome) -> Result<()> {
        let mut running: Vec<GangId> = Vec::new();
        let mut prepared = self.prepare(Nanos(timer::now()), &running);
        loop {
            let Some(next) = prepared.take() else {
                // nobody is left; the end will be told
                let _ = self.alarm.wait_until(timer::now() + 1_000_000_000);
                if self.listen() == Listened::Finish {
                    return Ok(());
                }
                prepared = self.prepare(Nanos(timer::now()), &running);
                continue;
            };
            let Next { turn, standings, incoming } = next;
            let watched =
                watch::is_watched(outcome.switches, turn.until.since(turn.from)) && !incoming.is_empty();
            let before = match &self.arena {
                Some(arena) if watched => Some((Arc::clone(arena), Before::look(arena, &incoming))),
                _ => None,
            };
            // looking at the threads takes time that is not the switch's
            let decided = if before.is_some() { Nanos(timer::now().max(turn.from.0)) } else { turn.from };
            self.mechanism.apply(&standings)?;
            if !incoming.is_empty() {
                outcome.samples.enforced_us.push(Nanos(timer::now()).since(decided).0 as f64 / 1e3);
                outcome.switches += 1;
            }
            for place in &turn.run {
                *outcome.slices.entry(place.gang).or_default() += 1;
            }
            self.publish(&turn.run);
            running = turn.run.iter().map(|place| place.gang).collect();
            if let Some((arena, before)) = before {
                self.watch(&arena, before, &turn, decided, &mut outcome.samples);
            }
            // what comes next is decided now, so that the switch itself does nothing but switch
            prepared = self.prepare(turn.until, &running);
            let mut until = turn.until;
            while self.alarm.wait_until(until.0) == Woken::Called {
                match self.listen() {
                    Listened::Finish => return Ok(()),
                    Listened::Nothing => {}
                    Listened::Changed => {
                        // the turn that was prepared may name gangs that are gone
                        running.retain(|gang| self.gangs.contains(gang));
                        if running.is_empty() {
                            until = Nanos(timer::now());
                        }
                        self.rotation.take_back();
                        prepared = self.prepare(until, &running);
                    }
                }
            }
            if timer::now() > until.0 + slept_through(&turn) {
                self.rotation.take_back();
                prepared = self.prepare(Nanos(timer::now()), &running);
            }
        }
    }

    /// Decides the turn that begins at `from`.
    fn prepare(&mut self, from: Nanos, running: &[GangId]) -> Option<Next> {
        let turn = self.rotation.next_turn(from)?;
        let standings = self.standings(&turn);
        let incoming =
            turn.run.iter().map(|place| place.gang).filter(|gang| !running.contains(gang)).collect();
        Some(Next { turn, standings, incoming })
    }

    fn standings(&self, turn: &Turn) -> Vec<(GangId, Standing)> {
        let standing = |gang: &GangId| {
            if turn.run.iter().any(|place| place.gang == *gang) {
                Standing::Running
            } else if turn.backfill.contains(gang) {
                Standing::Backfill
            } else {
                Standing::Waiting
            }
        };
        self.gangs.iter().map(|gang| (*gang, standing(gang))).collect()
    }

    fn publish(&self, run: &[Place]) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        for place in run {
            if places.get(&place.gang) != Some(&place.cores) {
                places.insert(place.gang, place.cores.clone());
            }
        }
    }

    fn watch(&mut self, arena: &Arena, before: Before, turn: &Turn, decided: Nanos, samples: &mut Samples) {
        let waiting: Vec<GangId> = self
            .standings(turn)
            .into_iter()
            .filter_map(|(gang, standing)| (standing == Standing::Waiting).then_some(gang))
            .collect();
        let runs: Vec<GangId> = turn.run.iter().map(|place| place.gang).collect();
        timer::sleep_until(watch::first_look(decided));
        let mut overrun_ns = 0;
        if let Some((switch, skew)) = self.visitor.as_ref().and_then(|visitor| visitor.visit(before, decided))
        {
            samples.switch_us.push(switch);
            samples.skew_us.push(skew);
            overrun_ns = (switch * 1e3) as u64;
        }
        let (leak_from, run_from, from) =
            (watch::used(arena, &waiting, false), watch::used(arena, &runs, true), timer::now());
        // a gang that ends or changes while it is watched must not be noticed late
        if self.alarm.wait_until(watch::second_look(turn.until)) == Woken::Called {
            self.alarm.call();
            return;
        }
        let (leak_to, run_to) = (watch::used(arena, &waiting, false), watch::used(arena, &runs, true));
        let window = timer::now().saturating_sub(from);
        let difference = |to: &BTreeMap<GangId, u64>, from: &BTreeMap<GangId, u64>| -> u64 {
            to.iter().filter_map(|(gang, ns)| Some(ns.saturating_sub(*from.get(gang)?))).sum()
        };
        samples.leaked_ns += difference(&leak_to, &leak_from) + overrun_ns * self.cpus.len() as u64;
        samples.watched_ns += (window + 2_000_000) * self.cpus.len() as u64;
        for gang in runs {
            if let (Some(to), Some(from)) = (run_to.get(&gang), run_from.get(&gang)) {
                self.rotation.observe(gang, Nanos(to.saturating_sub(*from)), Nanos(window));
            }
        }
    }

    fn listen(&mut self) -> Listened {
        let mut listened = Listened::Nothing;
        for notice in self.notices.try_iter() {
            match notice {
                Notice::Finish => return Listened::Finish,
                Notice::Left(gang) => {
                    self.rotation.leave(gang);
                    self.gangs.retain(|other| *other != gang);
                    listened = Listened::Changed;
                }
                Notice::Width(gang, width) => {
                    if self.rotation.set_width(gang, width) {
                        listened = Listened::Changed;
                    }
                }
            }
        }
        listened
    }
}

/// A turn, ready to be applied.
struct Next {
    turn: Turn,
    standings: Vec<(GangId, Standing)>,
    incoming: Vec<GangId>,
}

/// A wake-up later than this is a pause of the machine, after which the grid starts anew.
fn slept_through(turn: &Turn) -> u64 {
    turn.until.since(turn.from).0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listened {
    Nothing,
    Changed,
    Finish,
}

/// Puts this thread above what it schedules: deadline class, else real-time, else as it is.
fn own_class(slice: Nanos) -> &'static str {
    let period = Duration::from(slice).clamp(Duration::from_millis(1), Duration::from_millis(10));
    let deadline = Policy::Deadline { runtime: period / 4, deadline: period, period };
    if scheduling::set(Tid::SELF, deadline, Children::Reset).is_ok() {
        return "deadline";
    }
    if scheduling::set(Tid::SELF, Policy::Fifo(Urgency::new(49)), Children::Reset).is_ok() {
        return "fifo";
    }
    "fair"
}
