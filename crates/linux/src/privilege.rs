//! Drops privileges permanently.
//!
//! Open files stay open and usable: packet sockets, mapped memory, TAP devices. Afterwards neither this
//! process nor its children can use other rights of root. All of this is for single-threaded processes: the C
//! library applies a change of user to all threads, but the kernel keeps capabilities for each thread.
//! Reference: credentials(7), capabilities(7), PR_SET_NO_NEW_PRIVS(2const).

use rustix::rand::GetRandomFlags;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use std::io;
use std::os::unix::fs::MetadataExt;

/// The user and group called `nobody` on most systems. They own no files.
pub const NOBODY: u32 = 65_534;

/// A range of user numbers that no system assigns: between the numbers of containers (systemd's go up to
/// 1,879,048,191) and 2^31. Reference: systemd, Users, Groups, UIDs and GIDs, "unused".
const UNUSED: std::ops::Range<u32> = 1_879_048_192..2_147_352_576;

/// Returns a user and group number that no process has at the moment, for a single process: no other user's
/// process can signal or trace it.
pub fn unused_user() -> io::Result<u32> {
    let processes: Vec<u32> = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .filter(std::fs::Metadata::is_dir)
        .map(|facts| facts.uid())
        .collect();
    loop {
        let mut number = [0; 4];
        rustix::rand::getrandom(&mut number, GetRandomFlags::empty())?;
        let user = UNUSED.start + u32::from_ne_bytes(number) % (UNUSED.end - UNUSED.start);
        if !processes.contains(&user) {
            return Ok(user);
        }
    }
}

/// Changes this process to a user and a group, without other groups, without capabilities and without a way
/// back. Fails with `EPERM` if this process is not root, and with `EINVAL` if this user namespace has no such
/// user.
pub fn drop_to_user(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: the list of groups is empty.
    done(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: three numbers; the call accesses no memory of this process.
    done(unsafe { libc::setresgid(group, group, group) })?;
    // leaving user 0 drops all capabilities
    // SAFETY: three numbers; the call accesses no memory of this process.
    done(unsafe { libc::setresuid(user, user, user) })?;
    never_more()
}

/// Stops this process from gaining privileges by starting programs, such as a set-user-id program of root.
pub fn never_more() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// A part of root's rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// Files and directories of other users.
    OverrideFileModes = 1,
    /// Signals to processes of other users.
    Kill = 5,
    /// Devices, queueing disciplines, filters.
    NetworkAdministration = 12,
    /// Loading BPF programs. Linux before 5.8 has no such capability; there the capability of all
    /// administration (`CAP_SYS_ADMIN`) is kept.
    Bpf = 39,
}

/// Keeps these capabilities and drops all others. Fails with `EPERM` if this process lacks any of them.
pub fn retain_only(capabilities: &[Privilege]) -> io::Result<()> {
    let kept = capabilities.iter().fold(CapabilitySet::empty(), |kept, capability| {
        let wanted = CapabilitySet::from_bits_retain(1 << *capability as u32);
        kept | if is_known(wanted) { wanted } else { CapabilitySet::SYS_ADMIN }
    });
    let all = (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number));
    for capability in all.filter(|capability| !kept.contains(*capability) && is_known(*capability)) {
        remove_capability_from_bounding_set(capability)?;
    }
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

fn is_known(capability: CapabilitySet) -> bool {
    capability_is_in_bounding_set(capability).is_ok()
}

fn done(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_user_is_another_each_time_and_has_no_process() {
        let (one, other) = (unused_user().expect("proc"), unused_user().expect("proc"));
        assert!(one != other && UNUSED.contains(&one) && UNUSED.contains(&other));
    }

    #[test]
    fn capabilities_that_are_not_kept_are_gone_also_for_programs_to_be_started() {
        if !crate::process::is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        // capabilities belong to a thread: only the capabilities of this thread change
        let kept = std::thread::spawn(|| {
            retain_only(&[Privilege::Kill, Privilege::NetworkAdministration])?;
            std::fs::read_to_string("/proc/thread-self/status")
        });
        let status = kept.join().expect("it does not panic").expect("root may");
        for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
            let line = status.lines().find(|line| line.starts_with(set)).expect("a line");
            assert_eq!(line, format!("{set}\t{:016x}", 1 << 5 | 1 << 12));
        }
        assert!(status.contains("CapInh:\t0000000000000000"));
    }
}
