//! Functions for several kinds of sockets: options, sending and receiving bytes. Reference: socket(7).

use rustix::net::{AddressFamily, RecvFlags, recv, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets the priority of a socket's packets (`SO_PRIORITY`), by which queues may classify them; priorities
/// above 6 need `CAP_NET_ADMIN`. Fails with `EPERM`, or if the descriptor is no socket.
pub fn set_priority(socket: &impl AsFd, priority: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority)
}

/// Sets the mark of a socket's packets (`SO_MARK`), which rules of this host's network can match. Fails with
/// `EPERM` without `CAP_NET_ADMIN`.
pub fn set_mark(socket: &impl AsFd, mark: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MARK, &mark)
}

/// Sets the type-of-service field in the headers of a socket's IPv4 packets (`IP_TOS`): six bits of code
/// point, two of congestion notification.
pub fn set_type_of_service(socket: &impl AsFd, field: u8) -> io::Result<()> {
    Ok(sockopt::set_ip_tos(socket, field)?)
}

/// Allows `bytes` bytes of waiting messages at a socket (`SO_RCVBUFFORCE`), even beyond `net.core.rmem_max`.
/// Fails with `EPERM` without `CAP_NET_ADMIN`.
pub fn force_receive_room(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size_force(socket, bytes)?)
}

/// Sets the congestion control of a TCP socket (`TCP_CONGESTION`): `cubic`, `bbr`, ... Fails if the kernel
/// does not have it.
pub fn set_congestion_control(socket: &impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// Divides each message of a UDP socket into packets of `bytes` bytes (`UDP_SEGMENT`, Linux 4.18). Before
/// 6.11, messages are refused with `EIO` if the device does not compute checksums.
pub fn set_segment_bytes(socket: &impl AsFd, bytes: u16) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_UDP, libc::UDP_SEGMENT, &i32::from(bytes))
}

/// Bounds the bytes that a TCP socket accepts before they can be sent (`TCP_NOTSENT_LOWAT`); bytes in flight,
/// not acknowledged by the peer, do not count. The socket is ready for more when half of the bound has been
/// sent. A write that begins below the bound may exceed it by one kernel buffer.
pub fn bound_unsent(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes)
}

/// Sets the room for received but unread bytes of a socket (`SO_RCVBUF`), at most `net.core.rmem_max`. The
/// kernel also counts its own structures, and doubles the number for them. From then on it does not adapt the
/// room of a TCP connection to the speed of the program.
pub fn bound_unread(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(socket, bytes)?)
}

/// Returns whether a socket sends packets of IPv4 or IPv6. Fails with `ENOTSOCK` if the descriptor is no
/// socket.
pub fn is_internet(socket: &impl AsFd) -> io::Result<bool> {
    Ok(matches!(sockopt::socket_domain(socket)?, AddressFamily::INET | AddressFamily::INET6))
}

/// Sets an option to a plain value of the option's type.
pub(crate) fn set_option<T: Copy>(socket: &impl AsFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for reads of its own size; the kernel checks the size against the option.
    let set = unsafe { libc::setsockopt(socket, level, option, (&raw const *value).cast(), length) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option. Bytes that the kernel does not write stay as in `value`.
///
/// # Safety
/// Any bytes must be a valid `T`.
pub(crate) unsafe fn get_option<T: Copy>(
    socket: &impl AsFd,
    level: i32,
    option: i32,
    value: T,
) -> io::Result<T> {
    // SAFETY: the caller guarantees that any bytes are a valid `T`.
    unsafe { get_option_and_length(socket, level, option, value) }.map(|(value, _)| value)
}

/// Reads an option as [`get_option`] does. Also returns the number of bytes that the kernel has written.
///
/// # Safety
/// Any bytes must be a valid `T`.
pub(crate) unsafe fn get_option_and_length<T: Copy>(
    socket: &impl AsFd,
    level: i32,
    option: i32,
    mut value: T,
) -> io::Result<(T, usize)> {
    let socket = socket.as_fd().as_raw_fd();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `value`; both outlive the call.
    let got = unsafe { libc::getsockopt(socket, level, option, (&raw mut value).cast(), &raw mut length) };
    if got == 0 { Ok((value, length as usize)) } else { Err(io::Error::last_os_error()) }
}

/// Receives a message, or the available bytes of a stream, without waiting; the rest of a message that does
/// not fit is discarded. Fails with `EWOULDBLOCK` if nothing has arrived.
pub fn receive_now(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    Ok(recv(socket, bytes, RecvFlags::DONTWAIT)?.0)
}
