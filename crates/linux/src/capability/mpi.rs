//! The installed MPIs, found by their libraries, and the `unisono mpi` bridge for each.
//!
//! Only file names are examined. Which MPI a program really uses is determined in its process.

use super::TrialFinding;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the bridge for a library of this name. `Some(None)`: no bridge exists for that version.
fn bridge(name: &str) -> Option<Option<&'static str>> {
    let version = |stem: &str| name.strip_prefix(stem).filter(|version| version.parse::<u32>().is_ok());
    if version("libmpi_abi.so.").is_some() {
        return Some(Some("standard"));
    }
    match (version("libmpi.so."), version("libmpich.so.")) {
        (Some("12"), _) | (_, Some("12")) => Some(Some("mpich")),
        (Some("40"), _) => Some(Some("openmpi")),
        (None, None) => None,
        _ => Some(None),
    }
}

/// Returns the directories that the dynamic linker searches by default, and the `lib` directories beside
/// those on `PATH`: if an MPI is installed in a directory of its own (a virtual environment, /opt), the
/// directory of its `mpiexec` is on `PATH`.
fn directories() -> Vec<PathBuf> {
    let paths =
        |name: &str| env::var_os(name).map(|value| env::split_paths(&value).collect()).unwrap_or_default();
    let listed: Vec<PathBuf> = paths("LD_LIBRARY_PATH");
    let beside: Vec<PathBuf> = paths("PATH");
    let arch = env::consts::ARCH;
    let system = ["/usr/local/lib".to_owned(), format!("/usr/lib/{arch}-linux-gnu"), "/usr/lib64".to_owned()];
    let beside = beside.iter().filter_map(|bin| Some(bin.parent()?.join("lib")));
    listed.into_iter().chain(beside).chain(system.map(PathBuf::from)).collect()
}

pub(super) fn libraries() -> TrialFinding {
    among(&directories())
}

fn among(directories: &[PathBuf]) -> TrialFinding {
    let mut seen = BTreeSet::new();
    let (mut lines, mut unread) = (Vec::new(), Vec::new());
    for directory in
        directories.iter().filter(|place| place.canonicalize().is_ok_and(|real| seen.insert(real)))
    {
        match in_directory(directory) {
            Ok(libraries) => lines.extend(libraries),
            Err(_) => unread.push(directory.display().to_string()),
        }
    }
    if lines.is_empty() && !unread.is_empty() {
        return TrialFinding::undecided(
            format!("these directories cannot be read: {}", unread.join(", ")),
            "run it as a user that can; unisono mpi finds an MPI in the program's process",
        );
    }
    if lines.is_empty() {
        return TrialFinding::missing(
            "no libmpi where programs look for libraries",
            "an MPI in another place is served as well: unisono mpi finds it in the program's process",
        );
    }
    TrialFinding::found(lines.join("; "))
}

fn in_directory(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?;
    let names: BTreeSet<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let libraries = names
        .iter()
        .filter_map(|name| {
            let served = bridge(name)?
                .map_or("no bridge: unisono mpi --mpicc".to_owned(), |bridge| format!("bridge {bridge}"));
            Some(format!("{} ({served})", directory.join(name).display()))
        })
        .collect();
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_library_is_listed_with_its_bridge() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str| fs::write(directory.path().join(name), b"").expect("a file");
        assert!(!among(&[directory.path().to_owned()]).is_found());
        for name in
            ["libmpi.so.12", "libmpi_abi.so.1", "libmpi.so.40", "libmpi.so.20", "libmpi.so", "libmpir.so.3"]
        {
            file(name);
        }
        // a directory that occurs twice is listed once
        let finding =
            among(&[directory.path().to_owned(), directory.path().join("."), "/nonexistent".into()]);
        let detail = finding.detail;
        assert_eq!(detail.matches("libmpi").count(), 4, "{detail}");
        for (name, served) in [
            ("libmpi.so.12", "(bridge mpich)"),
            ("libmpi.so.40", "(bridge openmpi)"),
            ("libmpi_abi.so.1", "(bridge standard)"),
            ("libmpi.so.20", "(no bridge: unisono mpi --mpicc)"),
        ] {
            assert!(detail.contains(&format!("/{name} {served}")), "{name}: {detail}");
        }
    }
}
