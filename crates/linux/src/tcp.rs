//! What the kernel knows about a TCP connection: `TCP_INFO`, tcp(7).
//!
//! The idea: a peer's *kernel* acknowledges what arrives whether or not its process runs, so that silence
//! after something was sent means that the machine or the way to it is gone, while a process that merely
//! computes is never mistaken for a dead one. Cost: one system call. When not to use: to learn whether the
//! process read what was sent; only it can say. Reference: tcp(7), include/uapi/linux/tcp.h.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Bytes of `struct tcp_info`, as much of it as we read: newer kernels have more, older ones less.
const LENGTH: usize = 160;
/// Where the number of probes is, a byte.
const PROBES: usize = 3;

/// Where a word of `struct tcp_info` is.
#[derive(Clone, Copy)]
enum Field {
    Unacknowledged = 24,
    LastData = 52,
    LastAcknowledgement = 56,
    /// A running mean in microseconds, which begins with the handshake.
    RoundTrip = 68,
    /// Segments with data that came (Linux 4.6).
    DataSegmentsIn = 152,
}

struct Info([u8; LENGTH]);

impl Info {
    fn word(&self, at: Field) -> u32 {
        let at = at as usize;
        let mut word = [0; 4];
        word.copy_from_slice(&self.0[at..at + 4]);
        u32::from_ne_bytes(word)
    }
}

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

/// How many segments with data came on a connection, those out of order and those that came twice included:
/// what the way to here carried, whether or not it could be delivered yet. The number wraps around. Fails
/// with `EBADF`, `ENOTSOCK`, `EOPNOTSUPP`: not a TCP socket.
pub fn segments_received(socket: impl AsFd) -> io::Result<u32> {
    Ok(info(&socket)?.word(Field::DataSegmentsIn))
}

/// How long the other end's kernel takes to answer, smoothed; right after connecting that of the handshake.
/// Fails as [`segments_received`] does.
pub fn round_trip(socket: impl AsFd) -> io::Result<Duration> {
    Ok(Duration::from_micros(info(&socket)?.word(Field::RoundTrip).into()))
}

fn info(socket: &impl AsFd) -> io::Result<Info> {
    let mut info = [0_u8; LENGTH];
    let mut length = LENGTH as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and open; the kernel writes at most `length` bytes into `info`,
    // which is that long, and the number written into `length`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status == 0 { Ok(Info(info)) } else { Err(io::Error::last_os_error()) }
}

pub fn silence(socket: impl AsFd) -> io::Result<Silence> {
    let info = info(&socket)?;
    let word = |at: Field| info.word(at);
    let heard = word(Field::LastAcknowledgement).min(word(Field::LastData));
    Ok(Silence {
        unacknowledged: word(Field::Unacknowledged),
        probes: u32::from(info.0[PROBES]),
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
    fn segments_with_data_are_counted_where_they_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        near.set_nodelay(true).expect("a TCP socket");
        let (mut far, _) = listener.accept().expect("accepts");
        assert_eq!(segments_received(&far).expect("a TCP socket"), 0);
        for sent in 1..=3 {
            near.write_all(b"x").expect("sends");
            far.read_exact(&mut [0]).expect("it comes");
            assert_eq!(segments_received(&far).expect("a TCP socket"), sent);
        }
        assert_eq!(
            segments_received(&near).expect("a TCP socket"),
            0,
            "nothing came back but acknowledgements"
        );
    }

    #[test]
    fn a_handshake_has_a_round_trip_and_no_later_packet_is_needed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let took = round_trip(&near).expect("a TCP socket");
        // the kernel takes a second for what it does not know
        assert!(took > Duration::ZERO && took < Duration::from_secs(1), "{took:?}");
    }

    #[test]
    fn what_is_not_tcp_is_refused() {
        let file = std::fs::File::open("/dev/null").expect("exists");
        assert!(silence(&file).is_err());
    }
}
