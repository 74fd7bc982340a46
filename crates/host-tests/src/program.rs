//! The `unisono` program under test, and examples.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;

/// Builds the workspace's programs, libraries and examples, with the features that `cargo test --workspace`
/// enables: what one of the two has compiled, the other does not compile again.
pub const BUILD: [&str; 5] = ["--workspace", "--lib", "--bins", "--tests", "--examples"];

/// The test program that holds all host tests; no other crate has a test of that name.
pub const HOST_TESTS: &str = "host";

/// The directory with the programs of the workspace and `libunisono.so`, built from this source tree, without
/// optimization like the tests. `UNISONO_PROGRAM` names a program that is built already, with the others
/// beside it.
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

/// The path of the `unisono` program; see [`directory`].
pub fn unisono() -> PathBuf {
    directory().join("unisono")
}

/// The path of an example of a crate; see [`directory`].
pub fn example(name: &str) -> PathBuf {
    directory().join("examples").join(name)
}

/// Copies the program, and the laboratory that lies beside it, into a directory that other users may enter.
/// Returns the program's path there.
///
/// # Panics
/// If the laboratory does not lie beside the program.
pub fn copied_into(directory: &Path) -> PathBuf {
    let program = unisono();
    let laboratory = "unisono-laboratory";
    std::fs::copy(program.with_file_name(laboratory), directory.join(laboratory)).expect("a copy");
    let copy = directory.join("unisono");
    std::fs::copy(program, &copy).expect("a copy");
    copy
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
