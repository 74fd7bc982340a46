//! What an application may do with the other end: send whole messages, and receive them in order.

use std::io;
use unisono_linux::clock::Nanos;

/// What receiving brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextMessage {
    Message,
    /// The time has passed without a message.
    Nothing,
    /// The other end has gone.
    Gone,
}

/// The answer to one request.
pub trait AnswerApart: Send {
    /// # Errors
    /// The communication is broken.
    fn send(&mut self, answer: &[u8]) -> io::Result<()>;
}

/// One end of a conversation.
pub trait Conversation: Send {
    /// What answers the request that was received last from another thread, while this end receives the next
    /// one. `None`: the conversation has one request at a time.
    fn answer_apart(&mut self) -> Option<Box<dyn AnswerApart>> {
        None
    }

    /// Sends one message. A carrier without reliability may lose it.
    ///
    /// # Errors
    /// The communication is broken.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// The same for a message that is due when the monotonic clock shows `deadline`. A carrier without
    /// deadlines sends it as any other.
    ///
    /// # Errors
    /// The communication is broken.
    fn send_by(&mut self, message: &[u8], deadline: Nanos) -> io::Result<()> {
        let _unknown_to_the_carrier = deadline;
        self.send(message)
    }

    /// Puts the next message into `message`; waits for it until the monotonic clock shows `until`.
    ///
    /// # Errors
    /// The communication is broken.
    fn receive(&mut self, message: &mut Vec<u8>, until: Nanos) -> io::Result<NextMessage>;
}
