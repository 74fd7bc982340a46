//! IPv4 addresses of devices. Reference: rtnetlink(7), include/uapi/linux/if_addr.h.

use super::link::Index;
use super::message::{CREATE_NEW, Entry, NetlinkRequest, TABLE};
use super::{NetlinkSocket, Refused};
use std::net::Ipv4Addr;

const NEW_ADDRESS: u16 = 20;
const READ_ADDRESSES: u16 = 22;
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

/// An address of a device, and the number of the first bits that it shares with its network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceAddress {
    pub address: Ipv4Addr,
    pub prefix: u8,
}

impl DeviceAddress {
    /// Returns whether this address's network contains `other`.
    pub fn is_in_network(self, other: Ipv4Addr) -> bool {
        let host_bits = 32_u32.saturating_sub(self.prefix.into());
        (u64::from(self.address.to_bits()) >> host_bits) == (u64::from(other.to_bits()) >> host_bits)
    }
}

/// Reads the addresses of all devices of the socket's namespace.
pub fn all(socket: &mut NetlinkSocket) -> Result<Vec<DeviceAddress>, Refused> {
    let fixed = [libc::AF_INET as u8, 0, 0, 0, 0, 0, 0, 0];
    let request = NetlinkRequest::new("list the addresses".to_owned(), READ_ADDRESSES, TABLE, &fixed);
    let address = |entry: &Entry| {
        let [_, prefix, ..] = entry.word(0).to_ne_bytes();
        // a device with a peer has its own address in LOCAL alone
        let bytes = entry.attribute(LOCAL).or_else(|| entry.attribute(ADDRESS))?;
        Some(DeviceAddress { address: Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?), prefix })
    };
    Ok(socket.table(&request, fixed.len())?.iter().filter_map(address).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_listed_with_its_network() {
        let mut socket = NetlinkSocket::open().expect("a socket");
        let found = all(&mut socket).expect("a table");
        let loopback = found.iter().find(|found| found.address == Ipv4Addr::LOCALHOST);
        let loopback = loopback.expect("every host of tests has its loopback device up");
        assert!(loopback.is_in_network(Ipv4Addr::new(127, 9, 9, 9)));
        assert!(!loopback.is_in_network(Ipv4Addr::new(128, 0, 0, 1)));
    }

    #[test]
    fn a_network_of_all_addresses_has_every_address_and_one_of_a_single_address_itself() {
        let here = Ipv4Addr::new(10, 0, 0, 1);
        assert!(DeviceAddress { address: here, prefix: 0 }.is_in_network(Ipv4Addr::new(192, 168, 0, 1)));
        let alone = DeviceAddress { address: here, prefix: 32 };
        assert!(alone.is_in_network(here) && !alone.is_in_network(Ipv4Addr::new(10, 0, 0, 2)));
    }
}
