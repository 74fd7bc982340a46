//! `cargo xtask release --check`: checks whether this commit can be released. It changes nothing.
//!
//! The steps: the work tree is clean, all places have the same version, the changelog has a section for it,
//! the archives of the crates can be built, and the packages in `dist/` were made from this commit. Tests are
//! not run here: run `.ci/run` and `cargo xtask nightly` before.

use crate::libraries;
use crate::step::StepVerdict;
use crate::summary::StepSummary;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use unisono_host_tests::program::workspace;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The parts that this project's tests do not try, with the reason or the remedy.
const NOT_TRIED: [&str; 5] = [
    "the packages on another distribution than Debian 12: only their symbols are compared with glibc 2.28",
    "the RPM package: it is unpacked, not installed by rpm",
    "the Containerfile with the real program: buildah made it with a small program in its place",
    "the recipe for Spack: audited, not built (spack install unisono)",
    "packages on a machine with an aarch64 processor",
];

/// Runs the checks. Returns whether all passed.
pub(crate) fn check() -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    summary.step("the work tree", || StepVerdict::from_result(is_clean()));
    summary.step("the version", || StepVerdict::from_result(versions_agree(&workspace())));
    summary.step("the changelog", || {
        let text = fs::read_to_string(workspace().join("CHANGELOG.md")).context("CHANGELOG.md");
        StepVerdict::from_result(text.and_then(|text| has_section(&text, VERSION)))
    });
    summary.step("the packages", || {
        StepVerdict::from_result(packages_are_of_this_commit(&workspace().join("dist")))
    });
    summary.step("the libraries", libraries::step);
    let passed = summary.conclude();
    println!("\nnot tried by these checks; try it, or let the release's notes say that it was not tried:");
    NOT_TRIED.iter().for_each(|one| println!("  {one}"));
    if passed {
        println!(
            "\nnow: sign dist/SHA256SUMS (dist/SIGNING.txt), git tag v{VERSION}, publish dist and the crates"
        );
    }
    Ok(passed)
}

fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(arguments).current_dir(workspace()).output().context("git")?;
    ensure!(
        output.status.success(),
        "git {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn is_clean() -> anyhow::Result<String> {
    let changed = git(&["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "changed or unknown files:\n{changed}");
    Ok("it is that of the commit".to_owned())
}

/// Checks that the files that repeat the version have the workspace's version.
fn versions_agree(workspace: &Path) -> anyhow::Result<String> {
    let places = [
        ("python/pyproject.toml", format!("version = \"{VERSION}\"")),
        ("python/unisono/__init__.py", format!("__version__ = \"{VERSION}\"")),
        ("crates/join/Cargo.toml", format!("version = \"{VERSION}\"")),
        ("python/unisono/_library.py", format!("VERSION = \"{VERSION}\"")),
        ("packaging/spack/package.py", format!("version(\"{VERSION}\"")),
    ];
    for (file, line) in &places {
        let text = fs::read_to_string(workspace.join(file)).with_context(|| (*file).to_owned())?;
        ensure!(text.lines().any(|one| one.trim_start().starts_with(line)), "{file} has no line {line}");
    }
    Ok(format!("{VERSION} in Cargo.toml and {} other files", places.len()))
}

/// Checks that the first section of the changelog belongs to this version, so that no change is listed as
/// unreleased.
fn has_section(changelog: &str, version: &str) -> anyhow::Result<String> {
    let first = changelog.lines().find_map(|line| line.strip_prefix("## ")).unwrap_or("none");
    let is_it = first == version || first.starts_with(&format!("{version} "));
    ensure!(is_it, "CHANGELOG.md begins with the section {first:?}, not with {version}");
    Ok(format!("its first section is {first}"))
}

fn packages_are_of_this_commit(dist: &Path) -> anyhow::Result<String> {
    let mut sums = Command::new("sha256sum");
    let sums = sums.args(["--check", "--quiet", "SHA256SUMS"]).current_dir(dist).output();
    let sums = sums.context("there is no dist: cargo xtask package")?;
    ensure!(sums.status.success(), "dist: {}", String::from_utf8_lossy(&sums.stderr).trim());
    let unpacked = tempfile::tempdir().context("a temporary directory")?;
    let archive = dist.join(format!("unisono-{VERSION}-linux-x86_64.tar.gz"));
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(&archive).args(["--strip-components=1", "--directory"]);
    ensure!(
        tar.arg(unpacked.path()).status().context("tar")?.success(),
        "{} is no archive",
        archive.display()
    );
    let said = Command::new(unpacked.path().join("bin/unisono")).args(["--version", "--json"]).output();
    let said: Value =
        serde_json::from_slice(&said.context("the packed program")?.stdout).context("its version")?;
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    ensure!(said["commit"] == *commit, "dist is of the commit {}, not of {commit}", said["commit"]);
    Ok(format!("they are of {commit}, and their checksums are right"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_repeat_the_version_have_the_same() {
        assert!(versions_agree(&workspace()).is_ok());
        let empty = tempfile::tempdir().expect("there is room");
        assert!(versions_agree(empty.path()).is_err());
    }

    #[test]
    fn a_changelog_with_unreleased_changes_is_not_released() {
        assert!(has_section("# Changelog\n\n## 0.2.0 (2026-11-28)\n\n## 0.1.0\n", "0.2.0").is_ok());
        assert!(has_section("# Changelog\n\n## Unreleased\n\n## 0.2.0\n", "0.2.0").is_err());
        assert!(has_section("# Changelog\n\n## 0.2.01\n", "0.2.0").is_err());
    }
}
