//! A socket: rings between a queue of a device and this process.

use super::ring::{Consumer, Producer, RingLayout};
use super::umem::{Chunk, Umem};
use crate::netlink::link::Index;
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpRingOffset,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The number of entries of each ring: room for the frames of a burst, more than a network device holds.
const RING: u32 = 4096;

/// The transfer of frames between the device and the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XdpMode {
    /// The kernel copies the frames; every device supports that.
    #[default]
    Copy,
    /// The device reads and writes the memory itself; few drivers support that.
    ZeroCopy,
}

#[derive(Clone, Copy, Debug)]
pub struct DeviceQueue {
    /// The device, in the calling thread's namespace.
    pub device: Index,
    /// The queue, from 0.
    pub queue: u32,
}

#[derive(Debug)]
pub struct ReceivedFrame {
    pub chunk: Chunk,
    /// The frame's offset in the chunk.
    pub offset: usize,
    /// The frame's length; it ends within the chunk.
    pub length: usize,
}

/// The kernel's counters since the socket was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XdpStatistics {
    /// Frames dropped because they were too long or for unknown reasons.
    pub dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub ring_full: u64,
    /// Frames dropped because the fill ring was empty.
    pub nowhere_to_put: u64,
}

/// An open socket, bound to a queue of a device.
#[derive(Debug)]
pub struct XdpSocket {
    descriptor: OwnedFd,
    umem: Rc<Umem>,
    receive: Consumer<XdpDesc>,
    fill: Producer<u64>,
}

impl XdpSocket {
    /// Opens and binds a socket that receives into memory that no other socket uses. Fails with `EPERM`
    /// without `CAP_NET_RAW`, `EAFNOSUPPORT` if the kernel has no such sockets, `ENODEV` without the device,
    /// `EBUSY` if the queue belongs to another such socket, and `EOPNOTSUPP` if the device does not support
    /// the mode.
    pub fn open(umem: &Rc<Umem>, place: DeviceQueue, mode: XdpMode) -> io::Result<Self> {
        let descriptor = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let memory = XdpUmemReg {
            addr: umem.start(),
            len: umem.len() as u64,
            chunk_size: umem.chunk_size() as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&descriptor, memory)?;
        sockopt::set_xdp_rx_ring_size(&descriptor, RING)?;
        sockopt::set_xdp_umem_fill_ring_size(&descriptor, RING)?;
        // the kernel requires a completion ring, even if nothing is sent
        sockopt::set_xdp_umem_completion_ring_size(&descriptor, RING)?;
        let offsets = sockopt::xdp_mmap_offsets(&descriptor)?;
        let socket = Self {
            receive: Consumer::map(&descriptor, XDP_PGOFF_RX_RING, layout(&offsets.rx)?, RING)?,
            fill: Producer::map(&descriptor, XDP_UMEM_PGOFF_FILL_RING, layout(&offsets.fr)?, RING)?,
            descriptor,
            umem: Rc::clone(umem),
        };
        socket.bind(place, mode)?;
        Ok(socket)
    }

    fn bind(&self, place: DeviceQueue, mode: XdpMode) -> io::Result<()> {
        let how = match mode {
            XdpMode::Copy => SocketAddrXdpFlags::XDP_COPY,
            XdpMode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        } | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        Ok(bind(&self.descriptor, &SocketAddrXdp::new(how, place.device.0, place.queue))?)
    }

    /// Moves chunks from the end of the list into the fill ring, as many as fit.
    pub fn fill(&mut self, chunks: &mut Vec<Chunk>) {
        let wanted = u32::try_from(chunks.len()).unwrap_or(RING).min(RING);
        let room = self.fill.room(wanted).min(wanted);
        for chunk in chunks.drain(chunks.len() - room as usize..) {
            self.fill.put(self.umem.address_of(chunk));
        }
        if room > 0 {
            self.fill.publish();
        }
    }

    /// Takes at most `max` received frames. Returns their number.
    pub fn receive(&mut self, max: usize, mut each: impl FnMut(ReceivedFrame)) -> usize {
        let umem = &self.umem;
        self.receive.take(max, |entry| {
            let Some((chunk, offset)) = umem.take(entry.addr) else { return };
            let length = (entry.len as usize).min(umem.chunk_size() - offset);
            each(ReceivedFrame { chunk, offset, length });
        })
    }

    pub fn statistics(&self) -> io::Result<XdpStatistics> {
        let counted = sockopt::xdp_statistics(&self.descriptor)?;
        Ok(XdpStatistics {
            dropped: counted.rx_dropped,
            ring_full: counted.rx_ring_full.unwrap_or(0),
            nowhere_to_put: counted.rx_fill_ring_empty_descs.unwrap_or(0),
        })
    }
}

crate::as_fd!(XdpSocket.descriptor);

/// Converts the offsets of a ring. Fails with `EOPNOTSUPP` before Linux 5.4, whose rings have no wake-up
/// flag.
fn layout(offsets: &XdpRingOffset) -> io::Result<RingLayout> {
    offsets.flags.ok_or(Errno::OPNOTSUPP)?;
    Ok(RingLayout { producer: offsets.producer, consumer: offsets.consumer, entries: offsets.desc })
}
