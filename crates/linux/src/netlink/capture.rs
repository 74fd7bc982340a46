//! Devices that take frames in for a process and that the network must not notice: without addresses of their own.
//!
//! They are made switched off, and before they are switched on the kernel is told not to make up an IPv6 address for
//! them: otherwise it would send frames of its own through them. Reference: rtnetlink(7), include/uapi/linux/if_link.h.

use super::link::{Device, Index};
use super::message::Request;
use std::os::fd::{AsRawFd, BorrowedFd};

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const CREATE_NEW: u16 = 0x400 | 0x200;
const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const QUEUE_LENGTH: u16 = 13;
const LINK_INFO: u16 = 18;
const OF_FAMILY: u16 = 26;
const NAMESPACE: u16 = 28;
const XDP: u16 = 43;
const KIND: u16 = 1;
const DATA: u16 = 2;
const PEER: u16 = 1;
const PROGRAM: u16 = 1;
const INET6: u16 = libc::AF_INET6 as u16;
const ADDRESS_GENERATION: u16 = 8;
const NO_ADDRESS: u8 = 1;
const UP: u32 = libc::IFF_UP as u32;
const WITHOUT_ARP: u32 = libc::IFF_NOARP as u32;

/// Makes a pair of devices, both off.
#[must_use]
pub fn pair(near: &Device<'_>, far: &Device<'_>) -> Request {
    let what = format!("make the pair of devices {} and {}", near.name, far.name);
    let mut request = Request::new(what, NEW_LINK, CREATE_NEW, &head(near.index, WITHOUT_ARP, !0));
    describe(&mut request, near);
    request.nest(LINK_INFO, |info| {
        info.text(KIND, "veth").nest(DATA, |data| {
            data.nest(PEER, |peer| {
                peer.raw(&head(far.index, WITHOUT_ARP, !0));
                describe(peer, far);
            });
        });
    });
    request
}

fn describe(request: &mut Request, device: &Device<'_>) {
    let namespace = device.namespace.as_raw_fd();
    request
        .text(NAME, &device.name)
        .attribute(ADDRESS, &device.address)
        .attribute(NAMESPACE, &namespace.to_ne_bytes());
}

/// Has the kernel make up no IPv6 address for a device. Where there is no IPv6 it refuses, which does no harm.
#[must_use]
pub fn without_address(device: Index) -> Request {
    let what = format!("keep device {} without an address", device.0);
    let mut request = Request::new(what, NEW_LINK, 0, &head(Some(device), 0, 0));
    request.nest(OF_FAMILY, |families| {
        families.nest(INET6, |inet6| {
            inet6.attribute(ADDRESS_GENERATION, &[NO_ADDRESS]);
        });
    });
    request
}

/// Switches a device on that answers no address resolution, takes frames of so many bytes, and queues so many.
#[must_use]
pub fn switch_on(device: Index, mtu: u32, queue: u32) -> Request {
    let what = format!("switch on device {} for {mtu} bytes a frame", device.0);
    let flags = UP | WITHOUT_ARP;
    let mut request = Request::new(what, NEW_LINK, 0, &head(Some(device), flags, flags));
    request.attribute(MTU, &mtu.to_ne_bytes()).attribute(QUEUE_LENGTH, &queue.to_ne_bytes());
    request
}

/// Has a program see every frame that comes in through a device.
#[must_use]
pub fn redirect(device: Index, program: BorrowedFd<'_>) -> Request {
    let what = format!("attach an XDP program to device {}", device.0);
    let mut request = Request::new(what, NEW_LINK, 0, &head(Some(device), 0, 0));
    request.nest(XDP, |xdp| {
        xdp.attribute(PROGRAM, &program.as_raw_fd().to_ne_bytes());
    });
    request
}

/// Removes a device, and the other end of its cable.
#[must_use]
pub fn remove(device: Index) -> Request {
    Request::new(format!("remove device {}", device.0), DELETE_LINK, 0, &head(Some(device), 0, 0))
}

/// `struct ifinfomsg`: family, padding, type, index, flags, which flags to change.
fn head(index: Option<Index>, flags: u32, change: u32) -> [u8; 16] {
    let mut head = [0; 16];
    head[4..8].copy_from_slice(&index.map_or(0, |index| index.0).to_ne_bytes());
    head[8..12].copy_from_slice(&flags.to_ne_bytes());
    head[12..16].copy_from_slice(&change.to_ne_bytes());
    head
}
