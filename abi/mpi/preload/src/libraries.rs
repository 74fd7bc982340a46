//! The libraries that are preloaded: the preload itself and a bridge for each ABI, which are part of this
//! crate, and bridges that an `mpicc` compiles for MPIs that none of those is made for.
//!
//! They lie in the cache under a key of all that went into them, beside a link to the core, in one directory:
//! the preload finds its bridges there. The ranks of a job start at the same time: one of them writes, under
//! a lock, and the others wait for it. The cache is private: another user who could write a file there would
//! choose what the program preloads.

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

/// The shim's sources, and the header of the core.
const SOURCES: &[ShimFile] = include!(concat!(env!("OUT_DIR"), "/sources.in"));
const LIBRARYS_HEADER: ShimFile = ("unisono.h", include_str!("../../../c/include/unisono.h"));
const FLAGS: &[&str] = &include!("flags.in");

macro_rules! built {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $name)))),*]
    };
}

/// What the build script compiled.
#[cfg(has_bridges)]
const BUILT: &[BuiltFile] = built![
    "libunisono-mpi-mpich.so",
    "libunisono-mpi-openmpi.so",
    "libunisono-mpi-standard.so",
    "libunisono-mpi.so",
];
#[cfg(not(has_bridges))]
const BUILT: &[BuiltFile] = &[];

const CORE: &str = "libunisono.so";
const PRELOAD: &str = "libunisono-mpi.so";
const BRIDGE: &str = "bridge.so";

/// Where libraries are kept: a directory of this user's alone, whose path can stand in `LD_PRELOAD`.
pub fn cache() -> Result<PrivateDirectory, Error> {
    PrivateDirectory::cache("mpi", preloadable).map_err(Error::io("keep the preload"))
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

/// The directory `name` in the cache, and a lock on it if one of `files` is not there yet.
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
    // another rank may have written it while this one waited
    if is_ready(&directory) {
        Ok(CachePlace::Ready(directory))
    } else {
        Ok(CachePlace::Empty { directory, _lock: lock })
    }
}

/// A directory in the cache.
enum CachePlace {
    /// It holds what was asked for.
    Ready(PrivateDirectory),
    /// This process is to fill it, as long as the lock is open.
    Empty { directory: PrivateDirectory, _lock: fs::File },
}

/// The preload, with its bridges and the core beside it: found in `cache`, or written there. Fails with
/// [`Error::NoBridges`], [`Error::Io`].
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
    // what is left of a process that was killed
    let _ = fs::remove_file(&link);
    symlink(core, &link).map_err(Error::io(format!("make {}", link.display())))?;
    for (name, bytes) in BUILT {
        let part = directory.path().join("part");
        fs::write(&part, bytes).map_err(Error::io(format!("write {}", part.display())))?;
        put(&part, &directory.path().join(name))?;
    }
    Ok(directory.path().join(PRELOAD))
}

/// Moves a finished file to its place.
fn put(part: &Path, place: &Path) -> Result<(), Error> {
    // whatever the umask of whoever started this says: others could write the library otherwise
    fs::set_permissions(part, fs::Permissions::from_mode(0o755))
        .map_err(Error::io(format!("set the mode of {}", part.display())))?;
    fs::rename(part, place).map_err(Error::io(format!("move {}", part.display())))
}

/// A bridge that `mpicc` compiles with its own `mpi.h`, or compiled before and left in `cache`. `progress`
/// hears that something is compiled. Fails with [`Error::NoCompiler`], [`Error::NotBuilt`], [`Error::Io`].
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

/// The compiler's own command line names the library's version and place.
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
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().find(|line| line.contains("error")).unwrap_or("it did not say why");
        return Err(Error::NotBuilt { compiler: compiler.to_owned(), said: line.trim().to_owned() });
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
        assert!(error.to_string().contains("cargo build --release"), "{error}");
        fs::write(directory.path().join(CORE), b"").expect("a file");
        assert!(core(&directory.path().join("unisono")).is_ok());
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
