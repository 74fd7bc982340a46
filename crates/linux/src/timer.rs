//! Sleeping until a point in time, and being called before it.
//!
//! [`Sleeper`] is an `eventfd(2)` with `ppoll(2)`: a thread waits until an absolute time of the monotonic
//! clock or until somebody calls it. Absolute times do not drift: a scheduler that computes `start + n *
//! slice` keeps its beat however late one wake-up was. Cost: one system call and a timer interrupt; the
//! kernel adds up to 50 us of slack for fair threads and none for real-time ones.
//!
//! Reference: eventfd(2), ppoll(2), clock_nanosleep(2).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until the monotonic clock shows `deadline` nanoseconds; returns at once when it is past.
pub fn sleep_until(deadline: u64) {
    let time = timespec(deadline);
    loop {
        // SAFETY: `time` is valid for reads; the remainder is not asked for with absolute times.
        let result = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const time,
                std::ptr::null_mut(),
            )
        };
        if result != libc::EINTR {
            return;
        }
    }
}

fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    }
}

/// Why [`Sleeper::wait_until`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time came.
    Time,
    /// [`Sleeper::call`] was used.
    Called,
}

/// A sleeper that can be called; clones share the same bell.
#[derive(Clone, Debug)]
pub struct Sleeper {
    bell: Arc<OwnedFd>,
}

impl Sleeper {
    /// A new one.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes two numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and belongs to nobody else.
        Ok(Self { bell: Arc::new(unsafe { OwnedFd::from_raw_fd(fd) }) })
    }

    /// Ends the present or the next wait.
    pub fn call(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes, as eventfd wants; a full counter also ends the wait.
        unsafe { libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Waits until the monotonic clock shows `deadline` nanoseconds or until called.
    #[must_use]
    pub fn wait_until(&self, deadline: u64) -> Woken {
        loop {
            let left = timespec(deadline.saturating_sub(now()));
            let mut poll = libc::pollfd { fd: self.bell.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd, valid for reads and writes; no signal mask.
            let ready = unsafe { libc::ppoll(&raw mut poll, 1, &raw const left, std::ptr::null()) };
            if ready > 0 {
                let mut count = [0u8; 8];
                // SAFETY: eight writable bytes, as eventfd wants.
                unsafe { libc::read(self.bell.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
                return Woken::Called;
            }
            if ready == 0 && now() >= deadline {
                return Woken::Time;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_does_not_wake_before_its_time() {
        let deadline = now() + 2_000_000;
        sleep_until(deadline);
        assert!(now() >= deadline);
        let deadline = now() + 2_000_000;
        assert_eq!(Sleeper::new().expect("alarm").wait_until(deadline), Woken::Time);
        assert!(now() >= deadline);
    }

    #[test]
    fn a_call_ends_the_wait_and_counts_once() {
        let alarm = Sleeper::new().expect("alarm");
        let other = alarm.clone();
        let caller = std::thread::spawn(move || other.call());
        assert_eq!(alarm.wait_until(now() + 60_000_000_000), Woken::Called);
        caller.join().expect("caller");
        assert_eq!(alarm.wait_until(now() + 1_000_000), Woken::Time);
    }
}
