//! The connection between the guard and the worker. Questions are numbered, and an answer has its question's
//! number.
//!
//! A worker that was stopped answers when it is continued. By then the guard may have given up and asked
//! another question. So the guard accepts only the answer with the number of its last question, and drops
//! earlier ones.
//!
//! Each message is one JSON object a line. If the time limit ends in the middle of a line, the received or
//! sent part is kept here and completed later. Cost: one or two system calls for each message.

use super::control::{MAX_LINE_BYTES, QueueAnswer, QueueQuestion};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use unisono_linux::{poll, socket};

#[derive(Serialize, Deserialize)]
struct Numbered<T> {
    number: u64,
    what: T,
}

#[derive(Debug)]
pub(super) struct Dialogue {
    stream: UnixStream,
    /// Received bytes that were not taken yet.
    heard: Vec<u8>,
    /// The rest of a message that the other end did not take in time.
    unsaid: Vec<u8>,
    /// The number of the last question; 0 before the first one.
    number: u64,
}

impl Dialogue {
    /// The answering end. Its writes wait without a time limit.
    pub(super) fn that_answers(stream: UnixStream) -> Self {
        Self { stream, heard: Vec::new(), unsaid: Vec::new(), number: 0 }
    }

    /// The asking end. Its writes wait at most this long for the other end; zero is refused.
    pub(super) fn that_asks(stream: UnixStream, patience: Duration) -> io::Result<Self> {
        stream.set_write_timeout(Some(patience))?;
        Ok(Self::that_answers(stream))
    }

    /// Asks, and waits for the answer. After `TimedOut` or `WouldBlock` the other end may still execute the
    /// request.
    pub(super) fn ask(&mut self, question: &QueueQuestion, patience: Duration) -> io::Result<QueueAnswer> {
        self.tell(question)?;
        self.answer_to_last(Some(patience))
    }

    /// Asks without waiting for the answer.
    pub(super) fn tell(&mut self, question: &QueueQuestion) -> io::Result<()> {
        self.number += 1;
        self.say(question)
    }

    /// Waits for the answer to the last question. Before the first question it waits for the other end's
    /// unsolicited message.
    pub(super) fn answer_to_last(&mut self, patience: Option<Duration>) -> io::Result<QueueAnswer> {
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            while let Some(Numbered { number, what }) = self.hear()? {
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

    /// The next question, if it has arrived completely. Never waits.
    pub(super) fn question(&mut self) -> io::Result<Option<QueueQuestion>> {
        let Some(Numbered { number, what }) = self.hear()? else { return Ok(None) };
        self.number = number;
        Ok(Some(what))
    }

    pub(super) fn answer(&mut self, answer: &QueueAnswer) -> io::Result<()> {
        self.say(answer)
    }

    fn say(&mut self, what: &impl Serialize) -> io::Result<()> {
        // the rest of an earlier message first, so that memory does not grow if the other end never reads
        self.say_rest()?;
        serde_json::to_writer(&mut self.unsaid, &Numbered { number: self.number, what })?;
        self.unsaid.push(b'\n');
        self.say_rest()
    }

    fn say_rest(&mut self) -> io::Result<()> {
        while !self.unsaid.is_empty() {
            match self.stream.write(&self.unsaid) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(said) => _ = self.unsaid.drain(..said),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn hear<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<T>> {
        let mut piece = [0; 4096];
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let message = serde_json::from_slice(&self.heard[..end]).map_err(io::Error::other);
                self.heard.drain(..=end);
                return message.map(Some);
            }
            if self.heard.len() as u64 > MAX_LINE_BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            match socket::receive_now(&self.stream, &mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.heard.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Dialogue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    fn pair() -> (Dialogue, Dialogue) {
        let (near, far) = UnixStream::pair().expect("descriptors are left");
        (Dialogue::that_asks(near, SHORT).expect("a time"), Dialogue::that_answers(far))
    }

    fn refused(why: &str) -> QueueAnswer {
        QueueAnswer::Refused { why: why.to_owned() }
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_that_to_the_next_question() {
        let (mut guard, mut worker) = pair();
        worker.answer(&QueueAnswer::Done).expect("room");
        assert_eq!(guard.answer_to_last(None).expect("it came"), QueueAnswer::Done, "what it says by itself");
        let policy = |text: &str| QueueQuestion::Apply { policy: text.to_owned() };
        for text in ["one", "two"] {
            guard.ask(&policy(text), SHORT).expect_err("nobody answers");
        }
        guard.tell(&policy("three")).expect("room");
        for text in ["one", "two", "three"] {
            assert_eq!(worker.question().expect("it is there"), Some(policy(text)));
            worker.answer(&refused(text)).expect("room");
        }
        assert_eq!(worker.question().expect("it is there"), None);
        assert_eq!(guard.answer_to_last(Some(LONG)).expect("it came"), refused("three"));
    }

    #[test]
    fn a_message_that_came_in_part_is_heard_when_the_rest_has_come() {
        let (mut guard, mut worker) = pair();
        // more than a socket buffers
        let long = QueueQuestion::Apply { policy: "x".repeat(1 << 20) };
        let gave_up = guard.ask(&long, SHORT).expect_err("nobody listens").kind();
        assert!(matches!(gave_up, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{gave_up}");
        let listener = thread::spawn(move || {
            let mut heard = Vec::new();
            while heard.len() < 2 {
                heard.extend(worker.question().expect("it is there"));
                thread::yield_now();
            }
            worker.answer(&QueueAnswer::Done).expect("room");
            (heard, worker)
        });
        while guard.ask(&QueueQuestion::Live, LONG).is_err() {}
        let (heard, worker) = listener.join().expect("it does not panic");
        assert!(heard == [long, QueueQuestion::Live]);
        drop(worker);
        guard.ask(&QueueQuestion::Live, LONG).expect_err("the other end is gone");
    }
}
