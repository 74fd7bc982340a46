//! Request and reply, on top of events: a request names the topic where its answer is expected, and a
//! number.
//!
//! The fields `reply_to` (the topic) and `request` (the number) carry this; the answer has the same number.
//! Any client library can do the same.

use super::{Client, Error, EventDraft, ReceivedEvent, Reception, SubscriptionHandle, TopicHandle};
use crate::frame::PublishFlags;
use crate::spec::{Advertisement, SubscriptionSpec};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use unisono_eventchannel::FieldValue;
use unisono_linux::clock;

/// Topics of replies.
#[derive(Debug, Default)]
pub(super) struct ReplyTopics {
    /// Where this program expects answers.
    own: Option<(String, SubscriptionHandle)>,
    /// Topics that this program has answered on.
    others: HashMap<String, TopicHandle>,
}

/// Topics of other programs that one program keeps open to answer on; then it begins anew.
const MOST_OTHERS: usize = 512;

impl Client {
    /// Publishes a request and waits for its reply. Other events that come meanwhile are received later.
    ///
    /// # Errors
    /// The request was refused, no reply came in time, or the broker is gone.
    pub fn request(
        &mut self,
        topic: TopicHandle,
        event: EventDraft<'_>,
        timeout: Duration,
    ) -> Result<ReceivedEvent, Error> {
        let (reply_to, subscription) = self.reply_topic()?;
        let number = i64::from(self.number());
        let fields = event.fields().clone().with("reply_to", reply_to.as_str()).with("request", number);
        self.put_event(topic.0, &event.with_fields(fields), PublishFlags::default(), 0)?;
        self.flush()?;
        let until = Instant::now() + timeout;
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
                Ok(Some(other)) => others.push_back(other),
                Ok(None) => break Err(Error::NoReply(timeout)),
                Err(error) => break Err(error),
            }
        };
        others.append(&mut self.received);
        self.received = others;
        reply
    }

    fn reply_topic(&mut self) -> Result<(String, SubscriptionHandle), Error> {
        if let Some(own) = &self.replies.own {
            return Ok(own.clone());
        }
        // unique on this host and, by the time, among hosts
        let topic = format!("reply/{}-{}", std::process::id(), clock::now().0);
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
                    for handle in std::mem::take(&mut self.replies.others).into_values() {
                        self.withdraw(handle)?;
                    }
                }
                let handle = self.advertise(&Advertisement::of(topic))?;
                self.replies.others.insert(topic.to_string(), handle);
                handle
            }
        };
        let fields = event.fields().clone().with("request", number.clone());
        self.publish(handle, &event.with_fields(fields))?;
        Ok(true)
    }
}
