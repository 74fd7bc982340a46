//! Loans: memory for the payload of an event. The program fills it at any time, and then publishes the event.
//!
//! If consumers read the topic's ring, the memory is a slot of that ring, and the payload is never copied. A
//! slot begins with the event's head, so that the length of the head, and with it the key and the fields, are
//! known when the memory is lent. In all other cases the memory is the program's own, and the payload is
//! copied at the publication: into a frame for the broker, or into a ring that was made in the meantime.

use super::events::closed_topic;
use super::{Client, Error, EventDraft, PublishProgress, TopicHandle};
use std::ops::{Deref, DerefMut};
use std::time::Duration;
use unisono_eventchannel::FieldSet;
use unisono_events_wire::frame::fields;
use unisono_linux::clock::Instant;
use unisono_sync::LentBytes;

#[derive(Debug)]
enum LoanMemory {
    Ring(LentBytes),
    Own(Vec<u8>),
}

/// Memory for the payload of an event, and the other data of that event. Dropping the loan returns the
/// memory.
#[derive(Debug)]
pub struct EventLoan {
    memory: LoanMemory,
    topic: TopicHandle,
    key: String,
    fields: FieldSet,
    deadline: Instant,
    criticality: u8,
    is_published: bool,
}

impl EventLoan {
    /// Returns whether the memory is a place in shared memory from which consumers will read the payload.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        matches!(self.memory, LoanMemory::Ring(_))
    }

    /// Sets the deadline, a time of the monotonic clock.
    pub fn due_at(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn draft(&self) -> EventDraft<'_> {
        let lent = match &self.memory {
            LoanMemory::Ring(lent) => Some(lent),
            LoanMemory::Own(_) => None,
        };
        EventDraft { lent, key: &self.key, fields: self.fields.clone(), ..EventDraft::new(self) }
            .due_at(self.deadline)
            .critical(self.criticality)
    }

    /// Records that the event has left: from now on, consumers may read the memory.
    fn end(&mut self) {
        self.is_published = true;
        if let LoanMemory::Ring(lent) = &mut self.memory {
            lent.end();
        }
    }
}

/// Dereferences to the payload, which is empty after the publication.
impl Deref for EventLoan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            _ if self.is_published => &[],
            LoanMemory::Ring(lent) => lent.bytes(),
            LoanMemory::Own(own) => own,
        }
    }
}

impl DerefMut for EventLoan {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            _ if self.is_published => &mut [],
            LoanMemory::Ring(lent) => lent.bytes_mut(),
            LoanMemory::Own(own) => own,
        }
    }
}

impl Client {
    /// Lends memory of `bytes` bytes, with unspecified content, for the payload of an event. The event has
    /// the key, the fields, the deadline and the criticality of `event`, whose own payload is not used. If
    /// consumers get the topic's events directly, through shared memory, they read from the lent memory
    /// itself; a topic lends up to four such places at a time.
    ///
    /// ```
    /// # mod serving { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/serving.rs")); }
    /// # use unisono_events_client::{Advertisement, Client, EventDraft};
    /// # let broker = serving::ServedBroker::start();
    /// # let address = broker.address();
    /// let mut client = Client::at(&address)?;
    /// let video = client.advertise(&Advertisement::new("video"))?;
    /// let mut frame = client.loan(video, 1 << 20, &EventDraft::new(b"").keyed("camera 1"))?;
    /// frame[..4].copy_from_slice(b"RIFF"); // as the pixels come
    /// client.publish_loan(frame)?;
    /// # Ok::<(), unisono_events_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// The payload is too large, the topic is closed, or the broker is gone.
    pub fn loan(
        &mut self,
        topic: TopicHandle,
        bytes: usize,
        event: &EventDraft<'_>,
    ) -> Result<EventLoan, Error> {
        if bytes > self.largest() {
            return Err(Error::TooLong { length: bytes, most: self.largest() });
        }
        let described = self.described(topic.0, event);
        let event = described.as_ref().unwrap_or(event);
        fields::check(event.key, &event.fields).map_err(Error::Rejected)?;
        if !self.outlets.contains_key(&topic.0) {
            return Err(closed_topic());
        }
        let lent = self.retry_on_reconnect(|client| client.lend_on_ring(topic.0, event, bytes))?;
        Ok(EventLoan {
            memory: lent.map_or_else(|| LoanMemory::Own(vec![0; bytes]), LoanMemory::Ring),
            topic,
            key: event.key.to_owned(),
            fields: event.fields.clone(),
            deadline: event.deadline,
            criticality: event.criticality,
            is_published: false,
        })
    }

    /// Publishes the event of a loan, as [`publish`](Self::publish) does.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    pub fn publish_loan(&mut self, mut loan: EventLoan) -> Result<(), Error> {
        self.publish(loan.topic, &loan.draft())?;
        loan.end();
        Ok(())
    }

    /// Publishes as [`publish_loan`](Self::publish_loan) does, but waits for room no longer than `timeout`.
    /// The loan is empty once the client has taken the event.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    pub fn publish_loan_within(
        &mut self,
        loan: &mut EventLoan,
        timeout: Duration,
    ) -> Result<PublishProgress, Error> {
        if loan.is_published {
            return Err(Error::Rejected("the event of this loan is published; take another loan".to_owned()));
        }
        let progress = self.publish_within(loan.topic, &loan.draft(), timeout)?;
        if progress != PublishProgress::NotTaken {
            loan.end();
        }
        Ok(progress)
    }
}
