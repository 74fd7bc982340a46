//! `unisono tree`: barrier trees in the switches of a network. Each subcommand is one file.

mod bench;
mod check;
mod comparison;
mod convert;
mod deadlock;
mod deploy;
mod export;
mod failures;
mod generate;
mod host_list;
pub(crate) mod input;
mod picture;
mod plan;
mod planning;
mod serve;
mod simulate;
mod slow;
mod undeploy;

use crate::exit::Failure;
use clap::Subcommand;
use std::process::ExitCode;
use unisono_fabric::leftovers::{self, Note, RunningDeployments};
use unisono_linux::interrupt;

/// Plan, check, simulate and run barriers in the switches of a network
///
/// No member of a group leaves a barrier before all members have arrived. Without help from the switches,
/// each member sends a message to one node, the root, and the root takes in these messages one after the
/// other. Switches can do better. Each switch combines the arrivals that it gets from below into one message
/// to the switch above it. When all have arrived, each switch copies the release to all members and switches
/// below it. The time of a barrier then grows with the height of the tree, and no longer with the number of
/// members.
///
/// Networks are files: draw one with `generate`, or `convert` your own. Only `deploy`, `bench` and `undeploy`
/// change anything on this host, and only these need root. The others read files and write files.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono tree generate --switches 300 --nodes 1024 --members 256 --out net.json
  unisono tree plan net.json
      the best tree, and what a barrier takes
  unisono tree simulate net.json
      beside unicast and multicast
  sudo unisono tree bench net.json
      in this host's kernel, beside barriers over UDP")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: TreeCommand,
}

#[derive(Subcommand)]
enum TreeCommand {
    Generate(generate::Args),
    Convert(convert::Args),
    Plan(plan::Args),
    Check(Box<check::Args>),
    Simulate(Box<simulate::Args>),
    Export(export::Args),
    Deploy(deploy::Args),
    Bench(bench::Args),
    Undeploy(undeploy::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        TreeCommand::Generate(args) => generate::run(&args),
        TreeCommand::Convert(args) => convert::run(&args),
        TreeCommand::Plan(args) => plan::run(&args),
        TreeCommand::Check(args) => check::run(&args),
        TreeCommand::Simulate(args) => simulate::run(&args),
        TreeCommand::Export(args) => export::run(&args),
        TreeCommand::Deploy(args) if args.serve => serve::run(&args),
        TreeCommand::Deploy(args) => deploy::run(&args),
        TreeCommand::Bench(args) => bench::run(&args),
        TreeCommand::Undeploy(args) => undeploy::run(&args),
    }
}

/// Returns an error unless root runs this command, before the command changes anything.
fn root(command: &str) -> anyhow::Result<()> {
    if unisono_linux::process::is_root() {
        return Ok(());
    }
    Err(
        Failure::Host(format!("it makes network namespaces and loads BPF programs: sudo unisono {command}"))
            .into(),
    )
}

/// Prepares this host for namespaces of a network, on behalf of root alone: Ctrl-C ends the command in order,
/// and leftovers of killed commands are removed. The command holds the note until its end.
fn prepare(command: &str) -> anyhow::Result<Note> {
    root(command)?;
    interrupt::catch()?;
    leftovers::remove(RunningDeployments::Leave, None).map_err(deploy::failure)?;
    Note::write().map_err(deploy::failure)
}
