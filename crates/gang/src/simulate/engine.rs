//! The event loop of the simulation: cores, threads and events.
//!
//! ```text
//!   event       effect                                                 rules in
//!   Core        the running thread has finished its present action     barrier.rs
//!   Tick        the running threads may give way, cores balance        queue.rs, place.rs
//!   Wake        a thread is woken, finds a core, may preempt           place.rs, queue.rs
//!   Together    the episodes computed ahead for a program are over     together.rs
//!   Turn        the next gang, or the next of a batch                  turns.rs
//!   Period      a new period of a quota begins                         quota.rs
//! ```
//!
//! Every nanosecond of every core is charged once: to a program (computing, spinning, overhead) or as idle.

use super::cores::CoreSet;
use super::kernel::{Tunables, weight_of};
use super::model::{Sharing, SimulatedMachine, SimulatedProgram};
use super::state::{
    CoreSimulation, CoreState, Event, GangTurns, Joining, NEVER, ProgramState, ThreadActivity, ThreadState,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

impl<'a> CoreSimulation<'a> {
    pub(super) fn new(
        machine: &'a SimulatedMachine,
        programs: &'a [SimulatedProgram],
        sharing: Sharing,
        end: u64,
        seed: u64,
    ) -> Self {
        let mut chance = Pcg64Mcg::seed_from_u64(seed);
        let mut threads = Vec::new();
        let states: Vec<ProgramState<'a>> = (0..)
            .zip(programs)
            .map(|(number, program)| {
                let first = threads.len();
                let weight = weight_of(program.nice);
                for _ in 0..program.threads {
                    threads.push(ThreadState {
                        program: number,
                        core: 0,
                        allowed: (0, machine.cores),
                        weight,
                        priority: program.priority.unwrap_or(0),
                        is_filler: false,
                        wants: false,
                        held: false,
                        queued: false,
                        activity: ThreadActivity::Absent,
                        overhead: 0,
                        woken_from: None,
                        virtual_time: 0,
                        lag: 0,
                        deadline: 0,
                        protected_until: 0,
                        run: 0,
                        ran_until: 0,
                    });
                }
                let generator = Pcg64Mcg::seed_from_u64(chance.random());
                ProgramState::new(program, first, machine.cores, generator)
            })
            .collect();
        let tunables = Tunables::for_kernel(machine.kernel, machine.cores);
        let core = |c: usize| CoreState {
            current: None,
            last: None,
            queue: Vec::new(),
            load: 0,
            min_virtual_time: 0,
            charged: 0,
            change: 0,
            idle: 0,
            idle_since: 0,
            // sched_init: twice the migration cost
            average_idle: 2 * tunables.migration_cost,
            // the cores balance at different times
            next_balance: tunables.balance_busy * c as u64 / machine.cores as u64,
            failed_balances: 0,
        };
        let mut engine = Self {
            machine,
            sharing,
            tunables,
            now: 0,
            end,
            programs: states,
            threads,
            cores: (0..machine.cores).map(core).collect(),
            idle: CoreSet::full(machine.cores),
            crowded: CoreSet::empty(machine.cores),
            turns: GangTurns::new(sharing, machine.cores, programs.len()),
            chance,
            switches: 0,
            migrations: 0,
            events: 0,
            queue: BinaryHeap::new(),
            number: 0,
        };
        for (number, program) in programs.iter().enumerate() {
            engine.at(program.arrives.as_nanos(), Event::Arrive(number));
        }
        engine.at(tunables.tick, Event::Tick);
        engine
    }

    /// Runs until the end, or until all programs have ended. It calls `progress` with the simulated time from
    /// time to time, and stops if `progress` returns false.
    pub(super) fn run(&mut self, progress: &mut dyn FnMut(u64) -> bool) -> bool {
        while let Some(Reverse((time, _, event))) = self.queue.pop() {
            if time > self.end || self.programs.iter().all(|program| program.ended.is_some()) {
                break;
            }
            self.now = time;
            self.events += 1;
            if self.events.is_multiple_of(65_536) && !progress(time) {
                return false;
            }
            self.handle(event);
        }
        if self.programs.iter().any(|program| program.ended.is_none()) {
            self.now = self.end;
        }
        for p in 0..self.programs.len() {
            self.end_joint_run(p);
        }
        for c in 0..self.cores.len() {
            self.charge(c);
        }
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(p) => self.arrive(p),
            Event::Core(c, change) if self.cores[c].change == change => self.core_event(c),
            Event::Wake(t) => self.wake(t),
            Event::Job(p) => self.job(p),
            Event::Together(p, number) => self.together_event(p, number),
            Event::Turn(number) => self.turn(number),
            Event::Period(p) => self.period(p),
            Event::Tick => self.tick(),
            Event::Core(..) => {}
        }
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.queue.push(Reverse((time, self.number, event)));
    }

    /// Charges a core's time up to now.
    pub(super) fn charge(&mut self, c: usize) {
        let time = self.now - self.cores[c].charged;
        self.cores[c].charged = self.now;
        let Some(t) = self.cores[c].current else {
            self.cores[c].idle += time;
            return;
        };
        if time == 0 {
            return;
        }
        self.charge_virtual(c, t, time);
        let thread = &mut self.threads[t];
        let program = &mut self.programs[thread.program];
        program.used += time;
        if thread.is_filler {
            program.filled += time;
        }
        program.quota_used(c, time);
        // a program whose threads all run together is charged as a whole: together.rs
        if program.together.is_none() {
            let overhead = time.min(thread.overhead);
            thread.overhead -= overhead;
            program.overhead += overhead;
            match &mut thread.activity {
                ThreadActivity::Compute(left) => {
                    let done = (time - overhead).min(*left);
                    *left -= done;
                    program.work += done;
                    // rounding never lets a thread run past the end of its computation
                    program.spun += time - overhead - done;
                }
                _ => program.spun += time - overhead,
            }
        }
    }

    /// Plans the next event of the thread that runs on `c`.
    pub(super) fn plan(&mut self, c: usize) {
        self.cores[c].change += 1;
        let Some(t) = self.cores[c].current else { return };
        let thread = &self.threads[t];
        let program = &self.programs[thread.program];
        let mut next = if program.together.is_some() {
            NEVER
        } else {
            let begin = self.now + thread.overhead;
            match thread.activity {
                ThreadActivity::Compute(left) => begin.saturating_add(left),
                ThreadActivity::Spin(until) => until.max(begin),
                // the thread has slept and proceeds to the barrier
                ThreadActivity::Pause => begin,
                _ => NEVER,
            }
        };
        if let Some(left) = program.quota_left(c) {
            next = next.min(self.now + left);
        }
        if next < NEVER {
            let change = self.cores[c].change;
            self.at(next, Event::Core(c, change));
        }
    }

    /// Handles the event of a core: its running thread has finished its present action, or the core's share
    /// of a quota is used up.
    fn core_event(&mut self, c: usize) {
        self.charge(c);
        let Some(t) = self.cores[c].current else { return };
        if self.programs[self.threads[t].program].quota_left(c) == Some(0) {
            self.ask_quota(c, t);
            return;
        }
        self.done(c, t);
    }

    fn tick(&mut self) {
        self.at(self.now + self.tunables.tick, Event::Tick);
        for c in 0..self.cores.len() {
            if self.cores[c].current.is_some() && !self.cores[c].queue.is_empty() {
                self.charge(c);
                if self.must_yield(c) {
                    self.choose(c);
                }
            }
        }
        self.balance();
        self.sample_spread();
    }

    /// Chooses the thread to run. The previous thread stays in the queue if it still wants to run.
    pub(super) fn choose(&mut self, c: usize) {
        self.charge(c);
        let mut next = self.pick(c);
        if next.is_none() && self.pull_when_idle(c) {
            next = self.pick(c);
        }
        let before = self.cores[c].current;
        if next == before {
            return;
        }
        if let Some(t) = before {
            self.end_joint_run(self.threads[t].program);
            self.cores[c].queue.push(t);
            self.threads[t].ran_until = self.now;
        }
        self.begin(c, next);
    }

    fn begin(&mut self, c: usize, next: Option<usize>) {
        let was_idle = self.cores[c].current.is_none();
        let core = &mut self.cores[c];
        core.current = next;
        match next {
            Some(t) => {
                core.queue.retain(|queued| *queued != t);
                // if a thread was pulled at once, no idle time has ended
                if was_idle && self.now > core.idle_since {
                    // update_avg: an eighth of the difference, up to twice the migration cost
                    let idle = (self.now - core.idle_since) as i64;
                    let average = core.average_idle as i64;
                    let max_average = 2 * self.tunables.migration_cost;
                    core.average_idle = ((average + (idle - average) / 8).max(0) as u64).min(max_average);
                }
                if core.last != Some(t) {
                    core.last = Some(t);
                    self.switches += 1;
                    self.threads[t].overhead += self.machine.costs.switch.as_nanos();
                }
                self.chosen(t);
            }
            None => core.idle_since = self.now,
        }
        self.note_load(c);
        self.plan(c);
    }

    /// Takes a thread off its core or queue. The caller has to [`choose`](Self::choose) afterwards.
    pub(super) fn take(&mut self, t: usize) {
        if !self.threads[t].queued {
            return;
        }
        let c = self.threads[t].core;
        self.charge(c);
        if self.cores[c].current == Some(t) {
            self.end_joint_run(self.threads[t].program);
            self.save_virtual_time(c, t);
            self.cores[c].current = None;
            self.cores[c].idle_since = self.now;
            self.cores[c].change += 1;
            self.threads[t].ran_until = self.now;
        } else {
            self.save_virtual_time(c, t);
            self.cores[c].queue.retain(|queued| *queued != t);
        }
        self.threads[t].queued = false;
        self.note_load(c);
    }

    /// Puts a thread that wants to run into the queue of `c`, unless it is held or throttled. Returns whether
    /// it did.
    pub(super) fn enqueue_runnable(&mut self, c: usize, t: usize, why: Joining) -> bool {
        let thread = &mut self.threads[t];
        thread.core = c;
        if thread.queued || !thread.wants || thread.held || self.programs[thread.program].is_throttled(c) {
            return false;
        }
        thread.queued = true;
        self.charge(c);
        self.enqueue(c, t, why);
        true
    }

    /// Updates the sets of idle and of crowded cores.
    pub(super) fn note_load(&mut self, c: usize) {
        self.idle.set(c, self.cores[c].running() == 0);
        self.crowded.set(c, self.cores[c].running() > 1);
    }
}
