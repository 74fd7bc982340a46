//! Writes the files beside the packages: licences of all parts, SBOM, how to sign, and the checksums of all
//! files.

use super::release::{Release, VERSION, template};
use super::{run_quietly, sbom};
use anyhow::Context;
use std::fs;
use std::process::Command;

const CHECKSUMS: &str = "SHA256SUMS";

/// Writes these files. Returns a line about them.
pub(super) fn write_all(release: &Release) -> anyhow::Result<String> {
    let write = |name: &str, text: &str| {
        fs::write(release.dist.join(name), text).with_context(|| format!("cannot write {name}"))
    };
    write(&format!("unisono-{VERSION}-licences.txt"), &release.licences)?;
    write(&format!("unisono-{VERSION}.cdx.json"), &sbom::text(release)?)?;
    write("SIGNING.txt", &template("signing.txt", &[])?)?;
    let entries = fs::read_dir(&release.dist).context("the folder of packages")?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let sums = run_quietly(Command::new("sha256sum").arg("--").args(&names).current_dir(&release.dist))?;
    write(CHECKSUMS, &String::from_utf8_lossy(&sums))?;
    Ok(format!("{} files in {}", names.len() + 1, release.dist.display()))
}
