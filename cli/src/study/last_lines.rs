//! Lines below a study's answers: why runs were not measured, and tables with the sentences between them in
//! the width of the terminal.

use crate::columns::hanging;
use std::cmp::Reverse;
use std::path::Path;
use unisono_measure::record::{Line, Outcome, RunLine};
use unisono_text::counted;

/// Folds the sentences of [`tables_text`](super::tables_text) into lines of at most `width` characters. The
/// rows of its tables, which are indented by four, are folded only where no table of this width can be made.
/// A number of runs, such as `(n = 2)`, stays whole.
pub(super) fn fitted(tables: &str, width: usize) -> String {
    const ROW: &str = "    ";
    let fit = |line: &str| {
        let own = line.len() - line.trim_start_matches([' ', '*', '-', '!']).len();
        let indent = if line.starts_with(ROW) { ROW.len() + 2 } else { own };
        hanging("", &line.replace("(n = ", "(n\u{a0}=\u{a0}"), indent, width).replace('\u{a0}', " ")
    };
    tables.lines().map(|line| fit(line) + "\n").collect()
}

/// The maximum number of reasons that the last screen gives for failed, and for skipped runs.
const MAX_REASONS: usize = 3;

/// Returns a line for each reason why runs failed or were skipped, the most frequent first, for example
/// `skipped (12 runs): gangs need root`. A line about failed runs names their study, the file of `records`
/// and the command from `again`, which measures the study with this id anew.
pub(super) fn unmeasured_reasons(
    lines: &[Line],
    records: &Path,
    again: &dyn Fn(&str) -> String,
) -> Vec<String> {
    let mut said = Vec::new();
    for (outcome, word) in [(Outcome::Failed, "failed"), (Outcome::Skipped, "skipped")] {
        let mut reasons: Vec<(&str, Option<&RunLine>, usize)> = Vec::new();
        for run in lines.iter().filter_map(Line::run).filter(|run| run.outcome == outcome) {
            let reason = run.reason.as_deref().unwrap_or("no reason given");
            // one reason, such as a missing right, skips runs of many studies
            let failed = Some(run).filter(|_| outcome == Outcome::Failed);
            let study = |of: Option<&RunLine>| of.map(|run| run.study.clone());
            match reasons.iter_mut().find(|(known, of, _)| *known == reason && study(*of) == study(failed)) {
                Some((_, _, n)) => *n += 1,
                None => reasons.push((reason, failed, 1)),
            }
        }
        reasons.sort_by_key(|(_, _, n)| Reverse(*n));
        let more = reasons.len().saturating_sub(MAX_REASONS);
        let line = |(reason, failed, n): &(&str, Option<&RunLine>, usize)| {
            let runs = counted(*n, "run");
            let Some(run) = failed else { return format!("{word} ({runs}): {reason}") };
            format!(
                "{word} ({runs} of {}, topic {}): {reason}; records: {}; again: {}",
                run.study,
                run.topic,
                records.display(),
                again(&run.study)
            )
        };
        said.extend(reasons.iter().take(MAX_REASONS).map(line));
        if more > 0 {
            said.push(format!("{word}: {} more, in the report", counted(more, "reason")));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_between_tables_are_folded_and_rows_that_fit_stay_whole() {
        let row = format!("    {}", "1,234  ".repeat(10));
        let sentence = format!("  * gangs against pinned threads: {}", "not decided, ".repeat(10));
        let text = fitted(&format!("\nTitle\n{row}\n{sentence}\n"), 80);
        assert!(text.starts_with(&format!("\nTitle\n{row}\n  * gangs against")), "{text}");
        let folded: Vec<&str> = text.lines().skip(3).collect();
        assert!(folded.iter().all(|line| line.chars().count() <= 80) && folded.len() > 1, "{text}");
        assert!(
            folded[1..].iter().all(|line| line.starts_with("    ") && !line.starts_with("     ")),
            "{text}"
        );
        for width in 20..60 {
            let text = fitted("  * two modes: 37,000 (n = 4) and 5,500,000 (n = 2) with gangs\n", width);
            assert!(text.contains("(n = 4)") && text.contains("(n = 2)"), "{text}");
        }
        let whole = format!("{row}\n{sentence}\n");
        assert_eq!(fitted(&whole, usize::MAX), whole);
    }

    #[test]
    fn the_last_screen_gives_the_reasons_of_runs_that_failed_or_were_skipped() {
        let run = |outcome, reason: &str| {
            let (reason, study) = (Some(reason.to_owned()), "rpc".to_owned());
            let topic = "middleware".to_owned();
            Line::Run(Box::new(RunLine { outcome, reason, study, topic, ..RunLine::default() }))
        };
        let reasons = |lines: &[Line]| {
            unmeasured_reasons(lines, Path::new("d/records.jsonl"), &|study| format!("unisono study {study}"))
        };
        let mut lines = vec![
            run(Outcome::Skipped, "gangs need root"),
            run(Outcome::Failed, "no request was served"),
            run(Outcome::Skipped, "clang not found"),
            run(Outcome::Skipped, "gangs need root"),
            Line::Run(Box::default()),
        ];
        assert_eq!(
            reasons(&lines),
            [
                "failed (1 run of rpc, topic middleware): no request was served; records: d/records.jsonl; \
                 again: unisono study rpc",
                "skipped (2 runs): gangs need root",
                "skipped (1 run): clang not found"
            ]
        );
        lines.extend(["a", "b"].map(|reason| run(Outcome::Skipped, reason)));
        assert!(reasons(&lines).ends_with(&["skipped: 1 reason more, in the report".to_owned()]));
    }
}
