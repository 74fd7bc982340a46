//! The tables that `unisono gang` prints.

use std::fmt::Write;
use unisono_gang::host::run::{Quantiles, Summary};
use unisono_gang::simulate::Report;

/// The summary of a run.
pub(crate) fn summary(summary: &Summary) -> String {
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
    let times = |quantiles: &Option<Quantiles>| match quantiles {
        Some(q) => format!("{:.0} us median, {:.0} us p99 ({} watched)", q.median, q.p99, q.n),
        None => format!("not measured: {}", summary.not_measured.as_deref().unwrap_or("no switch")),
    };
    let plural =
        |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let _ = writeln!(
        text,
        "\n  {}, {}, slice {} ms",
        plural(summary.cores as u64, "core", "cores"),
        plural(summary.switches, "switch", "switches"),
        summary.slice_ms
    );
    let _ = writeln!(text, "  switch      {}", times(&summary.switch_us));
    if let Some(skew) = summary.skew_us {
        let _ = writeln!(text, "  skew        {skew:.0} us median");
    }
    if let Some(leak) = summary.leak {
        let _ = writeln!(text, "  leak        {:.3} % of processor time to waiting gangs", leak * 100.0);
    }
    let _ = writeln!(text, "  mechanism   {}: {}", summary.mechanism, summary.reason);
    let _ = writeln!(text, "  scheduler   {} class", summary.scheduler_class);
    text
}

/// The result of a simulation.
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
        "\n  {} cores, done after {:.3} s in {} turns, {:.1} % of processor time worked",
        report.cores,
        report.makespan_s,
        report.turns,
        report.utilization * 100.0
    );
    text
}
