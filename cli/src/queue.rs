//! `unisono queue`: start-time fair queuing. Each subcommand is one file.

mod simulate;

use clap::Subcommand;
use std::process::ExitCode;

/// Share a link by weights, with start-time fair queuing
///
/// Who gets which share of a link, and who gets what others leave: classes with weights, classes within
/// classes. What a class does not use goes to its siblings in proportion to their weights, then to the rest.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: QueueCommand,
}

#[derive(Subcommand)]
enum QueueCommand {
    Simulate(simulate::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        QueueCommand::Simulate(args) => simulate::run(&args),
    }
}
