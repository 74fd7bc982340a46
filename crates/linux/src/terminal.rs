//! Determines whether a process may read the terminal: `tcgetpgrp(3)`.
//!
//! The terminal belongs to its foreground process group; the kernel stops another group that reads it
//! (SIGTTIN). A program that reads on behalf of other processes checks this first. Cost: two system calls.
//! Reference: tcgetpgrp(3), credentials(7).

use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns whether this process is in the foreground of the terminal `descriptor`; also true for a descriptor
/// that is no terminal, which any process may read. The kernel returns 0 for a group whose leader is outside
/// this process's PID namespace; rustix's `Pid` cannot hold 0, so libc is called.
pub fn is_foreground(descriptor: BorrowedFd<'_>) -> bool {
    // SAFETY: the descriptor is open while it is borrowed, and the call takes no pointer.
    let foreground = unsafe { libc::tcgetpgrp(descriptor.as_raw_fd()) };
    // SAFETY: the call takes no argument.
    let own = unsafe { libc::getpgrp() };
    foreground < 0 || foreground == own
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_no_terminal_may_be_read_by_anybody() {
        let file = std::fs::File::open("/dev/null").expect("it is everywhere");
        assert!(is_foreground(file.as_fd()));
    }
}
