//! `unisono-fit`: the command `unisono fit` alone, small enough to be copied into an image of a container. It
//! is linked statically, so that it runs on every distribution (packaging/Containerfile).
#![forbid(unsafe_code)]
#![allow(rustdoc::broken_intra_doc_links, reason = "the documents of arguments are help texts")]

// the command's own files: the program `unisono` has them, too
#[path = "../../../cli/src/exit.rs"]
#[allow(dead_code, unreachable_pub, reason = "the rest of `unisono` uses more of it")]
mod exit;
#[path = "../../../cli/src/fit/mod.rs"]
#[allow(unreachable_pub, reason = "visible to the rest of `unisono`")]
mod fit;
#[path = "../../../cli/src/machine_output.rs"]
#[allow(dead_code, reason = "this program prints no tables")]
mod machine_output;
#[path = "../../../cli/src/output.rs"]
#[allow(dead_code, reason = "this program has one command of those that print")]
mod output;
#[path = "../../../cli/src/separators.rs"]
mod separators;

use anyhow::Context as _;
use clap::Parser;
use std::path::{Path, PathBuf};

/// Run a program with as many threads as there really are processors: `unisono fit` alone
#[derive(Parser)]
#[command(name = "unisono-fit", version)]
struct FitAlone {
    /// Copy this program into a folder, such as a volume that containers share; start nothing
    #[arg(long, value_name = "DIR", exclusive = true)]
    install: Option<PathBuf>,
    #[command(flatten)]
    fit: fit::Args,
}

/// Copies this program to `DIR/unisono-fit`. An image from scratch has no `cp`.
fn install(folder: &Path) -> anyhow::Result<std::process::ExitCode> {
    let (own, copy) = (std::env::current_exe()?, folder.join("unisono-fit"));
    let unfinished = folder.join(".unisono-fit.new");
    // a program that runs cannot be overwritten, but it can be replaced
    std::fs::copy(&own, &unfinished)
        .and_then(|_| std::fs::rename(&unfinished, &copy))
        .with_context(|| format!("cannot write {}", copy.display()))?;
    Ok(std::process::ExitCode::SUCCESS)
}

fn main() -> std::process::ExitCode {
    let alone = FitAlone::parse();
    exit::code(alone.install.map_or_else(|| fit::run(&alone.fit), |folder| install(&folder)))
}
