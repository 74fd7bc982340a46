//! `unisono --version --json`: prints the release, the commit, the target, and which optional parts this
//! build has.

use crate::machine_output;
use serde_json::{Value, json};
use std::env::consts::{ARCH, OS};
use std::ffi::OsString;
use std::process::ExitCode;
use unisono_mpi_preload::libraries;
use unisono_study::library;

/// Returns whether the arguments ask for the version as JSON: both flags, and nothing else.
pub(crate) fn is_asked_as_json(arguments: &[OsString]) -> bool {
    let version = arguments.iter().any(|word| word == "--version" || word == "-V");
    let json = arguments.iter().any(|word| word == "--json");
    version && json && arguments.len() == 2
}

/// Prints one JSON object.
pub(crate) fn print_json() -> anyhow::Result<ExitCode> {
    crate::output::answer(&machine_output::json("unisono-version-1", &version_json())?)?;
    Ok(ExitCode::SUCCESS)
}

fn version_json() -> Value {
    let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": unisono_study::COMMIT,
        "target": format!("{ARCH}-{OS}-{libc}"),
        "features": features(),
    })
}

/// Returns the optional parts of this build: the preload for MPI programs, and the studies of the laboratory.
fn features() -> Vec<&'static str> {
    let parts = [(libraries::HAS_BRIDGES, "mpi"), (library::is_extended(), "laboratory")];
    parts.into_iter().filter_map(|(there, name)| there.then_some(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_flags_are_needed_and_nothing_else() {
        let asked = |words: &[&str]| is_asked_as_json(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(asked(&["--version", "--json"]) && asked(&["--json", "-V"]));
        for words in
            [&["--version"][..], &["--json"], &["doctor", "--json"], &["doctor", "--version", "--json"]]
        {
            assert!(!asked(words), "{words:?}");
        }
    }

    #[test]
    fn a_build_names_its_release_and_its_parts() {
        let said = version_json();
        assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(said["features"], json!(["mpi"]));
    }
}
