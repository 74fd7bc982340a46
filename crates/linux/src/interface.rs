//! Network devices by name: number, hardware address, maximum packet length. Reference: netdevice(7).

use crate::netlink::link::Index;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The device's number in the calling thread's namespace.
    pub index: Index,
    /// The hardware address, if the device is an Ethernet device other than the loopback device.
    pub ethernet: Option<[u8; 6]>,
    /// The longest packet that the device carries in a frame, in bytes.
    pub mtu: u32,
}

impl Interface {
    /// Looks a device up in the calling thread's namespace.
    pub fn find(name: &str) -> io::Result<Self> {
        let socket = any_socket()?;
        let mut request = request(name).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let index = name_to_index(&socket, name)?;
        ask(&socket, libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: SIOCGIFMTU filled in this number.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        ask(&socket, libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: SIOCGIFHWADDR filled in this structure.
        let hardware = unsafe { request.ifr_ifru.ifru_hwaddr };
        let ethernet = hardware.sa_family == libc::ARPHRD_ETHER;
        let address = std::array::from_fn(|at| hardware.sa_data[at] as u8);
        Ok(Self {
            index: Index(index),
            ethernet: ethernet.then_some(address),
            mtu: u32::try_from(mtu).unwrap_or(0),
        })
    }
}

/// Opens a socket for requests about devices of the calling thread's namespace.
pub(crate) fn any_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Makes a request that names a device, if the name has 1 to 15 bytes.
pub(crate) fn request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    (1..request.ifr_name.len()).contains(&name.len()).then_some(request)
}

/// Makes a request for a device that is known by number.
pub(crate) fn request_of(socket: &OwnedFd, device: Index) -> io::Result<libc::ifreq> {
    request(&index_to_name(socket, device.0)?).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
}

/// Makes an ioctl(2) that reads and writes an `ifreq`. The numbers of requests have another type with musl.
pub(crate) fn ask(socket: impl AsFd, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the callers' requests read and write one ifreq, which is borrowed exclusively.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what as _, &raw mut *request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
