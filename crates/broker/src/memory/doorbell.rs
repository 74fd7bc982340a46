//! A connected Unix socket by which two processes with a ring between them wake each other, and which ends
//! with the process at its other end.
//!
//! A byte is written only when the other one has said in the ring's page that it sleeps at its descriptor.
//! Why not an eventfd: whoever has one can fill its counter and make it blocking for everybody, and so stop
//! the other in its next write; a peer's epoll descriptor can lead to files that answer late. A socket's end
//! is this process's own, a byte is sent without ever waiting, and the end of the peer is seen at the same
//! descriptor.
//!
//! Cost: a system call to ring, one to take the rings away. Reference: unix(7), send(2) on `MSG_DONTWAIT`.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use unisono_linux::clock::{Nanos, now};
use unisono_sync::{Watch, WatchVerdict};

/// Rings that are taken away at once.
const RINGS: usize = 256;

/// One end; clones are the same end.
#[derive(Clone, Debug)]
pub struct Doorbell(Arc<OwnedFd>);

/// What a look at a doorbell finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellState {
    Quiet,
    Rung,
    /// The other end is closed.
    Gone,
}

impl Doorbell {
    /// The end in this process of a connected Unix socket.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self(Arc::new(socket))
    }

    /// Makes the other end readable. Does nothing when so many rings wait there that it is, or when it is
    /// gone.
    pub fn ring(&self) {
        let _ = send(&*self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Takes rings away.
    ///
    /// # Errors
    /// The kernel's reason; none is known for a connected Unix socket.
    pub fn take(&self) -> io::Result<DoorbellState> {
        match recv(&*self.0, &mut [0; RINGS], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Ok(DoorbellState::Gone),
            Ok(_) => Ok(DoorbellState::Rung),
            Err(Errno::AGAIN | Errno::INTR) => Ok(DoorbellState::Quiet),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the connection for both.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Both);
    }
}

/// Between two looks of a sleeper whether the other end is there.
const SLICE: Nanos = Nanos(100_000_000);

/// Ends a wait when the other end is gone or a moment has come. For waits at the ring; who polls the doorbell
/// sees both there.
#[derive(Debug)]
pub struct DoorbellWatch<'a> {
    doorbell: &'a Doorbell,
    until: Option<Nanos>,
    looks: u32,
}

impl<'a> DoorbellWatch<'a> {
    #[must_use]
    pub fn new(doorbell: &'a Doorbell, until: Option<Nanos>) -> Self {
        Self { doorbell, until, looks: 0 }
    }
}

impl Watch for DoorbellWatch<'_> {
    fn look(&mut self) -> WatchVerdict {
        self.looks += 1;
        // Who spins looks once a microsecond or so; a system call takes a third of one.
        if !self.looks.is_multiple_of(64) {
            return WatchVerdict::Continue;
        }
        let over = self.until.is_some_and(|until| now() >= until);
        let gone = || !matches!(self.doorbell.take(), Ok(DoorbellState::Quiet | DoorbellState::Rung));
        if over || gone() { WatchVerdict::Stop } else { WatchVerdict::Continue }
    }

    fn sleep_until(&mut self) -> Option<Nanos> {
        // Who sleeps looks rarely: let its next look be a thorough one.
        self.looks |= 63;
        let slice = SLICE.after(now());
        Some(self.until.map_or(slice, |until| until.min(slice)))
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use unisono_linux::poll::readable;

    #[test]
    fn a_ring_is_seen_at_the_descriptor_until_it_is_taken_and_the_end_for_ever() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (one, other) = (Doorbell::new(one.into()), Doorbell::new(other.into()));
        let is_readable = || readable([other.as_fd()], Some(Duration::ZERO)).expect("poll")[0];
        for _ in 0..3 {
            assert!(!is_readable() && other.take().expect("connected") == DoorbellState::Quiet);
            one.ring();
            one.ring();
            assert!(is_readable() && other.take().expect("connected") == DoorbellState::Rung);
        }
        drop(one);
        assert!(is_readable() && other.take().expect("a socket") == DoorbellState::Gone);
        other.ring();
    }

    #[test]
    fn nobody_waits_for_a_peer_that_never_takes_its_rings() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let one = Doorbell::new(one.into());
        (0..100_000).for_each(|_| one.ring());
    }
}
