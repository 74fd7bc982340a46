//! The `unisono` program under test, and examples.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All packages with programs that host tests start. They are built by a single command, as `cargo xtask
/// test` does before the tests. Built separately, they would enable other features of their dependencies,
/// which would then be compiled again.
pub const PROGRAMS: [&str; 8] = [
    "--package",
    "unisono",
    "--package",
    "unisono-laboratory",
    "--package",
    "unisono-c",
    "--package",
    "unisono-examples",
];

/// The test program that holds all host tests; no other crate has a test of that name.
pub const HOST_TESTS: &str = "host";

/// The path of the `unisono` program, built from this source tree (release, because host tests measure
/// nothing but still wait for it). `UNISONO_PROGRAM` names a program that is built already, with
/// `unisono-laboratory` beside it.
///
/// # Panics
/// If the build fails.
pub fn unisono() -> PathBuf {
    if let Some(path) = std::env::var_os("UNISONO_PROGRAM") {
        return path.into();
    }
    build(&[&["--release"][..], &PROGRAMS].concat()).join("release/unisono")
}

/// Copies the program, and the laboratory that lies beside it, into a directory that other users may enter.
/// Returns the program's path there.
///
/// # Panics
/// If the build fails, or the laboratory does not lie beside the program.
pub fn copied_into(directory: &Path) -> PathBuf {
    let program = unisono();
    let laboratory = "unisono-laboratory";
    std::fs::copy(program.with_file_name(laboratory), directory.join(laboratory)).expect("a copy");
    let copy = directory.join("unisono");
    std::fs::copy(program, &copy).expect("a copy");
    copy
}

/// The path of an example, built from this source tree like the tests, so that its dependencies are built
/// already.
///
/// # Panics
/// If the build fails.
pub fn example(name: &str) -> PathBuf {
    build(&["--workspace", "--example", name]).join("debug/examples").join(name)
}

/// The directory with the program under test, `libunisono.so`, and the Rust examples, all built with the same
/// profile.
///
/// # Panics
/// If the build fails.
pub fn with_examples() -> PathBuf {
    let directory = unisono().parent().expect("a program lies in a directory").to_owned();
    let profile: &[&str] = if directory.ends_with("release") { &["--release"] } else { &[] };
    build(&[profile, &PROGRAMS].concat());
    directory
}

/// Linker flags before the directory of the library that a C program is linked with. With them the program
/// also loads that library under cargo, which sets `LD_LIBRARY_PATH` to its own directories: the library
/// there is from another build.
pub const LIBRARY_PATH: &str = "-Wl,--disable-new-dtags,-rpath";

#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Cargo's target directory, which also keeps test programs and virtual environments between runs.
#[must_use]
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Cargo as started from a terminal. Processes of cargo inherit variables that describe its current package.
/// Build scripts that read them (such as ring's) would run again for each package, and all their dependents
/// would be compiled again.
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

/// Builds packages, and returns the target directory.
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
