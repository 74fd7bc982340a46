//! The `unisono` program under test, and examples.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The path of the `unisono` program, built from this source tree (release, because host tests
/// measure nothing but still wait for it). `UNISONO_PROGRAM` names one that is built already.
///
/// # Panics
/// When it does not build.
pub fn unisono() -> PathBuf {
    if let Some(path) = std::env::var_os("UNISONO_PROGRAM") {
        return path.into();
    }
    build(&["--release", "--package", "unisono", "--package", "unisono-c"]).join("release/unisono")
}

/// The path of an example of a package, built from this source tree as tests are, whose dependencies are
/// there already.
///
/// # Panics
/// When it does not build.
pub fn example(package: &str, name: &str) -> PathBuf {
    build(&["--package", package, "--example", name]).join("debug/examples").join(name)
}

/// Builds, and answers where builds go.
fn build(what: &[&str]) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let workspace = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let built = Command::new(cargo)
        .args(["build", "--quiet"])
        .args(what)
        .current_dir(&workspace)
        .stdin(Stdio::null())
        .status()
        .expect("cargo starts because it runs this test");
    assert!(built.success(), "`cargo build {}` failed", what.join(" "));
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from)
}
