//! The interface between an application and the other end: send whole messages, and receive them in order.

use std::io;
use unisono_linux::clock::Nanos;

/// The result of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextMessage {
    Message,
    /// No message arrived in time.
    Nothing,
    /// The other end has gone.
    Gone,
}

/// The answer to one request, sent from another thread.
pub trait ReplySender: Send {
    /// # Errors
    /// The communication is broken.
    fn send(&mut self, answer: &[u8]) -> io::Result<()>;
}

/// One end of a conversation.
pub trait Conversation: Send {
    /// Returns an object with which another thread answers the request received last, while this end receives
    /// the next one. `None` if the conversation has one request at a time.
    fn reply_sender(&mut self) -> Option<Box<dyn ReplySender>> {
        None
    }

    /// Sends one message. A carrier without reliability may lose it.
    ///
    /// # Errors
    /// The communication is broken.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Sends a message that is due when the monotonic clock shows `deadline`. A carrier without deadlines
    /// ignores it.
    ///
    /// # Errors
    /// The communication is broken.
    fn send_by(&mut self, message: &[u8], deadline: Nanos) -> io::Result<()> {
        let _unknown_to_the_carrier = deadline;
        self.send(message)
    }

    /// Stores the next message in `message`; waits for it until the monotonic clock shows `until`.
    ///
    /// # Errors
    /// The communication is broken.
    fn receive(&mut self, message: &mut Vec<u8>, until: Nanos) -> io::Result<NextMessage>;
}
