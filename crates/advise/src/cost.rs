//! The cost by which remedies are compared, and the processors that other programs (bystanders) lose.
//!
//! The idea: a remedy can be faster because it does the work with less processor time, or because it takes
//! processors from other programs. Only the first is a gain for the machine. So the time of a remedy is
//! corrected by the processors that bystanders lost under it: *fair time* is the time that the programs would
//! have taken without these processors. Bystanders also start and end by themselves, so a remedy cannot have
//! taken more from them than the processors that the programs used beyond those under plain Linux. A remedy
//! whose whole gain is the bystanders' loss has the fair time of plain Linux. `CostRule::Clock` leaves the
//! correction out (`unisono advise --selfish`).
//!
//! If a quota throttled the programs while other programs ran, processor time is compared, because the quota
//! limits processor time, and the elapsed time depends on the load of the other programs.
//!
//! Cost: pure; a few sums for each remedy. When not to use: with runs that together last less than
//! `MIN_SUM_S`. The use of other programs is counted in ticks of 10 ms, so such runs show no loss.

use crate::remedy::TriedRemedy;
use crate::trial::{RunEnd, TrialRun, TrialRuns};
use unisono_measure::interval::LEVEL;
use unisono_measure::paired;
use unisono_measure::record::Better;

/// Other programs count as a further program if together they use more processors than this. Desktops and
/// monitoring programs take some percent, a compiler or a second program a whole processor. Chosen between
/// the two, not measured.
pub(crate) const MIN_OTHER_PROCESSORS: f64 = 0.3;

/// The minimum loss of bystanders that counts, in processors: the use of a desktop varies by as much between
/// two runs. Chosen, not measured.
const MIN_LOSS: f64 = 0.1;

/// The minimum sum of the runs' seconds from which the use of other programs is computed: 20 ticks of 10 ms.
const MIN_SUM_S: f64 = 0.2;

/// The kernel counts the machine's time in ticks of this many seconds, so the start and the end of a run are
/// wrong by up to a tick for each busy processor.
const TICK_S: f64 = 0.01;

/// The maximum factor between fair time and time: beyond it, the bystanders lost all that the programs used.
const MAX_FACTOR: f64 = 1_000.0;

/// Mean number of processors that bystanders used while the programs ran under plain Linux (`had`), and under
/// a remedy (`keep`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BystanderLoss {
    pub had: f64,
    pub keep: f64,
    /// Processors that the programs used beyond those under plain Linux, an upper bound on the processors
    /// that they took.
    pub gained: f64,
    /// The standard error of `had - keep` that comes from counting in ticks, at most.
    pub counting_error: f64,
}

impl BystanderLoss {
    /// Computes the loss under a remedy; `None` if the runs of either side were too short.
    pub fn for_remedy(trials: &TrialRuns, remedy: TriedRemedy) -> Option<Self> {
        let had = others_used(trials, TriedRemedy::Plain)?;
        let keep = others_used(trials, remedy)?;
        let plain = used(trials, TriedRemedy::Plain)?;
        let busy = (had + plain).ceil().max(1.0);
        let error = |remedy| {
            let (runs, seconds) = sums(trials, remedy, |_| 1.0);
            TICK_S * (2.0 * busy * runs).sqrt() / seconds
        };
        let counting_error = error(TriedRemedy::Plain).hypot(error(remedy));
        Some(Self { had, keep, gained: used(trials, remedy)? - plain, counting_error })
    }

    /// Returns the number of processors that the bystanders lost to the programs, if it is notable.
    pub fn lost(self) -> Option<f64> {
        let seen = self.had - self.keep;
        let lost = seen.min(self.gained);
        (lost >= MIN_LOSS && seen - self.counting_error >= MIN_LOSS).then_some(lost)
    }

    /// Returns words such as `takes it from others: they keep 0.2 of 1.8 processors`; `None` if the
    /// bystanders lost nothing.
    pub fn in_words(self) -> Option<String> {
        self.lost()?;
        Some(format!("takes it from others: they keep {:.1} of {:.1} processors", self.keep, self.had))
    }
}

/// Returns the mean number of processors that other programs used during all runs of a remedy; `None` if the
/// runs were too short together.
pub fn others_used(trials: &TrialRuns, remedy: TriedRemedy) -> Option<f64> {
    let (others_s, seconds) = sums(trials, remedy, |run| run.observation.others * run.observation.seconds);
    (seconds >= MIN_SUM_S).then(|| (others_s / seconds).max(0.0))
}

/// Returns the mean number of processors that the programs used during all runs of a remedy.
fn used(trials: &TrialRuns, remedy: TriedRemedy) -> Option<f64> {
    let (ran_s, seconds) = sums(trials, remedy, |run| run.observation.ran_s);
    (seconds > 0.0).then(|| ran_s / seconds)
}

/// Returns the sum of a figure and the sum of the seconds over all runs of a remedy.
fn sums(trials: &TrialRuns, remedy: TriedRemedy, figure: fn(&TrialRun) -> f64) -> (f64, f64) {
    let runs = || runs_of(trials, remedy);
    (runs().map(figure).sum(), runs().map(|run| run.observation.seconds).sum())
}

/// Returns the factor from the time of a remedy to its fair time.
fn fair_factor(trials: &TrialRuns, remedy: TriedRemedy) -> f64 {
    let Some(lost) = BystanderLoss::for_remedy(trials, remedy).and_then(BystanderLoss::lost) else {
        return 1.0;
    };
    let used = used(trials, remedy).unwrap_or(0.0);
    let own = used - lost;
    if own * MAX_FACTOR <= used { MAX_FACTOR } else { used / own }
}

/// The cost of a run, by which remedies are compared; the lower cost wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostRule {
    /// Elapsed seconds, whatever bystanders lost.
    Clock,
    /// Fair time: seconds without the processors that bystanders lost.
    Fair,
    /// Seconds of processor time of all threads.
    ProcessorTime,
}

impl CostRule {
    /// Chooses the rule for a trial, without regard to `--selfish`.
    pub(crate) fn choose(trials: &TrialRuns) -> Self {
        let is_stopped = trials.periods.is_some_and(|periods| periods.throttled > 0);
        let others = others_used(trials, TriedRemedy::Plain).unwrap_or(0.0);
        if is_stopped && others > MIN_OTHER_PROCESSORS { Self::ProcessorTime } else { Self::Fair }
    }

    /// Returns the costs of a remedy's runs that succeeded, with their rounds.
    fn by_round(self, trials: &TrialRuns, remedy: TriedRemedy) -> Vec<(usize, f64)> {
        let factor = if self == Self::Fair { fair_factor(trials, remedy) } else { 1.0 };
        let cost = |run: &TrialRun| match self {
            Self::Clock | Self::Fair => run.seconds * factor,
            Self::ProcessorTime => run.observation.ran_s,
        };
        let ended = runs_of(trials, remedy).filter(|run| run.ended == RunEnd::Succeeded);
        ended.map(|run| (run.round, cost(run))).collect()
    }

    /// Returns the costs of a remedy's runs that succeeded.
    pub(crate) fn costs(self, trials: &TrialRuns, remedy: TriedRemedy) -> Vec<f64> {
        self.by_round(trials, remedy).into_iter().map(|(_, cost)| cost).collect()
    }

    /// Compares a remedy with plain Linux; a ratio below 1 means that the remedy was better.
    pub(crate) fn against_plain(
        self,
        trials: &TrialRuns,
        remedy: TriedRemedy,
        level: f64,
    ) -> Option<paired::Comparison> {
        let plain = self.by_round(trials, TriedRemedy::Plain);
        let own = self.by_round(trials, remedy);
        let beside = |round: usize| plain.iter().find(|(other, _)| *other == round).map(|(_, cost)| *cost);
        let pairs: Vec<(f64, f64)> =
            own.into_iter().filter_map(|(round, cost)| Some((cost, beside(round)?))).collect();
        paired::compare(&pairs, Better::Lower, level)
    }
}

/// Returns the seconds of a remedy's runs that succeeded.
pub fn run_seconds(trials: &TrialRuns, remedy: TriedRemedy) -> Vec<f64> {
    CostRule::Clock.costs(trials, remedy)
}

/// Compares a remedy's seconds with plain Linux's; a ratio below 1 means that the remedy was faster.
pub fn against_plain(trials: &TrialRuns, remedy: TriedRemedy) -> Option<paired::Comparison> {
    CostRule::Clock.against_plain(trials, remedy, LEVEL)
}

pub(crate) fn runs_of(trials: &TrialRuns, remedy: TriedRemedy) -> impl Iterator<Item = &TrialRun> {
    trials.runs.iter().filter(move |run| run.remedy == remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Observation;
    use proptest::prelude::*;

    /// Makes a run of `seconds` that used `ran_s` of processor time, beside others that used `others`
    /// processors.
    fn run(remedy: TriedRemedy, seconds: f64, ran_s: f64, others: f64) -> TrialRun {
        let observation = Observation { seconds, ran_s, others, ..Observation::default() };
        TrialRun { remedy, round: 0, ended: RunEnd::Succeeded, seconds, observation }
    }

    fn trials(gangs: TrialRun) -> TrialRuns {
        TrialRuns { runs: vec![run(TriedRemedy::Plain, 2.0, 0.8, 1.6), gangs], ..TrialRuns::default() }
    }

    fn fair_gain(gangs: TrialRun) -> f64 {
        let all = trials(gangs);
        1.0 / CostRule::Fair.against_plain(&all, TriedRemedy::Gangs, LEVEL).expect("a pair").ratio.value
    }

    #[test]
    fn processors_taken_from_others_are_no_gain_and_processor_time_saved_is_one() {
        // the same work with the same processor time, but on processors taken from the others: no gain
        let taken = fair_gain(run(TriedRemedy::Gangs, 0.4, 0.8, 0.0));
        assert!((taken - 1.0).abs() < 1e-9, "{taken}");
        // a quarter of the processor time, and the others lose nothing: four times as good
        let saved = fair_gain(run(TriedRemedy::Gangs, 0.5, 0.2, 1.6));
        assert!((saved - 4.0).abs() < 1e-9, "{saved}");
        // half of the processor time, but on processors taken from the others: twice as good, not ten times
        let both = fair_gain(run(TriedRemedy::Gangs, 0.2, 0.4, 0.0));
        assert!((both - 2.0).abs() < 1e-9, "{both}");
    }

    #[test]
    fn others_that_leave_by_themselves_were_not_taken_from() {
        // the programs use less than under plain Linux, so they took nothing, whatever the others do
        let all = trials(run(TriedRemedy::Gangs, 0.5, 0.1, 0.2));
        assert_eq!(BystanderLoss::for_remedy(&all, TriedRemedy::Gangs).and_then(BystanderLoss::lost), None);
        assert!((fair_gain(run(TriedRemedy::Gangs, 0.5, 0.1, 0.2)) - 4.0).abs() < 1e-9);
        // the programs use 0.2 processors more, so of the 1.4 that the others lost, at most 0.2 were taken
        let gain = fair_gain(run(TriedRemedy::Gangs, 0.5, 0.3, 0.2));
        assert!((gain - 4.0 * 0.4 / 0.6).abs() < 1e-9, "{gain}");
    }

    #[test]
    fn a_loss_within_the_error_of_counting_is_none() {
        // programs that sleep most of the time run one after the other, beside two busy processors: three
        // runs of 0.16 s are too short to tell 1.85 processors from 1.98
        let three = |remedy, seconds, ran_s, others| {
            (0..3).map(move |round| TrialRun { round, ..run(remedy, seconds, ran_s, others) })
        };
        let trial = |seconds: f64, ran_s: f64, others: f64| {
            let plain = three(TriedRemedy::Plain, 1.02, 0.015, 1.98);
            let runs = plain.chain(three(TriedRemedy::InTurn, seconds, ran_s, others)).collect();
            TrialRuns { runs, ..TrialRuns::default() }
        };
        let lost = |all: &TrialRuns| BystanderLoss::for_remedy(all, TriedRemedy::InTurn)?.lost();
        assert_eq!(lost(&trial(0.163, 0.019, 1.85)), None);
        assert!(lost(&trial(1.63, 0.19, 1.85)).is_some(), "ten times as long: it is a loss");
        assert!(lost(&trial(0.163, 0.3, 0.4)).is_some(), "no error of counting is that large");
    }

    #[test]
    fn short_runs_show_no_loss_alone_but_together() {
        let short = |rounds: usize| {
            let mut all = TrialRuns::default();
            for round in 0..rounds {
                for (remedy, others) in [(TriedRemedy::Plain, 1.6), (TriedRemedy::Fit, 0.2)] {
                    let ran_s = if remedy == TriedRemedy::Plain { 0.01 } else { 0.08 };
                    all.runs.push(TrialRun { round, ..run(remedy, 0.05, ran_s, others) });
                }
            }
            BystanderLoss::for_remedy(&all, TriedRemedy::Fit)
        };
        assert_eq!(short(3), None);
        let loss = short(5).expect("a quarter of a second");
        let words = loss.in_words().expect("a loss");
        assert_eq!(words, "takes it from others: they keep 0.2 of 1.6 processors");
    }

    proptest! {
        #[test]
        fn fair_time_is_never_less_than_the_clocks(
            seconds in 0.1f64..5.0, used in 0.0f64..2.0, had in 0.0f64..2.0, keep in 0.0f64..2.0,
        ) {
            let plain = run(TriedRemedy::Plain, 1.0, 1.0, had);
            let other = run(TriedRemedy::Gangs, seconds, used * seconds, keep);
            let all = TrialRuns { runs: vec![plain, other], ..TrialRuns::default() };
            let factor = fair_factor(&all, TriedRemedy::Gangs);
            prop_assert!((1.0..=MAX_FACTOR).contains(&factor));
            prop_assert!(had > keep && used > 1.0 || factor == 1.0, "nobody lost anything to the programs");
        }
    }
}
