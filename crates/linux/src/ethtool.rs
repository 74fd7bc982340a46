//! Offloads of a device: work that it does instead of the kernel, and the kernel's merging of received frames
//! (GRO), switched on and off.
//!
//! With checksum, segmentation or VLAN offload, the kernel hands unfinished frames to the device. A program
//! that receives a device's frames in place of hardware needs complete frames. Cost: a few system calls each.
//! Reference: ethtool(8), include/uapi/linux/ethtool.h.

use crate::interface::{self, any_socket, request_of};
use crate::netlink::link::Index;
use std::io;
use std::os::fd::OwnedFd;

/// An offload of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offload {
    /// Checksums of sent frames. Without this offload the kernel does not let the device gather fragments
    /// either.
    SendChecksums,
    /// Segmentation of TCP data that is sent.
    Segmentation,
    /// Merging of received frames into larger ones, which the kernel does (GRO).
    Merging,
    /// Insertion of VLAN tags into sent frames.
    VlanTags,
}

const SET_SEND_CHECKSUMS: u32 = 0x17;
const SET_SEGMENTATION: u32 = 0x1f;
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
const SET_MERGING: u32 = 0x2c;
const SEND_VLAN_TAGS: u32 = 1 << 7;
const RECEIVE_VLAN_TAGS: u32 = 1 << 8;

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Switches an offload on or off, for a device in the calling thread's namespace. Fails with `EPERM` without
/// `CAP_NET_ADMIN`, with `EOPNOTSUPP` if the device cannot change it, and with `ENODEV` if it is gone.
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

/// Returns whether a device in the calling thread's namespace takes VLAN tags out of the frames that it
/// receives, and notes them beside the frames. Fails with `EOPNOTSUPP` if the device cannot tell, and with
/// `ENODEV` if it is gone.
pub fn takes_out_vlan_tags(device: Index) -> io::Result<bool> {
    let flags = ask(&any_socket()?, device, Value { command: GET_FLAGS, data: 0 })?;
    Ok(flags & RECEIVE_VLAN_TAGS != 0)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    Yes,
    No,
}

fn ask(socket: &OwnedFd, device: Index, mut value: Value) -> io::Result<u32> {
    let mut request = request_of(socket, device)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // these commands read and write the eight bytes behind the pointer
    interface::ask(socket, libc::SIOCETHTOOL, &mut request)?;
    Ok(value.data)
}
