//! `cargo xtask smoke`: runs `unisono study` with its shortest setting and checks the results: the records
//! match the schema, the report needs no other files, and it can be redrawn from the records.

use crate::step::{StepVerdict, TimedStep};
use crate::summary::StepSummary;
use crate::test;
use anyhow::{Context, Error, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use unisono_host_tests::program::workspace;
use unisono_measure::record::{FORMAT, Line, Outcome};

pub(crate) fn run() -> anyhow::Result<bool> {
    let scratch = tempfile::tempdir().context("a temporary directory")?;
    let out = scratch.path().join("study");
    let mut summary = StepSummary::default();
    let program = test::build_programs().map_err(Error::msg)?;
    let run = |arguments: &[&str]| run_program(&program, arguments, &out);
    summary.step("unisono study --smoke", || run(&["study", "--smoke", "--out"]));
    summary.step("its records", || StepVerdict::from_result(records(&out.join("records.jsonl"))));
    summary.step("its report", || StepVerdict::from_result(report(&out.join("report.html"))));
    summary.step("unisono report", || {
        // removes the first report, because the second must be drawn from the records alone
        let _ = std::fs::remove_file(out.join("report.html"));
        run(&["report"])
    });
    summary.step("the redrawn report", || StepVerdict::from_result(report(&out.join("report.html"))));
    Ok(summary.conclude())
}

fn run_program(program: &Path, arguments: &[&str], directory: &Path) -> StepVerdict {
    let mut command = Command::new(program);
    command.args(arguments).arg(directory).current_dir(workspace());
    let name = format!("unisono {}", arguments.join(" "));
    TimedStep::new(&name, command).verdict(format!("{name} DIR did not succeed"))
}

fn records(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let (mut studies, mut measured, mut failed) = (0, 0, Vec::new());
    let mut skipped = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line: Line =
            serde_json::from_str(line).with_context(|| format!("{}:{number}", path.display()))?;
        match line {
            Line::Study(study) => {
                ensure!(study.format == FORMAT, "line {number}: format {:?}", study.format);
                studies += 1;
            }
            Line::Run(run) => {
                ensure!(run.format == FORMAT, "line {number}: format {:?}", run.format);
                match run.outcome {
                    Outcome::Measured => {
                        ensure!(!run.figures.is_empty(), "line {number}: measured, but no figures");
                        measured += 1;
                    }
                    Outcome::Skipped => {
                        let reason = run.reason.context("skipped without a reason")?;
                        *skipped.entry(reason).or_insert(0_u32) += 1;
                    }
                    Outcome::Failed | Outcome::Disturbed | Outcome::Interrupted | Outcome::Cut => {
                        failed.push(format!(
                            "{} {}: {}",
                            run.study,
                            run.variant,
                            run.reason.unwrap_or_default()
                        ));
                    }
                }
            }
        }
    }
    ensure!(
        studies > 0 && measured > 0,
        "{studies} studies and {measured} measured runs in {}",
        path.display()
    );
    for (reason, count) in &skipped {
        println!("skipped {count} runs: {reason}");
    }
    ensure!(failed.is_empty(), "runs failed: {}", failed.join("; "));
    Ok(format!(
        "{studies} studies, {measured} runs measured, {} skipped",
        skipped.values().sum::<u32>()
    ))
}

fn report(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    ensure!(text.trim_start().to_ascii_lowercase().starts_with("<!doctype html"), "no HTML document");
    ensure!(text.trim_end().ends_with("</html>"), "the document is cut off");
    ensure!(text.contains("<svg"), "no figures");
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        // links that a reader may follow are fine; resources that a browser would load are not
        let loads = text.match_indices(outside).filter(|(at, _)| !is_link(&text, *at)).count();
        ensure!(loads == 0, "it loads {loads} things from elsewhere ({outside})");
    }
    Ok(format!("{} KiB, {} figures", text.len() / 1024, text.matches("<svg").count()))
}

/// Whether the attribute at this position belongs to an `<a>` element.
fn is_link(text: &str, at: usize) -> bool {
    text[..at].rsplit_once('<').is_some_and(|(_, tag)| tag.starts_with("a "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(html: &str) -> anyhow::Result<String> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("report.html");
        std::fs::write(&path, html)?;
        report(&path)
    }

    #[test]
    fn a_report_that_loads_something_is_refused() {
        assert!(judged("<!doctype html><svg></svg><a href=\"https://example.org\">x</a></html>").is_ok());
        assert!(
            judged("<!doctype html><svg></svg><script src=\"https://example.org\"></script></html>").is_err()
        );
        assert!(judged("<!doctype html><svg></svg>").is_err());
    }

    #[test]
    fn records_that_the_schema_refuses_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("records.jsonl");
        for text in ["", "{}\n", "{\"kind\":\"run\"\n"] {
            std::fs::write(&path, text).expect("a file");
            assert!(records(&path).is_err(), "{text}");
        }
    }
}
