//! Waits for any of a few descriptors, with nanosecond time limits: ppoll(2).
//!
//! [`readable`] allocates no memory. By default a process's timers may be up to 50 us late; [`punctual`]
//! turns that off. Cost: a system call, and a wake-up if it waits.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

const FOR_EVER: Timespec = Timespec { tv_sec: i64::MAX, tv_nsec: 0 };

/// Waits until any of `N` descriptors is readable, for at most `timeout` (`None`: no limit). Returns which
/// descriptors are readable. A signal ends the wait, as the time limit does.
pub fn readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polls = descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    wait(&mut polls, timeout)?;
    Ok(polls.map(|poll| !poll.revents().is_empty()))
}

/// Returns whether the reading end of a pipe, socket or terminal is closed; false for a file.
pub fn has_lost_reader(fd: impl AsFd) -> bool {
    let mut polls = [PollFd::new(&fd, PollFlags::OUT)];
    wait(&mut polls, Some(Duration::ZERO)).is_ok()
        && polls[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Does the same as [`readable`], for any number of descriptors.
pub fn readable_of(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polls: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    wait(&mut polls, timeout)?;
    Ok(polls.iter().map(|poll| !poll.revents().is_empty()).collect())
}

fn wait(polls: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let time = timeout.map(|timeout| Timespec::try_from(timeout).unwrap_or(FOR_EVER));
    match rustix::event::poll(polls, time.as_ref()) {
        // after EINTR no descriptor is marked as ready
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes this thread's timers fire as soon as they can.
pub fn punctual() -> io::Result<()> {
    Ok(set_current_timer_slack(NonZeroU64::new(1))?)
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
