//! Giving root away for good.
//!
//! What was opened before stays open and usable: packet sockets, mapped memory, TAP devices. Nothing else that root may
//! do can be done again by this process or by what it starts. Reference: credentials(7), capabilities(7),
//! PR_SET_NO_NEW_PRIVS(2const).

use std::io;

/// The user and group called `nobody` on most systems, which own nothing.
pub const NOBODY: u32 = 65_534;

/// Becomes that user and group, without other groups, capabilities or a way back. For processes of one thread.
///
/// # Errors
/// `EPERM`: this process is not root.
pub fn give_up(user: u32, group: u32) -> io::Result<()> {
    let done = |result: i32| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the list of groups is empty.
    done(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: takes numbers.
    done(unsafe { libc::setresgid(group, group, group) })?;
    // leaving user 0 takes all capabilities with it
    // SAFETY: takes numbers.
    done(unsafe { libc::setresuid(user, user, user) })?;
    // SAFETY: takes numbers.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })
}
