//! Giving privileges away for good.
//!
//! What was opened before stays open and usable: packet sockets, mapped memory, TAP devices. Nothing else
//! that root may do can be done again by this process or by what it starts. All of this is for processes of
//! one thread: the C library tells other threads of a change of user, but the kernel keeps capabilities for
//! each thread. Reference: credentials(7), capabilities(7), PR_SET_NO_NEW_PRIVS(2const).

use rustix::rand::GetRandomFlags;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use std::io;
use std::os::unix::fs::MetadataExt;

/// The user and group called `nobody` on most systems, which own nothing.
pub const NOBODY: u32 = 65_534;

/// Users that nobody hands out: between those of containers (systemd's go up to 1,879,048,191) and 2^31.
/// Reference: systemd, Users, Groups, UIDs and GIDs, "unused".
const UNUSED: std::ops::Range<u32> = 1_879_048_192..2_147_352_576;

/// A user and group that no process has at the moment, for one process alone: nobody else can signal or trace
/// that one.
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

/// Becomes that user and group, without other groups, capabilities or a way back. Fails with `EPERM` if this
/// process is not root, and with `EINVAL` if this user namespace has no such user.
pub fn give_up(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: the list of groups is empty.
    done(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: three numbers; no memory of ours is touched.
    done(unsafe { libc::setresgid(group, group, group) })?;
    // leaving user 0 takes all capabilities with it
    // SAFETY: three numbers; no memory of ours is touched.
    done(unsafe { libc::setresuid(user, user, user) })?;
    never_more()
}

/// Gets no privileges by starting a program any more, such as one that belongs to root and is set-user-id.
pub fn never_more() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// A part of what root may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// Files and directories of other users.
    OverrideFileModes = 1,
    /// Signals to processes of other users.
    Kill = 5,
    /// Devices, queueing disciplines, filters.
    NetworkAdministration = 12,
    /// Loading BPF programs. Linux before 5.8 has no such capability: there that of all administration is
    /// kept.
    Bpf = 39,
}

/// Keeps these capabilities and gives all others away. Fails with `EPERM` if this process does not have those
/// to be kept.
pub fn keep(capabilities: &[Privilege]) -> io::Result<()> {
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
        // capabilities belong to a thread: this one's alone change
        let kept = std::thread::spawn(|| {
            keep(&[Privilege::Kill, Privilege::NetworkAdministration])?;
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
