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

use clap::Parser;

/// Run a program with as many threads as there really are processors: `unisono fit` alone
#[derive(Parser)]
#[command(name = "unisono-fit", version)]
struct FitAlone {
    #[command(flatten)]
    fit: fit::Args,
}

fn main() -> std::process::ExitCode {
    exit::code(fit::run(&FitAlone::parse().fit))
}
