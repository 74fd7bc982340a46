//! A socket: rings between a queue of a device and this process.

use super::ring::{Consumer, Producer, RingLayout};
use super::umem::{Chunk, Umem};
use crate::netlink::link::Index;
use crate::socket::set_option;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::rc::Rc;

/// Room for the frames of a burst; more than a network's device holds.
const RING: u32 = 4096;

/// How frames get from the device to the memory and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The kernel copies them: every device can do that.
    #[default]
    Copy,
    /// The device reads and writes the memory itself; few drivers can.
    ZeroCopy,
}

/// Which queue of which device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceQueue {
    /// The device, in the calling thread's namespace.
    pub device: Index,
    /// The queue, from 0.
    pub queue: u32,
}

/// A frame that came.
#[derive(Debug)]
pub struct ReceivedFrame {
    /// Where it is.
    pub chunk: Chunk,
    /// Where in the chunk it begins.
    pub offset: usize,
    /// How long it is; within the chunk.
    pub length: usize,
}

/// What the kernel counted, for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XdpStatistics {
    /// Frames dropped, because they were too long or for reasons unknown.
    pub dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub ring_full: u64,
    /// Frames dropped because the fill ring was empty.
    pub nowhere_to_put: u64,
}

/// An open socket, bound to a queue of a device.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    umem: Rc<Umem>,
    receive: Consumer<libc::xdp_desc>,
    fill: Producer<u64>,
}

impl Socket {
    /// Opens one and binds it: it receives, into memory that no other socket uses.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `EAFNOSUPPORT`: the kernel has no such sockets; `ENODEV`; `EBUSY`: the
    /// queue belongs to another such socket; `EOPNOTSUPP`: the device cannot do that mode.
    pub fn open(umem: &Rc<Umem>, place: DeviceQueue, mode: Mode) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let descriptor = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor for us alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let memory = libc::xdp_umem_reg {
            addr: umem.start(),
            len: umem.len() as u64,
            chunk_size: umem.chunk_size() as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set_option(&descriptor, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)?;
        // the kernel wants to have somewhere to put what was sent, even if nothing is
        for ring in [libc::XDP_RX_RING, libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING] {
            set_option(&descriptor, libc::SOL_XDP, ring, &RING)?;
        }
        let offsets: libc::xdp_mmap_offsets = option(&descriptor, libc::XDP_MMAP_OFFSETS)?;
        let socket = Self {
            receive: Consumer::map(&descriptor, libc::XDP_PGOFF_RX_RING, layout(offsets.rx), RING)?,
            fill: Producer::map(
                &descriptor,
                libc::XDP_UMEM_PGOFF_FILL_RING as i64,
                layout(offsets.fr),
                RING,
            )?,
            descriptor,
            umem: Rc::clone(umem),
        };
        socket.bind(place, mode)?;
        Ok(socket)
    }

    fn bind(&self, place: DeviceQueue, mode: Mode) -> io::Result<()> {
        let how = match mode {
            Mode::Copy => libc::XDP_COPY,
            Mode::ZeroCopy => libc::XDP_ZEROCOPY,
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: how | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: place.device.0,
            sxdp_queue_id: place.queue,
            sxdp_shared_umem_fd: 0,
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: `address` is a valid sockaddr_xdp of that length.
        let bound = unsafe { libc::bind(self.descriptor.as_raw_fd(), (&raw const address).cast(), length) };
        if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives chunks to be received into, from the end of the list, as many as fit.
    pub fn fill(&mut self, chunks: &mut Vec<Chunk>) {
        let wanted = u32::try_from(chunks.len()).unwrap_or(RING).min(RING);
        let room = self.fill.room(wanted).min(wanted);
        for chunk in chunks.drain(chunks.len() - room as usize..) {
            self.fill.put(self.umem.give(chunk));
        }
        if room > 0 {
            self.fill.publish();
        }
    }

    /// Takes at most so many frames that came; answers how many.
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(ReceivedFrame)) -> usize {
        let umem = &self.umem;
        self.receive.take(most, |entry| {
            let Some((chunk, offset)) = umem.take(entry.addr) else { return };
            let length = (entry.len as usize).min(umem.chunk_size() - offset);
            each(ReceivedFrame { chunk, offset, length });
        })
    }

    /// Whether a frame waits to be taken.
    pub fn is_ready(&mut self) -> bool {
        self.receive.is_ready()
    }

    /// Whether receiving needs a call of the kernel to go on.
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// What the kernel counted.
    ///
    /// # Errors
    /// None in practice.
    pub fn statistics(&self) -> io::Result<XdpStatistics> {
        let counted: libc::xdp_statistics = option(&self.descriptor, libc::XDP_STATISTICS)?;
        Ok(XdpStatistics {
            dropped: counted.rx_dropped,
            ring_full: counted.rx_ring_full,
            nowhere_to_put: counted.rx_fill_ring_empty_descs,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn layout(offsets: libc::xdp_ring_offset) -> RingLayout {
    RingLayout {
        producer: offsets.producer,
        consumer: offsets.consumer,
        flags: offsets.flags,
        entries: offsets.desc,
    }
}

/// Asks for an option of plain numbers.
fn option<T: Copy>(socket: &OwnedFd, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: both pointers are valid for writes of what the length says.
    let got = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, value.as_mut_ptr().cast(), &raw mut length)
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the callers ask for structures of plain numbers, of which zeros are valid values, and the
    // kernel filled what it knows.
    Ok(unsafe { value.assume_init() })
}
