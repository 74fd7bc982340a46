//! `unisono tree undeploy`: ends deployments, and takes away what killed ones left.

use super::deploy::failure;
use crate::output;
use std::process::ExitCode;
use unisono_fabric::leftovers::{self, RunningDeployments};
use unisono_linux::counted::counted;

/// End deployments, and take away what killed ones have left behind
///
/// Processes and unnamed namespaces end with `unisono tree deploy`, whatever ends it. Names that --names made
/// are all that can be left after kill -9; the next deployment takes them away, too.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono tree undeploy
      end all deployments of this host
  sudo unisono tree undeploy 4711
      end the one of that process
  sudo unisono tree undeploy --leftovers
      only tidy up after those that were killed")]
pub(crate) struct Args {
    /// Only the deployment of this process
    #[arg(value_name = "PID")]
    process: Option<u32>,
    /// Leave running deployments as they are
    #[arg(long)]
    leftovers: bool,
    /// Print what was taken away as one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    super::root("tree undeploy")?;
    let running = if args.leftovers { RunningDeployments::Leave } else { RunningDeployments::End };
    let removed = leftovers::remove(running, args.process).map_err(failure)?;
    if args.json {
        output::answer(&serde_json::to_string(&removed)?)?;
    } else {
        output::answer(&format!(
            "{} ended, {} tidied up, {} of namespaces taken away",
            counted(removed.ended.len(), "deployment"),
            counted(removed.dead.len(), "killed one"),
            counted(removed.names, "name")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
