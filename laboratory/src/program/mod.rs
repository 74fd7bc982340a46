//! `unisono-laboratory workload`: the processes that the laboratory's studies start, in addition to those of
//! `unisono workload`. Each file here parses arguments; `workload` does the work.

mod monitor;
mod rival;
mod service;
mod traffic;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// The programs that the laboratory's studies measure
#[derive(Parser)]
#[command(name = "unisono-laboratory workload")]
pub struct WorkloadProgram {
    #[command(subcommand)]
    which: LaboratoryWorkload,
}

#[derive(Subcommand)]
enum LaboratoryWorkload {
    Monitor(monitor::Args),
    Rival(rival::Args),
    Service(service::Args),
    Traffic(traffic::Args),
}

/// Returns the laboratory's workload on this command line, or `None` if it names another command.
#[must_use]
pub fn asked_for() -> Option<WorkloadProgram> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [command, workload, ..] = &*arguments else { return None };
    let is_own = command == "workload" && LaboratoryWorkload::has_subcommand(workload.to_str()?);
    is_own.then(|| WorkloadProgram::parse_from(arguments))
}

impl WorkloadProgram {
    #[must_use]
    pub fn run(&self) -> ExitCode {
        unisono_cli::code(match &self.which {
            LaboratoryWorkload::Monitor(args) => monitor::run(args),
            LaboratoryWorkload::Rival(args) => rival::run(args),
            LaboratoryWorkload::Service(args) => service::run(args),
            LaboratoryWorkload::Traffic(args) => traffic::run(args),
        })
    }
}
