//! A user namespace of this process's own, in which it makes network namespaces without being root.
//!
//! The process keeps its user and its group. It gains all capabilities, which count for what belongs to the
//! namespace alone: networks that it makes there, their devices and queueing disciplines. On the host it
//! gains nothing: it may still not load BPF programs or change control groups. Programs that it starts gain
//! nothing at all, because their user is not 0.
//!
//! Cost: 0.1 ms. A process inside can no longer change its groups, and sees files of other users as nobody's.
//! When not to use it: once there are other threads, because the kernel refuses. Reference:
//! user_namespaces(7).

use crate::fork::{ChildEnd, fork};
use crate::network_namespace::NetworkNamespace;
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;
use std::io;

/// Moves this process into a user namespace of its own, with its user and group. Fails without having changed
/// anything if the kernel does not allow it or if this process has several threads.
pub fn enter() -> io::Result<()> {
    // a process that failed half-way would have no user, so a copy tries everything first
    let mut copy = fork(|| match enter_now().and_then(|()| NetworkNamespace::create()) {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    })?;
    match copy.wait() {
        ChildEnd::Code(0) => enter_now(),
        ChildEnd::Code(errno) => Err(io::Error::from_raw_os_error(errno)),
        killed => Err(io::Error::other(format!("the process that tried it {killed}"))),
    }
}

fn enter_now() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: it changes what this process may do, and no memory or descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // a group may be mapped only by who can no longer leave groups that take rights away
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_several_threads_is_refused_and_stays_as_it_was() {
        let before = fs::read_link("/proc/self/ns/user").expect("proc is there");
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv());
        enter().expect_err("a test has several threads");
        drop(end);
        assert!(other.join().expect("it ends").is_err());
        assert_eq!(fs::read_link("/proc/self/ns/user").expect("proc is there"), before);
    }
}
