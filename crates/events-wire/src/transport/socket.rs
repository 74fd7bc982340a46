//! Non-blocking reads and writes of a connected socket.

use super::TransportError;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Intake {
    Nothing,
    /// The other end will send no more.
    Ended,
    Bytes {
        count: usize,
        /// Whether the kernel had no more bytes at that moment.
        all: bool,
    },
}

/// Writes bytes. Returns the number of accepted bytes, or 0 if the call would block.
pub(super) fn write(socket: BorrowedFd<'_>, pieces: &[&[u8]]) -> Result<usize, TransportError> {
    let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match sendmsg(socket, &slices, &mut SendAncillaryBuffer::default(), flags) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        sent => Ok(sent?),
    }
}

pub(super) fn read(socket: BorrowedFd<'_>, into: &mut [u8]) -> Result<Intake, TransportError> {
    match recv(socket, &mut *into, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Ok(Intake::Ended),
        Ok((_, count)) => Ok(Intake::Bytes { count, all: count < into.len() }),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Intake::Nothing),
        // the bytes before the reset have been received; the caller drops an incomplete frame
        Err(Errno::CONNRESET) => Ok(Intake::Ended),
        Err(error) => Err(error.into()),
    }
}
