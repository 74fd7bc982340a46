//! `cargo xtask package`: makes the packages for users in `dist/`, which can be put on any download page as
//! it is.
//!
//! ```text
//! build for glibc 2.28 (zig)  ->  staged files (`cargo xtask install`)  ->  tarball, deb, rpm
//!                             \->  wheel: program, library, Python package
//! static build of one command ->  container: unisono-fit and its Containerfile
//! of all:  source archive, SHA256SUMS, licences of all parts, CycloneDX SBOM; SIGNING.txt says how to sign
//! ```
//! All packages are made for each [`TargetProcessor`] whose standard library of Rust is installed; `--target`
//! selects one. Two builds of a commit should be equal byte for byte, also in different folders: paths are
//! replaced, all times are the time of the commit, and the tools have fixed versions. [`mod@again`] compares
//! two builds. The packages are tried in fresh roots by `cargo xtask nightly packages` ([`mod@trial`]).
//!
//! Read `release.rs` first, then a kind of package.

mod again;
mod checksums;
mod container;
mod deb;
mod documents;
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
pub(crate) use documents::PACKAGED_DOCUMENTS;
pub(crate) use targets::check_targets;
pub(crate) use trial::trial;

use crate::step::StepVerdict;
use crate::summary::StepSummary;
use anyhow::{Context, bail, ensure};
use processor::{TargetProcessor, has_standard_library, missing_library};
use release::{Release, ReleaseSource};
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

/// The packages to make, and the directory for them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PackageOptions {
    kinds: Vec<PackageKind>,
    /// The processors that are asked for. If empty: this machine's, and each other one whose standard library
    /// is installed.
    processors: Vec<TargetProcessor>,
    dist: PathBuf,
}

impl PackageOptions {
    /// Returns the options for all packages that can be made here.
    pub(crate) fn all(dist: PathBuf) -> Self {
        Self { kinds: PackageKind::ALL.to_vec(), processors: Vec::new(), dist }
    }

    /// Reads `--only KIND` and `--target TARGET`, which may be repeated, and `--out DIR`.
    pub(crate) fn parse(words: &[&str]) -> anyhow::Result<Self> {
        let mut options = Self { kinds: Vec::new(), ..Self::all(workspace().join("dist")) };
        for pair in words.chunks(2) {
            match *pair {
                ["--only", name] => {
                    let kind = PackageKind::ALL.into_iter().find(|kind| kind.name() == name);
                    let names = PackageKind::ALL.map(PackageKind::name).join(", ");
                    options.kinds.push(
                        kind.with_context(|| format!("there is no package {name}; there are {names}"))?,
                    );
                }
                ["--target", target] => {
                    let all = TargetProcessor::ALL;
                    let processor = all.into_iter().find(|processor| processor.target() == target);
                    let targets = all.map(TargetProcessor::target).join(" and ");
                    options.processors.push(
                        processor.with_context(|| {
                            format!("no packages are made for {target}, only for {targets}")
                        })?,
                    );
                }
                ["--out", directory] => options.dist = std::path::absolute(directory).context("--out")?,
                _ => bail!("--only KIND, --target TARGET and --out DIR are known; {:?} is none", pair[0]),
            }
        }
        if options.kinds.is_empty() {
            options.kinds = PackageKind::ALL.to_vec();
        }
        Ok(options)
    }

    /// Returns the processors to build for, the first one first, and whether a missing standard library is an
    /// error: it is if the processor is asked for.
    fn chosen(&self) -> (Vec<TargetProcessor>, MissingLibrary) {
        match self.processors.is_empty() {
            true => (TargetProcessor::ALL.to_vec(), MissingLibrary::Skips),
            false => (self.processors.clone(), MissingLibrary::Fails),
        }
    }
}

/// What follows if Rust's standard library for a processor is not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingLibrary {
    Skips,
    Fails,
}

impl MissingLibrary {
    fn verdict(self, target: &str) -> StepVerdict {
        match self {
            Self::Skips => StepVerdict::skipped(missing_library(target)),
            Self::Fails => StepVerdict::failed(missing_library(target)),
        }
    }
}

/// Builds the programs and makes the packages. Returns whether all were made.
pub(crate) fn run(options: &PackageOptions) -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    let (processors, missing) = options.chosen();
    let (mut source, mut first) = (None, None);
    summary.step("the commit", || {
        StepVerdict::from_result(ReleaseSource::prepare(&options.dist).map(|prepared| {
            let line = format!("its time is {}", prepared.epoch);
            source = Some(prepared);
            line
        }))
    });
    if let Some(source) = &source {
        for processor in processors {
            let release = build_for(&mut summary, source, processor, missing, first.as_ref())?;
            if let Some(release) = release {
                make_kinds(&mut summary, &release, missing, &options.kinds)?;
                first.get_or_insert(release);
            }
        }
    }
    if let Some(release) = &first {
        summary.step("licences, SBOM, checksums", || StepVerdict::from_result(checksums::write_all(release)));
    }
    Ok(summary.conclude())
}

/// Builds the release for a processor. Returns nothing if it is not built.
fn build_for(
    summary: &mut StepSummary,
    source: &ReleaseSource,
    processor: TargetProcessor,
    missing: MissingLibrary,
    earlier: Option<&Release>,
) -> anyhow::Result<Option<Release>> {
    let name = format!("build for {}", processor.name());
    if !has_standard_library(processor.target())? {
        summary.step(&name, || missing.verdict(processor.target()));
        return Ok(None);
    }
    let mut release = None;
    summary.step(&name, || {
        let built = source.build_for(processor, earlier);
        let checked = built.and_then(|built| Ok((glibc::check(&built)?, built)));
        StepVerdict::from_result(checked.map(|(answer, built)| {
            release = Some(built);
            answer
        }))
    });
    Ok(release)
}

/// Makes the packages of a built release, the static program only if a standard library for it is installed.
fn make_kinds(
    summary: &mut StepSummary,
    release: &Release,
    missing: MissingLibrary,
    kinds: &[PackageKind],
) -> anyhow::Result<()> {
    let processor = release.processor;
    for kind in kinds {
        let has_library = *kind != PackageKind::Container || StaticLibrary::installed(processor)?.is_some();
        summary.step(&format!("{} for {}", kind.name(), processor.name()), || match has_library {
            true => StepVerdict::from_result(kind.make(release).and_then(|file| described(&file))),
            false => missing.verdict(processor.static_target()),
        });
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

/// Runs a command and returns its standard output. The error has the command's name and its standard error.
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
        let kinds = vec![PackageKind::Deb, PackageKind::Wheel];
        assert_eq!(two, PackageOptions { kinds, ..PackageOptions::all("/tmp/d".into()) });
        for wrong in [&["--only", "msi"][..], &["--only"], &["wheel"], &["--target", "aarch64"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_processor_that_is_asked_for_is_not_skipped() {
        let chosen = |words: &[&str]| PackageOptions::parse(words).expect("known").chosen();
        assert_eq!(chosen(&[]), (TargetProcessor::ALL.to_vec(), MissingLibrary::Skips));
        let target = "aarch64-unknown-linux-gnu";
        assert_eq!(chosen(&["--target", target]), (vec![TargetProcessor::Aarch64], MissingLibrary::Fails));
        let verdict = MissingLibrary::Fails.verdict(target);
        assert!(
            verdict.failed == 1 && verdict.failures[0].contains("rustup target add"),
            "{:?}",
            verdict.failures
        );
    }
}
