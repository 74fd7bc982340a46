//! Chooses the core of a thread: at a wake-up, when a core is idle, and at periodic balances.
//!
//! These rules preserve the state in which programs run worst under plain Linux: all threads of a program
//! share one core. If every core has such a program from the start, no core is idle and all loads are equal,
//! so no rule moves a thread.
//!
//! Left out: scheduling domains above the last-level cache (all cores balance with one another), decayed load
//! averages (the present loads are used), and wake_wide.
//!
//! References: select_task_rq_fair, wake_affine, select_idle_sibling, load_balance and idle_balance of
//! kernel/sched_fair.c (2.6.32) and of kernel/sched/fair.c (6.18).

use super::kernel::KernelModel;
use super::state::{CoreSimulation, Joining};

/// The outcome of a core's attempt to take a thread from a busier core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PullResult {
    Moved,
    /// No core is so much busier that a thread should move.
    Balanced,
    /// A core is busier, but none of its waiting threads may move now.
    Failed,
}

impl CoreSimulation<'_> {
    /// Wakes a waiting thread, which now wants to run.
    pub(super) fn wake(&mut self, t: usize) {
        if self.programs[self.threads[t].program].ended.is_some() || self.threads[t].wants {
            return;
        }
        self.threads[t].wants = true;
        self.put(t);
    }

    /// Finds a core for a thread that wants to run, and adds the thread to the core's queue, where it may
    /// preempt the running thread.
    pub(super) fn put(&mut self, t: usize) {
        if self.threads[t].held {
            return;
        }
        self.wear_off_lag(t);
        let c = self.core_for(t);
        if c != self.threads[t].core {
            self.migrations += 1;
        }
        let why = if self.threads[t].ran_until == 0 { Joining::New } else { Joining::Woken };
        if self.enqueue_runnable(c, t, why) {
            if self.preempts(c, t) {
                self.choose(c);
            } else if self.programs[self.threads[t].program].quota_left(c).is_some() {
                self.plan(c);
            }
        }
    }

    fn core_for(&mut self, t: usize) -> usize {
        let thread = &self.threads[t];
        let (first, count) = thread.allowed;
        let may = |c: usize| (first..first + count).contains(&c);
        if count == 1 {
            return first;
        }
        let before = if may(thread.core) { thread.core } else { first + thread.core % count };
        if thread.priority > 0 {
            // select_task_rq_rt: the core with the least urgent thread, preferably the thread's previous core
            let urgency = |c: usize| {
                let current = self.cores[c].current.into_iter();
                current.chain(self.cores[c].queue.iter().copied()).map(|t| self.threads[t].priority).max()
            };
            return (first..first + count).min_by_key(|c| (urgency(*c), *c != before)).unwrap_or(before);
        }
        // the core of the waker
        let waker = thread.woken_from.filter(|c| may(*c));
        let load = thread.load();
        let target = match (waker, self.tunables.kernel) {
            (None, _) => before,
            (Some(waker), _) if waker == before => before,
            (Some(waker), KernelModel::Cfs) => {
                // wake_affine; SYNC_MORE: threads that wake each other often count as synchronous, so that
                // the waker's own load does not count
                let own = self.cores[waker].current.map_or(0, |t| self.threads[t].load());
                let here = self.cores[waker].load - own;
                let there = self.cores[before].load;
                let percent = 100 + (self.tunables.imbalance as i64 - 100) / 2;
                if here == 0 || 100 * (here + load) <= percent * (there + load) { waker } else { before }
            }
            (Some(waker), KernelModel::Eevdf) => {
                // wake_affine_idle, then wake_affine_weight
                let percent = 100 + (self.tunables.imbalance as i64 - 100) / 2;
                let here = (self.cores[waker].load + load) * 100;
                let there = self.cores[before].load * percent;
                if !self.idle.has(before) && here < there { waker } else { before }
            }
        };
        self.idle_sibling(target, before, (first, first + count))
    }

    /// Chooses a core as select_idle_sibling does: an idle core that shares the cache with `target`,
    /// otherwise `target`.
    fn idle_sibling(&self, target: usize, before: usize, (first, end): (usize, usize)) -> usize {
        let cache = self.machine.cache_cores.max(1);
        let (low, high) = (target / cache * cache, ((target / cache + 1) * cache).min(self.cores.len()));
        if self.idle.has(target) {
            return target;
        }
        if (low..high).contains(&before) && self.idle.has(before) {
            return before;
        }
        let (low, high) = (low.max(first), high.min(end));
        let found = match self.tunables.kernel {
            KernelModel::Cfs => self.idle.first(low, high),
            KernelModel::Eevdf => self.idle.first(target + 1, high).or_else(|| self.idle.first(low, target)),
        };
        found.unwrap_or(target)
    }

    /// Lets an idle core take a waiting thread from another core (idle_balance), unless the core's idle times
    /// are shorter than the cost of a migration. Returns whether a thread was moved.
    pub(super) fn pull_when_idle(&mut self, c: usize) -> bool {
        if self.crowded.is_empty() || self.cores[c].average_idle < self.tunables.migration_cost {
            return false;
        }
        self.pull(c) == PullResult::Moved
    }

    /// Balances the cores at a tick: busy cores seldom, idle cores often.
    pub(super) fn balance(&mut self) {
        if self.crowded.is_empty() {
            return;
        }
        for c in 0..self.cores.len() {
            if self.now < self.cores[c].next_balance {
                continue;
            }
            let is_idle = self.cores[c].running() == 0;
            let distance = if is_idle { self.tunables.balance_idle } else { self.tunables.balance_busy };
            self.cores[c].next_balance = self.now + distance;
            match self.pull(c) {
                PullResult::Moved => {
                    self.cores[c].failed_balances = 0;
                    self.choose(c);
                }
                PullResult::Failed => self.cores[c].failed_balances += 1,
                PullResult::Balanced => self.cores[c].failed_balances = 0,
            }
        }
    }

    /// Returns the load that a busy core may take from the busiest one: at most so much that one of the two
    /// reaches the average of all cores (calculate_imbalance, for a core that becomes overloaded).
    fn imbalance(&self, own: i64, busiest: i64) -> i64 {
        let average = self.cores.iter().map(|core| core.load).sum::<i64>() / self.cores.len() as i64;
        (busiest - average).min(average - own)
    }

    /// Takes a waiting thread from the busiest core, if that makes the loads more equal. Under EEVDF each
    /// failed balance halves the load of a thread in this comparison (detach_tasks): of three equal threads
    /// on two cores one moves at every second balance, so that no thread runs alone for ever.
    fn pull(&mut self, c: usize) -> PullResult {
        let (mut from, mut busiest) = (None, 0);
        let mut next = self.crowded.first(0, self.cores.len());
        while let Some(other) = next {
            if other != c && self.cores[other].load > busiest {
                (from, busiest) = (Some(other), self.cores[other].load);
            }
            next = self.crowded.first(other + 1, self.cores.len());
        }
        let Some(from) = from else { return PullResult::Balanced };
        let own = self.cores[c].load;
        if 100 * busiest <= self.tunables.imbalance as i64 * own {
            return PullResult::Balanced;
        }
        let is_idle = self.cores[c].running() == 0;
        let failed = self.cores[c].failed_balances.min(i64::BITS - 1);
        let imbalance = self.imbalance(own, busiest);
        let kernel = self.tunables.kernel;
        let fits = |load: i64| match kernel {
            // after the move the other core has at least the load of this one
            KernelModel::Cfs => own + load < busiest,
            KernelModel::Eevdf => imbalance > 0 && load >> failed <= imbalance,
        };
        let movable = |t: &usize| {
            let thread = &self.threads[*t];
            let (first, count) = thread.allowed;
            // cache_nice_tries of both kernels is 1: after two failed balances, a thread is moved even if its
            // cache is warm
            let hot = !is_idle && failed < 2 && self.now - thread.ran_until < self.tunables.migration_cost;
            let program = &self.programs[thread.program];
            (first..first + count).contains(&c)
                && !hot
                && !program.is_throttled(c)
                && (fits(thread.load()) || is_idle)
        };
        let Some(t) = self.cores[from].queue.iter().copied().find(movable) else { return PullResult::Failed };
        self.take(t);
        self.migrations += 1;
        self.enqueue_runnable(c, t, Joining::Moved);
        PullResult::Moved
    }

    /// Samples the spread of each program's threads over the cores.
    pub(super) fn sample_spread(&mut self) {
        let mut seen = vec![usize::MAX; self.cores.len()];
        for p in 0..self.programs.len() {
            let (first, count) = (self.programs[p].first, self.programs[p].description.threads);
            if self.programs[p].ended.is_some() || !self.programs[p].is_here {
                continue;
            }
            let mut cores = 0;
            for thread in &self.threads[first..first + count] {
                if seen[thread.core] != p {
                    seen[thread.core] = p;
                    cores += 1;
                }
            }
            let program = &mut self.programs[p];
            program.spread_samples += 1;
            program.unstacked += cores as f64 / count.min(self.cores.len()) as f64;
        }
    }
}
