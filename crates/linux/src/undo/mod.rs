//! Records of a program's changes to a host, so that they can be undone if the program is killed.
//!
//! A private directory of small files, [`UndoDirectory`]. A process that is about to make a change writes a
//! file first, and removes it after restoring the old state. A process that finds a file whose writer has
//! died undoes the change.
//!
//! The idea: a process executes such files with its own privileges, so it reads them only if no other user
//! can have written them: the directory is a [`PrivateDirectory`], and the file a regular file of this user,
//! not a link. A file appears completely or not at all ([`UndoDirectory::write`]). Space for the record at
//! the end of a change can be reserved before the change begins ([`UndoDirectory::prepare`]). A file that
//! consists of lines can grow by a line, which costs no more for a long file ([`UndoDirectory::append`]).
//!
//! One process at a time changes the directory: [`UndoDirectory::lock`] is flock(2) on the directory itself,
//! so the lock ends with its holder and leaves no file. The lock can be passed to a program that continues
//! the change ([`DirectoryLock::pass_to`]).
//!
//! Cost: a check of each directory of the path and some five system calls per file. When not to use it: for
//! data that change often. Reference: flock(2), rename(2), open(2) on `O_NOFOLLOW`.

mod line;

pub use line::PreparedLine;

use crate::local_socket::own_user;
use crate::pidfd::{runs, start_time};
use crate::pinned::PinnedProcess;
use crate::private_directory::{PrivateDirectory, open_directory};
use crate::process::Signal;
use crate::read;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The suffix of files that are still being written.
const UNFINISHED: &str = ".new";
/// The longest file that is read, in bytes: a journal with a line for each of 100,000 threads has a quarter
/// of it.
const MAX_JOURNAL_BYTES: u64 = 64 << 20;
/// The pause between two attempts to take a lock that another process holds.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(2);
/// The number of attempts to make a directory that another process removes at the same time.
const MAX_TRIES: usize = 100;

/// The number of files that this process has begun to write; makes their names unique.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// The process that wrote a record, by its number and its start in clock ticks since boot, because numbers
/// are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    pub process: u32,
    pub started: u64,
}

impl Author {
    /// Returns the author that has this number now. If no process has the number, the author has the start 0,
    /// and [`lives`](Self::lives) returns false.
    pub fn for_process(process: u32) -> Self {
        Self { process, started: start_time(process).unwrap_or(0) }
    }

    pub fn this_process() -> Self {
        Self::for_process(std::process::id())
    }

    /// Returns whether the process is still running. If not, the changes in its records have to be undone.
    pub fn lives(self) -> bool {
        runs(self.process, self.started)
    }

    /// Pins the process. `None`: it is gone, and another process may have its number.
    pub fn hold(self) -> Option<PinnedProcess> {
        PinnedProcess::identified(self.process, self.started).ok()
    }

    /// Waits for the end of the process; returns whether it ended in time.
    pub fn has_ended(self, timeout: Duration) -> bool {
        self.hold().is_none_or(|held| held.has_ended(Some(timeout)).unwrap_or(false))
    }

    /// Kills the process and waits for its end; returns whether it ended in time.
    pub fn kill(self, timeout: Duration) -> bool {
        let Some(held) = self.hold() else { return true };
        let _ = held.send(Signal::Kill); // it may have ended
        held.has_ended(Some(timeout)).unwrap_or(false)
    }
}

/// A directory of undo records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UndoDirectory {
    path: PathBuf,
}

/// The exclusive right to change a directory, until dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    directory: PathBuf,
    held: File,
}

/// A file that has been written under a temporary name. Dropped without [`PreparedFile::commit`], it is
/// removed.
#[derive(Debug)]
pub struct PreparedFile {
    beside: PathBuf,
    place: PathBuf,
}

impl UndoDirectory {
    /// Refers to the directory at an absolute path; it need not exist yet.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory, if it exists. Fails with `PermissionDenied` if other users could have written
    /// into it.
    fn existing(&self) -> io::Result<Option<PrivateDirectory>> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(_) => PrivateDirectory::open(&self.path).map(Some),
        }
    }

    /// Returns the names of the directory's files that end with `suffix`, sorted; none if the directory does
    /// not exist.
    pub fn files(&self, suffix: &str) -> io::Result<Vec<String>> {
        let Some(directory) = self.existing()? else { return Ok(Vec::new()) };
        let entries = match fs::read_dir(directory.path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(suffix)).collect();
        names.sort();
        Ok(names)
    }

    /// Reads the text of a file; `None` if it does not exist. Fails with `PermissionDenied` if other users
    /// could have written the file, or if it is a link or not a regular file.
    pub fn read(&self, name: &str) -> io::Result<Option<String>> {
        let Some(file) = self.open(name, OpenOptions::new().read(true))? else { return Ok(None) };
        as_text(read::all(file, MAX_JOURNAL_BYTES)?).map(Some)
    }

    /// Reads the first line of a file as [`Self::read`] reads the file, without its line end.
    pub fn read_first_line(&self, name: &str) -> io::Result<Option<String>> {
        let Some(file) = self.open(name, OpenOptions::new().read(true))? else { return Ok(None) };
        let mut line = Vec::new();
        BufReader::new(file.take(MAX_JOURNAL_BYTES)).read_until(b'\n', &mut line)?;
        line.pop_if(|last| *last == b'\n');
        as_text(line).map(Some)
    }

    /// Opens a file. Returns `None` if it does not exist.
    fn open(&self, name: &str, options: &mut OpenOptions) -> io::Result<Option<File>> {
        let Some(directory) = self.existing()? else { return Ok(None) };
        let path = directory.path().join(name);
        // O_NONBLOCK: if the file is a pipe, the call does not wait for the other end
        let file = match options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
                return Err(refused(&path, "is a link"));
            }
            file => file?,
        };
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(refused(&path, "is no file"));
        }
        if found.uid() != own_user() {
            return Err(refused(&path, &format!("belongs to user {}", found.uid())));
        }
        if found.mode() & 0o022 != 0 {
            return Err(refused(&path, "may be written by other users"));
        }
        Ok(Some(file))
    }

    /// Makes the directory if it is missing; it may be gone again before the next call.
    fn make(&self) -> io::Result<PrivateDirectory> {
        let mut tries = 0;
        loop {
            tries += 1;
            match PrivateDirectory::open(&self.path) {
                // the previous process has just removed the empty directory
                Err(error) if error.kind() == ErrorKind::NotFound && tries < MAX_TRIES => {}
                made => return made,
            }
        }
    }

    /// Makes a new, empty file for appending lines.
    pub fn create(&self, name: &str) -> io::Result<File> {
        let mut tries = 0;
        loop {
            tries += 1;
            let path = self.make()?.path().join(name);
            match OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound && tries < MAX_TRIES => {}
                opened => return opened,
            }
        }
    }

    /// Writes a file durably before it returns. Other processes see the old contents or all of the new ones.
    /// After an error the old contents remain.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.prepare(name, bytes)?.commit()
    }

    /// Writes a file under a temporary name, so that its space is reserved until [`PreparedFile::commit`].
    /// Only for the holder of the [lock](Self::lock): its next holder removes unfinished files. An error
    /// leaves no change.
    pub fn prepare(&self, name: &str, bytes: &[u8]) -> io::Result<PreparedFile> {
        let prepared = self.prepared(name)?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&prepared.beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(prepared)
    }

    /// Appends a line to an existing file, all but its end, which [`PreparedLine::commit`] writes. Only for
    /// the holder of the [lock](Self::lock). Removes what follows the last line end of the file: a line that
    /// a killed process did not commit. An error leaves no other change.
    pub fn append(&self, name: &str, line: &str) -> io::Result<PreparedLine> {
        let file = self.open(name, OpenOptions::new().read(true).write(true))?;
        PreparedLine::new(file.ok_or(ErrorKind::NotFound)?, line)
    }

    /// Keeps the contents that a file has now, whatever is written under its name later, until
    /// [`PreparedFile::commit`] brings them back. It is a hard link, so it takes no space. Otherwise as
    /// [`Self::prepare`].
    pub fn prepare_present(&self, name: &str) -> io::Result<PreparedFile> {
        let prepared = self.prepared(name)?;
        fs::hard_link(&prepared.place, &prepared.beside)?;
        Ok(prepared)
    }

    /// Returns a new temporary name for a file.
    fn prepared(&self, name: &str) -> io::Result<PreparedFile> {
        let directory = self.make()?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let beside = directory.path().join(format!("{name}.{number}{UNFINISHED}"));
        Ok(PreparedFile { beside, place: directory.path().join(name) })
    }

    /// Renames a file, which needs no space. After an error nothing has changed.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    /// Removes a file. It is no error if the file does not exist.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the directory if it is empty, and then its parent if that is empty too and has one of
    /// Unisono's names.
    pub fn remove_if_empty(&self) {
        let is_ours = |above: &&Path| {
            let name = above.file_name().map(OsStr::as_bytes);
            name.is_some_and(|name| name == b"unisono" || name.starts_with(b"unisono-"))
        };
        let above = self.path.parent().filter(is_ours);
        if fs::remove_dir(&self.path).is_ok() {
            let _ = above.map(fs::remove_dir);
        }
    }

    /// Prevents other processes from changing the directory; waits at most `timeout` for the present holder.
    /// Returns `None` if the timeout expires. Removes unfinished files of a process that was killed.
    pub fn lock(&self, timeout: Duration) -> io::Result<Option<DirectoryLock>> {
        let until = Instant::now() + timeout;
        loop {
            let directory = self.make()?.path().to_owned();
            let held = match open_directory(&directory) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue, // it was just removed
                held => held?,
            };
            match held.try_lock() {
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return Ok(None),
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(LOCK_RETRY_INTERVAL);
                    continue;
                }
                locked => locked?,
            }
            // the directory may have been removed between opening and locking it
            if is_same(&held, &directory) {
                let lock = DirectoryLock { directory, held };
                for unfinished in self.files(UNFINISHED)? {
                    self.remove(&unfinished)?;
                }
                return Ok(Some(lock));
            }
        }
    }

    /// Takes over the lock that the program's starter has [passed on](DirectoryLock::pass_to). Fails if the
    /// descriptor does not refer to this directory.
    pub fn lock_passed_on(&self, descriptor: i32) -> io::Result<DirectoryLock> {
        // SAFETY: fcntl takes a number; an invalid descriptor number is an error.
        if descriptor <= 2 || unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: the descriptor is open, and the program's starter left it for this call alone.
        let held = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        if is_same(&held, &self.path) {
            Ok(DirectoryLock { directory: self.path.clone(), held })
        } else {
            Err(refused(&self.path, "is not what was passed on as locked"))
        }
    }
}

/// Returns whether a path still leads to the file that was opened through it.
fn is_same(held: &File, path: &Path) -> bool {
    let number = |found: fs::Metadata| (found.dev(), found.ino());
    let (held, there) = (held.metadata().map(number), fs::symlink_metadata(path).map(number));
    matches!((held, there), (Ok(held), Ok(there)) if held == there)
}

fn as_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

impl DirectoryLock {
    /// Makes a program hold the lock too, from its start: the lock is held until either of the two drops it,
    /// or both have ended. Returns the descriptor's number in the program, for
    /// [`UndoDirectory::lock_passed_on`].
    pub fn pass_to(&self, command: &mut Command) -> i32 {
        let descriptor = self.held.as_raw_fd();
        let keep = move || {
            // SAFETY: fcntl takes numbers and is async-signal-safe.
            if unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        };
        // SAFETY: `keep` allocates nothing and makes one async-signal-safe call.
        unsafe { command.pre_exec(keep) };
        descriptor
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // remove before unlocking: a waiting process notices the removal, and makes a new directory
        UndoDirectory::at(&self.directory).remove_if_empty();
        // otherwise copies of the descriptor in other processes would keep the lock
        let _ = self.held.unlock();
    }
}

impl PreparedFile {
    /// Moves the file into place, which needs no space. After an error the old file remains.
    pub fn commit(self) -> io::Result<()> {
        fs::rename(&self.beside, &self.place)
    }
}

impl Drop for PreparedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.beside); // gone if it was committed
    }
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn scratch() -> (tempfile::TempDir, UndoDirectory) {
        let scratch = tempfile::tempdir().expect("a directory for temporary files");
        let directory = UndoDirectory::at(&scratch.path().join("unisono/queue"));
        (scratch, directory)
    }

    fn denied<T: std::fmt::Debug>(result: io::Result<T>) -> String {
        let error = result.expect_err("somebody else could have written it");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        error.to_string()
    }

    #[test]
    fn an_author_is_told_from_a_later_process_with_its_number() {
        let this = Author::this_process();
        assert!(this.lives());
        assert!(!Author { started: this.started + 1, ..this }.lives());
        assert!(!Author { started: 0, ..this }.lives());
    }

    #[test]
    fn what_is_written_is_read_until_it_is_removed_and_looking_makes_no_directory() {
        let (scratch, directory) = scratch();
        assert_eq!(directory.read("a.json").expect("none is no error"), None);
        assert!(directory.files(".json").expect("none is no error").is_empty());
        assert_eq!(fs::read_dir(scratch.path()).expect("it is there").count(), 0);
        directory.write("a.json", b"one").expect("there is room");
        directory.write("a.json", b"two").expect("there is room");
        directory.write("b.other", b"").expect("there is room");
        assert_eq!(directory.read("a.json").expect("it is ours").as_deref(), Some("two"));
        assert_eq!(directory.files(".json").expect("it is ours"), ["a.json"]);
        directory.remove("a.json").expect("it is there");
        directory.remove("a.json").expect("twice is no error");
        assert_eq!(directory.read("a.json").expect("none is no error"), None);
    }

    #[test]
    fn a_file_that_somebody_else_can_have_written_is_not_believed() {
        let (scratch, directory) = scratch();
        directory.write("a", b"orders").expect("there is room");
        let path = directory.path().join("a");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is this user's");
        };
        mode(&path, 0o666);
        assert!(denied(directory.read("a")).contains("may be written by other users"));
        mode(&path, 0o600);
        symlink(&path, directory.path().join("link")).expect("a link");
        assert!(denied(directory.read("link")).contains("is a link"));
        fs::create_dir(directory.path().join("directory")).expect("a directory");
        assert!(denied(directory.read("directory")).contains("is no file"));
        mode(directory.path(), 0o777);
        denied(directory.read("a"));
        denied(directory.files(""));
        denied(directory.write("a", b"other"));
        denied(directory.lock(Duration::ZERO));
        mode(directory.path(), 0o700);
        if own_user() == 0 {
            chown(&path, Some(crate::privilege::NOBODY), None).expect("root may");
            assert!(denied(directory.read("a")).contains("belongs to user 65534"));
        } else {
            eprintln!("skipped: it needs root to give a file away");
        }
        let elsewhere = scratch.path().join("elsewhere");
        symlink(directory.path(), &elsewhere).expect("a link");
        assert!(denied(UndoDirectory::at(&elsewhere).files("")).contains("is a link"));
    }

    #[test]
    fn one_at_a_time_has_the_lock_and_it_leaves_nothing() {
        let (scratch, directory) = scratch();
        let lock = directory.lock(Duration::ZERO).expect("it can be made").expect("nobody else has it");
        assert!(directory.lock(Duration::from_millis(5)).expect("it is there").is_none());
        drop(lock);
        assert_eq!(fs::read_dir(scratch.path()).expect("it is there").count(), 0, "nothing is left behind");
        let again = directory.lock(Duration::ZERO).expect("it can be made");
        directory.write("a", b"").expect("there is room");
        drop(again.expect("it is free again"));
        assert!(directory.path().join("a").exists());
    }

    #[test]
    fn a_lock_that_was_passed_on_is_held_until_one_of_the_two_drops_it_or_both_have_ended() {
        let (_scratch, directory) = scratch();
        directory.write("a", b"").expect("there is room");
        let lock = directory.lock(Duration::ZERO).expect("it is there").expect("nobody else has it");
        let mut command = Command::new("sleep");
        let _number = lock.pass_to(command.arg("60"));
        let mut child = command.spawn().expect("sleep is on every Linux");
        // as if this process had been killed: without unlocking
        let lock = std::mem::ManuallyDrop::new(lock);
        // SAFETY: the descriptor is the lock's, which is never dropped.
        unsafe { libc::close(lock.held.as_raw_fd()) };
        assert!(directory.lock(Duration::from_millis(5)).expect("it is there").is_none());
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert!(directory.lock(Duration::ZERO).expect("it is there").is_some());
    }

    #[test]
    fn a_descriptor_that_is_not_the_directory_is_no_lock() {
        let (scratch, directory) = scratch();
        directory.write("a", b"").expect("there is room");
        assert!(directory.lock_passed_on(-1).is_err());
        let other = OwnedFd::from(open_directory(scratch.path()).expect("it is there"));
        let other = std::os::fd::IntoRawFd::into_raw_fd(other);
        assert!(denied(directory.lock_passed_on(other)).contains("passed on"));
    }

    #[test]
    fn what_was_prepared_takes_its_place_without_room_and_what_was_left_unfinished_goes() {
        let (_scratch, directory) = scratch();
        directory.write("a", b"before").expect("there is room");
        let prepared = directory.prepare("a", b"after").expect("there is room");
        assert_eq!(directory.read("a").expect("it is ours").as_deref(), Some("before"));
        prepared.commit().expect("a rename");
        assert_eq!(directory.read("a").expect("it is ours").as_deref(), Some("after"));
        let present = directory.prepare_present("a").expect("a link");
        directory.write("a", b"later").expect("there is room");
        present.commit().expect("a rename");
        assert_eq!(directory.read_first_line("a").expect("it is ours").as_deref(), Some("after"));
        drop(directory.prepare("a", b"given up").expect("there is room"));
        assert_eq!(directory.files("").expect("it is ours"), ["a"]);
        std::mem::forget(directory.prepare("a", b"of a process that was killed").expect("there is room"));
        assert_eq!(directory.files("").expect("it is ours").len(), 2);
        drop(directory.lock(Duration::ZERO).expect("it is there").expect("nobody else has it"));
        assert_eq!(directory.files("").expect("it is ours"), ["a"]);
        assert_eq!(directory.read("a").expect("it is ours").as_deref(), Some("after"));
    }
}
