//! The connection between the guard and the worker. Requests are numbered, and a reply has its request's
//! number.
//!
//! A worker that was stopped (SIGSTOP) answers when it is continued. By then the guard may have given up and
//! sent another request. So the guard accepts only the reply to its last request, and drops replies to
//! earlier ones.
//!
//! Each message is one JSON object a line. If the time limit expires in the middle of a line, the received
//! part or the unsent rest is kept here, and the line is completed later. Cost: one or two system calls for
//! each message.

use super::control::{MAX_LINE_BYTES, QueueReply, QueueRequest};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use unisono_linux::{poll, socket};

#[derive(Serialize, Deserialize)]
struct Numbered<T> {
    number: u64,
    what: T,
}

#[derive(Debug)]
pub(super) struct ControlChannel {
    stream: UnixStream,
    /// Received bytes of messages that were not parsed yet.
    received: Vec<u8>,
    /// The number of received bytes that are known to have no end of a line.
    searched: usize,
    /// The rest of a message that the other end did not take in time.
    unsent: Vec<u8>,
    /// The number of the last request; 0 before the first one.
    number: u64,
}

impl ControlChannel {
    /// Returns the end that answers requests. Its writes wait without a time limit.
    pub(super) fn new_server(stream: UnixStream) -> Self {
        Self { stream, received: Vec::new(), searched: 0, unsent: Vec::new(), number: 0 }
    }

    /// Returns the end that sends requests. Its writes wait at most `timeout` for the other end; a `timeout`
    /// of zero is an error.
    pub(super) fn new_client(stream: UnixStream, timeout: Duration) -> io::Result<Self> {
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self::new_server(stream))
    }

    /// Sends a request, and waits for its reply. After the errors `TimedOut` and `WouldBlock` the other end
    /// may still execute the request.
    pub(super) fn request(&mut self, question: &QueueRequest, timeout: Duration) -> io::Result<QueueReply> {
        self.request_in_stages(question, timeout, || {})
    }

    /// Does the same as [`Self::request`], with a time limit for each stage of the work. Calls `stage_ended`
    /// after each.
    pub(super) fn request_in_stages(
        &mut self,
        question: &QueueRequest,
        timeout: Duration,
        mut stage_ended: impl FnMut(),
    ) -> io::Result<QueueReply> {
        self.send_request(question)?;
        loop {
            match self.last_reply(Some(timeout))? {
                QueueReply::Working => stage_ended(),
                reply => return Ok(reply),
            }
        }
    }

    /// Sends a request, and does not wait for its reply.
    pub(super) fn send_request(&mut self, question: &QueueRequest) -> io::Result<()> {
        self.number += 1;
        self.send(question)
    }

    /// Waits for the next message about the last request. Before the first request, waits for the message
    /// that the other end sends unasked.
    pub(super) fn last_reply(&mut self, timeout: Option<Duration>) -> io::Result<QueueReply> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            while let Some(Numbered { number, what }) = self.receive()? {
                if number == self.number {
                    return Ok(what);
                }
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            poll::readable([self.stream.as_fd()], left)?;
        }
    }

    /// Waits for the next request. Fails if the other end is closed.
    pub(super) fn next_request(&mut self) -> io::Result<QueueRequest> {
        loop {
            if let Some(Numbered { number, what }) = self.receive()? {
                self.number = number;
                return Ok(what);
            }
            poll::readable([self.stream.as_fd()], None)?;
        }
    }

    pub(super) fn send_reply(&mut self, answer: &QueueReply) -> io::Result<()> {
        self.send(answer)
    }

    fn send(&mut self, what: &impl Serialize) -> io::Result<()> {
        // first the rest of an earlier message; this fails if the other end never reads, so memory does not
        // grow
        self.flush()?;
        serde_json::to_writer(&mut self.unsent, &Numbered { number: self.number, what })?;
        self.unsent.push(b'\n');
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(said) => _ = self.unsent.drain(..said),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<T>> {
        let mut piece = [0; 4096];
        loop {
            // a policy of thousands of classes comes in hundreds of pieces
            let unsearched = &self.received[self.searched..];
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let end = std::mem::take(&mut self.searched) + end;
                let message = serde_json::from_slice(&self.received[..end]).map_err(io::Error::other);
                self.received.drain(..=end);
                return message.map(Some);
            }
            self.searched = self.received.len();
            if self.received.len() as u64 > MAX_LINE_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            match socket::receive_now(&self.stream, &mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.received.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

unisono_linux::as_fd!(ControlChannel.stream);

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    fn pair() -> (ControlChannel, ControlChannel) {
        let (near, far) = UnixStream::pair().expect("descriptors are left");
        (ControlChannel::new_client(near, SHORT).expect("a time"), ControlChannel::new_server(far))
    }

    fn refused(why: &str) -> QueueReply {
        QueueReply::Refused { why: why.to_owned() }
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_that_to_the_next_question() {
        let (mut guard, mut worker) = pair();
        worker.send_reply(&QueueReply::Done).expect("room");
        assert_eq!(guard.last_reply(None).expect("it came"), QueueReply::Done, "what it says by itself");
        let policy = |text: &str| QueueRequest::Apply { policy: text.to_owned() };
        for text in ["one", "two"] {
            guard.request(&policy(text), SHORT).expect_err("nobody answers");
        }
        guard.send_request(&policy("three")).expect("room");
        for text in ["one", "two", "three"] {
            assert_eq!(worker.next_request().expect("it is there"), policy(text));
            worker.send_reply(&refused(text)).expect("room");
        }
        assert_eq!(guard.last_reply(Some(LONG)).expect("it came"), refused("three"));
    }

    #[test]
    fn stages_of_the_last_request_are_told_apart_from_those_of_an_earlier_one() {
        let (mut guard, mut worker) = pair();
        let policy = |text: &str| QueueRequest::Apply { policy: text.to_owned() };
        guard.request(&policy("one"), SHORT).expect_err("nobody answers");
        let serving = thread::spawn(move || {
            for stages in [1, 3] {
                worker.next_request().expect("it is there");
                for _ in 0..stages {
                    worker.send_reply(&QueueReply::Working).expect("room");
                }
                worker.send_reply(&QueueReply::Done).expect("room");
            }
        });
        let mut stages = 0;
        let reply = guard.request_in_stages(&policy("two"), LONG, || stages += 1).expect("it came");
        assert_eq!((reply, stages), (QueueReply::Done, 3));
        serving.join().expect("no panic");
    }

    #[test]
    fn a_message_that_came_in_part_is_heard_when_the_rest_has_come() {
        let (mut guard, mut worker) = pair();
        // longer than the buffer of a socket
        let long = QueueRequest::Apply { policy: "x".repeat(1 << 20) };
        let gave_up = guard.request(&long, SHORT).expect_err("nobody listens").kind();
        assert!(matches!(gave_up, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{gave_up}");
        let listener = thread::spawn(move || {
            let mut received = Vec::new();
            while received.len() < 2 {
                received.push(worker.next_request().expect("it is there"));
            }
            worker.send_reply(&QueueReply::Done).expect("room");
            (received, worker)
        });
        while guard.request(&QueueRequest::Live, LONG).is_err() {}
        let (received, worker) = listener.join().expect("it does not panic");
        assert!(received == [long, QueueRequest::Live]);
        drop(worker);
        guard.request(&QueueRequest::Live, LONG).expect_err("the other end is gone");
    }
}
