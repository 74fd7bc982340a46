//! `unisono workload ghost`: the exchange of ghost areas over Unisono's windows. It starts its own ranks,
//! unless `unisono run` has started it as one.

use crate::exit::Failure;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use unisono_linux::parent_death::die_with_parent;
use unisono_rma::{Job, JobMembership, Style};
use unisono_workload::ghost::{self, Exchange};
use unisono_workload::{self as workload, Pin};

/// The longest time for which ranks wait for each other at the start.
const PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// Exchange ghost areas with four neighbours over Unisono's windows
#[derive(clap::Args)]
pub(super) struct Args {
    /// Processes
    #[arg(long, value_name = "N", default_value_t = 2)]
    processes: usize,
    /// Seconds of each measurement
    #[arg(long, value_name = "S", default_value_t = 0.3)]
    seconds: f64,
    /// Repetitions of each measurement
    #[arg(long, value_name = "R", default_value_t = 7)]
    repetitions: usize,
    /// Bytes to each neighbour
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [16, 64, 256, 1024, 16384, 65536, 262_144])]
    sizes: Vec<usize>,
    /// Only these methods: fence, pscw, lock, put_flush, get_flush, accumulate_flush, fetch_flush, barrier
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Windows over memory of the engine's (allocated) or of the user's (created)
    #[arg(long, value_name = "WINDOW", value_delimiter = ',', default_value = "allocated,created")]
    windows: Vec<String>,
    /// How synchronization is done: direct, deferred (the paper's design), naive
    #[arg(long, value_name = "STYLE", default_value = "direct", value_parser = style)]
    style: Style,
    /// Where the processes run: none, spread, or processors like 0-3,8
    #[arg(long, value_name = "PIN", default_value = "none")]
    pin: Pin,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// End with the thread that started this program
    #[arg(long)]
    die_with_parent: bool,
}

fn style(text: &str) -> Result<Style, String> {
    let known = Style::ALL.map(Style::name).join(", ");
    Style::ALL
        .into_iter()
        .find(|style| style.name() == text)
        .ok_or_else(|| format!("{text:?} is no style; write one of {known}"))
}

/// Runs the launcher, or one rank if the environment names a rank.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let exchange = Exchange {
        processes: args.processes,
        seconds: args.seconds,
        repetitions: args.repetitions,
        sizes: args.sizes.clone(),
        only: args.only.clone(),
        windows: args.windows.clone(),
        style: args.style,
        pin: args.pin.clone(),
        result: args.result.clone(),
    };
    exchange.check().map_err(|error| Failure::Usage(error.to_string()))?;
    let place = JobMembership::from_environment().map_err(|error| Failure::Usage(error.to_string()))?;
    if args.die_with_parent || place.is_some() {
        die_with_parent(None)?;
    }
    let job = Job::join(PEER_TIMEOUT)?;
    let done: Result<(), workload::Error> = match job {
        Some(job) => ghost::run(job, &exchange),
        None => {
            let arguments: Vec<String> = std::env::args().skip(1).collect();
            ghost::launch(&std::env::current_exe()?, &arguments, &exchange)
        }
    };
    done?;
    Ok(ExitCode::SUCCESS)
}
