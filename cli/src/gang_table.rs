//! The tables that `unisono gang` prints.

use std::fmt::Write;
use unisono_gang::host::run::RunSummary;
use unisono_gang::mechanism::MechanismKind;
use unisono_gang::simulate::Report;
use unisono_linux::counted::counted;

/// The summary of a run: a line for each gang and two more. The rest is in the JSON.
pub(crate) fn summary(summary: &RunSummary) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "\n  gang  weight  slices    cpu s   ended s  exit  command");
    for (number, gang) in summary.gangs.iter().enumerate() {
        let command: String = gang.command.chars().take(60).collect();
        let _ = writeln!(
            text,
            "  {:>4}  {:>6}  {:>6}  {:>7.2}  {:>8.2}  {:>4}  {command}",
            number + 1,
            gang.weight,
            gang.slices,
            gang.cpu_s,
            gang.elapsed_s,
            gang.exit_code,
        );
    }
    let cores = counted(summary.cores, "core");
    let _ = writeln!(
        text,
        "  {cores} in turns of {} ms ({}): {}",
        summary.slice_ms,
        summary.mechanism,
        switches(summary)
    );
    let _ = writeln!(text, "  {}", others(summary));
    text
}

/// How often the running gang changed, and how long a change took.
fn switches(summary: &RunSummary) -> String {
    let count = counted(usize::try_from(summary.switches).unwrap_or(usize::MAX), "switch");
    let Some(time) = &summary.switch_us else {
        let why = summary.not_measured.as_deref().unwrap_or("there was none");
        return format!("{count}, not measured: {why}");
    };
    let leak =
        summary.leak.map_or(String::new(), |leak| format!(", {:.3} % leaked to waiting gangs", leak * 100.0));
    format!("{count} of {:.0} us (99 %: {:.0} us){leak}", time.median, time.p99)
}

/// What other programs got, and what they are guaranteed.
fn others(summary: &RunSummary) -> String {
    let got = summary.others.map_or(String::new(), |others| {
        format!("other programs got {:.1} % of the time; ", others * 100.0)
    });
    let keep = match (summary.share, summary.mechanism) {
        (Some(share), _) => {
            format!("all of them together keep {:.0} % while they want it (--share)", (1.0 - share) * 100.0)
        }
        (None, MechanismKind::RealTime) => {
            "other programs keep what the kernel reserves, 5 % by default".into()
        }
        (None, MechanismKind::Freeze | MechanismKind::Stop) => {
            "other programs and the running gang compete as equals".into()
        }
    };
    got + &keep
}

pub(crate) fn simulation(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "  arrived s  finished s  stretch  slices  backfilled s  threads  gang");
    for gang in &report.gangs {
        let _ = writeln!(
            text,
            "  {:>9.3}  {:>10.3}  {:>7.2}  {:>6}  {:>12.3}  {:>7}  {}",
            gang.arrived_s,
            gang.finished_s,
            gang.stretch,
            gang.slices,
            gang.backfilled_s,
            gang.threads,
            gang.name,
        );
    }
    let _ = writeln!(
        text,
        "\n  {}, done after {:.3} s in {}, {:.1} % of processor time worked",
        counted(report.cores, "core"),
        report.makespan_s,
        counted(usize::try_from(report.turns).unwrap_or(usize::MAX), "turn"),
        report.utilization * 100.0
    );
    text
}
