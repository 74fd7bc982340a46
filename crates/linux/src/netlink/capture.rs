//! Devices that capture frames for a process, invisible to the network: without addresses of their own.
//!
//! They are made switched off. Before they are switched on, the kernel is told not to generate an IPv6
//! address for them: otherwise it would send frames of its own through them. Reference: rtnetlink(7),
//! include/uapi/linux/if_link.h.

use super::link::{self, DELETE_LINK, Device, Index, MTU, NEW_LINK, UP, WITHOUT_ARP, head};
use super::message::NetlinkRequest;
use std::os::fd::{AsRawFd, BorrowedFd};

const QUEUE_LENGTH: u16 = 13;
const OF_FAMILY: u16 = 26;
const XDP: u16 = 43;
const PROGRAM: u16 = 1;
const INET6: u16 = libc::AF_INET6 as u16;
const ADDRESS_GENERATION: u16 = 8;
const NO_ADDRESS: u8 = 1;

/// Makes a pair of devices, both off.
pub fn pair(near: &Device<'_>, far: &Device<'_>) -> NetlinkRequest {
    link::pair(near, far, WITHOUT_ARP, link::name)
}

/// Stops the kernel from generating an IPv6 address for a device. A kernel without IPv6 refuses this request;
/// ignore that.
pub fn without_address(device: Index) -> NetlinkRequest {
    let what = format!("keep device {} without an address", device.0);
    let mut request = NetlinkRequest::new(what, NEW_LINK, 0, &head(Some(device), 0, 0));
    request.nest(OF_FAMILY, |families| {
        families.nest(INET6, |inet6| {
            inet6.attribute(ADDRESS_GENERATION, &[NO_ADDRESS]);
        });
    });
    request
}

/// Switches on a device that answers no ARP requests, takes frames of up to `mtu` bytes, and queues up to
/// `queue` frames.
pub fn switch_on(device: Index, mtu: u32, queue: u32) -> NetlinkRequest {
    let what = format!("switch on device {} for {mtu} bytes a frame", device.0);
    let flags = UP | WITHOUT_ARP;
    let mut request = NetlinkRequest::new(what, NEW_LINK, 0, &head(Some(device), flags, flags));
    request.attribute(MTU, &mtu.to_ne_bytes()).attribute(QUEUE_LENGTH, &queue.to_ne_bytes());
    request
}

/// Attaches an XDP program that sees every frame arriving at a device.
pub fn redirect(device: Index, program: BorrowedFd<'_>) -> NetlinkRequest {
    let what = format!("attach an XDP program to device {}", device.0);
    let mut request = NetlinkRequest::new(what, NEW_LINK, 0, &head(Some(device), 0, 0));
    request.nest(XDP, |xdp| {
        xdp.attribute(PROGRAM, &program.as_raw_fd().to_ne_bytes());
    });
    request
}

/// Removes a device, and the other end of its pair.
pub fn remove(device: Index) -> NetlinkRequest {
    NetlinkRequest::new(format!("remove device {}", device.0), DELETE_LINK, 0, &head(Some(device), 0, 0))
}
