//! Frames in memory that this process shares with the kernel: `AF_XDP` sockets.
//!
//! ```text
//!   this process -- fill ring: empty chunks --> kernel -- receive ring: frames that came --> this process
//! ```
//!
//! The idea: the memory ([`Umem`]) is cut into chunks of one size, and each belongs to one side at a time.
//! Here a chunk is a value ([`Chunk`]) that is neither copied nor made: it is given away to a ring and comes
//! back from another, so that the borrow checker keeps this process out of memory that the kernel writes. A
//! frame may wait as long as it likes without being copied.
//!
//! Cost: no system call to receive; in copy mode one copy, which is what every device can do. What a receiver
//! does not give to the fill ring in time the kernel drops and counts ([`XdpSocket::statistics`]). When not
//! to use it: frames longer than a page; devices in use by another such socket; to send: what goes through a
//! ring goes frame by frame, where [`crate::packet::LargePacketSocket`] hands many over as one.
//!
//! Needs `CAP_NET_RAW` to open. Reference: Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h.

mod ring;
mod socket;
mod umem;

pub use socket::{DeviceQueue, ReceivedFrame, XdpMode, XdpSocket, XdpStatistics};
pub use umem::{Chunk, Umem};
