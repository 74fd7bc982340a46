//! `unisono gang simulate`: simulates programs on cores under several schedulers and compares them.

use crate::exit::Failure;
use crate::help::{Completed, owned};
use crate::live_view::table_width;
use crate::machine_output::{self, CsvFlag};
use crate::{gang_table, output};
use clap::Parser;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_gang::simulate::{GangSpec, KernelModel, Report, Simulation, SimulationSpec};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::read::HAND_WRITTEN;
use unisono_text::explain_unknown;

const SCHEDULERS: [&str; 6] = ["linux", "spread", "gang", "paired", "partition", "batch"];

/// Simulate programs on 1 to 1,024 cores, under Linux and as gangs
///
/// The simulator knows threads that compute, spin, block, pause and meet at barriers, and the schedulers of
/// two kernels: where they place a thread that wakes up, when it preempts, and how they balance the load.
/// Gangs follow the same policy as `unisono gang run`.
#[derive(Parser)]
#[command(after_help = r#"Examples:
  unisono gang simulate --cores 8 --programs 8x50us,4x50us,4x50us
      three programs whose threads meet at a barrier each 50 us: under Linux,
      pinned to cores (spread), as gangs
  unisono gang simulate --kernel cfs-2.6.32 --programs 16x50us+2ms,16x0us \
          --scheduler linux,gang
      the first one's threads compute up to 2 ms longer, at random; the paper's
      kernel
  unisono gang simulate --cores 4 --programs 4x100us,2xloop --seconds 10 --json
      beside two threads that only compute
  unisono gang simulate spec.json
      more than --programs can say: quotas, priorities, pauses, arrivals, jobs

SPEC is a JSON file. It needs `cores` and `gangs` (or `programs`); a program needs `threads`:
  {"cores":16, "kernel":"eevdf", "scheduler":"gang", "seconds":2, "seed":1,
   "slice":"20ms", "switch":"50us", "backfill":true, "block":"7.4us",
   "barrier":"62ns", "cache_cores":16,
   "gangs":[
     {"name":"solver", "threads":16, "interval":"50us", "variance":"10us",
      "wait":"50us", "light_barriers":8, "weight":2, "nice":0, "arrives":"1s",
      "count":3},
     {"name":"server", "threads":4, "interval":"1ms", "barriers":false,
      "pause":"10ms", "quota":1.5, "priority":10},
     {"name":"monitor", "threads":8, "interval":"650us", "job":5400,
      "every":"10s", "together":2},
     {"name":"batch", "threads":16, "work":"2s"}]}
Of the machine: `switch` is what a switch of gangs costs every core, `block` what blocking costs, and `barrier` what a barrier of two threads costs if both run. One of more threads takes a transfer of a cache line more for each doubling, three times as long between caches. `backfill` says whether waiting gangs get idle cores. `cache_cores` is the number of cores that share a cache. Without `seconds` all programs need `work`.

Of a program: `wait` is `spin`, `block`, or how long to spin before blocking. `pause` is a sleep after each computation. `light_barriers` are barriers without computation after each one with computation. `quota` is in cores. `arrives` is when it starts, and `count` how many such programs there are. `job` is the number of barriers of a job. A job arrives every `every`. With `together`: N, N jobs arrive at once, N times as rarely.

The table: `computes` and `spins` are parts of all processor time. `unstacked` is 1 when a program's threads had as many cores as they could use, and less when they were stacked on fewer."#)]
pub(crate) struct Args {
    /// The simulation, a JSON file
    #[arg(required_unless_present = "programs", conflicts_with = "programs")]
    spec: Option<PathBuf>,
    /// Programs: threads x interval between barriers, + variance. `2xloop`: two threads that never wait
    #[arg(long, value_delimiter = ',', value_name = "NxTIME[+TIME],...")]
    programs: Vec<String>,
    /// Cores, 1 to 1024 [default: 16; with SPEC, its cores]
    #[arg(long)]
    cores: Option<usize>,
    /// The kernel: eevdf (Linux 6.18) or cfs-2.6.32 [default: eevdf, or what SPEC says]
    #[arg(long, value_parser = Completed::new(|| owned(["eevdf", "cfs-2.6.32"]), kernel), hide_possible_values = true)]
    kernel: Option<KernelModel>,
    /// The schedulers to compare: linux, spread (thread i stays on core i), gang, paired, partition, batch
    /// [default: linux,spread,gang; with SPEC, its scheduler, or gang]
    #[arg(long, value_delimiter = ',', value_parser = SCHEDULERS, hide_possible_values = true)]
    scheduler: Vec<String>,
    /// Simulated seconds [default: 2; with SPEC, its seconds, or until all work is done]
    #[arg(long)]
    seconds: Option<f64>,
    /// Decides all that is left to chance: the same seed gives the same answer [default: 1, or what SPEC
    /// says]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object; with several schedulers it holds a list
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
}

fn kernel(text: &str) -> Result<KernelModel, String> {
    text.parse::<KernelModel>().map_err(|error| error.to_string())
}

/// Progress is shown after this time, and then repeatedly at the same interval.
const QUIET: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let gangs: Result<Vec<GangSpec>, _> = args.programs.iter().map(|text| text.parse()).collect();
    let mut spec = match &args.spec {
        Some(path) => read(path)?,
        None => SimulationSpec {
            cores: 16,
            seconds: Some(2.0),
            gangs: gangs.map_err(wrong)?,
            ..Default::default()
        },
    };
    spec.cores = args.cores.unwrap_or(spec.cores);
    spec.seconds = args.seconds.or(spec.seconds);
    spec.seed = args.seed.or(spec.seed);
    spec.kernel = args.kernel.map(|kernel| kernel.to_string()).or(spec.kernel);
    let schedulers = match (&args.scheduler[..], &args.spec) {
        ([], Some(_)) => vec![spec.scheduler.clone().unwrap_or_else(|| "gang".into())],
        ([], None) => ["linux", "spread", "gang"].map(str::to_owned).to_vec(),
        (chosen, _) => chosen.to_vec(),
    };
    let mut reports = Vec::new();
    for scheduler in schedulers {
        spec.scheduler = Some(scheduler.clone());
        let simulation = spec.understand().map_err(wrong)?;
        let report = simulation.run(&mut watch(&scheduler, &simulation)).map_err(wrong)?;
        reports.push((scheduler, report));
    }
    let mut out = std::io::stdout();
    if args.json {
        writeln!(out, "{}", json(&reports)?)?;
    } else if args.table.csv {
        let rows = reports.iter().map(row).collect::<anyhow::Result<Vec<_>>>()?;
        writeln!(out, "{}", machine_output::csv(&rows)?)?;
    } else {
        write!(out, "{}", output::plain(&gang_table::simulations(&reports, table_width())))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Converts an error of the simulation, which is always bad input.
fn wrong(error: unisono_gang::Error) -> Failure {
    Failure::Usage(error.to_string())
}

fn json(reports: &[(String, Report)]) -> anyhow::Result<String> {
    let mut all = Vec::new();
    for (scheduler, report) in reports {
        let mut value = serde_json::to_value(report)?;
        value["scheduler"] = scheduler.as_str().into();
        all.push(value);
    }
    let value = match all.len() {
        1 => all.remove(0),
        _ => serde_json::json!({ "runs": all }),
    };
    Ok(machine_output::json("unisono-gang-simulate-1", &value)?)
}

/// Returns the figures of one scheduler without the lists of each gang's figures.
fn row((scheduler, report): &(String, Report)) -> anyhow::Result<serde_json::Value> {
    let figures = serde_json::to_value(report)?;
    let single = figures.as_object().into_iter().flatten().filter(|(_, value)| !value.is_array());
    let row = [("scheduler".to_owned(), scheduler.as_str().into())];
    Ok(row.into_iter().chain(single.map(|(name, value)| (name.clone(), value.clone()))).collect())
}

/// Returns a function that shows the progress of a long simulation on a terminal.
fn watch(scheduler: &str, simulation: &Simulation) -> impl FnMut(Instant) -> bool {
    let (begin, length) = (clock::now(), simulation.length);
    let (scheduler, is_terminal) = (scheduler.to_owned(), std::io::stderr().is_terminal());
    let mut shown_at = begin;
    move |now| {
        if is_terminal && clock::now() - shown_at >= QUIET {
            shown_at = clock::now();
            let simulated = (now - Instant::ZERO).as_secs_f64();
            let percent = simulated / length.as_secs_f64() * 100.0;
            output::remark(format_args!("{scheduler}: {simulated:.2} s simulated, {percent:.0} %\n"));
        }
        true
    }
}

fn read(path: &std::path::Path) -> anyhow::Result<SimulationSpec> {
    let name = path.display();
    let text = unisono_linux::read::text(path, HAND_WRITTEN)
        .map_err(|error| Failure::Usage(format!("cannot read {name}: {error}")))?;
    serde_json::from_str(&text).map_err(|error| Failure::Usage(bad_spec(&name.to_string(), &error)).into())
}

/// Describes an error in a simulation's file, with its place. For an unknown key it suggests the nearest
/// known key.
fn bad_spec(name: &str, error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    // serde_json appends the position
    let what = explain_unknown(text.split(" at line ").next().unwrap_or(&text));
    let end = if what.ends_with('?') { "" } else { ";" };
    format!("{name}:{line}:{column}: {what}{end} see unisono gang simulate --help")
}
