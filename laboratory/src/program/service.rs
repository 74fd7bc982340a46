//! `unisono-laboratory workload service`: the server or the client of an application of the middleware study.

use crate::workload::service::ServiceScene;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_cli::one_of;
use unisono_workload::conversation::ConversationEnd;
use unisono_workload::options::write_result;

/// Be the server or the client of a scene
#[derive(clap::Args)]
pub(super) struct Args {
    /// The scene, in JSON
    #[arg(long, value_name = "FILE")]
    scene: PathBuf,
    /// Which end to be
    #[arg(long, value_parser = one_of(&ConversationEnd::ALL))]
    end: ConversationEnd,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    result: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scene: ServiceScene = unisono_cli::scene(&args.scene)?;
    write_result(&args.result, &serde_json::to_string(&scene.run(args.end)?)?)?;
    Ok(ExitCode::SUCCESS)
}
