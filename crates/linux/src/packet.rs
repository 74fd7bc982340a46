//! Frames of one EtherType through one device: packet(7) sockets.
//!
//! Frames are sent and received whole, with their Ethernet header. A socket sees only frames of its type, so
//! that others on the same cable cost it nothing. Cost: a system call a frame; a receiver that sleeps is
//! woken as with any socket. Needs `CAP_NET_RAW`. Reference: packet(7).

use crate::netlink::link::Index;
use crate::socket;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A socket for the frames of one type through one device.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens one in the calling thread's namespace. It receives what comes in from now on. Fails with `EPERM`
    /// without `CAP_NET_RAW`, `ENODEV` without such a device, and `ENETDOWN` if it is down.
    pub fn open(device: Index, ethertype: u16) -> io::Result<Self> {
        let socket = Self::open_queued(device, ethertype)?;
        // there is no queueing discipline on the devices that we send through, or it is not for us
        let _ = socket::set_option(&socket.0, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32);
        Ok(socket)
    }

    /// The same, but what it sends goes through the device's queueing discipline and its programs.
    pub fn open_queued(device: Index, ethertype: u16) -> io::Result<Self> {
        // protocol 0 receives nothing until bind says what
        let descriptor = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ethertype.to_be(),
            sll_ifindex: device.0 as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is a valid sockaddr_ll of that length.
        let bound = unsafe { libc::bind(descriptor.as_raw_fd(), (&raw const address).cast(), length) };
        if bound == 0 { Ok(Self(descriptor)) } else { Err(io::Error::last_os_error()) }
    }

    /// How long [`receive`](Self::receive) waits; zero for ever.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        let patience = (!patience.is_zero()).then_some(patience);
        Ok(set_socket_timeout(&self.0, Timeout::Recv, patience)?)
    }

    /// Sends frames through the device's queueing discipline, with a priority (`SO_PRIORITY`), instead of
    /// past it. Priorities above 6 need `CAP_NET_ADMIN`.
    pub fn queue_with_priority(&self, priority: u32) -> io::Result<()> {
        socket::set_option(&self.0, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &0_i32)?;
        socket::set_option(&self.0, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority)
    }

    /// Sends a frame, header first. Fails with `ENETDOWN` if the device is down, and with `ENOBUFS` while the
    /// kernel has no room.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(&self.0, frame, SendFlags::empty())?;
        Ok(())
    }

    /// Waits for a frame; answers how many of its bytes are in `frame`, or none when patience has ended.
    /// Fails with `ENETDOWN` if the device went down.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.0, frame, RecvFlags::empty()) {
            Ok((length, _)) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A socket for frames that the device, or the kernel before it, cuts into smaller ones.
#[derive(Debug)]
pub struct LargePacketSocket(PacketSocket);

/// How a large TCP segment is to be cut. The sum over the pseudo header stands in its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segmentation {
    pub below: Below,
    /// Bytes of headers, which each frame gets.
    pub headers: u16,
    /// Bytes of payload that each frame but the last gets.
    pub segment: u16,
    pub transport: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Below {
    Four,
    Six,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Large {
    flags: u8,
    kind: u8,
    headers: u16,
    segment: u16,
    checksum_from: u16,
    checksum_at: u16,
}

impl LargePacketSocket {
    /// Parts of a frame at most.
    pub const MOST_PARTS: usize = 65;
    /// What may be under way to a device: some dozens of large frames.
    const ROOM: usize = 4 << 20;

    /// Opens one in the calling thread's namespace. It receives nothing, and sends past the queueing
    /// discipline. Fails as [`PacketSocket::open`] does.
    pub fn open(device: Index) -> io::Result<Self> {
        const PACKET_VNET_HDR: i32 = 15;
        let socket = PacketSocket::open(device, 0)?;
        socket::set_option(&socket.0, libc::SOL_PACKET, PACKET_VNET_HDR, &1_i32)?;
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK)?;
        // with less room it takes more calls
        let _ = set_socket_send_buffer_size_force(&socket, Self::ROOM);
        Ok(Self(socket))
    }

    /// Sends a frame that lies in several places, cut as is said, without waiting. Fails with `ENOBUFS` or
    /// `EAGAIN` while the kernel has no room, `ENETDOWN` if the device is down, `ENXIO` if it is gone, and
    /// `EMSGSIZE` if the frame is too long for it.
    ///
    /// # Panics
    /// If there are more parts than [`MOST_PARTS`](Self::MOST_PARTS).
    pub fn send(&self, cut: Option<Segmentation>, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let large = cut.map_or_else(Large::default, |cut| Large {
            flags: 1, // the checksum is to be filled in
            kind: if cut.below == Below::Four { 1 } else { 4 },
            headers: cut.headers,
            segment: cut.segment,
            checksum_from: cut.transport,
            checksum_at: 16,
        });
        // SAFETY: ten bytes without padding between them, borrowed for as long as `large` lives.
        let large =
            unsafe { std::slice::from_raw_parts((&raw const large).cast::<u8>(), size_of::<Large>()) };
        let mut all = [IoSlice::new(&[]); 1 + Self::MOST_PARTS];
        all[0] = IoSlice::new(large);
        all[1..=parts.len()].copy_from_slice(parts);
        // writev names no address, so that a process may be allowed this call and no other device
        rustix::io::writev(&self.0, &all[..=parts.len()])?;
        Ok(())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for LargePacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
