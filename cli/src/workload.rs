//! `unisono workload`: what measurements start as processes of their own. Not for users, so hidden; the
//! flags are those of every peer.

use crate::exit::Failure;
use std::process::ExitCode;
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::parent_death::die_with_parent;
use unisono_study::workload::spin;

/// Programs that measurements start
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    which: Which,
}

#[derive(clap::Subcommand)]
enum Which {
    BusyLoop(BusyLoop),
}

/// Compute until killed
#[derive(clap::Args)]
struct BusyLoop {
    /// End with this process, which must be the parent
    #[arg(long)]
    parent: u32,
    /// Stay on this processor
    #[arg(long)]
    cpu: Option<usize>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.which {
        Which::BusyLoop(args) => busy_loop(&args),
    }
}

fn busy_loop(args: &BusyLoop) -> anyhow::Result<ExitCode> {
    die_with_parent(Some(args.parent))?;
    if let Some(cpu) = args.cpu {
        affinity::restrict(Tid::SELF, &CpuSet::single(cpu))
            .map_err(|error| Failure::Usage(format!("cannot run on processor {cpu}: {error}")))?;
    }
    let mut state = u64::from(args.parent);
    loop {
        state = std::hint::black_box(spin::compute(state, 1 << 20));
    }
}
