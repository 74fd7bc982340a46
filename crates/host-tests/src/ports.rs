//! Ports for servers that a test starts.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Returns loopback addresses with free TCP ports, outside the range from which the kernel assigns ports. So
/// they stay free until the test uses them. (A port that the kernel chose for port 0 might be assigned to
/// another socket before the test uses it.)
///
/// # Panics
///
/// If fewer ports are free.
#[must_use]
pub fn free_ports<const COUNT: usize>() -> [SocketAddr; COUNT] {
    // below the range of net.ipv4.ip_local_port_range, which begins at 32,768
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).expect("below 10,000");
    let mut ports = first..32_000;
    std::array::from_fn(|_| {
        let mut addresses = ports.by_ref().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        addresses.find(|address| TcpListener::bind(address).is_ok()).expect("one of 2,000 ports is free")
    })
}
