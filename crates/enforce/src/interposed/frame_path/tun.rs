//! The simple frame path: a TAP device receives, and a packet socket sends.

use super::{FramePath, HEADERS, Lost, MAX_TRIES, is_full, is_too_long};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use unisono_linux::netlink::link::Index;
use unisono_linux::packet::PacketSocket;
use unisono_linux::tun::Tap;

/// The most frames that may wait; further frames are dropped.
const MAX_QUEUED_FRAMES: usize = 32 * 1024;

#[derive(Debug)]
pub(in super::super) struct Tun {
    tap: Tap,
    device: PacketSocket,
    /// Buffers for reuse.
    free: Vec<Vec<u8>>,
    /// The number of frames in this process.
    used: usize,
    longest: usize,
    /// A frame for which the device has no room at the moment.
    stuck: Option<TunFrame>,
    /// The number of failed tries to send `stuck` because the device had no room.
    tries: u32,
    lost: Lost,
}

#[derive(Debug)]
pub(in super::super) struct TunFrame {
    bytes: Vec<u8>,
    start: usize,
}

impl Tun {
    pub(in super::super) fn new(tap: Tap, device: Index, mtu: u32) -> io::Result<Self> {
        let longest = (mtu + HEADERS) as usize;
        // with protocol 0 the socket receives no frames
        let device = PacketSocket::open(device, 0)?;
        Ok(Self {
            tap,
            device,
            free: Vec::new(),
            used: 0,
            longest,
            stuck: None,
            tries: 0,
            lost: Lost::default(),
        })
    }

    fn try_send(&mut self, frame: TunFrame) -> io::Result<()> {
        match self.device.send(&frame.bytes[frame.start..]) {
            Ok(()) => {}
            Err(error) if is_full(&error) && self.tries < MAX_TRIES => {
                self.tries += 1;
                self.stuck = Some(frame);
                return Ok(());
            }
            // the device is down, its MTU has become too small, or it has refused too often: the frame is
            // lost, as on a cable
            Err(error)
                if error.kind() == io::ErrorKind::NetworkDown || is_too_long(&error) || is_full(&error) =>
            {
                self.lost.unsent += 1;
            }
            Err(error) => return Err(error),
        }
        self.tries = 0;
        self.discard(frame);
        Ok(())
    }
}

impl FramePath for Tun {
    type Frame = TunFrame;

    fn receive(&mut self, max_frames: usize, frames: &mut Vec<TunFrame>) -> io::Result<()> {
        for _ in 0..max_frames {
            let mut bytes = self.free.pop().unwrap_or_else(|| vec![0; self.longest]);
            bytes.resize(self.longest, 0);
            let Some(length) = self.tap.receive(&mut bytes)? else {
                self.free.push(bytes);
                break;
            };
            if self.used >= MAX_QUEUED_FRAMES {
                self.lost.overrun += 1;
                self.free.push(bytes);
                continue;
            }
            bytes.truncate(length);
            self.used += 1;
            frames.push(TunFrame { bytes, start: 0 });
        }
        Ok(())
    }

    fn bytes<'a>(&'a self, frame: &'a mut TunFrame) -> &'a mut [u8] {
        &mut frame.bytes[frame.start..]
    }

    fn advance(&self, frame: &mut TunFrame, bytes: usize) {
        frame.start = (frame.start + bytes).min(frame.bytes.len());
    }

    fn can_send(&mut self) -> bool {
        self.stuck.is_none()
    }

    fn send(&mut self, frame: TunFrame) -> io::Result<()> {
        self.try_send(frame)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.stuck.take() {
            Some(frame) => self.try_send(frame),
            None => Ok(()),
        }
    }

    fn discard(&mut self, frame: TunFrame) {
        self.used -= 1;
        self.free.push(frame.bytes);
    }

    fn arrivals(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }

    fn set_mtu(&mut self, mtu: u32) {
        self.longest = self.longest.max((mtu + HEADERS) as usize);
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.tap.as_fd(), self.device.as_fd()]
    }

    fn lost(&self) -> Lost {
        self.lost
    }
}
