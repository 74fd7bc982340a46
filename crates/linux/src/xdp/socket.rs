//! A socket: four rings between a queue of a device and this process.

use super::ring::{Consumer, Layout, Producer};
use super::umem::{Chunk, Umem};
use crate::netlink::link::Index;
use crate::socket::set_option;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::rc::Rc;

/// Room for the frames of a burst; more than a network's device holds.
const RING: u32 = 4096;
/// Since Linux 6.17: how many frames one call sends; before that it is 32.
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

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
pub struct Place {
    /// The device, in the calling thread's namespace.
    pub device: Index,
    /// The queue, from 0.
    pub queue: u32,
}

/// A frame that came.
#[derive(Debug)]
pub struct Received {
    /// Where it is.
    pub chunk: Chunk,
    /// Where in the chunk it begins.
    pub offset: usize,
    /// How long it is; within the chunk.
    pub length: usize,
}

/// A frame to go.
#[derive(Debug)]
pub struct Outgoing {
    /// Where it is.
    pub chunk: Chunk,
    /// Where in the chunk it begins.
    pub offset: usize,
    /// How long it is.
    pub length: usize,
}

/// What the kernel counted, for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Frames dropped, because they were too long or for reasons unknown.
    pub dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub ring_full: u64,
    /// Frames dropped because the fill ring was empty.
    pub nowhere_to_put: u64,
    /// Frames that we asked to send and that made no sense.
    pub senseless: u64,
}

/// An open socket, bound to a queue of a device.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    umem: Rc<Umem>,
    receive: Consumer<libc::xdp_desc>,
    send: Producer<libc::xdp_desc>,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    /// Frames sent whose chunks have not come back.
    under_way: usize,
}

impl Socket {
    /// Opens one and binds it. The first socket of a memory registers it; others share it with a socket that is
    /// named, and may be of other devices.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `EAFNOSUPPORT`: the kernel has no such sockets; `ENODEV`; `EBUSY`: the
    /// queue belongs to another such socket; `EOPNOTSUPP`: the device cannot do that mode.
    pub fn open(umem: &Rc<Umem>, place: Place, mode: Mode, shared: Option<&Self>) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let descriptor = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor for us alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        if shared.is_none() {
            let memory = libc::xdp_umem_reg {
                addr: umem.start(),
                len: umem.len() as u64,
                chunk_size: umem.chunk_size() as u32,
                headroom: 0,
                flags: 0,
                tx_metadata_len: 0,
            };
            set_option(&descriptor, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory)?;
        }
        for ring in
            [libc::XDP_RX_RING, libc::XDP_TX_RING, libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING]
        {
            set_option(&descriptor, libc::SOL_XDP, ring, &RING)?;
        }
        let offsets: libc::xdp_mmap_offsets = option(&descriptor, libc::XDP_MMAP_OFFSETS)?;
        let socket = Self {
            receive: Consumer::map(&descriptor, libc::XDP_PGOFF_RX_RING, layout(offsets.rx), RING)?,
            send: Producer::map(&descriptor, libc::XDP_PGOFF_TX_RING, layout(offsets.tx), RING)?,
            fill: Producer::map(
                &descriptor,
                libc::XDP_UMEM_PGOFF_FILL_RING as i64,
                layout(offsets.fr),
                RING,
            )?,
            completion: Consumer::map(
                &descriptor,
                libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64,
                layout(offsets.cr),
                RING,
            )?,
            descriptor,
            umem: Rc::clone(umem),
            under_way: 0,
        };
        // fewer a call on older kernels: the caller is told what is left
        let _ = set_option(&socket.descriptor, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &256_u32);
        socket.bind(place, mode, shared)?;
        Ok(socket)
    }

    fn bind(&self, place: Place, mode: Mode, shared: Option<&Self>) -> io::Result<()> {
        // who shares takes the mode of whom it shares with
        let (flags, with) = match (shared, mode) {
            (Some(other), _) => (libc::XDP_SHARED_UMEM, other.descriptor.as_raw_fd()),
            (None, Mode::Copy) => (libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP, 0),
            (None, Mode::ZeroCopy) => (libc::XDP_ZEROCOPY | libc::XDP_USE_NEED_WAKEUP, 0),
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: place.device.0,
            sxdp_queue_id: place.queue,
            sxdp_shared_umem_fd: with as u32,
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: `address` is a valid sockaddr_xdp of that length.
        let bound = unsafe { libc::bind(self.descriptor.as_raw_fd(), (&raw const address).cast(), length) };
        if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Has system calls on this socket do the device's work of receiving, for so many microseconds and frames at a
    /// time, instead of interrupts.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`; `ENOPROTOOPT`: the kernel is older than 5.11.
    pub fn busy_poll(&self, microseconds: u32, frames: u32) -> io::Result<()> {
        set_option(&self.descriptor, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1_i32)?;
        set_option(&self.descriptor, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &microseconds)?;
        set_option(&self.descriptor, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &frames)
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
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(Received)) -> usize {
        let umem = &self.umem;
        self.receive.take(most, |entry| {
            let Some((chunk, offset)) = umem.take(entry.addr) else { return };
            let length = (entry.len as usize).min(umem.chunk_size() - offset);
            each(Received { chunk, offset, length });
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

    /// Queues a frame to be sent with the next [`send`](Self::send).
    ///
    /// # Errors
    /// The frame, if there is no room.
    ///
    /// # Panics
    /// If it does not lie within its chunk.
    pub fn queue(&mut self, frame: Outgoing) -> Result<(), Outgoing> {
        assert!(frame.offset + frame.length <= self.umem.chunk_size(), "a frame lies within its chunk");
        // what is under way fits the completion ring, so that every chunk comes back
        if self.send.room(1) == 0 || self.under_way >= RING as usize {
            return Err(frame);
        }
        let address = self.umem.give(frame.chunk) + frame.offset as u64;
        self.send.put(libc::xdp_desc { addr: address, len: frame.length as u32, options: 0 });
        self.under_way += 1;
        Ok(())
    }

    /// Sends what is queued; answers how many frames the kernel has not taken yet, which the next call does.
    ///
    /// # Errors
    /// `ENETDOWN`: the device is down; `ENXIO`: it is gone.
    pub fn send(&mut self) -> io::Result<usize> {
        self.send.publish();
        let waiting = self.send.waiting();
        if waiting == 0 {
            return Ok(0);
        }
        // SAFETY: no data and no address are passed.
        let sent = unsafe {
            libc::sendto(
                self.descriptor.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if sent < 0 {
            let error = io::Error::last_os_error();
            // the device or its memory is busy: later
            if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR))
            {
                return Err(error);
            }
        }
        Ok(self.send.waiting() as usize)
    }

    /// How many frames are queued or under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Takes back the chunks of frames that have been sent.
    pub fn completed(&mut self, chunks: &mut Vec<Chunk>) {
        let umem = &self.umem;
        let count = self.completion.take(usize::MAX, |address| {
            chunks.extend(umem.take(address).map(|(chunk, _)| chunk));
        });
        self.under_way -= count;
    }

    /// Has the kernel do the work of receiving now, where interrupts do not: see [`busy_poll`](Self::busy_poll).
    ///
    /// # Errors
    /// `ENETDOWN`: the device is down; `ENXIO`: it is gone.
    pub fn poll(&self) -> io::Result<()> {
        // SAFETY: no buffer is passed.
        let got = unsafe {
            libc::recvfrom(
                self.descriptor.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        if got >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        let later =
            matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR));
        if later { Ok(()) } else { Err(error) }
    }

    /// What the kernel counted.
    ///
    /// # Errors
    /// None in practice.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let counted: libc::xdp_statistics = option(&self.descriptor, libc::XDP_STATISTICS)?;
        Ok(Statistics {
            dropped: counted.rx_dropped,
            ring_full: counted.rx_ring_full,
            nowhere_to_put: counted.rx_fill_ring_empty_descs,
            senseless: counted.tx_invalid_descs,
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn layout(offsets: libc::xdp_ring_offset) -> Layout {
    Layout {
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
    // SAFETY: the callers ask for structures of plain numbers, of which zeros are valid values, and the kernel filled
    // what it knows.
    Ok(unsafe { value.assume_init() })
}
