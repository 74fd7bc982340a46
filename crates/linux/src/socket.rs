//! What netlink and packet sockets share: options, sending and receiving bytes. Reference: socket(7).

use rustix::net::{RecvFlags, recv, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Gives what a socket sends a priority (`SO_PRIORITY`), by which queues may tell it from others; above 6 it
/// takes `CAP_NET_ADMIN`. Fails with `EPERM`, or it is no socket.
pub fn set_priority(socket: &impl AsFd, priority: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority)
}

/// The mark of what a socket sends (`SO_MARK`), which rules of this host's network see. Fails with `EPERM`
/// without `CAP_NET_ADMIN`.
pub fn set_mark(socket: &impl AsFd, mark: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MARK, &mark)
}

/// The field in the header of what a socket sends by IPv4 (`IP_TOS`): six bits of code point, two of
/// congestion.
pub fn set_type_of_service(socket: &impl AsFd, field: u8) -> io::Result<()> {
    Ok(sockopt::set_ip_tos(socket, field)?)
}

/// Lets so many bytes of messages wait at a socket (`SO_RCVBUFFORCE`), beyond what `net.core.rmem_max`
/// allows. Fails with `EPERM` without `CAP_NET_ADMIN`.
pub fn force_receive_room(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size_force(socket, bytes)?)
}

/// Chooses how a TCP socket finds its speed (`TCP_CONGESTION`): `cubic`, `bbr`, ... Fails if the kernel has
/// none of this name.
pub fn set_congestion_control(socket: &impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// Bounds the bytes that a TCP socket takes before they can leave (`TCP_NOTSENT_LOWAT`); those on their way,
/// which the other end has not acknowledged, do not count. The socket is ready for more when half of them
/// have left. A write that begins below the bound may exceed it by one buffer of the kernel's.
pub fn bound_unsent(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes)
}

/// Gives a socket this much room for what has come and was not read (`SO_RCVBUF`), at most what
/// `net.core.rmem_max` allows. The kernel counts its own structures, too, and doubles the number for them. It
/// no longer adapts the room of a TCP connection to the speed of the program.
pub fn bound_unread(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(socket, bytes)?)
}

/// Sets an option to a plain value of the type that the option has.
pub(crate) fn set_option<T: Copy>(socket: &impl AsFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for reads of its own size; the kernel checks the size against the option.
    let set = unsafe { libc::setsockopt(socket, level, option, (&raw const *value).cast(), length) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives one message, or of a stream what is there, without waiting; what does not fit of a message is cut
/// off. Fails with `EWOULDBLOCK` if nothing is there.
pub fn receive_now(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    Ok(recv(socket, bytes, RecvFlags::DONTWAIT)?.0)
}
