//! Reads the text files of the project (the files that git tracks or, without git, all files below the
//! directory) and the list of its crates.

use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct SourceFile {
    /// Relative to the workspace, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// A file with this text in its first lines is generated.
const GENERATED_MARK: &str = "do not edit";

impl SourceFile {
    /// Whether the file is generated, so that its style is not checked.
    pub(super) fn is_generated(&self) -> bool {
        self.text.lines().take(3).any(|line| line.contains(GENERATED_MARK))
    }

    pub(super) fn has_ending(&self, ending: &str) -> bool {
        self.path.ends_with(ending)
    }
}

pub(super) struct Sources {
    pub(super) root: PathBuf,
    pub(super) files: Vec<SourceFile>,
    /// The output of `cargo metadata`.
    pub(super) metadata: Value,
}

impl Sources {
    /// Reads the text files below `root`.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let mut paths = match tracked(&root) {
            Some(paths) => paths,
            None => walk(&root)?,
        };
        paths.sort();
        let file =
            |path: String| fs::read_to_string(root.join(&path)).ok().map(|text| SourceFile { path, text });
        let files = paths.into_iter().filter_map(file).collect();
        let metadata = metadata(&root)?;
        Ok(Self { root, files, metadata })
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.has_ending(".rs"))
    }

    #[cfg(test)]
    pub(super) fn from_texts(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| SourceFile { path: (*path).to_owned(), text: (*text).to_owned() });
        Self { root: PathBuf::from("/nonexistent"), files: files.collect(), metadata: Value::Null }
    }
}

fn metadata(root: &Path) -> io::Result<Value> {
    let mut cargo = unisono_host_tests::program::cargo();
    cargo.args(["metadata", "--locked", "--offline", "--no-deps", "--format-version=1"]).current_dir(root);
    let output = cargo.output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns tracked files, and new files that are not ignored.
fn tracked(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .ok()?;
    let list = String::from_utf8(output.stdout).ok()?;
    output
        .status
        .success()
        .then(|| list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type()?.is_dir() {
                if name != "target" && name != ".git" {
                    directories.push(entry.path());
                }
            } else if let Some(path) = entry.path().strip_prefix(root).ok().and_then(Path::to_str) {
                found.push(path.to_owned());
            }
        }
    }
    Ok(found)
}
