//! `unisono barrier`.

use crate::exit::Failure;
use std::process::ExitCode;

/// Measure one barrier
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> anyhow::Result<ExitCode> {
    Err(Failure::Host("this build has no `barrier` command yet".into()).into())
}
