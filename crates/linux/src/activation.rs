//! Sockets that systemd passes to a service: `LISTEN_FDS`.
//!
//! Descriptors from 3 on are listening sockets if `LISTEN_PID` names this process. Reference:
//! sd_listen_fds(3).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of the first socket.
const FIRST: RawFd = 3;
/// An upper bound of the number of sockets: a service has fewer.
const MAX_SOCKETS: RawFd = 64;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Returns the sockets that systemd passed to this process, at the first call; later calls return none.
///
/// # Errors
/// A descriptor is not open.
pub fn listeners() -> io::Result<Vec<OwnedFd>> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let count = number("LISTEN_FDS").and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0);
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    (FIRST..FIRST + count.min(MAX_SOCKETS)).map(take).collect()
}

fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the arguments are three integers; an invalid descriptor number is an error.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: systemd opened it for this process; no other code here uses its number; `TAKEN` ensures a
    // single use.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
