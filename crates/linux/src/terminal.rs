//! Who may read the terminal: `tcgetpgrp(3)`.
//!
//! The terminal belongs to its foreground process group; another group that reads it is stopped (SIGTTIN).
//! A program that reads on behalf of others asks first. Cost: two system calls. Reference: tcgetpgrp(3),
//! credentials(7).

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use std::os::fd::BorrowedFd;

/// Whether this process is in the foreground of the terminal behind `descriptor`; also true for what is no
/// terminal, which anybody may read.
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
