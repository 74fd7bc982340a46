//! The test of an installation: a C program and a Python program use the installed files, and then the files
//! are removed.

use super::{InstallPrefix, SONAME, build, run, run_with, uninstall, workspace};
use anyhow::{Context, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Installs into a new directory, uses the installed files, and removes them. Returns a line about it.
pub(crate) fn trial(directory: &Path) -> anyhow::Result<String> {
    let prefix = InstallPrefix::new(directory.join("prefix"), None);
    run_with(&prefix)?;
    ensure!(is_fresh()?, "the installation left something to compile");
    let heat = directory.join("heat");
    compile_with_pkg_config(&prefix, &workspace().join("examples/c/heat.c"), &heat)?;
    let mut job = Command::new(prefix.path("bin/unisono"));
    run(job.args(["run", "-n", "2"]).arg(&heat).args(["--size", "32", "--steps", "10"]))?;
    let pages = fs::read_dir(prefix.path("share/man/man1")).context("there are no manual pages")?.count();
    ensure!(pages > 20, "only {pages} manual pages");
    // the linker must have written the library's soname into the example
    let needed = fs::read(&heat).context("the example cannot be read")?;
    let holds = needed.windows(SONAME.len()).any(|window| window == SONAME.as_bytes());
    ensure!(holds, "the example does not ask for {SONAME}");
    build_examples(&prefix, &directory.join("examples"))?;
    let python = use_from_python(&prefix)?;
    uninstall(&prefix)?;
    ensure!(!prefix.prefix.exists(), "{} is not empty after its removal", prefix.prefix.display());
    Ok(format!(
        "a program in C runs with the installed library, and {python}; {pages} manual pages"
    ))
}

/// Whether cargo finds nothing to compile.
fn is_fresh() -> anyhow::Result<bool> {
    let output = build().output().context("cargo cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(output.status.success() && !said.lines().any(|line| line.trim_start().starts_with("Compiling ")))
}

/// Compiles with the flags of the pkg-config file, which this function reads itself, so that the test does
/// not need the program pkg-config.
fn compile_with_pkg_config(prefix: &InstallPrefix, source: &Path, to: &Path) -> anyhow::Result<()> {
    let file = prefix.path("lib/pkgconfig/unisono.pc");
    let text = fs::read_to_string(&file).context("unisono.pc cannot be read")?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let fill = |words: &str| {
        words
            .replace("${libdir}", value("libdir="))
            .replace("${includedir}", value("includedir="))
            .replace("${prefix}", value("prefix="))
    };
    let (include, link) = (fill(value("Cflags: ")), fill(value("Libs: ")));
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-O2"]).args(include.split_whitespace()).arg("-o").arg(to).arg(source);
    run(gcc.args(link.split_whitespace()).arg("-lm"))
}

/// Builds the examples in C as a developer without a clone does: a copy of their folder, with the
/// header and the library of the installation beside each other.
fn build_examples(prefix: &InstallPrefix, copy: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(copy).context("a folder for the examples")?;
    for entry in fs::read_dir(workspace().join("examples/c")).context("examples/c")?.flatten() {
        if entry.path().extension().is_some_and(|end| end == "c" || end == "h")
            || entry.file_name() == "Makefile"
        {
            fs::copy(entry.path(), copy.join(entry.file_name())).context("an example")?;
        }
    }
    let library = format!("LIBRARY={}", prefix.path(&prefix.libraries).display());
    run(Command::new("make").args(["-s", &library]).current_dir(copy))?;
    if Command::new("pkg-config").arg("--version").output().is_err() {
        return Ok(());
    }
    let found = prefix.path(&prefix.libraries).join("pkgconfig");
    run(Command::new("make").arg("-s").arg("-B").env("PKG_CONFIG_PATH", found).current_dir(copy))
}

/// Imports the installed package. Returns words about it for the line of [`trial`].
fn use_from_python(prefix: &InstallPrefix) -> anyhow::Result<&'static str> {
    let python = Command::new("python3")
        .args(["-c", "import unisono; print(unisono.library_version())"])
        .env("PYTHONPATH", prefix.path(&prefix.python.to_string_lossy()))
        .env_remove("UNISONO_LIBRARY")
        .output();
    let Ok(output) = python else { return Ok("there is no python3 to try one in Python") };
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(version == env!("CARGO_PKG_VERSION"), "the package for Python does not work: {output:?}");
    Ok("so does one in Python")
}
