//! The exchange of ghost areas: by messages and by windows, over the engine, over MPIs, over the preload.
//!
//! One start of a program measures each method in each kind of window at each size, and each of these
//! measurements is a [`MeasuredPart`]. Its variant is the run's with the method appended (`mpich-messages`,
//! `engine-fence`, `engine-fence-created`), and its parameter is `bytes`. If a program fails, its earlier
//! measurements are kept, and the rest is recorded as failed with the reason.
//!
//! If there are more ranks than processors, a stock MPI may need a tenth of a second for a step. So the
//! programs are limited by time, and a step that takes longer than the limit is the whole measurement.
//!
//! The ranks run on this host, or half of them on each of two hosts ([`ExchangeHosts`]).

use super::exchange_hosts::ExchangeHosts;
use super::launch;
use super::{Context, Driver, DriverKind, MeasuredPart, NoResult, RunResult};
use crate::child::{self, ChildError, StudyChild};
use crate::peer::PeerFile;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use unisono_measure::record::{Distribution, Figure};
use unisono_workload::Pin;
use unisono_workload::ghost::GhostMeasurement;

/// Repetitions of a measurement; the record has the minimum, the median and the maximum.
const REPETITIONS: usize = 5;

/// The methods that are measured if no setting names others.
const METHODS: [&str; 4] = ["messages", "fence", "pscw", "lock"];

/// Methods without a window.
const WITHOUT_WINDOW: [&str; 6] = ["messages", "barrier", "ring", "allreduce", "bcast", "ibarrier"];
/// Methods of an MPI that the preload serves by the MPI's own messages, and that the engine does not have.
const MESSAGES_ALONE: [&str; 4] = ["ring", "allreduce", "bcast", "ibarrier"];

const SIZES: [u64; 7] = [16, 64, 256, 1024, 16_384, 65_536, 262_144];

/// Single operations, measured at [`LENGTHS`] lengths.
const OPERATIONS: [&str; 3] = ["put-flush", "get-flush", "accumulate-flush"];
const LENGTHS: usize = 4;

/// A run is killed this long after its expected end.
const OVERRUN_TIMEOUT: Duration = Duration::from_secs(30);

/// On two hosts, a program is ended this long after its last measurement: over UCX's TCP, MPICH 4.0 often
/// hangs in `MPI_Finalize`. Chosen, not measured.
const FINALIZE_TIMEOUT: Duration = Duration::from_secs(1);

/// The additional time to start ranks on two hosts, by a remote shell. Chosen, not measured.
const REMOTE_START: Duration = Duration::from_millis(800);

fn method_suffix(method: &str, window: &str) -> String {
    let method = method.replace('_', "-");
    if window == "created" { format!("{method}-created") } else { method }
}

pub(crate) const GHOST: DriverKind =
    DriverKind::new::<GhostDriver>("ghost").with_added_parameters(&["bytes"]);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct GhostDriver {
    /// `unisono` for the engine, or a program of an MPI (`ghost-mpich`, `ghost-openmpi`).
    program: String,
    /// All ranks, on all hosts together.
    pub processes: usize,
    /// Whether an MPI's program runs under `unisono mpi`.
    preload: bool,
    /// The engine's synchronization: `direct`, `deferred` (the paper's design), `naive`.
    style: String,
    /// Bytes sent to each neighbor, one measurement each.
    sizes: Vec<u64>,
    /// The methods to measure: `messages`, `fence`, `pscw`, `lock`, `put-flush`, `barrier`, ...
    methods: Vec<String>,
    windows: Vec<String>,
    /// Whether each rank is bound to a processor, round-robin.
    pinned: bool,
    /// Number of busy loops beside the ranks, one for each processor in turn.
    competitors: usize,
}

impl Default for GhostDriver {
    fn default() -> Self {
        Self {
            program: "unisono".to_owned(),
            processes: 2,
            preload: false,
            style: "direct".to_owned(),
            sizes: SIZES.into(),
            methods: METHODS.map(str::to_owned).into(),
            windows: vec!["allocated".to_owned()],
            pinned: false,
            competitors: 0,
        }
    }
}

impl GhostDriver {
    /// Whether a method can be measured. The engine has no messages; under the preload, messages would be the
    /// MPI's own.
    fn is_possible(&self, method: &str) -> bool {
        match method {
            "messages" => !(self.is_engine() || self.preload),
            other => !(self.is_engine() && MESSAGES_ALONE.contains(&other)),
        }
    }

    fn is_engine(&self) -> bool {
        self.program == "unisono"
    }

    /// Returns the names of the measurements: each method in each kind of window.
    fn measurements(&self) -> Vec<String> {
        let of = |method: &String| -> Vec<String> {
            if WITHOUT_WINDOW.contains(&method.as_str()) {
                return vec![method.clone()];
            }
            self.windows.iter().map(|window| method_suffix(method, window)).collect()
        };
        self.methods.iter().filter(|method| self.is_possible(method)).flat_map(of).collect()
    }

    /// Returns the number of measurements of a run, over all sizes.
    fn count(&self) -> usize {
        let of = |part: &String| match part.trim_end_matches("-created") {
            "barrier" | "ibarrier" | "fetch-flush" => 1,
            operation if OPERATIONS.contains(&operation) => LENGTHS,
            _ => self.sizes.len(),
        };
        self.measurements().iter().map(of).sum()
    }

    /// Returns the additional milliseconds for more than two processes. MPICH's processes spin while they
    /// start, create windows and end, and a step of its windows takes longer than the limit.
    fn oversubscription_ms(&self) -> u64 {
        let processes = self.processes as u64;
        match (self.program.as_str(), self.preload) {
            _ if processes <= 2 => 0,
            ("ghost-mpich", true) => 12 * processes * processes,
            ("ghost-mpich", false) => 16 * processes * processes,
            _ => 8 * (processes - 2),
        }
    }

    fn command(&self, context: Context, hosts: Option<&ExchangeHosts>) -> Result<Command, NoResult> {
        if self.is_engine() {
            let mut command = match hosts {
                Some(hosts) => hosts.unisono_run(context.unisono, self.processes),
                None => Command::new(context.unisono),
            };
            if hosts.is_some() {
                command.arg(context.unisono);
            }
            command.args([
                "workload",
                "ghost",
                "--die-with-parent",
                "--processes",
                &self.processes.to_string(),
            ]);
            command.args(["--style", &self.style]);
            return Ok(command);
        }
        let program = context.bench.program(&self.program)?;
        let mut command = launcher(program, self.processes, hosts)?;
        if self.preload {
            probe(context, program)?;
            command.arg(context.unisono).args(["mpi", "--"]);
        }
        command.arg(program.executable());
        Ok(command)
    }

    /// Runs the exchange, on this host or on two hosts. The number of processes is then even.
    pub fn exchange(
        &self,
        context: Context,
        seconds: f64,
        hosts: Option<&ExchangeHosts>,
    ) -> Result<RunResult, NoResult> {
        let result = result_file(context);
        let mut command = self.command(context, hosts)?;
        command.args(self.arguments(context, seconds)).arg("--result").arg(&result);
        let beside = launch::competitors(context, self.competitors, &Pin::Spread)?;
        let start = if hosts.is_some() { REMOTE_START } else { Duration::ZERO };
        let expected = start + self.estimated_overhead(seconds) + Duration::from_secs_f64(seconds);
        let complete_since = Cell::new(None);
        let hangs = || {
            let since = complete_since.get().or_else(|| self.is_complete(&result).then(Instant::now));
            complete_since.set(since);
            hosts.is_some() && since.is_some_and(|since| since.elapsed() > FINALIZE_TIMEOUT)
        };
        let interrupted = || (context.interrupted)().or_else(|| hangs().then_some("its last measurement"));
        let ended = StudyChild::start(command)
            .and_then(|child| child::wait_all(&mut [child], expected * 4 + OVERRUN_TIMEOUT, &interrupted));
        drop(beside);
        let is_complete = hosts.is_some() && self.is_complete(&result);
        let text = std::fs::read_to_string(&result).unwrap_or_default();
        // if the program never created the file, there is nothing to remove
        std::fs::remove_file(&result).ok();
        let measured = GhostMeasurement::read(&text)
            .map_err(|error| NoResult::Failed(format!("the exchange wrote what is no result: {error}")))?;
        match ended {
            Err(ChildError::Interrupted(_)) if is_complete => Ok(self.result(&measured, None)),
            Err(error @ ChildError::Interrupted(_)) => Err(error.into()),
            Err(error) if measured.is_empty() => Err(error.into()),
            Err(error) => Ok(self.result(&measured, Some(&error.to_string()))),
            Ok(()) => Ok(self.result(&measured, None)),
        }
    }

    /// Whether a result file has all measurements.
    fn is_complete(&self, result: &Path) -> bool {
        let lines = |text: String| text.bytes().filter(|byte| *byte == b'\n').count();
        std::fs::read_to_string(result).is_ok_and(|text| lines(text) == self.count())
    }

    fn arguments(&self, context: Context, seconds: f64) -> Vec<String> {
        let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(",");
        let possible = self.methods.iter().filter(|method| self.is_possible(method));
        let mut arguments = Vec::new();
        let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        flag("--seconds", seconds.to_string());
        flag("--repetitions", REPETITIONS.to_string());
        flag("--sizes", list(&mut self.sizes.iter().map(ToString::to_string)));
        flag("--only", list(&mut possible.map(|method| method.replace('-', "_"))));
        flag("--windows", self.windows.join(","));
        if self.pinned {
            flag("--pin", list(&mut context.cpus.iter().map(ToString::to_string)));
        }
        arguments
    }

    /// Converts each measurement to a part of the run; missing parts get the reason.
    fn result(&self, measured: &[GhostMeasurement], failed: Option<&str>) -> RunResult {
        let part = |m: &GhostMeasurement| MeasuredPart {
            name: method_suffix(&m.method, &m.window),
            parameters: BTreeMap::from([("bytes".to_owned(), m.bytes.into())]),
            figures: figures(m),
        };
        let parts: Vec<MeasuredPart> = measured.iter().map(part).collect();
        let reason = failed.unwrap_or("the program left it out");
        let is_there = |name: &String| parts.iter().any(|part| part.name == *name);
        let missing = self.measurements().into_iter().filter(|name| !is_there(name));
        let missing = missing.map(|name| (name, reason.to_owned())).collect();
        let warnings =
            failed.map(|reason| format!("it failed after {} measurements: {reason}", measured.len()));
        RunResult { parts, missing, warnings: warnings.into_iter().collect(), ..RunResult::default() }
    }
}

impl Driver for GhostDriver {
    fn parts(&self) -> Option<Vec<String>> {
        Some(self.measurements())
    }

    fn programs(&self) -> Vec<&str> {
        vec![&self.program]
    }

    fn estimated_overhead(&self, seconds: f64) -> Duration {
        let program = match self.program.as_str() {
            "ghost-openmpi" => 240,
            "ghost-mpich" => 120,
            _ => 60,
        };
        let preload = if self.preload { 50 } else { 0 };
        // beside busy loops a program has half of the processors while it starts
        let starting = (program + preload) * if self.competitors > 0 { 2 } else { 1 };
        // finding the number of steps that fills the time takes about half of that time again
        let measuring = Duration::from_secs_f64(seconds * (1.5 * self.count() as f64 - 1.0).max(0.0));
        Duration::from_millis(starting + self.oversubscription_ms()) + measuring
    }

    fn run(&self, context: Context, seconds: f64, _: u64) -> Result<RunResult, NoResult> {
        self.exchange(context, seconds, None)
    }
}

fn result_file(context: Context) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    context.directory.join(format!("exchange-{number}.jsonl"))
}

/// Returns the MPI's own `mpiexec`, with the options that it needs to start.
fn launcher(
    program: &PeerFile,
    processes: usize,
    hosts: Option<&ExchangeHosts>,
) -> Result<Command, NoResult> {
    let (mpiexec, remedy) = match program.name.as_str() {
        "ghost-mpich" => ("mpiexec.mpich", "apt install mpich"),
        "ghost-openmpi" => ("mpiexec.openmpi", "apt install openmpi-bin"),
        other => return Err(NoResult::Failed(format!("{other} is no program of an MPI"))),
    };
    let is_there = |directory: PathBuf| directory.join(mpiexec).is_file();
    if !std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(is_there)) {
        return Err(NoResult::Skipped(format!("{mpiexec} not found; {remedy}")));
    }
    let mut command = hosts.map_or_else(|| Command::new(mpiexec), |hosts| hosts.command(mpiexec));
    match hosts {
        Some(hosts) if program.name == "ghost-openmpi" => hosts.add_to_openmpi(&mut command, processes),
        Some(hosts) => hosts.add_to_mpich(&mut command, processes),
        None => {}
    }
    if program.name == "ghost-openmpi" {
        // without these settings it refuses to start as root, and to start more ranks than processors
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.args(["--oversubscribe", "--bind-to", "none"]);
        if hosts.is_none() && !has_fabric() {
            // If Open MPI searches for networks by libfabric, it starts 0.2 s later and chooses the same
            // transport in the end.
            command.args(["--mca", "pml", "^cm"]);
        }
    }
    command.args(["-n", &processes.to_string()]);
    Ok(command)
}

/// Whether this host has a network that programs use without the kernel (InfiniBand).
fn has_fabric() -> bool {
    std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

/// Checks that the preload works for this program, and builds it if necessary. Runs once for each program.
fn probe(context: Context, program: &PeerFile) -> Result<(), NoResult> {
    static FOUND: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    // a panic while the lock was held cannot have left the set half changed
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
        // the message of an older `unisono` that does not know the command
        Err(ChildError::Failed { code: Some(2), last_line, .. }) if last_line.contains("--help") => Err(
            NoResult::Skipped("this unisono has no `unisono mpi`; build the whole workspace".to_owned()),
        ),
        Err(ChildError::Failed { code: Some(2), last_line, .. }) => {
            Err(NoResult::Skipped(format!("no preload for this program{last_line}")))
        }
        Err(error) => Err(error.into()),
    }
}

fn figures(m: &GhostMeasurement) -> Vec<Figure> {
    let step = Distribution {
        n: m.repetitions,
        min: m.min_ns,
        p25: m.min_ns,
        median: m.median_ns,
        p75: m.max_ns,
        p99: m.max_ns,
        max: m.max_ns,
    };
    let mut figures =
        vec![Figure::from_distribution("step_ns", "ns", step), Figure::new("worst_step_ns", m.max_ns, "ns")];
    if m.bytes > 0 {
        figures.push(Figure::new("mb_per_s", m.median_mb_s, "MB/s"));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> GhostDriver {
        GhostDriver {
            methods: ["messages", "fence", "put-flush", "barrier"].map(str::to_owned).into(),
            windows: ["allocated", "created"].map(str::to_owned).into(),
            sizes: vec![16, 1024, 65_536],
            ..GhostDriver::default()
        }
    }

    #[test]
    fn parts_are_methods_by_window_and_the_engine_has_no_messages() {
        let names = ["fence", "fence-created", "put-flush", "put-flush-created", "barrier"];
        assert_eq!(engine().measurements(), names);
        assert_eq!(engine().count(), 3 + 3 + 4 + 4 + 1);
        let mpich = GhostDriver { program: "ghost-mpich".into(), ..engine() };
        assert_eq!(mpich.measurements()[0], "messages");
        assert_eq!(GhostDriver { preload: true, ..mpich }.measurements()[0], "fence");
    }

    #[test]
    fn waits_for_messages_are_measured_of_mpis_alone_with_the_preload_or_without() {
        let methods: Vec<String> = ["ring", "ibarrier"].map(str::to_owned).into();
        let engine = GhostDriver { methods, sizes: vec![8, 1024], ..GhostDriver::default() };
        assert_eq!((engine.measurements(), engine.count()), (Vec::<String>::new(), 0));
        for preload in [false, true] {
            let mpich = GhostDriver { program: "ghost-mpich".into(), preload, ..engine.clone() };
            assert_eq!((mpich.measurements(), mpich.count()), (vec!["ring".into(), "ibarrier".into()], 3));
        }
    }

    #[test]
    fn a_run_becomes_a_place_a_measurement_and_what_is_missing_has_its_reason() {
        let line = |method: &str, window: &str, bytes, median_ns| GhostMeasurement {
            method: method.into(),
            window: window.into(),
            bytes,
            repetitions: 3,
            median_ns,
            max_ns: 2.0 * median_ns,
            ..GhostMeasurement::default()
        };
        let lines = [line("fence", "created", 16, 300.0), line("put_flush", "allocated", 8, 30.0)];
        let got = engine().result(&lines, Some("killed"));
        assert_eq!(
            (got.parts[0].name.as_str(), &got.parts[0].parameters["bytes"]),
            ("fence-created", &16.into())
        );
        assert_eq!(got.parts[1].name, "put-flush");
        let values: Vec<f64> = got.parts[0].figures.iter().map(|f| f.value).collect();
        assert_eq!(values[..2], [300.0, 600.0]);
        let missing: Vec<&str> = got.missing.iter().map(|(part, _)| part.as_str()).collect();
        assert_eq!(missing, ["fence", "put-flush-created", "barrier"]);
        assert!(got.missing.iter().all(|(_, reason)| reason == "killed"));
    }

    #[test]
    fn more_to_measure_takes_longer() {
        let few = GhostDriver { sizes: vec![16], ..GhostDriver::default() };
        assert!(GhostDriver::default().estimated_overhead(0.01) > few.estimated_overhead(0.01));
        assert!(few.estimated_overhead(1.0) >= Duration::from_secs(3));
    }
}
