//! `unisono-laboratory workload traffic`: one sender, or the receiver, of classes that share a link.

use crate::workload::traffic::{self, Scene};
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_workload::options::write_result;

/// Send or receive one class's traffic of a scene
#[derive(clap::Args)]
pub(super) struct Args {
    /// The scene, in JSON
    #[arg(long, value_name = "FILE")]
    scene: PathBuf,
    /// Send as this source of it, from 0; without, receive
    #[arg(long, value_name = "N")]
    source: Option<usize>,
    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    result: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scene: Scene = unisono_cli::scene(&args.scene)?;
    let json = match args.source {
        Some(source) => serde_json::to_string(&traffic::send(&scene, source)?)?,
        None => serde_json::to_string(&traffic::receive(&scene)?)?,
    };
    write_result(&args.result, &json)?;
    Ok(ExitCode::SUCCESS)
}
