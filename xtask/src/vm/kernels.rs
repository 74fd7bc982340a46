//! `cargo xtask vm --kernels`: runs tests of the crates that read the kernel's files and records on several
//! kernels of Debian, each in a virtual machine.
//!
//! `/proc`, control groups, perf records, netlink messages and the kernel's types in BTF differ between
//! kernels, and a reader that was tried on one kernel may assume too much. The tests are the unit and
//! command-line tests that `cargo xtask test` runs on this machine's kernel. They find their files at the
//! same paths as here: programs, sources and a few commands are copied into the machine.
//!
//! Cost: for each kernel once 16 MB of package lists and 27 to 37 MB of packages; then some minutes on an
//! emulated machine. When not to use it: a test that needs a compiler, Python or an MPI is skipped there.

use super::accelerator::Accelerator;
use super::image::Image;
use super::kernel::{NEWEST_SUITE, UnpackedKernel};
use super::{Processors, VmUnavailable, artifacts, boot, check_host, guest, machine, qemu};
use crate::step::StepVerdict;
use crate::summary::StepSummary;
use anyhow::Context;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_host_tests::program::{target, workspace};

/// The suites whose kernels are used, the oldest kernel first: 6.1, 6.12 and the newest one.
const SUITES: [&str; 3] = ["bookworm", "bookworm-backports", NEWEST_SUITE];
/// The test programs that run.
const TESTS: [ReaderTest; 8] = [
    test("crates/linux", "unisono_linux"),
    test("crates/sync", "unisono_sync"),
    test("crates/gang", "unisono_gang"),
    test("crates/fit", "unisono_fit"),
    test("crates/advise", "unisono_advise"),
    test("crates/enforce", "unisono_enforce"),
    test("cli", "unisono_cli"),
    // of the others some start compilers, and most read nothing of the kernel
    ReaderTest {
        words: &["advise::", "barrier::", "queue_install::", "transcripts::"],
        ..test("cli", "commands")
    },
];
/// Directories whose files the tests read, beside the directories of the packages.
const READ_BY_TESTS: [&str; 2] = ["docs", "examples"];
/// Files of the system that tests read.
const SYSTEM_FILES: [&str; 3] = ["/etc/passwd", "/etc/group", "/etc/os-release"];
/// Programs that tests start.
const COMMANDS: [&str; 25] = [
    "bash", "cat", "chrt", "echo", "env", "false", "head", "kill", "ls", "mkdir", "mkfifo", "nice", "nproc",
    "renice", "rmdir", "sed", "seq", "sh", "sleep", "taskset", "timeout", "touch", "tr", "true", "yes",
];
/// The limit for the tests on one kernel: generous, because only a hang should reach it.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// A test program of a package, and the tests of it that run: those whose names contain any of the words, or
/// all if there are no words.
#[derive(Clone, Copy)]
struct ReaderTest {
    /// The directory of the package.
    package: &'static str,
    name: &'static str,
    words: &'static [&'static str],
}

const fn test(package: &'static str, name: &'static str) -> ReaderTest {
    ReaderTest { package, name, words: &[] }
}

/// Runs the tests on the kernels of the suites among the words, or of all suites. Other words select the
/// tests whose names contain one of them. Returns whether all passed.
pub(crate) fn run(words: &[&str]) -> anyhow::Result<bool> {
    let (suites, filters): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| SUITES.contains(word));
    let suites = if suites.is_empty() { SUITES.to_vec() } else { suites };
    let mut summary = StepSummary::default();
    for suite in suites {
        let name = format!("the kernel of Debian {suite}, in a virtual machine");
        summary.step(&name, || verdict(test_on(suite, &filters)));
    }
    Ok(summary.conclude())
}

/// Runs all tests on the kernels of all suites, as a step among others.
pub(crate) fn step() -> StepVerdict {
    let mut all = StepVerdict::default();
    SUITES.iter().for_each(|suite| all.add(verdict(test_on(suite, &[]))));
    all
}

fn verdict(tested: Result<StepVerdict, VmUnavailable>) -> StepVerdict {
    tested.unwrap_or_else(VmUnavailable::verdict)
}

fn test_on(suite: &str, filters: &[&str]) -> Result<StepVerdict, VmUnavailable> {
    check_host(&[])?;
    let kept = target().join("vm");
    let kernel =
        UnpackedKernel::get(&kept, suite).map_err(|error| VmUnavailable::Skip(format!("{error:#}")))?;
    println!("Linux {}", kernel.release);
    let image = image(&kernel, filters)?;
    let accelerator = Accelerator::choose(&kernel);
    // emulated by QEMU 7.2, Linux 6.12 crashes at the start (double fault behind `cmpxchg16b`); the QEMU for
    // fair processors is newer
    let qemu = qemu(Processors::Fair, accelerator, &kept).map_err(|why| {
        VmUnavailable::Skip(format!("Linux {}: no QEMU that starts it; {why:#}", kernel.release))
    })?;
    let machine = machine(&qemu, &kernel, accelerator.arguments(Processors::Any));
    let mut verdict = boot(machine, &image, KERNEL_TIMEOUT)?;
    for line in verdict.failures.iter_mut().chain(&mut verdict.skipped) {
        *line = format!("Linux {}: {line}", kernel.release);
    }
    Ok(verdict)
}

/// Builds the file system of a machine that runs the tests.
fn image(kernel: &UnpackedKernel, filters: &[&str]) -> Result<Vec<u8>, VmUnavailable> {
    let mut image = Image::default();
    let own = std::env::current_exe().context("where this program is")?;
    image.program("/init", &own)?;
    image.commands(&COMMANDS)?;
    let root = workspace().canonicalize().context("where the sources are")?;
    let packages = TESTS.iter().map(|test| test.package).chain(READ_BY_TESTS);
    for directory in packages.collect::<BTreeSet<_>>() {
        image.directory(&root.join(directory))?;
    }
    image.modules(kernel)?;
    for file in SYSTEM_FILES {
        image.file(file, &std::fs::read(file).with_context(|| format!("read {file}"))?);
    }
    // tests write into the target directory's `tmp`
    let target = target().canonicalize().context("the target directory")?;
    image.file(&format!("{}/empty", text(&target.join("tmp"))?), b"");
    let built = artifacts(&["--workspace", "--lib", "--bins", "--tests"])?;
    let mut commands = String::new();
    for ReaderTest { package, name, words } in TESTS {
        let directory = root.join(package);
        for artifact in built.iter().filter(|artifact| artifact.package == directory) {
            let path = text(&artifact.executable)?;
            if !artifact.is_test {
                image.program(path, &artifact.executable)?;
            } else if artifact.name == name {
                image.program(path, &artifact.executable)?;
                let words = if filters.is_empty() { words } else { filters };
                // tests run in the directory of their package, as cargo runs them
                let start = ["env", "--chdir", text(&directory)?, path, "--show-output"];
                commands.push_str(&[&start, words].concat().join("\n"));
                commands.push_str("\n\n");
            }
        }
    }
    image.file(guest::COMMANDS, commands.as_bytes());
    // an emulated processor is slow: property tests try few cases
    let environment = "PATH=/bin\nHOME=/tmp\nRUST_BACKTRACE=1\nPROPTEST_CASES=8\n";
    image.file(guest::ENVIRONMENT, environment.as_bytes());
    Ok(image.finish())
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is no text", path.display()))
}

/// A program that cargo has built.
pub(super) struct Artifact {
    pub(super) name: String,
    /// The directory of its package.
    pub(super) package: PathBuf,
    pub(super) executable: PathBuf,
    pub(super) is_test: bool,
}

impl Artifact {
    /// Reads a line of cargo's messages; `None`: it is about something else.
    pub(super) fn read(message: &str) -> Option<Self> {
        let message: serde_json::Value = serde_json::from_str(message).ok()?;
        Some(Self {
            name: message["target"]["name"].as_str()?.to_owned(),
            package: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
            executable: message["executable"].as_str()?.into(),
            is_test: message["profile"]["test"].as_bool()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_from_what_cargo_says() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/cli/Cargo.toml",
            "target":{"name":"unisono"},"profile":{"test":false},"executable":"/w/target/debug/unisono"}"#;
        let read = Artifact::read(line).expect("a program");
        assert_eq!((read.name.as_str(), read.is_test), ("unisono", false));
        assert_eq!(read.package, Path::new("/w/cli"));
        assert!(Artifact::read(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(Artifact::read(&line.replace(r#""/w/target/debug/unisono""#, "null")).is_none());
    }

    #[test]
    fn directories_of_tests_are_in_the_tree() {
        for directory in TESTS.iter().map(|test| test.package).chain(READ_BY_TESTS) {
            assert!(workspace().join(directory).is_dir(), "{directory}");
        }
    }
}
