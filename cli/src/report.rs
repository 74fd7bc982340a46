//! `unisono report`: draws the page from records, without measuring.

use crate::exit::Failure;
use crate::live_view::table_width;
use crate::machine_output::{self, CsvFlag, TableForm};
use crate::output;
use crate::study;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use unisono_measure::record::Line;
use unisono_report::{ClaimsFormat, Error, RecordsSummary};

/// Redraw the report from a study's records
///
/// Reads DIR/records.jsonl, which `unisono study` writes after every run, and writes DIR/report.html: one
/// file without scripts that needs no network. Prints the answers. Nothing is measured, so the command also
/// works on another machine, with a newer version, or after a study was interrupted.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono report study-2026-11-21
      draw the page again
  unisono report study-2026-11-21 --text gang
      its figures and verdicts about gangs, as text
  unisono report before after
      what changed from one study to another
  unisono report study-2026-11-21 --json
      the verdicts as JSON, for other programs")]
pub(crate) struct Args {
    /// The directory that `unisono study --out DIR` wrote
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// A second such directory: print what changed from DIR to it (medians, not paired); write no page
    #[arg(value_name = "LATER", conflicts_with_all = ["text", "claims"])]
    later: Option<PathBuf>,
    /// Print the verdicts as one JSON object; the page is written, too
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
    /// Print each figure and statement of the four papers beside these records, in Markdown; with --json as
    /// JSON; write no page. Needs the program unisono-laboratory, which no package has (see `unisono study
    /// --help`)
    #[arg(long, conflicts_with_all = ["text", "csv"])]
    claims: bool,
    /// Print the figures and verdicts of a topic, of a study, or `all` of them; write no page
    #[arg(long, value_name = "TOPIC", conflicts_with_all = ["json", "csv"], add = ArgValueCandidates::new(text_completions))]
    text: Option<String>,
}

/// Returns the parts of the report that can be printed as text: all, a topic, or one study.
fn text_completions() -> Vec<CompletionCandidate> {
    let names = std::iter::once("all".to_owned()).chain(study::topic_completions());
    names.map(CompletionCandidate::new).collect()
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let records = args.dir.join("records.jsonl");
    let lines = unisono_report::lines(&records).map_err(usage_error)?;
    if let Some(later) = &args.later {
        let later = unisono_report::lines(&later.join("records.jsonl")).map_err(usage_error)?;
        return print_changes(&lines, &later, &args);
    }
    if let Some(wanted) = &args.text {
        return print_text(&lines, wanted);
    }
    if args.claims {
        return print_claims(&lines, args.json);
    }
    let page = args.dir.join("report.html");
    let summary = unisono_report::render(&records, &page).map_err(usage_error)?;
    if let Some(line) = summary.cut_off_line {
        eprintln!(
            "unisono: the records end in the middle of line {line}, as after a crash; that line was left out"
        );
    }
    match print_summary(&args, &lines, &summary, &page) {
        // the page is written even if the reader has closed the output
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        said => Ok(said.map(|()| ExitCode::SUCCESS)?),
    }
}

fn print_changes(first: &[Line], second: &[Line], args: &Args) -> anyhow::Result<ExitCode> {
    let changes = unisono_report::changes(first, second);
    if changes.is_empty() {
        let text = "the two have no figure in common; compare two runs of the same study: unisono report A B";
        return Err(Failure::Usage(text.to_owned()).into());
    }
    let form = TableForm::chosen(args.json, args.table.csv);
    let words = || unisono_report::changes_in_words(first, second);
    form.answer("unisono-report-changes-1", &json!({ "changes": changes }), &changes, words)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the table of claims. It is part of the laboratory; a program without it becomes the laboratory.
fn print_claims(lines: &[Line], json: bool) -> anyhow::Result<ExitCode> {
    let format = if json { ClaimsFormat::Json } else { ClaimsFormat::Markdown };
    let Some(text) = unisono_report::claims(lines, format) else {
        return Err(study::become_laboratory("the table of claims is part of"));
    };
    output::answer(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn usage_error(error: Error) -> anyhow::Error {
    match error {
        Error::Missing { .. } | Error::Bad { .. } | Error::Format { .. } | Error::Empty { .. } => {
            Failure::Usage(error.to_string()).into()
        }
        error => error.into(),
    }
}

/// Prints the figures and verdicts of a topic or a study.
fn print_text(lines: &[Line], wanted: &str) -> anyhow::Result<ExitCode> {
    let names = |line: &Line| match line {
        Line::Study(study) => [study.topic.clone(), study.study.clone()],
        Line::Run(run) => [run.topic.clone(), run.study.clone()],
    };
    let is_wanted = |line: &&Line| wanted == "all" || names(line).iter().any(|name| name == wanted);
    let found: Vec<Line> = lines.iter().filter(is_wanted).cloned().collect();
    if found.is_empty() {
        let known: BTreeSet<String> = lines.iter().map(|line| names(line)[0].clone()).collect();
        let known: Vec<String> = known.into_iter().collect();
        return Err(Failure::Usage(format!(
            "these records have nothing about {wanted:?}; they have: all, {}",
            known.join(", ")
        ))
        .into());
    }
    let text = study::tables_text(&found, table_width());
    output::answer(output::plain(&text).trim())?;
    Ok(ExitCode::SUCCESS)
}

fn print_summary(args: &Args, lines: &[Line], summary: &RecordsSummary, page: &Path) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        return writeln!(out, "{}", machine_output::json("unisono-report-1", summary)?);
    }
    if args.table.csv {
        return writeln!(out, "{}", output::plain(&machine_output::csv(&summary.verdicts)?));
    }
    write!(out, "{}", output::plain(&unisono_report::screen(lines)))?;
    write!(out, "\nruns:    {} measured", summary.measured)?;
    let others =
        [(summary.skipped, "skipped"), (summary.failed, "failed"), (summary.interrupted, "interrupted")];
    for (n, word) in others.into_iter().filter(|(n, _)| *n > 0) {
        write!(out, ", {n} {word}")?;
    }
    writeln!(out, "\nfigures: unisono report {} --text all", args.dir.display())?;
    writeln!(out, "report:  {}", page.display())
}
