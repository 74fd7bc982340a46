//! The answer on one screen of 80 columns and 24 lines: six facts (runs, waits for, type, gains, who pays,
//! how sure); below, as many remedies as fit, the fastest first.
//!
//! A command is printed whole on a line of its own, so that it can be copied. `--details` prints all
//! remedies, the simulator's expectation and the conditions for gangs instead.

use super::answer::{AdviceAnswer, RATIO_LEGEND, action, failure, interval, runtimes, who_pays};
use crate::columns::{cut, fold};
use std::fmt::Write as _;
use unisono_advise::cost::{against_plain, others_used, run_seconds};
use unisono_advise::judge::{FINE_GRAINED, MIN_WAIT_SLEEPS_PER_S, wait_sleeps_per_s};
use unisono_advise::trial::MAX_ROUNDS;
use unisono_advise::{AdviceVerdict, RunEnd, TriedRemedy, threads_at_a_time};
use unisono_measure::quantile::median;
use unisono_measure::units::number;
use unisono_text::counted;

const COLUMNS: usize = 80;
/// Lines of the screen; the 24th is for the shell's next prompt.
const LINES: usize = 23;
/// The column at which the values of the facts begin.
const INDENT: usize = 11;
/// Threads wait for a processor if they could run but did not for at least this share of the time. Chosen,
/// not measured: the periodic work of a daemon takes less.
const MIN_WAITED_SHARE: f64 = 0.1;

impl AdviceAnswer<'_> {
    /// Returns the answer, at most [`LINES`] lines long if the command in it leaves room for that.
    pub(super) fn screen(&self) -> String {
        let mut text = self.facts_text();
        if self.process.is_some() {
            return text + "\n--details: the conditions under which gangs can pay";
        }
        let used: usize = text.lines().map(|line| line.chars().count().div_ceil(COLUMNS).max(1)).sum();
        text += &self.ways(LINES.saturating_sub(used + 1));
        text.trim_end().to_owned()
    }

    /// Returns the action and the six facts, without the table of remedies.
    pub(super) fn facts_text(&self) -> String {
        let mut text = format!("{}\n\n", fold(&action(self.trials, self.advice), COLUMNS));
        for (name, value) in self.facts() {
            text += &fact(name, &value);
        }
        text
    }

    fn facts(&self) -> [(&'static str, String); 6] {
        [
            ("runs", self.what_runs()),
            ("waits for", self.waits_for()),
            ("type", self.what_to_type()),
            ("gains", self.gains()),
            ("who pays", self.price()),
            ("how sure", self.how_sure()),
        ]
    }

    fn what_runs(&self) -> String {
        let threads = match threads_at_a_time(self.trials) {
            0 => "too short to count threads".to_owned(),
            threads => format!("up to {} at a time", counted(threads, "thread")),
        };
        let others = others_used(self.trials, TriedRemedy::Plain);
        let others = others.map_or_else(String::new, |others| format!("; others use {others:.1}"));
        let programs = match self.process {
            Some(number) => format!("process {number}"),
            None => counted(self.programs.commands.len(), "program"),
        };
        format!("{programs}, {threads}, on {}{others}{}", self.there, runtimes(self.trials))
    }

    fn waits_for(&self) -> String {
        let plain = || self.trials.runs.iter().filter(|run| run.remedy == TriedRemedy::Plain);
        let (ran, waited) = plain().fold((0.0, 0.0), |(ran, waited), run| {
            (ran + run.observation.ran_s, waited + run.observation.waited_s)
        });
        let share = waited / f64::max(ran + waited, f64::MIN_POSITIVE);
        let stopped = self.trials.periods.filter(|periods| periods.throttled > 0);
        let slept = wait_sleeps_per_s(self.trials) >= MIN_WAIT_SLEEPS_PER_S;
        let slept = self.advice.conditions.iter().find(|one| slept && one.name == FINE_GRAINED);
        let parts = [
            stopped.map(|periods| {
                format!("its quota: stopped in {} of {} periods", periods.throttled, periods.all)
            }),
            match (self.advice.threads_wait, slept) {
                (true, Some(condition)) => {
                    Some(format!("other threads: {}", first_part(&condition.evidence)))
                }
                (true, None) => Some("other threads, awake".to_owned()),
                (false, _) => None,
            },
            (share >= MIN_WAITED_SHARE).then(|| {
                format!("a processor: {:.0} % of the time that its threads could run", share * 100.0)
            }),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match (parts.is_empty(), ran > 0.0) {
            (false, _) => parts.join("; "),
            (true, true) => "nothing: its threads ran whenever they could".to_owned(),
            (true, false) => "unknown: the runs were too short to watch".to_owned(),
        }
    }

    fn what_to_type(&self) -> String {
        match (self.advice.verdict, self.advice.time_to_decide) {
            _ if self.process.is_some() => format!("\n  unisono advise -- {}", self.programs.in_words()),
            (AdviceVerdict::Nothing, _) => "nothing: leave it as it is".to_owned(),
            (AdviceVerdict::Undecided, Some(time)) => {
                let seconds = time.as_secs_f64().ceil();
                format!("\n  unisono advise --for {seconds}s -- {}", self.programs.in_words())
            }
            (AdviceVerdict::Undecided, None) => "nothing yet".to_owned(),
            _ => format!("\n  {}", self.programs.command(self.advice.remedy)),
        }
    }

    fn gains(&self) -> String {
        match (self.advice.verdict, self.advice.gain, self.advice.at_least) {
            (AdviceVerdict::Nothing, ..) if self.advice.selfish.is_some() => {
                "nothing without taking from others".to_owned()
            }
            (AdviceVerdict::Nothing, ..) => "nothing: no other way is clearly faster".to_owned(),
            (AdviceVerdict::Undecided, ..) => "unknown".to_owned(),
            (_, Some(gain), _) => format!("{} times as fast", interval(&gain)),
            (_, None, Some(least)) => format!("at least {} times as fast", number(least)),
            (_, None, None) => "faster than the programs as they are".to_owned(),
        }
    }

    fn price(&self) -> String {
        match (self.advice.verdict, &self.advice.selfish) {
            (AdviceVerdict::Nothing | AdviceVerdict::Undecided, None) => "nobody: nothing changes".to_owned(),
            (AdviceVerdict::Nothing | AdviceVerdict::Undecided, Some(selfish)) => format!(
                "nobody. \"{}\" is {} times as fast, but {}; --selfish advises it",
                selfish.remedy.words(),
                interval(&selfish.gain),
                selfish.bystanders.in_words().unwrap_or_default()
            ),
            _ => who_pays(self.advice).trim_end_matches('.').to_owned(),
        }
    }

    fn how_sure(&self) -> String {
        let rounds = |remedy| run_seconds(self.trials, remedy).len();
        let n = |n: usize| format!("n = {}", counted(n, "round"));
        let advice = self.advice;
        if let Some(seconds) = self.trials.watched_seconds() {
            return format!(
                "n = 1 observation of {} s: it shows what the program waits for, and no gain",
                number(seconds)
            );
        }
        match advice.verdict {
            AdviceVerdict::Undecided => {
                let tried = self.trials.runs.iter().map(|run| run.round + 1).max().unwrap_or(0);
                let more = match advice.time_to_decide {
                    Some(time) => format!("a trial of {:.0} s would decide", time.as_secs_f64().ceil()),
                    None if failure(self.trials).is_some() => "more rounds would not help".to_owned(),
                    None => format!("{MAX_ROUNDS} rounds, the most, would not tell either"),
                };
                format!("{}: {more}", n(tried))
            }
            AdviceVerdict::Nothing => {
                let others = TriedRemedy::ALL.into_iter().filter(|remedy| *remedy != TriedRemedy::Plain);
                let gains = others.filter_map(|remedy| {
                    let gain = against_plain(self.trials, remedy)?.ratio.inverse();
                    Some((remedy, gain)).filter(|_| gain.n > 1)
                });
                let best = gains.max_by(|one, other| one.1.value.total_cmp(&other.1.value));
                let best = best.map_or_else(String::new, |(remedy, gain)| {
                    format!("; the fastest other way, \"{}\": {} times", remedy.words(), interval(&gain))
                });
                format!("{}{best}", n(rounds(TriedRemedy::Plain)))
            }
            remedy_verdict => {
                let of = rounds(advice.remedy);
                match (advice.gain, remedy_verdict) {
                    (Some(gain), _) => format!(
                        "{}, each with every way; {:.0} % interval in brackets",
                        n(gain.n),
                        gain.level * 100.0
                    ),
                    (None, _) => format!("{}: each ended; as it is, a run was stopped", n(of)),
                }
            }
        }
    }

    /// Returns a table of at most `lines` lines with a row for each remedy: plain Linux first, then the
    /// fastest ones.
    fn ways(&self, lines: usize) -> String {
        let seconds = |remedy: &TriedRemedy| {
            let ended = median(&run_seconds(self.trials, *remedy)).unwrap_or(f64::INFINITY);
            (*remedy != TriedRemedy::Plain, ended)
        };
        let tried = |remedy: &TriedRemedy| self.trials.runs.iter().any(|run| run.remedy == *remedy);
        let mut ways: Vec<TriedRemedy> = TriedRemedy::ALL.into_iter().filter(tried).collect();
        ways.sort_by(|one, other| {
            let (one, other) = (seconds(one), seconds(other));
            one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
        });
        // three lines are for the head of the table and its legend
        let Some(rows) = lines.checked_sub(3).filter(|rows| *rows > 1) else { return String::new() };
        let shown = if ways.len() > rows { rows - 1 } else { ways.len() };
        let mut text = format!(
            "\n{:<30} {:>3} {:>9} {:>23} {:>7}\n",
            "way", "n", "seconds", "plain / this way", "others"
        );
        for remedy in &ways[..shown] {
            let runs: Vec<_> = self.trials.runs.iter().filter(|run| run.remedy == *remedy).collect();
            let has_failed = runs.iter().any(|run| matches!(run.ended, RunEnd::Failed { .. }));
            let seconds = match median(&run_seconds(self.trials, *remedy)) {
                _ if has_failed => "failed".to_owned(),
                Some(seconds) => number(seconds),
                None => format!("> {}", number(runs.first().map_or(0.0, |run| run.seconds))),
            };
            let against = against_plain(self.trials, *remedy).filter(|_| *remedy != TriedRemedy::Plain);
            let against = against.map_or_else(String::new, |against| interval(&against.ratio.inverse()));
            let others = others_used(self.trials, *remedy).map_or_else(|| "?".to_owned(), number);
            let _ = writeln!(
                text,
                "{:<30} {:>3} {seconds:>9} {against:>23} {others:>7}",
                cut(remedy.words(), 30),
                runs.len()
            );
        }
        if shown < ways.len() {
            let _ = writeln!(text, "{} more in --details", counted(ways.len() - shown, "way"));
        }
        let _ = writeln!(text, "{RATIO_LEGEND}");
        text + "others: processors that other programs used (?: runs too short); --details: all"
    }
}

/// Returns the observation without the part behind `;`, which says why more was not observed.
fn first_part(evidence: &str) -> &str {
    evidence.split(';').next().unwrap_or(evidence)
}

/// Formats a fact in lines of the screen's width. A value that begins with a line end is a command, whose
/// line is not broken.
fn fact(name: &str, value: &str) -> String {
    if let Some(command) = value.strip_prefix('\n') {
        return format!("{name}\n{command}\n");
    }
    let folded = fold(value, COLUMNS - INDENT);
    let mut text = String::new();
    for (at, line) in folded.lines().enumerate() {
        let _ = writeln!(text, "{:<INDENT$}{line}", if at == 0 { name } else { "" });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::answer::AdviceAnswer;
    use super::*;
    use std::ffi::OsString;
    use unisono_advise::judge::Circumstances;
    use unisono_advise::remedy::Programs;
    use unisono_advise::{Observation, TrialRun, TrialRuns, judge};
    use unisono_fit::effective;
    use unisono_linux::quota;

    /// Makes a trial of `rounds` rounds in which plain Linux takes twice as long as the remedies in `faster`.
    fn trials(faster: &[TriedRemedy], rounds: usize) -> TrialRuns {
        let mut all = TrialRuns::default();
        for (round, remedy) in (0..rounds).flat_map(|round| TriedRemedy::ALL.map(|remedy| (round, remedy))) {
            let seconds = if faster.contains(&remedy) { 0.5 } else { 1.0 };
            let threads = if remedy == TriedRemedy::Plain { 2 } else { 5 };
            let observation = Observation {
                seconds,
                threads,
                ran_s: 1.0,
                waited_s: 3.0,
                others: 0.5,
                ..Observation::default()
            };
            all.runs.push(TrialRun { remedy, round, ended: RunEnd::Succeeded, seconds, observation });
        }
        all
    }

    fn screen(trials: &TrialRuns, words: usize) -> String {
        let command: Vec<OsString> = (0..words).map(|word| format!("word-{word}").into()).collect();
        let programs = Programs {
            commands: vec![command.clone(), command],
            unisono: "/bin/unisono".into(),
            root: true,
            parts: Vec::new(),
            rank_programs: Vec::new(),
        };
        let there = effective(&quota::limits().expect("this host has limits"));
        let circumstances = Circumstances { programs: 2, processors: 2, ..Circumstances::default() };
        let advice = judge(trials, &circumstances);
        let process = trials.watched_seconds().map(|_| 4711);
        AdviceAnswer { trials, programs: &programs, there: &there, advice: &advice, process }.screen()
    }

    #[test]
    fn every_answer_fits_a_terminal_and_has_its_six_facts_also_about_a_process_that_runs() {
        let seen =
            Observation { seconds: 5.0, threads: 3, ran_s: 4.0, waited_s: 6.0, ..Observation::default() };
        let running = TrialRuns::of_running(seen, ["libgomp.so.1".to_owned()].into(), None);
        let tried =
            [(&[][..], 9), (&[TriedRemedy::InTurn][..], 9), (&[TriedRemedy::Gangs][..], 1), (&[][..], 0)];
        let tried = tried.map(|(faster, rounds)| trials(faster, rounds));
        for trials in tried.iter().chain([&running]) {
            for words in [1, 40] {
                let shown = screen(trials, words);
                assert!(shown.lines().count() <= LINES, "{shown}");
                let is_command = |line: &&str| line.starts_with("  ");
                let mut texts = shown.lines().filter(|line| !is_command(line));
                assert!(texts.all(|line| line.chars().count() <= COLUMNS), "{shown}");
                for fact in ["runs ", "waits for ", "type", "gains ", "who pays ", "how sure "] {
                    assert!(shown.lines().any(|line| line.starts_with(fact)), "{fact}: {shown}");
                }
            }
        }
    }

    #[test]
    fn a_process_that_runs_is_described_but_gets_no_advice_except_the_trial() {
        let seen =
            Observation { seconds: 5.0, threads: 3, ran_s: 4.0, waited_s: 6.0, ..Observation::default() };
        let running = TrialRuns::of_running(seen, ["libgomp.so.1".to_owned()].into(), None);
        let shown = screen(&running, 1);
        assert!(shown.starts_with("Watched for 5 s. Nothing is advised"), "{shown}");
        assert!(shown.contains("process 4711, up to 3 threads at a time"), "{shown}");
        assert!(shown.contains("waits for  a processor: 60 %"), "{shown}");
        assert!(shown.contains("type\n  unisono advise -- word-0") && shown.contains("n = 1"), "{shown}");
    }

    #[test]
    fn threads_of_unisonos_own_commands_are_no_threads_that_wait() {
        let shown = screen(&trials(&[TriedRemedy::InTurn], 9), 1);
        assert!(shown.contains("2 programs, up to 2 threads at a time"), "{shown}");
        assert!(shown.contains("waits for  a processor: 75 %"), "{shown}");
        assert!(shown.contains("type\n  word-0; word-0\n") && shown.contains("n = 9 rounds"), "{shown}");
    }

    #[test]
    fn the_table_says_what_its_ratio_is_and_that_it_is_not_the_ratio_of_the_column_beside_it() {
        let mut trials = trials(&[TriedRemedy::InTurn], 3);
        // plain Linux takes longer in rounds without the way, which was left out there
        trials.runs.retain(|run| run.round == 0 || run.remedy == TriedRemedy::Plain);
        trials.runs.iter_mut().filter(|run| run.round > 0).for_each(|run| run.seconds = 4.0);
        let shown = screen(&trials, 1);
        let row = shown.lines().find(|line| line.starts_with("one program after the other")).expect("a row");
        assert_eq!(row.split_whitespace().skip(5).take(3).collect::<Vec<_>>(), ["1", "0.5", "2"], "{shown}");
        assert!(shown.contains(&format!("\n{RATIO_LEGEND}\n")), "{shown}");
    }

    #[test]
    fn one_round_gets_no_advice_but_the_trial_that_would_decide() {
        let shown = screen(&trials(&[TriedRemedy::Gangs], 1), 1);
        assert!(shown.starts_with("Undecided after 1 round"), "{shown}");
        assert!(shown.contains("\n  unisono advise --for ") && shown.contains("would decide"), "{shown}");
    }
}
