//! Network namespaces: separate network stacks, and threads inside them.
//!
//! A namespace lives as long as a thread is in it, a descriptor of it is open, or a file is bound to it. A
//! namespace without a file vanishes with its process, however the process ends, so it can never be left
//! behind. A namespace with a name under `/run/netns` can be entered with `ip netns exec`, and outlives its
//! creator until [`remove`] is called.
//!
//! A namespace belongs to a *thread*: [`NetworkNamespace::create`] moves only the calling thread into the new
//! namespace. Threads and processes that this thread starts later begin there.
//!
//! Cost: 0.5 to 1 ms to make a namespace (the kernel registers its tables), 1 us to enter one. The kernel
//! removes namespaces in the background, in tens of milliseconds for any number. Needs `CAP_SYS_ADMIN`.
//! Reference: network_namespaces(7), setns(2), unshare(2), ip-netns(8).

use crate::private_directory::make_enterable;
use crate::socket::get_option;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory where `ip netns` looks for names.
const NAMES: &str = "/run/netns";

/// Returns a number of the calling thread's namespace that no other namespace gets before the next boot
/// (`SO_NETNS_COOKIE`, Linux 5.14). An inode number, in contrast, is reused. `None`: the kernel is older.
pub fn cookie() -> Option<u64> {
    const SO_NETNS_COOKIE: i32 = 71;
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None);
    // SAFETY: any bytes are a number.
    unsafe { get_option(&socket.ok()?, libc::SOL_SOCKET, SO_NETNS_COOKIE, 0) }.ok()
}

/// Returns the inode numbers of all namespaces that a thread is in, a file is bound to, or an open descriptor
/// names. `None`: this process does not see all processes of the host. Reads some files of each process.
pub fn in_use() -> io::Result<Option<BTreeSet<u64>>> {
    /// `PROC_PID_INIT_INO`, since Linux 3.8.
    const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;
    if fs::metadata("/proc/self/ns/pid")?.ino() != FIRST_PID_NAMESPACE {
        return Ok(None);
    }
    let mut found = BTreeSet::new();
    let mut mounts = BTreeSet::new();
    for process in fs::read_dir("/proc")?.flatten() {
        let path = process.path();
        if process.file_name().to_str().is_none_or(|name| name.parse::<u32>().is_err()) {
            continue;
        }
        for thread in fs::read_dir(path.join("task")).into_iter().flatten().flatten() {
            found.extend(fs::metadata(thread.path().join("ns/net")).ok().map(|file| file.ino()));
        }
        for descriptor in fs::read_dir(path.join("fd")).into_iter().flatten().flatten() {
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            found.extend(target.to_str().and_then(number_in));
        }
        if fs::metadata(path.join("ns/mnt")).is_ok_and(|file| mounts.insert(file.ino())) {
            let text = fs::read_to_string(path.join("mountinfo")).unwrap_or_default();
            found.extend(text.split_whitespace().filter_map(number_in));
        }
    }
    Ok(Some(found))
}

/// Returns the number in the kernel's name of a namespace, `net:[4026531840]`.
fn number_in(name: &str) -> Option<u64> {
    name.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

/// A reference to a network namespace that keeps it alive.
#[derive(Debug)]
pub struct NetworkNamespace(OwnedFd);

impl NetworkNamespace {
    /// Opens the namespace of the calling thread. Needs `/proc`.
    pub fn current() -> io::Result<Self> {
        Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
    }

    /// Opens the namespace with a name under `/run/netns`.
    pub fn named(name: &str) -> io::Result<Self> {
        Ok(Self(File::open(Path::new(NAMES).join(name))?.into()))
    }

    /// Opens the namespace of a process's first thread.
    pub fn of_process(process: u32) -> io::Result<Self> {
        Ok(Self(File::open(format!("/proc/{process}/ns/net"))?.into()))
    }

    /// Makes a namespace and moves the calling thread into it. Fails with `EPERM` without `CAP_SYS_ADMIN`,
    /// and with `ENOSPC` beyond `user.max_net_namespaces`.
    pub fn create() -> io::Result<Self> {
        // SAFETY: it changes the network namespace of this thread, and not its table of descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        Self::current()
    }

    /// Moves the calling thread into the namespace. Fails with `EPERM` without `CAP_SYS_ADMIN`.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Gives the namespace a name under `/run/netns`, so that `ip netns exec NAME` enters it. It then lives
    /// until [`remove`] is called with that name. Fails if the name is taken or is no file name, or if this
    /// process may not mount.
    pub fn publish(&self, name: &str) -> io::Result<()> {
        let path = path_of(name)?;
        make_enterable(Path::new(NAMES))?;
        File::create_new(&path)?;
        let source = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        mount_bind(source, &path).map_err(|error| {
            let _ = fs::remove_file(&path); // the mount's error is more useful
            error.into()
        })
    }
}

impl From<OwnedFd> for NetworkNamespace {
    /// Refers to the namespace of a descriptor.
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

crate::as_fd!(NetworkNamespace.0);

/// Removes a name. The kernel then removes the namespace, too, unless a thread or a descriptor keeps it
/// alive.
pub fn remove(name: &str) -> io::Result<()> {
    let path = path_of(name)?;
    match unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // EINVAL: nothing is mounted on the file, because its creator ended before it mounted the namespace
        Ok(()) | Err(Errno::INVAL) => fs::remove_file(path),
        Err(error) => Err(error.into()),
    }
}

/// Returns the names with a prefix, sorted.
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
