//! Notifies of changes to devices at once: for example a cable that is pulled in any of several namespaces.
//!
//! ```text
//!   namespace A   namespace B   namespace C        notices about every device (RTNLGRP_LINK)
//!        \_____________|_____________/
//!                      v
//!        one socket in a namespace of its own, with a number for each of the others
//! ```
//!
//! A single socket receives the notices of all namespaces (`NETLINK_LISTEN_ALL_NSID`). The kernel walks all
//! listeners of the whole host for each change of any device, so a socket for each namespace would make the
//! removal of a network of hundreds of switches quadratic. The socket's namespace needs a number for each
//! watched namespace. It is a separate namespace, because such numbers last as long as it does. Notices hold
//! only the device's number, so devices of different watched namespaces need different numbers.
//!
//! Cost: nothing until a change; opening takes 1 ms and 10 us per namespace. When not to use it: to read the
//! current state ([`link::all`] does that), or to learn whether a frame arrived. A reader that is too slow is
//! told that it has missed notices. Reference: rtnetlink(7), netlink(7).

use super::link::{Carrier, DELETE_LINK, Index};
use super::message::{NetlinkRequest, notices, word};
use super::{NetlinkSocket, Refused, link};
use crate::network_namespace::NetworkNamespace;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread;

const NEW_NUMBER: u16 = 88;
const NUMBER: u16 = 1;
const OF_DESCRIPTOR: u16 = 3;
const DEVICES: libc::c_int = 1;
/// Room for some thousand changes; beyond that the kernel reports that notices were missed.
const ROOM: usize = 4 << 20;

/// A listener to the devices of some namespaces.
#[derive(Debug)]
pub struct DeviceWatch {
    socket: NetlinkSocket,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// The present state of a device; perhaps unchanged.
    Device(Index, Carrier),
    /// There was no room for more notices: read the state of all devices.
    Missed,
}

impl DeviceWatch {
    /// Listens to these namespaces from now on. Fails with `EPERM` without `CAP_NET_ADMIN` and
    /// `CAP_NET_BROADCAST`.
    pub fn begin(namespaces: &[NetworkNamespace]) -> Result<Self, Refused> {
        let mut socket = Self::elsewhere().map_err(Refused::local)?;
        socket.run(
            &namespaces.iter().map(|namespace| number(namespace.as_fd())).collect::<Vec<NetlinkRequest>>(),
        )?;
        // with less room, notices are missed earlier, and the listener is told so
        let _ = crate::socket::force_receive_room(&socket, ROOM);
        let listen = [(libc::NETLINK_LISTEN_ALL_NSID, 1), (libc::NETLINK_ADD_MEMBERSHIP, DEVICES)];
        for (option, value) in listen {
            crate::socket::set_option(&socket, libc::SOL_NETLINK, option, &value).map_err(Refused::local)?;
        }
        Ok(Self { socket })
    }

    /// Listens only to the calling thread's namespace, from now on, by a socket in it.
    pub fn here() -> Result<Self, Refused> {
        let mut socket = NetlinkSocket::open().map_err(Refused::local)?;
        // the kernel sends no notices to a socket without a number, and assigns the number at the first send
        link::all(&mut socket)?;
        crate::socket::set_option(&socket, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, &DEVICES)
            .map_err(Refused::local)?;
        Ok(Self { socket })
    }

    /// Opens a socket in a new namespace, which lasts as long as the socket; the calling thread stays in its
    /// namespace.
    fn elsewhere() -> io::Result<NetlinkSocket> {
        let open = || {
            let _inside = NetworkNamespace::create()?;
            NetlinkSocket::open()
        };
        let opened = thread::scope(|scope| scope.spawn(open).join());
        opened.unwrap_or_else(|_| Err(io::Error::other("opening a socket panicked")))
    }

    /// Reads the notices since the last call; empty if there are none. Poll the descriptor to wait.
    pub fn news(&mut self) -> io::Result<Vec<News>> {
        let (mut apply_notices, mut buffer) = (Vec::new(), vec![0; 32 * 1024]);
        loop {
            match crate::socket::receive_now(&self.socket, &mut buffer) {
                Ok(length) => apply_notices.extend(notices(&buffer[..length]).filter_map(news)),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => apply_notices.push(News::Missed),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(apply_notices),
                Err(error) => return Err(error),
            }
        }
    }
}

crate::as_fd!(DeviceWatch.socket);

fn news((kind, body): (u16, &[u8])) -> Option<News> {
    let (index, flags) = (body.get(4..8)?, body.get(8..12)?);
    let carrier = match kind {
        link::NEW_LINK => Carrier::from_flags(word(flags, 0)),
        DELETE_LINK => Carrier::Absent,
        _ => return None,
    };
    Some(News::Device(Index(word(index, 0)), carrier))
}

/// Assigns another namespace a number of the kernel's choice in the socket's namespace.
fn number(namespace: BorrowedFd<'_>) -> NetlinkRequest {
    let mut request = NetlinkRequest::new("give a namespace a number".to_owned(), NEW_NUMBER, 0, &[0]);
    request
        .attribute(NUMBER, &(-1_i32).to_ne_bytes())
        .attribute(OF_DESCRIPTOR, &namespace.as_raw_fd().to_ne_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::super::capture;
    use super::super::link::{Device, LinkState};
    use super::*;
    use crate::process::{is_root, readable};
    use std::time::{Duration, Instant};

    /// Makes two namespaces and a cable between device 40 of the first and device 41 of the second.
    fn cable() -> (Vec<NetworkNamespace>, Vec<NetlinkSocket>) {
        let home = NetworkNamespace::current().expect("our own");
        let make = |_| {
            let made = NetworkNamespace::create().expect("root may");
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
            (made, NetlinkSocket::open().expect("a descriptor is left"))
        };
        let (namespaces, mut sockets): (Vec<_>, Vec<_>) = (0..2).map(make).unzip();
        home.enter().expect("root may");
        let end = |at: usize, index| Device {
            namespace: namespaces[at].as_fd(),
            name: format!("p{index}"),
            index: Some(Index(index)),
            address: [2, 0, 0, 0, 0, 1],
        };
        sockets[0].run(&[link::veth(&end(0, 40), &end(1, 41))]).expect("root may");
        sockets[1].run(&[link::set(Index(41), LinkState::Up)]).expect("root may");
        (namespaces, sockets)
    }

    /// Applies notices to the devices' states until they are as expected.
    fn apply_notices(watch: &mut DeviceWatch, expected: [Carrier; 2]) {
        let (mut seen, end) = ([None; 2], Instant::now() + Duration::from_secs(30));
        while seen != expected.map(Some) {
            assert!(Instant::now() < end, "never {expected:?}: {seen:?}");
            readable(&[watch.as_fd()], Some(Duration::from_millis(100))).expect("a socket can be polled");
            for news in watch.news().expect("it listens") {
                if let News::Device(index @ Index(40 | 41), carrier) = news {
                    seen[index.0 as usize - 40] = Some(carrier);
                }
            }
        }
    }

    #[test]
    fn a_cable_that_is_pulled_at_one_end_is_heard_of_at_both_and_so_is_one_that_is_gone() {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        let (namespaces, mut sockets) = cable();
        let mut watch = DeviceWatch::begin(&namespaces).expect("root may");
        sockets[1].run(&[link::set(Index(41), LinkState::Down)]).expect("root may");
        apply_notices(&mut watch, [Carrier::Absent; 2]);
        sockets[1].run(&[link::set(Index(41), LinkState::Up)]).expect("root may");
        apply_notices(&mut watch, [Carrier::Present; 2]);
        let at = link::all(&mut sockets[0]).expect("the kernel answers");
        let at = at.iter().find(|link| link.index == Index(40)).expect("it is there");
        assert_eq!(at.carrier, Carrier::Present, "the table says what the news say");
        sockets[0].run(&[capture::remove(Index(40))]).expect("root may");
        apply_notices(&mut watch, [Carrier::Absent; 2]);
    }

    #[test]
    fn a_listener_in_one_namespace_hears_of_its_devices() {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        let (namespaces, mut sockets) = cable();
        // a thread of its own enters the namespace
        let entered = thread::spawn(move || {
            namespaces[1].enter().expect("root may");
            let watch = DeviceWatch::here().expect("a descriptor is left");
            (watch, namespaces)
        });
        let (mut watch, _namespaces) = entered.join().expect("it does not panic");
        sockets[1].run(&[link::set(Index(41), LinkState::Down)]).expect("root may");
        let absent = News::Device(Index(41), Carrier::Absent);
        let end = Instant::now() + Duration::from_secs(30);
        while !watch.news().expect("it listens").contains(&absent) {
            assert!(Instant::now() < end, "it hears nothing");
            readable(&[watch.as_fd()], Some(Duration::from_millis(100))).expect("a socket can be polled");
        }
    }

    #[test]
    fn a_listener_that_is_too_slow_is_told_so() {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        let (namespaces, mut sockets) = cable();
        let mut watch = DeviceWatch::begin(&namespaces).expect("root may");
        let little: libc::c_int = 4096;
        crate::socket::set_option(&watch, libc::SOL_SOCKET, libc::SO_RCVBUF, &little).expect("a size");
        for _ in 0..20 {
            let both = [LinkState::Down, LinkState::Up].map(|state| link::set(Index(41), state));
            sockets[1].run(&both).expect("root may");
        }
        assert!(watch.news().expect("it listens").contains(&News::Missed));
    }
}
