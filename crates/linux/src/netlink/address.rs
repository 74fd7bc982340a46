//! IPv4 addresses of devices. Reference: rtnetlink(7), include/uapi/linux/if_addr.h.

use super::link::Index;
use super::message::NetlinkRequest;
use std::net::Ipv4Addr;

const NEW_ADDRESS: u16 = 20;
const CREATE_NEW: u16 = 0x400 | 0x200;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;

/// Gives a device an address, and a route to all addresses with the same first `prefix` bits.
pub fn add(device: Index, address: Ipv4Addr, prefix: u8) -> NetlinkRequest {
    // struct ifaddrmsg: family, prefix length, flags, scope, index
    let mut fixed = [libc::AF_INET as u8, prefix, 0, 0, 0, 0, 0, 0];
    fixed[4..8].copy_from_slice(&device.0.to_ne_bytes());
    let what = format!("give device {} the address {address}/{prefix}", device.0);
    let mut request = NetlinkRequest::new(what, NEW_ADDRESS, CREATE_NEW, &fixed);
    request.attribute(LOCAL, &address.octets()).attribute(ADDRESS, &address.octets());
    request
}
