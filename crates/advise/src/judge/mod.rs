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
//! the runtimes that the programs loaded. If a remedy only sets variables that none of these runtimes reads,
//! it should have no effect. It is advised nevertheless if its gain is too large for chance
//! (`MAX_CLEAR_RATIO`), because a runtime may be linked into the program's own file.
//!
//! Remedies are compared by fair time: the time without the processors that other programs lost
//! ([`crate::cost`]). A remedy whose whole gain is their loss is named together with that loss, and advised
//! only if the user asks for it ([`Circumstances::selfish`]).
//!
//! The conditions are the paper's five (TR 745, section 3) and the quota. A condition that cannot be observed
//! from outside is reported as unknown.

use crate::cost::{BystanderLoss, CostRule, MIN_OTHER_PROCESSORS, against_plain, others_used, runs_of};
use crate::remedy::{FitPlan, TriedRemedy};
use crate::trial::{MAX_ROUNDS, RunEnd, TrialRuns};
use crate::watch::{Observation, WorkBetweenSleeps};
use unisono_linux::clock::Duration;
use unisono_measure::interval::{Estimate, LEVEL};
use unisono_measure::paired::{self, Finding};
use unisono_measure::quantile::median;
use unisono_measure::record::Better;
use unisono_measure::time_to_decide::pairs_to_decide;
use unisono_measure::units::number;
use unisono_text::counted;
use unisono_text::named;

/// A simpler remedy is preferred while it takes at most this many times as long as the best one. Two runs of
/// one program on an idle host usually differ by 5 %, and a scheduler is not worth running for less. With
/// 1.1, a gang that saves a tenth would never be advised. Chosen, not measured.
pub const SIMPLICITY_TOLERANCE: f64 = 1.05;
/// In fewer than [`MIN_ROUNDS`] rounds, the upper bound of a remedy's time relative to plain Linux's must be
/// below this value. The same holds, in any number of rounds, for a remedy that is not known to act on the
/// loaded runtimes. The times of two runs of one program seldom differ by half as much again by chance.
/// Chosen for this reason, not measured.
const MAX_CLEAR_RATIO: f64 = 0.67;
/// Minimum number of rounds for a verdict at a smaller gain. In fewer rounds, all may agree by chance: five
/// rounds do so in one trial of 16 (two-sided sign test).
const MIN_ROUNDS: usize = 6;
/// Minimum number of runs of a remedy that is advised: two runs agree by chance every second time.
const MIN_ADVISED_RUNS: usize = paired::MIN_PAIRS;
/// Threads count as having waited awake if plain Linux takes more than this multiple of a remedy's processor
/// time for the same work. Two runs of one program differ by less. Chosen, not measured.
const MIN_SPIN_RATIO: f64 = 1.2;
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
named! {
    /// The answer of `unisono advise`, under the names that `advise --json` prints.
    pub enum AdviceVerdict {
        TooManyThreads = "too-many-threads",
        WaitPolicy = "wait-policy",
        Pin = "pin",
        Partition = "partition",
        InTurn = "in-turn",
        Priority = "priority",
        Gang = "gang",
        Nothing = "nothing",
        /// The runs do not decide.
        Undecided = "undecided",
    }
}

/// The name of the condition that threads wait for each other often.
pub const FINE_GRAINED: &str = "fine-grained synchronization";

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
    /// The advised remedy; plain Linux if none is advised.
    pub remedy: TriedRemedy,
    /// Plain Linux's time divided by this remedy's time, if both ended.
    pub gain: Option<Estimate>,
    /// A lower bound of plain Linux's time divided by this remedy's time, if plain Linux was stopped.
    pub at_least: Option<f64>,
    /// The loss of bystanders under the remedy. `None` if no remedy is advised, or the runs were too short.
    pub bystanders: Option<BystanderLoss>,
    /// A remedy that is clearly faster in elapsed time, because it takes processors from others.
    pub selfish: Option<SelfishRemedy>,
    /// Whether threads were seen to wait for others, asleep or awake.
    pub threads_wait: bool,
    pub conditions: Vec<GangCondition>,
    /// The length of a trial that would decide, if this one is undecided and further rounds are like those so
    /// far. `None` if it is decided, or if no trial is long enough.
    pub time_to_decide: Option<Duration>,
}

/// A remedy that is faster at the cost of others.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfishRemedy {
    pub remedy: TriedRemedy,
    /// Plain Linux's time divided by this remedy's time.
    pub gain: Estimate,
    pub bystanders: BystanderLoss,
}

/// Facts about the programs that the verdict needs besides the runs.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    pub programs: usize,
    /// Processors that the programs effectively have.
    pub processors: usize,
    pub fit: FitPlan,
    /// Whether a remedy may gain at the expense of other programs.
    pub selfish: bool,
}

pub fn judge(trials: &TrialRuns, circumstances: &Circumstances) -> Advice {
    let rule = CostRule::choose(trials);
    let by_clock = || judge_by(CostRule::Clock, trials, circumstances);
    let mut choice = if circumstances.selfish { by_clock() } else { judge_by(rule, trials, circumstances) };
    let is_advice = |verdict| !matches!(verdict, AdviceVerdict::Nothing | AdviceVerdict::Undecided);
    let taker = Some(by_clock()).filter(|clock| is_advice(clock.verdict) && rule == CostRule::Fair);
    let selfish = taker.filter(|clock| clock.remedy != choice.remedy).and_then(|clock| {
        let bystanders =
            BystanderLoss::for_remedy(trials, clock.remedy).filter(|loss| loss.lost().is_some())?;
        Some(SelfishRemedy { remedy: clock.remedy, gain: clock.gain?, bystanders })
    });
    if selfish.is_some() && choice.verdict == AdviceVerdict::Undecided {
        // the medians differ only by the bystanders' loss, so no gain is left to decide about
        choice = ChosenRemedy {
            verdict: AdviceVerdict::Nothing,
            remedy: TriedRemedy::Plain,
            ..ChosenRemedy::default()
        };
    }
    let bystanders =
        is_advice(choice.verdict).then(|| BystanderLoss::for_remedy(trials, choice.remedy)).flatten();
    let time_to_decide =
        (choice.verdict == AdviceVerdict::Undecided).then(|| time_to_decide(trials, rule, &choice)).flatten();
    Advice {
        verdict: choice.verdict,
        remedy: choice.remedy,
        gain: choice.gain,
        at_least: choice.at_least,
        bystanders,
        selfish,
        threads_wait: threads_wait(trials, choice.remedy, circumstances),
        conditions: conditions(trials, circumstances),
        time_to_decide,
    }
}

/// Computes the length of a trial in which the remedy with the best median is compared with plain Linux often
/// enough to decide. A further round is taken to last as long as the mean of the rounds so far.
fn time_to_decide(trials: &TrialRuns, cost: CostRule, choice: &ChosenRemedy) -> Option<Duration> {
    let comparison = cost.against_plain(trials, choice.remedy, LEVEL)?;
    let wanted = pairs_to_decide(&comparison, Better::Lower).unwrap_or(0.0).max(MIN_ROUNDS as f64);
    let rounds = trials.runs.iter().map(|run| run.round + 1).max()?;
    let has_more_runs = wanted > comparison.ratio.n as f64;
    if !has_more_runs || wanted > MAX_ROUNDS as f64 {
        return None;
    }
    let seconds: f64 = trials.runs.iter().map(|run| run.seconds).sum();
    Some(Duration::from_nanos((seconds / rounds as f64 * wanted * 1e9) as u64))
}

/// The remedy that one cost rule chooses.
#[derive(Debug)]
struct ChosenRemedy {
    verdict: AdviceVerdict,
    remedy: TriedRemedy,
    gain: Option<Estimate>,
    at_least: Option<f64>,
}

impl Default for ChosenRemedy {
    fn default() -> Self {
        Self { verdict: AdviceVerdict::Undecided, remedy: TriedRemedy::Plain, gain: None, at_least: None }
    }
}

fn judge_by(cost: CostRule, trials: &TrialRuns, circumstances: &Circumstances) -> ChosenRemedy {
    let middle = |remedy: TriedRemedy| median(&cost.costs(trials, remedy));
    let runs = |remedy: TriedRemedy| cost.costs(trials, remedy).len();
    // a remedy that was left out after the first round is not compared with remedies that have more runs
    let enough = TriedRemedy::ALL.map(runs).into_iter().max().unwrap_or(0).min(MIN_ADVISED_RUNS);
    let has_enough = |remedy: &TriedRemedy| *remedy == TriedRemedy::Plain || runs(*remedy) >= enough;
    let ended = TriedRemedy::ALL.into_iter().filter(has_enough);
    let ended = ended.filter_map(|remedy| Some((remedy, middle(remedy)?)));
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
        return ChosenRemedy::default();
    };
    if runs_of(trials, TriedRemedy::Plain).any(|run| matches!(run.ended, RunEnd::Failed { .. })) {
        return ChosenRemedy::default();
    }
    let plain_stopped =
        runs_of(trials, TriedRemedy::Plain).find(|run| run.ended == RunEnd::Stopped).map(|run| run.seconds);
    // remedies close to the best median whose runs do not decide
    let mut unsure = Vec::new();
    for (remedy, spent) in ended {
        if spent > best * SIMPLICITY_TOLERANCE {
            continue;
        }
        if remedy == TriedRemedy::Plain {
            return ChosenRemedy { verdict: AdviceVerdict::Nothing, remedy, ..ChosenRemedy::default() };
        }
        let verdict = remedy_verdict(remedy, circumstances);
        if let Some(limit) = plain_stopped {
            let costs = cost.costs(trials, remedy);
            let at_least = median(&costs).map(|seconds| limit / seconds).filter(|gain| *gain > 1.0);
            if costs.len() < MIN_ADVISED_RUNS || at_least.is_none() {
                return ChosenRemedy { remedy, at_least, ..ChosenRemedy::default() };
            }
            return ChosenRemedy { verdict, remedy, gain: None, at_least };
        }
        let Some(comparison) = against(remedy) else { continue };
        let Some(gain) = against_plain(trials, remedy).map(|clock| clock.ratio.inverse()) else { continue };
        let sure = match comparison.ratio.n {
            ..MIN_ADVISED_RUNS => false,
            MIN_ADVISED_RUNS..MIN_ROUNDS => comparison.ratio.high < MAX_CLEAR_RATIO,
            _ => comparison.finding(Better::Lower) == Finding::Better,
        };
        // less processor time alone is no gain, because a user waits for the programs to end
        if sure && gain.value > 1.0 {
            return ChosenRemedy { verdict, remedy, gain: Some(gain), at_least: None };
        }
        unsure.push((remedy, gain, comparison.ratio.inverse()));
    }
    match unsure.first() {
        // these remedies are close to the best median, but show no gain over plain Linux in the same rounds
        Some(_)
            if unsure
                .iter()
                .all(|(_, _, gain)| gain.n >= MIN_ROUNDS && gain.value <= SIMPLICITY_TOLERANCE) =>
        {
            ChosenRemedy { verdict: AdviceVerdict::Nothing, ..ChosenRemedy::default() }
        }
        Some(&(remedy, gain, _)) => ChosenRemedy { remedy, gain: Some(gain), ..ChosenRemedy::default() },
        None => ChosenRemedy::default(),
    }
}

/// Returns whether threads were seen to wait for other threads: asleep, or awake, so that a remedy did the
/// same work with less processor time. Programs of one thread each have no thread to wait for.
fn threads_wait(trials: &TrialRuns, remedy: TriedRemedy, circumstances: &Circumstances) -> bool {
    let threads = threads_at_a_time(trials);
    let used = |remedy| median(&CostRule::ProcessorTime.costs(trials, remedy));
    let saved = used(TriedRemedy::Plain).zip(used(remedy));
    let spun = saved.is_some_and(|(plain, own)| plain > own * MIN_SPIN_RATIO);
    threads > circumstances.programs.max(1) && (spun || wait_sleeps_per_s(trials) >= MIN_WAIT_SLEEPS_PER_S)
}

/// Returns the largest number of threads of the programs that worked at a time. Under remedies the threads of
/// Unisono's commands count, too, so only the runs of plain Linux are used.
pub fn threads_at_a_time(trials: &TrialRuns) -> usize {
    runs_of(trials, TriedRemedy::Plain).map(|run| run.observation.threads).max().unwrap_or(0)
}

fn remedy_verdict(remedy: TriedRemedy, circumstances: &Circumstances) -> AdviceVerdict {
    let fit = &circumstances.fit;
    match remedy {
        TriedRemedy::Plain => AdviceVerdict::Nothing,
        TriedRemedy::Passive | TriedRemedy::Mpi => AdviceVerdict::WaitPolicy,
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
            name: FINE_GRAINED,
            holds: (sleeps > FINE_GRAINED_SLEEPS_PER_S).then_some(true),
            evidence: fine_grained_evidence(sleeps, team),
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
        several_programs(trials, circumstances),
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

/// Returns the sleeps per second of work. Threads that sleep while they wait sleep once per wait, unless they
/// happen to run in step and need not wait.
pub fn wait_sleeps_per_s(trials: &TrialRuns) -> f64 {
    let runs = runs_of(trials, TriedRemedy::Passive).chain(runs_of(trials, TriedRemedy::Plain));
    runs.map(|run| run.observation.sleeps_per_s).fold(0.0, f64::max)
}

/// Above this number of sleeps per second of work, the sleeps count as waits for other threads; fewer may be
/// waits for files.
pub const MIN_WAIT_SLEEPS_PER_S: f64 = FINE_GRAINED_SLEEPS_PER_S / 10.0;

fn fine_grained_evidence(sleeps: f64, team: Option<&Observation>) -> String {
    if sleeps < MIN_WAIT_SLEEPS_PER_S {
        return "threads hardly sleep: they spin while they wait, or never wait".into();
    }
    let work =
        match (team.and_then(|seen| seen.between_sleeps), team.and_then(|seen| seen.unrecorded.as_ref())) {
            (Some(WorkBetweenSleeps { low, median, high, .. }), _) => {
                let us = |time: Duration| number(time.as_nanos() as f64 / 1e3);
                let (low, median, high) = (us(low), us(median), us(high));
                format!(
                    ", and worked {median} us between two sleeps ({low} to {high} us in eight of ten cases)"
                )
            }
            (None, Some(reason)) => format!("; the work between two sleeps is not recorded: {reason}"),
            (None, None) => String::new(),
        };
    format!("a thread slept up to {sleeps:.0} times in a second of work{work}")
}

fn several_programs(trials: &TrialRuns, circumstances: &Circumstances) -> GangCondition {
    let others = others_used(trials, TriedRemedy::Plain).unwrap_or(0.0);
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
mod tests;
