//! What the kernel knows about a TCP connection: `TCP_INFO`, tcp(7).
//!
//! The idea: a peer's *kernel* acknowledges what arrives whether or not its process runs, so that silence
//! after something was sent means that the machine or the way to it is gone, while a process that merely
//! computes is never mistaken for a dead one. Cost: one system call. When not to use: to learn whether the
//! process read what was sent; only it can say. Reference: tcp(7), include/uapi/linux/tcp.h.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The state of a connection's two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Segments sent and not yet acknowledged.
    pub unacknowledged: u32,
    /// Probes of a closed window (or of an idle connection) that were not answered yet.
    pub probes: u32,
    /// Since the peer's kernel was last heard, by an acknowledgement or by data.
    pub heard: Duration,
}

/// Asks the kernel.
///
/// # Errors
/// `EBADF`, `ENOTSOCK`, `EOPNOTSUPP`: not a TCP socket.
pub fn silence(socket: impl AsFd) -> io::Result<Silence> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed and open; the kernel writes at most `length` bytes into `info`,
    // which is that long, and the number written into `length`.
    let status = unsafe {
        libc::getsockopt(
            descriptor,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all bytes are initialized, by `zeroed` or by the kernel, and every field is an integer.
    let info = unsafe { info.assume_init() };
    let heard = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
    Ok(Silence {
        unacknowledged: info.tcpi_unacked,
        probes: u32::from(info.tcpi_probes),
        heard: Duration::from_millis(u64::from(heard)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_peer_that_does_not_read_is_not_silent_because_its_kernel_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (mut far, _) = listener.accept().expect("accepts");
        near.write_all(b"x").expect("sends");
        while silence(&near).expect("a TCP socket").unacknowledged > 0 {
            std::thread::yield_now();
        }
        assert_eq!(silence(&near).expect("a TCP socket").probes, 0);
        far.read_exact(&mut [0]).expect("it was there all the time");
    }

    #[test]
    fn what_is_not_tcp_is_refused() {
        let file = std::fs::File::open("/dev/null").expect("exists");
        assert!(silence(&file).is_err());
    }
}
