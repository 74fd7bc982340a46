//! Ports for servers that a test starts.
//!
//! Several tests run at the same time, each in a process of its own, and a test's server binds its port only
//! after it has started. So a test claims a port for the rest of its process: a socket with the port's number
//! as its abstract name, which no other process of this network namespace can have meanwhile.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::sync::{Mutex, PoisonError};

/// The sockets that claim this process's ports.
static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Returns loopback addresses whose ports are free for TCP and UDP and belong to this process until it ends.
/// They are outside the range from which the kernel assigns ports. (A port that the kernel chose for port 0
/// might be assigned to another socket before the test uses it.)
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
        addresses.find(|address| is_free(*address) && claim(*address)).expect("one of 2,000 ports is free")
    })
}

fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
}

/// Claims a port, unless a process has it already.
fn claim(address: SocketAddr) -> bool {
    let name = format!("unisono-host-tests-port-{}", address.port());
    let socket = UnixAddress::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name));
    let is_ours = socket.is_ok();
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).extend(socket);
    is_ours
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_port_is_given_once_even_if_nothing_listens_there_yet() {
        let ports: BTreeSet<SocketAddr> = (0..10).flat_map(|_| free_ports::<4>()).collect();
        assert_eq!(ports.len(), 40);
    }
}
