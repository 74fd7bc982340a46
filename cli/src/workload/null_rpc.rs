//! `unisono workload null-rpc`: the server or the client of the null RPC study.

use crate::exit::Failure;
use crate::flags::one_of;
use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_linux::parent_death::die_with_parent;
use unisono_linux::read;
use unisono_workload::conversation::{ConversationEnd, ConversationScene, null_rpc};
use unisono_workload::options::write_result;

/// Be the server or the client of a scene
#[derive(clap::Args)]
pub(super) struct Args {
    /// The scene, in JSON
    #[arg(long, value_name = "FILE")]
    scene: PathBuf,
    /// The end of the conversation
    #[arg(long, value_parser = one_of(&ConversationEnd::ALL))]
    end: ConversationEnd,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    result: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    die_with_parent(None)?;
    let place = args.scene.display();
    let text = read::text(&args.scene, read::HAND_WRITTEN).with_context(|| format!("cannot read {place}"))?;
    let scene: ConversationScene = serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("{place} is no scene: {error}")))?;
    write_result(&args.result, &serde_json::to_string(&null_rpc::run(&scene, args.end)?)?)?;
    Ok(ExitCode::SUCCESS)
}
