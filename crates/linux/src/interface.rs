//! Network devices by name: number, kind, longest frame. Reference: netdevice(7).

use crate::netlink::link::Index;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What is known of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its number in the calling thread's namespace.
    pub index: Index,
    /// Its hardware address, if it is an Ethernet device that is no loopback.
    pub ethernet: Option<[u8; 6]>,
    /// The longest packet that it carries in a frame, in bytes.
    pub mtu: u32,
}

impl Interface {
    /// Looks a device up in the calling thread's namespace.
    ///
    /// # Errors
    /// `ENODEV`: there is none of this name.
    pub fn find(name: &str) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor for us alone.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let text = CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
        // SAFETY: a text with its zero.
        let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let mtu = ask(&socket, name, libc::SIOCGIFMTU as _)?;
        // SAFETY: SIOCGIFMTU filled in this number.
        let mtu = unsafe { mtu.ifr_ifru.ifru_mtu };
        let hardware = ask(&socket, name, libc::SIOCGIFHWADDR as _)?;
        // SAFETY: SIOCGIFHWADDR filled in this structure.
        let hardware = unsafe { hardware.ifr_ifru.ifru_hwaddr };
        let ethernet = hardware.sa_family == libc::ARPHRD_ETHER;
        let address = std::array::from_fn(|at| hardware.sa_data[at] as u8);
        Ok(Self {
            index: Index(index),
            ethernet: ethernet.then_some(address),
            mtu: u32::try_from(mtu).unwrap_or(0),
        })
    }
}

fn ask(socket: &OwnedFd, name: &str, what: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the callers' requests read and write one ifreq.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) };
    if done == 0 { Ok(request) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_found_and_is_no_ethernet() {
        let loopback = Interface::find("lo").expect("it is in every namespace");
        assert_eq!((loopback.index, loopback.ethernet), (Index::LOOPBACK, None));
        assert!(loopback.mtu > 1000);
    }

    #[test]
    fn a_device_that_is_not_there_is_not_found() {
        for name in ["unisono-none", "", "a name that is far too long", "nul\0"] {
            assert_eq!(Interface::find(name).expect_err("none").raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }
}
