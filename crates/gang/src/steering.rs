//! Steers the gangs' weight against other programs, so that those programs receive their share.
//!
//! A weight alone is no share. Linux counts a whole session as one program, and it spreads a program's weight
//! over the cores on which the program runs. A gang weight high enough to restrain a heavy build also delays
//! a short command by tens of milliseconds. So the weight follows the measured times. As long as other
//! programs use less than their reserve, the gangs weigh little and a new process runs almost at once: the
//! wait of a program with deadlines is bounded. When other programs use more, the gangs weigh more, up to a
//! bound. This module only computes; `host/reserve.rs` reads the times and writes the weight.
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
    /// Lower bound of the weight, in default tasks per core. It is the weight of `--share 0.5`: a program
    /// that works for 1 ms in every 10 ms then wakes within 0.15 ms. With a bound of a third of the even
    /// weight (3 tasks for a share of 0.9), the kernel lets the gangs finish their slices first, and such a
    /// program missed nearly all of its periods. The bound holds only while others use less than their
    /// reserve.
    const MIN_WEIGHT: f64 = 1.0 / 3.0;
    /// Greatest factor of one step up: from the lower bound, the even weight of a share of 0.9 is reached in
    /// three readings (0.6 s), so other programs that begin to compute take more than their share from the
    /// gangs for at most that long.
    const MAX_STEP_UP: f64 = 4.0;
    /// Greatest factor of one step down. A step is the square root of the measured deviation, so that the
    /// weight does not oscillate.
    const MAX_STEP_DOWN: f64 = 2.0;
    /// Upper bound of the weight, relative to the even weight. A second scheduler is another program too:
    /// with a higher bound, two schedulers that outbid each other would leave nothing to the rest.
    const MAX_WEIGHT_FACTOR: f64 = 2.0;

    /// Starts with the least weight: other programs need no more until the times show otherwise.
    pub(crate) fn new(share: f64) -> Steering {
        Steering { share, weight: Self::lower_bound(share) }
    }

    /// Returns the weight that gives this share against one default task.
    fn even(share: f64) -> f64 {
        share / (1.0 - share).max(0.001)
    }

    /// Returns the lower bound: below the even weight for any share.
    fn lower_bound(share: f64) -> f64 {
        Self::MIN_WEIGHT.min(Self::even(share) / 3.0)
    }

    /// Returns the weight in default tasks per core.
    pub(crate) fn weight(self) -> f64 {
        self.weight
    }

    /// Adapts the weight to the processor time that the gangs and other programs have used since the last
    /// call. Returns the new weight if it differs.
    pub(crate) fn learn(&mut self, gangs: f64, others: f64) -> Option<f64> {
        let even = Self::even(self.share);
        let odds = gangs.max(0.0) / others.max(gangs * 0.001).max(f64::MIN_POSITIVE);
        // the full ratio would be right if weights were shares; its square root does not oscillate
        let step = (even / odds.max(f64::MIN_POSITIVE)).sqrt();
        let step = step.clamp(1.0 / Self::MAX_STEP_DOWN, Self::MAX_STEP_UP);
        let next = (self.weight * step).clamp(Self::lower_bound(self.share), even * Self::MAX_WEIGHT_FACTOR);
        // a small change is not written, because a write makes every core recompute its weights
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
        assert!((steering.weight() - 1.0 / 3.0).abs() < 1e-9, "{steering:?}");
    }

    #[test]
    fn a_light_program_finds_gangs_with_the_weight_of_half_the_machine_and_a_heavy_one_pays_within_a_second()
    {
        // an audio-like program: a tenth of one of two processors
        let (light, others) = simulate(0.9, 1.0, 0.05);
        assert_eq!((light.weight(), others), (Steering::new(0.5).weight(), 0.05));
        let mut heavy = light;
        let mut lost = 0.0;
        for reading in 0..10 {
            let others = 1.0 / (1.0 + heavy.weight());
            lost += 0.2 * (others - 0.1).max(0.0);
            heavy.learn(1.0 - others, others);
            assert!(reading < 4 || others < 0.2, "{others} at reading {reading}: {heavy:?}");
        }
        assert!(lost < 0.4, "the gangs lost {lost} s beyond the reserve, once");
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
            assert!((0.33..=18.0 + 1e-9).contains(&steering.weight()), "{steering:?}");
        }
    }
}
