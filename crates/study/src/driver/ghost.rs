//! The exchange of ghost areas: by messages and by windows, over the engine, over MPIs, over the preload.
//!
//! One run is one start of a program that measures many places: each method in each kind of window at each
//! size. So a run brings several records, each a [`Place`]: its variant is the run's with the method after it
//! (`mpich-messages`, `engine-fence`, `engine-fence-created`), and its parameter `bytes` says the size. What
//! was measured before a program failed is kept; the rest is recorded as failed, with the reason.
//!
//! Where ranks outnumber processors a stock MPI may need a tenth of a second a step: the programs are bound
//! by time, and a step that takes longer than the time there is counts as the measurement.

use super::figures::figure;
use super::{Context, Driver, NoOutcome, Outcome, Place};
use crate::child::{self, ChildError, StudyChild};
use crate::peer::PeerFile;
use crate::settings::Settings;
use crate::workload::Pin;
use crate::workload::competitor::Competitors;
use crate::workload::ghost::Measured;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use unisono_measure::record::{Distribution, Figure};

/// Repetitions within a measurement; the record has their least, median and greatest.
const REPETITIONS: usize = 5;

/// What is measured where nothing is said.
const METHODS: [&str; 4] = ["messages", "fence", "pscw", "lock"];

/// Methods that need no window.
const WITHOUT_WINDOW: [&str; 2] = ["messages", "barrier"];

const SIZES: [u64; 7] = [16, 64, 256, 1024, 16_384, 65_536, 262_144];

/// Single operations have lengths of their own.
const OPERATIONS: [&str; 3] = ["put-flush", "get-flush", "accumulate-flush"];
const LENGTHS: usize = 4;

/// Longer than this no run is waited for, beyond the time that it should take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The engine has windows only, and the preload leaves messages to its MPI.
fn is_possible(settings: &Settings, method: &str) -> bool {
    method != "messages" || !(is_engine(settings) || settings.preload == Some(true))
}

fn is_engine(settings: &Settings) -> bool {
    matches!(settings.program.as_deref(), None | Some("unisono"))
}

fn ending(method: &str, window: &str) -> String {
    let method = method.replace('_', "-");
    if window == "created" { format!("{method}-created") } else { method }
}

fn methods(settings: &Settings) -> Vec<String> {
    settings.methods.clone().unwrap_or_else(|| METHODS.map(str::to_owned).into())
}

fn windows(settings: &Settings) -> Vec<String> {
    settings.windows.clone().unwrap_or_else(|| vec!["allocated".to_owned()])
}

fn sizes(settings: &Settings) -> Vec<u64> {
    settings.sizes.clone().unwrap_or_else(|| SIZES.into())
}

/// How many measurements a run makes.
fn count(settings: &Settings) -> usize {
    let sizes = sizes(settings).len();
    let of = |part: &String| match part.trim_end_matches("-created") {
        "barrier" | "fetch-flush" => 1,
        operation if OPERATIONS.contains(&operation) => LENGTHS,
        _ => sizes,
    };
    parts(settings).iter().map(of).sum()
}

/// What more processes than two processors add, in milliseconds: MPICH's spin while they start, make windows
/// and end, and a step of its windows takes longer than the time there is.
fn crowding(settings: &Settings) -> u64 {
    let processes = settings.processes.unwrap_or(2) as u64;
    match (settings.program.as_deref(), settings.preload) {
        _ if processes <= 2 => 0,
        (Some("ghost-mpich"), Some(true)) => 12 * processes * processes,
        (Some("ghost-mpich"), _) => 16 * processes * processes,
        _ => 8 * (processes - 2),
    }
}

/// What a run measures: a method in a kind of window each.
fn parts(settings: &Settings) -> Vec<String> {
    let windows = windows(settings);
    let of = |method: String| -> Vec<String> {
        if WITHOUT_WINDOW.contains(&method.as_str()) {
            return vec![method];
        }
        windows.iter().map(|window| ending(&method, window)).collect()
    };
    methods(settings).into_iter().filter(|method| is_possible(settings, method)).flat_map(of).collect()
}

#[derive(Debug)]
pub struct GhostDriver;

impl Driver for GhostDriver {
    fn name(&self) -> &'static str {
        "ghost"
    }

    fn reads(&self) -> &'static [&'static str] {
        &["program", "processes", "preload", "style", "sizes", "methods", "windows", "pinned", "competitors"]
    }

    fn adds(&self) -> &'static [&'static str] {
        &["bytes"]
    }

    fn parts(&self, settings: &Settings) -> Option<Vec<String>> {
        Some(parts(settings))
    }

    fn around(&self, settings: &Settings, seconds: f64) -> Duration {
        let program = match settings.program.as_deref() {
            Some("ghost-openmpi") => 240,
            Some("ghost-mpich") => 120,
            _ => 60,
        };
        let preload = if settings.preload == Some(true) { 50 } else { 0 };
        // who starts beside busy loops has half of the processors
        let starting = (program + preload) * if settings.competitors.unwrap_or(0) > 0 { 2 } else { 1 };
        // finding out how many steps fill the time takes about half of it again
        let measuring = Duration::from_secs_f64(seconds * (1.5 * count(settings) as f64 - 1.0).max(0.0));
        Duration::from_millis(starting + crowding(settings)) + measuring
    }

    fn run(&self, context: Context, settings: &Settings, seconds: f64, _: u64) -> Result<Outcome, NoOutcome> {
        let processes = settings.processes.unwrap_or(2);
        let result = result_file(context);
        let mut command = command(context, settings, processes)?;
        command.args(arguments(context, settings, seconds)).arg("--result").arg(&result);
        let competitors = settings.competitors.unwrap_or(0);
        let beside = (competitors > 0)
            .then(|| Competitors::start(context.unisono, competitors, &Pin::Spread))
            .transpose()
            .map_err(|error| NoOutcome::Failed(error.to_string()))?;
        let expected = self.around(settings, seconds) + Duration::from_secs_f64(seconds);
        let ended = StudyChild::start(command)
            .and_then(|child| child::wait_all(&mut [child], expected * 4 + PATIENCE, context.interrupted));
        drop(beside);
        let text = std::fs::read_to_string(&result).unwrap_or_default();
        // a file that was never made is as good as removed
        std::fs::remove_file(&result).ok();
        let measured = Measured::read(&text)
            .map_err(|error| NoOutcome::Failed(format!("the exchange wrote what is no result: {error}")))?;
        match ended {
            Err(error @ ChildError::Interrupted(_)) => Err(error.into()),
            Err(error) if measured.is_empty() => Err(error.into()),
            Err(error) => Ok(outcome(settings, &measured, Some(&error.to_string()))),
            Ok(()) => Ok(outcome(settings, &measured, None)),
        }
    }
}

fn result_file(context: Context) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    context.directory.join(format!("exchange-{number}.jsonl"))
}

/// What starts the processes.
fn command(context: Context, settings: &Settings, processes: usize) -> Result<Command, NoOutcome> {
    if is_engine(settings) {
        let mut command = Command::new(context.unisono);
        command.args(["workload", "ghost", "--die-with-parent", "--processes", &processes.to_string()]);
        command.args(["--style", settings.style.as_deref().unwrap_or("direct")]);
        return Ok(command);
    }
    let name = settings.program.as_deref().unwrap_or_default();
    let program = context.bench.program(name)?;
    let mut command = launcher(program, processes)?;
    if settings.preload == Some(true) {
        probe(context, program)?;
        command.arg(context.unisono).args(["mpi", "--"]);
    }
    command.arg(program.executable());
    Ok(command)
}

/// The MPI's own `mpiexec`, told nothing but what is needed to start at all.
fn launcher(program: &PeerFile, processes: usize) -> Result<Command, NoOutcome> {
    let (mpiexec, remedy) = match program.name.as_str() {
        "ghost-mpich" => ("mpiexec.mpich", "apt install mpich"),
        "ghost-openmpi" => ("mpiexec.openmpi", "apt install openmpi-bin"),
        other => return Err(NoOutcome::Failed(format!("{other} is no program of an MPI"))),
    };
    let is_there = |directory: PathBuf| directory.join(mpiexec).is_file();
    if !std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(is_there)) {
        return Err(NoOutcome::Skipped(format!("{mpiexec} not found; {remedy}")));
    }
    let mut command = Command::new(mpiexec);
    if program.name == "ghost-openmpi" {
        // it refuses to start as root, and to start more ranks than processors, unless told otherwise
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.args(["--oversubscribe", "--bind-to", "none"]);
        if !has_fabric() {
            // A start takes 0.2 s longer where it looks for networks by libfabric, and then takes what it
            // takes now.
            command.args(["--mca", "pml", "^cm"]);
        }
    }
    command.args(["-n", &processes.to_string()]);
    Ok(command)
}

/// Whether this host has a network that programs reach past the kernel.
fn has_fabric() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

/// Whether the preload can be had for this program; builds it where it has to be built. Asked once a program.
fn probe(context: Context, program: &PeerFile) -> Result<(), NoOutcome> {
    static FOUND: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    // whatever panicked with it, a set of paths is whole
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if found.contains(program.executable()) {
        return Ok(());
    }
    let mut command = Command::new(context.unisono);
    command.args(["mpi", "--print"]).arg(program.executable());
    let ended = StudyChild::start(command)
        .and_then(|child| child::wait_all(&mut [child], Duration::from_secs(120), context.interrupted));
    match ended {
        Ok(()) => {
            found.insert(program.executable().to_owned());
            Ok(())
        }
        // the last words of a command line that is not understood
        Err(ChildError::Failed { code: Some(2), said, .. }) if said.contains("--help") => Err(
            NoOutcome::Skipped("this unisono has no `unisono mpi`; build the whole workspace".to_owned()),
        ),
        Err(ChildError::Failed { code: Some(2), said, .. }) => {
            Err(NoOutcome::Skipped(format!("no preload for this program{said}")))
        }
        Err(error) => Err(error.into()),
    }
}

fn arguments(context: Context, settings: &Settings, seconds: f64) -> Vec<String> {
    let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(",");
    let only = methods(settings).into_iter().filter(|method| is_possible(settings, method));
    let mut arguments = Vec::new();
    let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    flag("--seconds", seconds.to_string());
    flag("--repetitions", REPETITIONS.to_string());
    flag("--sizes", list(&mut sizes(settings).iter().map(ToString::to_string)));
    flag("--only", list(&mut only.map(|method| method.replace('-', "_"))));
    flag("--windows", list(&mut windows(settings).into_iter()));
    if settings.pinned == Some(true) {
        flag("--pin", list(&mut context.cpus.iter().map(ToString::to_string)));
    }
    arguments
}

/// Each measurement as a place; parts that are missing, with the reason.
fn outcome(settings: &Settings, measured: &[Measured], failed: Option<&str>) -> Outcome {
    let place = |m: &Measured| Place {
        part: ending(&m.method, &m.window),
        parameters: BTreeMap::from([("bytes".to_owned(), m.bytes.into())]),
        figures: figures(m),
    };
    let places: Vec<Place> = measured.iter().map(place).collect();
    let reason = failed.unwrap_or("the program left it out");
    let is_there = |part: &String| places.iter().any(|place| place.part == *part);
    let missing = parts(settings).into_iter().filter(|part| !is_there(part));
    let missing: Vec<(String, String)> = missing.map(|part| (part, reason.to_owned())).collect();
    let mut warnings = Vec::new();
    if let Some(reason) = failed {
        warnings.push(format!("it failed after {} measurements: {reason}", measured.len()));
    }
    Outcome { places, missing, warnings, ..Outcome::default() }
}

fn figures(m: &Measured) -> Vec<Figure> {
    let step = Distribution {
        n: m.repetitions,
        min: m.min_ns,
        p25: m.min_ns,
        median: m.median_ns,
        p75: m.max_ns,
        p99: m.max_ns,
        max: m.max_ns,
    };
    let mut figures = vec![
        Figure { name: "step_ns".into(), value: m.median_ns, unit: "ns".into(), distribution: Some(step) },
        figure("worst_step_ns", m.max_ns, "ns"),
    ];
    if m.bytes > 0 {
        figures.push(figure("mb_per_s", m.median_mb_s, "MB/s"));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> Settings {
        Settings {
            methods: Some(["messages", "fence", "put-flush", "barrier"].map(str::to_owned).into()),
            windows: Some(["allocated", "created"].map(str::to_owned).into()),
            sizes: Some(vec![16, 1024, 65_536]),
            ..Settings::default()
        }
    }

    #[test]
    fn parts_are_methods_by_window_and_the_engine_has_no_messages() {
        let names = ["fence", "fence-created", "put-flush", "put-flush-created", "barrier"];
        assert_eq!(parts(&engine()), names);
        assert_eq!(count(&engine()), 3 + 3 + 4 + 4 + 1);
        let mpich = Settings { program: Some("ghost-mpich".into()), ..engine() };
        assert_eq!(parts(&mpich)[0], "messages");
        assert_eq!(parts(&Settings { preload: Some(true), ..mpich })[0], "fence");
    }

    #[test]
    fn a_run_becomes_a_place_a_measurement_and_what_is_missing_has_its_reason() {
        let line = |method: &str, window: &str, bytes, median_ns| Measured {
            method: method.into(),
            window: window.into(),
            bytes,
            repetitions: 3,
            median_ns,
            max_ns: 2.0 * median_ns,
            ..Measured::default()
        };
        let lines = [line("fence", "created", 16, 300.0), line("put_flush", "allocated", 8, 30.0)];
        let got = outcome(&engine(), &lines, Some("killed"));
        assert_eq!(
            (got.places[0].part.as_str(), &got.places[0].parameters["bytes"]),
            ("fence-created", &16.into())
        );
        assert_eq!(got.places[1].part, "put-flush");
        let values: Vec<f64> = got.places[0].figures.iter().map(|f| f.value).collect();
        assert_eq!(values[..2], [300.0, 600.0]);
        let missing: Vec<&str> = got.missing.iter().map(|(part, _)| part.as_str()).collect();
        assert_eq!(missing, ["fence", "put-flush-created", "barrier"]);
        assert!(got.missing.iter().all(|(_, reason)| reason == "killed"));
    }

    #[test]
    fn more_to_measure_takes_longer() {
        let few = Settings { sizes: Some(vec![16]), ..Settings::default() };
        assert!(GhostDriver.around(&Settings::default(), 0.01) > GhostDriver.around(&few, 0.01));
        assert!(GhostDriver.around(&few, 1.0) >= Duration::from_secs(3));
    }
}
