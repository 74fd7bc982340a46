//! `unisono-laboratory workload monitor`: one stream of packets (docs/network-monitor.md).

use crate::workload::monitor::generator::StreamRate;
use crate::workload::monitor::{self, ChunkTimes, MonitorBarrier, MonitorLoad};
use crate::workload::stream_cluster::CentreRange;
use std::process::ExitCode;
use unisono_cli::Failure;
use unisono_cli::{KernelArgs, measure};

/// Cluster the packets of one TCP stream
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    kernel: KernelArgs,
    /// This stream, from 0; streams have packets of their own
    #[arg(long, default_value_t = 0)]
    stream: u32,
    /// Packets between two updates of the clusters
    #[arg(long, default_value_t = 16_000)]
    chunk: usize,
    /// The most cluster centres; at least half as many are found
    #[arg(long, default_value_t = 20)]
    centres: usize,
    /// Packets a second; without it, chunks arrive without pauses
    #[arg(long)]
    packets_per_s: Option<f64>,
    /// Factor of the rate within a burst: packets come this many times as fast
    #[arg(long, default_value_t = 1.0)]
    burst: f64,
    /// Where the threads meet
    #[arg(long, value_enum, default_value_t = BarrierOf::Unisono)]
    barrier: BarrierOf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum BarrierOf {
    Unisono,
    Pthread,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // on average, a burst has the packets of two updates, so that some updates follow each other at once and
    // others come alone
    let rate = |packets_per_s| StreamRate {
        packets_per_s,
        burst: args.burst,
        burst_packets: 2.0 * args.chunk as f64,
    };
    let times =
        args.packets_per_s.map_or(ChunkTimes::BackToBack, |packets| ChunkTimes::Packets(rate(packets)));
    let centres = CentreRange { fewest: args.centres.div_ceil(2), most: args.centres };
    let load = MonitorLoad { stream: args.stream, chunk: args.chunk, centres, times };
    load.check().map_err(|error| Failure::Usage(error.to_string()))?;
    let barrier = match args.barrier {
        BarrierOf::Unisono => MonitorBarrier::Unisono(args.kernel.choice()?),
        BarrierOf::Pthread => MonitorBarrier::Pthread,
    };
    measure(&args.kernel.flags, |options| monitor::run(&load, barrier, options))
}
