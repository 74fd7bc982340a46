//! The descriptors that a process keeps: close_range(2).
//!
//! A program that outlives its starter must not keep the starter's open descriptors: a lock that flock(1)
//! took for a command would be held until the program ends, and a pipe would never reach its end. A process
//! that drops its privileges must not keep descriptors that it opened with them and no longer needs.
//! Reference: close_range(2) (Linux 5.9), flock(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Implements `AsFd` for a type whose descriptor is that of a field: `as_fd!(PidFd.0)`.
#[macro_export]
macro_rules! as_fd {
    ($type:ident . $($field:tt).+) => {
        impl ::std::os::fd::AsFd for $type {
            fn as_fd(&self) -> ::std::os::fd::BorrowedFd<'_> {
                ::std::os::fd::AsFd::as_fd(&self.$($field).+)
            }
        }
    };
}

/// The first number after standard input, output and error.
const FIRST: RawFd = 3;

/// Starts the command's program with only standard input, output and error: no other descriptor, no
/// environment, and the root directory as working directory.
pub fn close_inherited(command: &mut Command) {
    command.env_clear().current_dir("/");
    // also closes the standard library's own descriptors, when the program begins
    let close = || close_range(FIRST, RawFd::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: `close` allocates nothing and makes only an async-signal-safe call.
    unsafe { command.pre_exec(close) };
}

/// Closes all descriptors of this process except `kept` and standard input, output and error. For a copy of a
/// process ([`crate::fork`]) that neither uses nor drops the owners of the other descriptors. Needs Linux
/// 5.9.
pub fn close_all_except(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut kept: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).filter(|kept| *kept >= FIRST).collect();
    kept.sort_unstable();
    let mut from = FIRST;
    for descriptor in kept {
        if descriptor > from {
            close_range(from, descriptor - 1, 0)?;
        }
        from = from.max(descriptor + 1);
    }
    close_range(from, RawFd::MAX, 0)
}

fn close_range(first: RawFd, last: RawFd, flags: u32) -> io::Result<()> {
    // SAFETY: the arguments are numbers. The caller owns no descriptor of the range, or leaves closing it to
    // the kernel.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn a_program_gets_neither_descriptors_nor_the_environment_nor_the_directory() {
        let file = std::fs::File::open("/dev/null").expect("it is on every Linux");
        // SAFETY: duplicates an open descriptor, like a descriptor that a child inherits; the kernel closes
        // it when this process ends.
        let inherited = unsafe { libc::dup(file.as_raw_fd()) };
        assert!(inherited >= FIRST);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "/bin/ls /proc/self/fd | /usr/bin/tr '\\n' ' '; pwd; echo ${HOME-none}"]);
        command.stdin(Stdio::null());
        close_inherited(&mut command);
        let output = command.output().expect("the shell starts").stdout;
        // 3 is the directory that ls reads
        assert_eq!(String::from_utf8_lossy(&output), "0 1 2 3 /\nnone\n");
    }
}
