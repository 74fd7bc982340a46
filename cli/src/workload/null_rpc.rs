//! `unisono workload null-rpc`: the server or the client of the null RPC study.

use crate::flags::one_of;
use std::path::PathBuf;
use std::process::ExitCode;
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
    let scene: ConversationScene = super::scene(&args.scene)?;
    write_result(&args.result, &serde_json::to_string(&null_rpc::run(&scene, args.end)?)?)?;
    Ok(ExitCode::SUCCESS)
}
