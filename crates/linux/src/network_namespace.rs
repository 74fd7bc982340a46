//! Network namespaces: network stacks of their own, and threads inside them.
//!
//! A namespace lives as long as a thread is in it, a descriptor of it is open, or a file is bound to it. One
//! without a file vanishes with its process, however that ends, which is the best way of not leaving it
//! behind; one with a name under `/run/netns` can be entered with `ip netns exec`, and outlives its maker
//! until somebody calls [`remove`].
//!
//! A namespace belongs to a *thread*: [`NetworkNamespace::create`] moves the calling thread, and
//! only that one, into the new namespace, and threads and processes that it starts are born there.
//!
//! Cost: 0.5 to 1 ms to make one (the kernel registers its tables), 1 us to change into one. Taking one down
//! is the kernel's own work in the background, tens of milliseconds for any number. Needs `CAP_SYS_ADMIN`.
//! Reference: network_namespaces(7), setns(2), unshare(2), ip-netns(8).

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where `ip netns` looks for names.
const NAMES: &str = "/run/netns";

/// A network namespace held on to.
#[derive(Debug)]
pub struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    /// The one that the calling thread is in. Needs `/proc`.
    pub fn current() -> io::Result<Self> {
        Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
    }

    /// The one that has a name under `/run/netns`.
    pub fn named(name: &str) -> io::Result<Self> {
        Ok(Self(File::open(Path::new(NAMES).join(name))?.into()))
    }

    /// Makes one and moves the calling thread into it. Fails with `EPERM` without `CAP_SYS_ADMIN`, and with
    /// `ENOSPC` beyond `user.max_net_namespaces`.
    pub fn create() -> io::Result<Self> {
        // SAFETY: it changes the network namespace of this thread, and not its table of descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        Self::current()
    }

    /// Moves the calling thread into it. Fails with `EPERM` without `CAP_SYS_ADMIN`.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Gives it a name under `/run/netns`, so that `ip netns exec NAME` enters it. It then lives until
    /// [`remove`] is called with that name. Fails if the name is taken or no file name, or if this process
    /// may not mount.
    pub fn publish(&self, name: &str) -> io::Result<()> {
        let path = path_of(name)?;
        fs::create_dir_all(NAMES)?;
        File::create_new(&path)?;
        let source = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        mount_bind(source, &path).map_err(|error| {
            let _ = fs::remove_file(&path); // the mount's error says more
            error.into()
        })
    }
}

impl From<OwnedFd> for NetworkNamespace {
    /// Holds on to the namespace that a descriptor is of.
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes a name away, and with it the namespace unless somebody is inside or holds on to it.
pub fn remove(name: &str) -> io::Result<()> {
    let path = path_of(name)?;
    match unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // a file that nothing is mounted on was left by a maker that ended in between
        Ok(()) | Err(Errno::INVAL) => fs::remove_file(path),
        Err(error) => Err(error.into()),
    }
}

/// The names that begin so, in order.
pub fn names(prefix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(NAMES) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}

fn path_of(name: &str) -> io::Result<PathBuf> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{name:?} is no name for a namespace"),
        ));
    }
    Ok(Path::new(NAMES).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::is_root;
    use std::os::unix::fs::MetadataExt;
    use std::thread;

    fn identity(namespace: &NetworkNamespace) -> u64 {
        let file = File::from(namespace.0.try_clone().expect("a descriptor"));
        file.metadata().expect("it is open").ino()
    }

    #[test]
    fn a_thread_enters_and_leaves_and_no_other_thread_moves() {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        let home = NetworkNamespace::current().expect("our own");
        thread::scope(|scope| {
            scope.spawn(|| {
                let made = NetworkNamespace::create().expect("root may");
                assert_ne!(identity(&made), identity(&home));
                home.enter().expect("root may");
                let now = NetworkNamespace::current().expect("our own");
                assert_eq!(identity(&now), identity(&home));
            });
        });
        let now = NetworkNamespace::current().expect("our own");
        assert_eq!(identity(&now), identity(&home));
    }

    #[test]
    fn a_name_can_be_found_and_taken_away() {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        let name = format!("unisono-test-{}", std::process::id());
        thread::scope(|scope| {
            scope.spawn(|| {
                let made = NetworkNamespace::create().expect("root may");
                made.publish(&name).expect("the name is free");
                assert!(made.publish(&name).is_err(), "it is taken");
            });
        });
        assert_eq!(names(&name), std::slice::from_ref(&name));
        remove(&name).expect("it is ours");
        assert!(names(&name).is_empty());
        assert!(remove(&name).is_err(), "it is gone");
    }

    #[test]
    fn what_is_no_file_name_is_refused() {
        for name in ["", "..", "a/b", ".hidden"] {
            assert!(remove(name).is_err(), "{name}");
        }
    }
}
