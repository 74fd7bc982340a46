//! The quota of a program (`cpu.max`): a pool that is refilled in each period, and the parts that cores took
//! from it.
//!
//! A core takes 5 ms at a time. When the pool is empty, the program's threads on that core stop until the
//! next period. The kernel notices this at a tick and takes the excess from the next period; here a core
//! stops at once, so that no period exceeds the quota.
//!
//! Reference: Turner, Rao, Rao, "CPU bandwidth control for CFS", 2010; kernel/sched/fair.c.

use super::kernel::QUOTA_SLICE;
use super::model::CpuQuota;
use super::state::{CoreSimulation, Event, Joining, ProgramState, QuotaState};

impl QuotaState {
    pub(super) fn new(rule: CpuQuota, cores: usize) -> Self {
        let (pool, taken, throttled) = (rule.quota.as_nanos(), vec![0; cores], vec![false; cores]);
        let mut state = Self {
            rule,
            pool,
            taken,
            throttled,
            periods: 1,
            stopped: 0,
            stopped_now: false,
            used: 0,
            max_used: 0,
        };
        state.pool = rule.quota.as_nanos();
        state
    }

    fn take(&mut self, c: usize) -> bool {
        let slice = self.pool.min(QUOTA_SLICE.as_nanos());
        self.pool -= slice;
        self.taken[c] += slice;
        self.taken[c] > 0
    }
}

impl ProgramState<'_> {
    pub(super) fn is_throttled(&self, c: usize) -> bool {
        self.quota.as_ref().is_some_and(|quota| quota.throttled[c])
    }

    /// Returns the time for which the program's threads may still run on `c` without taking from the pool.
    /// `None`: no quota.
    pub(super) fn quota_left(&self, c: usize) -> Option<u64> {
        self.quota.as_ref().map(|quota| quota.taken[c])
    }

    pub(super) fn quota_used(&mut self, c: usize, time: u64) {
        if let Some(quota) = &mut self.quota {
            quota.taken[c] = quota.taken[c].saturating_sub(time);
            quota.used += time;
            quota.max_used = quota.max_used.max(quota.used);
        }
    }
}

impl CoreSimulation<'_> {
    /// Handles a running thread that needs more of its program's quota: either `c` takes from the pool, or
    /// its threads stop.
    pub(super) fn ask_quota(&mut self, c: usize, t: usize) {
        let p = self.threads[t].program;
        let Some(quota) = &mut self.programs[p].quota else { return };
        if quota.take(c) {
            self.plan(c);
            return;
        }
        quota.throttled[c] = true;
        quota.stopped += u64::from(!quota.stopped_now);
        quota.stopped_now = true;
        let (first, count) = (self.programs[p].first, self.programs[p].description.threads);
        for t in first..first + count {
            if self.threads[t].core == c {
                self.take(t);
            }
        }
        self.choose(c);
    }

    /// Begins a new period: the pool is refilled, and stopped threads continue. Cores keep no remainder of
    /// the old period, so that a period never exceeds the quota; the kernel lets a core keep 1 ms.
    pub(super) fn period(&mut self, p: usize) {
        if self.programs[p].ended.is_some() {
            return;
        }
        for c in 0..self.cores.len() {
            let own = self.cores[c].current.is_some_and(|t| self.threads[t].program == p);
            if own {
                self.charge(c);
            }
        }
        let Some(quota) = &mut self.programs[p].quota else { return };
        let next = self.now.saturating_add(quota.rule.period.as_nanos());
        quota.pool = quota.rule.quota.as_nanos();
        quota.taken.fill(0);
        quota.periods += 1;
        (quota.used, quota.stopped_now) = (0, false);
        let stopped: Vec<bool> = std::mem::replace(&mut quota.throttled, vec![false; self.cores.len()]);
        self.at(next, Event::Period(p));
        let (first, count) = (self.programs[p].first, self.programs[p].description.threads);
        for t in first..first + count {
            let c = self.threads[t].core;
            if stopped[c] && self.enqueue_runnable(c, t, Joining::Woken) && self.preempts(c, t) {
                self.choose(c);
            }
        }
        for c in 0..self.cores.len() {
            if self.cores[c].current.is_some_and(|t| self.threads[t].program == p) {
                self.charge(c);
                self.plan(c);
            }
        }
    }
}
