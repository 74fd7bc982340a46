//! The output of `unisono barrier`: a list of figures for one run, a table for a comparison.

use crate::machine_output;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;
use unisono_linux::affinity::{self, Tid};
use unisono_measure::quantile;
use unisono_measure::units::Readable;
use unisono_text::counted;
use unisono_workload::{Measurement, Options};

pub(super) struct VariantRuns {
    runs: Vec<Measurement>,
}

impl VariantRuns {
    pub(super) fn new(runs: Vec<Measurement>) -> Self {
        Self { runs }
    }

    fn first(&self) -> &Measurement {
        &self.runs[0]
    }

    fn name(&self) -> String {
        let run = self.first();
        match run.implementation.as_str() {
            "unisono" => format!("{} {}", run.algorithm, run.wait),
            other => other.to_owned(),
        }
    }

    fn values(&self, figure: impl Fn(&Measurement) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }

    fn median(&self, figure: impl Fn(&Measurement) -> f64) -> f64 {
        quantile::median(&self.values(figure)).unwrap_or(0.0)
    }

    /// Returns the mean time of a barrier in each run, in ascending order.
    fn means(&self) -> Vec<f64> {
        quantile::sorted(&self.values(|run| run.ns_per_barrier.mean))
    }

    fn worst_run(&self) -> f64 {
        self.means().last().copied().unwrap_or(0.0)
    }

    fn best_run(&self) -> f64 {
        self.means().first().copied().unwrap_or(0.0)
    }

    /// Returns one JSON object: the run itself if there is one, otherwise a summary, whose `ns_per_barrier`
    /// is computed from the means of the runs.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        let [run] = self.runs.as_slice() else {
            let run = self.first();
            let summary = json!({
                "implementation": run.implementation, "version": run.version, "algorithm": run.algorithm,
                "wait": run.wait, "threads": run.threads,
                "ns_per_barrier": {
                    "n": self.runs.len(),
                    "min": self.best_run(),
                    "median": self.median(|run| run.ns_per_barrier.mean),
                    "max": self.worst_run(),
                },
                "typical_ns_per_barrier": self.median(|run| run.ns_per_barrier.median),
                "longest_ns": self.values(|run| run.ns_per_barrier.max).into_iter().fold(0.0, f64::max),
                "barriers_per_s": self.median(|run| run.barriers_per_s),
                "blocks_per_s": self.median(|run| run.blocks_per_s),
                "runs": self.runs.iter().map(serde_json::to_value).collect::<serde_json::Result<Vec<Value>>>()?,
            });
            return machine_output::json("unisono-barrier-runs-1", &summary);
        };
        machine_output::json("unisono-barrier-run-1", run)
    }
}

/// Returns the runs as comma-separated values, with a row for each variant.
pub(super) fn csv(results: &[VariantRuns]) -> serde_json::Result<String> {
    let row = |result: &VariantRuns| {
        let run = result.first();
        json!({
            "implementation": run.implementation, "version": run.version, "algorithm": run.algorithm,
            "wait": run.wait, "threads": run.threads, "runs": result.runs.len(),
            "best_ns_per_barrier": result.best_run(),
            "median_ns_per_barrier": result.median(|run| run.ns_per_barrier.mean),
            "worst_ns_per_barrier": result.worst_run(),
            "typical_ns_per_barrier": result.median(|run| run.ns_per_barrier.median),
            "barriers_per_s": result.median(|run| run.barriers_per_s),
            "blocks_per_s": result.median(|run| run.blocks_per_s),
        })
    };
    machine_output::csv(&results.iter().map(row).collect::<Vec<_>>())
}

pub(super) fn render(results: &[VariantRuns], options: &Options) -> String {
    let mut text = String::new();
    let drawn = match results {
        [result] if result.runs.len() == 1 => run_sheet(&mut text, result.first()),
        results => table(&mut text, results, options),
    };
    drawn.expect("writing to a string cannot fail because it only allocates");
    text
}

fn run_sheet(text: &mut String, run: &Measurement) -> std::fmt::Result {
    let ns = &run.ns_per_barrier;
    writeln!(text, "{}", headline(run))?;
    writeln!(
        text,
        "  per barrier   {} median, {} mean; least {}, 99 % below {}, longest {}",
        time_in_words(ns.median),
        time_in_words(ns.mean),
        time_in_words(ns.min),
        time_in_words(ns.p99),
        time_in_words(ns.max)
    )?;
    writeln!(text, "  barriers/s    {}", count_in_words(run.barriers_per_s))?;
    writeln!(text, "  blocks/s      {}: {}", count_in_words(run.blocks_per_s), meaning(run, cpus()))?;
    writeln!(text, "  processors    {:.2} busy of {}", cpu_use(run), cpus())?;
    if let Some(why) = &run.chosen_because {
        writeln!(text, "  why this one  {why}")?;
    }
    Ok(())
}

fn headline(run: &Measurement) -> String {
    let mut line = match run.implementation.as_str() {
        "unisono" => format!("{} barrier, {} waiting", run.algorithm, run.wait),
        name => format!("{} ({})", run.algorithm, if name == run.algorithm { &run.version } else { name }),
    };
    if let Some(budget) = run.spin_budget_ns.filter(|_| run.wait == "spin-block") {
        line += &format!(" ({} to spin)", time_in_words(budget as f64));
    }
    line += &format!(", {}", counted(run.threads, "thread"));
    match run.pin.as_str() {
        "none" => line += " where the kernel puts them",
        "spread" => line += " spread over the processors",
        list => line += &format!(" on processors {list}"),
    }
    if run.interval_ns + run.variance_ns > 0 {
        line += &format!(
            ", computing {} + up to {} before each",
            time_in_words(run.interval_ns as f64),
            time_in_words(run.variance_ns as f64)
        );
    }
    match run.competitors {
        None => {}
        Some(1) => line += ", beside 1 busy loop",
        Some(loops) => line += &format!(", beside {loops} busy loops"),
    }
    line
}

/// Explains the rate of blocks (sleeps in the kernel) in words. If all waiting threads of a barrier of n
/// threads sleep, it blocks n - 1 times.
fn meaning(run: &Measurement, cpus: usize) -> &'static str {
    if run.threads < 2 {
        return "one thread has nobody to wait for";
    }
    let share = run.blocks_per_s / (run.barriers_per_s * (run.threads - 1) as f64).max(1e-9);
    let crowded = run.threads > cpus || run.competitors.unwrap_or(0) > 0;
    match share {
        s if s < 0.01 => "hardly anybody slept; waiters kept their processors",
        s if s < 0.3 => "some waiters slept",
        _ if run.wait.contains("block") && !run.wait.contains("spin") => {
            "this wait sleeps at every barrier, by design"
        }
        _ if crowded => "waiters sleep: there are more runnable threads than processors",
        _ if run.interval_ns + run.variance_ns > 100_000 => {
            "waiters sleep: the others compute longer than a spin"
        }
        _ => {
            "waiters sleep although there are processors enough: the kernel has stacked the threads, or others \
             are busy here; try --pin spread"
        }
    }
}

fn table(text: &mut String, results: &[VariantRuns], options: &Options) -> std::fmt::Result {
    let runs = results[0].runs.len();
    let best = results
        .iter()
        .map(|result| result.median(|run| run.ns_per_barrier.mean))
        .fold(f64::INFINITY, f64::min);
    writeln!(text, "{}", comparison_headline(results, options))?;
    let names: Vec<String> = results.iter().map(VariantRuns::name).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(7);
    writeln!(
        text,
        "  {:width$}  {:>10} {:>10} {:>10}  {:>10} {:>10}  {:>9} {:>9} {:>5}  {:>8}",
        "variant",
        "ns/barrier",
        "best run",
        "worst run",
        "typical",
        "longest",
        "barrier/s",
        "block/s",
        "CPUs",
        "against"
    )?;
    for (name, result) in names.iter().zip(results) {
        let middle = result.median(|run| run.ns_per_barrier.mean);
        let against = match middle / best {
            ratio if ratio <= 1.0 => "best".to_owned(),
            ratio if ratio < 10.0 => format!("{ratio:.2}x"),
            ratio => format!("{ratio:.0}x"),
        };
        writeln!(
            text,
            "  {name:width$}  {:>10} {:>10} {:>10}  {:>10} {:>10}  {:>9} {:>9} {:>5.2}  {against:>8}",
            time_in_words(middle),
            time_in_words(result.best_run()),
            time_in_words(result.worst_run()),
            time_in_words(result.median(|run| run.ns_per_barrier.median)),
            time_in_words(result.values(|run| run.ns_per_barrier.max).into_iter().fold(0.0, f64::max)),
            count_in_words(result.median(|run| run.barriers_per_s)),
            count_in_words(result.median(|run| run.blocks_per_s)),
            result.median(cpu_use),
        )?;
    }
    writeln!(
        text,
        "ns/barrier: wall time divided by barriers, median over {}; typical: median within a run; \
         longest: the longest single barrier of all runs",
        counted(runs, "run")
    )?;
    if runs > 1 && results.iter().any(|result| result.worst_run() > 10.0 * result.best_run()) {
        writeln!(
            text,
            "warning: some variants ran in two modes (worst run more than ten times the best): read best and worst, \
             not the middle; --pin spread removes stacking"
        )?;
    }
    let mut explained: Vec<&str> = Vec::new();
    for why in results.iter().filter_map(|result| result.first().chosen_because.as_deref()) {
        if !explained.contains(&why) {
            writeln!(text, "recommended: {why}")?;
            explained.push(why);
        }
    }
    Ok(())
}

fn comparison_headline(results: &[VariantRuns], options: &Options) -> String {
    let run = results[0].first();
    let blank = Measurement { implementation: "x".into(), algorithm: "x".into(), ..run.clone() };
    let conditions = headline(&blank);
    let conditions = conditions.split_once(", ").map_or("", |(_, rest)| rest);
    let runs = results[0].runs.len();
    format!("{conditions}; {runs} x {} s each, in turns", options.seconds)
}

fn cpu_use(run: &Measurement) -> f64 {
    if run.elapsed_s > 0.0 { run.cpu_s / run.elapsed_s } else { 0.0 }
}

fn cpus() -> usize {
    affinity::allowed(Tid::SELF).map_or(1, |allowed| allowed.len())
}

fn time_in_words(ns: f64) -> String {
    if ns < 100.0 {
        return format!("{ns:.1} ns");
    }
    Readable(Duration::from_nanos(ns.round() as u64)).to_string()
}

fn count_in_words(value: f64) -> String {
    match value {
        v if v >= 1e7 => format!("{:.1} M", v / 1e6),
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v if v >= 10.0 || v == 0.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_workload::NsPerBarrier;

    fn run(mean: f64, blocks_per_s: f64) -> Measurement {
        Measurement {
            implementation: "unisono".into(),
            algorithm: "dissemination".into(),
            wait: "spin-block".into(),
            threads: 2,
            pin: "none".into(),
            ns_per_barrier: NsPerBarrier { median: mean, mean, max: mean * 3.0, ..NsPerBarrier::default() },
            barriers_per_s: 1e9 / mean,
            blocks_per_s,
            elapsed_s: 1.0,
            cpu_s: 2.0,
            ..Measurement::default()
        }
    }

    #[test]
    fn sleeping_on_idle_cores_is_called_stacking_and_elsewhere_not() {
        assert!(meaning(&run(27_000.0, 37_000.0), 2).contains("stacked"));
        assert!(!meaning(&run(80.0, 10.0), 2).contains("stacked"));
        assert!(!meaning(&Measurement { threads: 4, ..run(27_000.0, 100_000.0) }, 2).contains("stacked"));
        assert!(
            !meaning(&Measurement { wait: "block".into(), ..run(27_000.0, 37_000.0) }, 2).contains("stacked")
        );
        assert!(
            !meaning(&Measurement { competitors: Some(2), ..run(27_000.0, 37_000.0) }, 2).contains("stacked")
        );
    }

    #[test]
    fn a_comparison_keeps_the_loser_and_says_by_how_much() {
        let slow = Measurement { algorithm: "central".into(), ..run(160.0, 0.0) };
        let results = [VariantRuns::new(vec![run(80.0, 0.0); 3]), VariantRuns::new(vec![slow; 3])];
        let text = render(&results, &Options::default());
        assert!(
            text.contains("best") && text.contains("2.00x") && text.contains("central spin-block"),
            "{text}"
        );
        assert!(!text.contains("two modes"));
    }

    #[test]
    fn two_modes_are_said_and_not_averaged() {
        let text =
            render(&[VariantRuns::new(vec![run(80.0, 0.0), run(27_000.0, 37_000.0)])], &Options::default());
        assert!(text.contains("two modes"), "{text}");
    }

    #[test]
    fn the_summary_has_the_keys_others_read() {
        let json = VariantRuns::new(vec![run(80.0, 0.0), run(90.0, 0.0)]).json().expect("JSON");
        let value: Value = serde_json::from_str(&json).expect("JSON");
        for key in ["min", "median", "max"] {
            assert!(value["ns_per_barrier"][key].is_number(), "{key}");
        }
        for key in ["barriers_per_s", "blocks_per_s", "algorithm", "wait", "threads"] {
            assert!(!value[key].is_null(), "{key}");
        }
    }
}
