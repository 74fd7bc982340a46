//! The shim, compiled by the program's MPI, once.
//!
//! A build lies in the cache under a key of all that went into it. The ranks of a job start at the same time:
//! one of them builds, under a lock, and the others wait for it. The cache is private: another user who could
//! write a file there would choose what the program preloads.

use crate::{Error, HostMpi};
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use unisono_linux::private_directory::PrivateDirectory;
use unisono_linux::programs::on_path;

type ShimFile = (&'static str, &'static str);

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../shim/", $name)))),*]
    };
}

const HEADERS: &[ShimFile] = sources!["shim.h", "unisono_mpi.h"];
const LIBRARYS_HEADER: ShimFile = ("unisono.h", include_str!("../../../c/include/unisono.h"));
const SOURCES: &[ShimFile] = sources![
    "attributes.c",
    "communicate.c",
    "errors.c",
    "fortran.c",
    "handles.c",
    "init.c",
    "jobs.c",
    "memory.c",
    "statistics.c",
    "synchronize.c",
    "types.c",
    "unused.c",
    "windows.c",
];

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-g1",
    "-Wall",
    "-Wextra",
    "-fPIC",
    "-fno-plt", // a call of the core without a stub in between
    "-shared",
    "-fvisibility=hidden",
    "-pthread",
];
const CORE: &str = "libunisono.so";
const SHIM: &str = "libunisono-mpi-shim.so";

/// Where shims are kept: a directory of this user's alone, whose path can stand in `LD_PRELOAD`.
pub fn cache() -> Result<PrivateDirectory, Error> {
    PrivateDirectory::cache("mpi", preloadable).map_err(Error::io("keep the compiled preload"))
}

/// Whether a path can stand in `LD_PRELOAD`. Spaces and colons separate its entries, and there is no way to
/// quote them; a dollar sign may begin a name that is replaced, such as `$LIB`. The dynamic linker only
/// complains about an entry that it does not find, and runs the program without it (ld.so(8)).
fn preloadable(path: &Path) -> Result<(), String> {
    let wrong = [' ', ':', '$']
        .into_iter()
        .find(|wrong| path.as_os_str().as_encoded_bytes().contains(&(*wrong as u8)));
    wrong.map_or(Ok(()), |wrong| Err(format!("a path with {wrong:?} cannot be preloaded")))
}

/// The core, which lies beside the program `unisono` (or in `../lib`, where it is installed). Fails with
/// [`Error::NoCore`].
pub fn core(unisono: &Path) -> Result<PathBuf, Error> {
    let beside = unisono.with_file_name(CORE);
    let installed = unisono.parent().and_then(Path::parent).map(|root| root.join("lib").join(CORE));
    let found = std::iter::once(beside.clone()).chain(installed).find(|path| path.is_file());
    found.ok_or(Error::NoCore { path: beside })
}

/// The `mpicc` of an MPI: the first on `PATH`, which is whose programs are built here; or with Debian's
/// suffix, if that one includes another MPI's header. Fails with [`Error::NoCompiler`].
pub fn compiler(mpi: HostMpi) -> Result<PathBuf, Error> {
    let names = ["mpicc".to_owned(), format!("mpicc.{}", mpi.name())];
    let is = |path: &PathBuf| of_compiler(path) == Some(mpi);
    names
        .iter()
        .filter_map(|name| on_path(name))
        .find(is)
        .ok_or(Error::NoCompiler { mpi: mpi.name(), remedy: mpi.remedy() })
}

/// Whose `mpi.h` a compiler includes.
fn of_compiler(path: &Path) -> Option<HostMpi> {
    let output = Command::new(path)
        .args(["-E", "-dM", "-include", "mpi.h", "-x", "c", "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let macros = String::from_utf8_lossy(&output.stdout);
    let defines = |name: &str| macros.lines().any(|line| line.starts_with(&format!("#define {name} ")));
    if defines("OPEN_MPI") {
        Some(HostMpi::OpenMpi)
    } else {
        (defines("MPICH") || defines("MPICH_VERSION")).then_some(HostMpi::Mpich)
    }
}

/// The shim for an MPI, built with `compiler` against the core, or found in `cache`. `progress` hears that
/// something is compiled. Fails with [`Error::NotBuilt`], [`Error::Io`].
pub fn shim(
    mpi: HostMpi,
    compiler: &Path,
    core: &Path,
    cache: &PrivateDirectory,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, Error> {
    let mut hasher = DefaultHasher::new();
    (LIBRARYS_HEADER, HEADERS, SOURCES, FLAGS, compiler, core, what_it_runs(compiler)).hash(&mut hasher);
    let name = format!("{}-{:016x}", mpi.name(), hasher.finish());
    let directory =
        cache.inside(&name).map_err(Error::io(format!("use {}", cache.path().join(&name).display())))?;
    let built = directory.path().join(SHIM);
    if directory.has(SHIM) {
        return Ok(built);
    }
    let _lock = directory
        .lock("lock")
        .map_err(Error::io(format!("lock {}", directory.path().join("lock").display())))?;
    // another rank may have built it while this one waited
    if !directory.has(SHIM) {
        progress(&format!("compiling the preload for {} with {}", mpi.name(), compiler.display()));
        compile(compiler, core, directory.path(), &built)?;
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
    for (name, text) in HEADERS.iter().chain(SOURCES).chain([&LIBRARYS_HEADER]) {
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
        // not -Wl,-rpath,PATH: a comma in the path would end it
        .args([OsStr::new("-Xlinker"), OsStr::new("-rpath"), OsStr::new("-Xlinker"), library.as_os_str()])
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
    // whatever the umask of whoever started this says: others could write the library otherwise
    fs::set_permissions(&part, fs::Permissions::from_mode(0o755))
        .map_err(Error::io(format!("set the mode of {}", part.display())))?;
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
    fn a_path_that_the_dynamic_linker_would_take_apart_is_not_used() {
        for path in ["/home/a b/mpi", "/home/a:b/mpi", "/home/$LIB/mpi"] {
            let why = preloadable(Path::new(path)).expect_err("it would be ignored");
            assert!(why.contains("cannot be preloaded"), "{why}");
        }
        assert_eq!(preloadable(Path::new("/home/a,b/mpi")), Ok(()));
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
        let Some(cc) = on_path("cc") else {
            println!("skipped: no cc on PATH");
            return;
        };
        assert_eq!(of_compiler(&cc), None);
    }
}
