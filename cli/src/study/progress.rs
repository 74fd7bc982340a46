//! Shows the progress of a study: on a terminal a bar with the time left, otherwise a line at intervals.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use unisono_measure::record::Line;
use unisono_study::file::StudyFile;
use unisono_study::plan::{PlannedRun, RunPlan};
use unisono_study::profile::Profile;
use unisono_study::runner::{Observer, longest};
use unisono_text::counted;

/// Without a terminal, the minimum interval between two lines about the same study.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of different disturbances that are printed; on a busy machine each run may have another
/// one.
const MAX_DISTURBANCES: usize = 3;

pub(super) struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    json: bool,
    total: usize,
    begun: usize,
    last_line: Option<(String, Instant)>,
    /// The disturbances that were printed.
    disturbances: BTreeSet<String>,
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
        let progress = Self {
            bar: bar.with_style(style),
            is_terminal,
            json,
            total,
            begun: 0,
            last_line: None,
            disturbances: BTreeSet::new(),
        };
        let studies = planned.len();
        let (studies, runs) = (counted(studies, "study"), counted(total, "run"));
        let estimate = match longest(profile, estimate).filter(|longest| *longest >= estimate * 2) {
            Some(longest) => {
                format!("about {}, up to {} if other programs disturb it", time(estimate), time(longest))
            }
            None => format!("about {}", time(estimate)),
        };
        progress.print_line(&format!("{studies}, {runs}, {estimate} (--{profile})"));
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
        // the position is the number of runs, because one run may have several records
        self.bar.set_position(self.begun as u64);
        self.begun += 1;
    }

    fn run_disturbed(&mut self, why: &str, culprit: Option<&str>) {
        let line = disturbance(why, culprit);
        if self.disturbances.len() < MAX_DISTURBANCES && self.disturbances.insert(line.clone()) {
            self.print_line(&line);
        }
    }

    fn run_repeats(&mut self, file: &StudyFile, run: &PlannedRun, why: &str, left: Duration) {
        if self.is_terminal {
            self.bar.set_message(format!("{} left  again  {}: {} ({why})", time(left), file.id, run.variant));
        }
    }

    fn line_recorded(&mut self, _: &Line, json: &str) {
        if self.json {
            let mut out = std::io::stdout().lock();
            // the study continues after the reader has closed the output, because the records are kept in the
            // file
            let _gone = writeln!(out, "{json}").and_then(|()| out.flush());
        }
    }
}

/// Says why a run does not count, and names the foreign process that used the most processor time.
fn disturbance(why: &str, culprit: Option<&str>) -> String {
    let most = culprit.map_or(String::new(), |culprit| format!("; most: {culprit}"));
    format!("disturbed: {why}{most}")
}

/// Formats a time in words: `8 s`, `2 min 5 s`, `1 h 10 min`.
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
    fn a_disturbance_names_its_process() {
        assert_eq!(
            disturbance("other programs took more than 2 %; stop them", Some("rustc (process 41)")),
            "disturbed: other programs took more than 2 %; stop them; most: rustc (process 41)"
        );
        assert_eq!(disturbance("the hypervisor took 3 %", None), "disturbed: the hypervisor took 3 %");
    }

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
