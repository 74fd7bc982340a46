//! Connections to the guard's socket for questions. The guard never waits for a connection, so a silent
//! visitor delays no other.
//!
//! A visitor has [`REQUEST_TIMEOUT`] to send its question. With more than [`MAX_VISITORS`] visitors the
//! oldest is dropped. Cost: one system call for each visitor whenever any has sent bytes.

use super::control::{self, QueueQuestion};
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
const MAX_VISITORS: usize = 512;

#[derive(Debug)]
pub(super) struct Visitors {
    listener: UnixListener,
    /// In the order of their arrival.
    all: Vec<Visitor>,
}

#[derive(Debug)]
struct Visitor {
    stream: UnixStream,
    /// The received part of its question.
    said: Vec<u8>,
    until: Instant,
}

impl Visitors {
    /// Listens at a path, for root alone.
    pub(super) fn expect_at(path: &Path) -> io::Result<Self> {
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
        [self.listener.as_fd()].into_iter().chain(self.all.iter().map(|visitor| visitor.stream.as_fd()))
    }

    /// The questions that have arrived completely, each with the connection for its answer. Never waits.
    pub(super) fn questions(&mut self, now: Instant) -> Vec<(UnixStream, QueueQuestion)> {
        // as many as the kernel's backlog, so that a flood of connections ends
        for _ in 0..local_socket::BACKLOG {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if self.all.len() == MAX_VISITORS {
                self.all.remove(0);
            }
            self.all.push(Visitor { stream, said: Vec::new(), until: now + REQUEST_TIMEOUT });
        }
        let mut asked = Vec::new();
        for mut visitor in std::mem::take(&mut self.all) {
            match visitor.listen() {
                HeardQuestion::Question(question) => {
                    // a visitor that does not read its answer must not delay others for long
                    if visitor.stream.set_write_timeout(Some(REQUEST_TIMEOUT)).is_ok() {
                        asked.push((visitor.stream, question));
                    }
                }
                HeardQuestion::Nothing if now < visitor.until => self.all.push(visitor),
                HeardQuestion::Nothing | HeardQuestion::Nonsense => {}
            }
        }
        asked
    }
}

enum HeardQuestion {
    /// No complete question yet.
    Nothing,
    Question(QueueQuestion),
    /// Not a question, or the visitor has gone.
    Nonsense,
}

impl Visitor {
    fn listen(&mut self) -> HeardQuestion {
        let mut piece = [0; 4096];
        loop {
            match socket::receive_now(&self.stream, &mut piece) {
                Ok(0) => return HeardQuestion::Nonsense,
                Ok(length) => self.said.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return HeardQuestion::Nothing,
                Err(_) => return HeardQuestion::Nonsense,
            }
            if let Some(question) = self.said.strip_suffix(b"\n") {
                return serde_json::from_slice(question)
                    .map_or(HeardQuestion::Nonsense, HeardQuestion::Question);
            }
            if self.said.len() as u64 > control::MAX_LINE_BYTES {
                return HeardQuestion::Nonsense;
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
        control::say(stream, &QueueQuestion::Live).expect("room");
        stream.flush().expect("a stream");
    }

    #[test]
    fn who_says_nothing_keeps_nobody_waiting_and_has_to_go() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("questions");
        let mut visitors = Visitors::expect_at(&path).expect("room");
        let start = Instant::now();
        let mut idle = Vec::new();
        for _ in 0..600 {
            idle.push(UnixStream::connect(&path).expect("it listens"));
            if idle.len() % 100 == 0 {
                assert!(visitors.questions(start).is_empty());
            }
        }
        let speaks = UnixStream::connect(&path).expect("it listens");
        ask(&speaks);
        assert_eq!(visitors.questions(start).len(), 1, "one look is enough");
        assert!(visitors.all.len() <= MAX_VISITORS, "the others are few");
        assert!(
            visitors.questions(start + REQUEST_TIMEOUT).is_empty() && visitors.all.is_empty(),
            "and have gone"
        );
    }

    #[test]
    fn a_question_in_pieces_is_heard_when_it_is_whole_and_nonsense_ends_a_visit() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("questions");
        let mut visitors = Visitors::expect_at(&path).expect("room");
        let now = Instant::now();
        let mut speaks = UnixStream::connect(&path).expect("it listens");
        speaks.write_all(b"{\"ask\":").expect("room");
        assert!(visitors.questions(now).is_empty());
        speaks.write_all(b"\"live\"}\n").expect("room");
        let heard = visitors.questions(now);
        assert!(matches!(heard[..], [(_, QueueQuestion::Live)]));
        let mut other = UnixStream::connect(&path).expect("it listens");
        other.write_all(b"hello\n").expect("room");
        assert!(visitors.questions(now).is_empty() && visitors.all.is_empty());
    }

    #[test]
    fn the_socket_is_never_open_to_others() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("questions");
        let _visitors = Visitors::expect_at(&path).expect("room");
        assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
    }
}
