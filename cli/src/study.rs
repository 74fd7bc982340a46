//! `unisono study`.

use crate::exit::Failure;
use std::process::ExitCode;

/// Measure what waiting costs here and which mechanism is worth it
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> anyhow::Result<ExitCode> {
    Err(Failure::Host("this build has no `study` command yet".into()).into())
}
