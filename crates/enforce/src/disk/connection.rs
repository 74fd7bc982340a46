//! One connection of a client: a thread that reads requests, and a thread that writes replies.
//!
//! A connection has at most [`MAX_REQUESTS`] requests and [`MAX_REQUEST`] bytes in flight. A request is in
//! flight until its reply has been written to the socket. At either bound, the connection reads no further
//! requests. So a client that does not read its replies delays only itself: the threads at the disk never
//! wait for a socket.

use super::backing::Transfer;
use super::handshake::{Exports, negotiate};
use super::nbd::{DiskCommand, MAX_REQUEST, NbdRequest, REQUEST_LENGTH, reply_head};
use super::queue::{DiskReply, OpenClass, RequestQueue};
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The most requests of a connection in flight. By default nbdcopy has 64, QEMU 16.
const MAX_REQUESTS: u32 = 64;
/// The time limit of the whole handshake, so that a silent client does not keep another one out.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const READ_BUFFER: usize = 64 << 10;

/// Serves a client until it disconnects or the stream is shut down.
pub(super) fn serve(
    stream: &UnixStream,
    exports: &Exports,
    queue: &RequestQueue,
    figures: &dyn Fn() -> Vec<u8>,
) -> io::Result<()> {
    let mut greeted = TimedStream { stream, until: Instant::now() + HANDSHAKE_TIMEOUT };
    let Some(chosen) = negotiate(&mut greeted, exports, figures)? else { return Ok(()) };
    let name = exports.exports.iter().find(|export| export.class == chosen).map(|export| &export.name);
    // a change of the policy may have taken the class away since the exports were listed
    let Some(class) = &name.and_then(|name| queue.open(name)) else { return Ok(()) };
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    let (replies, received) = channel();
    let window = &RequestWindow::default();
    thread::scope(|scope| {
        let writer = thread::Builder::new().name("disk-replies".to_owned());
        writer.spawn_scoped(scope, move || write_replies(stream, received, window))?;
        // the writer ends when the last request has been answered
        let ended = read_requests(stream, (class, exports), window, &replies);
        drop(replies);
        ended
    })
}

fn read_requests(
    stream: &UnixStream,
    (class, exports): (&OpenClass<'_>, &Exports),
    window: &RequestWindow,
    replies: &Sender<DiskReply>,
) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(READ_BUFFER, stream);
    loop {
        let mut head = [0; REQUEST_LENGTH];
        match reader.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            outcome => outcome?,
        }
        let request = NbdRequest::parse(&head).ok_or_else(|| nonsense("no request"))?;
        let payload = request.payload();
        if payload > MAX_REQUEST {
            return Err(nonsense("a write that is too long"));
        }
        let command = request.check(exports.facts);
        let held = match command {
            Ok(DiskCommand::Read | DiskCommand::Write(_)) => request.length,
            _ => 0,
        };
        if !window.enter(held) {
            return Ok(());
        }
        let mut data = vec![0; payload as usize];
        reader.read_exact(&mut data)?;
        let cookie = request.cookie;
        match command {
            Err(error) => {
                // cannot fail, because the writer receives until this thread's sender is dropped
                let _ = replies.send(DiskReply { cookie, result: Err(error), held });
            }
            Ok(command) => match Transfer::new(command, request.offset, request.length, data) {
                Some(transfer) => class.submit(cookie, transfer, replies),
                None => return Ok(()),
            },
        }
    }
}

/// Writes replies until the last request is answered. After a write has failed, drops the remaining replies
/// and closes the stream, so that the thread that reads ends, too.
fn write_replies(mut stream: &UnixStream, received: Receiver<DiskReply>, window: &RequestWindow) {
    let mut is_open = true;
    for DiskReply { cookie, result, held } in received {
        if is_open {
            let written = stream
                .write_all(&reply_head(cookie, result.as_ref().err().copied()))
                .and_then(|()| stream.write_all(result.as_deref().unwrap_or_default()));
            if written.is_err() {
                is_open = false;
                window.close();
                let _ = stream.shutdown(Shutdown::Both); // it may be closed already
            }
        }
        window.leave(held);
    }
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Counts the requests of a connection that are in flight.
#[derive(Default)]
struct RequestWindow {
    held: Mutex<HeldRequests>,
    left: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct HeldRequests {
    requests: u32,
    bytes: u64,
    is_closed: bool,
}

impl HeldRequests {
    /// Returns whether one more request may be in flight. A request that is alone always may.
    fn has_room(self, bytes: u32) -> bool {
        self.requests == 0
            || (self.requests < MAX_REQUESTS && self.bytes + u64::from(bytes) <= u64::from(MAX_REQUEST))
    }
}

impl RequestWindow {
    fn held(&self) -> MutexGuard<'_, HeldRequests> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for a request. Returns false if the replies can no longer be written.
    fn enter(&self, bytes: u32) -> bool {
        let waits = |held: &mut HeldRequests| !held.is_closed && !held.has_room(bytes);
        let mut held = self.left.wait_while(self.held(), waits).unwrap_or_else(PoisonError::into_inner);
        if held.is_closed {
            return false;
        }
        held.requests += 1;
        held.bytes += u64::from(bytes);
        true
    }

    fn leave(&self, bytes: u32) {
        let mut held = self.held();
        held.requests -= 1;
        held.bytes -= u64::from(bytes);
        drop(held);
        self.left.notify_one();
    }

    fn close(&self) {
        self.held().is_closed = true;
        self.left.notify_one();
    }
}

/// A stream with one deadline for all its reads and writes; after it they fail.
struct TimedStream<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl TimedStream<'_> {
    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(rest)) }
    }
}

impl Read for TimedStream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        self.stream.read(bytes)
    }
}

impl Write for TimedStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.rest()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_lets_so_many_requests_and_bytes_in_and_always_the_first() {
        let window = RequestWindow::default();
        assert!(window.enter(MAX_REQUEST));
        assert!(!window.held().has_room(1) && window.held().has_room(0));
        window.leave(MAX_REQUEST);
        assert!((0..MAX_REQUESTS).all(|_| window.enter(0)));
        assert!(!window.held().has_room(0));
        thread::scope(|scope| {
            let next = scope.spawn(|| window.enter(1));
            window.leave(0);
            assert!(next.join().expect("no panic"));
            let never = scope.spawn(|| window.enter(1));
            window.close();
            assert!(!never.join().expect("no panic"));
        });
        let held = HeldRequests { requests: MAX_REQUESTS, bytes: 1, is_closed: true };
        assert_eq!(*window.held(), held);
    }
}
