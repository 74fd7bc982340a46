//! Whether a process may read the terminal: `tcgetpgrp(3)`.
//!
//! The terminal belongs to its foreground process group; the kernel stops another group that reads it
//! (SIGTTIN). A program that reads on behalf of other processes checks this first. Cost: two system calls.
//! Reference: tcgetpgrp(3), credentials(7).

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use std::os::fd::BorrowedFd;

/// Whether this process is in the foreground of the terminal `descriptor`; also true for a descriptor that is
/// no terminal, which any process may read.
pub fn is_foreground(descriptor: BorrowedFd<'_>) -> bool {
    tcgetpgrp(descriptor).map_or(true, |foreground| foreground == getpgrp())
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
