//! Connections that the broker has ended, and whose programs may still be sending.
//!
//! The kernel answers bytes that come to a closed TCP socket with a reset, and so does the close of a socket
//! with unread bytes. A program that gets a reset loses its unread bytes: the frame with the reason. So the
//! broker reads and drops the bytes of such a connection until its program has closed it, for at most
//! [`LINGER_TIMEOUT`].
//!
//! Cost: a descriptor for each connection, at most [`MAX_LINGERING`].

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, recv, sockopt};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use unisono_linux::clock::{Duration, Instant};

/// The tag of these connections in epoll.
pub(super) const LINGERING: u64 = 16 << 32;
/// A program that has a reason to wait for closes its end at once; a program that goes on sending needs about
/// as long as the largest frame takes on a slow network. Chosen, not measured.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Programs that are sent away again and again cannot take all descriptors. Chosen, not measured.
const MAX_LINGERING: usize = 64;
/// Reads of one connection in a turn: at most 1 MiB, about 100 us. Chosen by this argument, not measured.
const MAX_READS: usize = 16;

/// The ended connections, the oldest first.
#[derive(Debug, Default)]
pub(super) struct LingeringSockets {
    sockets: VecDeque<(Instant, OwnedFd)>,
}

impl LingeringSockets {
    /// Keeps a connection whose sending side is closed, if it is TCP's.
    pub(super) fn keep(&mut self, now: Instant, epoll: BorrowedFd<'_>, ended: BorrowedFd<'_>) {
        let is_tcp = matches!(sockopt::socket_domain(ended), Ok(AddressFamily::INET | AddressFamily::INET6))
            && sockopt::socket_type(ended) == Ok(rustix::net::SocketType::STREAM);
        if !is_tcp {
            return;
        }
        // without a free descriptor the connection is closed at once
        let Ok(socket) = ended.try_clone_to_owned() else { return };
        // the kernel knows both descriptors as one connection
        let _ = epoll::delete(epoll, ended);
        if epoll::add(epoll, socket.as_fd(), EventData::new_u64(LINGERING), EventFlags::IN).is_ok() {
            if self.sockets.len() == MAX_LINGERING {
                self.sockets.pop_front();
            }
            self.sockets.push_back((now + LINGER_TIMEOUT, socket));
        }
    }

    /// Drops the bytes that have come, and the connections that are over.
    pub(super) fn drain(&mut self, now: Instant) {
        self.sockets.retain(|(until, socket)| now < *until && is_open(socket.as_fd()));
    }
}

/// Drops the bytes that have come; returns whether more may come.
fn is_open(socket: BorrowedFd<'_>) -> bool {
    let mut bytes = [0_u8; 64 << 10];
    for _ in 0..MAX_READS {
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return false,
            Ok(_) => {}
            Err(error) => return matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }
    true
}
