//! Starts the programs of a run and collects their measurements.
//!
//! Programs that are compared must be measured over the *same* time. So all of them get the same moment to
//! begin ([`Options::start_at`]), late enough for the last one to have started. If a program was not ready by
//! then, the run gets a warning.

use super::{Context, NoResult};
use crate::child::{self, StudyChild};
use crate::peer::{PeerFile, PeerKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use unisono_linux::clock;
use unisono_measure::record::Distribution;
use unisono_workload::competitor::Competitors;
use unisono_workload::{Measurement, Options, Pin};

/// A program counts as hung this long after the end of the measured time.
const OVERRUN_TIMEOUT: Duration = Duration::from_secs(20);

/// A program whose threads meet at barriers, as settings describe it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramSettings {
    /// `unisono`, or a peer or kernel by name (`libgomp`, `std`, ...).
    pub program: Option<String>,
    /// Participants of each program. `None`: the driver decides.
    pub threads: Option<usize>,
    pub interval_us: Option<f64>,
    /// The maximum of the additional computation, in microseconds.
    pub variance_us: Option<f64>,
    pub algorithm: Option<String>,
    /// How to wait: `spin`, `yield`, `block`, `spin-block`, `adaptive`.
    pub wait: Option<String>,
    pub spin_budget_us: Option<f64>,
    pub size: Option<usize>,
    /// Variables that a user could set for the program, in addition to the program's own.
    pub environment: BTreeMap<String, String>,
}

/// A program with its options, ready to start.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    pub program: PeerFile,
    pub options: Options,
}

impl ProgramSpec {
    /// Returns the program that the settings describe.
    pub fn new(context: Context, settings: &ProgramSettings, seed: u64) -> Result<Self, NoResult> {
        let options = Options {
            threads: settings.threads.unwrap_or_else(|| threads(context)),
            interval: micros(settings.interval_us),
            variance: micros(settings.variance_us),
            size: settings.size,
            seed,
            ..Options::default()
        };
        let program = program(context, settings)?.with_variables(&settings.environment);
        Ok(Self { program, options })
    }

    pub fn pinned(mut self, pin: Pin) -> Self {
        self.options.pin = pin;
        self
    }
}

/// Returns the number of participants of a concurrent program by default: one for each processor, so that two
/// programs compete as in the paper.
pub fn threads(context: Context) -> usize {
    context.cpus.len().clamp(2, 64)
}

/// Returns the parameter `threads` of a record whose study does not set it.
pub(crate) fn chosen_threads(set: Option<usize>, context: Context) -> Option<(&'static str, Value)> {
    set.is_none().then(|| ("threads", threads(context).into()))
}

fn program(context: Context, settings: &ProgramSettings) -> Result<PeerFile, NoResult> {
    let ProgramSettings { algorithm, wait, spin_budget_us, .. } = settings;
    match settings.program.as_deref().unwrap_or("unisono") {
        "tight-loop" => {
            let arguments = ["workload", "tight-loop"].map(str::to_owned).to_vec();
            Ok(PeerFile::own(context.unisono, "tight-loop", PeerKind::Kernel, arguments))
        }
        "unisono" if algorithm.is_some() || wait.is_some() || spin_budget_us.is_some() => {
            let budget = spin_budget_us.map(|us| micros(Some(us)));
            let wait = wait.as_deref().unwrap_or(if budget.is_some() { "spin-block" } else { "adaptive" });
            let algorithm = algorithm.as_deref().unwrap_or("recommended");
            Ok(PeerFile::unisono(context.unisono, algorithm, wait, budget))
        }
        name => Ok(context.bench.program(name)?.clone()),
    }
}

fn micros(us: Option<f64>) -> Duration {
    Duration::from_nanos((us.unwrap_or(0.0).max(0.0) * 1e3).round() as u64)
}

#[derive(Debug)]
pub struct PreparedProgram {
    pub command: Command,
    result: PathBuf,
    program: PeerFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedBy {
    /// This process: the programs end with it.
    Us,
    /// Another program, such as a gang scheduler, which ends them itself.
    Another,
}

/// Makes the command of a program, with its own result file.
pub fn prepare(context: Context, app: &ProgramSpec, started_by: StartedBy) -> PreparedProgram {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let result = context.directory.join(format!("result-{number}.json"));
    let options = Options {
        result: Some(result.clone()),
        die_with_parent: started_by == StartedBy::Us,
        ..app.options.clone()
    };
    PreparedProgram { command: app.program.command(&options), result, program: app.program.clone() }
}

impl PreparedProgram {
    /// Reads the program's result.
    pub fn read(&self) -> Result<Measurement, NoResult> {
        let text = std::fs::read_to_string(&self.result).map_err(|error| {
            NoResult::Failed(format!("{} ended without a result: {error}", self.program.name))
        })?;
        let removed = std::fs::remove_file(&self.result);
        let measured = self.program.read(&text)?;
        if measured.elapsed_s <= 0.0 {
            return Err(NoResult::Failed(format!("{} measured nothing", self.program.name)));
        }
        removed
            .map_err(|error| NoResult::Failed(format!("cannot remove {}: {error}", self.result.display())))?;
        Ok(measured)
    }
}

/// Returns the moment, `lead` from now, at which all programs started now can begin to measure.
pub(crate) fn begin_after(lead: Duration) -> u64 {
    (clock::now() + lead.into()).as_nanos()
}

/// Starts all programs at once, waits for all, and reads their measurements. Calls `started` with each
/// program as soon as it runs.
pub(crate) fn concurrently(
    context: Context,
    prepared: Vec<PreparedProgram>,
    expected: Duration,
    mut started: impl FnMut(usize, &StudyChild) -> Result<(), NoResult>,
) -> Result<Vec<Measurement>, NoResult> {
    let mut children = Vec::new();
    let mut results = Vec::new();
    for (i, PreparedProgram { command, result, program }) in prepared.into_iter().enumerate() {
        let child = StudyChild::start(command)?;
        started(i, &child)?;
        children.push(child);
        results.push(PreparedProgram { command: Command::new("true"), result, program });
    }
    child::wait_all(&mut children, expected + OVERRUN_TIMEOUT, context.interrupted)?;
    results.iter().map(PreparedProgram::read).collect()
}

/// Starts busy loops beside a program; they run until the result is dropped. `None` if `count` is 0.
pub fn competitors(context: Context, count: usize, at: &Pin) -> Result<Option<Competitors>, NoResult> {
    let start = || Competitors::start(context.unisono, count, at);
    (count > 0).then(start).transpose().map_err(|error| NoResult::Failed(error.to_string()))
}

/// Returns the latencies of all programs as one distribution in milliseconds, or `None` if there are none.
/// Every request counts once. The 99th percentile is the greatest one of a program, an upper bound.
pub fn latencies_ms(measured: &[Measurement]) -> Option<Distribution> {
    let programs: Vec<&Distribution> = measured.iter().filter_map(|m| m.latency_us.as_ref()).collect();
    let n: u64 = programs.iter().map(|d| d.n).sum();
    let weighted = |of: fn(&Distribution) -> f64| {
        programs.iter().map(|d| of(d) * d.n as f64).sum::<f64>() / n as f64 / 1e3
    };
    let greatest = |of: fn(&Distribution) -> f64| programs.iter().map(|d| of(d)).fold(0.0, f64::max) / 1e3;
    (n > 0).then(|| Distribution {
        n,
        min: programs.iter().map(|d| d.min).fold(f64::INFINITY, f64::min) / 1e3,
        p25: weighted(|d| d.p25),
        median: weighted(|d| d.median),
        p75: weighted(|d| d.p75),
        p99: greatest(|d| d.p99),
        max: greatest(|d| d.max),
    })
}

/// Returns the warning about programs that were not ready when the measurement began.
pub fn late_warning(measured: &[Measurement]) -> Option<String> {
    let late = measured.iter().map(|m| m.ready_ns.saturating_sub(m.start_ns)).max().filter(|ns| *ns > 0)?;
    Some(format!(
        "a program was ready {:.0} ms after the measurement began, so its rate is too low; the machine is busy, \
         use longer runs (--paper)",
        late as f64 / 1e6
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_comes_too_late_makes_a_run_doubtful() {
        let of = |ready_ns| Measurement { ready_ns, start_ns: 1_000_000_000, ..Measurement::default() };
        assert_eq!(late_warning(&[of(999_000_000), of(1_000_000_000)]), None);
        let message = late_warning(&[of(0), of(1_031_000_000)]).expect("late");
        assert!(message.contains("31 ms after"), "{message}");
        assert_eq!(late_warning(&[]), None);
    }
}
