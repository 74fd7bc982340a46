//! The kernel's state of a TCP connection: `TCP_INFO`, tcp(7).
//!
//! The idea: a peer's *kernel* acknowledges received data whether or not its process runs. So silence after a
//! send means that the machine or the path to it is gone, and a process that merely computes is never
//! mistaken for a dead one. Cost: one system call. When not to use: to learn whether the process read the
//! data; only the process can tell. Reference: tcp(7), include/uapi/linux/tcp.h.

use crate::socket::get_option_and_length;
use rustix::net::sockopt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// The bytes of `struct tcp_info` that are read: newer kernels have more, older kernels fewer.
const LENGTH: usize = 160;
/// The offset of the number of retransmissions, a byte.
const RETRANSMITS: usize = 2;
/// The offset of the number of probes, a byte.
const PROBES: usize = 3;

/// The offset of a word in `struct tcp_info`.
#[derive(Clone, Copy)]
enum Field {
    Unacknowledged = 24,
    LastSent = 44,
    LastData = 52,
    LastAcknowledgement = 56,
    /// A running mean in microseconds, which begins with the handshake.
    RoundTrip = 68,
    /// Bytes that were written and never sent (Linux 4.6).
    Unsent = 144,
    /// Received segments with data (Linux 4.6).
    DataSegmentsIn = 152,
}

/// The part of `struct tcp_info` that this kernel has.
struct Info {
    bytes: [u8; LENGTH],
    length: usize,
}

impl Info {
    /// Returns a field, or `None` if this kernel's structure ends before it.
    fn word(&self, at: Field) -> Option<u32> {
        let at = at as usize;
        let word = self.bytes[..self.length].get(at..at + 4)?;
        Some(u32::from_ne_bytes(word.try_into().ok()?))
    }

    /// Returns a field that every kernel has. Fails with `EOPNOTSUPP` on a kernel that does not.
    fn required(&self, at: Field) -> io::Result<u32> {
        self.word(at).ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

/// The state of a connection's two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Segments sent and not yet acknowledged.
    pub unacknowledged: u32,
    /// Bytes that the window or the path has held back; `None` before Linux 4.6.
    pub unsent: Option<u32>,
    /// Probes of a closed window (or of an idle connection) that were not answered yet.
    pub probes: u32,
    /// Attempts to send the first unacknowledged segment again, including attempts that did not leave this
    /// host.
    pub retransmits: u32,
    /// The time since data was last sent, or sent again.
    pub last_sent: Duration,
    /// The time since the last acknowledgment or data from the peer's kernel.
    pub last_received: Duration,
}

/// Returns the number of segments with data that arrived on a connection, including segments out of order and
/// duplicates: the traffic that the path carried, whether or not it could be delivered yet. The number wraps
/// around. Fails with `EBADF`, `ENOTSOCK`, `EOPNOTSUPP`: not a TCP socket; `EOPNOTSUPP` also before Linux
/// 4.6.
pub fn segments_received(socket: impl AsFd) -> io::Result<u32> {
    info(&socket)?.required(Field::DataSegmentsIn)
}

/// Returns the smoothed round-trip time to the peer's kernel; right after connecting, the round-trip time of
/// the handshake. Fails as [`segments_received`] does.
pub fn round_trip(socket: impl AsFd) -> io::Result<Duration> {
    Ok(Duration::from_micros(info(&socket)?.required(Field::RoundTrip)?.into()))
}

fn info(socket: &impl AsFd) -> io::Result<Info> {
    // SAFETY: any bytes are an array of bytes.
    let read = unsafe { get_option_and_length(socket, libc::IPPROTO_TCP, libc::TCP_INFO, [0; LENGTH]) };
    read.map(|(bytes, length)| Info { bytes, length })
}

/// Lets the kernel end an idle connection whose peer's kernel has not answered for about `within`: it sends
/// the first of three probes after two fifths of that time, and the other two a fifth apart, but never more
/// than one a second. Fails if the socket is not a TCP socket.
pub fn keep_alive(socket: impl AsFd, within: Duration) -> io::Result<()> {
    let fifth = (within / 5).max(Duration::from_secs(1));
    sockopt::set_tcp_keepidle(&socket, (2 * fifth).min(within.max(fifth)))?;
    sockopt::set_tcp_keepintvl(&socket, fifth)?;
    sockopt::set_tcp_keepcnt(&socket, 3)?;
    Ok(sockopt::set_socket_keepalive(&socket, true)?)
}

pub fn silence(socket: impl AsFd) -> io::Result<Silence> {
    let info = info(&socket)?;
    let word = |at: Field| info.required(at);
    let last_received = word(Field::LastAcknowledgement)?.min(word(Field::LastData)?);
    Ok(Silence {
        unacknowledged: word(Field::Unacknowledged)?,
        unsent: info.word(Field::Unsent),
        probes: u32::from(info.bytes[PROBES]),
        retransmits: u32::from(info.bytes[RETRANSMITS]),
        last_sent: Duration::from_millis(u64::from(word(Field::LastSent)?)),
        last_received: Duration::from_millis(u64::from(last_received)),
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
        // the kernel assumes a second if it has no measurement
        assert!(took > Duration::ZERO && took < Duration::from_secs(1), "{took:?}");
    }

    #[test]
    fn a_field_that_the_kernel_does_not_have_is_not_read_as_zero() {
        let older = Info { bytes: [0; LENGTH], length: Field::Unsent as usize };
        assert_eq!((older.word(Field::Unsent), older.word(Field::RoundTrip)), (None, Some(0)));
        let error = older.required(Field::DataSegmentsIn).expect_err("the structure ends before");
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
        let cut = Info { length: Field::Unsent as usize + 2, ..older };
        assert_eq!(cut.word(Field::Unsent), None, "half of a field");
    }

    #[test]
    fn what_is_not_tcp_is_refused() {
        let file = std::fs::File::open("/dev/null").expect("exists");
        assert!(silence(&file).is_err());
    }
}
