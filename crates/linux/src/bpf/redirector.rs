//! Programs that see frames as they come in, before the kernel makes anything of them (XDP), and the map by
//! which they hand them to sockets of processes.

use super::{Attributes, MAP_CREATE, MAP_UPDATE, NotLoaded, bpf, load, owned};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const XDP: u32 = 6;
const SOCKETS: u32 = 17;

/// Sockets of [`crate::xdp`], by number: usually that of the queue. A socket leaves the map when it is
/// closed.
#[derive(Debug)]
pub struct SocketMap(OwnedFd);

impl SocketMap {
    /// Makes one with places for so many sockets, all empty. Fails with `EPERM` without `CAP_BPF`, and with
    /// `EINVAL` if the kernel has no such sockets.
    pub fn new(name: &str, places: u32) -> io::Result<Self> {
        let mut attributes =
            Attributes::new().word(0, SOCKETS).word(4, 4).word(8, 4).word(12, places).name(28, name);
        // SAFETY: the command follows no pointers.
        Ok(Self(owned(unsafe { bpf(MAP_CREATE, &mut attributes)? })))
    }

    /// Puts a socket in a place. Fails if there is no such place, or the descriptor is no such socket.
    pub fn put(&self, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.as_raw_fd();
        let mut attributes = Attributes::new()
            .word(0, self.0.as_raw_fd() as u32)
            .pointer(8, &raw const place)
            .pointer(16, &raw const socket);
        // SAFETY: key and value are four bytes each, as the map was made.
        unsafe { bpf(MAP_UPDATE, &mut attributes)? };
        Ok(())
    }
}

impl AsFd for SocketMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A program in the kernel for frames that come in (`BPF_PROG_TYPE_XDP`).
#[derive(Debug)]
pub struct Redirector(OwnedFd);

impl Redirector {
    /// Loads one; as [`super::ClassifierProgram::load`].
    pub fn load(name: &str, instructions: &[u64]) -> Result<Self, NotLoaded> {
        load(Attributes::new().word(0, XDP), name, instructions).map(Self)
    }
}

impl AsFd for Redirector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
