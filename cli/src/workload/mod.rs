//! `unisono workload`: the processes that measurements start. The command is hidden in `--help`, because
//! users do not need it.
//!
//! The workloads of barriers take the same flags as the peers in C and C++, so that the study starts all of
//! them alike. Null RPC reads a scene (a JSON file that describes its server and client), which the study
//! writes. Each file here parses arguments; `crates/workload/src` does the work.

mod ghost;
mod null_rpc;

use crate::exit::Failure;
use crate::flags::WorkloadFlags;
use anyhow::Context as _;
use serde::de::DeserializeOwned;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use unisono_linux::affinity::{self, CpuSet};
use unisono_linux::parent_death::die_with_parent;
use unisono_linux::read;
use unisono_measure::units;
use unisono_study::compare::read_choice;
use unisono_sync::{SpinBudget, Wait};
use unisono_workload::barrier_choice::BarrierChoice;
use unisono_workload::bursts::{self, BurstLoad};
use unisono_workload::kernel::{clustering, stencil};
use unisono_workload::microbenchmark::{hand_off, tight_loop};
use unisono_workload::options::write_result;
use unisono_workload::{self as workload, Measurement, Options, spin};

/// Programs that measurements start
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    which: WorkloadCommand,
}

#[derive(clap::Subcommand)]
enum WorkloadCommand {
    BusyLoop(BusyLoop),
    TightLoop(WorkloadFlags),
    HandOff(HandOffArgs),
    RayonStencil(WorkloadFlags),
    Stencil(KernelArgs),
    Clustering(KernelArgs),
    Bursts(Bursts),
    Ghost(ghost::Args),
    NullRpc(null_rpc::Args),
}

/// Compute until killed
#[derive(clap::Args)]
struct BusyLoop {
    /// End with this process; it must be the parent
    #[arg(long)]
    parent: u32,
    /// Stay on this processor
    #[arg(long)]
    cpu: Option<usize>,
}

/// Hand a word over to another thread and back
#[derive(clap::Args)]
struct HandOffArgs {
    #[command(flatten)]
    flags: WorkloadFlags,
    /// How to wait
    #[arg(long, value_name = "W")]
    wait: Wait,
    /// Time for which spin-block spins before it blocks
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    spin_budget: Option<Duration>,
}

/// A kernel over a barrier of Unisono
#[derive(clap::Args)]
pub struct KernelArgs {
    #[command(flatten)]
    pub flags: WorkloadFlags,
    /// Unisono's algorithm
    #[arg(long, value_name = "A")]
    algorithm: Option<String>,
    /// How to wait
    #[arg(long, value_name = "W")]
    wait: Option<String>,
    /// Time for which spin-block spins before it blocks
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    spin_budget: Option<Duration>,
}

/// One stream of requests that arrive in bursts
#[derive(clap::Args)]
struct Bursts {
    #[command(flatten)]
    kernel: KernelArgs,
    /// This stream, from 0
    #[arg(long, default_value_t = 0)]
    stream: u32,
    /// Streams; each is a process started with the same seed, and best with the same --start-at
    #[arg(long, default_value_t = 1)]
    streams: u32,
    /// Requests a second, of all streams together
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// Requests that arrive together
    #[arg(long, default_value_t = 1)]
    burst: u32,
    /// Rounds of a request, two barriers each
    #[arg(long, default_value_t = 64)]
    rounds: u32,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.which {
        WorkloadCommand::BusyLoop(args) => busy_loop(&args),
        WorkloadCommand::TightLoop(flags) => measure(&flags, tight_loop::run),
        WorkloadCommand::HandOff(args) => hand_off(&args),
        WorkloadCommand::RayonStencil(flags) => measure(&flags, stencil::run_rayon),
        WorkloadCommand::Stencil(args) => kernel(&args, stencil::run_unisono),
        WorkloadCommand::Ghost(args) => ghost::run(&args),
        WorkloadCommand::NullRpc(args) => null_rpc::run(&args),
        WorkloadCommand::Clustering(args) => kernel(&args, clustering::run_unisono),
        WorkloadCommand::Bursts(args) => {
            let Bursts { stream, streams, rate, burst, rounds, .. } = args;
            let load = BurstLoad { stream, streams, rate, burst, rounds };
            load.check().map_err(|error| Failure::Usage(error.to_string()))?;
            kernel(&args.kernel, |choice, options| bursts::run(&load, choice, options))
        }
    }
}

impl KernelArgs {
    /// Returns the barrier that the flags name.
    ///
    /// # Errors
    /// A name is unknown, or the names do not go together.
    pub fn choice(&self) -> Result<BarrierChoice, Failure> {
        read_choice(self.algorithm.as_deref(), self.wait.as_deref(), self.spin_budget)
            .map_err(|error| Failure::Usage(error.to_string()))
    }
}

fn kernel(
    args: &KernelArgs,
    run: impl Fn(&BarrierChoice, &Options) -> Result<Measurement, workload::Error>,
) -> anyhow::Result<ExitCode> {
    let choice = args.choice()?;
    measure(&args.flags, |options| run(&choice, options))
}

fn hand_off(args: &HandOffArgs) -> anyhow::Result<ExitCode> {
    let budget = args.spin_budget.map_or(Ok(SpinBudget::DEFAULT), |budget| SpinBudget::new(budget.into()));
    let budget = budget.map_err(|error| Failure::Usage(error.to_string()))?;
    measure(&args.flags, |options| hand_off::run(options, args.wait, budget))
}

/// Runs a workload with these flags, and writes its result.
///
/// # Errors
/// The flags are invalid, or the workload fails.
pub fn measure(
    flags: &WorkloadFlags,
    run: impl Fn(&Options) -> Result<Measurement, workload::Error>,
) -> anyhow::Result<ExitCode> {
    let options = flags.options()?;
    options.check().map_err(|error| Failure::Usage(error.to_string()))?;
    let json = serde_json::to_string(&run(&options)?)?;
    match &flags.result {
        Some(path) => write_result(path, &json)?,
        None => writeln!(std::io::stdout().lock(), "{json}")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the scene, in JSON, of a process that ends with the study that started it.
///
/// # Errors
/// The file cannot be read, or it is no such scene.
pub fn scene<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    die_with_parent(None)?;
    let place = path.display();
    let text = read::text(path, read::HAND_WRITTEN).with_context(|| format!("cannot read {place}"))?;
    let scene = serde_json::from_str(&text);
    Ok(scene.map_err(|error| Failure::Usage(format!("{place} is no scene: {error}")))?)
}

fn busy_loop(args: &BusyLoop) -> anyhow::Result<ExitCode> {
    die_with_parent(Some(args.parent))?;
    if let Some(cpu) = args.cpu {
        affinity::restrict_own(&CpuSet::single(cpu))
            .map_err(|error| Failure::Usage(format!("cannot run on processor {cpu}: {error}")))?;
    }
    let mut state = u64::from(args.parent);
    loop {
        state = std::hint::black_box(spin::compute(state, 1 << 20));
    }
}
