//! The shim, compiled by the program's MPI, once.
//!
//! A build lies in the cache under a key of all that went into it. The ranks of a job start at the same time: one
//! of them builds, under a lock, and the others wait for it.

use crate::{Error, Mpi, along_path};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file of the shim.
type Source = (&'static str, &'static str);

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../shim/", $name)))),*]
    };
}

const HEADERS: &[Source] = sources!["core.h", "shim.h"];
const SOURCES: &[Source] = sources![
    "attributes.c",
    "communicate.c",
    "errors.c",
    "fortran.c",
    "handles.c",
    "init.c",
    "jobs.c",
    "memory.c",
    "synchronize.c",
    "types.c",
    "windows.c",
];

const FLAGS: &[&str] =
    &["-std=gnu11", "-O2", "-g1", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"];
const CORE: &str = "libunisono_mpi.so";

/// The core, which lies beside the program `unisono` (or in `../lib`, where it is installed).
///
/// # Errors
/// [`Error::NoCore`].
pub fn core(unisono: &Path) -> Result<PathBuf, Error> {
    let beside = unisono.with_file_name(CORE);
    let installed = unisono.parent().and_then(Path::parent).map(|root| root.join("lib").join(CORE));
    let found = std::iter::once(beside.clone()).chain(installed).find(|path| path.is_file());
    found.ok_or(Error::NoCore { path: beside })
}

/// The `mpicc` of an MPI: the first on `PATH`, which is whose programs are built here; or with Debian's suffix, if
/// that one includes another MPI's header.
///
/// # Errors
/// [`Error::NoCompiler`].
pub fn compiler(mpi: Mpi) -> Result<PathBuf, Error> {
    let names = ["mpicc".to_owned(), format!("mpicc.{}", mpi.name())];
    let is = |path: &PathBuf| of_compiler(path) == Some(mpi);
    names
        .iter()
        .filter_map(|name| along_path(name))
        .find(is)
        .ok_or(Error::NoCompiler { mpi: mpi.name(), remedy: mpi.remedy() })
}

/// Whose `mpi.h` a compiler includes.
fn of_compiler(path: &Path) -> Option<Mpi> {
    let output = Command::new(path)
        .args(["-E", "-dM", "-include", "mpi.h", "-x", "c", "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let macros = String::from_utf8_lossy(&output.stdout);
    let defines = |name: &str| macros.lines().any(|line| line.starts_with(&format!("#define {name} ")));
    if defines("OPEN_MPI") {
        Some(Mpi::OpenMpi)
    } else {
        (defines("MPICH") || defines("MPICH_VERSION")).then_some(Mpi::Mpich)
    }
}

/// The shim for an MPI, built with `compiler` against the core, or found in `cache`. `progress` hears that
/// something is compiled.
///
/// # Errors
/// [`Error::NotBuilt`], [`Error::Io`].
pub fn shim(
    mpi: Mpi,
    compiler: &Path,
    core: &Path,
    cache: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, Error> {
    let mut hasher = DefaultHasher::new();
    (HEADERS, SOURCES, FLAGS, compiler, core, what_it_runs(compiler)).hash(&mut hasher);
    let directory = cache.join(format!("{}-{:016x}", mpi.name(), hasher.finish()));
    let built = directory.join("libunisono-mpi-shim.so");
    if built.is_file() {
        return Ok(built);
    }
    fs::create_dir_all(&directory).map_err(Error::io(format!("create {}", directory.display())))?;
    let lock = directory.join("lock");
    let file = File::create(&lock).map_err(Error::io(format!("create {}", lock.display())))?;
    file.lock().map_err(Error::io(format!("lock {}", lock.display())))?;
    // another rank may have built it while this one waited
    if !built.is_file() {
        progress(&format!("compiling the preload for {} with {}", mpi.name(), compiler.display()));
        compile(compiler, core, &directory, &built)?;
    }
    Ok(built)
}

/// The compiler's own command line names the library's version and place.
fn what_it_runs(compiler: &Path) -> Vec<u8> {
    Command::new(compiler)
        .arg("-show")
        .stdin(Stdio::null())
        .output()
        .map_or(Vec::new(), |output| output.stdout)
}

fn compile(compiler: &Path, core: &Path, directory: &Path, built: &Path) -> Result<(), Error> {
    for (name, text) in HEADERS.iter().chain(SOURCES) {
        let path = directory.join(name);
        fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))?;
    }
    let library = core.parent().unwrap_or(Path::new("/"));
    let output = Command::new(compiler)
        .current_dir(directory)
        .args(FLAGS)
        .args(SOURCES.iter().map(|(name, _)| name))
        .args(["-o", "shim.part"])
        .arg(core)
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .arg("-ldl")
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io(format!("run {}", compiler.display())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().find(|line| line.contains("error")).unwrap_or("it did not say why");
        return Err(Error::NotBuilt { compiler: compiler.to_owned(), said: line.trim().to_owned() });
    }
    let part = directory.join("shim.part");
    fs::rename(&part, built).map_err(Error::io(format!("move {}", part.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_of_the_shim_is_built() {
        let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shim");
        let mut files: Vec<String> = fs::read_dir(shim)
            .expect("the shim's directory")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let mut listed: Vec<&str> = HEADERS.iter().chain(SOURCES).map(|(name, _)| *name).collect();
        listed.sort_unstable();
        assert_eq!(files, listed);
    }

    #[test]
    fn a_missing_core_says_how_to_get_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = core(&directory.path().join("unisono")).expect_err("nothing there");
        assert!(error.is_of_host());
        assert!(error.to_string().contains("cargo build --release"), "{error}");
        fs::write(directory.path().join(CORE), b"").expect("a file");
        assert!(core(&directory.path().join("unisono")).is_ok());
    }

    #[test]
    #[allow(clippy::print_stdout, reason = "a skipped test says why")]
    fn a_compiler_that_is_no_mpicc_is_none() {
        let Some(cc) = along_path("cc") else {
            println!("skipped: no cc on PATH");
            return;
        };
        assert_eq!(of_compiler(&cc), None);
    }
}
