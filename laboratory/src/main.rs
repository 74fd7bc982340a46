//! `unisono-laboratory`: the program `unisono` with the studies of the papers, and the programs that they
//! measure.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use unisono_laboratory::{add_studies, program};

fn main() -> ExitCode {
    add_studies();
    match program::asked_for() {
        Some(workload) => workload.run(),
        None => unisono_cli::main(),
    }
}
