//! Conversations by the channel's request and reply: one server answers all clients on one topic.
//!
//! A client's message is sent only when the client waits for the answer, because a request is one operation
//! with its answer.

use super::{Conversation, ConversationEnd, ConversationScene, NextMessage, ReplySender, Serving};
use crate::Error;
use crate::retry::retry;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use unisono_events_client::Error as Unanswered;
use unisono_events_client::{
    Advertisement, BrokerAddress, Client, EventDraft, ReceivedEvent, Reception, SubscriptionSpec,
    TopicHandle, WhenFull,
};
use unisono_linux::clock::{self, Instant};

const TOPIC: &str = "service/requests";
/// The key of a client's request for a sign of life from the server; the server's answer is empty.
const HELLO: &str = "hello";
/// Bytes of requests that may wait.
const QUEUE: usize = 4 << 20;

struct ReplyServer {
    client: Client,
    /// The request received last.
    request: Option<ReceivedEvent>,
    /// Answers of other threads leave through a separate client, because this one waits for requests.
    answers: Option<Arc<Mutex<Client>>>,
}

struct ChannelReplySender {
    client: Arc<Mutex<Client>>,
    request: ReceivedEvent,
}

struct ReplyClient {
    client: Client,
    topic: TopicHandle,
    request: Vec<u8>,
}

/// Opens one end through the broker at `address`.
pub(super) fn reply(
    scene: &ConversationScene,
    address: &BrokerAddress,
    end: ConversationEnd,
) -> Result<Box<dyn Conversation>, Error> {
    let failed = |error: unisono_events_client::Error| Error::Exchange(error.to_string());
    let connect = || -> Result<Client, Error> {
        let mut client = retry(scene.timeout, || Client::at(address)).map_err(failed)?;
        client.set_wait(scene.wait);
        Ok(client)
    };
    let mut client = connect()?;
    if end == ConversationEnd::Server {
        let listening = SubscriptionSpec {
            full: WhenFull::BlockSupplier,
            queue_bytes: QUEUE,
            ..SubscriptionSpec::new(TOPIC)
        };
        client.subscribe(&listening).map_err(failed)?;
        let in_threads = scene.serving == Serving::ThreadPerRequest;
        let answers = in_threads.then(connect).transpose()?.map(|client| Arc::new(Mutex::new(client)));
        let mut server = ReplyServer { client, request: None, answers };
        for number in 0..scene.conversations {
            if !server.greet(scene.timeout).map_err(failed)? {
                return Err(Error::Exchange(format!("{number} clients came, and no other one")));
            }
        }
        return Ok(Box::new(server));
    }
    let topic = client.advertise(&Advertisement::new(TOPIC)).map_err(failed)?;
    // a request waits until the server subscribes, and the server gets it exactly once, so the answer may
    // come late on a busy machine, but it comes
    client.request(topic, EventDraft::new(&[]).keyed(HELLO), scene.timeout).map_err(failed)?;
    Ok(Box::new(ReplyClient { client, topic, request: Vec::new() }))
}

impl ReplyServer {
    /// Answers the next client's greeting; returns whether one came.
    fn greet(&mut self, timeout: Duration) -> Result<bool, Unanswered> {
        let until = clock::now() + timeout.into();
        loop {
            let left = until - clock::now();
            match self.client.receive(Some(left.into()))? {
                Some(Reception::Event(event)) if event.key.as_deref() == Some(HELLO) => {
                    return self.client.reply(&event, EventDraft::new(&[]));
                }
                Some(_) => {}
                None => return Ok(false),
            }
        }
    }
}

impl Conversation for ReplyServer {
    fn reply_sender(&mut self) -> Option<Box<dyn ReplySender>> {
        let client = Arc::clone(self.answers.as_ref()?);
        let request = self.request.take()?;
        Some(Box::new(ChannelReplySender { client, request }))
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let Some(request) = self.request.take() else { return Err(io::Error::other("no request to answer")) };
        self.client.reply(&request, EventDraft::new(message)).map(drop).map_err(io::Error::other)
    }

    fn receive(&mut self, message: &mut Vec<u8>, until: Instant) -> io::Result<NextMessage> {
        loop {
            let left = until - clock::now();
            match self.client.receive(Some(left.into())).map_err(io::Error::other)? {
                Some(Reception::Event(event)) => {
                    message.clear();
                    message.extend_from_slice(&event.payload.bytes());
                    self.request = Some(event);
                    return Ok(NextMessage::Message);
                }
                // other clients may follow a client that leaves
                Some(_) => {}
                None => return Ok(NextMessage::Nothing),
            }
        }
    }
}

impl ReplySender for ChannelReplySender {
    fn send(&mut self, answer: &[u8]) -> io::Result<()> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.reply(&self.request, EventDraft::new(answer)).map(drop).map_err(io::Error::other)
    }
}

impl Conversation for ReplyClient {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.request.clear();
        self.request.extend_from_slice(message);
        Ok(())
    }

    fn receive(&mut self, message: &mut Vec<u8>, until: Instant) -> io::Result<NextMessage> {
        let left = until - clock::now();
        match self.client.request(self.topic, EventDraft::new(&self.request), left.into()) {
            Ok(answer) => {
                message.clear();
                message.extend_from_slice(&answer.payload.bytes());
                Ok(NextMessage::Message)
            }
            Err(Unanswered::NoReply(_) | Unanswered::NobodyReplies { .. }) => Ok(NextMessage::Nothing),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}
