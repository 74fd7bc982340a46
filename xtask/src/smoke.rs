//! `cargo xtask smoke`: runs `unisono study` with its shortest setting and checks the results: the records
//! match the schema, the report needs no other files, and it can be redrawn from the records. Then it packs
//! and uses the libraries.

use crate::step::{StepVerdict, TimedStep};
use crate::summary::StepSummary;
use crate::{install, libraries};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use unisono_host_tests::program::workspace;
use unisono_measure::record::{FORMAT, Line, Outcome};

pub(crate) fn run() -> anyhow::Result<bool> {
    let scratch = tempfile::tempdir().context("a temporary directory")?;
    let out = scratch.path().join("study");
    let mut summary = StepSummary::default();
    summary.step("unisono study --smoke", || program(&["study", "--smoke", "--out"], &out));
    summary.step("its records", || checked(records(&out.join("records.jsonl"))));
    summary.step("its report", || checked(report(&out.join("report.html"))));
    summary.step("unisono report", || {
        // remove the first report: the second must be drawn from the records alone
        let _ = std::fs::remove_file(out.join("report.html"));
        program(&["report"], &out)
    });
    summary.step("the redrawn report", || checked(report(&out.join("report.html"))));
    summary.step("an installation", || checked(install::trial(&scratch.path().join("installed"))));
    libraries::add_steps(&mut summary)?;
    Ok(summary.conclude())
}

fn program(arguments: &[&str], directory: &Path) -> StepVerdict {
    let mut command = unisono_host_tests::program::cargo();
    command.args(["run", "--release", "--locked", "--"]).args(arguments).arg(directory);
    command.current_dir(workspace());
    let name = format!("unisono {}", arguments.join(" "));
    if TimedStep::new(&name, command).succeeds() {
        StepVerdict::passed(1)
    } else {
        StepVerdict::failed(format!("{name} DIR did not succeed"))
    }
}

/// Prints a line with the result, or fails with the problem.
fn checked(result: anyhow::Result<String>) -> StepVerdict {
    match result {
        Ok(found) => {
            println!("{found}");
            StepVerdict::passed(1)
        }
        Err(error) => StepVerdict::failed(format!("{error:#}")),
    }
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

/// Whether the attribute at this position belongs to an `<a>`.
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
