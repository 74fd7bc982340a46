//! The loop of turns: applies each turn on time, prepares the next one, and handles notices in between.
//!
//! ```text
//!   prepare -> begin_turn: apply, lend cores, record the switch -> wait_for_end: notices, stop early -> ...
//!      ^                                                                  |
//!      '------------------------------------------------------------------'
//! ```

use super::hold::{self, Holders, Lead};
use super::resting::Resting;
use super::scheduler::{GangScheduler, NoticeEffect, SchedulerOutcome, TurnsBy};
use super::watch::{self, Members};
use crate::error::Result;
use crate::gang::GangId;
use crate::matrix::SlotPlace;
use crate::mechanism::Standing;
use crate::policy::Turn;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::timer::Woken;

/// Time to wait when there is nothing to switch; a notice ends it early.
const MAX_IDLE_WAIT: Duration = Duration::from_secs(60);
/// Maximum number of switches whose lateness is recorded: 8 MiB, almost six hours of turns of 20 ms.
const MAX_SAMPLES: usize = 1 << 20;
/// Time from a switch to the scheduler's next activity: meanwhile its own core has to run the new gang. The
/// delay ends after the next tick: if it ended earlier, the hardware timer would have to be set anew, which
/// takes 8 us in a virtual machine.
const SETTLE_DELAY: Duration = Duration::from_micros(4200);
/// Replaces [`SETTLE_DELAY`] if cores are lent. Until then the cores are idle, so the delay is just long
/// enough for a switch to be over (24 to 32 us with 2 threads a gang, 76 to 165 with 64; gang run, slices of
/// 20 ms).
const LENDING_DELAY: Duration = Duration::from_micros(200);

/// The state of the loop between two switches.
struct TurnLoop<'a> {
    holders: Option<&'a Holders>,
    lead: Lead,
    running: Vec<GangId>,
    /// The gangs whose arrival is being recorded, and all threads that existed before.
    recording: Option<(Vec<GangId>, Members)>,
    /// The last switch for which a recording was begun.
    last_recording: Instant,
    prepared: Option<ReadyTurn>,
}

/// The end of a turn.
enum TurnEnd {
    Switch(Instant),
    Finish(Instant),
}

impl GangScheduler {
    /// Takes turns until [`Notice::Finish`](super::scheduler::Notice::Finish).
    pub(super) fn turns(&mut self, outcome: &mut SchedulerOutcome, holders: Option<&Holders>) -> Result<()> {
        self.share_quota();
        let mut state = TurnLoop {
            holders,
            lead: Lead::new(),
            running: Vec::new(),
            recording: None,
            last_recording: Instant::ZERO,
            prepared: self.prepare(clock::now(), &[]),
        };
        loop {
            let Some(next) = state.prepared.take() else {
                if self.wait_without_turns(&mut state)? == NoticeEffect::Finish {
                    return Ok(());
                }
                continue;
            };
            let turn = self.begin_turn(next, &mut state, outcome)?;
            let until = match self.wait_for_end(&turn, &mut state, outcome)? {
                TurnEnd::Switch(until) => until,
                TurnEnd::Finish(until) => {
                    count_slices(outcome, &turn, until);
                    return Ok(());
                }
            };
            count_slices(outcome, &turn, until);
            if clock::now() > until + slept_through(&turn) {
                self.rotation.undo_turn();
                state.prepared = self.prepare(clock::now(), &state.running);
            }
        }
    }

    /// Waits for a notice while no gang takes turns.
    fn wait_without_turns(&mut self, state: &mut TurnLoop<'_>) -> Result<NoticeEffect> {
        self.trace_end();
        state.running.clear();
        self.mechanism.apply(&self.standings(None))?;
        self.turn_status.turn(clock::now(), &[]);
        let _ = self.alarm.wait_until(clock::now() + MAX_IDLE_WAIT);
        let effect = self.handle_notices();
        if effect != NoticeEffect::Finish {
            state.prepared = self.prepare(clock::now(), &state.running);
        }
        Ok(effect)
    }

    /// Switches to a prepared turn, records the switch, and prepares the next turn.
    fn begin_turn(
        &mut self,
        next: ReadyTurn,
        state: &mut TurnLoop<'_>,
        outcome: &mut SchedulerOutcome,
    ) -> Result<Turn> {
        let ReadyTurn { turn, standings, incoming, .. } = next;
        let members = match state.recording.take() {
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
        let enforced = clock::now();
        if let Some(holders) = state.holders {
            holders.release(turn.from, self.rotation.is_contended().then_some(turn.until));
        }
        // all other work can wait until this core runs the new gang, and mostly until shortly before the next
        // switch
        if !turn.backfill.is_empty() {
            let called = self.alarm.wait_until(settled(&turn)) == Woken::Called;
            self.mechanism.lend(&standings)?;
            if called {
                self.alarm.call();
            }
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.begin(enforced, enforced - turn.from, &turn.run, &turn.backfill);
        }
        if !incoming.is_empty() {
            if outcome.samples.enforced_us.len() < MAX_SAMPLES {
                outcome.samples.enforced_us.push((enforced - turn.from).as_nanos() as f64 / 1e3);
            }
            outcome.switches += 1;
        }
        self.turn_status.turn(enforced, &turn.run);
        state.running = turn.run.iter().map(|place| place.gang).collect();
        if let Some(members) = members {
            self.watch(members, &turn, &mut outcome.samples);
        }
        // the next turn is prepared now, so that the moment of the switch has no other work
        state.prepared = self.prepare(turn.until, &state.running);
        Ok(turn)
    }

    /// Waits until the turn ends, and handles notices meanwhile.
    fn wait_for_end(
        &mut self,
        turn: &Turn,
        state: &mut TurnLoop<'_>,
        outcome: &SchedulerOutcome,
    ) -> Result<TurnEnd> {
        let mut until = turn.until;
        loop {
            let switches = state.prepared.as_ref().is_some_and(|next| !next.incoming.is_empty());
            // while no gang has to wait, the end of a turn needs no switch
            let lone = !self.rotation.is_contended() && state.prepared.is_some() && !switches;
            let record = !lone
                && state.recording.is_none()
                && self.watcher.is_some()
                && state
                    .prepared
                    .as_ref()
                    .is_some_and(|next| next.is_watched(outcome, &self.resting, state.last_recording));
            if let Some(holders) = state.holders {
                holders.plan(switches.then_some(until));
            }
            let wake = match (lone, record) {
                (true, _) => clock::now() + MAX_IDLE_WAIT,
                (_, true) => watch::begin(until),
                _ => state.lead.before(until),
            };
            let late_already = clock::now() >= wake;
            match self.alarm.wait_until(wake) {
                Woken::Time if lone => {}
                Woken::Time if record => {
                    let incoming = state.prepared.as_ref().map(|next| next.incoming.clone());
                    state.recording = incoming.map(|incoming| (incoming, self.begin_to_watch()));
                    state.last_recording = until;
                }
                Woken::Time => {
                    if !late_already {
                        state.lead.learn(clock::now() - wake);
                    }
                    // the outgoing gang is stopped during the time in which this thread would only wait for
                    // the planned moment
                    if let Some(next) = state.prepared.as_ref().filter(|_| switches) {
                        self.mechanism.stop(&next.standings)?;
                    }
                    hold::spin_until(until);
                    return Ok(TurnEnd::Switch(until));
                }
                Woken::Called => match self.handle_notices() {
                    NoticeEffect::Finish => return Ok(TurnEnd::Finish(until.min(clock::now()))),
                    NoticeEffect::Nothing => {}
                    changed => {
                        until = self.follow(changed, turn, state, if lone { clock::now() } else { until })?;
                    }
                },
            }
        }
    }

    /// Replaces the prepared next turn after a change; returns the end of the present turn.
    fn follow(
        &mut self,
        changed: NoticeEffect,
        turn: &Turn,
        state: &mut TurnLoop<'_>,
        planned: Instant,
    ) -> Result<Instant> {
        let mut until = planned;
        if changed == NoticeEffect::Continued {
            // the signal has undone the mechanism's stops, so the next turn applies all of them again
            self.mechanism.release()?;
            state.running.clear();
        } else {
            // the prepared turn may name gangs that have ended
            state.running.retain(|gang| self.gangs.contains(gang) && !self.rotation.is_resting(*gang));
        }
        if state.running.is_empty() {
            until = clock::now();
        }
        if changed == NoticeEffect::Regrouped {
            let standings = self.standings(Some(turn));
            self.mechanism.apply(&standings)?;
            self.mechanism.lend(&standings)?;
        }
        self.rotation.undo_turn();
        state.prepared = self.prepare(until, &state.running);
        Ok(until)
    }

    /// Decides the turn that begins at `from`.
    fn prepare(&mut self, from: Instant, running: &[GangId]) -> Option<ReadyTurn> {
        if self.turns_by == TurnsBy::Clock {
            self.rotation.follow_clock(clock::wall_ahead());
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

    /// Returns the standing of each gang in a turn, or while no gang takes turns.
    pub(super) fn standings(&self, turn: Option<&Turn>) -> Vec<(GangId, Standing)> {
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
}

/// Counts the slices of a turn; a turn without a waiting gang may have lasted many.
fn count_slices(outcome: &mut SchedulerOutcome, turn: &Turn, until: Instant) {
    let planned = (turn.until - turn.from).as_nanos().max(1);
    let slices = (until - turn.from).as_nanos().div_ceil(planned).max(1);
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
    fn is_watched(&self, outcome: &SchedulerOutcome, resting: &Resting, last: Instant) -> bool {
        let (from, length) = (self.turn.from, self.turn.until - self.turn.from);
        let again = self.unsure && watch::may_watch_again(last, from, length);
        let (turn, gangs) = (outcome.switches, self.standings.len());
        !self.incoming.is_empty() && (again || watch::is_watched(turn, resting.awake(), length, gangs))
    }
}

/// Returns the lateness of a wake-up beyond which the machine counts as suspended, and the grid of turns
/// starts anew.
fn slept_through(turn: &Turn) -> Duration {
    turn.until - turn.from
}

/// Returns the time at which the machine has settled after a switch, at most a quarter of the turn after its
/// start.
fn settled(turn: &Turn) -> Instant {
    let settled = if turn.backfill.is_empty() { SETTLE_DELAY } else { LENDING_DELAY };
    turn.from + settled.min((turn.until - turn.from) / 4)
}
