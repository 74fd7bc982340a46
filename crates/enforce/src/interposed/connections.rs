//! Connections to the guard's socket for questions. The guard never waits for a connection, so a silent
//! visitor delays no other.
//!
//! A visitor has [`REQUEST_TIMEOUT`] to send its question. With more than [`MAX_CONNECTIONS`] visitors the
//! oldest is dropped. Cost: one system call for each visitor whenever any has sent bytes.

use super::control::{self, QueueRequest};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};
use unisono_linux::{local_socket, socket};

/// The time for a visitor to send its question, and the time to take the answer. `unisono queue` sends at
/// once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The most visitors. Each costs a descriptor; a process has 1,024 by default, and the queue needs some
/// dozens.
const MAX_CONNECTIONS: usize = 512;

#[derive(Debug)]
pub(super) struct ControlConnections {
    listener: UnixListener,
    /// In the order of their arrival.
    all: Vec<ControlConnection>,
}

#[derive(Debug)]
struct ControlConnection {
    stream: UnixStream,
    /// The received part of its question.
    received: Vec<u8>,
    until: Instant,
}

impl ControlConnections {
    /// Listens at a path, for root alone.
    pub(super) fn listen_at(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = local_socket::listen(path, 0o600)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, all: Vec::new() })
    }

    /// Descriptors that become readable when a visitor connects or sends.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.listener.as_fd()].into_iter().chain(self.all.iter().map(|connection| connection.stream.as_fd()))
    }

    /// The questions that have arrived completely, each with the connection for its answer. Never waits.
    pub(super) fn requests(&mut self, now: Instant) -> Vec<(UnixStream, QueueRequest)> {
        // as many as the kernel's backlog, so that a flood of connections ends
        for _ in 0..local_socket::BACKLOG {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if self.all.len() == MAX_CONNECTIONS {
                self.all.remove(0);
            }
            self.all.push(ControlConnection { stream, received: Vec::new(), until: now + REQUEST_TIMEOUT });
        }
        let mut asked = Vec::new();
        for mut connection in std::mem::take(&mut self.all) {
            match connection.listen() {
                ReceivedRequest::Request(question) => {
                    // a visitor that does not read its answer must not delay others for long
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
    /// No complete question yet.
    Incomplete,
    Request(QueueRequest),
    /// Not a question, or the visitor has gone.
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

    fn ask(mut stream: &UnixStream) {
        control::send(stream, &QueueRequest::Live).expect("room");
        stream.flush().expect("a stream");
    }

    #[test]
    fn who_says_nothing_keeps_nobody_waiting_and_has_to_go() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("questions");
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
    fn the_socket_is_never_open_to_others() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("questions");
        let _visitors = ControlConnections::listen_at(&path).expect("room");
        assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
    }
}
