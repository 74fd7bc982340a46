//! The progress of a study: a bar with the time left on a terminal, otherwise a plain line now and then.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use unisono_measure::record::Line;
use unisono_study::file::StudyFile;
use unisono_study::plan::{PlannedRun, RunPlan};
use unisono_study::profile::Profile;
use unisono_study::runner::Observer;
use unisono_text::counted;

/// Without a terminal, the least time between two lines of the same study.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    json: bool,
    total: usize,
    begun: usize,
    last_line: Option<(String, Instant)>,
}

impl Progress {
    pub(super) fn start(planned: &[(StudyFile, RunPlan)], profile: Profile, json: bool) -> Self {
        let total = planned.iter().map(|(_, plan)| plan.runs.len()).sum();
        let estimate: Duration = planned.iter().map(|(_, plan)| plan.estimate).sum();
        let is_terminal = std::io::stderr().is_terminal();
        let (target, style) = (ProgressDrawTarget::stderr_with_hz(4), style());
        let bar = if is_terminal {
            ProgressBar::with_draw_target(Some(total as u64), target)
        } else {
            ProgressBar::hidden()
        };
        let progress =
            Self { bar: bar.with_style(style), is_terminal, json, total, begun: 0, last_line: None };
        let studies = planned.len();
        let (studies, runs) = (counted(studies, "study"), counted(total, "run"));
        progress.print_line(&format!("{studies}, {runs}, about {} (--{profile})", time(estimate)));
        progress
    }

    /// Prints a line that stays above the bar.
    pub(super) fn print_line(&self, text: &str) {
        if self.is_terminal {
            self.bar.println(text);
        } else {
            eprintln!("{text}");
        }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}")
        .expect("the template is valid because it is a constant that tests render")
}

impl Observer for Progress {
    fn run_begins(&mut self, file: &StudyFile, run: &PlannedRun, left: Duration) {
        let left = time(left);
        let here = format!("{}: {} (repetition {})", file.id, run.variant, run.repetition + 1);
        self.bar.set_message(format!("{left} left  {here}"));
        let is_due = match &self.last_line {
            Some((study, when)) => *study != file.id || when.elapsed() >= PLAIN_INTERVAL,
            None => true,
        };
        if !self.is_terminal && is_due {
            self.print_line(&format!("run {}/{}, about {left} left: {here}", self.begun + 1, self.total));
            self.last_line = Some((file.id.clone(), Instant::now()));
        }
        // one run may have many records
        self.bar.set_position(self.begun as u64);
        self.begun += 1;
    }

    fn run_repeats(&mut self, file: &StudyFile, run: &PlannedRun, why: &str) {
        if self.is_terminal {
            self.bar.set_message(format!("again  {}: {} ({why})", file.id, run.variant));
        }
    }

    fn line_recorded(&mut self, _: &Line, json: &str) {
        if self.json {
            let mut out = std::io::stdout().lock();
            // measuring continues after the reader has gone, because the records are kept in the file
            let _gone = writeln!(out, "{json}").and_then(|()| out.flush());
        }
    }
}

/// A time in words: `8 s`, `2 min 5 s`, `1 h 10 min`.
pub(super) fn time(duration: Duration) -> String {
    let s = duration.as_secs_f64().ceil() as u64;
    match s {
        0..100 => format!("{s} s"),
        100..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well_and_the_bar_can_be_drawn() {
        let in_words = |s| time(Duration::from_millis(s));
        assert_eq!(
            (in_words(7_200), in_words(125_000), in_words(4_260_000)),
            ("8 s".into(), "2 min 5 s".into(), "1 h 11 min".into())
        );
        style();
    }
}
