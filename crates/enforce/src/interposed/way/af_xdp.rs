//! The fast way: `AF_XDP` sockets that share memory, one at the far end of a pair of devices, one at the device.
//!
//! A frame is copied into the memory by the kernel when it comes and out of it when it goes; while it waits it
//! stays where it is.

use super::{HEADERS, Lost, Way};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use unisono_linux::xdp::{Chunk, Mode, Outgoing, Place, Socket, Umem};

/// Frames that there is room for, waiting or on their way.
const FRAMES: u32 = 16 * 1024;
/// What the kernel leaves free before a frame.
const HEADROOM: u32 = 256;

/// Frames come and go by rings.
#[derive(Debug)]
pub(in super::super) struct AfXdp {
    umem: Rc<Umem>,
    arrivals: Socket,
    device: Socket,
    free: Vec<Chunk>,
    /// Counted before this process began to count anew, to be told apart from a counter that begins at 0.
    unsent: u64,
}

/// A frame in shared memory.
#[derive(Debug)]
pub(in super::super) struct Frame {
    chunk: Chunk,
    start: u32,
    length: u32,
}

impl AfXdp {
    /// The longest packet that fits.
    pub(in super::super) const MOST_MTU: u32 = 3400;

    /// Opens both sockets; `enter_far` and `enter_home` change this thread's network namespace.
    pub(in super::super) fn new(
        mtu: u32,
        far: Place,
        device: Place,
        enter_far: impl FnOnce() -> io::Result<()>,
        enter_home: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Self> {
        let chunk = if mtu + HEADERS + HEADROOM <= 2048 { 2048 } else { 4096 };
        let (umem, mut free) = Umem::new(chunk, FRAMES)?;
        let umem = Rc::new(umem);
        enter_far()?;
        let mut arrivals = Socket::open(&umem, far, Mode::Copy, None)?;
        enter_home()?;
        let device = Socket::open(&umem, device, Mode::Copy, Some(&arrivals))?;
        arrivals.fill(&mut free);
        Ok(Self { umem, arrivals, device, free, unsent: 0 })
    }

    /// The socket that frames have to be delivered to.
    pub(in super::super) fn socket(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }
}

impl Way for AfXdp {
    type Frame = Frame;

    fn receive(&mut self, most: usize, frames: &mut Vec<Frame>) -> io::Result<()> {
        self.device.completed(&mut self.free);
        let came = self.arrivals.receive(most, |frame| {
            frames.push(Frame {
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

    fn bytes<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let (start, end) = (frame.start as usize, (frame.start + frame.length) as usize);
        &mut self.umem.bytes_mut(&mut frame.chunk)[start..end]
    }

    fn advance(&self, frame: &mut Frame, bytes: usize) {
        let bytes = (bytes as u32).min(frame.length);
        frame.start += bytes;
        frame.length -= bytes;
    }

    fn can_send(&mut self) -> bool {
        self.device.under_way() < 256
    }

    fn send(&mut self, frame: Frame) -> io::Result<()> {
        let Frame { chunk, start, length } = frame;
        let outgoing = Outgoing { chunk, offset: start as usize, length: length as usize };
        if let Err(outgoing) = self.device.queue(outgoing) {
            self.unsent += 1;
            self.free.push(outgoing.chunk);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        // a call sends some dozens; who is not ready now is asked again in the next round
        let mut left = usize::MAX;
        loop {
            let now = match self.device.send() {
                // unplugged: they wait, as what comes after them does, until there is no room
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => break,
                now => now?,
            };
            if now == 0 || now >= left {
                break;
            }
            left = now;
        }
        self.device.completed(&mut self.free);
        self.arrivals.fill(&mut self.free);
        Ok(())
    }

    fn discard(&mut self, frame: Frame) {
        self.free.push(frame.chunk);
    }

    fn arrivals(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }

    fn lost(&self) -> Lost {
        let counted = self.arrivals.statistics().unwrap_or_default();
        Lost { overrun: counted.dropped + counted.ring_full + counted.nowhere_to_put, unsent: self.unsent }
    }
}
