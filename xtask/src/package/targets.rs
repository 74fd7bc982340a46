//! The check that the sources compile for the other targets of packages (`cargo xtask nightly targets`):
//! another processor has other types (`c_char`), system calls and intrinsics, and musl other functions.

use super::processor::{TargetProcessor, has_standard_library, missing_library};
use super::toolchain::cargo_with_zig;
use crate::step::{StepVerdict, TimedStep};
use unisono_host_tests::program::target;

/// Checks the workspace with its tests for other processors, and the static program for musl, as far as the
/// standard libraries are installed. The other targets are skipped.
pub(crate) fn check_targets() -> StepVerdict {
    let mut verdict = StepVerdict::default();
    for processor in TargetProcessor::ALL {
        if processor.name() != std::env::consts::ARCH {
            verdict.add(check(processor.target(), &["--workspace", "--tests"]));
        }
        verdict.add(check(processor.static_target(), &["--package", "unisono-fit-alone"]));
    }
    verdict
}

fn check(triple: &str, sources: &[&str]) -> StepVerdict {
    match has_standard_library(triple) {
        Ok(true) => {}
        Ok(false) => return StepVerdict::skipped(missing_library(triple)),
        Err(error) => return StepVerdict::failed(format!("{error:#}")),
    }
    let mut cargo = match cargo_with_zig("check") {
        Ok(cargo) => cargo,
        Err(error) => return StepVerdict::failed(format!("{error:#}")),
    };
    cargo.arg("--locked").args(sources).args(["--target", triple]);
    cargo.env("CARGO_TARGET_DIR", target().join("package/targets"));
    TimedStep::new(triple, cargo).verdict(format!("the sources do not compile for {triple}"))
}
