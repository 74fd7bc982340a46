//! The run queue of a core: chooses the next thread, and when the running thread gives way.
//!
//! Classes come first: fixed priorities run before the fair class. Inside the fair class the kernel decides:
//!
//! | | CFS (2.6.32) | EEVDF (6.18) |
//! |---|---|---|
//! | next | least virtual run time | earliest virtual deadline among threads with lag >= 0 |
//! | gives way at a tick | its part of the latency is used up | its slice is used up |
//! | gives way at a wake-up | it is behind by the wake-up granularity | its slice is used up |
//! | a sleeper returns | half a latency before the least | with its lag; a negative lag wears off asleep |
//!
//! Left out: buddies and adaptive granularity of 2.6.32, and groups (every thread competes as if autogroup
//! were off).
//!
//! References: kernel/sched_fair.c of 2.6.32, kernel/sched/fair.c of 6.18; Stoica and Abdel-Wahab, "Earliest
//! eligible virtual deadline first", 1995.

use super::kernel::{IDLE_WEIGHT, KernelModel, NICE_0};
use super::state::{CoreSimulation, CoreState, Joining, ThreadState};

/// Converts time on a core to virtual time of a thread.
fn virtual_time(time: i64, weight: i64) -> i64 {
    if weight == NICE_0 { time } else { (i128::from(time) * i128::from(NICE_0) / i128::from(weight)) as i64 }
}

impl ThreadState {
    pub(super) fn load(&self) -> i64 {
        if self.is_filler { IDLE_WEIGHT } else { self.weight }
    }
}

impl CoreSimulation<'_> {
    /// Returns the running thread and the waiting threads.
    fn members(core: &CoreState) -> impl Iterator<Item = usize> + '_ {
        core.current.into_iter().chain(core.queue.iter().copied())
    }

    /// Returns the virtual time of zero lag. EEVDF: the weighted mean of the virtual times (avg_vruntime);
    /// CFS: the queue's minimum (min_vruntime).
    fn zero_lag(&self, c: usize) -> i64 {
        let core = &self.cores[c];
        let base = core.min_virtual_time;
        let (mut sum, mut weights) = (0i128, 0i128);
        for t in Self::members(core) {
            let thread = &self.threads[t];
            if thread.priority == 0 {
                sum += i128::from(thread.virtual_time - base) * i128::from(thread.load());
                weights += i128::from(thread.load());
            }
        }
        if weights == 0 { base } else { base + (sum.div_euclid(weights)) as i64 }
    }

    /// Charges the thread that runs on `c` for `time` more.
    pub(super) fn charge_virtual(&mut self, c: usize, t: usize, time: u64) {
        let thread = &mut self.threads[t];
        thread.virtual_time += virtual_time(time as i64, thread.load());
        thread.run += time;
        self.update_min_virtual_time(c);
    }

    fn update_min_virtual_time(&mut self, c: usize) {
        let min_virtual_time = Self::members(&self.cores[c]).map(|t| self.threads[t].virtual_time).min();
        if let Some(min_virtual_time) = min_virtual_time {
            self.cores[c].min_virtual_time = self.cores[c].min_virtual_time.max(min_virtual_time);
        }
    }

    /// Places the thread in virtual time and adds it to the queue.
    pub(super) fn enqueue(&mut self, c: usize, t: usize, why: Joining) {
        let tunables = self.tunables;
        let nr = self.cores[c].running() as u64;
        let weight = self.threads[t].load();
        let min_virtual_time = self.cores[c].min_virtual_time;
        match tunables.kernel {
            KernelModel::Cfs => {
                let thread = &mut self.threads[t];
                // a thread in no queue keeps its virtual time relative to the queue's minimum
                let back = min_virtual_time + thread.virtual_time;
                thread.virtual_time = match why {
                    Joining::Moved => back,
                    // GENTLE_FAIR_SLEEPERS: half a latency before the minimum, but no time gained
                    Joining::Woken => back.max(min_virtual_time - tunables.latency as i64 / 2),
                    // START_DEBIT: behind the threads that are in the queue
                    Joining::New => {
                        let all = self.cores[c].load + weight;
                        let period = tunables.latency.max(tunables.min_granularity * (nr + 1)) as i64;
                        min_virtual_time + virtual_time(period * weight / all.max(1), weight)
                    }
                };
            }
            KernelModel::Eevdf => {
                let zero = self.zero_lag(c);
                let all = self.cores[c].load;
                let lag = if why == Joining::New { 0 } else { self.threads[t].lag };
                // place_entity: joining moves the mean, so the lag is inflated beforehand
                let lag = if all > 0 {
                    (i128::from(lag) * i128::from(all + weight) / i128::from(all)) as i64
                } else {
                    lag
                };
                let thread = &mut self.threads[t];
                thread.virtual_time = zero - lag;
                let slice = virtual_time(tunables.slice as i64, weight);
                // PLACE_DEADLINE_INITIAL
                let slice = if why == Joining::New { slice / 2 } else { slice };
                thread.deadline = thread.virtual_time + slice;
            }
        }
        self.cores[c].queue.push(t);
        self.cores[c].load += weight;
        self.threads[t].core = c;
        self.note_load(c);
    }

    /// Saves the thread's place in virtual time. Call it before the thread leaves the queue.
    pub(super) fn save_virtual_time(&mut self, c: usize, t: usize) {
        match self.tunables.kernel {
            KernelModel::Cfs => self.threads[t].virtual_time -= self.cores[c].min_virtual_time,
            KernelModel::Eevdf => {
                let zero = self.zero_lag(c);
                let thread = &mut self.threads[t];
                // update_entity_lag: at most two slices, or a tick
                let limit = (2 * self.tunables.slice).max(self.tunables.tick) as i64;
                let limit = virtual_time(limit, thread.load());
                thread.lag = (zero - thread.virtual_time).clamp(-limit, limit);
            }
        }
        self.cores[c].load -= self.threads[t].load();
    }

    /// Reduces the negative lag of a sleeping thread (EEVDF). A thread that goes to sleep before its share is
    /// due stays in its queue until the others have caught up (DELAY_DEQUEUE, since 6.12), so a negative lag
    /// wears off while the thread sleeps. Without that, a thread that blocks at each barrier would be
    /// ineligible at each wake-up, and wait for the next tick.
    pub(super) fn wear_off_lag(&mut self, t: usize) {
        let Some(negative) = Some(self.threads[t].lag).filter(|lag| *lag < 0) else { return };
        if self.tunables.kernel != KernelModel::Eevdf {
            return;
        }
        let c = self.threads[t].core;
        self.charge(c);
        let (all, weight) = (i128::from(self.cores[c].load), i128::from(self.threads[t].load()));
        // the mean that includes the thread; on a core without other threads, there is no thread to catch up
        // with
        let ahead = i128::from(self.zero_lag(c) - self.threads[t].virtual_time);
        let lag = if all > 0 { (ahead * all / (all + weight)) as i64 } else { 0 };
        self.threads[t].lag = lag.clamp(negative, 0);
    }

    /// Chooses the thread to run next: a queued thread, or the running one.
    pub(super) fn pick(&self, c: usize) -> Option<usize> {
        let core = &self.cores[c];
        let urgent = |t: &usize| self.threads[*t].priority;
        // the running thread comes first, so that a thread of equal priority does not preempt it
        let highest = Self::members(core).map(|t| urgent(&t)).max()?;
        if highest > 0 {
            return Self::members(core).find(|t| urgent(t) == highest);
        }
        match self.tunables.kernel {
            // among equals the running thread comes last, as in the kernel's trees
            KernelModel::Cfs => {
                Self::members(core).min_by_key(|t| (self.threads[*t].virtual_time, Some(*t) == core.current))
            }
            KernelModel::Eevdf => {
                let zero = self.zero_lag(c);
                let is_eligible = |t: &usize| self.threads[*t].virtual_time <= zero;
                if let Some(t) = core.current.filter(|t| self.is_protected(*t) && is_eligible(t)) {
                    return Some(t);
                }
                Self::members(core)
                    .filter(is_eligible)
                    .min_by_key(|t| (self.threads[*t].deadline, Some(*t) == core.current))
                    .or_else(|| Self::members(core).next())
            }
        }
    }

    /// Returns whether RUN_TO_PARITY protects a thread: a chosen thread runs until its deadline even if other
    /// threads wake up, as long as it has not run ahead of its share. A thread that wakes with a positive lag
    /// makes the protected thread ineligible.
    fn is_protected(&self, t: usize) -> bool {
        let thread = &self.threads[t];
        thread.virtual_time < thread.protected_until
    }

    /// Records that `t` begins to run.
    pub(super) fn chosen(&mut self, t: usize) {
        let thread = &mut self.threads[t];
        thread.run = 0;
        thread.protected_until = thread.deadline;
    }

    /// Returns whether the running thread gives way, at a tick or at the end of a thread's action.
    pub(super) fn must_yield(&mut self, c: usize) -> bool {
        let Some(t) = self.cores[c].current else { return false };
        let tunables = self.tunables;
        let nr = self.cores[c].running() as i64;
        let load = self.threads[t].load();
        let all = self.cores[c].load.max(1);
        let thread = &mut self.threads[t];
        match tunables.kernel {
            KernelModel::Eevdf => {
                // update_deadline: a new request once the slice is used up
                let done = thread.virtual_time >= thread.deadline;
                if done {
                    thread.deadline = thread.virtual_time + virtual_time(tunables.slice as i64, load);
                }
                nr > 1 && thread.priority == 0 && (done || !self.is_protected(t))
            }
            KernelModel::Cfs => {
                // check_preempt_tick
                if nr < 2 || thread.priority > 0 {
                    return false;
                }
                let period = tunables.latency.max(tunables.min_granularity * nr as u64) as i64;
                let ideal = period * load / all;
                let (run, own) = (thread.run as i64, thread.virtual_time);
                if run > ideal {
                    return true;
                }
                let min_virtual_time =
                    self.cores[c].queue.iter().map(|t| self.threads[*t].virtual_time).min();
                run >= tunables.min_granularity as i64
                    && min_virtual_time.is_some_and(|min_virtual_time| own - min_virtual_time > ideal)
            }
        }
    }

    /// Returns whether `woken`, just put into the queue of `c`, preempts the thread that runs there.
    pub(super) fn preempts(&self, c: usize, woken: usize) -> bool {
        let Some(t) = self.cores[c].current else { return true };
        let (woken_state, running) = (&self.threads[woken], &self.threads[t]);
        if woken_state.priority != running.priority {
            return woken_state.priority > running.priority;
        }
        if woken_state.priority > 0 || woken_state.is_filler {
            return false;
        }
        if running.is_filler {
            return true;
        }
        match self.tunables.kernel {
            KernelModel::Cfs => {
                let granularity = virtual_time(self.tunables.wakeup_granularity as i64, woken_state.load());
                running.virtual_time - woken_state.virtual_time > granularity
            }
            KernelModel::Eevdf => self.pick(c) == Some(woken),
        }
    }
}
