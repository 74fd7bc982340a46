//! The preloaded libraries: the preload and a bridge for each of three ABIs, which this crate contains, and
//! bridges for other MPIs, which an `mpicc` compiles on the user's machine.
//!
//! The cache has a directory `preload-HASH` with the preload, its bridges and a link to the core
//! (`libunisono.so`), because the preload opens its bridges and the core from its own directory; and a
//! directory `bridge-HASH` for each compiled bridge. HASH is a hash of all inputs of the directory's files.
//! The ranks of a job start at the same time: one rank takes a lock and writes the files, and the others wait
//! for it. The cache is private, because another user with write access could replace the library that the
//! program preloads.

use crate::Error;
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use unisono_linux::private_directory::PrivateDirectory;
use unisono_linux::programs::on_path;

type ShimFile = (&'static str, &'static str);
type BuiltFile = (&'static str, &'static [u8]);

/// The shim's sources and headers: the name and the text of each file.
const SOURCES: &[ShimFile] = include!(concat!(env!("OUT_DIR"), "/sources.in"));
const LIBRARYS_HEADER: ShimFile = ("unisono.h", include_str!("../../../c/include/unisono.h"));
const FLAGS: &[&str] = &include!("flags.in");

#[cfg(has_bridges)]
macro_rules! built {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $name)))),*]
    };
}

/// The libraries that the build script compiled.
#[cfg(has_bridges)]
const BUILT: &[BuiltFile] = built![
    "libunisono-mpi-mpich.so",
    "libunisono-mpi-openmpi.so",
    "libunisono-mpi-standard.so",
    "libunisono-mpi.so",
];
#[cfg(not(has_bridges))]
const BUILT: &[BuiltFile] = &[];

/// Whether this build has the preload: there is none for musl, nor for other processors than x86-64
/// and aarch64.
pub const HAS_BRIDGES: bool = !BUILT.is_empty();

const CORE: &str = "libunisono.so";
/// The soname of the core, by which the dynamic linker finds it (`abi/c/build.rs`).
const CORE_ABI: &str = "libunisono.so.0";
const PRELOAD: &str = "libunisono-mpi.so";
const BRIDGE: &str = "bridge.so";

/// Returns a hash of the preloaded libraries' contents. The ranks of a job compare it, to notice that their
/// libraries differ.
#[must_use]
pub fn build() -> u64 {
    let mut hasher = DefaultHasher::new();
    BUILT.hash(&mut hasher);
    hasher.finish()
}

/// Returns the cache directory, which is private to this user and has a path that is valid in `LD_PRELOAD`.
pub fn cache() -> Result<PrivateDirectory, Error> {
    PrivateDirectory::cache("mpi", preloadable).map_err(Error::io("keep the preload"))
}

/// Checks that a path is valid in `LD_PRELOAD`. Spaces and colons separate the entries and cannot be quoted;
/// a dollar sign may begin a token that the dynamic linker replaces, such as `$LIB`. The dynamic linker only
/// prints a message about an entry that it does not find, and runs the program without it (ld.so(8)).
fn preloadable(path: &Path) -> Result<(), String> {
    let wrong = [' ', ':', '$']
        .into_iter()
        .find(|wrong| path.as_os_str().as_encoded_bytes().contains(&(*wrong as u8)));
    wrong.map_or(Ok(()), |wrong| Err(format!("a path with {wrong:?} cannot be preloaded")))
}

/// Returns the path of the core: in the directory of the program `unisono` or, in an installed tree, in the
/// prefix's directory of libraries: `lib`, or the directories of Debian's and Red Hat's packages. Fails with
/// [`Error::NoCore`].
pub fn core(unisono: &Path) -> Result<PathBuf, Error> {
    let beside = unisono.with_file_name(CORE);
    let installed = unisono.parent().and_then(Path::parent).into_iter().flat_map(|prefix| {
        let debian = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        ["lib", &debian, "lib64"].map(|folder| prefix.join(folder))
    });
    // on Debian and Red Hat the link without a version number is only in the packages for developers
    let installed = installed.flat_map(|folder| [folder.join(CORE), folder.join(CORE_ABI)]);
    let found = std::iter::once(beside.clone()).chain(installed).find(|path| path.is_file());
    found.ok_or(Error::NoCore { path: beside })
}

/// Returns the directory `name` in the cache, and a lock on it if any of `files` is missing.
fn directory(cache: &PrivateDirectory, name: &str, files: &[&str]) -> Result<CachePlace, Error> {
    let directory =
        cache.inside(name).map_err(Error::io(format!("use {}", cache.path().join(name).display())))?;
    let is_ready = |directory: &PrivateDirectory| files.iter().all(|file| directory.has(file));
    if is_ready(&directory) {
        return Ok(CachePlace::Ready(directory));
    }
    let lock = directory
        .lock("lock")
        .map_err(Error::io(format!("lock {}", directory.path().join("lock").display())))?;
    // another rank may have written the files while this one waited
    if is_ready(&directory) {
        Ok(CachePlace::Ready(directory))
    } else {
        Ok(CachePlace::Empty { directory, _lock: lock })
    }
}

/// A directory in the cache.
enum CachePlace {
    /// All requested files exist.
    Ready(PrivateDirectory),
    /// This process has to write the files; it holds the lock until `_lock` is dropped.
    Empty { directory: PrivateDirectory, _lock: fs::File },
}

/// Returns the path of the preload, whose directory also holds the bridges and the core. Writes them into
/// `cache` if they are missing. Fails with [`Error::NoBridges`], [`Error::Io`].
pub fn preload(core: &Path, cache: &PrivateDirectory) -> Result<PathBuf, Error> {
    if BUILT.is_empty() {
        return Err(Error::NoBridges { arch: std::env::consts::ARCH });
    }
    let mut hasher = DefaultHasher::new();
    (BUILT, core).hash(&mut hasher);
    let files: Vec<&str> = BUILT.iter().map(|(name, _)| *name).collect();
    let place = directory(cache, &format!("preload-{:016x}", hasher.finish()), &files)?;
    let directory = match place {
        CachePlace::Ready(directory) => return Ok(directory.path().join(PRELOAD)),
        CachePlace::Empty { ref directory, .. } => directory,
    };
    let link = directory.path().join(CORE);
    // a process that was killed may have left a link
    let _ = fs::remove_file(&link);
    symlink(core, &link).map_err(Error::io(format!("make {}", link.display())))?;
    for (name, bytes) in BUILT {
        let part = directory.path().join("part");
        fs::write(&part, bytes).map_err(Error::io(format!("write {}", part.display())))?;
        put(&part, &directory.path().join(name))?;
    }
    Ok(directory.path().join(PRELOAD))
}

/// Moves a finished file into place.
fn put(part: &Path, place: &Path) -> Result<(), Error> {
    // the mode is set explicitly, because with a lax umask other users could write the library
    fs::set_permissions(part, fs::Permissions::from_mode(0o755))
        .map_err(Error::io(format!("set the mode of {}", part.display())))?;
    fs::rename(part, place).map_err(Error::io(format!("move {}", part.display())))
}

/// Returns the path of a bridge that `mpicc` compiles with its own `mpi.h`. An earlier result in `cache` is
/// used again. `progress` is called with a message before a compilation. Fails with [`Error::NoCompiler`],
/// [`Error::NotBuilt`], [`Error::Io`].
pub fn compiled_bridge(
    mpicc: &str,
    cache: &PrivateDirectory,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, Error> {
    let compiler = if mpicc.contains('/') { Some(PathBuf::from(mpicc)) } else { on_path(mpicc) };
    let compiler =
        compiler.filter(|path| path.is_file()).ok_or(Error::NoCompiler { mpicc: mpicc.to_owned() })?;
    let mut hasher = DefaultHasher::new();
    (LIBRARYS_HEADER, SOURCES, FLAGS, &compiler, what_it_runs(&compiler)).hash(&mut hasher);
    let place = directory(cache, &format!("bridge-{:016x}", hasher.finish()), &[BRIDGE])?;
    let directory = match place {
        CachePlace::Ready(directory) => return Ok(directory.path().join(BRIDGE)),
        CachePlace::Empty { ref directory, .. } => directory,
    };
    progress(&format!("compiling a bridge with {}", compiler.display()));
    compile(&compiler, directory.path())?;
    put(&directory.path().join("part"), &directory.path().join(BRIDGE))?;
    Ok(directory.path().join(BRIDGE))
}

/// Returns the command line that `mpicc -show` prints, or nothing if that cannot be run. It names the MPI's
/// paths and options, so it is part of the cache key: a bridge is compiled again when they change.
fn what_it_runs(compiler: &Path) -> Vec<u8> {
    Command::new(compiler)
        .arg("-show")
        .stdin(Stdio::null())
        .output()
        .map_or(Vec::new(), |output| output.stdout)
}

fn compile(compiler: &Path, directory: &Path) -> Result<(), Error> {
    for (name, text) in SOURCES.iter().chain([&LIBRARYS_HEADER]) {
        let path = directory.join(name);
        fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))?;
    }
    let output = Command::new(compiler)
        .current_dir(directory)
        .args(FLAGS)
        .args(SOURCES.iter().map(|(name, _)| OsStr::new(name)).filter(|name| is_source(name)))
        .args(["-o", "part", "-ldl"])
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io(format!("run {}", compiler.display())))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        let line = message.lines().find(|line| line.contains("error")).unwrap_or("it did not say why");
        return Err(Error::NotBuilt { compiler: compiler.to_owned(), message: line.trim().to_owned() });
    }
    Ok(())
}

fn is_source(name: &OsStr) -> bool {
    Path::new(name).extension().is_some_and(|end| end == "c")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private() -> (tempfile::TempDir, PrivateDirectory) {
        let home = tempfile::tempdir().expect("a directory");
        let cache = PrivateDirectory::open(&home.path().join("cache")).expect("it can be made");
        (home, cache)
    }

    #[test]
    fn the_preload_lies_beside_its_bridges_and_the_core() {
        let (home, cache) = private();
        let core = home.path().join(CORE);
        let written = preload(&core, &cache);
        if BUILT.is_empty() {
            assert!(written.is_err_and(|error| error.is_of_host()));
            return;
        }
        let preload = written.expect("it is written");
        for (name, bytes) in BUILT {
            assert_eq!(&fs::read(preload.with_file_name(name)).expect("it is there"), bytes, "{name}");
        }
        assert_eq!(fs::read_link(preload.with_file_name(CORE)).expect("a link"), core);
    }

    #[test]
    fn another_core_has_a_preload_of_its_own() {
        let (home, cache) = private();
        let of = |core: &str| preload(&home.path().join(core), &cache);
        if let (Ok(one), Ok(other), Ok(again)) =
            (of("a/libunisono.so"), of("b/libunisono.so"), of("a/libunisono.so"))
        {
            assert_ne!(one, other);
            assert_eq!(one, again);
        } else {
            assert!(BUILT.is_empty());
        }
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
        assert!(error.to_string().contains("pip install unisono"), "{error}");
        fs::write(directory.path().join(CORE), b"").expect("a file");
        assert!(core(&directory.path().join("unisono")).is_ok());
    }

    #[test]
    fn the_core_of_an_installed_tree_is_found_in_its_directory_of_libraries() {
        let debian = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        for library in ["lib/libunisono.so", "lib64/libunisono.so.0", &format!("{debian}/libunisono.so.0")] {
            let prefix = tempfile::tempdir().expect("a directory");
            let path = prefix.path().join(library);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a directory");
            fs::write(&path, b"").expect("a file");
            assert_eq!(core(&prefix.path().join("bin/unisono")).expect("it is there"), path);
        }
    }

    #[test]
    fn a_compiler_that_is_no_mpicc_says_why_it_cannot_compile_a_bridge() {
        let (_home, cache) = private();
        let error = compiled_bridge("unisono-no-such-mpicc", &cache, &mut |_| ()).expect_err("none");
        assert!(error.is_of_host() && error.to_string().contains("unisono-no-such-mpicc"), "{error}");
        let error = compiled_bridge("cc", &cache, &mut |_| ()).expect_err("no mpi.h");
        assert!(error.is_of_host() && error.to_string().contains("mpi.h"), "{error}");
    }
}
