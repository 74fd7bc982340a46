//! Programs that share the processors under a regime, at the same time or in turns: plain Linux, pinned
//! threads, priorities, batch, partitions, gangs, or the division of processors by `unisono fit`.
//!
//! Rates are per second of the *whole* run in every regime, so that they can be compared: under `batch` each
//! of two programs runs half of the time, and its rate is divided by two.

use super::launch::{self, ProgramSpec, StartedBy};
use super::{Context, NoResult, gang_run};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::quota;
use unisono_linux::topology::Topology;
use unisono_measure::record::Figure;
use unisono_workload::{Measurement, Pin};

/// Time from the start of the first program to the moment when all begin to measure.
const LEAD: Duration = Duration::from_millis(30);

/// `LEAD` for programs that a gang scheduler starts.
const GANG_LEAD: Duration = Duration::from_millis(75);

/// Warm-up of a program that runs alone.
const WARM_UP: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharingRegime {
    /// Concurrently; the kernel places the threads.
    #[default]
    Linux,
    /// Concurrently, thread i of each program pinned to processor i; no gangs.
    Spread,
    /// As `spread`, but each thread asks the kernel for slices of `slice_ms` (EEVDF, Linux 6.12).
    Slices,
    /// As `linux`, but one program has the value `nice` (-20 by default): the second, unless `favoured` names
    /// another.
    Nice,
    /// One after the other, pinned as in `spread`, each for its share of the time.
    Batch,
    /// Concurrently, each program on its own share of the processors.
    Partition,
    Gang,
    /// Concurrently, each program with the threads and processors that `unisono fit A ::: B` would choose.
    Fit,
}

/// The default slice of `unisono gang run`.
const SLICE_MS: f64 = 20.0;

/// Settings of drivers whose programs share the processors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RegimeSettings {
    pub regime: SharingRegime,
    /// The slice of gangs, or of each thread. `None`: `SLICE_MS`.
    pub slice_ms: Option<f64>,
    /// One weight for each program.
    pub weights: Option<Vec<u32>>,
    pub mechanism: Option<String>,
    /// The share of contended time for gangs. `None`: the default of `unisono gang run`.
    pub share: Option<f64>,
    /// The number of the program that `nice` favors. `None`: 2.
    pub favoured: Option<usize>,
    pub nice: Option<i32>,
    /// Number of programs beside the first. `None`: 1.
    pub others: Option<usize>,
    /// Additional time for the programs' preparation before the measurement.
    pub preparation_ms: Option<f64>,
}

impl RegimeSettings {
    /// Returns the estimated time in addition to the measured seconds.
    pub fn estimated_overhead(&self) -> Duration {
        let around = match self.regime {
            SharingRegime::Gang => GANG_LEAD + Duration::from_millis(20),
            SharingRegime::Batch => (WARM_UP + Duration::from_millis(15)) * 2,
            _ => LEAD + Duration::from_millis(10),
        };
        around + self.preparation()
    }

    fn slice_ms(&self) -> f64 {
        self.slice_ms.unwrap_or(SLICE_MS)
    }

    /// Returns the options of `unisono gang run`.
    fn scheduler_arguments(&self) -> Vec<String> {
        let mut options = vec!["--slice".to_owned(), format!("{}ms", self.slice_ms())];
        if let Some(weights) = &self.weights {
            let weights: Vec<String> = weights.iter().map(ToString::to_string).collect();
            options.extend(["--weights".to_owned(), weights.join(",")]);
        }
        if let Some(mechanism) = &self.mechanism {
            options.extend(["--mechanism".to_owned(), mechanism.clone()]);
        }
        if let Some(share) = self.share {
            options.extend(["--share".to_owned(), share.to_string()]);
        }
        options
    }

    fn preparation(&self) -> Duration {
        Duration::from_secs_f64(self.preparation_ms.unwrap_or(0.0).clamp(0.0, 60e3) / 1e3)
    }
}

/// Runs the programs under the settings' regime. Returns each program's measurement and the regime's own
/// figures.
pub fn run_under(
    context: Context,
    settings: &RegimeSettings,
    mut apps: Vec<ProgramSpec>,
    seconds: f64,
) -> Result<(Vec<Measurement>, Vec<Figure>), NoResult> {
    let regime = settings.regime;
    for app in &mut apps {
        app.options.seconds = seconds;
    }
    match regime {
        SharingRegime::Batch => return Ok((batch(context, apps, seconds)?, Vec::new())),
        SharingRegime::Gang => {
            let lead = GANG_LEAD + settings.preparation();
            return gang_run::run(context, &settings.scheduler_arguments(), apps, seconds, lead);
        }
        SharingRegime::Spread | SharingRegime::Slices => {
            apps.iter_mut().for_each(|app| app.options.pin = Pin::Spread);
        }
        SharingRegime::Partition => partition(context, &mut apps)?,
        SharingRegime::Fit => fit(context, &mut apps)?,
        SharingRegime::Linux | SharingRegime::Nice => {}
    }
    let lead = LEAD + settings.preparation();
    let begin = launch::begin_after(lead);
    let prepared = apps.iter_mut().map(|app| {
        app.options.start_at = Some(begin);
        launch::prepare(context, app, StartedBy::Us)
    });
    let (nice, favoured) = (settings.nice.unwrap_or(-20), settings.favoured.unwrap_or(2));
    let measured = launch::concurrently(
        context,
        prepared.collect(),
        lead + Duration::from_secs_f64(seconds),
        |i, child| {
            if regime == SharingRegime::Slices {
                return ask_for_slices(child.process(), settings);
            }
            if regime != SharingRegime::Nice || i + 1 != favoured {
                return Ok(());
            }
            let set = child.group().set_nice(nice);
            set.map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => NoResult::Skipped(format!(
                "nice {nice} needs the privilege CAP_SYS_NICE; run as root, or raise the limit with `ulimit -e`"
            )),
            _ => NoResult::Failed(format!("cannot give nice {nice}: {error}")),
        })
        },
    )?;
    Ok((measured, Vec::new()))
}

fn ask_for_slices(process: &PinnedProcess, settings: &RegimeSettings) -> Result<(), NoResult> {
    let slice = Duration::from_secs_f64(settings.slice_ms() / 1e3);
    match process.ask_for_slice(slice) {
        Ok(given) if given == slice => Ok(()),
        Ok(_) => Err(NoResult::Skipped(
            "this kernel has no slices of a thread's own; they came with Linux 6.12".into(),
        )),
        Err(error) => Err(NoResult::Failed(format!("cannot ask for slices of {slice:?}: {error}"))),
    }
}

/// Runs the programs one after the other, each for its share of the time on all processors.
fn batch(context: Context, apps: Vec<ProgramSpec>, seconds: f64) -> Result<Vec<Measurement>, NoResult> {
    let n = apps.len() as f64;
    let mut all = Vec::new();
    for app in apps {
        let mut app = app.pinned(Pin::Spread);
        app.options.seconds = seconds / n;
        app.options.warm_up = WARM_UP;
        let prepared = launch::prepare(context, &app, StartedBy::Us);
        let expected = WARM_UP + Duration::from_secs_f64(seconds);
        for mut measured in launch::concurrently(context, vec![prepared], expected, |_, _| Ok(()))? {
            for rate in [
                &mut measured.barriers_per_s,
                &mut measured.iterations_per_s,
                &mut measured.blocks_per_s,
                &mut measured.preemptions_per_s,
                &mut measured.cpu_s,
            ] {
                *rate /= n;
            }
            all.push(measured);
        }
    }
    Ok(all)
}

/// Divides the processors among the programs as evenly as possible.
fn partition(context: Context, apps: &mut [ProgramSpec]) -> Result<(), NoResult> {
    let (cpus, n) = (context.cpus.len(), apps.len());
    if cpus < n {
        return Err(NoResult::Skipped(format!(
            "a partition needs a processor for each of the {n} programs; this process may use {cpus}"
        )));
    }
    for (i, app) in apps.iter_mut().enumerate() {
        app.options.pin = Pin::List(context.cpus[i * cpus / n..(i + 1) * cpus / n].to_vec());
    }
    Ok(())
}

/// Gives each program the threads and processors that `unisono fit` would choose beside the others.
fn fit(context: Context, apps: &mut [ProgramSpec]) -> Result<(), NoResult> {
    let limits = quota::limits();
    let limits = limits.map_err(|error| NoResult::Skipped(format!("cannot read the processors: {error}")))?;
    let allowed = context.cpus.iter().copied().collect();
    let threads = unisono_fit::effective(&limits).processors;
    let parts = unisono_fit::partition(&Topology::read(), &allowed, threads, apps.len());
    for (app, part) in apps.iter_mut().zip(parts) {
        app.options.threads = part.threads;
        app.options.pin = Pin::List(part.cpus.iter().collect());
    }
    Ok(())
}
