//! Packages from PyPI, each set of packages in a virtual environment of its own.

use crate::processes::text;
use crate::program::target;
use crate::{Skipped, require};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Makes a virtual environment of `python` with these packages in the directory `place` below the target
/// directory, and returns the directory. Installs nothing if an earlier run has done so.
///
/// # Errors
/// [`Skipped`] without Python, or if the registry cannot be reached.
pub fn environment(place: &str, python: &str, packages: &[&str]) -> Result<PathBuf, Skipped> {
    require::program(python, "apt-get install python3-venv")?;
    let directory = target().join(place);
    let ready = directory.join("ready");
    if ready.exists() {
        return Ok(directory);
    }
    let succeeds = |command: &mut Command| {
        command.stdin(Stdio::null()).output().map_err(|error| error.to_string()).and_then(|done| {
            if done.status.success() { Ok(()) } else { Err(text(&done.stderr).trim().to_owned()) }
        })
    };
    succeeds(Command::new(python).args(["-m", "venv", "--clear"]).arg(&directory)).map_err(|_| {
        Skipped::because(format!("{python} makes no virtual environment; apt-get install python3-venv"))
    })?;
    let install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:"];
    succeeds(Command::new(directory.join("bin/python")).args(install).args(packages)).map_err(|error| {
        let last = error.lines().last().unwrap_or("no reason given").to_owned();
        Skipped::because(format!("pip cannot install {}: {last}", packages.join(" ")))
    })?;
    std::fs::write(&ready, b"").expect("the directory is ours");
    Ok(directory)
}
