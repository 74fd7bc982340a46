//! Frames in memory that this process shares with the kernel: `AF_XDP` sockets.
//!
//! ```text
//!   this process -- fill ring: empty chunks --> kernel -- receive ring: arrived frames --> this process
//! ```
//!
//! The idea: the memory ([`Umem`]) is divided into chunks of equal size, and each chunk belongs to one side
//! at a time. A chunk is a value ([`Chunk`]) that can be neither copied nor created: it is moved into a ring
//! and returns from another ring. So the borrow checker keeps this process out of memory that the kernel
//! writes. A frame may wait as long as it likes without being copied.
//!
//! Cost: no system call to receive; a single copy in copy mode, which every device supports. If a receiver
//! does not refill the fill ring in time, the kernel drops frames and counts them
//! ([`XdpSocket::statistics`]). When not to use it: for frames longer than a page; for devices in use by
//! another such socket; to send: a ring sends frame by frame, while [`crate::packet::LargePacketSocket`]
//! sends many as one.
//!
//! Needs `CAP_NET_RAW` to open. Reference: Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h.

mod ring;
mod socket;
mod umem;

pub use socket::{DeviceQueue, ReceivedFrame, XdpMode, XdpSocket, XdpStatistics};
pub use umem::{Chunk, Umem};
