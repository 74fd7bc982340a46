//! Request and reply, on top of events: a request names the topic where its answer is expected, and a
//! number.
//!
//! The fields `reply_to` (the topic) and `request` (the number) carry this; the answer has the same number.
//! An answer with the field `reply_error` (a text) says why there is none.
//! Any client library can do the same.

use super::{
    BrokerAnswer, Client, Error, EventDraft, ReceivedEvent, Reception, SubscriptionHandle, TopicHandle,
};
use crate::frame::{PublishFlags, PublishOutcome};
use crate::spec::{Advertisement, SubscriptionSpec};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use unisono_eventchannel::{FieldSet, FieldValue};
use unisono_linux::clock;

/// Topics of replies.
#[derive(Debug, Default)]
pub(super) struct ReplyTopics {
    /// Where this program expects answers.
    own: Option<(String, SubscriptionHandle)>,
    /// Topics that this program has answered on.
    others: HashMap<String, TopicHandle>,
}

/// Time between two tries while nobody subscribes to the topic of a request. A person who starts the two
/// ends in the wrong order notices no delay, and 100 tries a second are little work. Chosen, not measured.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// The field by which an answer says why it is none.
const FAILURE: &str = "reply_error";

/// Topics of other programs that one program keeps open to answer on; then it begins anew. A broker lets a
/// program have 1024 topics unless it is told otherwise. With more askers than this, each answer costs a
/// topic that is opened and one that is closed.
const MOST_OTHERS: usize = 1000;

impl Client {
    /// Publishes a request and waits for its reply. Other events that come meanwhile are received later.
    /// While nobody subscribes to the topic, the request is published again: nobody has it twice.
    ///
    /// # Errors
    /// The request was refused, whoever got it failed, no reply came in time, or the broker is gone.
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
        loop {
            match self.ask(topic, &event, (until, timeout)) {
                Err(error) if self.loses(&error) => return Err(Error::Unanswered),
                Ok(false) => {}
                heard => {
                    heard?;
                    break;
                }
            }
            if until.saturating_duration_since(Instant::now()) <= ASK_AGAIN {
                let topic = self.outlets.get(&topic.0).map(|outlet| outlet.name.clone()).unwrap_or_default();
                return Err(Error::NobodyReplies { topic, within: timeout });
            }
            std::thread::sleep(ASK_AGAIN);
        }
        let mut others = VecDeque::new();
        let reply = loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.receive(Some(left)) {
                Ok(Some(Reception::Event(event))) if event.subscription == subscription => {
                    // the answer to an earlier request that nobody waits for any more goes
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
                    // who replied may have gone: the next request finds out
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

    /// Publishes a request; whether somebody got it, or may get it later. A topic whose last request somebody
    /// got is not asked about again: that would cost each request an answer of the broker.
    fn ask(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
        (until, timeout): (Instant, Duration),
    ) -> Result<bool, Error> {
        if self.outlets.get(&topic.0).is_some_and(|outlet| outlet.is_heard) {
            self.put_event(topic.0, event, PublishFlags::default(), 0)?;
            self.let_leave()?;
            return Ok(true);
        }
        let token = self.token(topic)?;
        self.put_event(topic.0, event, PublishFlags { answer: true, ..PublishFlags::default() }, token)?;
        self.let_leave()?;
        let outcome = loop {
            match self.answers.remove(&(topic.0, token)) {
                Some(BrokerAnswer::Published(published)) => break published.outcome,
                Some(BrokerAnswer::Rejected(reason)) => return Err(Error::Rejected(reason)),
                Some(other) => return Err(Error::Strange(format!("it answered {other:?} to an event"))),
                None => {
                    let left = until.saturating_duration_since(Instant::now());
                    if !self.hear(Some(left))? {
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
            // unique on this host and, by the time, among hosts
            "" => format!("reply/{}-{}", std::process::id(), clock::now().0),
            granted => granted.to_owned(),
        };
        let subscription = self.subscribe(&SubscriptionSpec::of(&topic))?;
        let own = (topic, subscription);
        self.replies.own = Some(own.clone());
        Ok(own)
    }

    /// Answers a request; whether the event was one.
    ///
    /// # Errors
    /// The answer is refused, or the broker is gone.
    pub fn reply(&mut self, request: &ReceivedEvent, event: EventDraft<'_>) -> Result<bool, Error> {
        let (Some(FieldValue::Text(topic)), Some(number)) =
            (request.fields.field("reply_to"), request.fields.field("request"))
        else {
            return Ok(false);
        };
        let handle = match self.replies.others.get(&**topic) {
            Some(handle) => *handle,
            None => {
                if self.replies.others.len() >= MOST_OTHERS {
                    self.close_others()?;
                }
                let handle = match self.advertise(&Advertisement::of(topic)) {
                    // the program may have as many of its own, or the broker may allow it fewer
                    Err(Error::Refused(_)) if !self.replies.others.is_empty() => {
                        self.close_others()?;
                        self.advertise(&Advertisement::of(topic))?
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

    /// Forgets the topics of replies: each connection has its own.
    pub(super) fn end_replies(&mut self) {
        let replies = std::mem::take(&mut self.replies);
        let Some(comeback) = &mut self.comeback else { return };
        if let Some((_, own)) = replies.own {
            comeback.unsubscribed(own.0);
        }
        for TopicHandle(other) in replies.others.into_values() {
            comeback.withdrawn(other);
            self.outlets.remove(&other);
        }
    }

    /// Closes all topics on which it has answered.
    fn close_others(&mut self) -> Result<(), Error> {
        std::mem::take(&mut self.replies.others).into_values().try_for_each(|handle| self.withdraw(handle))
    }

    /// Answers a request that cannot be fulfilled; whether the event was one. Who asked gets
    /// [`Error::RequestFailed`].
    ///
    /// # Errors
    /// The answer is refused, or the broker is gone.
    pub fn reply_failure(&mut self, request: &ReceivedEvent, why: &str) -> Result<bool, Error> {
        let fields = FieldSet::new().with(FAILURE, why);
        self.reply(request, EventDraft::new(b"").with_fields(fields))
    }
}

impl ReceivedEvent {
    /// Whether somebody waits for a reply.
    #[must_use]
    pub fn is_request(&self) -> bool {
        matches!(self.fields.field("reply_to"), Some(FieldValue::Text(_)))
            && self.fields.field("request").is_some()
    }

    /// The answer itself, or why there is none.
    fn failure(self) -> Result<Self, String> {
        match self.fields.field(FAILURE) {
            Some(FieldValue::Text(why)) => Err(why.to_string()),
            _ => Ok(self),
        }
    }
}
