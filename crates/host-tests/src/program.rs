//! The `unisono` program under test, and examples.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All that host tests start, built by one command, as `cargo xtask test` does before them. Packages that are
/// built apart would ask for other features of their dependencies, and all of these would be compiled again.
pub const PROGRAMS: [&str; 6] =
    ["--package", "unisono", "--package", "unisono-c", "--package", "unisono-examples"];

/// The test program that holds all host tests; no other crate has a test of that name.
pub const HOST_TESTS: &str = "host";

/// The path of the `unisono` program, built from this source tree (release, because host tests
/// measure nothing but still wait for it). `UNISONO_PROGRAM` names one that is built already.
///
/// # Panics
/// When it does not build.
pub fn unisono() -> PathBuf {
    if let Some(path) = std::env::var_os("UNISONO_PROGRAM") {
        return path.into();
    }
    build(&[&["--release"][..], &PROGRAMS].concat()).join("release/unisono")
}

/// The path of an example, built from this source tree as tests are, whose dependencies are there already.
///
/// # Panics
/// When it does not build.
pub fn example(name: &str) -> PathBuf {
    build(&["--workspace", "--example", name]).join("debug/examples").join(name)
}

/// The directory with the program under test, `libunisono.so`, and the examples in Rust, all built alike.
///
/// # Panics
/// When they do not build.
pub fn with_examples() -> PathBuf {
    let directory = unisono().parent().expect("a program lies in a directory").to_owned();
    let profile: &[&str] = if directory.ends_with("release") { &["--release"] } else { &[] };
    build(&[profile, &PROGRAMS].concat());
    directory
}

/// Before the directory of the library that a C program is linked with. The program loads it from there also
/// under cargo, which sets `LD_LIBRARY_PATH` to its own directories: the library there is another build's.
pub const LIBRARY_PATH: &str = "-Wl,--disable-new-dtags,-rpath";

#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where cargo builds, and where test programs and virtual environments are kept between runs.
#[must_use]
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Cargo, as somebody starts it in a terminal. What cargo starts inherits variables that describe its own
/// package. Build scripts that look at these (ring's does) would run again for each package that builds, and
/// all that depends on them would be compiled again.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Builds, and answers where builds go.
fn build(what: &[&str]) -> PathBuf {
    let built = cargo()
        .args(["build", "--quiet"])
        .args(what)
        .current_dir(workspace())
        .stdin(Stdio::null())
        .status()
        .expect("cargo starts because it runs this test");
    assert!(built.success(), "`cargo build {}` failed", what.join(" "));
    target()
}
