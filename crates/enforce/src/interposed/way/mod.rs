//! How frames come to this process and go on: two ways behind one trait.
//!
//! | way | receive | send | a frame costs |
//! |---|---|---|---|
//! | [`Tun`] | read(2) from a TAP device | a packet socket past the queueing discipline | two system calls, two copies |
//! | [`AfXdp`] | a ring, from a pair of devices | the same, frames of one connection merged | no call to receive, a part of one to send; two copies by the kernel |

mod af_xdp;
mod tun;

pub(super) use af_xdp::AfXdp;
pub(super) use tun::Tun;

use std::io;
use std::os::fd::BorrowedFd;

/// A frame may have this much beside what the device calls its longest: Ethernet header, our tag, one of its
/// own.
pub(super) const HEADERS: u32 = 14 + 4 + 4;

/// A frame that the device had no room for so often is lost: some devices say so of what they never take.
const MOST_TRIES: u32 = 10_000;

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

    /// Takes packets of this length from now on, if it can; longer ones are not handed over to it.
    fn carry(&mut self, mtu: u32);

    /// What it has open and needs.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Frames that were dropped because there was no room for them, those that could not be sent, those
    /// merged.
    fn lost(&self) -> Lost;
}

/// What became of frames on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lost {
    /// More came than there was room for.
    pub(super) overrun: u64,
    /// The device did not take them.
    pub(super) unsent: u64,
    /// Not lost: handed over as parts of larger ones.
    pub(super) merged: u64,
}

/// The device has no room at the moment.
fn is_full(error: &io::Error) -> bool {
    const NO_BUFFERS: i32 = 105;
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || error.raw_os_error() == Some(NO_BUFFERS)
}

/// The device does not carry frames of this length.
fn is_too_long(error: &io::Error) -> bool {
    const MESSAGE_SIZE: i32 = 90;
    error.raw_os_error() == Some(MESSAGE_SIZE)
}
