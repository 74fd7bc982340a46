//! Connections to the guard's control socket. The guard never waits for a client to send, so a silent client
//! delays no other one.
//!
//! A client has [`REQUEST_TIMEOUT`] for each piece of its request: a long policy comes in many pieces. Beyond
//! [`MAX_CONNECTIONS`] connections the oldest one is dropped. Cost: one system call for each connection
//! whenever any client has sent bytes.

use super::control::{self, QueueRequest};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};
use unisono_linux::{local_socket, socket};

/// The time limit for a client to send the next piece of its request, and again to take the reply. `unisono
/// queue` sends at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The most connections at a time. Each costs a descriptor; a process has 1,024 by default, and the queue
/// needs some dozens.
const MAX_CONNECTIONS: usize = 512;

#[derive(Debug)]
pub(super) struct ControlConnections {
    listener: UnixListener,
    /// The open connections, the oldest first.
    all: Vec<ControlConnection>,
}

#[derive(Debug)]
struct ControlConnection {
    stream: UnixStream,
    /// The part of the request that was received so far.
    received: Vec<u8>,
    until: Instant,
}

impl ControlConnections {
    /// Listens at a path. Only root may connect.
    pub(super) fn listen_at(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = local_socket::listen(path, 0o600)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, all: Vec::new() })
    }

    /// Returns the descriptors that become readable when a client connects or sends.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.listener.as_fd()].into_iter().chain(self.all.iter().map(|connection| connection.stream.as_fd()))
    }

    /// Returns the requests that have arrived completely, each with the connection for its reply. Never
    /// waits.
    pub(super) fn requests(&mut self, now: Instant) -> Vec<(UnixStream, QueueRequest)> {
        // at most as many as the kernel's backlog holds, so that a flood of connections cannot keep this loop
        // running
        for _ in 0..local_socket::BACKLOG {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if self.all.len() == MAX_CONNECTIONS {
                self.all.remove(0);
            }
            self.all.push(ControlConnection { stream, received: Vec::new(), until: now + REQUEST_TIMEOUT });
        }
        let mut asked = Vec::new();
        for mut connection in std::mem::take(&mut self.all) {
            let received = connection.received.len();
            let request = connection.listen();
            if connection.received.len() > received {
                connection.until = now + REQUEST_TIMEOUT;
            }
            match request {
                ReceivedRequest::Request(question) => {
                    // a client that does not read its reply must not delay others for long
                    if connection.stream.set_write_timeout(Some(REQUEST_TIMEOUT)).is_ok() {
                        asked.push((connection.stream, question));
                    }
                }
                ReceivedRequest::Incomplete if now < connection.until => self.all.push(connection),
                ReceivedRequest::Incomplete | ReceivedRequest::Invalid => {}
            }
        }
        asked
    }
}

enum ReceivedRequest {
    /// The request is not complete yet.
    Incomplete,
    Request(QueueRequest),
    /// The bytes are no request, or the client has disconnected.
    Invalid,
}

impl ControlConnection {
    fn listen(&mut self) -> ReceivedRequest {
        let mut piece = [0; 4096];
        loop {
            match socket::receive_now(&self.stream, &mut piece) {
                Ok(0) => return ReceivedRequest::Invalid,
                Ok(length) => self.received.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return ReceivedRequest::Incomplete;
                }
                Err(_) => return ReceivedRequest::Invalid,
            }
            if let Some(question) = self.received.strip_suffix(b"\n") {
                return serde_json::from_slice(question)
                    .map_or(ReceivedRequest::Invalid, ReceivedRequest::Request);
            }
            if self.received.len() as u64 > control::MAX_LINE_BYTES {
                return ReceivedRequest::Invalid;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::MetadataExt;
    use unisono_linux::resource_limit;

    fn ask(mut stream: &UnixStream) {
        control::send(stream, &QueueRequest::Live).expect("room");
        stream.flush().expect("a stream");
    }

    #[test]
    fn who_says_nothing_keeps_nobody_waiting_and_has_to_go() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("questions");
        // both ends of each connection are in this process; many hosts allow 1,024 descriptors by default
        let most = resource_limit::raise_open_files(2_000).expect("a higher limit");
        assert!(most >= 2_000, "at most {most} open files: ulimit -Hn 2000");
        let mut connections = ControlConnections::listen_at(&path).expect("room");
        let start = Instant::now();
        let mut idle = Vec::new();
        for _ in 0..600 {
            idle.push(UnixStream::connect(&path).expect("it listens"));
            if idle.len() % 100 == 0 {
                assert!(connections.requests(start).is_empty());
            }
        }
        let speaks = UnixStream::connect(&path).expect("it listens");
        ask(&speaks);
        assert_eq!(connections.requests(start).len(), 1, "one look is enough");
        assert!(connections.all.len() <= MAX_CONNECTIONS, "the others are few");
        assert!(
            connections.requests(start + REQUEST_TIMEOUT).is_empty() && connections.all.is_empty(),
            "and have gone"
        );
    }

    #[test]
    fn a_question_in_pieces_is_heard_when_it_is_whole_and_nonsense_ends_a_visit() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("questions");
        let mut connections = ControlConnections::listen_at(&path).expect("room");
        let now = Instant::now();
        let mut speaks = UnixStream::connect(&path).expect("it listens");
        speaks.write_all(b"{\"ask\":").expect("room");
        assert!(connections.requests(now).is_empty());
        speaks.write_all(b"\"live\"}\n").expect("room");
        let received = connections.requests(now);
        assert!(matches!(received[..], [(_, QueueRequest::Live)]));
        let mut other = UnixStream::connect(&path).expect("it listens");
        other.write_all(b"hello\n").expect("room");
        assert!(connections.requests(now).is_empty() && connections.all.is_empty());
    }

    #[test]
    fn a_question_may_take_long_if_its_pieces_come_in_time() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("questions");
        let mut connections = ControlConnections::listen_at(&path).expect("room");
        let mut speaks = UnixStream::connect(&path).expect("it listens");
        let mut now = Instant::now();
        for piece in ["{\"ask\":\"app", "ly\",\"poli", "cy\":\"", "x"] {
            speaks.write_all(piece.as_bytes()).expect("room");
            assert!(connections.requests(now).is_empty());
            assert_eq!(connections.all.len(), 1, "after {piece:?}");
            now += REQUEST_TIMEOUT * 3 / 4;
        }
        speaks.write_all(b"\"}\n").expect("room");
        let received = connections.requests(now);
        assert!(matches!(&received[..], [(_, QueueRequest::Apply { policy })] if policy == "x"));
        // a client that says no more has to go
        let mut silent = UnixStream::connect(&path).expect("it listens");
        silent.write_all(b"{").expect("room");
        assert!(connections.requests(now).is_empty() && connections.all.len() == 1);
        assert!(connections.requests(now + REQUEST_TIMEOUT).is_empty() && connections.all.is_empty());
    }

    #[test]
    fn the_socket_is_never_open_to_others() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("questions");
        let _visitors = ControlConnections::listen_at(&path).expect("room");
        assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
    }
}
