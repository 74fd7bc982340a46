//! Two or more programs that compete for the processors, under a regime; perhaps beside a bystander with
//! deadlines, which is under no regime.

use super::bystander::BystanderSettings;
use super::launch::{self, ProgramSettings, ProgramSpec};
use super::regime::{self, RegimeSettings};
use super::{Context, Driver, DriverKind, NoResult, RunResult, figures};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use unisono_linux::clock::Instant;
use unisono_measure::record::Figure;
use unisono_workload::Measurement;

/// The maximum number of programs beside the first.
const MAX_OTHERS: usize = 64;

pub(crate) const PAIR: DriverKind = DriverKind::new::<PairDriver>("pair");

/// The first program, and the differences of the others from it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PairDriver {
    #[serde(flatten)]
    first: ProgramSettings,
    #[serde(flatten)]
    regime: RegimeSettings,
    #[serde(flatten)]
    bystander: BystanderSettings,
    /// This and the following settings are for the other programs. `None`: the first program's value.
    other_program: Option<String>,
    other_threads: Option<usize>,
    other_interval_us: Option<f64>,
    other_variance_us: Option<f64>,
    other_wait: Option<String>,
    other_spin_budget_us: Option<f64>,
}

impl PairDriver {
    /// Returns the settings of the other programs.
    fn other(&self) -> ProgramSettings {
        let first = self.first.clone();
        ProgramSettings {
            program: self.other_program.clone().or(first.program),
            threads: self.other_threads.or(first.threads),
            interval_us: self.other_interval_us.or(first.interval_us),
            variance_us: self.other_variance_us.or(first.variance_us),
            wait: self.other_wait.clone().or(first.wait),
            spin_budget_us: self.other_spin_budget_us.or(first.spin_budget_us),
            ..first
        }
    }
}

impl Driver for PairDriver {
    fn estimated_overhead(&self, _: f64) -> Duration {
        self.regime.estimated_overhead()
    }

    fn run(&self, context: Context, seconds: f64, seed: u64) -> Result<RunResult, NoResult> {
        let others = self.regime.others.unwrap_or(1);
        if !(1..=MAX_OTHERS).contains(&others) {
            return Err(NoResult::Failed(format!(
                "{others} programs beside the first; 1 to {MAX_OTHERS} are possible"
            )));
        }
        let mut apps = vec![ProgramSpec::new(context, &self.first, seed)?];
        for other in 1..=others as u64 {
            apps.push(ProgramSpec::new(context, &self.other(), seed.wrapping_add(other))?);
        }
        let bystander = self.bystander.start();
        let (measured, mut more) = regime::run_under(context, &self.regime, apps, seconds)?;
        let mut result = RunResult { figures: combined_figures(&measured), ..RunResult::default() };
        result.figures.append(&mut more);
        if let Some((bystander, first)) = bystander.zip(measured.first()) {
            let [from, to] = [first.start_ns, first.end_ns].map(Instant::from_nanos);
            result.figures.extend(bystander.figures(from, to));
        }
        result.warnings.extend(launch::late_warning(&measured));
        Ok(result)
    }

    fn programs(&self) -> Vec<&str> {
        [&self.first.program, &self.other_program].into_iter().flatten().map(String::as_str).collect()
    }

    fn chosen_parameter(&self, context: Context) -> Option<(&'static str, Value)> {
        launch::chosen_threads(self.first.threads, context)
    }
}

/// Returns the figures of all programs together, of the first program (`app1_`), and of the others together
/// (`app2_`).
fn combined_figures(measured: &[Measurement]) -> Vec<Figure> {
    let sum = |of: fn(&Measurement) -> f64| measured.iter().map(of).sum::<f64>();
    let mut figures = vec![
        Figure::new("barriers_per_s", sum(|m| m.barriers_per_s), "1/s"),
        Figure::new("iterations_per_s", sum(|m| m.iterations_per_s), "1/s"),
        Figure::new("blocks_per_s", sum(|m| m.blocks_per_s), "1/s"),
        Figure::new("processors", sum(Measurement::cpu_share), "1"),
    ];
    let Some((first, others)) = measured.split_first() else { return figures };
    figures.extend(figures::program_figures("app1_", first));
    match others {
        [] => {}
        [second] => figures.extend(figures::program_figures("app2_", second)),
        others => {
            let sum = |of: fn(&Measurement) -> f64| others.iter().map(of).sum::<f64>();
            figures.push(Figure::new("app2_barriers_per_s", sum(|m| m.barriers_per_s), "1/s"));
            figures.push(Figure::new("app2_iterations_per_s", sum(|m| m.iterations_per_s), "1/s"));
            figures.push(Figure::new("app2_blocks_per_s", sum(|m| m.blocks_per_s), "1/s"));
            figures.push(Figure::new("app2_cpu_share", sum(Measurement::cpu_share), "1"));
        }
    }
    figures
}
