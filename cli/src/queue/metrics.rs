//! `unisono queue metrics`: statistics of all classes as OpenMetrics text.

use super::failure;
use super::group_use::{GroupCounter, GroupReading};
use super::side::WantedSides;
use crate::output;
use crate::service;
use std::process::ExitCode;
use unisono_enforce::journal::LinkSide;
use unisono_enforce::metrics::{Scrape, openmetrics};
use unisono_enforce::{Error, backends};

/// Print statistics of all classes in the OpenMetrics format, for monitoring programs
///
/// These are the figures of `unisono queue show --json`, counted since the policy came into force. Packets,
/// bytes and drops of each class are counters (`_total`). Waiting packets and bytes, and waiting times, are
/// gauges. Labels name the device, the direction, the class and its parent. The sum of the classes with
/// parent="" is the link. With --listen the command answers `GET /metrics` until Ctrl-C. There is no
/// password: every program that can connect can read. Before it reads, the command cleans up after killed
/// `unisono queue` commands.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue metrics
      the text, once
  unisono queue metrics --dev eth0 > /var/lib/node_exporter/queue.prom
  unisono queue metrics --listen 127.0.0.1:9469
      for Prometheus to scrape
  unisono queue metrics --listen /run/unisono.metrics
      a socket: curl --unix-socket")]
pub(crate) struct Args {
    #[command(flatten)]
    sides: WantedSides,
    /// Answer HTTP requests at ADDRESS:PORT, or at the path of a Unix socket (a path has a / in it)
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(place) = &args.listen else {
        let text = scrape(&args.sides).map_err(failure::from_error)?;
        if args.sides.dev.is_some() {
            // without this check, a missing policy would look the same as no traffic
            for side in args.sides.in_force().map_err(failure::from_error)? {
                backends::in_force(&side).map_err(failure::from_error)?;
            }
        }
        output::answer(text.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    };
    let answer = || scrape(&args.sides).map_err(|error| error.to_string());
    service::answer_scrapes(place, answer)
}

/// Undoes the changes that killed commands left behind, because a policy that they applied in part is not in
/// force. Then returns the figures as text. If the backend of a device does not answer, the text reports that
/// device as down, and still has the others.
fn scrape(sides: &WantedSides) -> Result<String, Error> {
    failure::warn(&unisono_enforce::cpu::recover_all()?);
    unisono_enforce::recover_all()?.iter().for_each(|recovered| failure::warn(&recovered.notes));
    let scrape = |side: LinkSide| {
        let figures = backends::in_force(&side).and_then(|mut backend| backend.figures());
        if let Err(error) = &figures {
            failure::warn(&[error.to_string()]);
        }
        let groups = GroupReading::read(&side).unwrap_or_default();
        let counted = |groups: Vec<GroupCounter>| -> Vec<_> {
            groups.into_iter().map(|group| (group.share, group.counted)).collect()
        };
        let processor_time = counted(groups.cpu.map(|(_, groups)| groups).unwrap_or_default());
        let disk_bytes = counted(groups.disk.unwrap_or_default());
        Scrape { side, figures: figures.ok(), processor_time, disk_bytes }
    };
    Ok(openmetrics(sides.in_force()?.into_iter().map(scrape).collect()))
}
