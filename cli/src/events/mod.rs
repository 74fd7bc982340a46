//! `unisono events`: the real-time event channel. Each subcommand is one file.

mod bench;
mod first_client;
mod flags;
mod hz;
mod limits;
mod log;
mod metrics;
mod policy;
mod publish;
mod record;
mod reload;
mod replay;
mod reply;
mod request;
mod serve;
mod settings;
mod show;
mod subscribe;
mod sweep;
mod take_over;
mod top;
mod user;
mod web;

use clap::Subcommand;
use std::process::ExitCode;

/// Publish and subscribe, with deadlines and shares
///
/// Programs publish events of topics. The broker sends each event to the consumers that subscribed to its
/// topic. Each consumer belongs to a class of the broker's policy. Within a class, the event with the
/// earliest deadline goes first; classes share the broker's time by weight. The events of a slow, stopped or
/// dead consumer wait in its own queue; it delays a supplier only if it chose `--full block-supplier`.
///
/// A consumer may ask that each event is delivered within a time (`subscribe --period --execution --due`). If
/// the broker cannot promise that, it refuses the subscription and says how much of the time is missing.
///
/// `serve` makes sockets and, with --log, a directory. It changes nothing else on the host and needs no
/// privilege. Started by root, it becomes a user that owns nothing once it listens (`serve --user`).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono events serve                                 the broker, until Ctrl-C
  unisono events subscribe 'plant/+/heat' --filter 'celsius > 80'
  unisono events publish plant/1/heat --field celsius=81.5 --deadline 5ms hot
  unisono events bench                                 what an event costs here")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Subcommand)]
enum EventsCommand {
    Serve(serve::Args),
    Publish(publish::Args),
    Subscribe(Box<subscribe::Args>),
    Request(request::Args),
    Reload(reload::Args),
    Top(top::Args),
    Hz(hz::Args),
    Record(record::Args),
    Replay(replay::Args),
    Bench(bench::Args),
    #[command(hide = true)]
    Sweep(sweep::Args),
}

pub(crate) use flags::in_words;
pub(crate) use policy::mode;
pub(crate) use serve::serve;
pub(crate) use settings::SettingsFiles;
pub(crate) use user::{NextUser, leave_root};

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        EventsCommand::Serve(args) => serve::run(&args),
        EventsCommand::Publish(args) => publish::run(&args),
        EventsCommand::Subscribe(args) => subscribe::run(&args),
        EventsCommand::Request(args) => request::run(&args),
        EventsCommand::Reload(args) => reload::run(&args),
        EventsCommand::Top(args) => top::run(&args),
        EventsCommand::Hz(args) => hz::run(&args),
        EventsCommand::Record(args) => record::run(&args),
        EventsCommand::Replay(args) => replay::run(&args),
        EventsCommand::Bench(args) => bench::run(&args),
        EventsCommand::Sweep(args) => sweep::run(&args),
    }
}
