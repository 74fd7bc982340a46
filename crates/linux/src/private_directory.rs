//! Directories that no other user can write into, for files that are executed, preloaded or trusted later.
//!
//! A directory of mode 0700 that belongs to this user ([`PrivateDirectory`]), files in it, and the place for
//! caches ([`PrivateDirectory::cache`]).
//!
//! The idea: a path is as safe as the weakest directory on it. The owner of a directory, and each user with
//! write permission, can replace its entries (in a sticky directory: only entries that belong to them). So
//! every directory from the root down to the private one is checked at each use, after links are resolved: it
//! must belong to the system or to this user, and other users must not have write permission unless it is
//! sticky. Then no other user can change the path between the check and the use.
//!
//! Cost: a `stat` for each component of the path. When not to use: access control lists are only considered
//! as far as the mode shows them (their mask is the mode's group part). Reference: path_resolution(7),
//! inode(7) on the sticky bit.

use crate::local_socket::own_user;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// The mode of a directory that all users can enter.
const MODE_FOR_ALL: u32 = 0o755;

/// Returns the directory in /tmp for this user's files, where there is no `$XDG_RUNTIME_DIR`. It need not
/// exist.
pub fn temporary_directory() -> PathBuf {
    format!("/tmp/unisono-{}", own_user()).into()
}

/// Returns the directory for this user's files that matter until the next start of the host. It need not
/// exist.
pub fn runtime_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => Path::new(&directory).join("unisono"),
        None => temporary_directory(),
    }
}

/// Makes a directory for temporary files, removed when dropped. No other user can enter it, whatever the
/// umask: programs that root compiles there are run or loaded with root's rights.
pub fn temporary(prefix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(fs::Permissions::from_mode(0o700)).tempdir()
}

/// A directory that only this user can access; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateDirectory {
    path: PathBuf,
}

impl PrivateDirectory {
    /// Opens the directory at `path`, or makes it. Other users' read permission on the directory is removed.
    /// Missing directories above it are made with access for all users, because their other entries (the
    /// broker's socket) are meant for other users too. Fails with `PermissionDenied` if another user could
    /// put files there; nothing is made then.
    pub fn open(path: &Path) -> io::Result<Self> {
        // root's directories in a place of another user would keep that user out of the own place
        if let Some(there) = path.ancestors().skip(1).find_map(|above| fs::canonicalize(above).ok()) {
            there.ancestors().try_for_each(leads_safely)?;
        }
        if let Some(above) = path.parent() {
            make_enterable(above)?;
        }
        if let Err(error) = DirBuilder::new().mode(0o700).create(path)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        // held open during the checks: the changes below apply to this directory, even if the path leads
        // elsewhere later
        let held = open_directory(path).map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP | libc::ENOTDIR) => refused(path, "is a link, or no directory"),
            _ => error,
        })?;
        let found = held.metadata()?;
        let path = fs::canonicalize(path)?;
        let there = fs::symlink_metadata(&path)?;
        if (there.dev(), there.ino()) != (found.dev(), found.ino()) {
            return Err(refused(&path, "was replaced just now"));
        }
        belongs_to_this_user(&path, &found)?;
        for above in path.ancestors().skip(1) {
            leads_safely(above)?;
        }
        if found.mode() & 0o7777 != 0o700 {
            held.set_permissions(fs::Permissions::from_mode(0o700))?;
        }
        Ok(Self { path })
    }

    /// Opens or makes the directory `topic` for data that can be made again: in `$XDG_CACHE_HOME/unisono`
    /// (without this variable, in `~/.cache/unisono`), or else in `unisono-cache-UID` in the directory for
    /// temporary files. Chooses the first of the two that can be made, is private, and has a path that
    /// `suits` accepts. The error lists each directory that was tried, with the reason.
    pub fn cache(topic: &str, suits: impl Fn(&Path) -> Result<(), String>) -> io::Result<Self> {
        let from = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let of_user = from("XDG_CACHE_HOME").or_else(|| from("HOME").and_then(cache_in));
        let temporary = std::env::temp_dir().join(format!("unisono-cache-{}", own_user()));
        let mut reasons = Vec::new();
        for root in of_user.map(|cache| cache.join("unisono")).into_iter().chain([temporary]) {
            let made = Self::open(&root).and_then(|root| root.inside(topic));
            match made.and_then(|made| suits(made.path()).map(|()| made).map_err(io::Error::other)) {
                Ok(directory) => return Ok(directory),
                Err(why) => reasons.push(format!("{}: {why}", root.display())),
            }
        }
        Err(io::Error::other(format!(
            "no directory for what is compiled ({}); set XDG_CACHE_HOME to a directory of your own",
            reasons.join("; ")
        )))
    }

    /// Opens the directory `name` in this directory; it is made if it is missing.
    pub fn inside(&self, name: &str) -> io::Result<Self> {
        Self::open(&self.path.join(name))
    }

    /// Returns the directory's absolute path without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether `name` is a regular file of this user without write permission for other users.
    pub fn has(&self, name: &str) -> bool {
        is_own_file(&self.path.join(name))
    }

    /// Opens `name`, or makes it, and waits until no other process has it locked. Closing it unlocks it.
    /// Fails with `ELOOP` if the file is a link.
    pub fn lock(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(self.path.join(name))?;
        file.lock()?;
        Ok(file)
    }
}

/// Returns the directory for caches in a home. A home that is missing, such as `/nonexistent` of users
/// without one, is not made.
fn cache_in(home: PathBuf) -> Option<PathBuf> {
    home.is_dir().then(|| home.join(".cache"))
}

/// Makes a directory and the missing ones above it. All users can enter directories that root makes, such as
/// `/run/unisono` with the sockets of servers, whatever root's umask is.
pub fn make_enterable(path: &Path) -> io::Result<()> {
    if path.is_dir() || path.as_os_str().is_empty() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), make_enterable)?;
    match DirBuilder::new().mode(MODE_FOR_ALL).create(path) {
        // another process may have made it just now
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        made => made?,
    }
    if own_user() == 0 {
        open_directory(path)?.set_permissions(fs::Permissions::from_mode(MODE_FOR_ALL))?;
    }
    Ok(())
}

pub(crate) fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// Returns whether a path, not followed if it is a link, is a regular file of this user without write
/// permission for other users.
pub fn is_own_file(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_file() && belongs_to_this_user(path, &found).is_ok())
}

/// Checks a directory whose owner chooses who else may write into it, such as the broker's log: all users may
/// not, and no user but the system and this one owns it or a directory above it. Root may use the directories
/// of any user, such as the user that a server becomes.
pub fn belongs_to_no_stranger(path: &Path) -> io::Result<()> {
    const WRITABLE_BY_ALL: u32 = 0o002;
    let path = fs::canonicalize(path)?;
    let trusted = [own_user(), 0, fs::symlink_metadata("/")?.uid()];
    for directory in path.ancestors() {
        let found = fs::symlink_metadata(directory)?;
        if own_user() != 0 && !trusted.contains(&found.uid()) {
            return Err(refused(directory, &format!("belongs to user {}", found.uid())));
        }
        let is_guarded = directory != path && found.mode() & STICKY != 0;
        if found.mode() & WRITABLE_BY_ALL != 0 && !is_guarded {
            let mode = found.mode() & 0o7777;
            return Err(refused(
                directory,
                &format!(
                    "may be written by other users (mode {mode:o}): chmod o-w, or choose another directory"
                ),
            ));
        }
    }
    Ok(())
}

fn belongs_to_this_user(path: &Path, found: &Metadata) -> io::Result<()> {
    if found.uid() != own_user() {
        return Err(refused(path, &format!("belongs to user {}", found.uid())));
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(refused(
            path,
            &format!("may be written by other users (mode {:o})", found.mode() & 0o7777),
        ));
    }
    Ok(())
}

/// Checks that only the system and this user can replace entries of a directory above a private one.
fn leads_safely(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    // in a user namespace without a mapping for root, the system's files appear to belong to another number
    let system = [0, fs::symlink_metadata("/")?.uid()];
    if found.uid() != own_user() && !system.contains(&found.uid()) {
        return Err(refused(path, &format!("belongs to user {}", found.uid())));
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 && found.mode() & STICKY == 0 {
        return Err(refused(
            path,
            &format!("may be written by other users (mode {:o})", found.mode() & 0o7777),
        ));
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    const NOBODY: u32 = crate::privilege::NOBODY;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory for temporary files")
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is this user's");
    }

    fn refusal(path: &Path) -> String {
        let error = PrivateDirectory::open(path).expect_err("another user could put files there");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        error.to_string()
    }

    #[test]
    fn a_home_that_is_missing_is_not_made() {
        let place = tempfile::tempdir().expect("a directory");
        assert_eq!(cache_in(place.path().to_owned()), Some(place.path().join(".cache")));
        assert_eq!(cache_in(place.path().join("missing")), None);
    }

    #[test]
    fn a_directory_that_is_made_is_this_users_alone_whatever_the_umask() {
        let scratch = scratch();
        let made = PrivateDirectory::open(&scratch.path().join("a/b")).expect("it can be made");
        assert_eq!(fs::metadata(made.path()).expect("it is there").mode() & 0o777, 0o700);
        let inner = made.inside("c").expect("it can be made");
        assert_eq!(inner.path(), made.path().join("c"));
    }

    #[test]
    fn what_lies_beside_a_private_directory_stays_within_reach_of_others() {
        let scratch = scratch();
        let above = scratch.path().join("above");
        PrivateDirectory::open(&above.join("private")).expect("made");
        let mode = fs::metadata(&above).expect("made with it").mode();
        assert_eq!(mode & 0o711, 0o711, "{mode:o}");
    }

    #[test]
    fn a_directory_that_others_may_read_is_closed_and_one_that_others_may_write_is_refused() {
        let scratch = scratch();
        let path = scratch.path().join("cache");
        fs::create_dir(&path).expect("a directory");
        mode(&path, 0o755);
        PrivateDirectory::open(&path).expect("nobody else could write");
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o700);
        for wrong in [0o770, 0o707, 0o1777] {
            mode(&path, wrong);
            assert!(refusal(&path).contains("may be written by other users"));
        }
    }

    #[test]
    fn a_directory_below_one_that_others_may_write_is_refused_unless_that_one_is_sticky() {
        let scratch = scratch();
        let (above, below) = (scratch.path().join("above"), scratch.path().join("above/below"));
        PrivateDirectory::open(&below).expect("it can be made");
        mode(&above, 0o777);
        assert!(refusal(&below).contains("above may be written by other users"));
        mode(&above, 0o1777);
        assert!(PrivateDirectory::open(&below).is_ok());
    }

    #[test]
    fn a_link_is_refused_and_what_it_leads_to_keeps_its_mode() {
        let scratch = scratch();
        let (theirs, link) = (scratch.path().join("theirs"), scratch.path().join("link"));
        fs::create_dir(&theirs).expect("a directory");
        mode(&theirs, 0o755);
        symlink(&theirs, &link).expect("a link");
        assert!(refusal(&link).contains("is a link"));
        assert_eq!(fs::metadata(&theirs).expect("it is there").mode() & 0o777, 0o755);
    }

    #[test]
    fn a_lock_is_never_taken_through_a_link() {
        let scratch = scratch();
        let directory = PrivateDirectory::open(&scratch.path().join("cache")).expect("it can be made");
        let victim = scratch.path().join("victim");
        symlink(&victim, directory.path().join("lock")).expect("a link");
        assert!(directory.lock("lock").is_err());
        assert!(!victim.exists());
        assert!(directory.lock("other").is_ok());
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_a_link_is_not_this_users_own() {
        let scratch = scratch();
        let directory = PrivateDirectory::open(&scratch.path().join("cache")).expect("it can be made");
        assert!(!directory.has("file"));
        let file = directory.path().join("file");
        fs::write(&file, b"").expect("a file");
        mode(&file, 0o755);
        assert!(directory.has("file"));
        mode(&file, 0o775);
        assert!(!directory.has("file"));
        mode(&file, 0o755);
        symlink(&file, directory.path().join("link")).expect("a link");
        assert!(!directory.has("link"));
    }

    /// Makes a call with another umask.
    fn with_umask<T: Send>(mask: u32, call: impl FnOnce() -> io::Result<T> + Send) -> T {
        use rustix::thread::{UnshareFlags, unshare_unsafe};
        let call = || {
            // SAFETY: this thread gets a umask and a working directory of its own; no descriptor is affected.
            unsafe { unshare_unsafe(UnshareFlags::FS) }?;
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
            call()
        };
        std::thread::scope(|scope| scope.spawn(call).join().expect("no panic")).expect("there is room")
    }

    #[test]
    fn a_directory_for_temporary_files_is_this_users_alone_whatever_the_umask() {
        let made = with_umask(0, || temporary("unisono-"));
        assert_eq!(fs::metadata(made.path()).expect("it is there").mode() & 0o7777, 0o700);
    }

    #[test]
    fn roots_directory_for_others_has_its_mode_whatever_the_umask() {
        let scratch = scratch();
        let path = scratch.path().join("above/below");
        with_umask(0o077, || make_enterable(&path));
        let expected = if own_user() == 0 { 0o755 } else { 0o700 };
        for directory in [scratch.path().join("above"), path] {
            assert_eq!(fs::metadata(directory).expect("it is there").mode() & 0o7777, expected);
        }
    }

    #[test]
    fn root_makes_nothing_in_a_place_of_another_user() {
        if own_user() != 0 {
            eprintln!("skipped: it needs root");
            return;
        }
        let scratch = scratch();
        let home = scratch.path().join("home");
        fs::create_dir(&home).expect("a directory");
        chown(&home, Some(NOBODY), None).expect("root may");
        for path in [home.join("unisono"), home.join(".cache/unisono")] {
            assert!(refusal(&path).contains("belongs to user 65534"));
        }
        // a link of that user leads into another directory that is not root's
        symlink(&home, scratch.path().join("link")).expect("a link");
        refusal(&scratch.path().join("link/unisono"));
        assert_eq!(fs::read_dir(&home).expect("it is there").count(), 0);
    }

    #[test]
    fn what_belongs_to_another_user_is_refused_even_by_root() {
        if own_user() != 0 {
            eprintln!("skipped: it needs root");
            return;
        }
        let scratch = scratch();
        let path = scratch.path().join("cache");
        fs::create_dir(&path).expect("a directory");
        chown(&path, Some(NOBODY), None).expect("root may");
        assert!(refusal(&path).contains("belongs to user 65534"));
        // a directory is not safe either if its parent is another user's: that user could put another in its
        // place
        let inner = path.join("inner");
        fs::create_dir(&inner).expect("a directory");
        mode(&inner, 0o700);
        assert!(refusal(&inner).contains("belongs to user 65534"));
        let file = scratch.path().join("file");
        fs::write(&file, b"").expect("a file");
        assert!(is_own_file(&file));
        chown(&file, Some(NOBODY), None).expect("root may");
        assert!(!is_own_file(&file));
    }
}
