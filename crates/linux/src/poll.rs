//! Waiting for one of a few descriptors, to the nanosecond: ppoll(2).
//!
//! Nothing is allocated. Timers of a process come up to 50 us late unless it says that it minds
//! ([`punctual`]). Cost: a system call, and a wake-up if it waits.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until one of `N` descriptors can be read, at most so long (`None`: as long as it takes); answers
/// which can. A signal ends it like the time.
///
/// # Errors
/// The kernel's reason; none is known for open descriptors.
pub fn readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    patience: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polls = descriptors.map(|descriptor| libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let time = patience.map(|patience| libc::timespec {
        tv_sec: libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array is valid for `N` entries and the time, if there is one, for reads during the call.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), N as libc::nfds_t, time, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok([false; N]);
    }
    Ok(polls.map(|poll| poll.revents != 0))
}

/// As [`readable`], for any number of descriptors, to the millisecond.
///
/// # Errors
/// `poll` failed; an interruption by a signal answers as if the time had passed.
pub fn readable_of(fds: &[BorrowedFd<'_>], patience: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polls: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    let millis = patience.map_or(-1, |time| i32::try_from(time.as_millis()).unwrap_or(i32::MAX));
    // SAFETY: `polls` is valid for reads and writes of its length.
    let result = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, millis) };
    if result < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(polls.iter().map(|poll| poll.revents != 0).collect())
}

/// Has this thread's timers come as soon as they can.
///
/// # Errors
/// None in practice.
pub fn punctual() -> io::Result<()> {
    // SAFETY: takes numbers.
    let set = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_can_be_read_is_told_and_time_passes() {
        let (mut one, other) = UnixStream::pair().expect("a pair");
        let (_idle, idle) = UnixStream::pair().expect("a pair");
        let both = [other.as_fd(), idle.as_fd()];
        assert_eq!(readable(both, Some(Duration::from_nanos(1))).expect("poll"), [false, false]);
        one.write_all(b"x").expect("room");
        assert_eq!(readable(both, None).expect("poll"), [true, false]);
        punctual().expect("it may");
    }
}
