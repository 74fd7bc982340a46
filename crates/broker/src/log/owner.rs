//! Changes the owner of a log's files: a broker that root started opens its log and then becomes another
//! user.

use super::log_time::CLOCK;
use super::name_owners::OWNERS;
use super::topics::TOPICS;
use super::{EXTENSION, LogError, cursor, sessions};
use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, Uid, fchown, fstat, openat};
use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Gives the log in a directory to a user and a group: the directory, and the log's own files in it. Links
/// are left unchanged, because a former owner of the directory may have made them.
///
/// # Errors
/// The process is not root, or the directory is not there.
pub fn change_owner(path: &Path, user: u32, group: u32) -> Result<(), LogError> {
    let failed = |source: Errno| LogError::Directory { path: path.to_owned(), source: source.into() };
    let owner = LogOwner(Uid::from_raw(user), Gid::from_raw(group));
    let directory = open_directory(CWD, path).map_err(failed)?;
    let is_ours = |name: &str| ["lock", CLOCK, TOPICS, OWNERS].contains(&name) || name.ends_with(EXTENSION);
    owner.take_files(path, &directory, is_ours)?;
    for name in [cursor::CONSUMERS, sessions::SESSIONS] {
        let folder = open_directory(&directory, Path::new(name)).map_err(failed)?;
        owner.take_files(&path.join(name), &folder, |_| true)?;
        owner.take(&folder).map_err(failed)?;
    }
    owner.take(&directory).map_err(failed)
}

struct LogOwner(Uid, Gid);

impl LogOwner {
    fn take(&self, file: impl AsFd) -> Result<(), Errno> {
        fchown(file, Some(self.0), Some(self.1))
    }

    /// Takes the log's regular files in a directory, unless they have a second name.
    fn take_files(
        &self,
        path: &Path,
        directory: &OwnedFd,
        is_ours: impl Fn(&str) -> bool,
    ) -> Result<(), LogError> {
        let failed = |source| LogError::Directory { path: path.to_owned(), source };
        for entry in fs::read_dir(path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if !name.to_str().is_some_and(&is_ours) {
                continue;
            }
            // O_NONBLOCK, because the name may be a pipe's
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(file) = openat(directory, &name, flags, Mode::empty()) else { continue };
            let facts = fstat(&file).map_err(|error| failed(error.into()))?;
            if FileType::from_raw_mode(facts.st_mode).is_file() && facts.st_nlink == 1 {
                self.take(&file).map_err(|error| failed(error.into()))?;
            }
        }
        Ok(())
    }
}

fn open_directory(from: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(from, path, flags, Mode::empty())
}
