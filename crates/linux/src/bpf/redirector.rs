//! Programs that see frames on arrival, before the rest of the kernel processes them (XDP), and the map that
//! redirects frames to sockets of processes.

use super::{Attributes, MAP_UPDATE, NotLoaded, PROGRAM_TEST_RUN, bpf, element, load, map_information};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const XDP: u32 = 6;
const SOCKETS: u32 = 17;
/// The attach type of a program that a thread of a [`ProcessorMap`](super::ProcessorMap) runs.
const IN_PROCESSOR_MAP: u32 = 35;

/// An array of sockets of [`crate::xdp`]; the index of a socket is usually the number of its receive queue. A
/// socket leaves the map when it is closed.
#[derive(Debug)]
pub struct SocketMap(OwnedFd);

impl SocketMap {
    /// Makes a map with room for `places` sockets, without any socket. Fails with `EPERM` without `CAP_BPF`,
    /// and with `EINVAL` if the kernel lacks AF_XDP sockets.
    pub fn new(name: &str, places: u32) -> io::Result<Self> {
        Ok(Self(Attributes::map(SOCKETS, name, [4, 4, places]).make_map()?))
    }

    /// Stores a socket at the index `place`. Fails if the map has no such index, or if the descriptor is not
    /// an AF_XDP socket.
    pub fn put(&self, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let socket = socket.as_raw_fd();
        // SAFETY: key and value have four bytes each, the sizes that the map was made with.
        unsafe { element(MAP_UPDATE, &self.0, &raw const place, &raw const socket) }
    }
}

crate::as_fd!(SocketMap.0);

/// A program in the kernel for arriving frames (`BPF_PROG_TYPE_XDP`).
#[derive(Debug)]
pub struct Redirector(OwnedFd);

impl Redirector {
    /// Loads a program, as [`super::ClassifierProgram::load`] does.
    pub fn load(name: &str, instructions: &[u64]) -> Result<Self, NotLoaded> {
        load(Attributes::new().word(0, XDP), name, instructions).map(Self)
    }

    /// Loads a program for [`ProcessorMap::start`](super::ProcessorMap::start).
    pub fn for_processor_map(name: &str, instructions: &[u64]) -> Result<Self, NotLoaded> {
        load(Attributes::new().word(0, XDP).word(68, IN_PROCESSOR_MAP), name, instructions).map(Self)
    }

    /// Returns the kernel's number of the program.
    pub fn id(&self) -> io::Result<u32> {
        // `struct bpf_prog_info` begins as that of a map does: with a type and a number
        Ok(map_information::<2>(&self.0)?[1])
    }

    /// Runs the program once on a frame, and returns its result. Fails if the frame is shorter than an
    /// Ethernet header.
    pub fn test(&self, frame: &[u8]) -> io::Result<u32> {
        let mut attributes = Attributes::new()
            .word(0, self.0.as_raw_fd() as u32)
            .word(8, frame.len() as u32)
            .pointer(16, frame.as_ptr());
        // SAFETY: the frame is valid for reads of its length; no output buffer is given.
        unsafe { bpf(PROGRAM_TEST_RUN, &mut attributes)? };
        Ok(attributes.answer(4))
    }
}

crate::as_fd!(Redirector.0);
