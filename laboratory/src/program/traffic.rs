//! `unisono-laboratory workload traffic`: one sender, or the receiver, of classes that share a link.

use crate::workload::traffic::{self, Scene};
use anyhow::Context as _;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_cli::Failure;
use unisono_linux::parent_death::die_with_parent;
use unisono_linux::read;
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
    die_with_parent(None)?;
    let place = args.scene.display();
    let text = read::text(&args.scene, read::HAND_WRITTEN).with_context(|| format!("cannot read {place}"))?;
    let scene: Scene = serde_json::from_str(&text)
        .map_err(|error| Failure::Usage(format!("{place} is no scene: {error}")))?;
    let json = match args.source {
        Some(source) => serde_json::to_string(&traffic::send(&scene, source)?)?,
        None => serde_json::to_string(&traffic::receive(&scene)?)?,
    };
    write_result(&args.result, &json)?;
    Ok(ExitCode::SUCCESS)
}
