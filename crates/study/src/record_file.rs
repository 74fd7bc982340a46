//! `records.jsonl`: one line for each study and each run, on disk before the next run begins.
//!
//! Cost: a write and an fsync per line (milliseconds on a disk), between runs and never during one.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use unisono_measure::record::Line;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory is not empty; measurements are never overwritten.
    #[error("{} exists; choose another directory with --out, for nothing measured is overwritten", .0.display())]
    Exists(PathBuf),
    #[error("cannot write {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

#[derive(Debug)]
pub struct RecordFile {
    file: File,
    path: PathBuf,
}

impl RecordFile {
    /// Creates the directory, which must be empty or not exist, and an empty `records.jsonl` in it.
    pub fn create(directory: &Path) -> Result<Self, RecordError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| RecordError::Io { path, source }
        };
        let is_taken = match std::fs::read_dir(directory) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(io(directory)(error)),
        };
        if is_taken {
            return Err(RecordError::Exists(directory.to_owned()));
        }
        std::fs::create_dir_all(directory).map_err(io(directory))?;
        let path = directory.join("records.jsonl");
        let file = File::options().append(true).create_new(true).open(&path).map_err(io(&path))?;
        Ok(Self { file, path })
    }

    /// Opens the `records.jsonl` of a directory to append to it. Half a line at the end, left by a crash, is
    /// removed.
    pub fn continue_in(directory: &Path) -> Result<Self, RecordError> {
        let path = directory.join("records.jsonl");
        let io = |source| RecordError::Io { path: path.clone(), source };
        let whole = std::fs::read(&path).map_err(io)?;
        let file = File::options().append(true).open(&path).map_err(io)?;
        let end = whole.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if end < whole.len() {
            file.set_len(end as u64).map_err(io)?;
        }
        Ok(Self { file, path })
    }

    /// Appends a line and waits until it is on disk.
    pub fn append(&mut self, line: &Line) -> Result<String, RecordError> {
        let io = |source| RecordError::Io { path: self.path.clone(), source };
        let mut text = serde_json::to_string(line).map_err(|error| io(error.into()))?;
        text.push('\n');
        // a single write, so that a reader never sees half a line followed by another writer's
        self.file.write_all(text.as_bytes()).map_err(io)?;
        self.file.sync_data().map_err(io)?;
        text.pop();
        Ok(text)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{RunLine, StudyLine};

    #[test]
    fn lines_are_appended_and_read_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path().join("deep/out");
        let mut records = RecordFile::create(&out).expect("a new directory");
        let lines = [
            Line::Study(Box::default()),
            Line::Run(Box::new(RunLine { variant: "gang".into(), ..RunLine::default() })),
        ];
        for line in &lines {
            records.append(line).expect("written");
        }
        let text = std::fs::read_to_string(records.path()).expect("readable");
        let read: Vec<Line> = text.lines().map(|l| serde_json::from_str(l).expect("a line")).collect();
        assert_eq!(read, lines);
        assert_eq!(
            StudyLine::default(),
            *match &read[0] {
                Line::Study(s) => s.clone(),
                Line::Run(_) => Box::default(),
            }
        );
    }

    #[test]
    fn a_file_is_continued_after_its_last_whole_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("records.jsonl");
        std::fs::write(&path, "whole\nha").expect("written");
        let mut records = RecordFile::continue_in(directory.path()).expect("it is there");
        let line = records.append(&Line::Study(Box::default())).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), format!("whole\n{line}\n"));
        assert!(RecordFile::continue_in(&directory.path().join("none")).is_err());
    }

    #[test]
    fn a_directory_with_something_in_it_is_never_written_to() {
        let directory = tempfile::tempdir().expect("a directory");
        RecordFile::create(directory.path()).expect("an empty directory is taken");
        let error = RecordFile::create(directory.path()).expect_err("it has records now").to_string();
        assert!(error.contains("exists") && error.contains("--out"), "{error}");
    }
}
