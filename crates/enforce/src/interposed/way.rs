//! How frames come to this process and go on: two ways behind one trait.
//!
//! | way | receive | send | a frame costs |
//! |---|---|---|---|
//! | [`Tun`] | read(2) from a TAP device | a packet socket past the queueing discipline | two system calls, two copies |
//! | [`AfXdp`] | a ring, from a pair of devices | a ring to the device | no call to receive, a part of one to send; two copies by the kernel |

mod af_xdp;
mod tun;

pub(super) use af_xdp::AfXdp;
pub(super) use tun::Tun;

use std::io;
use std::os::fd::BorrowedFd;

/// A frame may have this much beside what the device calls its longest: Ethernet header, our tag, one of its own.
pub(super) const HEADERS: u32 = 14 + 4 + 4;

/// One way.
pub(super) trait Way {
    /// A frame that this process has.
    type Frame;

    /// Takes frames that came, at most so many.
    fn receive(&mut self, most: usize, frames: &mut Vec<Self::Frame>) -> io::Result<()>;

    /// What a frame says.
    fn bytes<'a>(&'a self, frame: &'a mut Self::Frame) -> &'a mut [u8];

    /// Cuts bytes off the front of a frame.
    fn advance(&self, frame: &mut Self::Frame, bytes: usize);

    /// Whether a frame can be sent.
    fn can_send(&mut self) -> bool;

    /// Sends a frame, at the latest at the next [`flush`](Self::flush); only when it can be sent.
    fn send(&mut self, frame: Self::Frame) -> io::Result<()>;

    /// Sends what has been collected.
    fn flush(&mut self) -> io::Result<()>;

    /// Forgets a frame.
    fn discard(&mut self, frame: Self::Frame);

    /// What becomes readable when a frame comes.
    fn arrivals(&self) -> BorrowedFd<'_>;

    /// Frames that were dropped because there was no room for them, and those that could not be sent.
    fn lost(&self) -> Lost;
}

/// Frames lost on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lost {
    /// More came than there was room for.
    pub(super) overrun: u64,
    /// The device did not take them.
    pub(super) unsent: u64,
}
