//! A line that is appended to a file in two steps: all but its end before a change, and its end afterwards.
//!
//! ```text
//!   ... \n {"class":"smith"             killed meanwhile: a part of the line
//!   ... \n {"class":"smith"} _          prepared: a space where the line end will be
//!   ... \n {"class":"smith"} \n         committed
//! ```
//! Readers ignore what follows the last line end, so at every byte they see the lines before, or also the new
//! one. The end of the line needs no space in the file system, because it takes the place of a byte.
//!
//! Cost: some eight system calls, among them one fsync(2), however long the file is.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};

/// Takes the place of the line end until the line is committed.
const NOT_YET: &[u8] = b" ";
/// The bytes that are read at a time in search of the last line end.
const BLOCK: usize = 4096;

/// A line that has been appended, all but its end. Dropped without [`PreparedLine::commit`], it is removed.
#[derive(Debug)]
pub struct PreparedLine {
    file: File,
    /// The offset of the line.
    begin: u64,
    /// The offset of the line's end; `None` once it is written.
    end: Option<u64>,
}

impl PreparedLine {
    /// Appends a line behind the last line end of a file.
    pub(super) fn new(mut file: File, line: &str) -> io::Result<Self> {
        if line.contains('\n') {
            return Err(ErrorKind::InvalidInput.into());
        }
        let begin = end_of_lines(&mut file)?;
        file.set_len(begin)?;
        // from here on, an error removes the line again
        let mut this = Self { file, begin, end: Some(begin + line.len() as u64) };
        this.write(begin, &[line.as_bytes(), NOT_YET].concat())?;
        // the file system may give the space only now
        this.file.sync_all()?;
        Ok(this)
    }

    /// Writes the end of the line. It is not flushed: what a process writes is there for the next one, and no
    /// undo record is needed after a reboot. After an error the line is not there.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some(end) = self.end {
            self.write(end, b"\n")?;
            self.end = None;
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        self.file.write_all(bytes)
    }
}

impl Drop for PreparedLine {
    fn drop(&mut self) {
        if self.end.is_some() {
            let _ = self.file.set_len(self.begin); // otherwise the next append removes it
        }
    }
}

/// Returns the offset behind the last line end of a file. Fails if there is none: then the file does not
/// consist of lines.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut block = [0; BLOCK];
    while end > 0 {
        let begin = end.saturating_sub(BLOCK as u64);
        let part = &mut block[..(end - begin) as usize];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Err(ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::super::UndoDirectory;
    use super::*;
    use std::fs;

    fn scratch(contents: &str) -> (tempfile::TempDir, UndoDirectory) {
        let scratch = tempfile::tempdir().expect("a directory for temporary files");
        let directory = UndoDirectory::at(&scratch.path().join("unisono/queue"));
        directory.write("a", contents.as_bytes()).expect("there is room");
        (scratch, directory)
    }

    fn text(directory: &UndoDirectory) -> String {
        directory.read("a").expect("it is ours").expect("it is there")
    }

    #[test]
    fn a_line_is_there_when_it_is_committed_and_else_it_goes() {
        let long = "x".repeat(3 * BLOCK);
        for before in ["one\n".to_owned(), format!("{long}\n"), format!("one\n{long}")] {
            let whole = &before[..=before.rfind('\n').expect("there is one")];
            let (_scratch, directory) = scratch(&before);
            let prepared = directory.append("a", "two").expect("there is room");
            assert_eq!(text(&directory), format!("{whole}two "));
            prepared.commit().expect("it needs no room");
            assert_eq!(text(&directory), format!("{whole}two\n"));
            drop(directory.append("a", "three").expect("there is room"));
            assert_eq!(text(&directory), format!("{whole}two\n"));
        }
    }

    #[test]
    fn what_a_killed_process_left_of_its_line_goes_with_the_next_one() {
        let (_scratch, directory) = scratch("one\n");
        let path = directory.path().join("a");
        for left in 0..=3 {
            let killed = directory.append("a", "two").expect("there is room");
            std::mem::forget(killed);
            let file = fs::OpenOptions::new().write(true).open(&path).expect("it is there");
            file.set_len("one\n".len() as u64 + left).expect("it is shorter");
            drop(directory.append("a", "three").expect("there is room"));
            assert_eq!(text(&directory), "one\n", "{left} bytes were left");
        }
    }

    #[test]
    fn a_file_without_lines_and_a_line_that_is_several_are_refused_and_nothing_is_lost() {
        for (before, line) in [("one", "two"), ("", "two"), ("one\n", "two\nthree")] {
            let (_scratch, directory) = scratch(before);
            assert!(directory.append("a", line).is_err(), "{before:?}");
            assert_eq!(text(&directory), before);
        }
        let (_scratch, directory) = scratch("");
        let missing = directory.append("b", "two").expect_err("it is not there");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
