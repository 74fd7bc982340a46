//! Makes the tarball: an installation that runs from any folder. The systemd units and the scripts for Slurm
//! in it contain the path `/opt/unisono`.

use super::documents::{CHANGELOG, SECURITY, write_packaged};
use super::processor::TargetProcessor;
use super::release::{Release, VERSION, template};
use super::run_quietly;
use crate::install::InstallPrefix;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_host_tests::program::workspace;

pub(super) fn make(release: &Release) -> anyhow::Result<PathBuf> {
    let scratch = release.scratch("tarball")?;
    let prefix = InstallPrefix {
        prefix: "/opt/unisono".into(),
        staging: Some(scratch.clone()),
        libraries: "lib".to_owned(),
        python: "lib/python".into(),
    };
    release.stage(&prefix)?;
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(workspace().join(name), prefix.path(name)).context(name)?;
    }
    fs::write(prefix.path("LICENCES-OF-PARTS.txt"), &release.licences).context("the licences")?;
    fs::write(prefix.path("README"), template("tarball-readme.in", &[("VERSION", VERSION)])?)
        .context("README")?;
    write_packaged(&[CHANGELOG, SECURITY], &prefix.path(""))?;
    // pkg-config knows the folder of the file, so the prefix can be relative to it
    let file = prefix.path("lib/pkgconfig/unisono.pc");
    let text = fs::read_to_string(&file).context("unisono.pc")?;
    fs::write(&file, text.replace("prefix=/opt/unisono\n", "prefix=${pcfiledir}/../..\n"))
        .context("unisono.pc")?;
    let name = name(release.processor);
    let tree = scratch.join(&name);
    fs::rename(prefix.path(""), &tree).context("the staged files")?;
    release.normalize(&tree)?;
    let archive = archive_of(&release.dist, release.processor);
    pack(release, &scratch, &[&name], &archive)?;
    Ok(archive)
}

fn name(processor: TargetProcessor) -> String {
    format!("unisono-{VERSION}-linux-{}", processor.name())
}

/// Returns the path of the archive.
pub(super) fn archive_of(dist: &Path, processor: TargetProcessor) -> PathBuf {
    dist.join(format!("{}.tar.gz", name(processor)))
}

/// Packs entries of a folder in the order of their names.
fn pack(release: &Release, folder: &Path, entries: &[&str], to: &Path) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{}", release.epoch)).args(["--use-compress-program", "gzip --best --no-name"]);
    tar.arg("--file").arg(to).arg("--directory").arg(folder).args(entries);
    run_quietly(&mut tar).map(|_| ())
}
