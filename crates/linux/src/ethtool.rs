//! What a device takes over from the kernel: offloads, switched on and off.
//!
//! A device that fills in checksums, cuts segments or carries VLAN tags beside the frame gets frames that are
//! not yet what they will be. Who reads frames from a device in software wants them finished. Cost: a system
//! call each. Reference: ethtool(8), include/uapi/linux/ethtool.h.

use crate::interface::{self, any_socket, request_of};
use crate::netlink::link::Index;
use std::io;
use std::os::fd::OwnedFd;

/// What a device can take over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offload {
    /// Checksums of what is sent. Without them the kernel does not let it gather fragments either.
    SendChecksums,
    /// Cutting what TCP sends into segments.
    Segmentation,
    /// Putting frames that came together into larger ones.
    Merging,
    /// Writing VLAN tags into frames that are sent.
    VlanTags,
}

const SET_SEND_CHECKSUMS: u32 = 0x17;
const SET_SEGMENTATION: u32 = 0x1f;
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
const SET_MERGING: u32 = 0x2c;
const SEND_VLAN_TAGS: u32 = 1 << 7;

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Switches an offload off or on, for a device in the calling thread's namespace. Fails with `EPERM` without
/// `CAP_NET_ADMIN`; `EOPNOTSUPP`: the device has it fixed; `ENODEV`.
pub fn set(device: Index, offload: Offload, on: On) -> io::Result<()> {
    let socket = any_socket()?;
    let data = u32::from(on == On::Yes);
    let (command, data) = match offload {
        Offload::SendChecksums => (SET_SEND_CHECKSUMS, data),
        Offload::Segmentation => (SET_SEGMENTATION, data),
        Offload::Merging => (SET_MERGING, data),
        Offload::VlanTags => {
            let flags = ask(&socket, device, Value { command: GET_FLAGS, data: 0 })?;
            let others = flags & !SEND_VLAN_TAGS;
            (SET_FLAGS, others | if on == On::Yes { SEND_VLAN_TAGS } else { 0 })
        }
    };
    ask(&socket, device, Value { command, data }).map(|_| ())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    Yes,
    No,
}

fn ask(socket: &OwnedFd, device: Index, mut value: Value) -> io::Result<u32> {
    let mut request = request_of(socket, device)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // behind the pointer are the eight bytes that these commands read and write
    interface::ask(socket, libc::SIOCETHTOOL, &mut request)?;
    Ok(value.data)
}
