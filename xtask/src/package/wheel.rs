//! Makes the wheel: the Python package, the program and the library, for pip on any distribution.
//! `packaging/wheel.py` writes the archive, because the format is a zip file with a list of its files, and a
//! build backend would compile everything again.

use super::documents::{PYTHON_README, packaged};
use super::release::{Release, VERSION};
use super::toolchain::{GLIBC, tools};
use super::{run_quietly, sbom};
use anyhow::Context;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use unisono_host_tests::program::workspace;

pub(super) fn make(release: &Release) -> anyhow::Result<PathBuf> {
    let scratch = release.scratch("wheel")?;
    let tag = format!("py3-none-manylinux_{}_{}", GLIBC.replace('.', "_"), release.processor.name());
    let licences = scratch.join("LICENCES-OF-PARTS.txt");
    fs::write(&licences, &release.licences).context("the licences")?;
    let bill = scratch.join("unisono.cdx.json");
    fs::write(&bill, sbom::text(release)?).context("the SBOM")?;
    let readme = scratch.join("README.md");
    fs::write(&readme, packaged(PYTHON_README)?).context("the README")?;
    let mut python = Command::new(tools()?.join("python3"));
    python.arg("packaging/wheel.py").args([VERSION, &tag]).arg(&release.built).arg(&licences).arg(&bill);
    python.arg(&readme).arg(&release.dist).env("SOURCE_DATE_EPOCH", &release.epoch).current_dir(workspace());
    let path = run_quietly(&mut python)?;
    Ok(String::from_utf8_lossy(&path).trim().into())
}
