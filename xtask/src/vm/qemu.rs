//! Selects the QEMU that emulates the machine: the installed one, or a newer one from Debian's backports.
//!
//! The two emulated processors share a host thread. Until 8.1 QEMU let the first processor run until the next
//! timer was due, and then had no time left for the second: of two threads that compute on two processors,
//! one did 1,748 rounds in 2 s, the other none (QEMU 7.2). Since 8.1 each processor gets half of the time.
//! Cost of fetching a newer QEMU: 14 MB of packages, once; it is kept and uses this machine's libraries.

use super::apt::Apt;
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const QEMU: &str = "qemu-system-x86_64";
/// The first version that divides the time equally between the processors.
const MIN_FAIR_VERSION: (u32, u32) = (8, 1);
const PACKAGES: [&str; 4] = ["qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios"];
const UNPACKED_DIRECTORY: &str = "unpacked";

#[derive(Debug)]
pub(super) struct Qemu {
    program: PathBuf,
    firmware: Vec<PathBuf>,
}

impl Qemu {
    pub(super) fn installed() -> Self {
        Self { program: QEMU.into(), firmware: Vec::new() }
    }

    /// Returns a QEMU that divides the time equally between its emulated processors: the installed one if it
    /// does, otherwise a newer one in this directory.
    pub(super) fn fair(directory: &Path) -> anyhow::Result<Self> {
        let installed = Self::installed();
        if installed.is_fair()? {
            return Ok(installed);
        }
        let unpacked = directory.join(UNPACKED_DIRECTORY);
        if !unpacked.exists() {
            println!("fetching a newer QEMU into {}", directory.display());
            fetch(directory).context("QEMU 8.1 or later cannot be fetched")?;
        }
        let share = unpacked.join("usr/share");
        let fetched = Self {
            program: unpacked.join("usr/bin").join(QEMU),
            firmware: ["qemu", "seabios"].map(|part| share.join(part)).into(),
        };
        ensure!(fetched.is_fair()?, "the QEMU in {} is too old; remove it", unpacked.display());
        Ok(fetched)
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        self.firmware.iter().for_each(|place| {
            command.arg("-L").arg(place);
        });
        command
    }

    fn is_fair(&self) -> anyhow::Result<bool> {
        let output = Command::new(&self.program).arg("--version").output();
        let output = output.with_context(|| format!("start {}", self.program.display()))?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let description = String::from_utf8_lossy(&output.stdout);
        Ok(
            version(&description).with_context(|| format!("no version in {description}"))?
                >= MIN_FAIR_VERSION,
        )
    }
}

/// Parses the version in QEMU's own description.
fn version(description: &str) -> Option<(u32, u32)> {
    let number = description.split("version ").nth(1)?.split_whitespace().next()?;
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn fetch(directory: &Path) -> anyhow::Result<()> {
    let about = fs::read_to_string("/etc/os-release").context("which system this is")?;
    let release = about.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let release = release.context("/etc/os-release names no release of Debian")?;
    let suite = format!("{release}-backports");
    let apt = Apt::new(directory, &suite)?;
    let packages = PACKAGES.map(|package| format!("{package}/{suite}"));
    apt.unpack(&packages.each_ref().map(String::as_str), UNPACKED_DIRECTORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_qemu_says() {
        let description = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright (c) 2003\n";
        assert_eq!(version(description), Some((7, 2)));
        assert!(version("QEMU emulator version 10.0.2 (Debian)") >= Some(MIN_FAIR_VERSION));
        assert_eq!(version("no QEMU"), None);
    }
}
