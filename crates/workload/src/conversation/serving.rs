//! Answers requests in the thread that owns the conversation, or each request in a thread of its own.

use super::{Conversation, ConversationScene, NextMessage, Serving};
use std::io;
use std::sync::{Mutex, PoisonError};
use unisono_linux::clock;

/// Sends an answer.
pub type SendAnswer<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// Answers the requests of one conversation until the time is over or the client has gone. `answer` gets the
/// request, and sends the answer.
/// # Errors
/// The communication breaks.
pub fn serve_requests(
    scene: &ConversationScene,
    mut client: Box<dyn Conversation>,
    answer: &(impl Fn(&[u8], SendAnswer<'_>) -> io::Result<()> + Sync),
) -> io::Result<()> {
    let failed = Mutex::new(None);
    let answered = std::thread::scope(|scope| {
        let mut request = Vec::new();
        while clock::now() < scene.until && client.receive(&mut request, scene.until)? == NextMessage::Message
        {
            if scene.serving == Serving::OneThread {
                answer(&request, &mut |bytes| client.send(bytes))?;
            } else if let Some(mut sender) = client.reply_sender() {
                let (request, failed) = (std::mem::take(&mut request), &failed);
                scope.spawn(move || {
                    if let Err(error) = answer(&request, &mut |bytes| sender.send(bytes)) {
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    }
                });
            } else {
                // the client sends no request before it has this answer
                std::thread::scope(|scope| {
                    let answering = scope.spawn(|| answer(&request, &mut |bytes| client.send(bytes)));
                    answering.join().unwrap_or_else(|_| Err(io::Error::other("a request's thread panicked")))
                })?;
            }
        }
        Ok(())
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(answered, Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::tests::scene;
    use crate::conversation::{ConversationCarrier, ReplySender};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;
    use unisono_linux::clock::Instant;

    /// Two requests. The answer to the first leaves once the second request has been received.
    struct TwoRequests {
        left: usize,
        second_came: Sender<()>,
        may_answer: Option<Receiver<()>>,
        answers: Sender<Vec<u8>>,
    }

    struct FirstAnswer(Option<Receiver<()>>, Sender<Vec<u8>>);

    impl ReplySender for FirstAnswer {
        fn send(&mut self, answer: &[u8]) -> io::Result<()> {
            if let Some(second) = self.0.take() {
                second.recv_timeout(Duration::from_secs(60)).map_err(io::Error::other)?;
            }
            self.1.send(answer.to_vec()).map_err(io::Error::other)
        }
    }

    impl Conversation for TwoRequests {
        fn reply_sender(&mut self) -> Option<Box<dyn ReplySender>> {
            Some(Box::new(FirstAnswer(self.may_answer.take(), self.answers.clone())))
        }

        fn send(&mut self, _: &[u8]) -> io::Result<()> {
            Err(io::Error::other("a thread was to answer"))
        }

        fn receive(&mut self, message: &mut Vec<u8>, _: Instant) -> io::Result<NextMessage> {
            if self.left == 0 {
                return Ok(NextMessage::Gone);
            }
            *message = vec![self.left as u8];
            self.left -= 1;
            if self.left == 0 {
                self.second_came.send(()).map_err(io::Error::other)?;
            }
            Ok(NextMessage::Message)
        }
    }

    #[test]
    fn a_thread_answers_one_request_while_the_next_is_received() {
        let ((second_came, may_answer), (answers, answered)) = (channel(), channel());
        let client = TwoRequests { left: 2, second_came, may_answer: Some(may_answer), answers };
        let mut scene = scene(ConversationCarrier::Reply, 0);
        (scene.serving, scene.until) = (Serving::ThreadPerRequest, Instant::NEVER);
        serve_requests(&scene, Box::new(client), &|request: &[u8], send: SendAnswer<'_>| send(request))
            .expect("both are answered");
        let mut answers: Vec<Vec<u8>> = answered.iter().collect();
        answers.sort();
        assert_eq!(answers, [[1], [2]]);
    }

    #[test]
    fn that_a_thread_cannot_answer_is_told() {
        let ((second_came, may_answer), (answers, answered)) = (channel(), channel());
        drop(answered);
        let client = TwoRequests { left: 2, second_came, may_answer: Some(may_answer), answers };
        let mut scene = scene(ConversationCarrier::Reply, 0);
        (scene.serving, scene.until) = (Serving::ThreadPerRequest, Instant::NEVER);
        let served =
            serve_requests(&scene, Box::new(client), &|request: &[u8], send: SendAnswer<'_>| send(request));
        assert!(served.is_err());
    }
}
