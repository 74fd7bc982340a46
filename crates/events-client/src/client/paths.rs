//! Paths. The broker forwards the messages on a path to a network address when it is the turn of the path's
//! class.
//!
//! ```no_run
//! use unisono_events_client::{Client, Destination, NO_DEADLINE};
//! # fn main() -> Result<(), unisono_events_client::Error> {
//! let mut broker = Client::connect_unix("/run/unisono/broker".as_ref())?;
//! let video = broker.open("video", Destination::udp("192.0.2.7:5004".parse().expect("an address")))?;
//! broker.send(video, b"a frame", NO_DEADLINE)?; // waits while the class has more than its share on the way
//! # Ok(())
//! # }
//! ```
//! [`Client::send`] blocks until there is credit: a program that is too fast waits here, and its messages do
//! not wait in a queue. The call returns when the message has been sent to the broker, not when it has left
//! the host ([`Client::flush_path`] waits for that).

use super::{Client, Error, EventDraft};
use std::collections::BTreeMap;
use unisono_events_wire::Destination;
use unisono_events_wire::PathSpec;
use unisono_events_wire::frame::{Frame, PublishFlags};
use unisono_linux::clock::Instant;

/// A path of one client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathHandle(u32);

#[derive(Debug)]
pub(super) enum ClientPath {
    /// The broker has not answered yet.
    Asked,
    Open {
        credit: u32,
        all: u32,
    },
    Closed(String),
}

pub(super) fn opened(paths: &mut BTreeMap<u32, ClientPath>, number: u32, credit: u32) {
    if let Some(state) = paths.get_mut(&number) {
        *state = ClientPath::Open { credit, all: credit };
    }
}

pub(super) fn credited(paths: &mut BTreeMap<u32, ClientPath>, number: u32, bytes: u32) {
    if let Some(ClientPath::Open { credit, .. }) = paths.get_mut(&number) {
        *credit = credit.saturating_add(bytes);
    }
}

pub(super) fn closed(paths: &mut BTreeMap<u32, ClientPath>, number: u32, reason: &str) {
    if let Some(state) = paths.get_mut(&number) {
        *state = ClientPath::Closed(reason.to_owned());
    }
}

/// Closes all paths, because no path outlives its connection.
pub(super) fn all_closed(paths: &mut BTreeMap<u32, ClientPath>, reason: &str) {
    paths.values_mut().for_each(|state| *state = ClientPath::Closed(reason.to_owned()));
}

impl Client {
    /// Opens a path in a class (empty: the policy's default) and waits until the broker has opened it. The
    /// connection to the destination may still be pending: if it fails, sending fails.
    ///
    /// # Errors
    /// The broker's reason.
    pub fn open(&mut self, class: &str, destination: Destination) -> Result<PathHandle, Error> {
        let number = self.number();
        self.paths.insert(number, ClientPath::Asked);
        let path = PathSpec { class: class.to_owned(), destination };
        self.send_frame(&Frame::Open { number, path })?;
        loop {
            match self.paths.get(&number) {
                Some(ClientPath::Asked) => drop(self.receive_frame(None)?),
                Some(ClientPath::Open { .. }) => return Ok(PathHandle(number)),
                Some(ClientPath::Closed(reason)) => {
                    let reason = reason.clone();
                    self.paths.remove(&number); // the broker has not made the path
                    return Err(Error::Closed(reason));
                }
                None => return Err(Error::Strange("it forgot a path".to_owned())),
            }
        }
    }

    /// Returns the maximum number of bytes of a message on a path.
    #[must_use]
    pub fn path_largest(&self) -> usize {
        self.terms.path_largest as usize
    }

    /// Sends a message. Waits for credit. The deadline is a time of the monotonic clock.
    ///
    /// # Errors
    /// The payload is too long, the path is closed, or the broker is gone.
    pub fn send(&mut self, path: PathHandle, payload: &[u8], deadline: Instant) -> Result<(), Error> {
        while !self.try_send(path, payload, deadline)? {
            self.receive_frame(None)?;
        }
        Ok(())
    }

    /// Sends a message if there is credit for it. Returns whether the message was sent.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub fn try_send(&mut self, path: PathHandle, payload: &[u8], deadline: Instant) -> Result<bool, Error> {
        self.check_owner()?;
        if payload.len() > self.path_largest() {
            return Err(Error::TooLong { length: payload.len(), most: self.path_largest() });
        }
        let cost = unisono_events_wire::credit_cost(payload.len());
        if self.credit(path)? < cost {
            while self.take_frame()? {}
        }
        match self.paths.get_mut(&path.0) {
            Some(ClientPath::Open { credit, .. }) if *credit >= cost => {
                *credit -= cost;
                let event = EventDraft::new(payload).due_at(deadline);
                self.enqueue_event(path.0, &event, (PublishFlags::default(), None), 0)?;
                self.flush_connected()?;
                Ok(true)
            }
            _ => {
                self.credit(path)?;
                Ok(false)
            }
        }
    }

    /// Returns the credit: the number of payload bytes, plus 128 per message, that may be sent without
    /// waiting.
    ///
    /// # Errors
    /// The path is closed.
    pub fn credit(&self, path: PathHandle) -> Result<u32, Error> {
        match self.paths.get(&path.0) {
            Some(ClientPath::Open { credit, .. }) => Ok(*credit),
            Some(ClientPath::Closed(reason)) => Err(Error::Closed(reason.clone())),
            Some(ClientPath::Asked) | None => Err(Error::Closed("it is not open".to_owned())),
        }
    }

    /// Waits until all messages on a path have left.
    ///
    /// # Errors
    /// The path is closed, or the broker is gone.
    pub fn flush_path(&mut self, path: PathHandle) -> Result<(), Error> {
        self.credit(path)?;
        self.send_frame(&Frame::Flush { number: path.0 })?;
        loop {
            self.credit(path)?;
            match self.paths.get(&path.0) {
                Some(ClientPath::Open { credit, all }) if credit < all => drop(self.receive_frame(None)?),
                _ => return Ok(()),
            }
        }
    }

    /// Closes a path. Messages that were already sent are still forwarded.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn close(&mut self, path: PathHandle) -> Result<(), Error> {
        match self.paths.remove(&path.0) {
            Some(_) => self.send_frame(&Frame::Close { number: path.0 }),
            None => Ok(()),
        }
    }
}
