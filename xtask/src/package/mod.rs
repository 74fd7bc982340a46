//! `cargo xtask package`: makes the packages for users in `dist/`, which can be put on any download page as
//! it is.
//!
//! ```text
//! build for glibc 2.28 (zig)  ->  staged files (`cargo xtask install`)  ->  tarball, deb, rpm
//!                             \->  wheel: program, library, Python package
//! static build of one command ->  container: unisono-fit and its Containerfile
//! of all:  SHA256SUMS, licences of all parts, CycloneDX SBOM; SIGNING.txt says how a maintainer signs
//! ```
//! All packages are made for x86-64, and for each other [`TargetProcessor`] if Rust's standard library for it
//! is installed. Two builds of a commit should be equal byte for byte, also in different folders: paths are
//! replaced, all times are the time of the commit, and the tools have fixed versions. [`mod@again`] compares
//! two builds. The packages are tried in fresh roots by `cargo xtask nightly packages` ([`mod@trial`]).
//!
//! Read `release.rs` first, then a kind of package.

mod again;
mod checksums;
mod container;
mod deb;
mod glibc;
mod parts;
mod processor;
mod release;
mod rpm;
mod sbom;
mod tarball;
mod targets;
mod toolchain;
mod trial;
mod wheel;

pub(crate) use again::again;
pub(crate) use targets::check_targets;
pub(crate) use trial::trial;

use crate::step::StepVerdict;
use crate::summary::StepSummary;
use anyhow::{Context, bail, ensure};
use processor::{TargetProcessor, has_standard_library, missing_library};
use release::Release;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use toolchain::StaticLibrary;
use unisono_host_tests::program::workspace;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackageKind {
    Tarball,
    Wheel,
    Deb,
    Rpm,
    /// The static `unisono-fit` for container images.
    Container,
}

impl PackageKind {
    const ALL: [Self; 5] = [Self::Tarball, Self::Wheel, Self::Deb, Self::Rpm, Self::Container];

    fn name(self) -> &'static str {
        match self {
            Self::Tarball => "tarball",
            Self::Wheel => "wheel",
            Self::Deb => "deb",
            Self::Rpm => "rpm",
            Self::Container => "container",
        }
    }

    /// Makes the package. Returns the path of its file in `dist`.
    fn make(self, release: &Release) -> anyhow::Result<PathBuf> {
        match self {
            Self::Tarball => tarball::make(release),
            Self::Wheel => wheel::make(release),
            Self::Deb => deb::make(release),
            Self::Rpm => rpm::make(release),
            Self::Container => container::make(release),
        }
    }
}

/// The kinds of packages to make, and the directory for them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PackageOptions {
    kinds: Vec<PackageKind>,
    dist: PathBuf,
}

impl PackageOptions {
    /// Reads `--only KIND`, which may be repeated, and `--out DIR`.
    pub(crate) fn parse(words: &[&str]) -> anyhow::Result<Self> {
        let (mut kinds, mut dist) = (Vec::new(), workspace().join("dist"));
        for pair in words.chunks(2) {
            match *pair {
                ["--only", name] => {
                    let kind = PackageKind::ALL.into_iter().find(|kind| kind.name() == name);
                    let names = PackageKind::ALL.map(PackageKind::name).join(", ");
                    kinds.push(
                        kind.with_context(|| format!("there is no package {name}; there are {names}"))?,
                    );
                }
                ["--out", directory] => dist = std::path::absolute(directory).context("--out")?,
                _ => bail!("--only KIND and --out DIR are known; {:?} is neither", pair[0]),
            }
        }
        if kinds.is_empty() {
            kinds = PackageKind::ALL.to_vec();
        }
        Ok(Self { kinds, dist })
    }
}

/// Builds the programs and makes the packages. Returns whether all were made.
pub(crate) fn run(options: &PackageOptions) -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    let mut release = None;
    summary.step("build", || {
        let built = Release::build(&options.dist);
        let checked = built.and_then(|built| Ok((glibc::check(&built)?, built)));
        StepVerdict::from_result(checked.map(|(answer, built)| {
            release = Some(built);
            answer
        }))
    });
    if let Some(release) = &release {
        make_kinds(&mut summary, release, &options.kinds);
        for processor in TargetProcessor::ALL.into_iter().filter(|other| *other != release.processor) {
            run_for(&mut summary, release, processor, &options.kinds)?;
        }
        summary.step("licences, SBOM, checksums", || StepVerdict::from_result(checksums::write_all(release)));
    }
    Ok(summary.conclude())
}

/// Makes the packages of a built release.
fn make_kinds(summary: &mut StepSummary, release: &Release, kinds: &[PackageKind]) {
    let name = release.processor.name();
    for kind in kinds {
        summary.step(&format!("{} for {name}", kind.name()), || {
            StepVerdict::from_result(kind.make(release).and_then(|file| described(&file)))
        });
    }
}

/// Builds the release for another processor, and makes its packages, as far as Rust's standard libraries are
/// installed.
fn run_for(
    summary: &mut StepSummary,
    release: &Release,
    processor: TargetProcessor,
    kinds: &[PackageKind],
) -> anyhow::Result<()> {
    let name = processor.name();
    if !has_standard_library(processor.target())? {
        summary.step(name, || StepVerdict::skipped(missing_library(processor.target())));
        return Ok(());
    }
    let mut kinds = kinds.to_vec();
    if StaticLibrary::installed(processor)?.is_none() {
        kinds.retain(|kind| *kind != PackageKind::Container);
        summary.step(&format!("container for {name}"), || {
            StepVerdict::skipped(missing_library(processor.static_target()))
        });
    }
    let mut other = None;
    summary.step(&format!("build for {name}"), || {
        let built = release.build_for(processor);
        let checked = built.and_then(|built| Ok((glibc::check(&built)?, built)));
        StepVerdict::from_result(checked.map(|(answer, built)| {
            other = Some(built);
            answer
        }))
    });
    if let Some(other) = &other {
        make_kinds(summary, other, &kinds);
    }
    Ok(())
}

/// Returns the name and the size of a file, for people.
fn described(file: &std::path::Path) -> anyhow::Result<String> {
    let bytes = fs::metadata(file).with_context(|| file.display().to_string())?.len();
    Ok(format!(
        "{}: {:.1} MB",
        file.file_name().unwrap_or_default().to_string_lossy(),
        bytes as f64 / 1e6
    ))
}

/// Runs a command and returns its standard output. The error has the command's name and what it printed on
/// standard error.
fn run_quietly(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{name} cannot be started"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed ({}): {}", output.status, said.trim());
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_selects_kinds() {
        let parse = PackageOptions::parse;
        assert_eq!(parse(&[]).expect("all").kinds, PackageKind::ALL);
        let two = parse(&["--only", "deb", "--only", "wheel", "--out", "/tmp/d"]).expect("known");
        assert_eq!(
            two,
            PackageOptions { kinds: vec![PackageKind::Deb, PackageKind::Wheel], dist: "/tmp/d".into() }
        );
        for wrong in [&["--only", "msi"][..], &["--only"], &["wheel"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
