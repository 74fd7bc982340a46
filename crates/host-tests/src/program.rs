//! The `unisono` program under test, and examples.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;

/// The arguments of `cargo build` for the workspace's programs, libraries and examples. They enable the same
/// features as `cargo test --workspace`, so that neither command repeats the other's compilation.
pub const BUILD: [&str; 5] = ["--workspace", "--lib", "--bins", "--tests", "--examples"];

/// The test program that holds all host tests; no other crate has a test of that name.
pub const HOST_TESTS: &str = "host";

/// Returns the directory with the programs of the workspace and `libunisono.so`, after building them from
/// this source tree, without optimization, as the tests. If the variable `UNISONO_PROGRAM` names a program,
/// returns its directory, which must have the other programs, too, and builds nothing.
///
/// # Panics
/// If the build fails.
pub fn directory() -> PathBuf {
    if let Some(path) = std::env::var_os("UNISONO_PROGRAM") {
        return Path::new(&path).parent().expect("a program lies in a directory").to_owned();
    }
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let built = cargo()
            .args(["build", "--quiet"])
            .args(BUILD)
            .current_dir(workspace())
            .stdin(Stdio::null())
            .status();
        assert!(
            built.expect("cargo starts because it runs this test").success(),
            "the workspace does not build"
        );
    });
    target().join("debug")
}

/// Returns the path of the `unisono` program; see [`directory`].
pub fn unisono() -> PathBuf {
    directory().join("unisono")
}

/// Returns the path of an example of a crate; see [`directory`].
pub fn example(name: &str) -> PathBuf {
    directory().join("examples").join(name)
}

/// Copies `unisono` and `unisono-laboratory`, which is beside it, into a directory that other users may
/// enter. Returns the path of the copy of `unisono`.
///
/// # Panics
/// If `unisono-laboratory` is not beside `unisono`.
pub fn copied_into(directory: &Path) -> PathBuf {
    let program = unisono();
    let laboratory = "unisono-laboratory";
    std::fs::copy(program.with_file_name(laboratory), directory.join(laboratory)).expect("a copy");
    let copy = directory.join("unisono");
    std::fs::copy(program, &copy).expect("a copy");
    copy
}

/// Linker flags, to be followed by the directory of the library that a C program is linked with. They set the
/// program's `RPATH`, which has precedence over `LD_LIBRARY_PATH`: cargo sets that variable to its own
/// directories, where the library may be from another build.
pub const LIBRARY_PATH: &str = "-Wl,--disable-new-dtags,-rpath";

#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns Cargo's target directory, which also keeps test programs and virtual environments between runs.
#[must_use]
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Returns the command `cargo` with an environment as in a terminal. Tests that cargo starts inherit
/// variables that describe their package. With these, build scripts that read them (such as ring's) would run
/// again, and all crates that depend on them would be compiled again.
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
