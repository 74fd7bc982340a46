//! Tests of the judge: artificial trials, and the verdict for each.

use super::*;
use crate::cost::run_seconds;
use crate::trial::TrialRun;
use proptest::prelude::*;
use unisono_linux::quota::QuotaPeriods;

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
    Circumstances { programs: 2, processors: 2, fit: FitPlan::default(), selfish: false }
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
fn evidence_gives_the_reason_where_work_between_sleeps_was_not_recorded() {
    let mut all = trials(&[&[(TriedRemedy::Plain, 2.0)]]);
    let seen = &mut all.runs[0].observation;
    (seen.sleeps_per_s, seen.unrecorded) = (2000.0, Some("the kernel refuses".into()));
    let evidence = judge(&all, &two()).conditions.swap_remove(0).evidence;
    assert!(evidence.ends_with("between two sleeps is not recorded: the kernel refuses"), "{evidence}");
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
        // times alternate at random between two values, as on a host whose cores are shared with another
        // machine
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
    let passive: &[(TriedRemedy, f64)] = &[(TriedRemedy::Passive, 0.5)];
    let mut all = trials(&[&[(TriedRemedy::Plain, 20.0), (TriedRemedy::Passive, 0.5)], passive, passive]);
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

/// Makes a trial from medians that were measured: an OpenMP loop in a quota of one of two processors, beside
/// other programs that used one processor. The figures are elapsed seconds and seconds of processor time. In
/// this measurement the gangs had taken processors from the other programs.
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
        let middle = |remedy: TriedRemedy| run_seconds(&all, remedy);
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

#[test]
fn one_run_is_no_advice_however_fast() {
    let once: &[(TriedRemedy, f64)] = &[(TriedRemedy::Plain, 20.0), (TriedRemedy::Gangs, 0.5)];
    assert_eq!(judge(&trials(&[once]), &two()).verdict, AdviceVerdict::Undecided);
    let mut all = trials(&[once]);
    all.runs[0].ended = RunEnd::Stopped;
    let advice = judge(&all, &two());
    assert_eq!((advice.verdict, advice.at_least), (AdviceVerdict::Undecided, Some(40.0)));
}

/// Makes a trial of two programs of one thread each beside three busy loops on two processors: plain Linux
/// leaves the loops 0.8 processors, gangs take all.
fn gangs_that_take_from_others(rounds: usize) -> TrialRuns {
    let round: &[(TriedRemedy, f64)] = &[(TriedRemedy::Plain, 2.0), (TriedRemedy::Gangs, 0.8)];
    let mut all = trials(&vec![round; rounds]);
    for run in &mut all.runs {
        let is_plain = run.remedy == TriedRemedy::Plain;
        (run.observation.ran_s, run.observation.others) = (1.6, if is_plain { 1.2 } else { 0.0 });
    }
    all
}

#[test]
fn gains_that_others_pay_for_are_named_and_advised_only_to_the_selfish() {
    let all = gangs_that_take_from_others(9);
    let advice = judge(&all, &two());
    assert_eq!((advice.verdict, advice.remedy), (AdviceVerdict::Nothing, TriedRemedy::Plain));
    let selfish = advice.selfish.expect("it is named");
    assert_eq!((selfish.remedy, selfish.gain.value), (TriedRemedy::Gangs, 2.5));
    let paid = selfish.bystanders.in_words().expect("they pay");
    assert_eq!(paid, "takes it from others: they keep 0.0 of 1.2 processors");
    let asked = judge(&all, &Circumstances { selfish: true, ..two() });
    assert_eq!((asked.verdict, asked.selfish.is_some()), (AdviceVerdict::Gang, false));
    assert_eq!(
        asked.bystanders.and_then(BystanderLoss::lost),
        Some(1.2),
        "the price is said all the same"
    );
}

#[test]
fn a_way_that_was_left_out_after_the_first_round_decides_nothing() {
    let mut all = gangs_that_take_from_others(3);
    all.runs.push(run(TriedRemedy::Fit, 0, 0.1));
    let advice = judge(&all, &two());
    assert_eq!(advice.verdict, AdviceVerdict::Nothing);
    assert!(advice.selfish.is_some_and(|selfish| selfish.remedy == TriedRemedy::Gangs));
}

#[test]
fn threads_wait_only_where_waiting_was_seen() {
    let all = gangs_that_take_from_others(9);
    let gangs = |all: &TrialRuns| judge(all, &Circumstances { selfish: true, ..two() }).threads_wait;
    assert!(!gangs(&all), "programs of one thread each");
    let mut teams = all.clone();
    teams.runs.iter_mut().for_each(|run| run.observation.threads = 4);
    assert!(!gangs(&teams), "they never slept, and gangs saved no processor time");
    let mut asleep = teams.clone();
    asleep.runs.iter_mut().for_each(|run| run.observation.sleeps_per_s = 5_000.0);
    assert!(gangs(&asleep));
    let spun = |run: &&mut TrialRun| run.remedy == TriedRemedy::Plain;
    teams.runs.iter_mut().filter(spun).for_each(|run| run.observation.ran_s = 3.0);
    assert!(gangs(&teams), "plain Linux spent twice the processor time on the same work");
}

#[test]
fn the_condition_and_the_table_have_the_same_figure_for_others() {
    let mut all = gangs_that_take_from_others(3);
    all.runs[0].observation.others = 0.0;
    let evidence = &judge(&all, &two()).conditions[3].evidence;
    assert!(evidence.ends_with("others used 0.8 of 2 processors meanwhile"), "{evidence}");
}
