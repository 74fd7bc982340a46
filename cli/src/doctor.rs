//! `unisono doctor`.

use crate::exit::Failure;
use std::process::ExitCode;

/// Say what this host supports, and if not why, and what to do
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> anyhow::Result<ExitCode> {
    Err(Failure::Host("this build has no `doctor` command yet".into()).into())
}
