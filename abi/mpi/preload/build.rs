//! Compiles the preload and its three bridges, which become part of the program `unisono`: users need neither
//! a compiler nor an MPI's headers to run MPI programs. The jumps through slots are written for x86-64 and
//! aarch64, and MPIs are linked to glibc. For other processors and for musl this script compiles nothing, and
//! `unisono mpi` reports that.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

include!("../interface.rs");

/// The compiler flags of every library. `src/libraries.rs` passes the same flags to `mpicc`.
const FLAGS: &[&str] = &include!("src/flags.in");

/// A library to compile: its name, the folder of its sources, further source files, and the include folder
/// that is searched first.
struct PreloadLibrary {
    name: &'static str,
    folder: &'static str,
    more: &'static [&'static str],
    include: Option<&'static str>,
    flags: &'static [&'static str],
}

const LIBRARIES: [PreloadLibrary; 4] = [
    PreloadLibrary {
        name: "libunisono-mpi.so",
        folder: "entry",
        more: &["shim/launcher.c"],
        include: None,
        flags: &["-ldl"],
    },
    bridge("libunisono-mpi-mpich.so", "bridges/mpich"),
    bridge("libunisono-mpi-openmpi.so", "bridges/openmpi"),
    bridge("libunisono-mpi-standard.so", "bridges/standard"),
];

const fn bridge(name: &'static str, include: &'static str) -> PreloadLibrary {
    PreloadLibrary { name, folder: "shim", more: &[], include: Some(include), flags: &[] }
}

fn main() {
    println!("cargo:rustc-check-cfg=cfg(has_bridges)");
    let mpi = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    let out = PathBuf::from(variable("OUT_DIR"));
    for folder in ["shim", "entry", "bridges"] {
        println!("cargo:rerun-if-changed=../{folder}");
    }
    let digest = interface(&mpi.join(".."));
    fs::write(out.join("sources.in"), embedded(&mpi.join("shim"))).expect("OUT_DIR is cargo's to write");
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let has_glibc = variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    if !["x86_64", "aarch64"].contains(&arch.as_str()) || !has_glibc {
        return;
    }
    for library in &LIBRARIES {
        compile(library, &mpi, &out, digest);
    }
    println!("cargo:rustc-cfg=has_bridges");
}

fn variable(name: &str) -> String {
    env::var(name).expect("cargo sets it")
}

/// Returns the files of a folder with an extension in `endings`, sorted.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder of sources")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| endings.iter().any(|known| *known == end)))
        .collect();
    files.sort();
    files
}

/// Returns the shim's sources as a Rust expression. The program embeds them, so that an `mpicc` can compile
/// them later.
fn embedded(shim: &Path) -> String {
    let entry = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).expect("sources have plain names");
        let path = path.canonicalize().expect("it was listed");
        format!("({name:?}, include_str!({:?})),\n", path.display().to_string())
    };
    let entries: String = files(shim, &["c", "h"]).iter().map(entry).collect();
    format!("&[\n{entries}]")
}

fn compile(library: &PreloadLibrary, mpi: &Path, out: &Path, digest: u64) {
    // the libraries are shared libraries even in a build that links Rust programs statically (packaging/fit)
    #[allow(
        deprecated,
        reason = "otherwise cc adds -static in such a build, which no shared library can have"
    )]
    let mut command = cc::Build::new().cargo_warnings(false).static_flag(false).get_compiler().to_command();
    command.args(FLAGS).arg(format!("-DUNISONO_MPI_INTERFACE={digest:#x}ull"));
    if variable("DEBUG") == "false" {
        // No debugging information, as in cargo's release profile, because it contains the folder of the
        // build. The linker omits it, too: zig compiles parts of the C library with it.
        command.args(["-g0", "-s"]);
    }
    for include in library.include.into_iter().chain(["shim", "../c/include"]) {
        command.arg("-I").arg(mpi.join(include));
    }
    command
        .args(files(&mpi.join(library.folder), &["c"]))
        .args(library.more.iter().map(|file| mpi.join(file)));
    command.arg("-o").arg(out.join(library.name)).args(library.flags);
    let output = command.output().expect("the C compiler that links Rust programs");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}
