//! The tables that `unisono gang` prints.

use crate::columns::{self, Column, cut, fold, hanging};
use std::fmt::Write;
use std::time::Duration;
use unisono_gang::host::run::RunSummary;
use unisono_gang::mechanism::MechanismKind;
use unisono_gang::service::request::{GangView, ServiceView};
use unisono_gang::simulate::Report;
use unisono_measure::units::number;
use unisono_text::counted;

/// Returns the summary of a run in lines of at most `width` characters: a line for each gang and two more
/// texts. Further figures are in the JSON.
pub(crate) fn summary(summary: &RunSummary, width: usize) -> String {
    const HEAD: &str = "  gang  weight  slices    cpu s   ended s  exit  ";
    const COMMAND: &str = "command";
    /// The characters of a command that are shown where the width does not matter. Chosen, not measured.
    const MAX_COMMAND: usize = 60;
    let room = width.saturating_sub(HEAD.len()).clamp(COMMAND.len(), MAX_COMMAND);
    let mut text = String::new();
    let _ = writeln!(text, "\n{HEAD}{COMMAND}");
    for (number, gang) in summary.gangs.iter().enumerate() {
        let command = cut(&gang.command, room);
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
    for (number, gang) in summary.gangs.iter().enumerate().filter(|(_, gang)| gang.rested_s > 0.0) {
        let (number, seconds) = (number + 1, gang.rested_s);
        let line = format!("gang {number} blocked and ran without turns for {seconds:.2} s (--no-rest)");
        let _ = writeln!(text, "{}", hanging("  ", &line, 4, width));
    }
    let turns = format!(
        "{} in turns of {} ms ({}): {}",
        counted(summary.cores, "core"),
        summary.slice_ms,
        summary.mechanism,
        switches(summary)
    );
    for line in [turns, others(summary)] {
        let _ = writeln!(text, "{}", hanging("  ", &line, 4, width));
    }
    text
}

/// Returns the daemon's gangs, one line each, in lines of at most `width` characters. With an earlier view,
/// the lines also show the changes since then.
pub(crate) fn served(view: &ServiceView, earlier: Option<(&ServiceView, Duration)>, width: usize) -> String {
    let mut text = String::new();
    let gangs = counted(view.gangs.len(), "gang");
    let _ = writeln!(
        text,
        "{gangs} on {} in slices of {} ms; {}",
        counted(view.cores, "core"),
        number(view.slice_ms),
        counted(usize::try_from(view.switches).unwrap_or(usize::MAX), "switch")
    );
    if view.lengthened > 1 {
        let _ = writeln!(
            text,
            "turns last {} times as long, so that switching takes at most 2 % of the cores (now {:.1} %)",
            view.lengthened, view.switching_percent
        );
    }
    if view.gangs.is_empty() {
        let _ = writeln!(text, "add one: unisono gang add --pid PID");
        return text;
    }
    if width != usize::MAX {
        return fold(&text, width) + "\n" + &changes(view, earlier, width);
    }
    let since = if earlier.is_some() { "  cores  turn %" } else { "" };
    let _ =
        writeln!(text, "  state    weight  width  threads   turns     had s     cpu s{since}  gang (what)");
    for gang in &view.gangs {
        let cpu = gang.cpu_s.map_or("-".into(), |cpu| format!("{cpu:.2}"));
        let _ = write!(
            text,
            "  {:<7}  {:>6}  {:>5}  {:>7}  {:>6}  {:>8.2}  {:>8}",
            gang.state.to_string(),
            gang.weight,
            gang.width,
            gang.threads,
            gang.turns,
            gang.had_s,
            cpu,
        );
        if let Some((earlier, passed)) = earlier {
            let (cores, turn) = use_since(gang, earlier, passed);
            let _ = write!(text, "  {:>5}  {:>6}", shown(cores, 2), shown(turn, 0));
        }
        let _ = writeln!(text, "  {} ({})", gang.name, gang.target);
    }
    text
}

/// Returns the number of processors that a gang used since an earlier view, and the part of the time that it
/// was allowed to run, in percent.
fn use_since(gang: &GangView, earlier: &ServiceView, passed: Duration) -> (Option<f64>, Option<f64>) {
    let before = earlier.gangs.iter().find(|other| other.name == gang.name);
    let passed = passed.as_secs_f64().max(1e-3);
    let cores = before.and_then(|before| Some((gang.cpu_s? - before.cpu_s?).max(0.0) / passed));
    (cores, before.map(|before| (gang.had_s - before.had_s).max(0.0) / passed * 100.0))
}

/// Returns the gangs as a table that fits a terminal.
fn changes(view: &ServiceView, earlier: Option<(&ServiceView, Duration)>, width: usize) -> String {
    let column = |rank, width, head, cell: &dyn Fn(&GangView) -> String| Column {
        rank,
        width,
        head,
        cells: view.gangs.iter().map(cell).collect(),
    };
    let mut columns = Vec::new();
    if let Some((earlier, passed)) = earlier {
        columns.extend([
            column(0, 6, "cores", &|gang| shown(use_since(gang, earlier, passed).0, 2)),
            column(2, 6, "turn %", &|gang| shown(use_since(gang, earlier, passed).1, 0)),
        ]);
    }
    columns.extend([
        column(1, 7, "state", &|gang| gang.state.to_string()),
        column(4, 6, "weight", &|gang| gang.weight.to_string()),
        column(5, 7, "threads", &|gang| gang.threads.to_string()),
        column(6, 5, "width", &|gang| gang.width.to_string()),
        column(3, 9, "cpu s", &|gang| shown(gang.cpu_s, 2)),
        column(7, 7, "turns", &|gang| gang.turns.to_string()),
        column(8, 9, "had s", &|gang| format!("{:.2}", gang.had_s)),
    ]);
    let names: Vec<String> =
        view.gangs.iter().map(|gang| format!("{} ({})", gang.name, gang.target)).collect();
    columns::lines("gang (what)", &names, columns, width)
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

/// Returns the number of gang switches, and how long they took.
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

/// Returns the processor time that other programs got, and their guaranteed share.
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
        (None, MechanismKind::SchedExt) => "other programs go first on each processor".into(),
        (None, MechanismKind::Freeze | MechanismKind::Stop) => {
            "the kernel shares each processor between the running gang and other programs as always".into()
        }
    };
    got + &keep
}

/// Returns a table with a row for each program under each scheduler, and a line for each scheduler, in lines
/// of at most `width` characters. Columns without a figure are left out.
pub(crate) fn simulations(reports: &[(String, Report)], width: usize) -> String {
    let mut text = simulated_programs(reports, width) + "\n";
    for (scheduler, report) in reports {
        let turns = match report.turns {
            0 => String::new(),
            turns => format!("{}, ", counted(turns, "turn")),
        };
        let line = format!(
            "{} for {:.3} s ({}): {:.1} % computing, {:.1} % spinning, {:.1} % overhead, {:.1} % idle; {turns}{}, {}",
            counted(report.cores, "core"),
            report.makespan_s,
            report.kernel,
            report.utilization * 100.0,
            report.spinning * 100.0,
            report.overhead * 100.0,
            report.idle * 100.0,
            counted(report.switches, "switch"),
            counted(report.migrations, "migration"),
        );
        text += &hanging(&format!("  {scheduler}: "), &line, 4, width);
        text.push('\n');
    }
    text
}

fn simulated_programs(reports: &[(String, Report)], width: usize) -> String {
    const NO_FIGURE: &str = "-";
    let or_dash = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| NO_FIGURE.to_owned(), |value| format!("{value:.digits$}"))
    };
    let head = [
        "scheduler",
        "threads",
        "barriers/s",
        "computes",
        "spins",
        "unstacked",
        "ended s",
        "stretch",
        "latency s",
        "program",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for (scheduler, report) in reports {
        for fate in &report.gangs {
            let part = |seconds: f64| seconds / report.makespan_s / report.cores as f64 * 100.0;
            rows.push([
                scheduler.clone(),
                fate.threads.to_string(),
                if fate.barriers == 0 { NO_FIGURE.to_owned() } else { number(fate.barriers_per_s) },
                format!("{:.1} %", part(fate.work_s)),
                format!("{:.0} %", part(fate.spin_s)),
                format!("{:.2}", fate.unstacked),
                or_dash(fate.finished_s, 3),
                or_dash(fate.stretch, 2),
                or_dash(fate.latency_s.map(|latency| latency.median), 3),
                fate.name.clone(),
            ]);
        }
    }
    let [.., name] = head.each_ref().map(|head| head.len());
    let has_figures = |column: &usize| rows[1..].iter().any(|row| row[*column] != NO_FIGURE);
    let figures: Vec<usize> = (0..head.len() - 1).filter(has_figures).collect();
    let width_of = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let used = |gap: usize| figures.iter().map(|column| width_of(*column) + gap).sum::<usize>();
    // a narrow terminal gets narrow gaps, so that more of a name is left
    let gap = if used(2) + 2 + width_of(head.len() - 1) <= width { 2 } else { 1 };
    let room = width.saturating_sub(used(gap) + gap).max(name);
    let mut text = String::new();
    for row in &rows {
        for column in &figures {
            let (cell, width) = (&row[*column], width_of(*column));
            let cell = if *column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            let _ = write!(text, "{:gap$}{cell}", "");
        }
        let _ = writeln!(text, "{:gap$}{}", "", cut(&row[head.len() - 1], room));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_gang::host::run::{GangSummary, Quantiles};

    #[test]
    fn the_summary_of_a_run_fits_a_terminal_and_is_whole_elsewhere() {
        let gang = GangSummary {
            command: format!("./solver {}", "--option value ".repeat(9)),
            exit_code: 0,
            cpu_s: 1.83,
            slices: 28,
            rested_s: 1.5,
            weight: 2,
            elapsed_s: 1.82,
        };
        let run = RunSummary {
            gangs: vec![gang.clone(), gang],
            switches: 57,
            switch_us: Some(Quantiles { median: 64.0, p99: 11894.0, n: 57 }),
            enforced_us: None,
            skew_us: None,
            leak: Some(0.00043),
            not_measured: None,
            mechanism: MechanismKind::Freeze,
            reason: String::new(),
            share: Some(0.9),
            others: Some(0.19),
            scheduler_class: "SCHED_FIFO",
            slice_ms: 20.0,
            cores: 2,
            elapsed_s: 2.32,
            warnings: Vec::new(),
            not_restored: Vec::new(),
        };
        for width in [60, 80, 120] {
            let shown = summary(&run, width);
            assert!(shown.lines().all(|line| line.chars().count() <= width), "{width}:\n{shown}");
            assert!(shown.contains("  exit  command\n") && shown.contains("  ./solve"), "{shown}");
        }
        let whole = summary(&run, usize::MAX);
        let turns = "  2 cores in turns of 20 ms (freeze): 57 switches of 64 us (99 %: 11894 us), 0.043 %";
        assert!(whole.lines().any(|line| line.starts_with(turns)), "{whole}");
        assert_eq!(whole.lines().count(), 8, "{whole}");
    }

    #[test]
    fn the_live_table_of_gangs_fits_eighty_columns_and_has_what_matters() {
        let gang = serde_json::json!({
            "name": "a-simulation-with-a-long-name", "target": {"group": {"path": "/sys/fs/cgroup/system.slice/docker-1f2e.scope"}},
            "user": 0, "weight": 10000, "state": "resting", "width": 128, "threads": 1024, "turns": 123_456,
            "had_s": 12_345.67, "cpu_s": 98_765.43,
        });
        let view = |gangs: Vec<serde_json::Value>| -> ServiceView {
            let view = serde_json::json!({
                "process": 1, "slice_ms": 20.0, "cores": 128, "switches": 99_999, "switching_percent": 2.0,
                "lengthened": 4, "gangs": gangs,
            });
            serde_json::from_value(view).expect("a view")
        };
        let view = view(vec![gang; 3]);
        for width in [40, 80, 200] {
            let table = served(&view, Some((&view, Duration::from_secs(1))), width);
            assert!(table.lines().all(|line| line.chars().count() <= width), "{width}:\n{table}");
            let head = table.lines().find(|line| line.starts_with("gang (what)")).expect("a head");
            assert!(head.contains(" cores") && head.contains(" state"), "{table}");
            assert!(width < 80 || head.contains(" turn %") && head.contains(" cpu s"), "{table}");
            let list = served(&view, None, width);
            assert!(list.lines().all(|line| line.chars().count() <= width), "{width}:\n{list}");
            assert!(list.contains(" resting") && !list.contains("turn %"), "{list}");
        }
    }
}
