//! Steers the gangs' weight against other programs, so that those programs receive their share.
//!
//! A weight alone is no share. Linux counts a whole session as one program, and it spreads a program's weight
//! over the cores on which the program runs. A gang weight high enough to restrain a heavy build also delays
//! a short command by tens of milliseconds. So the weight follows the measured times. As long as other
//! programs use less than their reserve, the gangs weigh little and a new process runs almost at once. When
//! other programs use more, the gangs weigh more, up to a bound. This module only computes; `host/reserve.rs`
//! reads the times and writes the weight.
//!
//! Reference: Documentation/admin-guide/cgroup-v2.rst, `cpu.weight`; sched-design-CFS.rst, autogroups in
//! sched(7).

/// The weight, in default tasks per core, for a share of contended time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steering {
    share: f64,
    weight: f64,
}

impl Steering {
    /// Lower bound of the weight, relative to the even weight. With less, a single busy program on one core
    /// would hold up a whole gang. With a weight fixed at the even one, a small compile beside two spinning
    /// gangs waited for up to 1.3 s, and for 0.66 s when the weight was steered within these bounds (one run
    /// each, in turns, 2 processors); the bounds themselves were not varied.
    const MIN_WEIGHT_FACTOR: f64 = 1.0 / 3.0;
    /// Upper bound of the weight, relative to the even weight. A second scheduler is another program too, and
    /// with more, two schedulers that outbid each other would leave nothing to the rest.
    const MAX_WEIGHT_FACTOR: f64 = 2.0;

    /// Starts with the least weight: other programs need no more until the times show otherwise.
    pub(crate) fn new(share: f64) -> Steering {
        Steering { share, weight: Self::even(share) * Self::MIN_WEIGHT_FACTOR }
    }

    /// The weight that gives this share against one default task.
    fn even(share: f64) -> f64 {
        share / (1.0 - share).max(0.001)
    }

    /// The weight in default tasks per core.
    pub(crate) fn weight(self) -> f64 {
        self.weight
    }

    /// Takes the processor time of the gangs and of other programs since the last call; returns the weight if
    /// it changes.
    pub(crate) fn learn(&mut self, gangs: f64, others: f64) -> Option<f64> {
        let even = Self::even(self.share);
        let odds = gangs.max(0.0) / others.max(gangs * 0.001).max(f64::MIN_POSITIVE);
        // one full step would do if weights were shares; half a step does not oscillate
        let step = (even / odds.max(f64::MIN_POSITIVE)).sqrt().clamp(0.5, 2.0);
        let next = (self.weight * step).clamp(even * Self::MIN_WEIGHT_FACTOR, even * Self::MAX_WEIGHT_FACTOR);
        // a write makes every core recompute its weights
        if (next / self.weight - 1.0).abs() < 0.1 {
            return None;
        }
        self.weight = next;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates other programs that get the part of time of `tasks` default tasks against `weight`, up to
    /// `wanted`.
    fn simulate(share: f64, tasks: f64, wanted: f64) -> (Steering, f64) {
        let mut steering = Steering::new(share);
        let mut others = 0.0;
        for _ in 0..40 {
            others = (tasks / (tasks + steering.weight())).min(wanted);
            steering.learn(1.0 - others, others);
        }
        (steering, others)
    }

    #[test]
    fn others_that_want_little_get_it_at_the_least_weight() {
        let (steering, others) = simulate(0.9, 1.0, 0.02);
        assert!((others - 0.02).abs() < 1e-9, "{others}");
        assert!((steering.weight() - 3.0).abs() < 1e-9, "{steering:?}");
    }

    #[test]
    fn others_that_want_all_get_the_reserve_whether_they_count_as_half_a_task_or_as_two() {
        for tasks in [0.5, 1.0, 2.0] {
            let (_, others) = simulate(0.9, tasks, 1.0);
            assert!((0.08..0.13).contains(&others), "{others} for {tasks} tasks a core");
        }
    }

    #[test]
    fn schedulers_that_outbid_each_other_stop_at_a_bound() {
        let (steering, _) = simulate(0.9, 1000.0, 1.0);
        assert!((steering.weight() - 18.0).abs() < 1e-9, "{steering:?}");
        assert!(simulate(0.99, 1000.0, 1.0).0.weight().is_finite());
    }

    #[test]
    fn gangs_that_did_nothing_do_not_break_the_weight() {
        let mut steering = Steering::new(0.9);
        for (gangs, others) in [(0.0, 0.0), (0.0, 1.0), (1.0, -0.01), (1.0, 0.0)] {
            steering.learn(gangs, others);
            assert!((3.0..=18.0 + 1e-9).contains(&steering.weight()), "{steering:?}");
        }
    }
}
