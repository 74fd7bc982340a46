//! The fast frame path: an `AF_XDP` socket at the far end of a pair of devices receives, and a packet socket
//! sends.
//!
//! The kernel copies a frame into this process's memory when it arrives, and out of it when it leaves; while
//! the frame waits, it is not moved. Consecutive frames of one connection that leave at the same moment are
//! sent as one large frame, which the device segments again ([`merge`](super::super::merge)). At some Gbit/s
//! most of a frame's cost arises in the kernel after sending; an `AF_XDP` ring to the device could not merge,
//! and would pay that cost for every frame.

use super::{FramePath, HEADERS, Lost, MAX_TRIES, is_full, is_too_long};
use crate::interposed::merge::{FrameRun, MAX_HEADERS, Version};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use unisono_linux::Errno;
use unisono_linux::netlink::link::Index;
use unisono_linux::packet::{Below, LargePacketSocket, Segmentation};
use unisono_linux::xdp::{Chunk, DeviceQueue, Umem, XdpMode, XdpSocket};

/// The most frames in this process, in up to 64 MiB of memory. A link of 10 Gbit/s carries about as many full
/// frames in 20 ms, the backlog that classes may hold (`flows`). Further frames are dropped and counted as
/// overrun.
const FRAMES: u32 = 16 * 1024;
/// The bytes that the kernel leaves free before a frame.
const HEADROOM: u32 = 256;
/// The most frames that the scheduler has released and the device has not taken. These frames keep their
/// order whatever the policy says, so they must be few: 256 full frames are 0.3 ms at 10 Gbit/s. With far
/// fewer, a device that takes frames in bursts would idle between two turns of the worker. Chosen, not
/// measured.
const MAX_LEAVING: usize = 256;

#[derive(Debug)]
pub(in super::super) struct AfXdp {
    umem: Rc<Umem>,
    arrivals: XdpSocket,
    device: LargePacketSocket,
    free: Vec<Chunk>,
    /// The frames that the scheduler has released, in the order of departure.
    leaving: VecDeque<RingFrame>,
    merges: Merges,
    /// The number of merged runs that the device refused in a row.
    refused: u32,
    /// The number of frames at the front of `leaving` that have to be sent one by one.
    alone: usize,
    /// Whether the device has no room at the moment.
    is_full: bool,
    /// The number of failed tries to send the first frame in `leaving` because the device had no room.
    tries: u32,
    unsent: u64,
    merged: u64,
}

/// After this many refused runs in a row, frames are not merged any more: the device cannot segment, and each
/// try is a wasted system call. Some refusals happen by chance (no memory, a device that goes down), but not
/// 16 in a row.
const MAX_REFUSED: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Merges {
    Yes,
    No,
}

/// A frame in shared memory.
#[derive(Debug)]
pub(in super::super) struct RingFrame {
    chunk: Chunk,
    start: u32,
    length: u32,
}

impl RingFrame {
    fn bytes<'a>(&'a self, umem: &'a Umem) -> &'a [u8] {
        &umem.bytes(&self.chunk)[self.start as usize..][..self.length as usize]
    }
}

impl AfXdp {
    /// The longest packet that fits into a frame of the shared memory.
    pub(in super::super) const MAX_MTU: u32 = 3400;

    /// Returns the longest packet that fits if the shared memory was made for packets of length `mtu`.
    pub(in super::super) fn max_mtu(mtu: u32) -> u32 {
        Self::MAX_MTU.min(chunk(mtu) as u32 - HEADERS - HEADROOM)
    }

    /// Opens both sockets. `enter_far` and `enter_home` move this thread into the far device's network
    /// namespace and back.
    pub(in super::super) fn new(
        mtu: u32,
        far: DeviceQueue,
        device: Index,
        enter_far: impl FnOnce() -> io::Result<()>,
        enter_home: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Self> {
        let chunk = chunk(mtu);
        let (umem, mut free) = Umem::new(chunk, FRAMES)?;
        let umem = Rc::new(umem);
        enter_far()?;
        let mut arrivals = XdpSocket::open(&umem, far, XdpMode::Copy)?;
        enter_home()?;
        let device = LargePacketSocket::open(device)?;
        arrivals.fill(&mut free);
        let leaving = VecDeque::with_capacity(MAX_LEAVING);
        Ok(Self {
            umem,
            arrivals,
            device,
            free,
            leaving,
            merges: Merges::Yes,
            refused: 0,
            alone: 0,
            is_full: false,
            tries: 0,
            unsent: 0,
            merged: 0,
        })
    }

    /// Returns the socket to which frames have to be delivered.
    pub(in super::super) fn socket(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }

    /// Sends the first frame in `leaving` together with the following frames that can be merged with it.
    /// Returns the number of these frames, and the result.
    fn hand_over(&self) -> (usize, io::Result<()>) {
        let first = self.leaving[0].bytes(&self.umem);
        let merges = self.merges == Merges::Yes && self.alone == 0;
        let mut run = if merges { FrameRun::begin(first) } else { None };
        let mut parts = [IoSlice::new(&[]); LargePacketSocket::MAX_PARTS];
        if let Some(run) = &mut run {
            for frame in self.leaving.iter().skip(1) {
                let frame = frame.bytes(&self.umem);
                let at = run.frames();
                if !run.takes(first, frame) {
                    break;
                }
                parts[at + 1] = IoSlice::new(&frame[run.payload()..]);
            }
        }
        match run {
            Some(run) if run.frames() > 1 => {
                let mut header = [0; MAX_HEADERS];
                let cut = run.header(first, &mut header);
                parts[0] = IoSlice::new(&header[..cut.headers]);
                parts[1] = IoSlice::new(&first[run.payload()..]);
                let cut = Segmentation {
                    below: if cut.version == Version::Four { Below::Four } else { Below::Six },
                    headers: cut.headers as u16,
                    segment: cut.segment as u16,
                    transport: cut.transport as u16,
                };
                (run.frames(), self.device.send(Some(cut), &parts[..=run.frames()]))
            }
            _ => (1, self.device.send(None, &[IoSlice::new(first)])),
        }
    }
}

/// Returns the bytes of memory for one frame, given the MTU at the start.
fn chunk(mtu: u32) -> usize {
    if mtu + HEADERS + HEADROOM <= 2048 { 2048 } else { 4096 }
}

fn is_unable(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::INVAL | Errno::OPNOTSUPP))
}

impl FramePath for AfXdp {
    type Frame = RingFrame;

    fn receive(&mut self, max_frames: usize, frames: &mut Vec<RingFrame>) -> io::Result<()> {
        let came = self.arrivals.receive(max_frames, |frame| {
            frames.push(RingFrame {
                chunk: frame.chunk,
                start: frame.offset as u32,
                length: frame.length as u32,
            });
        });
        if came > 0 {
            self.arrivals.fill(&mut self.free);
        }
        Ok(())
    }

    fn bytes<'a>(&'a self, frame: &'a mut RingFrame) -> &'a mut [u8] {
        let (start, end) = (frame.start as usize, (frame.start + frame.length) as usize);
        &mut self.umem.bytes_mut(&mut frame.chunk)[start..end]
    }

    fn advance(&self, frame: &mut RingFrame, bytes: usize) {
        let bytes = (bytes as u32).min(frame.length);
        frame.start += bytes;
        frame.length -= bytes;
    }

    fn can_send(&mut self) -> bool {
        !self.is_full && self.leaving.len() < MAX_LEAVING
    }

    fn send(&mut self, frame: RingFrame) -> io::Result<()> {
        self.leaving.push_back(frame);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.is_full = false;
        while !self.leaving.is_empty() {
            let (count, sent) = self.hand_over();
            match sent {
                Ok(()) if count > 1 => {
                    self.refused = 0;
                    self.merged += count as u64;
                }
                Ok(()) => {}
                // the device has no room, or it cannot segment, and the kernel does not segment for this kind
                // of socket
                Err(error) if count > 1 && (is_full(&error) || is_unable(&error)) => {
                    self.refused += 1;
                    if self.refused == MAX_REFUSED {
                        self.merges = Merges::No;
                    }
                    self.alone = count;
                    continue;
                }
                Err(error) if is_full(&error) && self.tries < MAX_TRIES => {
                    self.tries += 1;
                    self.is_full = true;
                    break;
                }
                // the device is down, its MTU has become too small, or it has refused too often: the frames
                // are lost, as on a cable
                Err(error)
                    if error.kind() == io::ErrorKind::NetworkDown
                        || is_too_long(&error)
                        || is_full(&error) =>
                {
                    self.unsent += count as u64;
                }
                Err(error) => return Err(error),
            }
            (self.tries, self.alone) = (0, self.alone.saturating_sub(count));
            self.free.extend(self.leaving.drain(..count).map(|frame| frame.chunk));
        }
        self.arrivals.fill(&mut self.free);
        Ok(())
    }

    fn discard(&mut self, frame: RingFrame) {
        self.free.push(frame.chunk);
    }

    fn arrivals(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }

    fn set_mtu(&mut self, _mtu: u32) {
        // the size of a frame's memory was fixed at the start
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.arrivals.as_fd(), self.device.as_fd()]
    }

    fn lost(&self) -> Lost {
        let counted = self.arrivals.statistics().unwrap_or_default();
        Lost {
            overrun: counted.dropped + counted.ring_full + counted.nowhere_to_put,
            unsent: self.unsent,
            merged: self.merged,
        }
    }
}
