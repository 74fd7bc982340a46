//! Programs on `PATH`.

use crate::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the path of the program `name` on `PATH`, if there is one.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| path.is_file() && is_executable(path);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(name)).find(is_program)
}

/// Returns a Python that has `module`: the first on `PATH`, or the distribution's. Only the distribution's
/// Python has the modules from the distribution's packages, and another Python may come before it on `PATH`.
#[must_use]
pub fn python_with(module: &str) -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let mut import = Command::new(python);
        import.args(["-c", &format!("import {module}")]).stdin(Stdio::null()).stderr(Stdio::null());
        import.status().is_ok_and(|status| status.success())
    })
}

/// Returns the file that exec(2) would start for this name.
pub fn executable(name: &Path) -> io::Result<PathBuf> {
    let is_path = name.to_string_lossy().contains('/');
    let file = match is_path {
        true => name.to_owned(),
        false => on_path(&name.to_string_lossy()).ok_or(io::ErrorKind::NotFound)?,
    };
    let metadata = fs::metadata(&file)?;
    match (metadata.is_dir(), metadata.is_file()) {
        (true, _) => Err(io::ErrorKind::IsADirectory.into()),
        // a reader of a named pipe waits for its writer
        (_, false) => Err(Errno::NOEXEC.into()),
        _ if !is_executable(&file) => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Ok(file),
    }
}

/// Returns the clang on `PATH`: `clang` itself, or the highest version among names such as `clang-16`.
///
/// Distributions put the plain name into a package of its own, so a host may have the compiler without it.
pub fn clang() -> Option<PathBuf> {
    on_path("clang").or_else(|| highest_version(&std::env::var_os("PATH")?, "clang-"))
}

fn highest_version(path: &std::ffi::OsStr, prefix: &str) -> Option<PathBuf> {
    let programs = std::env::split_paths(path).filter_map(|directory| fs::read_dir(directory).ok()).flatten();
    let versioned = programs.flatten().filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
        let file = entry.path();
        (file.is_file() && is_executable(&file)).then_some((version, file))
    });
    versioned.max_by_key(|(version, _)| *version).map(|(_, file)| file)
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_a_program() {
        let place = tempfile::tempdir().expect("a directory");
        let pipe = place.path().join("pipe");
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        let error = executable(&pipe).expect_err("a pipe is no program");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOEXEC));
        let error = executable(place.path()).expect_err("a directory is no program");
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert!(executable(Path::new("sh")).is_ok());
    }

    #[test]
    fn of_compilers_that_name_their_version_the_highest_is_taken() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a directory");
        for (name, mode) in
            [("clang-9", 0o755), ("clang-16", 0o755), ("clang-19", 0o644), ("clang-cpp-17", 0o755)]
        {
            let file = place.path().join(name);
            fs::write(&file, "#!/bin/sh\n").expect("a file");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("its mode");
        }
        let directory = place.path().as_os_str();
        let found = highest_version(directory, "clang-").expect("there is one");
        assert!(found.ends_with("clang-16"), "{}", found.display());
        assert_eq!(highest_version(directory, "gcc-"), None);
    }
}
