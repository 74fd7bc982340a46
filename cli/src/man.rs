//! `unisono man DIR`: writes manual pages.

use anyhow::Context;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the manual pages, one for each command, into a directory
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  unisono man ~/.local/share/man/man1     then: man unisono-gang-run
  unisono man .                           then: man ./unisono-tree-plan.1")]
pub(crate) struct Args {
    /// The directory for the pages; it is made if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(args: &Args, program: clap::Command) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    clap_mangen::generate_to(program, directory)
        .with_context(|| format!("cannot write manual pages into {}", directory.display()))?;
    crate::output::answer(&format!("manual pages: {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
