//! Writes the files of an installation and keeps a list of them, which `cargo xtask uninstall` removes.
//!
//! The list is `share/unisono/installed-files` below the prefix, with a path on each line: first the files,
//! then the directories that the installation created, with a slash at the end and the deepest first.

use super::InstallPrefix;
use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const LIST: &str = "share/unisono/installed-files";
/// The line of the list that stands for the prefix itself.
const PREFIX: &str = "./";

/// An installation that is being written.
pub(crate) struct InstalledFiles {
    pub(super) prefix: InstallPrefix,
    files: BTreeSet<String>,
    /// Directories that the installation created, with a slash at the end.
    made: BTreeSet<String>,
}

impl InstalledFiles {
    pub(crate) fn below(prefix: &InstallPrefix) -> Self {
        Self { prefix: prefix.clone(), files: BTreeSet::new(), made: BTreeSet::new() }
    }

    /// Replaces a file in one step, so that a running program keeps the old file.
    pub(crate) fn install(&mut self, below: &str, mode: u32, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.place(below)?;
        let new = path.with_extension("unisono-new");
        let write = || -> io::Result<()> {
            fs::write(&new, bytes)?;
            fs::set_permissions(&new, PermissionsExt::from_mode(mode))?;
            fs::rename(&new, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
        Ok(())
    }

    pub(crate) fn link(&mut self, below: &str, to: &str) -> anyhow::Result<()> {
        let path = self.place(below)?;
        remove_if_there(&path).with_context(|| format!("cannot replace {}", path.display()))?;
        symlink(to, &path).with_context(|| format!("cannot make {}", path.display()))?;
        println!("{} -> {to}", path.display());
        Ok(())
    }

    /// Creates the directories of a file, and adds the file and the new directories to the list. Returns the
    /// file's path.
    fn place(&mut self, below: &str) -> anyhow::Result<std::path::PathBuf> {
        let path = self.prefix.path(below);
        for parent in Path::new(below).ancestors().skip(1) {
            let parent = parent.to_string_lossy();
            if !self.prefix.path(&parent).exists() {
                self.made.insert(if parent.is_empty() { PREFIX.to_owned() } else { format!("{parent}/") });
            }
        }
        let directory = path.parent().context("a file without a directory")?;
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        self.files.insert(below.to_owned());
        Ok(path)
    }

    /// Writes the list, and removes files of an earlier installation that this one does not have.
    pub(super) fn write_list(mut self) -> anyhow::Result<()> {
        if let Ok(earlier) = fs::read_to_string(self.prefix.path(LIST)) {
            for line in earlier.lines() {
                if line.ends_with('/') {
                    self.made.insert(line.to_owned());
                } else if !self.files.contains(line) && line != LIST {
                    remove_if_there(&self.prefix.path(line))
                        .with_context(|| format!("cannot remove {line}"))?;
                }
            }
        }
        self.place(LIST)?; // adds the list to itself
        let lines = self.files.iter().chain(self.made.iter().rev());
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        self.install(LIST, 0o644, text.as_bytes())
    }
}

/// Removes the files that `cargo xtask install` wrote below the prefix, and the directories that it created,
/// if they are empty now.
pub(crate) fn uninstall(prefix: &InstallPrefix) -> anyhow::Result<bool> {
    let list = prefix.path(LIST);
    let text = fs::read_to_string(&list).with_context(|| {
        format!("{} cannot be read: nothing that is known is installed there", list.display())
    })?;
    for line in text.lines() {
        ensure!(
            line == PREFIX || is_inside(line),
            "{} names {line:?}, which is not below the prefix",
            list.display()
        );
    }
    for line in text.lines() {
        let path = prefix.path(if line == PREFIX { "" } else { line });
        let removed = if line.ends_with('/') {
            // files that Python compiled after the installation
            if line.ends_with("/unisono/") {
                let _ = fs::remove_dir_all(path.join("__pycache__"));
            }
            remove_empty(&path)
        } else {
            remove_if_there(&path)
        };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    println!("{} files and directories removed", text.lines().count());
    Ok(true)
}

/// Whether a line of the list is a path below the prefix.
fn is_inside(line: &str) -> bool {
    !line.is_empty()
        && Path::new(line).components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn remove_empty(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(prefix: &InstallPrefix, files: &[&str]) {
        let mut installed = InstalledFiles::below(prefix);
        files.iter().for_each(|file| installed.install(file, 0o644, b"").expect("there is room"));
        installed.write_list().expect("there is room");
    }

    fn prefix(directory: &Path) -> InstallPrefix {
        let libraries = "lib".to_owned();
        InstallPrefix { prefix: directory.to_owned(), staging: None, libraries, python: "lib/python".into() }
    }

    #[test]
    fn nothing_is_left_of_an_installation_but_what_was_there_before() {
        let directory = tempfile::tempdir().expect("there is room");
        fs::create_dir(directory.path().join("bin")).expect("there is room");
        let prefix = prefix(directory.path());
        install(&prefix, &["bin/a", "lib/python/unisono/b", "share/man/man1/c"]);
        install(&prefix, &["bin/a", "lib/python/unisono/b"]);
        assert!(!directory.path().join("share/man/man1/c").exists(), "it is not in the second one");
        let compiled = directory.path().join("lib/python/unisono/__pycache__");
        fs::create_dir(&compiled).expect("there is room");
        fs::write(compiled.join("b.pyc"), b"").expect("there is room");
        uninstall(&prefix).expect("it is installed");
        let left: Vec<_> = fs::read_dir(directory.path()).expect("it is there").flatten().collect();
        assert!(matches!(&left[..], [one] if one.file_name() == "bin"), "{left:?}");
        assert_eq!(fs::read_dir(directory.path().join("bin")).expect("it is there").count(), 0);
    }

    #[test]
    fn a_prefix_that_was_not_there_goes() {
        let directory = tempfile::tempdir().expect("there is room");
        let prefix = prefix(&directory.path().join("new"));
        install(&prefix, &["bin/a"]);
        uninstall(&prefix).expect("it is installed");
        assert!(!prefix.prefix.exists());
    }

    #[test]
    fn a_directory_with_files_of_others_stays() {
        let directory = tempfile::tempdir().expect("there is room");
        let prefix = prefix(directory.path());
        install(&prefix, &["bin/a"]);
        fs::write(directory.path().join("bin/of-others"), b"").expect("there is room");
        uninstall(&prefix).expect("it is installed");
        assert!(directory.path().join("bin/of-others").exists());
        assert!(!directory.path().join("share").exists());
    }

    #[test]
    fn a_list_that_leads_outside_removes_nothing() {
        let directory = tempfile::tempdir().expect("there is room");
        let prefix = prefix(directory.path());
        install(&prefix, &["bin/a"]);
        fs::write(directory.path().join(LIST), "bin/a\n../b\n").expect("there is room");
        assert!(uninstall(&prefix).is_err());
        assert!(directory.path().join("bin/a").exists());
    }
}
