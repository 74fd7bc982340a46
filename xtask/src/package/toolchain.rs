//! The tools that build for an old C library: zig as the linker and C compiler, called by cargo-zigbuild.
//! Both are installed from PyPI into a Python environment below the target directory.

use super::processor::{TargetProcessor, has_standard_library};
use super::run_quietly;
use anyhow::{Context, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_host_tests::program::{target, workspace};
use unisono_text::shell_quoted;

/// The versions are fixed, because other versions would produce other bytes.
const TOOLS: [&str; 2] = ["cargo-zigbuild==0.24.1", "ziglang==0.17.1"];

/// The oldest glibc that a package runs with: RHEL 8's. Ubuntu 20.04 has 2.31, Debian 11 has 2.31.
pub(super) const GLIBC: &str = "2.28";

/// Returns the directory of the tools and the staged files.
pub(super) fn directory() -> PathBuf {
    std::path::absolute(target().join("package")).unwrap_or_else(|_| target().join("package"))
}

/// Returns the directory of the tools. They are installed first if they are missing or have another version.
pub(super) fn tools() -> anyhow::Result<PathBuf> {
    let environment = directory().join("tools");
    let stamp = environment.join("versions");
    if fs::read_to_string(&stamp).unwrap_or_default() != TOOLS.join("\n") {
        println!("installing {} from PyPI into {}", TOOLS.join(" and "), environment.display());
        run_quietly(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))
            .context("apt-get install python3-venv")?;
        let mut pip = Command::new(environment.join("bin/pip"));
        run_quietly(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(TOOLS))?;
        fs::write(&stamp, TOOLS.join("\n")).context("the versions of the tools")?;
    }
    Ok(environment.join("bin"))
}

/// Builds the program and the library. Returns the directory of the two.
pub(super) fn build(processor: TargetProcessor) -> anyhow::Result<PathBuf> {
    let mut cargo = cargo_with_zig("zigbuild")?;
    cargo.args(["--release", "--locked", "--package", "unisono", "--package", "unisono-c"]);
    let triple = processor.target();
    cargo.arg("--target").arg(format!("{triple}.{GLIBC}"));
    build_in(&std::path::absolute(target()).context("the target directory")?, cargo, triple, &[])
}

/// The C library that is linked into a static program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StaticLibrary {
    Musl,
    /// This machine's glibc, for this machine's processor, if Rust's standard library for musl is not
    /// installed.
    Glibc,
}

impl StaticLibrary {
    /// Returns the library for programs of a processor; `None`: nothing can be built for it.
    pub(super) fn installed(processor: TargetProcessor) -> anyhow::Result<Option<Self>> {
        Ok(match has_standard_library(processor.static_target())? {
            true => Some(Self::Musl),
            false if processor.name() == std::env::consts::ARCH => Some(Self::Glibc),
            false => None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Musl => "musl",
            Self::Glibc => "glibc",
        }
    }
}

/// Builds a program that needs no shared library. Returns its directory. The build has a target directory of
/// its own, because all dependencies are compiled with other flags.
pub(super) fn build_static(
    package: &str,
    processor: TargetProcessor,
    library: StaticLibrary,
) -> anyhow::Result<PathBuf> {
    let (mut cargo, triple) = match library {
        StaticLibrary::Musl => (cargo_with_zig("zigbuild")?, processor.static_target()),
        StaticLibrary::Glibc => {
            let mut cargo = unisono_host_tests::program::cargo();
            cargo.arg("build");
            (cargo, processor.target())
        }
    };
    cargo.args(["--release", "--locked", "--package", package, "--target", triple]);
    build_in(&directory().join("static"), cargo, triple, &["-Ctarget-feature=+crt-static"])
}

/// Returns a cargo command that compiles C and links with zig, also for other C libraries and processors.
pub(super) fn cargo_with_zig(command: &str) -> anyhow::Result<Command> {
    let tools = tools()?;
    let mut cargo = Command::new(tools.join("cargo-zigbuild"));
    let path = std::env::var("PATH").unwrap_or_default();
    cargo.env("PATH", format!("{}:{path}", tools.display())).arg(command).current_dir(workspace());
    Ok(cargo)
}

/// Runs a build of this workspace with a target directory and flags of rustc. Returns the directory of the
/// built files.
fn build_in(target: &Path, mut cargo: Command, triple: &str, flags: &[&str]) -> anyhow::Result<PathBuf> {
    cargo.current_dir(workspace()).env("CARGO_TARGET_DIR", target);
    reproducibly(&mut cargo, triple, flags)?;
    let status = cargo.status().context("cargo cannot be started")?;
    ensure!(status.success(), "the build failed ({status})");
    Ok(target.join(triple).join("release"))
}

/// Replaces this machine's paths in the built files, and omits debugging information, which contains such
/// paths.
fn reproducibly(cargo: &mut Command, triple: &str, more: &[&str]) -> anyhow::Result<()> {
    let workspace = fs::canonicalize(workspace()).context("the workspace")?;
    let registry = cargo_home()?.join("registry/src");
    let folders = [(registry, "/cargo"), (workspace, "/unisono")];
    let remap = |(from, to): &(PathBuf, &str)| format!("--remap-path-prefix={}={to}", from.display());
    let flags: Vec<String> =
        folders.iter().map(remap).chain(more.iter().map(|flag| (*flag).to_owned())).collect();
    cargo.env_remove("RUSTFLAGS");
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    cargo.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    let [one, other] = folders.map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
    cargo.env("CC_SHELL_ESCAPED_FLAGS", "1"); // a folder may have a space in its name
    cargo.env(
        format!("CFLAGS_{}", triple.replace('-', "_")),
        shell_quoted(&[one.as_str(), &other, "-g0"]),
    );
    Ok(())
}

fn cargo_home() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    let home = named.or_else(home).context("neither CARGO_HOME nor HOME is set")?;
    fs::canonicalize(&home).with_context(|| home.display().to_string())
}

/// Returns the licence texts of the parts that the tools add to the program: LLVM's unwinder and compiler
/// runtime.
pub(super) fn licence_of_runtime() -> anyhow::Result<String> {
    let find =
        "import ziglang, pathlib; print(pathlib.Path(ziglang.__file__).parent / 'lib/libunwind/LICENSE.TXT')";
    let path = run_quietly(Command::new(tools()?.join("python3")).args(["-c", find]))?;
    let path = String::from_utf8_lossy(&path).trim().to_owned();
    fs::read_to_string(&path).context(path)
}
