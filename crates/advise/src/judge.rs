//! The verdict: the best remedy, its gain, and which of the paper's conditions for gangs hold.
//!
//! Pure. A remedy is compared with plain Linux run by run in the same round ([`unisono_measure::paired`]).
//! Among all remedies that take at most [`SIMPLICITY_TOLERANCE`] times as long as the best, the simplest is
//! advised. The order of simplicity is: `fit`, a wait policy, binding, a partition, one program after the
//! other, a priority, gangs. Gangs come last because they make every program take turns. A remedy that was
//! not clearly better than plain Linux is never advised.
//!
//! *Clearly* allows for the number of remedies: with an interval of 95 % for each of eight remedies that
//! change nothing, the best of them looks better than plain Linux in every third trial. It also allows for
//! the runtimes that the programs loaded. Variables that none of these runtimes reads should have no effect.
//! They are still advised after a gain too large for chance (`MAX_CLEAR_RATIO`), because a runtime may be
//! linked into the program's own file.
//!
//! If the quota stopped the programs and other programs used processors beside them, remedies are compared by
//! processor time (`TrialCost`), because the quota limits processor time. Elapsed time would depend on who
//! took processors from the other programs: a remedy with twice as many threads, or gangs with a weight of
//! their own, could win by that.
//!
//! The conditions are those of the paper (TR 745, section 3), and a sixth, the quota. A condition that
//! cannot be observed from outside is reported as unknown.

use crate::remedy::{FitPlan, TriedRemedy};
use crate::trial::{RunEnd, TrialRun, TrialRuns};
use crate::watch::{Observation, WorkBetweenSleeps};
use unisono_linux::clock::Nanos;
use unisono_linux::quota::QuotaPeriods;
use unisono_measure::bootstrap::{Estimate, LEVEL};
use unisono_measure::paired::{self, Finding};
use unisono_measure::quantile::median;
use unisono_measure::record::Better;
use unisono_measure::units::number;
use unisono_text::counted;
use unisono_text::named;

/// A simpler remedy is preferred while it takes at most this many times as long as the best one. Two runs of
/// one program on an idle host usually differ by 5 %, and a scheduler is not worth running for less. With
/// 1.1, a gang that saves a tenth would never be advised. Chosen, not measured.
pub const SIMPLICITY_TOLERANCE: f64 = 1.05;
/// In fewer than [`MIN_ROUNDS`] rounds, a remedy must take at most this share of plain Linux's time in every
/// round. So must a remedy that is not known to act on the loaded runtimes. Two runs of one program seldom
/// differ by half as much again by chance. Chosen for this reason, not measured.
const MAX_CLEAR_RATIO: f64 = 0.67;
/// With fewer rounds, all rounds may agree by chance: with five, one trial of 16 does (two-sided sign test).
const MIN_ROUNDS: usize = 6;
/// Synchronization counts as fine-grained if threads sleep more often than this per second of work: once per
/// millisecond, where the cost of blocking (7 us each in the paper, 14 to 63 us on virtual machines) begins
/// to matter.
const FINE_GRAINED_SLEEPS_PER_S: f64 = 1_000.0;
/// Work counts as unbalanced if the busiest thread runs longer than the mean by this factor: the other
/// threads then idle for a fifth of the time, more than any remedy here gains. Chosen, not measured; the
/// paper names the condition without a number.
const MIN_IMBALANCE: f64 = 1.25;
/// The load counts as changing if the used processors vary by more than this (standard deviation over mean).
/// A program that computes all the time varies by a few percent (the ticks of the measurement). A program
/// that alternates between all processors and a quarter of them varies by 0.6. Chosen between the two, not
/// measured.
const MIN_LOAD_VARIATION: f64 = 0.3;
/// Others count as a further program if they use more processors than this. Desktops and monitoring programs
/// take some percent, a compiler or a second program a whole processor. Chosen between the two, not measured.
const MIN_OTHER_PROCESSORS: f64 = 0.3;

named! {
    /// The answer of `unisono advise`; the names are those of `advise --json`.
    pub enum AdviceVerdict {
        TooManyThreads = "too-many-threads",
        WaitPolicy = "wait-policy",
        Pin = "pin",
        Partition = "partition",
        InTurn = "in-turn",
        Priority = "priority",
        Gang = "gang",
        Nothing = "nothing",
        /// The runs cannot decide.
        Undecided = "undecided",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangCondition {
    pub name: &'static str,
    /// `None` if no observation decides.
    pub holds: Option<bool>,
    pub evidence: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    pub verdict: AdviceVerdict,
    /// The remedy advised; plain Linux if none is.
    pub remedy: TriedRemedy,
    /// Plain Linux's time over this remedy's time, if both ended.
    pub gain: Option<Estimate>,
    /// A lower bound of plain Linux's time over this remedy's time, if plain Linux was stopped.
    pub at_least: Option<f64>,
    pub conditions: Vec<GangCondition>,
}

/// Facts about the programs besides the runs.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    pub programs: usize,
    /// Processors that the programs effectively have.
    pub processors: usize,
    pub fit: FitPlan,
}

/// The cost of a run, by which remedies are compared; the lower cost wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialCost {
    Seconds,
    /// Seconds of processor time of all threads.
    ProcessorSeconds,
}

impl TrialCost {
    fn choose(trials: &TrialRuns) -> Self {
        let stopped = trials.periods.is_some_and(|periods| periods.throttled > 0);
        let others =
            runs_of(trials, TriedRemedy::Plain).map(|run| run.observation.others).fold(0.0, f64::max);
        if stopped && others > MIN_OTHER_PROCESSORS {
            TrialCost::ProcessorSeconds
        } else {
            TrialCost::Seconds
        }
    }

    fn cost(self, run: &TrialRun) -> f64 {
        match self {
            TrialCost::Seconds => run.seconds,
            TrialCost::ProcessorSeconds => run.observation.ran_s,
        }
    }

    /// Costs of a remedy in the rounds that it ended well.
    fn costs(self, trials: &TrialRuns, remedy: TriedRemedy) -> Vec<f64> {
        runs_of(trials, remedy)
            .filter(|run| run.ended == RunEnd::Succeeded)
            .map(|run| self.cost(run))
            .collect()
    }

    /// Compares a remedy with plain Linux; a ratio below 1 means that the remedy was better.
    fn against_plain(
        self,
        trials: &TrialRuns,
        remedy: TriedRemedy,
        level: f64,
    ) -> Option<paired::Comparison> {
        let plain = |round: usize| {
            runs_of(trials, TriedRemedy::Plain)
                .find(|run| run.round == round && run.ended == RunEnd::Succeeded)
        };
        let pairs: Vec<(f64, f64)> = runs_of(trials, remedy)
            .filter(|run| run.ended == RunEnd::Succeeded)
            .filter_map(|run| Some((self.cost(run), self.cost(plain(run.round)?))))
            .collect();
        paired::compare(&pairs, Better::Lower, level, 1)
    }
}

/// Seconds of a remedy in the rounds that it ended well.
pub fn run_seconds(trials: &TrialRuns, remedy: TriedRemedy) -> Vec<f64> {
    TrialCost::Seconds.costs(trials, remedy)
}

fn runs_of(trials: &TrialRuns, remedy: TriedRemedy) -> impl Iterator<Item = &TrialRun> {
    trials.runs.iter().filter(move |run| run.remedy == remedy)
}

/// Compares a remedy's seconds with plain Linux's; a ratio below 1 means that the remedy was faster.
pub fn against_plain(trials: &TrialRuns, remedy: TriedRemedy) -> Option<paired::Comparison> {
    TrialCost::Seconds.against_plain(trials, remedy, LEVEL)
}

pub fn judge(trials: &TrialRuns, circumstances: &Circumstances) -> Advice {
    let conditions = conditions(trials, circumstances);
    let advice = |verdict, remedy, gain, at_least| Advice {
        verdict,
        remedy,
        gain,
        at_least,
        conditions: conditions.clone(),
    };
    let cost = TrialCost::choose(trials);
    let middle = |remedy: TriedRemedy| median(&cost.costs(trials, remedy));
    let ended = TriedRemedy::ALL.into_iter().filter_map(|remedy| Some((remedy, middle(remedy)?)));
    let compared = ended.clone().filter(|(remedy, _)| *remedy != TriedRemedy::Plain).count();
    // Bonferroni's correction
    let level = 1.0 - (1.0 - LEVEL) / compared.max(1) as f64;
    let against = |remedy: TriedRemedy| cost.against_plain(trials, remedy, level);
    let is_credible = |remedy: TriedRemedy| {
        remedy.is_known_to_act(&trials.runtimes)
            || against(remedy).is_none_or(|one| one.ratio.high < MAX_CLEAR_RATIO)
    };
    let ended = ended.filter(|(remedy, _)| is_credible(*remedy));
    let Some((_, best)) = ended.clone().min_by(|one, other| one.1.total_cmp(&other.1)) else {
        return advice(AdviceVerdict::Undecided, TriedRemedy::Plain, None, None);
    };
    if runs_of(trials, TriedRemedy::Plain).any(|run| matches!(run.ended, RunEnd::Failed { .. })) {
        return advice(AdviceVerdict::Undecided, TriedRemedy::Plain, None, None);
    }
    let plain_stopped =
        runs_of(trials, TriedRemedy::Plain).find(|run| run.ended == RunEnd::Stopped).map(|run| run.seconds);
    // remedies with a better median whose runs cannot decide
    let mut unsure = Vec::new();
    for (remedy, spent) in ended {
        if spent > best * SIMPLICITY_TOLERANCE {
            continue;
        }
        if remedy == TriedRemedy::Plain {
            return advice(AdviceVerdict::Nothing, remedy, None, None);
        }
        if let Some(limit) = plain_stopped {
            let at_least = median(&run_seconds(trials, remedy)).map(|seconds| limit / seconds);
            return advice(remedy_verdict(remedy, circumstances), remedy, None, at_least);
        }
        let Some(comparison) = against(remedy) else { continue };
        let Some(gain) = against_plain(trials, remedy).map(|clock| clock.ratio.inverse()) else { continue };
        let sure = match comparison.ratio.n {
            ..MIN_ROUNDS => comparison.ratio.high < MAX_CLEAR_RATIO,
            _ => comparison.finding(Better::Lower) == Finding::Better,
        };
        // processor time alone is no gain: a user waits for the programs to end
        if sure && gain.value > 1.0 {
            return advice(remedy_verdict(remedy, circumstances), remedy, Some(gain), None);
        }
        unsure.push((remedy, gain));
    }
    match unsure.first() {
        // these remedies have the best medians, but no gain over plain Linux in the same rounds
        Some(_)
            if unsure.iter().all(|(_, gain)| gain.n >= MIN_ROUNDS && gain.value <= SIMPLICITY_TOLERANCE) =>
        {
            advice(AdviceVerdict::Nothing, TriedRemedy::Plain, None, None)
        }
        Some(&(remedy, gain)) => advice(AdviceVerdict::Undecided, remedy, Some(gain), None),
        None => advice(AdviceVerdict::Undecided, TriedRemedy::Plain, None, None),
    }
}

fn remedy_verdict(remedy: TriedRemedy, circumstances: &Circumstances) -> AdviceVerdict {
    let fit = &circumstances.fit;
    match remedy {
        TriedRemedy::Plain => AdviceVerdict::Nothing,
        TriedRemedy::Passive => AdviceVerdict::WaitPolicy,
        TriedRemedy::Pin => AdviceVerdict::Pin,
        TriedRemedy::Partition => AdviceVerdict::Partition,
        TriedRemedy::InTurn => AdviceVerdict::InTurn,
        TriedRemedy::Priority => AdviceVerdict::Priority,
        TriedRemedy::Gangs | TriedRemedy::GangsShort | TriedRemedy::GangsLong => AdviceVerdict::Gang,
        TriedRemedy::Fit if fit.fewer_threads() => AdviceVerdict::TooManyThreads,
        TriedRemedy::Fit if fit.waits() => AdviceVerdict::WaitPolicy,
        // each program, or each thread, has processors of its own
        TriedRemedy::Fit => AdviceVerdict::Pin,
    }
}

/// The conditions that a single watched run shows, without a run to compare with. `periods` are the periods
/// of its quota during the run.
pub fn conditions_of_one_run(
    seen: &Observation,
    periods: Option<QuotaPeriods>,
    circumstances: &Circumstances,
) -> Vec<GangCondition> {
    let run = TrialRun {
        remedy: TriedRemedy::Plain,
        round: 0,
        ended: RunEnd::Stopped,
        seconds: seen.seconds,
        observation: seen.clone(),
    };
    conditions(&TrialRuns { runs: vec![run], periods, ..TrialRuns::default() }, circumstances)
}

fn conditions(trials: &TrialRuns, circumstances: &Circumstances) -> Vec<GangCondition> {
    let seen = |remedy: TriedRemedy| {
        runs_of(trials, remedy).map(|run| &run.observation).find(|seen| seen.threads > 0)
    };
    let plain = seen(TriedRemedy::Plain);
    let team = seen(TriedRemedy::Passive).or(plain);
    let sleeps = wait_sleeps_per_s(trials);
    let unseen = || "the programs ended before they could be watched".to_owned();
    vec![
        GangCondition {
            name: "fine-grained synchronization",
            holds: (sleeps > FINE_GRAINED_SLEEPS_PER_S).then_some(true),
            evidence: fine_grained_evidence(sleeps, team.and_then(|seen| seen.between_sleeps)),
        },
        GangCondition {
            name: "balanced work",
            holds: team.map(|seen| seen.imbalance < MIN_IMBALANCE),
            evidence: team.map_or_else(unseen, |seen| {
                format!(
                    "the busiest thread ran {:.2} times as long as the mean of its program",
                    seen.imbalance
                )
            }),
        },
        GangCondition {
            name: "latency matters",
            holds: None,
            evidence: "cannot be seen from outside; you know whether somebody waits for each answer".into(),
        },
        several_programs(plain, circumstances),
        GangCondition {
            name: "the load changes",
            holds: plain.map(|seen| seen.load_variation > MIN_LOAD_VARIATION),
            evidence: plain.map_or_else(unseen, |seen| {
                format!("the use of processors varied by {:.0} % of its mean", 100.0 * seen.load_variation)
            }),
        },
        quota_condition(trials, plain, circumstances),
    ]
}

/// Sleeps per second of work. Threads that sleep while they wait show the number of their waits, unless they
/// happen to run in step.
pub(crate) fn wait_sleeps_per_s(trials: &TrialRuns) -> f64 {
    let runs = runs_of(trials, TriedRemedy::Passive).chain(runs_of(trials, TriedRemedy::Plain));
    runs.map(|run| run.observation.sleeps_per_s).fold(0.0, f64::max)
}

/// With more sleeps per second of work than this, the sleeps count as waits for other threads, not for files.
pub(crate) const MIN_WAIT_SLEEPS_PER_S: f64 = FINE_GRAINED_SLEEPS_PER_S / 10.0;

fn fine_grained_evidence(sleeps: f64, work: Option<WorkBetweenSleeps>) -> String {
    if sleeps >= MIN_WAIT_SLEEPS_PER_S {
        let times = work.map_or_else(String::new, |work| {
            let us = |time: Nanos| number(time.0 as f64 / 1e3);
            let (low, middle, high) = (us(work.low), us(work.median), us(work.high));
            format!(", and worked {middle} us between two sleeps ({low} to {high} us in eight of ten cases)")
        });
        format!("a thread slept up to {sleeps:.0} times in a second of work{times}")
    } else {
        "threads hardly sleep: they spin while they wait, or never wait".into()
    }
}

fn several_programs(plain: Option<&Observation>, circumstances: &Circumstances) -> GangCondition {
    let others = plain.map_or(0.0, |seen| seen.others);
    let evidence = format!(
        "{}, and others used {others:.1} of {} meanwhile",
        counted(circumstances.programs, "program"),
        counted(circumstances.processors, "processor")
    );
    let holds = Some(circumstances.programs > 1 || others > MIN_OTHER_PROCESSORS);
    GangCondition { name: "several programs want the processors", holds, evidence }
}

fn quota_condition(
    trials: &TrialRuns,
    plain: Option<&Observation>,
    circumstances: &Circumstances,
) -> GangCondition {
    let threads = plain.map_or(0, |seen| seen.threads);
    let there = counted(circumstances.processors, "processor");
    let enough = threads <= circumstances.processors;
    let (holds, evidence) = match trials.periods.filter(|periods| periods.all > 0) {
        Some(periods) if periods.throttled > 0 => (
            false,
            format!(
                "the kernel stopped the programs in {} of {} periods of their quota",
                periods.throttled, periods.all
            ),
        ),
        _ if threads == 0 => (true, "no quota stopped the programs".into()),
        _ => (enough, format!("at most {} worked at a time, on {there}", counted(threads, "thread"))),
    };
    GangCondition {
        name: "no more threads than the quota and the processors allow",
        holds: Some(holds),
        evidence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(remedy: TriedRemedy, round: usize, seconds: f64) -> TrialRun {
        let observation = Observation { seconds, threads: 2, ..Observation::default() };
        TrialRun { remedy, round, ended: RunEnd::Succeeded, seconds, observation }
    }

    fn trials(rounds: &[&[(TriedRemedy, f64)]]) -> TrialRuns {
        let one = |(round, runs): (usize, &&[(TriedRemedy, f64)])| {
            runs.iter().map(move |(remedy, seconds)| run(*remedy, round, *seconds)).collect::<Vec<_>>()
        };
        TrialRuns { runs: rounds.iter().enumerate().flat_map(one).collect(), ..TrialRuns::default() }
    }

    fn two() -> Circumstances {
        Circumstances { programs: 2, processors: 2, fit: FitPlan::default() }
    }

    fn threads() -> Circumstances {
        let set = vec!["OMP_NUM_THREADS".to_owned()];
        Circumstances { fit: FitPlan { set }, ..two() }
    }

    #[test]
    fn what_fit_sets_decides_what_its_success_means() {
        let faster: &[(TriedRemedy, f64)] = &[(TriedRemedy::Plain, 2.0), (TriedRemedy::Fit, 0.5)];
        let all = trials(&[faster, faster, faster]);
        assert_eq!(judge(&all, &threads()).verdict, AdviceVerdict::TooManyThreads);
        assert_eq!(judge(&all, &two()).verdict, AdviceVerdict::Pin);
        let gain = judge(&all, &two()).gain.expect("both ended");
        assert_eq!((gain.value, gain.n), (4.0, 3));
    }

    #[test]
    fn a_simpler_remedy_is_advised_before_one_that_is_hardly_faster() {
        let round: &[(TriedRemedy, f64)] = &[
            (TriedRemedy::Plain, 6.0),
            (TriedRemedy::Passive, 0.90),
            (TriedRemedy::Gangs, 0.88),
            (TriedRemedy::InTurn, 1.8),
        ];
        assert_eq!(judge(&trials(&[round, round, round]), &two()).verdict, AdviceVerdict::WaitPolicy);
        let round: &[(TriedRemedy, f64)] =
            &[(TriedRemedy::Plain, 6.0), (TriedRemedy::Passive, 5.9), (TriedRemedy::Gangs, 1.85)];
        assert_eq!(judge(&trials(&[round, round, round]), &two()).verdict, AdviceVerdict::Gang);
    }

    #[test]
    fn what_is_not_clearly_better_is_not_advised() {
        let same: &[(TriedRemedy, f64)] =
            &[(TriedRemedy::Plain, 1.0), (TriedRemedy::Fit, 0.97), (TriedRemedy::Gangs, 0.99)];
        assert_eq!(judge(&trials(&[same, same, same]), &two()).verdict, AdviceVerdict::Nothing);
        let up: &[(TriedRemedy, f64)] = &[(TriedRemedy::Plain, 1.0), (TriedRemedy::Gangs, 0.5)];
        let down: &[(TriedRemedy, f64)] = &[(TriedRemedy::Plain, 1.0), (TriedRemedy::Gangs, 2.0)];
        assert_eq!(judge(&trials(&[up, down, up]), &two()).verdict, AdviceVerdict::Undecided);
        let both: &[(TriedRemedy, f64)] =
            &[(TriedRemedy::Plain, 1.0), (TriedRemedy::Pin, 0.5), (TriedRemedy::Gangs, 0.51)];
        let one: &[(TriedRemedy, f64)] =
            &[(TriedRemedy::Plain, 1.0), (TriedRemedy::Pin, 1.5), (TriedRemedy::Gangs, 0.5)];
        assert_eq!(
            judge(&trials(&[both, one, both]), &two()).verdict,
            AdviceVerdict::Gang,
            "pin was slower once"
        );
        let once: &[(TriedRemedy, f64)] = &[(TriedRemedy::Plain, 1.0), (TriedRemedy::Gangs, 0.9)];
        assert_eq!(judge(&trials(&[once]), &two()).verdict, AdviceVerdict::Undecided);
    }

    #[test]
    fn few_rounds_tell_only_what_is_plain() {
        let round: &[(TriedRemedy, f64)] = &[(TriedRemedy::Plain, 1.0), (TriedRemedy::Gangs, 0.8)];
        assert_eq!(judge(&trials(&[round; 5]), &two()).verdict, AdviceVerdict::Undecided);
        assert_eq!(judge(&trials(&[round; 6]), &two()).verdict, AdviceVerdict::Gang);
    }

    #[test]
    fn variables_that_no_runtime_reads_are_no_remedy() {
        let round: &[(TriedRemedy, f64)] = &[(TriedRemedy::Plain, 1.0), (TriedRemedy::Pin, 0.8)];
        let verdict = |runtime: Option<&str>, rounds: &[&[(TriedRemedy, f64)]]| {
            let runtimes = runtime.map(str::to_owned).into_iter().collect();
            judge(&TrialRuns { runtimes, ..trials(rounds) }, &two()).verdict
        };
        assert_eq!(verdict(Some("libgomp.so.1.0.0"), &[round; 9]), AdviceVerdict::Pin);
        assert_eq!(verdict(Some("libjvm.so"), &[round; 9]), AdviceVerdict::Nothing);
        let plainly: &[(TriedRemedy, f64)] = &[(TriedRemedy::Plain, 1.0), (TriedRemedy::Pin, 0.5)];
        assert_eq!(verdict(None, &[plainly; 9]), AdviceVerdict::Pin, "the program's file may contain one");
    }

    #[test]
    fn the_best_of_many_remedies_that_change_nothing_is_seldom_advised() {
        use rand::{Rng, SeedableRng};
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let mut advised = 0;
        for _ in 0..200 {
            // times alternate between two values, as on a host whose cores are shared with another machine
            let rounds: Vec<Vec<(TriedRemedy, f64)>> = (0..9)
                .map(|_| {
                    TriedRemedy::ALL.map(|remedy| (remedy, if random.random() { 0.17 } else { 0.28 })).into()
                })
                .collect();
            let all = trials(&rounds.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let verdict = judge(&all, &two()).verdict;
            advised += u32::from(!matches!(verdict, AdviceVerdict::Nothing | AdviceVerdict::Undecided));
        }
        assert!(advised <= 10, "{advised} of 200 trials");
    }

    #[test]
    fn plain_linux_that_does_not_end_was_slower_by_at_least_the_limit() {
        let mut all = trials(&[&[(TriedRemedy::Plain, 20.0), (TriedRemedy::Passive, 0.5)]]);
        all.runs[0].ended = RunEnd::Stopped;
        let advice = judge(&all, &two());
        assert_eq!(
            (advice.verdict, advice.at_least, advice.gain),
            (AdviceVerdict::WaitPolicy, Some(40.0), None)
        );
    }

    #[test]
    fn nothing_is_said_of_programs_that_fail_or_of_remedies_that_never_end() {
        let mut all = trials(&[&[(TriedRemedy::Plain, 0.1), (TriedRemedy::Fit, 0.01)]]);
        all.runs[0].ended = RunEnd::Failed { code: 1, last_line: "no such file".into() };
        assert_eq!(judge(&all, &two()).verdict, AdviceVerdict::Undecided);
        all.runs.iter_mut().for_each(|run| run.ended = RunEnd::Stopped);
        assert_eq!(judge(&all, &two()).verdict, AdviceVerdict::Undecided);
    }

    /// Medians of an OpenMP loop in a quota of one of two processors, beside strangers that used one
    /// processor: elapsed seconds, and seconds of processor time. In this measurement the gangs had taken
    /// processors from the strangers.
    fn in_a_quota_beside_others(periods: Option<QuotaPeriods>) -> TrialRuns {
        let measured = [
            (TriedRemedy::Plain, 0.489, 0.503),
            (TriedRemedy::Fit, 0.271, 0.223),
            (TriedRemedy::Passive, 0.524, 0.455),
            (TriedRemedy::Pin, 0.419, 0.421),
            (TriedRemedy::Gangs, 0.199, 0.315),
        ];
        let round = measured.map(|(remedy, seconds, _)| (remedy, seconds));
        let mut all = trials(&[&round, &round, &round]);
        for (run, (_, _, ran_s)) in all.runs.iter_mut().zip(measured.iter().cycle()) {
            run.observation.ran_s = *ran_s;
            run.observation.others = 1.0;
        }
        TrialRuns { periods, ..all }
    }

    #[test]
    fn a_quota_that_stopped_the_programs_counts_whatever_others_leave() {
        let all = in_a_quota_beside_others(Some(QuotaPeriods { all: 108, throttled: 24 }));
        let advice = judge(&all, &threads());
        assert_eq!((advice.verdict, advice.remedy), (AdviceVerdict::TooManyThreads, TriedRemedy::Fit));
        assert!(advice.gain.is_some_and(|gain| gain.value > 1.8), "it is that of the clock: {advice:?}");
        let free = in_a_quota_beside_others(Some(QuotaPeriods { all: 108, throttled: 0 }));
        assert_eq!(judge(&free, &threads()).verdict, AdviceVerdict::Gang);
        assert_eq!(judge(&in_a_quota_beside_others(None), &threads()).verdict, AdviceVerdict::Gang);
    }

    #[test]
    fn processor_time_saved_is_no_remedy_if_the_programs_take_longer() {
        let mut all = in_a_quota_beside_others(Some(QuotaPeriods { all: 108, throttled: 24 }));
        let fit = |run: &&mut TrialRun| run.remedy == TriedRemedy::Fit;
        all.runs.iter_mut().filter(fit).for_each(|run| run.seconds = 0.6);
        assert_eq!(judge(&all, &threads()).verdict, AdviceVerdict::Undecided);
    }

    #[test]
    fn a_quota_that_stopped_the_programs_is_said_with_its_periods() {
        let mut all = trials(&[&[(TriedRemedy::Plain, 1.0)]]);
        all.periods = Some(QuotaPeriods { all: 20, throttled: 19 });
        let last = judge(&all, &two()).conditions.pop().expect("six conditions");
        assert_eq!(last.holds, Some(false));
        assert!(last.evidence.contains("19 of 20"), "{}", last.evidence);
    }

    proptest! {
        #[test]
        fn a_way_that_was_slower_at_the_median_is_never_advised(
            times in proptest::collection::vec(
                proptest::collection::vec(0.01f64..100.0, TriedRemedy::ALL.len()), 1..9
            )
        ) {
            let rounds: Vec<Vec<(TriedRemedy, f64)>> =
                times.iter().map(|round| TriedRemedy::ALL.into_iter().zip(round.iter().copied()).collect()).collect();
            let all = trials(&rounds.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let all = TrialRuns { runtimes: ["libgomp.so.1".to_owned()].into(), ..all };
            let advice = judge(&all, &two());
            let middle = |remedy: TriedRemedy| super::run_seconds(&all, remedy);
            let (remedy, plain) = (median(&middle(advice.remedy)), median(&middle(TriedRemedy::Plain)));
            if !matches!(advice.verdict, AdviceVerdict::Nothing | AdviceVerdict::Undecided) {
                prop_assert!(advice.gain.is_some_and(|gain| gain.value > 1.0));
                // the advised remedy is among the best
                let best = TriedRemedy::ALL.into_iter().filter_map(|remedy| median(&middle(remedy))).fold(f64::MAX, f64::min);
                prop_assert!(remedy <= Some(best * SIMPLICITY_TOLERANCE));
            }
            prop_assert!(plain.is_some());
        }
    }
}
