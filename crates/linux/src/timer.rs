//! Sleeps until a point in time, or until another thread ends the sleep.
//!
//! [`Sleeper`] is an `eventfd(2)` with `ppoll(2)`: a thread waits until an absolute time of the monotonic
//! clock or until another thread calls it. Absolute times do not drift: a scheduler that computes
//! `start + n * slice` keeps its period however late a single wake-up is. Cost: one system call and a timer
//! interrupt; the kernel adds up to 50 us of slack for fair threads and none for real-time threads.
//!
//! Reference: eventfd(2), ppoll(2), clock_nanosleep(2).

use crate::clock::{self, Instant};
use crate::futex::timespec;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Sleeps until the monotonic clock reaches `deadline`; returns at once if it is past.
pub fn sleep_until(deadline: Instant) {
    let time = timespec(deadline.as_nanos());
    while clock_nanosleep_absolute(ClockId::Monotonic, &time) == Err(Errno::INTR) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    Time,
    Called,
}

/// A sleeper whose sleep other threads can end; clones share the same eventfd.
#[derive(Clone, Debug)]
pub struct Sleeper {
    bell: Arc<OwnedFd>,
}

impl Sleeper {
    pub fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { bell: Arc::new(bell) })
    }

    /// Ends the present or the next wait.
    pub fn call(&self) {
        // an error means that the counter is full, which ends the wait, too
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Discards earlier calls, so that the next wait lasts until a later call.
    pub fn forget_calls(&self) {
        // an error means that there was no call
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
    }

    /// Waits until the monotonic clock reaches `deadline` or until called.
    pub fn wait_until(&self, deadline: Instant) -> Woken {
        loop {
            let left = timespec((deadline - clock::now()).as_nanos());
            let ready = poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], Some(&left));
            if ready.is_ok_and(|ready| ready > 0) {
                self.forget_calls();
                return Woken::Called;
            }
            if ready == Ok(0) && clock::now() >= deadline {
                return Woken::Time;
            }
        }
    }
}

// Readable after a call, for a thread that waits for other descriptors, too.
crate::as_fd!(Sleeper.bell);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Duration;

    #[test]
    fn a_sleeper_does_not_wake_before_its_time() {
        let deadline = clock::now() + Duration::from_millis(2);
        sleep_until(deadline);
        assert!(clock::now() >= deadline);
        let deadline = clock::now() + Duration::from_millis(2);
        assert_eq!(Sleeper::new().expect("alarm").wait_until(deadline), Woken::Time);
        assert!(clock::now() >= deadline);
    }

    #[test]
    fn a_call_ends_the_wait_and_counts_once() {
        let alarm = Sleeper::new().expect("alarm");
        let other = alarm.clone();
        let caller = std::thread::spawn(move || other.call());
        assert_eq!(alarm.wait_until(clock::now() + Duration::from_millis(60_000)), Woken::Called);
        caller.join().expect("caller");
        assert_eq!(alarm.wait_until(clock::now() + Duration::from_millis(1)), Woken::Time);
    }
}
