//! `unisono queue`: shares a link by start-time fair queuing. Each subcommand is one file.

mod apply;
pub(crate) mod broker;
mod change;
mod clear;
mod cpu;
mod disk;
mod disk_show;
mod failure;
mod group_use;
mod guard;
mod install;
mod interpose;
mod metrics;
mod policy_file;
mod run;
mod show;
mod side;
mod simulate;
mod socket_use;
mod units;
mod unseen;
mod view;

use clap::Subcommand;
use std::process::ExitCode;

/// Share a link or a processor by weights, with start-time fair queuing
///
/// A policy divides the link among classes by weights; a class may be divided again. The unused part of a
/// class goes to its siblings in proportion to their weights, then to the rest of the tree. Write a policy,
/// apply it to a device, watch the rates of its classes, and clear it. Programs need not be changed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue apply policy.toml --check
      check it, change nothing
  sudo unisono queue apply policy.toml --dev eth0
  sudo unisono queue show
      watch rates, shares, drops and delays
  sudo unisono queue clear
      restore every device")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Subcommand)]
enum QueueCommand {
    Apply(apply::Args),
    Change(change::Args),
    Show(show::Args),
    Run(run::Args),
    Metrics(metrics::Args),
    Install(install::Args),
    Uninstall(install::UninstallArgs),
    Clear(clear::Args),
    Cpu(cpu::Args),
    Simulate(simulate::Args),
    Broker(broker::Args),
    Disk(disk::Args),
    Guard(guard::Args),
    #[command(hide = true)]
    Interpose(interpose::Args),
    #[command(hide = true)]
    CpuGuard(cpu::GuardArgs),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        QueueCommand::Apply(args) => apply::run(&args),
        QueueCommand::Change(args) => change::run(&args),
        QueueCommand::Show(args) => show::run(&args),
        QueueCommand::Run(args) => run::run(&args),
        QueueCommand::Metrics(args) => metrics::run(&args),
        QueueCommand::Install(args) => install::run(&args),
        QueueCommand::Uninstall(args) => install::uninstall(&args),
        QueueCommand::Clear(args) => clear::run(&args),
        QueueCommand::Cpu(args) => cpu::run(&args),
        QueueCommand::CpuGuard(args) => cpu::guard(&args),
        QueueCommand::Simulate(args) => simulate::run(&args),
        QueueCommand::Interpose(args) => interpose::run(&args),
        QueueCommand::Broker(args) => broker::run(&args),
        QueueCommand::Disk(args) => disk::run(&args),
        QueueCommand::Guard(args) => guard::run(&args),
    }
}
