//! `unisono gang`.

use crate::exit::Failure;
use std::process::ExitCode;

/// Run programs as gangs
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> anyhow::Result<ExitCode> {
    Err(Failure::Host("this build has no `gang` command yet".into()).into())
}
