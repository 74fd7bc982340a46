//! How frames come to this process and leave it: two frame paths behind one trait. (The variable `way` holds
//! one.)
//!
//! | path | receive | send | a frame costs |
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

/// The bytes of a frame beyond the MTU: the Ethernet header, our tag, and one tag of the frame's own.
pub(super) const HEADERS: u32 = 14 + 4 + 4;

/// A frame is lost after this many tries without room at the device: some devices report "no room" for frames
/// that they never take. A spinning worker tries about every microsecond, a sleeping worker every 0.1 ms, so
/// the frame is given up after 10 ms to a second. A device that works has had room long before.
const MAX_TRIES: u32 = 10_000;

pub(super) trait FramePath {
    type Frame;

    /// Appends at most `max_frames` frames that have arrived to `frames`.
    fn receive(&mut self, max_frames: usize, frames: &mut Vec<Self::Frame>) -> io::Result<()>;

    fn bytes<'a>(&'a self, frame: &'a mut Self::Frame) -> &'a mut [u8];

    /// Removes bytes from the front of a frame.
    fn advance(&self, frame: &mut Self::Frame, bytes: usize);

    fn can_send(&mut self) -> bool;

    /// Sends a frame, at the latest at the next [`flush`](Self::flush). Call it only if
    /// [`can_send`](Self::can_send) has returned true.
    fn send(&mut self, frame: Self::Frame) -> io::Result<()>;

    fn flush(&mut self) -> io::Result<()>;

    fn discard(&mut self, frame: Self::Frame);

    /// Returns a descriptor that becomes readable when a frame arrives.
    fn arrivals(&self) -> BorrowedFd<'_>;

    /// Accepts packets of this length from now on, if this path can.
    fn set_mtu(&mut self, mtu: u32);

    /// Returns the descriptors that must stay open.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    fn lost(&self) -> Lost;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lost {
    /// Frames dropped because there was no room for them.
    pub(super) overrun: u64,
    /// Frames lost because the device did not take them.
    pub(super) unsent: u64,
    /// Frames that were not lost, but sent as parts of larger frames.
    pub(super) merged: u64,
}

/// Returns whether an error says that the device has no room at the moment.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || Errno::from_io_error(error) == Some(Errno::NOBUFS)
}

/// Returns whether an error says that the device does not carry frames of this length.
fn is_too_long(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MSGSIZE)
}
