//! What `unisono fit` learns from the file of a program.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use unisono_fit::ProgramTraits;
use unisono_fit::program::{Go, Java};
use unisono_launch::Error;
use unisono_linux::programs::on_path;
use unisono_mpi_preload::{HostMpi, elf, is_launcher};

/// A larger file is not read.
const LARGEST: u64 = 256 << 20;

pub(crate) fn look(command: &[OsString]) -> Result<ProgramTraits, Error> {
    let [name, arguments @ ..] = command else { return Ok(ProgramTraits::default()) };
    let written = Path::new(name);
    let text = name.to_string_lossy();
    let file = locate(written).map_err(Error::start(written, format!("find {text}")))?;
    let bytes = match fs::metadata(&file) {
        // a program that may be executed but not read
        Ok(metadata) if metadata.len() <= LARGEST => fs::read(&file).unwrap_or_default(),
        _ => Vec::new(),
    };
    let libraries = elf::needed(&bytes);
    let starts_ranks = is_launcher(&text);
    Ok(ProgramTraits {
        name: written.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        go: Go::of(&bytes),
        java: if written.file_name().is_some_and(|name| name == "java") { java(&file) } else { None },
        ranks: if starts_ranks { ranks(arguments) } else { None },
        mpi: starts_ranks || libraries.iter().any(|library| HostMpi::of_library(library).is_some()),
        libraries,
    })
}

/// The file that exec(2) would start.
fn locate(name: &Path) -> io::Result<PathBuf> {
    let file = match name.components().count() {
        0 | 1 if !name.has_root() && !name.to_string_lossy().contains('/') => {
            on_path(&name.to_string_lossy()).ok_or(ErrorKind::NotFound)?
        }
        _ => name.to_owned(),
    };
    let metadata = fs::metadata(&file)?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(file)
}

/// `/usr/bin/java` is a link into the JDK, whose file `release` names the version.
fn java(file: &Path) -> Option<Java> {
    let file = file.canonicalize().ok()?;
    Java::of_release(&fs::read_to_string(file.parent()?.parent()?.join("release")).ok()?)
}

/// `mpiexec -n 8`, `mpirun -np 8`, `srun --ntasks=8`.
fn ranks(arguments: &[OsString]) -> Option<usize> {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    words.iter().enumerate().find_map(|(at, word)| match word.split_once('=') {
        Some(("--ntasks" | "--np" | "-np" | "-n", number)) => number.parse().ok(),
        _ if ["-n", "-np", "--np", "-c", "--ntasks"].contains(&&**word) => words.get(at + 1)?.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_ranks_is_read_as_launchers_take_it() {
        let ranks = |line: &str| ranks(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(ranks("-n 8 ./program"), Some(8));
        assert_eq!(ranks("--oversubscribe -np 4 ./program"), Some(4));
        assert_eq!(ranks("--ntasks=16 ./program"), Some(16));
        assert_eq!(ranks("./program"), None);
        assert_eq!(ranks("-n"), None);
    }

    #[test]
    fn a_shell_is_a_program_of_no_known_runtime() {
        let found = look(&["sh".into(), "-c".into(), "true".into()]).expect("sh is on every Linux");
        assert_eq!((found.name.as_str(), found.go, found.java, found.mpi), ("sh", None, None, false));
    }
}
