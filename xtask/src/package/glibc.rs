//! Checks that built files run with the oldest C library that packages promise, by the versions of the
//! symbols that they need, as readelf (binutils) lists them.

use super::release::Release;
use super::run_quietly;
use super::toolchain::GLIBC;
use anyhow::{Context, ensure};
use std::path::Path;
use std::process::Command;

/// Checks the program and the library. Returns a line for each.
pub(super) fn check(release: &Release) -> anyhow::Result<String> {
    let lines: anyhow::Result<Vec<String>> =
        ["unisono", "libunisono.so"].iter().map(|name| check_file(&release.built.join(name))).collect();
    Ok(lines?.join("\n"))
}

fn check_file(file: &Path) -> anyhow::Result<String> {
    let readelf = run_quietly(Command::new("readelf").args(["--version-info", "--wide"]).arg(file))?;
    let needed = newest(&String::from_utf8_lossy(&readelf)).context("no versions of the C library")?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let floor = version(GLIBC).context("GLIBC is a version")?;
    ensure!(needed <= floor, "{name} needs glibc {}.{}, newer than {GLIBC}", needed.0, needed.1);
    Ok(format!("{name} needs glibc {}.{}, at most {GLIBC}", needed.0, needed.1))
}

/// Returns the newest version `GLIBC_X.Y` in readelf's output.
fn newest(readelf: &str) -> Option<(u32, u32)> {
    readelf.split("Name: GLIBC_").skip(1).filter_map(|rest| version(rest.split_whitespace().next()?)).max()
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        let readelf = "  0x0020:   Name: GLIBC_2.9  Flags: none  Version: 7\n  0x0030:   Name: GLIBC_2.28  Flags: none\n\
                       0x0040: Name: GCC_3.3 Flags: none\n  0x0050:   Name: GLIBC_2.2.5  Flags: none";
        assert_eq!(newest(readelf), Some((2, 28)));
        assert_eq!(newest("Name: GCC_3.0"), None);
        assert!(version("2.9") < version("2.28"));
    }
}
