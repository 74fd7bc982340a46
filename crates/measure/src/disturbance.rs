//! Decides whether a run counts as data, although other programs or the hypervisor took processors during it.
//!
//! The idea: the kernel counts processor time in ticks of 10 ms, and a single tick is 7 to 100 % of a run
//! that lasts some milliseconds. So the ticks that were taken count as a disturbance only if, at the greatest
//! harmless rate, chance would give as many in less than one run of a hundred (`SIGNIFICANCE`; exact binomial
//! test). A harmless rate exceeds the normal rate by at most [`DISTURBANCE_LIMIT`]; the normal rate is the
//! steady load before the study ([`BackgroundLoad`]), and the steal of the study so far. The samples of a run
//! that is too short for a share can show that it was not disturbed: if they hardly scatter, the ticks fell
//! outside the measured part.
//!
//! Cost: one multiplication for each tick taken. When not to use: ticks that come in bursts are not
//! independent, so the test is stricter with bursts than its level says.

use crate::background::BackgroundLoad;
use crate::record::Figure;
use crate::tick_share::{DISTURBANCE_LIMIT, TickShare};

/// In a run of fewer ticks than this, a single tick is a greater share than [`DISTURBANCE_LIMIT`].
const MIN_SHARE_TICKS: u64 = 50;

/// The weight of the prior of the normal rate of steal: the rate starts as if this many ticks (a few seconds)
/// had been seen, with the steal of the time before the study or, if that is unknown, without steal.
const STEAL_PRIOR_TICKS: f64 = 500.0;

/// The least number of samples whose scatter can show that a short run was not disturbed.
const MIN_SAMPLES: u64 = 20;

/// The greatest distance of the quartiles, as a share of the median, at which samples show that a short run
/// was not disturbed. Chosen, not measured.
const MAX_QUIET_SCATTER: f64 = 0.25;

/// The normal load of this machine while a study runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormalLoad {
    /// The load before the study; `None` if the study did not watch.
    pub background: Option<BackgroundLoad>,
    steal: TickShare,
}

impl NormalLoad {
    pub fn new(background: Option<BackgroundLoad>) -> Self {
        Self { background, steal: TickShare::default() }
    }

    /// Adds the steal of a run that has ended to the normal rate.
    pub fn add_steal(&mut self, steal: TickShare) {
        self.steal += steal;
    }

    /// Returns whether other programs took more during a run than is normal.
    pub fn is_foreign(&self, foreign: TickShare) -> bool {
        foreign.exceeds(self.steady_share() + DISTURBANCE_LIMIT)
    }

    fn steady_share(&self) -> f64 {
        self.background.map_or(0.0, BackgroundLoad::steady_share)
    }

    /// Returns the reason why a run is no data; `None` if it is data. While others take the processors, every
    /// way to wait is a thousand times slower, so such a run says nothing about the comparison.
    pub fn disturbance(&self, foreign: TickShare, steal: TickShare, figures: &[Figure]) -> Option<String> {
        let before = self.background.map_or(0.0, |load| load.steal);
        let normal_steal = (self.steal.taken as f64 + before * STEAL_PRIOR_TICKS)
            / (self.steal.all as f64 + STEAL_PRIOR_TICKS);
        let steady = self.steady_share();
        let is_stolen = steal.exceeds(normal_steal + DISTURBANCE_LIMIT);
        let is_foreign = self.is_foreign(foreign);
        let is_short = steal.all.max(foreign.all) < MIN_SHARE_TICKS;
        if !(is_stolen || is_foreign) || is_short && hardly_scatters(figures) {
            return None;
        }
        let limit = 100.0 * DISTURBANCE_LIMIT;
        Some(match is_stolen {
            true if normal_steal > DISTURBANCE_LIMIT => {
                "the hypervisor took far more of the processors than during \
                 the runs before; measure again at a quieter hour or on a dedicated host"
                    .into()
            }
            true => format!(
                "the hypervisor took more than {limit:.1} % of the processors; measure again at a quieter hour or on a dedicated host"
            ),
            false if steady > 0.0 => format!(
                "other programs took more than the {:.0} % of the processors that they took before the study; stop \
                 the new ones and measure again",
                100.0 * steady
            ),
            false => format!(
                "other programs took more than {limit:.1} % of the processors; stop them and measure again"
            ),
        })
    }
}

/// Returns whether the run's own samples are many and close together.
fn hardly_scatters(figures: &[Figure]) -> bool {
    let mut sampled = figures.iter().filter_map(|figure| figure.distribution).peekable();
    sampled.peek().is_some()
        && sampled.all(|d| d.n >= MIN_SAMPLES && d.p75 - d.p25 <= MAX_QUIET_SCATTER * d.median.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::LoadPattern;
    use crate::record::Distribution;
    use crate::tick_share::tail;
    use proptest::prelude::*;
    use rand::{Rng, SeedableRng};

    const NONE: TickShare = TickShare { taken: 0, all: 1_000 };

    fn ticks(taken: u64, all: u64) -> TickShare {
        TickShare { taken, all }
    }

    fn steady(share: f64) -> NormalLoad {
        NormalLoad::new(Some(BackgroundLoad { pattern: LoadPattern::Steady, share, steal: 0.0 }))
    }

    #[test]
    fn a_single_tick_throws_no_short_run_away_and_a_stranger_still_does() {
        let quiet = NormalLoad::default();
        // an earlier rule discarded runs with a median length of 69 and of 8.5 ms (14 and 2 ticks of two
        // processors) on a quiet machine
        for all in [1, 2, 14] {
            assert_eq!(quiet.disturbance(ticks(0, all), ticks(1, all), &[]), None, "one of {all}");
        }
        let why =
            quiet.disturbance(ticks(7, 14), ticks(0, 14), &[]).expect("a loop on one of two processors");
        assert!(why.starts_with("other programs took more than 2.0 %") && why.contains("measure again"));
        assert!(
            quiet
                .disturbance(ticks(0, 400), ticks(20, 400), &[])
                .is_some_and(|why| why.contains("hypervisor"))
        );
        assert_eq!(quiet.disturbance(ticks(8, 400), ticks(8, 400), &[]), None, "as much as is harmless");
    }

    #[test]
    fn steady_load_is_the_machine_and_more_than_that_is_a_disturbance() {
        let normal = steady(0.55);
        assert_eq!(normal.disturbance(ticks(220, 400), NONE, &[]), None);
        assert_eq!(normal.disturbance(ticks(0, 400), NONE, &[]), None, "gangs may take it all");
        let why = normal.disturbance(ticks(340, 400), NONE, &[]).expect("85 %");
        assert!(why.contains("than the 55 % of the processors that they took before the study"), "{why}");
        assert_eq!(steady(1.0).disturbance(ticks(400, 400), NONE, &[]), None);
        let unsteady = BackgroundLoad { pattern: LoadPattern::Unsteady, share: 0.5, steal: 0.0 };
        assert!(NormalLoad::new(Some(unsteady)).disturbance(ticks(220, 400), NONE, &[]).is_some());
    }

    #[test]
    fn the_steal_of_the_whole_study_becomes_normal() {
        let mut normal = NormalLoad::default();
        assert!(normal.disturbance(NONE, ticks(40, 400), &[]).is_some(), "10 % at the start");
        for _ in 0..20 {
            normal.add_steal(ticks(40, 400));
        }
        assert_eq!(normal.disturbance(NONE, ticks(40, 400), &[]), None, "10 % all the time");
        let why = normal.disturbance(NONE, ticks(120, 400), &[]).expect("30 %");
        assert!(why.contains("than during the runs before"), "{why}");
        let stolen = BackgroundLoad { pattern: LoadPattern::Steady, share: 1.0, steal: 0.1 };
        let normal = NormalLoad::new(Some(stolen));
        assert_eq!(normal.disturbance(NONE, ticks(40, 400), &[]), None, "10 % before the study, too");
    }

    #[test]
    fn samples_that_hardly_scatter_acquit_a_short_run_only() {
        let figure = |n, p75| {
            let distribution = Distribution { n, p25: 95.0, median: 100.0, p75, ..Distribution::default() };
            [Figure::from_distribution("ns", "ns", distribution)]
        };
        let quiet = NormalLoad::default();
        let short = |figures: &[Figure]| quiet.disturbance(ticks(6, 14), ticks(0, 14), figures);
        assert_eq!(short(&figure(1_000, 105.0)), None);
        assert!(short(&figure(1_000, 500.0)).is_some(), "scattered");
        assert!(short(&figure(5, 105.0)).is_some(), "too few samples");
        assert!(quiet.disturbance(ticks(200, 400), NONE, &figure(1_000, 105.0)).is_some(), "not short");
    }

    #[test]
    fn chance_alone_throws_away_one_run_of_a_hundred() {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(7);
        for (rate, all) in [(0.02, 14u64), (0.02, 140), (0.02, 2_000), (0.3, 140)] {
            let mut thrown = || {
                let taken = (0..all).filter(|_| random.random::<f64>() < rate).count();
                ticks(taken as u64, all).exceeds(rate)
            };
            let thrown = (0..4_000).filter(|_| thrown()).count();
            assert!(thrown <= 70, "{thrown} of 4,000 at a rate of {rate}, {all} ticks each");
        }
    }

    proptest! {
        #[test]
        fn more_ticks_and_lower_rates_never_acquit(all in 1u64..3_000, taken in 0u64..3_000, rate in 0.001f64..0.999) {
            let taken = taken.min(all);
            if ticks(taken, all).exceeds(rate) {
                prop_assert!(ticks((taken + 1).min(all), all).exceeds(rate));
                prop_assert!(ticks(taken, all).exceeds(rate / 2.0));
                prop_assert!(taken as f64 > rate * all as f64, "less than the rate is never too much");
            }
        }

        #[test]
        fn the_tail_agrees_with_the_sum_of_all_terms(all in 1u64..40, taken in 0u64..41, rate in 0.01f64..0.99) {
            let choose = |k: u64| (0..k).map(|i| (all - i) as f64 / (i + 1) as f64).product::<f64>();
            let term = |k: u64| choose(k) * rate.powi(k as i32) * (1.0 - rate).powi((all - k) as i32);
            let wanted: f64 = (taken.min(all)..=all).map(term).sum();
            prop_assert!((tail(taken.min(all), all, rate) - wanted).abs() < 1e-9);
        }
    }
}
