//! `unisono report`: draws the page from records, without measuring.

use crate::exit::Failure;
use crate::output;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use unisono_report::{Error, RecordsSummary, Tone};

/// Redraw the report from a study's records
///
/// Reads DIR/records.jsonl, which `unisono study` writes after every run, and writes DIR/report.html: one
/// file without scripts that needs no network. Nothing is measured, so the command also works on another
/// machine, with a newer version, or after a study was interrupted.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    unisono report study-2026-11-21           draw the page again\n  \
    unisono report --json study-2026-11-21    the verdicts as JSON, for other programs")]
pub(crate) struct Args {
    /// The directory that `unisono study --out DIR` wrote
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print the verdicts as one JSON object; the page is written, too
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let page = args.dir.join("report.html");
    let summary =
        unisono_report::render(&args.dir.join("records.jsonl"), &page).map_err(|error| match error {
            Error::Missing { .. } | Error::Bad { .. } | Error::Format { .. } | Error::Empty { .. } => {
                anyhow::Error::from(Failure::Usage(error.to_string()))
            }
            error => error.into(),
        })?;
    if let Some(line) = summary.cut_off_line {
        eprintln!(
            "unisono: the records end in the middle of line {line}, as after a crash; that line was left out"
        );
    }
    match say(&args, &summary, &page) {
        // whoever reads has read enough; the page is written
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        said => Ok(said.map(|()| ExitCode::SUCCESS)?),
    }
}

fn say(args: &Args, summary: &RecordsSummary, page: &Path) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        return writeln!(out, "{}", serde_json::to_string(summary)?);
    }
    print(&mut out, summary)?;
    writeln!(out, "report: {}", page.display())
}

/// The verdicts, one a line, and how many runs were made.
fn print(out: &mut impl std::io::Write, summary: &RecordsSummary) -> std::io::Result<()> {
    for verdict in &summary.verdicts {
        let sign = match verdict.finding {
            Tone::Better => "+",
            Tone::Worse => "-",
            Tone::Same => "=",
            Tone::Undecided | Tone::Unanswered => "?",
        };
        writeln!(out, "{sign} {}: {}", plain(&verdict.study), plain(&verdict.words))?;
    }
    write!(out, "runs: {} measured", summary.measured)?;
    let others =
        [(summary.skipped, "skipped"), (summary.failed, "failed"), (summary.interrupted, "interrupted")];
    for (n, word) in others.into_iter().filter(|(n, _)| *n > 0) {
        write!(out, ", {n} {word}")?;
    }
    writeln!(out)
}

fn plain(text: &str) -> String {
    output::plain(&text.replace('\u{a0}', " ")).into_owned()
}
