//! Publishes within a time limit. This is for programs that have to do something else while there is no room,
//! such as consuming their own events over another connection.

use super::{Client, Error, EventDraft, TopicHandle};
use std::time::{Duration, Instant};

/// The progress of an event that was published with a time limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum PublishProgress {
    /// There was no room for the event: the program has to publish it again.
    NotTaken,
    /// The client has taken the event, and sends it in later calls, such as [`Client::flush_within`].
    Leaving,
    Left,
}

impl Client {
    /// Publishes as [`publish`](Self::publish) does, but waits for room no longer than `timeout`. A program
    /// that also consumes its own events, over another connection, can receive events between two attempts.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    pub fn publish_within(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
        timeout: Duration,
    ) -> Result<PublishProgress, Error> {
        self.room_until = Instant::now().checked_add(timeout);
        let taken = self.publish_buffered(topic, event);
        let flushed = if taken.is_ok() { self.flush() } else { Ok(()) };
        self.room_until = None;
        match (taken, flushed) {
            (Err(Error::NoRoom), _) => Ok(PublishProgress::NotTaken),
            (Ok(()), Err(Error::NoRoom)) => Ok(PublishProgress::Leaving),
            (taken, flushed) => taken.and(flushed).map(|()| PublishProgress::Left),
        }
    }

    /// Flushes as [`flush`](Self::flush) does, but waits no longer than `timeout`. Returns whether all events
    /// have left. The remaining events leave in later calls.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn flush_within(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.room_until = Instant::now().checked_add(timeout);
        let flushed = self.flush();
        self.room_until = None;
        match flushed {
            Err(Error::NoRoom) => Ok(false),
            flushed => flushed.map(|()| true),
        }
    }
}
