//! `unisono doctor`: prints a line for each capability of the host that some command needs.

use crate::columns::hanging;
use crate::live_view::table_width;
use crate::machine_output::{self, CsvFlag};
use crate::output;
use indicatif::ProgressBar;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use unisono_linux::capability::{self, Capability, Effort, ProbeStatus};
use unisono_linux::process;

/// Show the capabilities of this host. For each missing capability, show the reason and the remedy
///
/// Prints one line for each capability that some command needs. "found" means that it can be used. "not
/// found" is followed by the reason and by what to do. "unknown" means that a trial could not be made or did
/// not end in time: the capability may be there or not. The reason follows.
///
/// The command finds out most capabilities by trying them. For example, it makes a control group and removes
/// it, and it loads a BPF program that it attaches to nothing. A trial leaves nothing behind and loads no
/// kernel module. Root can do more than other users: run the command as root to see what root would add. A
/// missing capability is not an error: the exit code is 0.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono doctor
      all capabilities
  unisono doctor --without-compiling
      without the trials that take seconds
  unisono doctor --json | \\
          jq -r '.capabilities[] | select(.found | not) | .remedy'
      what to do about everything that is missing")]
pub(crate) struct Args {
    /// Print one JSON object: {"capabilities":[{"name","found","status","reason","remedy",...}]}, where the
    /// status is found, missing or unknown
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,

    /// Do not try the compilers (each compiles a few lines, up to 2 s in all)
    #[arg(long)]
    without_compiling: bool,
}

#[derive(Serialize)]
struct DoctorAnswer {
    capabilities: Vec<Capability>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let effort = if args.without_compiling { Effort::WithoutCompiling } else { Effort::Everything };
    let progress = ProgressBar::new_spinner().with_message("trying what this host can do");
    progress.enable_steady_tick(Duration::from_millis(100));
    let capabilities = capability::all(effort);
    progress.finish_and_clear();
    if args.json {
        output::answer(&machine_output::pretty_json("unisono-doctor-1", &DoctorAnswer { capabilities })?)?;
    } else if args.table.csv {
        output::answer(&machine_output::csv(&capabilities)?)?;
    } else {
        output::answer(table(&capabilities, table_width()).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the capabilities, each on one line if the line has at most `line_width` characters.
fn table(capabilities: &[Capability], line_width: usize) -> String {
    let width = capabilities.iter().map(|capability| capability.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut group = "";
    for capability in capabilities {
        if capability.group != group {
            group = capability.group;
            text.push_str(&format!("{}{group}\n", if text.is_empty() { "" } else { "\n" }));
        }
        let head = format!("  {:width$}  ", capability.name);
        text.push_str(&hanging(&head, &sentence(capability), width + 4, line_width));
        text.push('\n');
    }
    let found = capabilities.iter().filter(|capability| capability.found).count();
    text.push_str(&format!("\n{found} of {} capabilities found", capabilities.len()));
    if !process::is_root() {
        text.push_str("; run it as root to see what root would add");
    }
    text
}

fn sentence(capability: &Capability) -> String {
    let Capability { status, detail, reason, remedy, .. } = capability;
    let remedy = remedy.as_ref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
    let reason = reason.as_deref().unwrap_or("no reason known");
    match status {
        ProbeStatus::Found => format!("found: {detail}{remedy}"),
        ProbeStatus::Missing => format!("not found: {reason}{remedy}"),
        ProbeStatus::Unknown => format!("unknown: {reason}{remedy}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_shows_reason_and_remedy_on_one_line_or_in_the_columns_of_a_terminal() {
        let capability = Capability {
            name: "tun",
            group: "network",
            found: false,
            status: ProbeStatus::Missing,
            detail: String::new(),
            reason: Some("no device".into()),
            remedy: Some("make one".into()),
        };
        let unknown = Capability {
            name: "cc",
            status: ProbeStatus::Unknown,
            reason: Some("too slow".into()),
            ..capability.clone()
        };
        let long = Capability { reason: Some("word ".repeat(40) + "end"), ..capability.clone() };
        let folded = table(&[long], 80);
        assert!(folded.lines().all(|line| line.chars().count() <= 80), "{folded}");
        assert!(folded.contains("end; make one"), "{folded}");
        let text = table(&[capability, unknown], usize::MAX);
        assert!(text.starts_with("network\n  tun  not found: no device; make one\n"), "{text}");
        assert!(text.contains("\n  cc   unknown: too slow; make one\n"), "{text}");
    }
}
