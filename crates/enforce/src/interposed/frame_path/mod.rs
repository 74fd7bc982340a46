//! How frames come to this process and leave it: two ways behind one trait.
//!
//! | way | receive | send | a frame costs |
//! |---|---|---|---|
//! | [`Tun`] | read(2) from a TAP device | a packet socket past the queueing discipline | two system calls, two copies |
//! | [`AfXdp`] | a ring, from a pair of devices | the same, frames of one connection merged | no call to receive, less than one to send; two copies by the kernel |

mod af_xdp;
mod tun;

pub(super) use af_xdp::AfXdp;
pub(super) use tun::Tun;

use std::io;
use std::os::fd::BorrowedFd;
use unisono_linux::Errno;

/// Bytes of a frame beyond the MTU: Ethernet header, our tag, one tag of the frame's own.
pub(super) const HEADERS: u32 = 14 + 4 + 4;

/// A frame is lost after this many tries without room at the device: some devices report "no room" for frames
/// that they never take. A spinning worker tries about every microsecond, a sleeping worker every 0.1 ms. So
/// the frame is given up after 10 ms to a second; a working device has had room long before.
const MAX_TRIES: u32 = 10_000;

pub(super) trait FramePath {
    type Frame;

    /// Takes at most `max_frames` frames that have arrived.
    fn receive(&mut self, max_frames: usize, frames: &mut Vec<Self::Frame>) -> io::Result<()>;

    fn bytes<'a>(&'a self, frame: &'a mut Self::Frame) -> &'a mut [u8];

    /// Cuts bytes off the front of a frame.
    fn advance(&self, frame: &mut Self::Frame, bytes: usize);

    fn can_send(&mut self) -> bool;

    /// Sends a frame, at the latest at the next [`flush`](Self::flush). Call it only after
    /// [`can_send`](Self::can_send).
    fn send(&mut self, frame: Self::Frame) -> io::Result<()>;

    fn flush(&mut self) -> io::Result<()>;

    fn discard(&mut self, frame: Self::Frame);

    /// A descriptor that becomes readable when a frame arrives.
    fn arrivals(&self) -> BorrowedFd<'_>;

    /// Takes packets of this length from now on, if this way can.
    fn set_mtu(&mut self, mtu: u32);

    /// Descriptors that must stay open.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    fn lost(&self) -> Lost;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lost {
    /// Dropped because there was no room.
    pub(super) overrun: u64,
    /// The device did not take them.
    pub(super) unsent: u64,
    /// Not lost: sent as parts of larger frames.
    pub(super) merged: u64,
}

/// Whether the device has no room at the moment.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || Errno::from_io_error(error) == Some(Errno::NOBUFS)
}

/// Whether the device does not carry frames of this length.
fn is_too_long(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MSGSIZE)
}
