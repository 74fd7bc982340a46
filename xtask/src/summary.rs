//! Runs named steps one after another. At the end it prints which steps passed, failed and were skipped.

use crate::step::StepVerdict;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(crate) struct StepSummary {
    rows: Vec<(String, StepVerdict, Duration)>,
}

impl StepSummary {
    /// Runs a step under a heading.
    pub(crate) fn step(&mut self, name: &str, run: impl FnOnce() -> StepVerdict) {
        println!("\n==> {name}");
        let start = Instant::now();
        let verdict = run();
        for reason in &verdict.failures {
            println!("    failed: {reason}");
        }
        self.rows.push((name.to_owned(), verdict, start.elapsed()));
    }

    /// Prints the table, the reasons and the totals. Returns whether all steps passed.
    pub(crate) fn conclude(self) -> bool {
        println!("\n==> summary");
        let width = self.rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for (name, verdict, time) in &self.rows {
            let word = match verdict {
                StepVerdict { failed: 1.., .. } => "failed",
                StepVerdict { passed: 0, .. } => "skipped",
                _ => "passed",
            };
            println!(
                "{name:width$}  {word:7}  {:4} passed {:3} failed {:3} skipped  {:5.1} s",
                verdict.passed,
                verdict.failed,
                verdict.skipped.len(),
                time.as_secs_f64()
            );
            passed += verdict.passed;
            failed += verdict.failed;
            skipped += verdict.skipped.len();
        }
        self.slowest();
        self.list("skipped", |verdict| &verdict.skipped);
        self.list("failed once, passed when tried again", |verdict| &verdict.flaky);
        self.list("failed", |verdict| &verdict.failures);
        println!("\n{passed} passed, {failed} failed, {skipped} skipped");
        failed == 0
    }

    /// Prints the slowest tests.
    fn slowest(&self) {
        const MAX_SLOWEST: usize = 10;
        let mut times: Vec<_> = self.rows.iter().flat_map(|(_, verdict, _)| &verdict.times_ms).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        if !times.is_empty() {
            println!("\nslowest:");
        }
        for (ms, test) in times.into_iter().take(MAX_SLOWEST) {
            println!("  {:6.1} s  {test}", *ms as f64 / 1e3);
        }
    }

    fn list(&self, word: &str, which: impl Fn(&StepVerdict) -> &Vec<String>) {
        let all: Vec<_> = self
            .rows
            .iter()
            .flat_map(|(name, verdict, _)| which(verdict).iter().map(move |line| format!("  {name}: {line}")))
            .collect();
        if !all.is_empty() {
            println!("\n{word}:\n{}", all.join("\n"));
        }
    }
}
