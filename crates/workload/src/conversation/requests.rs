//! A client's requests: one after the other, each as soon as the answer to the last has arrived.

use super::{Conversation, ConversationScene, NextMessage};
use std::io;
use unisono_linux::clock;
use unisono_measure::Histogram;

/// The measurements of one client.
pub struct AnsweredRequests {
    /// Times from a request to its answer. A client without any answer counts with its waiting time;
    /// otherwise a server that serves some clients and starves the others would look fast.
    pub times: Histogram,
    pub answered: u64,
}

/// Sends requests until the time is over or the server has gone. Each answer has `bytes` bytes.
///
/// # Errors
/// The communication breaks, or an answer has another length.
pub fn request_until(
    scene: &ConversationScene,
    mut server: Box<dyn Conversation>,
    request: &[u8],
    bytes: usize,
) -> io::Result<AnsweredRequests> {
    let mut asked = AnsweredRequests { times: Histogram::new(), answered: 0 };
    let mut answer = Vec::new();
    while clock::now() < scene.until {
        let sent = clock::now();
        server.send(request)?;
        if server.receive(&mut answer, scene.until)? != NextMessage::Message {
            if asked.times.is_empty() {
                asked.times.record((clock::now() - sent).into());
            }
            break;
        }
        if answer.len() != bytes {
            return Err(io::Error::other(format!("{} of {bytes} bytes came", answer.len())));
        }
        if sent >= scene.from {
            asked.times.record((clock::now() - sent).into());
            asked.answered += 1;
        }
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::ConversationCarrier;
    use crate::conversation::tests::scene;
    use unisono_linux::clock::Instant;

    /// Answers this many requests, and none after them.
    struct Answers(u64);

    impl Conversation for Answers {
        fn send(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn receive(&mut self, message: &mut Vec<u8>, _: Instant) -> io::Result<NextMessage> {
            message.clear();
            let Some(left) = self.0.checked_sub(1) else { return Ok(NextMessage::Nothing) };
            self.0 = left;
            Ok(NextMessage::Message)
        }
    }

    #[test]
    fn a_client_without_any_answer_counts_with_the_time_that_it_has_waited() {
        let mut scene = scene(ConversationCarrier::Reply, 0);
        (scene.from, scene.until) = (Instant::ZERO, Instant::NEVER);
        for (answers, times) in [(0, 1), (1, 1), (3, 3)] {
            let asked = request_until(&scene, Box::new(Answers(answers)), b"", 0).expect("asked");
            assert_eq!((asked.answered, asked.times.len()), (answers, times));
        }
    }
}
