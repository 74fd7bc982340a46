//! The answer of `unisono advise --details` in words, and every answer as JSON.

use serde_json::{Map, Value, json};
use std::fmt::Write;
use unisono_advise::cost::{against_plain, others_used, run_seconds};
use unisono_advise::remedy::Programs;
use unisono_advise::{
    Advice, AdviceVerdict, BystanderLoss, GangCondition, Observation, Prediction, RunEnd, SelfishRemedy,
    TrialRuns, TriedRemedy,
};
use unisono_fit::Effective;
use unisono_measure::interval::Estimate;
use unisono_measure::quantile::median;
use unisono_measure::units::number;
use unisono_text::counted;

/// The parts of an answer, except for the simulator's prediction.
pub(super) struct AdviceAnswer<'a> {
    pub(super) trials: &'a TrialRuns,
    pub(super) programs: &'a Programs,
    pub(super) there: &'a Effective,
    pub(super) advice: &'a Advice,
    /// The process that was running before and was only watched (`--pid`).
    pub(super) process: Option<i32>,
}

impl AdviceAnswer<'_> {
    pub(super) fn details(&self, prediction: Option<&Prediction>) -> String {
        details(self, prediction)
    }

    pub(super) fn json(&self, prediction: Option<&Prediction>) -> Value {
        json(self, prediction)
    }
}

fn details(answer: &AdviceAnswer<'_>, prediction: Option<&Prediction>) -> String {
    let AdviceAnswer { trials, programs, there, advice, process } = *answer;
    if process.is_some() {
        let conditions = conditions_text(&advice.conditions);
        return format!("{}\n{}", answer.facts_text(), conditions.trim_end());
    }
    let mut text = String::new();
    let _ = writeln!(text, "{there}{}\n", runtimes(trials));
    text.push_str(&table(trials, prediction));
    if let Some(prediction) = prediction {
        let _ = writeln!(text, "  simulated: {}", simulated(prediction));
    }
    let _ = writeln!(text, "\n{}", sentence(trials, advice));
    if !matches!(advice.verdict, AdviceVerdict::Nothing | AdviceVerdict::Undecided) {
        let _ = writeln!(text, "\n  {}", programs.command(advice.remedy));
    }
    text.push('\n');
    text.push_str(&conditions_text(&advice.conditions));
    text.trim_end().to_owned()
}

/// Larger predicted gains are shown as `> 100`: if plain Linux hardly advances in the simulation, the ratio
/// depends only on the simulator's constants.
const MAX_SHOWN_GAIN: f64 = 100.0;

fn expected(gain: f64) -> String {
    if gain > MAX_SHOWN_GAIN { format!("> {}", number(MAX_SHOWN_GAIN)) } else { number(gain) }
}

fn simulated(Prediction { shape, .. }: &Prediction) -> String {
    format!(
        "{} of {} each, {} us of work between two waits",
        counted(shape.programs, "program"),
        counted(shape.threads, "thread"),
        number(shape.interval.as_nanos() as f64 / 1e3)
    )
}

/// Returns the answer and its evidence in sentences, for the report.
pub(super) fn method(answer: &AdviceAnswer<'_>, prediction: Option<&Prediction>) -> String {
    let AdviceAnswer { trials, programs, there, advice, .. } = *answer;
    let mut text = format!("{} There is room for {there}{}.", sentence(trials, advice), runtimes(trials));
    if !matches!(advice.verdict, AdviceVerdict::Nothing | AdviceVerdict::Undecided) {
        let _ = write!(text, " The command: {}.", programs.command(advice.remedy));
    }
    if let Some(prediction) = prediction {
        let _ = write!(text, " Simulated are {}.", simulated(prediction));
    }
    for condition in &advice.conditions {
        let holds = match condition.holds {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "is unknown",
        };
        let _ = write!(text, " The condition \"{}\" {holds}: {}.", condition.name, condition.evidence);
    }
    text
}

pub(super) fn runtimes(trials: &TrialRuns) -> String {
    let names: Vec<&str> = trials.runtimes.iter().map(String::as_str).collect();
    if names.is_empty() { String::new() } else { format!("; the programs use {}", names.join(", ")) }
}

/// The legend of the column with ratios. A way is compared with plain Linux in each round, and a way that was
/// left out after the first rounds only with these. So the medians of the seconds may have another ratio.
pub(super) const RATIO_LEGEND: &str =
    "plain / this way: median of the rounds' ratios, not the ratio of the seconds";

/// Returns a table with a line for each remedy: seconds, ratio to plain Linux, processor time, processors
/// used by other programs.
fn table(trials: &TrialRuns, prediction: Option<&Prediction>) -> String {
    let mut text = format!(
        "  {:<30} {:>3} {:>9} {:>23} {:>9} {:>7} {:>7}\n",
        "way", "n", "seconds", "plain / this way", "simulated", "cpu s", "others"
    );
    let simulated = |remedy: TriedRemedy| {
        let remedies = prediction.map_or(&[][..], |prediction| &prediction.remedies);
        remedies.iter().find(|(one, _)| *one == remedy).map_or_else(String::new, |(_, gain)| expected(*gain))
    };
    for remedy in TriedRemedy::ALL {
        let runs: Vec<_> = trials.runs.iter().filter(|run| run.remedy == remedy).collect();
        let Some(first) = runs.first() else { continue };
        let ended = run_seconds(trials, remedy);
        let middle = |of: fn(&unisono_advise::Observation) -> f64| {
            median(&runs.iter().map(|run| of(&run.observation)).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let failed = runs.iter().find_map(|run| match &run.ended {
            RunEnd::Failed { code, last_line: words } => Some((*code, words.clone())),
            _ => None,
        });
        let seconds = match (median(&ended), &failed) {
            (_, Some(_)) => "failed".to_owned(),
            (Some(seconds), None) => number(seconds),
            (None, None) => format!("> {}", number(first.seconds)),
        };
        let against = against_plain(trials, remedy).filter(|_| remedy != TriedRemedy::Plain);
        let against = against.map_or_else(String::new, |comparison| interval(&comparison.ratio.inverse()));
        let _ = writeln!(
            text,
            "  {:<30} {:>3} {seconds:>9} {against:>23} {:>9} {:>7} {:>7}",
            remedy.words(),
            runs.len(),
            simulated(remedy),
            number(middle(|seen| seen.ran_s)),
            others_used(trials, remedy).map_or_else(|| "?".to_owned(), number),
        );
        if let Some((code, words)) = failed {
            let words = if words.is_empty() { String::new() } else { format!(": {words}") };
            let _ = writeln!(text, "      exit code {code}{words}");
        } else if !remedy.is_known_to_act(&trials.runtimes) {
            text.push_str("      no runtime that reads these variables was seen in the programs\n");
        }
    }
    let _ = writeln!(text, "  {RATIO_LEGEND}");
    text.push_str("  others: processors that other programs used meanwhile (?: the runs were too short)\n");
    text
}

pub(super) fn interval(gain: &Estimate) -> String {
    if gain.n < 2 {
        return number(gain.value);
    }
    format!("{} ({} to {})", number(gain.value), number(gain.low), number(gain.high))
}

/// Returns the reason why no comparison can decide, however long the trial runs; `None` if one can.
pub(super) fn failure(trials: &TrialRuns) -> Option<String> {
    let failed = trials.runs.iter().find_map(|run| match &run.ended {
        RunEnd::Failed { code, last_line } if run.remedy == TriedRemedy::Plain => Some((code, last_line)),
        _ => None,
    });
    if let Some((code, words)) = failed {
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        return Some(format!(
            "Undecided: the programs fail as they are. They end with exit code {code}{words}"
        ));
    }
    let stopped = trials.runs.iter().all(|run| run.ended == RunEnd::Stopped);
    stopped.then(|| "Undecided: no run ended. Give a longer --limit or a smaller problem.".to_owned())
}

/// Returns the finding of the runs and the advised action in words, without figures.
pub(super) fn action(trials: &TrialRuns, advice: &Advice) -> String {
    if let Some(failure) = failure(trials) {
        return failure;
    }
    if let Some(seconds) = trials.watched_seconds() {
        return format!(
            "Watched for {} s. Nothing is advised, because no way was tried: to try the ways, start the program \
             anew.",
            number(seconds)
        );
    }
    let action = match advice.verdict {
        AdviceVerdict::Nothing if advice.selfish.is_some() => {
            return format!("{NOTHING} without taking from others.");
        }
        AdviceVerdict::Nothing => NOTHING,
        AdviceVerdict::Undecided => return undecided(trials, advice),
        AdviceVerdict::TooManyThreads => "There are too many threads. Start as many as there are processors",
        AdviceVerdict::WaitPolicy if advice.remedy == TriedRemedy::Mpi => {
            "Ranks that wait hold the processors. Let them sleep"
        }
        AdviceVerdict::WaitPolicy if advice.threads_wait => {
            "Threads that wait hold the processors. Let them sleep"
        }
        AdviceVerdict::WaitPolicy => {
            "The programs do the same work sooner if waiting threads sleep. Let them sleep"
        }
        AdviceVerdict::Pin => "Threads share processors while others are free. Give each its own",
        AdviceVerdict::Partition => "The programs share processors. Give each program processors of its own",
        AdviceVerdict::Priority => "The programs are in each other's way. Let one go first",
        AdviceVerdict::InTurn => "The programs slow each other down. Run one after the other",
        AdviceVerdict::Gang if advice.threads_wait => {
            "Threads of a program wait for threads that do not run. Run the programs as gangs"
        }
        AdviceVerdict::Gang => "The programs do more by turns than at once. Run them as gangs",
    };
    format!("{action}.")
}

const NOTHING: &str = "Nothing to do: no remedy is clearly faster than the programs as they are";

fn sentence(trials: &TrialRuns, advice: &Advice) -> String {
    let all = action(trials, advice);
    if failure(trials).is_some() || advice.verdict == AdviceVerdict::Undecided {
        return all;
    }
    if advice.verdict == AdviceVerdict::Nothing {
        return nothing_to_do(advice);
    }
    let action = all.trim_end_matches('.');
    let gain = match (advice.gain, advice.at_least) {
        (Some(gain), _) => {
            format!("{action}: {} times as fast (n = {}).", interval(&gain), gain.n)
        }
        (None, Some(least)) => format!("{action}: at least {} times as fast.", number(least)),
        (None, None) => format!("{action}."),
    };
    format!("{gain} {}", who_pays(advice))
}

/// Says how much of their processor time other programs lose by the advice.
pub(super) fn who_pays(advice: &Advice) -> String {
    match advice.bystanders {
        None => "The runs were too short to say what others lose.".into(),
        Some(BystanderLoss { had, keep, .. }) => match advice.bystanders.and_then(BystanderLoss::lost) {
            Some(_) => format!("Others pay: they keep {keep:.1} of {had:.1} processors."),
            None => "Nobody else pays.".into(),
        },
    }
}

fn nothing_to_do(advice: &Advice) -> String {
    let Some(SelfishRemedy { remedy, gain, bystanders }) = &advice.selfish else {
        return format!("{NOTHING}.");
    };
    let paid = bystanders.in_words().unwrap_or_default();
    format!(
        "{NOTHING} without taking from others. The way \"{}\" is {} times as fast (n = {}), but {paid}; --selfish \
         advises it.",
        remedy.words(),
        interval(gain),
        gain.n
    )
}

fn undecided(trials: &TrialRuns, advice: &Advice) -> String {
    let rounds = trials.runs.iter().filter(|run| run.remedy == advice.remedy).count();
    if rounds < MIN_ROUNDS_TO_DIFFER {
        return format!(
            "Undecided after {}: that is too few to advise anything. Give {} or a smaller problem.",
            counted(rounds, "round"),
            longer(advice)
        );
    }
    format!(
        "Undecided: the runs differ too much. Try again while less else runs, or with {}.",
        longer(advice)
    )
}

/// Names the option for a trial that would run long enough to decide.
fn longer(advice: &Advice) -> String {
    let seconds = advice.time_to_decide.map(|time| time.as_secs_f64().ceil());
    seconds.map_or_else(|| "a longer --for".to_owned(), |seconds| format!("--for {seconds}s"))
}

/// If fewer rounds than this were run, the answer names their number as the reason why nothing is advised.
const MIN_ROUNDS_TO_DIFFER: usize = 3;

fn conditions_text(all: &[GangCondition]) -> String {
    let mut text = "Conditions under which gangs can pay (all of them are needed):\n".to_owned();
    for condition in all {
        let holds = match condition.holds {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        let _ = writeln!(text, "  {holds:<4}{}: {}", condition.name, condition.evidence);
    }
    text
}

fn conditions_json(all: &[GangCondition]) -> Value {
    let one = |one: &GangCondition| json!({ "name": one.name, "holds": one.holds, "evidence": one.evidence });
    all.iter().map(one).collect()
}

fn between_sleeps(seen: &Observation) -> Option<Value> {
    let work = seen.between_sleeps?;
    Some(json!({ "low": work.low, "median": work.median, "high": work.high, "n": work.n }))
}

fn json(answer: &AdviceAnswer<'_>, prediction: Option<&Prediction>) -> Value {
    let AdviceAnswer { trials, programs, there, advice, process } = *answer;
    let predicted = prediction.map(|Prediction { shape, remedies }| {
        let gains: Map<String, Value> =
            remedies.iter().map(|(remedy, gain)| (remedy.name().to_owned(), json!(gain))).collect();
        json!({
            "programs": shape.programs, "threads": shape.threads, "interval_ns": shape.interval,
            "variance_ns": shape.variance, "gain": gains,
        })
    });
    let gain = advice
        .gain
        .map(|gain| json!({ "median": gain.value, "low": gain.low, "high": gain.high, "n": gain.n }));
    let run = |run: &unisono_advise::TrialRun| {
        let (ended, code, words) = match &run.ended {
            RunEnd::Succeeded => ("well", Some(0), None),
            RunEnd::Failed { code, last_line: words } => ("failed", Some(*code), Some(words)),
            RunEnd::Stopped => ("stopped", None, None),
            RunEnd::Watched => ("watched", None, None),
        };
        let seen = &run.observation;
        json!({
            "way": run.remedy.name(), "round": run.round, "ended": ended, "exit_code": code, "said": words,
            "seconds": run.seconds, "threads": seen.threads, "cpu_s": seen.ran_s, "waited_s": seen.waited_s,
            "sleeps_per_cpu_s": seen.sleeps_per_s, "imbalance": seen.imbalance, "change": seen.load_variation,
            "others": seen.others.max(0.0), "between_sleeps_ns": between_sleeps(seen), "unrecorded": seen.unrecorded,
        })
    };
    let advised = !matches!(advice.verdict, AdviceVerdict::Nothing | AdviceVerdict::Undecided);
    let paid = |loss: &BystanderLoss| json!({ "had": loss.had, "keep": loss.keep });
    let selfish = advice.selfish.as_ref().map(|selfish| {
        json!({
            "way": selfish.remedy.name(), "command": programs.command(selfish.remedy),
            "gain": selfish.gain.value, "n": selfish.gain.n, "others": paid(&selfish.bystanders),
        })
    });
    json!({
        "process": process, "others": advice.bystanders.as_ref().map(paid), "selfish": selfish,
        "verdict": advice.verdict.name(), "command": advised.then(|| programs.command(advice.remedy)),
        "way": advice.remedy.name(), "simulated": predicted, "gain": gain, "gain_at_least": advice.at_least,
        "conditions": conditions_json(&advice.conditions), "effective_processors": there.processors,
        "runtimes": trials.runtimes, "runs": trials.runs.iter().map(run).collect::<Vec<_>>(),
        "ended_because": trials.stopped_early, "unrecorded": trials.unrecorded,
        "time_to_decide_s": advice.time_to_decide.map(unisono_linux::clock::Duration::as_secs_f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_advise::TrialRun;

    fn trials(rounds: usize) -> TrialRuns {
        let run = |round| TrialRun {
            remedy: TriedRemedy::Gangs,
            round,
            ended: RunEnd::Succeeded,
            seconds: 1.0,
            observation: Observation::default(),
        };
        TrialRuns { runs: (0..rounds).map(run).collect(), ..TrialRuns::default() }
    }

    fn advice(verdict: AdviceVerdict, bystanders: Option<BystanderLoss>) -> Advice {
        Advice {
            verdict,
            remedy: TriedRemedy::Gangs,
            gain: Some(Estimate { value: 2.0, low: 1.9, high: 2.1, n: 9, level: 0.95 }),
            at_least: None,
            bystanders,
            selfish: None,
            threads_wait: false,
            conditions: Vec::new(),
            time_to_decide: None,
        }
    }

    #[test]
    fn each_advice_ends_with_the_price_and_names_waiting_threads_only_where_some_wait() {
        let free = Some(BystanderLoss { had: 1.0, keep: 0.98, gained: 0.5, counting_error: 0.0 });
        let mut gangs = advice(AdviceVerdict::Gang, free);
        assert_eq!(
            sentence(&trials(9), &gangs),
            "The programs do more by turns than at once. Run them as gangs: 2 (1.9 to 2.1) times as fast (n = 9). \
             Nobody else pays."
        );
        gangs.threads_wait = true;
        assert!(sentence(&trials(9), &gangs).starts_with("Threads of a program wait for threads"));
        let paid = advice(
            AdviceVerdict::Gang,
            Some(BystanderLoss { had: 1.8, keep: 0.2, gained: 1.6, counting_error: 0.0 }),
        );
        assert!(sentence(&trials(9), &paid).ends_with(" Others pay: they keep 0.2 of 1.8 processors."));
        let short = advice(AdviceVerdict::Gang, None);
        assert!(sentence(&trials(9), &short).ends_with("too short to say what others lose."));
    }

    #[test]
    fn a_way_at_the_cost_of_others_is_named_with_its_price_and_one_round_is_too_few() {
        let mut nothing = advice(AdviceVerdict::Nothing, None);
        assert!(sentence(&trials(9), &nothing).ends_with("faster than the programs as they are."));
        nothing.selfish = Some(SelfishRemedy {
            remedy: TriedRemedy::Gangs,
            gain: Estimate { value: 4.79, low: 4.5, high: 5.0, n: 9, level: 0.95 },
            bystanders: BystanderLoss { had: 1.8, keep: 0.2, gained: 1.6, counting_error: 0.0 },
        });
        let said = sentence(&trials(9), &nothing);
        assert!(
            said.contains("but takes it from others: they keep 0.2 of 1.8 processors; --selfish"),
            "{said}"
        );
        let once = sentence(&trials(1), &advice(AdviceVerdict::Undecided, None));
        assert!(once.starts_with("Undecided after 1 round: that is too few"), "{once}");
    }
}
