//! Requests and replies, on top of events. A request names the topic on which its reply is expected, and a
//! number.
//!
//! The request has these in its fields `reply_to` (the topic) and `request` (the number), and the reply
//! repeats the number. If the request failed, the reply has the field `reply_error` with the reason as a
//! text. Any client library can do the same.

use super::{
    BrokerAnswer, Client, Error, EventDraft, ReceivedEvent, Reception, SubscriptionHandle, TopicHandle,
};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use unisono_eventchannel::{FieldSet, FieldValue};
use unisono_events_wire::frame::{PublishFlags, PublishOutcome};
use unisono_events_wire::{Advertisement, SubscriptionSpec};
use unisono_linux::clock;

/// The topics of replies.
#[derive(Debug, Default)]
pub(super) struct ReplyTopics {
    /// The topic for replies to this program.
    own: Option<(String, SubscriptionHandle)>,
    /// The reply topics of other programs that this program has opened.
    others: HashMap<String, TopicHandle>,
}

/// The time between two attempts while the topic of a request has no subscriber. A person who starts the two
/// ends in the wrong order notices no delay, and 100 attempts per second are little work. Chosen, not
/// measured.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// The field with the reason of a failure.
const FAILURE: &str = "reply_error";

/// The maximum number of reply topics of other programs that are kept open; beyond it, all of them are
/// closed. A broker allows a program 1024 topics by default. With more requesters than this, each reply opens
/// one topic and closes another.
const MAX_OTHERS: usize = 1000;

impl Client {
    /// Publishes a request and waits for its reply. Other events that come in the meantime are received
    /// later. While the topic has no subscriber, the request is published again and again; no consumer gets
    /// it twice.
    ///
    /// # Errors
    /// The request was refused, its receiver failed, no reply came in time, or the broker is gone.
    pub fn request(
        &mut self,
        topic: TopicHandle,
        event: EventDraft<'_>,
        timeout: Duration,
    ) -> Result<ReceivedEvent, Error> {
        let (reply_to, subscription) = self.reply_topic()?;
        let number = i64::from(self.number());
        let fields = event.fields().clone().with("reply_to", reply_to.as_str()).with("request", number);
        let event = event.with_fields(fields);
        let until = Instant::now() + timeout;
        let mut was_unheard = false;
        loop {
            let is_over = match self.ask(topic, &event, (until, timeout)) {
                Err(error) if self.note_disconnect(&error) => return Err(Error::Unanswered),
                Ok(false) => until.saturating_duration_since(Instant::now()) <= ASK_AGAIN,
                // the timeout expired before the broker answered this attempt, but the broker's answer to an
                // earlier attempt was that there is no subscriber
                Err(Error::NoReply(_)) if was_unheard => true,
                heard => {
                    heard?;
                    break;
                }
            };
            if is_over {
                let topic = self.outlets.get(&topic.0).map(|outlet| outlet.name.clone()).unwrap_or_default();
                return Err(Error::NobodyReplies { topic, within: timeout });
            }
            was_unheard = true;
            std::thread::sleep(ASK_AGAIN);
            self.interrupt.poll()?;
        }
        let mut others = VecDeque::new();
        let reply = loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.receive(Some(left)) {
                Ok(Some(Reception::Event(event))) if event.subscription == subscription => {
                    // the reply to an earlier request that has timed out is dropped
                    if event.fields.field("request") == Some(&FieldValue::from(number)) {
                        break Ok(event);
                    }
                }
                Ok(Some(Reception::Rejected { topic: of, reason })) if of == topic => {
                    break Err(Error::Rejected(reason));
                }
                Ok(Some(back @ Reception::Reconnected { .. })) => {
                    others.push_back(back);
                    break Err(Error::Unanswered);
                }
                Ok(Some(other)) => others.push_back(other),
                Ok(None) => {
                    // the replier may be gone, so the next request asks for the outcome again
                    self.outlets.entry(topic.0).and_modify(|outlet| outlet.is_heard = false);
                    break Err(Error::NoReply(timeout));
                }
                Err(error) => break Err(error),
            }
        };
        others.append(&mut self.received);
        self.received = others;
        match reply?.failure() {
            Ok(reply) => Ok(reply),
            Err(reason) => Err(Error::RequestFailed(reason)),
        }
    }

    /// Publishes a request. Returns whether a consumer got it, or may get it later. If a consumer got the
    /// topic's last request, the client does not ask the broker for the outcome, because that would cost an
    /// answer for each request.
    fn ask(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
        (until, timeout): (Instant, Duration),
    ) -> Result<bool, Error> {
        if self.outlets.get(&topic.0).is_some_and(|outlet| outlet.is_heard) {
            self.enqueue_event(topic.0, event, (PublishFlags::default(), None), 0)?;
            self.flush_connected()?;
            return Ok(true);
        }
        let token = self.token(topic)?;
        self.enqueue_event(
            topic.0,
            event,
            (PublishFlags { answer: true, ..PublishFlags::default() }, None),
            token,
        )?;
        self.flush_connected()?;
        let outcome = loop {
            match self.answers.remove(&(topic.0, token)) {
                Some(BrokerAnswer::Published(published)) => break published.outcome,
                Some(BrokerAnswer::Rejected(reason)) => return Err(Error::Rejected(reason)),
                Some(other) => return Err(Error::Strange(format!("it answered {other:?} to an event"))),
                None => {
                    let left = until.saturating_duration_since(Instant::now());
                    if !self.receive_frame(Some(left))? {
                        return Err(Error::NoReply(timeout));
                    }
                }
            }
        };
        let Some(outlet) = self.outlets.get_mut(&topic.0) else { return Ok(true) };
        outlet.is_heard = outcome != PublishOutcome::Taken(0) || outlet.keeps;
        Ok(outlet.is_heard)
    }

    fn reply_topic(&mut self) -> Result<(String, SubscriptionHandle), Error> {
        if let Some(own) = &self.replies.own {
            return Ok(own.clone());
        }
        let topic = match &*self.terms.reply {
            // the name is unique on this host by the process number, and probably among hosts by the time
            "" => format!("reply/{}-{}", std::process::id(), clock::now().as_nanos()),
            granted => granted.to_owned(),
        };
        let subscription = self.subscribe(&SubscriptionSpec::new(&topic))?;
        let own = (topic, subscription);
        self.replies.own = Some(own.clone());
        Ok(own)
    }

    /// Replies to a request. Returns whether the event was a request.
    ///
    /// # Errors
    /// The reply is refused, or the broker is gone.
    pub fn reply(&mut self, request: &ReceivedEvent, event: EventDraft<'_>) -> Result<bool, Error> {
        let (Some(FieldValue::Text(topic)), Some(number)) =
            (request.fields.field("reply_to"), request.fields.field("request"))
        else {
            return Ok(false);
        };
        let handle = match self.replies.others.get(&**topic) {
            Some(handle) => *handle,
            None => {
                if self.replies.others.len() >= MAX_OTHERS {
                    self.close_others()?;
                }
                let handle = match self.advertise(&Advertisement::new(topic)) {
                    // the program may have too many topics of its own, or the broker may allow fewer topics
                    // than usual
                    Err(Error::Refused(_)) if !self.replies.others.is_empty() => {
                        self.close_others()?;
                        self.advertise(&Advertisement::new(topic))?
                    }
                    advertised => advertised?,
                };
                self.replies.others.insert(topic.to_string(), handle);
                handle
            }
        };
        let fields = event.fields().clone().with("request", number.clone());
        self.publish(handle, &event.with_fields(fields))?;
        Ok(true)
    }

    /// Forgets the reply topics, because they are valid only for one connection.
    pub(super) fn end_replies(&mut self) {
        let replies = std::mem::take(&mut self.replies);
        let Some(reconnect) = &mut self.reconnect else { return };
        if let Some((_, own)) = replies.own {
            reconnect.unsubscribed(own.0);
        }
        for TopicHandle(other) in replies.others.into_values() {
            reconnect.withdrawn(other);
            self.outlets.remove(&other);
        }
    }

    /// Closes all topics that were opened for replies.
    fn close_others(&mut self) -> Result<(), Error> {
        std::mem::take(&mut self.replies.others).into_values().try_for_each(|handle| self.withdraw(handle))
    }

    /// Reports that a request cannot be fulfilled. Returns whether the event was a request. The requester
    /// gets [`Error::RequestFailed`].
    ///
    /// # Errors
    /// The reply is refused, or the broker is gone.
    pub fn reply_failure(&mut self, request: &ReceivedEvent, why: &str) -> Result<bool, Error> {
        let fields = FieldSet::new().with(FAILURE, why);
        self.reply(request, EventDraft::new(b"").with_fields(fields))
    }
}

impl ReceivedEvent {
    /// Returns whether the event is a request, whose sender waits for a reply.
    #[must_use]
    pub fn is_request(&self) -> bool {
        matches!(self.fields.field("reply_to"), Some(FieldValue::Text(_)))
            && self.fields.field("request").is_some()
    }

    /// Returns the reply itself, or the reason why the request failed.
    fn failure(self) -> Result<Self, String> {
        match self.fields.field(FAILURE) {
            Some(FieldValue::Text(why)) => Err(why.to_string()),
            _ => Ok(self),
        }
    }
}
