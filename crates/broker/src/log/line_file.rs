//! A file of lines, in which the last line of each name is valid. Lines are appended. The file is to be
//! rewritten once it is larger than twice the bytes of its valid lines plus [`MAX_SLACK`].
//!
//! A rewritten file is synced and takes its name by rename(2), so that a crash leaves the former file or the
//! new one. Cost: a write for each line, and a rewrite each time the file has grown to this size.

use super::{LogError, own_file};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of bytes by which a file may exceed twice the bytes of its valid lines, so that a file with few
/// lines is not rewritten all the time: each rewrite waits for the disk. Chosen by this argument, not
/// measured.
const MAX_SLACK: u64 = 1 << 20;

/// A file that is open for new lines.
#[derive(Debug)]
pub(super) struct LineFile {
    path: PathBuf,
    file: Arc<File>,
    /// Bytes of all whole lines.
    bytes: u64,
    /// Whether an incomplete line may follow the whole lines.
    torn: bool,
}

impl LineFile {
    /// Reads a file; a missing file is empty.
    pub(super) fn content(path: &Path) -> Result<Vec<u8>, LogError> {
        match own_file::read(path) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(LogError::Read { path: path.to_owned(), source }),
        }
    }

    /// Replaces a file by one with this content, and opens it.
    pub(super) fn replace(path: &Path, content: &[u8]) -> Result<Self, LogError> {
        let anew = path.with_extension("new");
        let written = || {
            let mut options = OpenOptions::new();
            let mut file = options.append(true).create_new(true).mode(0o600).open(&anew)?;
            file.write_all(content)?;
            file.sync_data()?;
            fs::rename(&anew, path)?;
            Ok(Arc::new(file))
        };
        // left by a broker that was killed during the rewrite
        let _ = fs::remove_file(&anew);
        let file = written().map_err(|source| LogError::Write { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file, bytes: content.len() as u64, torn: false })
    }

    /// Appends a line with its end. After an error, the next call first removes the incomplete line: a reader
    /// that finds such a line before others takes the file for damaged.
    pub(super) fn append(&mut self, line: &[u8]) -> Result<(), LogError> {
        let failed = |source| LogError::Write { path: self.path.clone(), source };
        if self.torn {
            self.file.set_len(self.bytes).map_err(failed)?;
        }
        self.torn = true;
        (&*self.file).write_all(line).map_err(failed)?;
        self.torn = false;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Returns whether the file is to be rewritten, if its valid lines have this many bytes.
    pub(super) fn is_overgrown(&self, counting: u64) -> bool {
        self.bytes > 2 * counting + MAX_SLACK
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_written_in_part_is_gone_after_the_next_one() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("lines");
        let mut lines = LineFile::replace(&path, b"one\n").expect("there is room");
        (&*lines.file).write_all(b"tw").expect("as a write to a full disk leaves it");
        lines.torn = true;
        lines.append(b"three\n").expect("there is room");
        lines.append(b"four\n").expect("there is room");
        assert_eq!(LineFile::content(&path).expect("it is there"), b"one\nthree\nfour\n");
        assert_eq!(lines.bytes, 15);
    }
}
