//! The test that two builds are equal (`cargo xtask nightly packages-equal`). It compares the packages of
//! this tree with the packages of a clone of it in another folder with another target directory.

use super::{PackageOptions, run, run_quietly, toolchain};
use crate::step::{StepVerdict, TimedStep};
use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use unisono_host_tests::program::{cargo, workspace};

/// Makes the packages twice, and compares their checksums.
pub(crate) fn again() -> StepVerdict {
    let changed = run_quietly(Command::new("git").args(["status", "--porcelain"]).current_dir(workspace()));
    if !changed.is_ok_and(|changed| changed.is_empty()) {
        return StepVerdict::skipped("the tree is not that of a commit: a clone would have other files");
    }
    match different_files() {
        Ok(files) if files.is_empty() => StepVerdict::passed(1),
        Ok(files) => StepVerdict::failed(format!("another folder makes other files: {}", files.join(", "))),
        Err(error) => StepVerdict::failed(format!("{error:#}")),
    }
}

fn different_files() -> anyhow::Result<Vec<String>> {
    let one = toolchain::directory().join("one");
    ensure!(run(&PackageOptions::all(one.clone()))?, "no packages");
    let elsewhere = tempfile::tempdir().context("a temporary directory")?;
    let (clone, other) = (elsewhere.path().join("a clone"), elsewhere.path().join("other"));
    run_quietly(Command::new("git").args(["clone", "--quiet"]).arg(workspace()).arg(&clone))?;
    let mut package = cargo();
    package.args(["xtask", "package", "--out"]).arg(&other).current_dir(&clone);
    package.env("CARGO_TARGET_DIR", elsewhere.path().join("target"));
    ensure!(TimedStep::new("cargo xtask package", package).succeeds(), "no packages in another folder");
    Ok(difference(&sums(&one)?, &sums(&other)?))
}

fn sums(dist: &Path) -> anyhow::Result<String> {
    fs::read_to_string(dist.join("SHA256SUMS")).context("SHA256SUMS")
}

/// Returns the names of the files whose checksums differ, or that one list lacks.
fn difference(one: &str, other: &str) -> Vec<String> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (one, other) = (lines(one), lines(other));
    let name = |line: &String| line.split_whitespace().next_back().unwrap_or_default().to_owned();
    one.symmetric_difference(&other).map(name).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_checksum_and_a_missing_file_are_differences() {
        let one = "00  a.deb\n11  b.whl\n";
        assert_eq!(difference(one, one), Vec::<String>::new());
        assert_eq!(difference(one, "00  a.deb\n12  b.whl\n22  c.rpm\n"), ["b.whl", "c.rpm"]);
    }
}
