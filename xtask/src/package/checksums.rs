//! Writes the files beside the packages: the source archive, licences of all parts, SBOM, how to sign, and
//! the checksums of all files.

use super::release::{Release, VERSION, template};
use super::{run_quietly, sbom};
use anyhow::Context;
use std::fs;
use std::path::Path;
use std::process::Command;
use unisono_host_tests::program::workspace;

const CHECKSUMS: &str = "SHA256SUMS";

/// Writes these files. Returns a line about them.
pub(super) fn write_all(release: &Release) -> anyhow::Result<String> {
    let write = |name: &str, text: &str| {
        fs::write(release.dist.join(name), text).with_context(|| format!("cannot write {name}"))
    };
    write(&format!("unisono-{VERSION}-licences.txt"), &release.licences)?;
    write(&format!("unisono-{VERSION}.cdx.json"), &sbom::text(release)?)?;
    write("SIGNING.txt", &template("signing.txt", &[])?)?;
    let source = write_source(&release.dist)?;
    let entries = fs::read_dir(&release.dist).context("the folder of packages")?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let sums = run_quietly(Command::new("sha256sum").arg("--").args(&names).current_dir(&release.dist))?;
    write(CHECKSUMS, &String::from_utf8_lossy(&sums))?;
    Ok(format!("{} files in {}{source}", names.len() + 1, release.dist.display()))
}

/// Writes the source archive of the commit. Spack builds from it, and so do users who need the laboratory.
/// Returns a remark for a tree that git does not know, such as an unpacked archive.
fn write_source(dist: &Path) -> anyhow::Result<&'static str> {
    if !workspace().join(".git").exists() {
        return Ok("; no source archive, because this tree is no clone");
    }
    let mut archive = Command::new("git");
    archive.args(["archive", "--format=tar.gz"]).arg(format!("--prefix=unisono-{VERSION}/"));
    archive.arg("--output").arg(dist.join(format!("unisono-{VERSION}.tar.gz"))).arg("HEAD");
    run_quietly(archive.current_dir(workspace()))?;
    Ok("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::print_stderr, reason = "a skipped test says why")]
    fn the_source_archive_has_the_laboratory_which_no_package_has() {
        let dist = tempfile::tempdir().expect("there is room");
        let remark = write_source(dist.path()).expect("git archive");
        if !remark.is_empty() {
            eprintln!("skipped: {remark}");
            return;
        }
        let mut list = Command::new("tar");
        list.arg("tzf").arg(dist.path().join(format!("unisono-{VERSION}.tar.gz")));
        let names = String::from_utf8(run_quietly(&mut list).expect("tar")).expect("names");
        for file in ["Cargo.lock", "laboratory/Cargo.toml", "packaging/spack/package.py"] {
            assert!(names.lines().any(|name| name == format!("unisono-{VERSION}/{file}")), "{file}");
        }
    }
}
