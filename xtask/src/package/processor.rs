//! The processors that packages are made for, and their names in package formats and compilers.

use super::run_quietly;
use anyhow::Context;
use std::fs;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetProcessor {
    /// The processor of the machines that make packages: programs for it run while packages are made.
    X86_64,
    /// Packages for this processor are made by a cross compiler, if Rust's standard library for it is
    /// installed.
    Aarch64,
}

impl TargetProcessor {
    pub(super) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// Returns the name in wheels, RPM packages and tarballs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    pub(super) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Returns the target of programs with a shared C library, as cargo names it.
    pub(super) fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Aarch64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Returns the target of programs without a shared library.
    pub(super) fn static_target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-musl",
            Self::Aarch64 => "aarch64-unknown-linux-musl",
        }
    }
}

/// Whether Rust's standard library for a target is installed.
pub(crate) fn has_standard_library(target: &str) -> anyhow::Result<bool> {
    let directory = run_quietly(Command::new("rustc").args(["--print", "target-libdir", "--target", target]))
        .context("rustc")?;
    let entries = fs::read_dir(Path::new(String::from_utf8_lossy(&directory).trim()));
    let mut names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    Ok(names.any(|name| name.to_string_lossy().starts_with("libstd-")))
}

/// Returns the reason why nothing is built for a target, with the remedy.
pub(crate) fn missing_library(target: &str) -> String {
    format!("Rust's standard library for {target} is not installed: rustup target add {target}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_library_of_this_host_is_found_and_that_of_no_host_is_not() {
        let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        assert!(has_standard_library(&host).expect("rustc"));
        assert!(!has_standard_library("m68k-unknown-linux-gnu").expect("rustc knows the name"));
    }
}
