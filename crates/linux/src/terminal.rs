//! Determines whether a process may read the terminal, `tcgetpgrp(3)`, and how wide the terminal is.
//!
//! The terminal belongs to its foreground process group; the kernel stops another group that reads it
//! (SIGTTIN). A program that reads on behalf of other processes checks this first. Cost: two system calls.
//! Reference: tcgetpgrp(3), credentials(7), TIOCGWINSZ(2const).

use rustix::termios::tcgetwinsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Returns the number of characters in a line of the terminal; `None` if `descriptor` is no terminal, or if
/// the terminal does not know its size.
pub fn columns(descriptor: impl AsFd) -> Option<usize> {
    let size = tcgetwinsize(descriptor).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

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

    #[test]
    fn what_is_no_terminal_may_be_read_by_anybody_and_has_no_width() {
        let file = std::fs::File::open("/dev/null").expect("it is everywhere");
        assert!(is_foreground(file.as_fd()));
        assert_eq!(columns(&file), None);
    }
}
