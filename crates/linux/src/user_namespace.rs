//! A user namespace for this process, where it can make network namespaces without being root.
//!
//! The process keeps its user and its group. It gains all capabilities, but only for objects of the
//! namespace: networks that it makes there, their devices and queueing disciplines. On the host it gains no
//! rights: it still may not load BPF programs or change control groups. Programs that it starts gain no
//! rights at all, because their user is not 0.
//!
//! Cost: 0.1 ms. A process inside can no longer change its groups, and sees other users' files as belonging
//! to `nobody`. When not to use it: after other threads have been started, because the kernel then refuses.
//! Reference: user_namespaces(7).

use crate::fork::{ChildEnd, fork};
use crate::network_namespace::NetworkNamespace;
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs;
use std::io;

/// Moves this process into a user namespace of its own, with its user and group. Fails without any change if
/// the kernel does not allow it or if this process has several threads.
pub fn enter() -> io::Result<()> {
    // a process that failed half-way would be left without a mapped user, so a copy tries all steps first
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
    // SAFETY: it changes the rights of this process, and no memory or descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // a process may map a group only after giving up the right to leave groups that restrict it
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
