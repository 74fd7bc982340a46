//! Ethernet devices (TAP) whose frames this process reads and writes.
//!
//! The process reads each frame that the kernel sends through the device. It accepts no offloads, so the
//! kernel segments large packets and fills in checksums first. The device disappears with its descriptor,
//! however the process ends.
//!
//! Cost: a system call and a copy per frame. When not to use it: above some hundred thousand frames per
//! second; [`crate::xdp`] needs no call to receive. Needs `CAP_NET_ADMIN`. Reference:
//! Documentation/networking/tuntap.rst, include/uapi/linux/if_tun.h.

use crate::interface;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// The process's end of a TAP device.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Makes a device of this name (at most 15 bytes) in the calling thread's namespace. Fails with
    /// `NotFound` without `/dev/net/tun`, `EPERM` without `CAP_NET_ADMIN`, `EBUSY` if the name is taken, and
    /// `InvalidInput` if it is too long.
    pub fn open(name: &str) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let no_name = || {
            let error = format!("{name:?} is no name for a device: it has 1 to 15 bytes");
            io::Error::new(io::ErrorKind::InvalidInput, error)
        };
        let mut request = interface::request(name).ok_or_else(no_name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
        interface::ask(&file, libc::TUNSETIFF as libc::c_ulong, &mut request)?;
        // SAFETY: TUNSETOFFLOAD takes a number.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(file))
    }

    /// Reads a waiting frame, if there is one; returns its length. The rest of a frame that does not fit is
    /// discarded. Fails with `EBADFD` if the device is gone.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(frame) {
            Ok(length) => Ok(Some(length)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

crate::as_fd!(Tap.0);
