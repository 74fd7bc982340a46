//! `unisono report`.

use crate::exit::Failure;
use std::process::ExitCode;

/// Redraw the report from a study's records
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> anyhow::Result<ExitCode> {
    Err(Failure::Host("this build has no `report` command yet".into()).into())
}
