//! The actions of a thread in sequence: compute, pause, meet at a barrier, take the next job.

use super::model::{Meets, Sharing, SimulatedWait};
use super::state::{CoreSimulation, Event, ThreadActivity};
use rand::Rng;

/// Time between the starts of a program's threads where the kernel places them (ns): about as long as
/// clone(2) takes.
const START: u64 = 20_000;

impl CoreSimulation<'_> {
    /// Handles the arrival of a program. Its threads start one after the other, or wait for a turn or a job.
    pub(super) fn arrive(&mut self, p: usize) {
        let cores = self.machine.cores;
        let takes_turns = self.turns.decides();
        let count = self.programs.len();
        let description = self.programs[p].description;
        self.programs[p].is_here = true;
        let threads = self.programs[p].threads();
        for (number, t) in threads.clone().enumerate() {
            let allowed = match self.sharing {
                Sharing::Linux => (0, cores),
                Sharing::Partition => (p * cores / count, (p + 1) * cores / count - p * cores / count),
                _ => (number % cores, 1),
            };
            // the core where the thread was born, or slept before the work began: any core
            let core = allowed.0 + self.chance.random_range(0..allowed.1);
            let thread = &mut self.threads[t];
            (thread.allowed, thread.core, thread.held) = (allowed, core, takes_turns);
        }
        let own_cores = if self.sharing == Sharing::Partition { (cores / count).max(1) } else { cores };
        let used_cores = description.threads.min(own_cores);
        let barrier = self.machine.costs.barrier_of(used_cores, self.machine.cache_cores);
        self.programs[p].barrier = barrier.as_nanos();
        if let Some(quota) = description.quota {
            self.at(self.now + quota.period.as_nanos(), Event::Period(p));
        }
        if description.jobs.is_some() {
            threads.for_each(|t| self.threads[t].activity = ThreadActivity::Wait);
            self.at(self.now, Event::Job(p));
        } else {
            let apart = if matches!(self.sharing, Sharing::Linux | Sharing::Partition) { START } else { 0 };
            for (number, t) in (0..).zip(threads) {
                let computes = self.next_computation(p, t);
                self.threads[t].activity = ThreadActivity::Compute(computes);
                let jitter = if apart > 0 { self.chance.random_range(0..apart) } else { 0 };
                self.at(self.now + number * apart + jitter, Event::Wake(t));
            }
        }
        self.join(p);
    }

    fn next_computation(&mut self, p: usize, t: usize) -> u64 {
        let program = &mut self.programs[p];
        let drawn = program.draw();
        if program.description.meets == Meets::AtBarriers {
            return drawn;
        }
        let own = &mut program.to_do[t - program.first];
        let now = drawn.min(*own);
        if *own < u64::MAX {
            *own -= now;
        }
        now
    }

    /// Handles the end of the present action of the thread that runs on `c`.
    pub(super) fn done(&mut self, c: usize, t: usize) {
        let thread = &self.threads[t];
        match thread.activity {
            _ if thread.overhead > 0 => self.plan(c),
            ThreadActivity::Compute(0) if !self.programs[thread.program].description.pause.is_zero() => {
                self.pause(c, t);
            }
            ThreadActivity::Compute(0) | ThreadActivity::Pause => self.meet(c, t),
            ThreadActivity::Spin(until) if until <= self.now => self.block(c, t),
            _ => self.plan(c),
        }
    }

    fn pause(&mut self, c: usize, t: usize) {
        let third = self.machine.costs.block.as_nanos() / 3;
        let until = self.now + self.programs[self.threads[t].program].description.pause.as_nanos();
        self.take(t);
        let thread = &mut self.threads[t];
        (thread.activity, thread.wants, thread.woken_from) = (ThreadActivity::Pause, false, None);
        thread.overhead += 2 * third;
        self.at(until, Event::Wake(t));
        self.choose(c);
    }

    fn meet(&mut self, c: usize, t: usize) {
        let p = self.threads[t].program;
        let program = &mut self.programs[p];
        if program.description.meets == Meets::Never {
            program.barriers += 1;
            let computes = self.next_computation(p, t);
            if computes > 0 {
                self.threads[t].activity = ThreadActivity::Compute(computes);
                self.plan(c);
            } else {
                self.end_thread(c, t);
            }
            return;
        }
        program.arrived += 1;
        if program.arrived == program.description.threads {
            self.release(c, t);
            return;
        }
        let until = match program.description.wait {
            SimulatedWait::Spin => u64::MAX,
            SimulatedWait::SpinBlock(budget) => self.now + budget.as_nanos(),
            SimulatedWait::Block => self.now,
        };
        self.threads[t].activity = ThreadActivity::Spin(until);
        self.plan(c);
    }

    /// Takes the thread off its processor until another thread wakes it.
    fn block(&mut self, c: usize, t: usize) {
        self.programs[self.threads[t].program].blocks += 1;
        self.take(t);
        (self.threads[t].activity, self.threads[t].wants) = (ThreadActivity::Wait, false);
        self.choose(c);
        // a third of the cost of blocking falls on this core
        if let Some(next) = self.cores[c].current {
            self.threads[next].overhead += self.machine.costs.block.as_nanos() / 3;
            self.plan(c);
        }
    }

    /// Releases a barrier whose last thread has arrived, on core `c`: all threads continue.
    fn release(&mut self, c: usize, last: usize) {
        let p = self.threads[last].program;
        let program = &mut self.programs[p];
        program.barriers += 1;
        program.arrived = 0;
        program.next_phase();
        if let Some(left) = &mut program.barriers_left {
            *left -= 1;
            if *left == 0 && !self.next_job(p) {
                return;
            }
        }
        let threads = self.programs[p].threads();
        let nobody_waits = threads.clone().all(|t| self.threads[t].activity != ThreadActivity::Wait);
        if nobody_waits {
            for t in threads.clone() {
                self.charge(self.threads[t].core);
            }
            if self.go_together(p) {
                return;
            }
        }
        let (barrier, third) = (self.programs[p].barrier, self.machine.costs.block.as_nanos() / 3);
        let mut woken = 0;
        for t in threads {
            let computes = self.programs[p].draw();
            let core = self.threads[t].core;
            let runs = self.cores[core].current == Some(t);
            if runs {
                self.charge(core);
            }
            let thread = &mut self.threads[t];
            let waited = thread.activity == ThreadActivity::Wait;
            thread.activity = ThreadActivity::Compute(computes);
            if waited {
                woken += 1;
                thread.overhead += third;
                thread.woken_from = Some(c);
                self.at(self.now + woken * third, Event::Wake(t));
            } else {
                thread.overhead += barrier;
                if runs && t != last {
                    self.plan(core);
                }
            }
        }
        self.threads[last].overhead += woken * third;
        self.plan(c);
    }

    /// Handles the arrival of a job, or of several at once.
    pub(super) fn job(&mut self, p: usize) {
        let program = &mut self.programs[p];
        let Some(jobs) = program.description.jobs else { return };
        for _ in 0..jobs.together {
            program.jobs.push_back(self.now);
        }
        self.at(self.now + jobs.every.as_nanos() * u64::from(jobs.together), Event::Job(p));
        if self.programs[p].job.is_some() || !self.begin_job(p) {
            return;
        }
        for (number, t) in (1..).zip(self.programs[p].threads()) {
            let computes = self.programs[p].draw();
            let third = self.machine.costs.block.as_nanos() / 3;
            let thread = &mut self.threads[t];
            (thread.activity, thread.woken_from) = (ThreadActivity::Compute(computes), None);
            thread.overhead += third;
            self.at(self.now + number * third, Event::Wake(t));
        }
    }

    fn begin_job(&mut self, p: usize) -> bool {
        let program = &mut self.programs[p];
        program.job = program.jobs.pop_front();
        program.barriers_left =
            program.description.jobs.filter(|_| program.job.is_some()).map(|job| job.barriers);
        program.phase = 0;
        program.job.is_some()
    }

    /// Ends a job, or the program, after its last barrier. Returns whether the program continues at once with
    /// the next job.
    fn next_job(&mut self, p: usize) -> bool {
        let program = &mut self.programs[p];
        let Some(since) = program.job else {
            self.end(p);
            return false;
        };
        program.latencies.push(self.now - since);
        if self.begin_job(p) {
            return true;
        }
        self.stop_threads(p, ThreadActivity::Wait);
        false
    }

    fn stop_threads(&mut self, p: usize, activity: ThreadActivity) {
        let mut cores = Vec::new();
        for t in self.programs[p].threads() {
            if self.threads[t].queued {
                cores.push(self.threads[t].core);
            }
            self.take(t);
            let thread = &mut self.threads[t];
            (thread.activity, thread.wants) = (activity, false);
        }
        for c in cores {
            self.choose(c);
        }
    }

    fn end_thread(&mut self, c: usize, t: usize) {
        let p = self.threads[t].program;
        self.take(t);
        (self.threads[t].activity, self.threads[t].wants) = (ThreadActivity::Absent, false);
        self.choose(c);
        self.programs[p].threads_ended += 1;
        if self.programs[p].threads_ended == self.programs[p].description.threads {
            self.end(p);
        }
    }

    fn end(&mut self, p: usize) {
        self.programs[p].ended = Some(self.now);
        self.stop_threads(p, ThreadActivity::Absent);
        self.remove(p);
    }
}
