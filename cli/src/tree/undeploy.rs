//! `unisono tree undeploy`: ends deployments, and removes what killed deployments have left behind.

use super::deploy::failure;
use crate::machine_output;
use crate::output;
use std::process::ExitCode;
use unisono_fabric::leftovers::{self, RunningDeployments};
use unisono_text::counted;

/// End deployments, and remove what killed ones have left behind
///
/// Processes and unnamed namespaces always end with `unisono tree deploy` and `tree bench`. After kill -9 two
/// things can be left: the names that --names made, and the changed setting /sys/kernel/rcu_expedited. This
/// command removes the names and restores the setting. So does the next deployment.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono tree undeploy
      end all deployments of this host
  sudo unisono tree undeploy 4711
      end the one of that process
  sudo unisono tree undeploy --leftovers
      only tidy up after those that were killed")]
pub(crate) struct Args {
    /// End only the deployment of this process
    #[arg(value_name = "PID")]
    process: Option<u32>,
    /// Leave running deployments as they are
    #[arg(long)]
    leftovers: bool,
    /// Print the removed parts as one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    super::root("tree undeploy")?;
    let running = if args.leftovers { RunningDeployments::Leave } else { RunningDeployments::End };
    let removed = leftovers::remove(running, args.process).map_err(failure)?;
    if args.json {
        output::answer(&machine_output::json("unisono-tree-undeploy-1", &removed)?)?;
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
