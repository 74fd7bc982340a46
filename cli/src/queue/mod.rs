//! `unisono queue`: start-time fair queuing. Each subcommand is one file.

mod apply;
pub(crate) mod broker;
mod clear;
mod cpu;
mod failure;
mod install;
mod interpose;
mod metrics;
mod show;
mod side;
mod simulate;
mod units;
mod view;

use clap::Subcommand;
use std::process::ExitCode;

/// Share a link by weights, with start-time fair queuing
///
/// Who gets which share of a link, and who gets what others leave: classes with weights, classes within
/// classes. What a class does not use goes to its siblings in proportion to their weights, then to the rest.
/// Write a policy, apply it to a device, watch it hold, and clear it: programs need to know nothing of it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue apply policy.toml --check              nothing is changed
  sudo unisono queue apply policy.toml --dev eth0
  sudo unisono queue show                              rates, shares, drops, delays: live
  sudo unisono queue clear                             every device as it was before")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Subcommand)]
enum QueueCommand {
    Apply(apply::Args),
    Show(show::Args),
    Metrics(metrics::Args),
    Install(install::Args),
    Uninstall(install::UninstallArgs),
    Clear(clear::Args),
    Cpu(cpu::Args),
    Simulate(simulate::Args),
    Broker(broker::Args),
    #[command(hide = true)]
    Interpose(interpose::Args),
    #[command(hide = true)]
    Guard(cpu::GuardArgs),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        QueueCommand::Apply(args) => apply::run(&args),
        QueueCommand::Show(args) => show::run(&args),
        QueueCommand::Metrics(args) => metrics::run(&args),
        QueueCommand::Install(args) => install::run(&args),
        QueueCommand::Uninstall(args) => install::uninstall(&args),
        QueueCommand::Clear(args) => clear::run(&args),
        QueueCommand::Cpu(args) => cpu::run(&args),
        QueueCommand::Guard(args) => cpu::guard(&args),
        QueueCommand::Simulate(args) => simulate::run(&args),
        QueueCommand::Interpose(args) => interpose::run(&args),
        QueueCommand::Broker(args) => broker::run(&args),
    }
}
