//! Frames of one EtherType on one device: packet(7) sockets.
//!
//! Frames are sent and received whole, with their Ethernet header. A socket sees only frames of its type, so
//! other frames on the same cable cost it nothing. Cost: a system call per frame; a sleeping receiver is
//! woken as with any socket. Needs `CAP_NET_RAW`. Reference: packet(7).

use crate::netlink::link::Index;
use crate::socket;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// A socket that sends and receives frames of a single EtherType on one device.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket in the calling thread's namespace. It receives frames that arrive from now on; with the
    /// EtherType 0 it receives none. Sent frames bypass the device's queueing discipline. Fails with `EPERM`
    /// without `CAP_NET_RAW`, `ENODEV` without such a device, and `ENETDOWN` if the device is down.
    pub fn open(device: Index, ethertype: u16) -> io::Result<Self> {
        let socket = Self::open_queued(device, ethertype)?;
        // the devices that this project makes have no queueing discipline, or a discipline that is not meant
        // for these frames
        let _ = socket::set_option(&socket.0, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32);
        Ok(socket)
    }

    /// Opens a socket as [`open`](Self::open) does, but sent frames pass through the device's queueing
    /// discipline and the BPF programs at its egress.
    pub fn open_queued(device: Index, ethertype: u16) -> io::Result<Self> {
        // with protocol 0 the socket receives nothing until bind sets the type
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

    /// Makes this socket receive only frames that pass all tests, for good and in every process that holds
    /// the socket (`SO_ATTACH_FILTER`, `SO_LOCK_FILTER`). Frames that it sends are not restricted.
    pub fn restrict(&self, tests: &[FrameTest]) -> io::Result<()> {
        let program = filter(tests);
        let program = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(io::Error::other)?,
            filter: program.as_ptr().cast_mut(),
        };
        socket::set_option(&self.0, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
        socket::set_option(&self.0, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1_i32)
    }

    /// Limits how long [`receive`](Self::receive) waits; zero means no limit.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = (!timeout.is_zero()).then_some(timeout);
        Ok(set_socket_timeout(&self.0, Timeout::Recv, timeout)?)
    }

    /// Sends frames through the device's queueing discipline, with a priority (`SO_PRIORITY`), instead of
    /// bypassing it. Priorities above 6 need `CAP_NET_ADMIN`.
    pub fn queue_with_priority(&self, priority: u32) -> io::Result<()> {
        socket::set_option(&self.0, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &0_i32)?;
        socket::set_option(&self.0, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority)
    }

    /// Sends a frame that begins with its Ethernet header. Fails with `ENETDOWN` if the device is down, and
    /// with `ENOBUFS` while the kernel has no room.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(&self.0, frame, SendFlags::empty())?;
        Ok(())
    }

    /// Waits for a frame. Returns the number of bytes stored in `frame`, or `None` if the timeout expired or
    /// a signal interrupted the wait. The rest of a frame that does not fit is discarded. Fails with
    /// `ENETDOWN` if the device went down.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.0, frame, RecvFlags::empty()) {
            Ok((length, _)) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Like [`receive`](Self::receive), but never waits.
    pub fn receive_now(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.0, frame, RecvFlags::DONTWAIT) {
            Ok((length, _)) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<OwnedFd> for PacketSocket {
    /// Takes a packet socket that another process has opened.
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

/// A condition on two bytes of a frame, in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameTest {
    /// From the beginning of the Ethernet header.
    pub offset: u32,
    pub mask: u16,
    pub value: u16,
}

/// Makes the socket filter that keeps the frames that pass all tests.
fn filter(tests: &[FrameTest]) -> Vec<libc::sock_filter> {
    const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
    let mut program = Vec::with_capacity(4 * tests.len() + 1);
    for test in tests {
        program.extend([
            instruction(LOAD_HALF, test.offset, 0),
            instruction(AND, test.mask.into(), 0),
            libc::sock_filter { jt: 1, ..instruction(JUMP_IF_EQUAL, test.value.into(), 0) },
            instruction(RETURN, 0, 0),
        ]);
    }
    program.push(instruction(RETURN, u32::MAX, 0));
    program
}

/// A socket for large frames. The device segments them; if it cannot, the kernel segments them before it
/// passes them to the device.
#[derive(Debug)]
pub struct LargePacketSocket(PacketSocket);

/// How a large TCP segment is divided into frames. Its checksum field has to hold the sum of the pseudo
/// header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segmentation {
    pub below: Below,
    /// The number of bytes of the headers; each frame gets a copy of them.
    pub headers: u16,
    /// The number of payload bytes in each frame except the last.
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
    /// The maximum number of separate buffers that make up a frame.
    pub const MAX_PARTS: usize = 65;
    /// The maximum number of bytes in flight to a device: some dozens of large frames.
    const ROOM: usize = 4 << 20;

    /// Opens a socket in the calling thread's namespace. It receives nothing, and bypasses the queueing
    /// discipline. Fails as [`PacketSocket::open`] does.
    pub fn open(device: Index) -> io::Result<Self> {
        const PACKET_VNET_HDR: i32 = 15;
        let socket = PacketSocket::open(device, 0)?;
        socket::set_option(&socket.0, libc::SOL_PACKET, PACKET_VNET_HDR, &1_i32)?;
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK)?;
        // with less room, sending takes more calls
        let _ = set_socket_send_buffer_size_force(&socket, Self::ROOM);
        Ok(Self(socket))
    }

    /// Sends a frame whose bytes lie in several buffers, segmented as `cut` says, without waiting. Fails with
    /// `ENOBUFS` or `EAGAIN` while the kernel has no room, `ENETDOWN` if the device is down, `ENXIO` if it is
    /// gone, and `EMSGSIZE` if the frame is too long for it.
    ///
    /// # Panics
    /// If there are more parts than [`MAX_PARTS`](Self::MAX_PARTS).
    pub fn send(&self, cut: Option<Segmentation>, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let large = cut.map_or_else(Large::default, |cut| Large {
            flags: 1, // the device has to fill in the checksum
            kind: if cut.below == Below::Four { 1 } else { 4 },
            headers: cut.headers,
            segment: cut.segment,
            checksum_from: cut.transport,
            checksum_at: 16,
        });
        // SAFETY: ten bytes without padding between them, borrowed for as long as `large` lives.
        let large =
            unsafe { std::slice::from_raw_parts((&raw const large).cast::<u8>(), size_of::<Large>()) };
        let mut all = [IoSlice::new(&[]); 1 + Self::MAX_PARTS];
        all[0] = IoSlice::new(large);
        all[1..=parts.len()].copy_from_slice(parts);
        // writev takes no address, so a system call filter can allow this call without allowing other devices
        rustix::io::writev(&self.0, &all[..=parts.len()])?;
        Ok(())
    }
}

crate::as_fd!(PacketSocket.0);

crate::as_fd!(LargePacketSocket.0);
