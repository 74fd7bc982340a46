//! Unix sockets: who is at the other end, and passing descriptors: unix(7), cmsg(3).
//!
//! A name in the abstract namespace (`std::os::linux::net::SocketAddrExt`) belongs to its socket and is gone
//! with it, so that nothing is left behind after kill -9; it is visible within one network namespace, and
//! anybody there may connect to it: ask [`peer`] before believing anything.
//!
//! Cost: a system call each. Descriptors travel with at least one byte, and what was sent before that byte is
//! received before it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Connections that the kernel keeps at a listening socket until they are accepted.
pub const BACKLOG: i32 = 128;

/// Listens at a path that nothing is at. The socket there has this mode (less the process's umask) from its
/// first moment: one whose mode is set after binding could be connected to by anybody in between.
///
/// # Errors
/// `EADDRINUSE`: something is there. `ENAMETOOLONG`: paths of sockets have less than 108 bytes.
pub fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    // SAFETY: takes no pointers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let done = |result: i32| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: takes numbers. The kernel gives the file that bind makes the mode of the socket (since Linux
    // 2.6).
    done(unsafe { libc::fchmod(socket.as_raw_fd(), mode) })?;
    // SAFETY: all zeros is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `address` is a valid sockaddr_un of that length, whose path ends with a zero.
    done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    // SAFETY: takes numbers.
    done(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(UnixListener::from(socket))
}

/// A process at the other end of a connection, as the kernel knows it: at the time of connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number in this process's namespace; 0 when it is not visible here.
    pub process: u32,
    /// Its effective user.
    pub user: u32,
}

/// Who is at the other end.
///
/// # Errors
/// The kernel's reason (none is known for a connected socket).
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: both pointers are valid for writes of what the length says.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            credentials.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed is a valid value of this plain structure, and the kernel filled it.
    let credentials = unsafe { credentials.assume_init() };
    Ok(Peer { process: u32::try_from(credentials.pid).unwrap_or(0), user: credentials.uid })
}

/// The effective user of this process.
#[must_use]
pub fn own_user() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Room for one descriptor's control message, aligned as the kernel wants it.
type ControlBuffer = [u64; 8];

/// Sends bytes with a descriptor. All or an error: messages are shorter than a socket's buffer.
///
/// # Errors
/// The kernel's reason: `EPIPE` when the other end is closed. `WriteZero` when not all bytes were taken.
pub fn send_with(stream: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control: ControlBuffer = [0; 8];
    let message = message(&mut piece, &mut control, size_of::<i32>());
    // SAFETY: the message has a control buffer with room for one header, so that this is its start.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: the header lies in `control`, aligned, and nobody else refers to it.
    let fields = unsafe { &mut *header };
    fields.cmsg_level = libc::SOL_SOCKET;
    fields.cmsg_type = libc::SCM_RIGHTS;
    // SAFETY: a computation on a number.
    fields.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<i32>() as libc::c_uint) } as _;
    // SAFETY: the data follow the header within `control`.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: there is room for one number; it need not be aligned.
    unsafe { data.cast::<i32>().write_unaligned(descriptor.as_raw_fd()) };
    // SAFETY: the message refers to live buffers; the kernel only reads them.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives exactly `bytes.len()` bytes, and the descriptor that came with them, if any. Honours the stream's
/// read timeout.
///
/// # Errors
/// The kernel's reason; `UnexpectedEof` when the other end closed before.
pub fn receive_with(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<Option<OwnedFd>> {
    let (mut at, mut came) = (0, None);
    while at < bytes.len() {
        let rest = &mut bytes[at..];
        let mut piece = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let mut control: ControlBuffer = [0; 8];
        let mut message = message(&mut piece, &mut control, size_of::<i32>());
        // SAFETY: the message refers to live buffers of the lengths it says.
        let count = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(count) {
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => at += count,
        }
        if let Some(descriptor) = descriptor_of(&message) {
            came = Some(descriptor);
        }
    }
    Ok(came)
}

fn message(piece: &mut libc::iovec, control: &mut ControlBuffer, data: usize) -> libc::msghdr {
    // SAFETY: all zeros is a valid msghdr: no name, no pieces, no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: a computation on a number.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(data as libc::c_uint) } as _;
    message
}

/// The descriptor in a message that was received.
fn descriptor_of(message: &libc::msghdr) -> Option<OwnedFd> {
    // SAFETY: the kernel has set the control buffer's length to what it wrote there.
    let header = unsafe { libc::CMSG_FIRSTHDR(std::ptr::from_ref(message)) };
    if header.is_null() {
        return None;
    }
    // SAFETY: a non-null header lies in the live control buffer, aligned.
    let fields = unsafe { &*header };
    // SAFETY: a computation on a number.
    let wanted = unsafe { libc::CMSG_LEN(size_of::<i32>() as libc::c_uint) };
    let is_descriptor = fields.cmsg_level == libc::SOL_SOCKET && fields.cmsg_type == libc::SCM_RIGHTS;
    if !is_descriptor || fields.cmsg_len < wanted as _ {
        return None;
    }
    // SAFETY: the data follow the header within the control buffer.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: the length was checked to hold one number.
    let number = unsafe { data.cast::<i32>().read_unaligned() };
    // SAFETY: the kernel just made this descriptor for this process.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_listening_socket_has_its_mode_without_anybody_changing_it_later() {
        use crate::seccomp::{CallRule, Filter, SystemCall};
        use std::os::unix::fs::MetadataExt;
        let path = std::env::temp_dir().join(format!("unisono-test-{}", std::process::id()));
        let at = path.clone();
        let made = std::thread::spawn(move || {
            let by_path = [
                CallRule(SystemCall::FCHMODAT, &[]),
                #[cfg(target_arch = "x86_64")]
                CallRule(SystemCall::CHMOD, &[]),
            ];
            Filter::refusing(&by_path, libc::EXDEV).install()?;
            listen(&at, 0o600)
        });
        match made.join().expect("it does not panic") {
            Ok(_listener) => {
                let mode = std::fs::metadata(&path).expect("it is there").mode();
                UnixStream::connect(&path).expect("it listens");
                std::fs::remove_file(&path).expect("it is ours");
                assert_eq!(mode & 0o777, 0o600);
            }
            Err(error) => eprintln!("skipped: no filters here: {error}"),
        }
    }

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let peer = peer(&one).expect("connected");
        assert_eq!((peer.process, peer.user), (std::process::id(), own_user()));
    }

    #[test]
    fn a_descriptor_that_was_sent_leads_to_the_same_file() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (mut far, near) = UnixStream::pair().expect("a pair");
        send_with(&one, b"hello", near.as_fd()).expect("room for five bytes");
        drop(near);
        let mut bytes = [0; 5];
        let came = receive_with(&other, &mut bytes).expect("it was sent").expect("with a descriptor");
        assert_eq!(&bytes, b"hello");
        UnixStream::from(came).write_all(b"x").expect("the far end is open");
        assert_eq!(far.read(&mut [0; 1]).expect("a byte"), 1);
    }

    #[test]
    fn bytes_without_a_descriptor_bring_none_and_a_closed_end_is_told() {
        let (mut one, other) = UnixStream::pair().expect("a pair");
        one.write_all(b"ab").expect("room");
        assert!(receive_with(&other, &mut [0; 2]).expect("two bytes").is_none());
        drop(one);
        let closed = receive_with(&other, &mut [0; 1]).expect_err("closed");
        assert_eq!(closed.kind(), io::ErrorKind::UnexpectedEof);
    }
}
