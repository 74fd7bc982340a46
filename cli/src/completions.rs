//! `unisono completions SHELL`: prints a completion script.

use clap_complete::Shell;
use std::process::ExitCode;

/// Print the completion script of a shell
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  unisono completions bash > /etc/bash_completion.d/unisono
  unisono completions zsh  > ~/.zfunc/_unisono
  unisono completions fish > ~/.config/fish/completions/unisono.fish")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &Args, program: &mut clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, program, "unisono", &mut script);
    crate::output::answer(String::from_utf8(script)?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}
