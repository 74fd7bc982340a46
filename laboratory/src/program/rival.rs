//! `unisono-laboratory workload rival`: one end of a stream of events, measured like other middleware.

use crate::workload::rival::{RivalCarrier, RivalEnd, RivalRole};
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_cli::one_of;
use unisono_events_client::ChannelWait;
use unisono_linux::clock::Instant;
use unisono_linux::parent_death::die_with_parent;
use unisono_workload::options::write_result;

/// Publish a stream of events, or subscribe to it
#[derive(clap::Args)]
pub(super) struct Args {
    #[arg(value_parser = one_of(&RivalCarrier::ALL))]
    carrier: RivalCarrier,
    #[arg(value_parser = one_of(&RivalRole::ALL))]
    role: RivalRole,
    /// Of the broker, or of the publisher
    address: String,
    /// Bytes of an event
    bytes: usize,
    /// 0: as many as are taken
    events_per_s: f64,
    /// When it begins, on the monotonic clock (ns)
    from: u64,
    /// When it ends
    until: u64,
    /// Where a subscriber writes what it saw
    result: PathBuf,
    /// How an end of the event channel waits
    #[arg(long, value_parser = one_of(&ChannelWait::ALL), default_value = "sleep")]
    wait: ChannelWait,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    die_with_parent(None)?;
    let end = RivalEnd {
        carrier: args.carrier,
        role: args.role,
        address: args.address.clone(),
        bytes: args.bytes,
        events_per_s: args.events_per_s,
        from: Instant::from_nanos(args.from),
        until: Instant::from_nanos(args.until),
        wait: args.wait,
    };
    let stream = end.run()?;
    if end.role != RivalRole::Publish {
        write_result(&args.result, &serde_json::to_string(&stream)?)?;
    }
    Ok(ExitCode::SUCCESS)
}
