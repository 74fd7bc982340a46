//! The `unisono` program: arguments and words only. Each subcommand is one file with an `Args` type
//! and a `run` function; what it does lives in the crates.
//!
//! Exit codes: 0 done; 1 the work failed; 2 bad usage or bad input; 3 this host cannot do it.
#![forbid(unsafe_code)]

mod barrier;
mod doctor;
mod exit;
mod flags;
mod gang;
mod output;
mod report;
mod study;
mod workload;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Keep parallel programs in step on machines they have to share.
#[derive(Parser)]
#[command(
    name = "unisono",
    version,
    about,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Doctor(doctor::Args),
    Study(study::Args),
    Report(report::Args),
    Barrier(Box<barrier::Args>),
    Gang(gang::Args),
    #[command(hide = true)]
    Workload(Box<workload::Args>),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Doctor(args) => doctor::run(args),
        Command::Study(args) => study::run(args),
        Command::Report(args) => report::run(args),
        Command::Barrier(args) => barrier::run(*args),
        Command::Gang(args) => gang::run(args),
        Command::Workload(args) => workload::run(*args),
    };
    exit::code(result)
}
