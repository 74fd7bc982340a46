//! Computes the episodes of a program in one step while all its threads run at the same time.
//!
//! While no thread of a program is stopped, an episode lasts as long as its slowest thread computes, plus the
//! cost of the barrier. So the episodes are added up without an event for each thread, up to the first
//! episode in which a thread would block. If a thread is stopped before that,
//! [`end_joint_run`](CoreSimulation::end_joint_run) computes the same episodes again, up to that moment, and
//! sets the state of every thread. The random draws are the same, so the result does not depend on when
//! `end_joint_run` is called.
//!
//! Cost: with variance, one random draw per thread and barrier. Without variance, many barriers are added in
//! one step, so their number costs nothing.

use super::model::{Meets, SimulatedWait};
use super::program::draw;
use super::state::{CoreSimulation, EpisodeRow, Event, NEVER, ProgramState, ThreadActivity, Together};

/// Maximum number of episodes with variance that are computed ahead; bounds the work done twice.
const AHEAD: u64 = 4096;

impl ProgramState<'_> {
    /// Returns the time for which a thread spins before it blocks.
    fn spin_budget(&self) -> u64 {
        match self.description.wait {
            SimulatedWait::Spin => NEVER,
            SimulatedWait::SpinBlock(budget) => budget.as_nanos(),
            SimulatedWait::Block => 0,
        }
    }

    /// Adds whole episodes that end by `until`, at most `max_rows` of them.
    fn add_up(&self, mut row: EpisodeRow, until: u64, max_rows: u64) -> EpisodeRow {
        let (description, barrier) = (self.description, self.barrier);
        let threads = description.threads as u64;
        let phases = u64::from(description.light_barriers) + 1;
        let max_rows = row.count.saturating_add(max_rows);
        let has_chance = !description.variance.is_zero();
        while row.count < max_rows {
            if !has_chance && row.phase == 0 {
                // Without variance all rounds are alike: this step adds as many whole rounds as fit.
                let work = description.interval.map_or(0, |interval| interval.as_nanos());
                let round = barrier * phases + work;
                let rounds = ((until - row.end) / round).min((max_rows - row.count) / phases);
                row.end += rounds * round;
                row.count += rounds * phases;
                row.work += rounds * work * threads;
            }
            let mut generator = row.generator.clone();
            let (mut shortest, mut longest, mut sum) = (u64::MAX, 0, 0);
            for _ in 0..threads {
                let one = draw(description, row.phase, &mut generator);
                shortest = shortest.min(one);
                longest = longest.max(one);
                sum += one;
            }
            let length = barrier + longest;
            if row.count >= max_rows || length > until - row.end || longest - shortest > self.spin_budget() {
                break;
            }
            row.end += length;
            row.count += 1;
            row.work += sum;
            row.generator = generator;
            row.phase = (row.phase + 1) % phases as u32;
        }
        row
    }
}

impl CoreSimulation<'_> {
    /// Computes the next episodes of a program ahead, if all its threads have just met and none is blocked.
    /// Returns whether it did.
    pub(super) fn go_together(&mut self, p: usize) -> bool {
        let program = &self.programs[p];
        let description = program.description;
        let may = description.meets == Meets::AtBarriers
            && description.wait != SimulatedWait::Block
            && description.pause.is_zero()
            && description.interval.is_some();
        let runs = |t: usize| {
            let thread = &self.threads[t];
            thread.overhead == 0 && self.cores[thread.core].current == Some(t)
        };
        if !may || !program.threads().all(runs) {
            return false;
        }
        let before = EpisodeRow {
            end: self.now,
            generator: program.generator.clone(),
            phase: program.phase,
            count: 0,
            work: 0,
        };
        // The last barrier of a job or program is not computed ahead: an event has to end the job or program
        // there.
        let left = program.barriers_left.map_or(u64::MAX, |left| left.saturating_sub(1));
        let max_rows = if description.variance.is_zero() { left } else { left.min(AHEAD) };
        let ahead = program.add_up(before.clone(), self.end.max(self.now), max_rows);
        if ahead.count == 0 {
            return false;
        }
        let end = ahead.end;
        let threads = program.threads();
        let program = &mut self.programs[p];
        program.together = Some(Together { since: self.now, before, ahead });
        program.together_number += 1;
        let number = program.together_number;
        self.at(end, Event::Together(p, number));
        for t in threads {
            self.plan(self.threads[t].core);
        }
        true
    }

    pub(super) fn together_event(&mut self, p: usize, number: u64) {
        if self.programs[p].together_number == number {
            self.end_joint_run(p);
        }
    }

    /// Ends the joint computation of a program's threads, if there is one: sets the present state of each
    /// thread.
    pub(super) fn end_joint_run(&mut self, p: usize) {
        if self.programs[p].together.is_none() {
            return;
        }
        let threads = self.programs[p].threads();
        for t in threads.clone() {
            self.charge(self.threads[t].core);
        }
        let Some(together) = self.programs[p].together.take() else { return };
        let program = &mut self.programs[p];
        let barrier = program.barrier;
        let row = if self.now == together.ahead.end {
            together.ahead
        } else {
            program.add_up(together.before, self.now, together.ahead.count)
        };
        program.barriers += row.count;
        program.barriers_left = program.barriers_left.map(|left| left - row.count);
        program.generator = row.generator;
        program.phase = row.phase;
        let count = threads.len() as u64;
        let begun = self.now - row.end;
        let spin_budget = program.spin_budget();
        let mut work = row.work;
        let overhead = row.count * barrier * count + begun.min(barrier) * count;
        for t in threads.clone() {
            let computes = program.draw();
            let done = begun.saturating_sub(barrier).min(computes);
            work += done;
            let thread = &mut self.threads[t];
            thread.overhead = barrier - begun.min(barrier);
            thread.activity = if begun >= barrier && done == computes {
                program.arrived += 1;
                ThreadActivity::Spin((row.end + barrier + computes).saturating_add(spin_budget))
            } else {
                ThreadActivity::Compute(computes - done)
            };
        }
        program.work += work;
        program.overhead += overhead;
        program.spun += count * (self.now - together.since) - work - overhead;
        for t in threads {
            self.plan(self.threads[t].core);
        }
    }
}
