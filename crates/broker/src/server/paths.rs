//! The sockets of paths: opening them, and sending events to their addresses.

use super::{PATH, Server};
use crate::body::EventBody;
use crate::outgoing::{Flushed, OutgoingSocket};
use crate::task::{PathId, Sent};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use unisono_events_wire::Destination;
use unisono_linux::clock;

impl Server {
    /// Opens the socket of a path.
    pub(super) fn open_path(&mut self, id: PathId, destination: &Destination) {
        let opened = OutgoingSocket::open(destination).and_then(|outgoing| {
            let stalled = outgoing.is_connection();
            let flags = if stalled { EventFlags::OUT } else { EventFlags::empty() };
            epoll::add(&self.epoll, &outgoing, EventData::new_u64(PATH | u64::from(id.0)), flags)?;
            Ok((outgoing, stalled))
        });
        match opened {
            Ok((outgoing, stalled)) => {
                self.paths.insert(id, outgoing);
                self.broker.opened(id, stalled);
            }
            Err(error) => self.broken(id, error),
        }
    }

    /// Sends an event to the address of a path.
    pub(super) fn transmit(&mut self, id: PathId, body: &EventBody) {
        let sent =
            self.paths.get_mut(&id).map_or(Ok(Sent::Lost), |outgoing| outgoing.send(&body.payload.bytes()));
        self.broker.transmitted(clock::now(), sent.unwrap_or(Sent::Lost));
        match sent {
            Ok(Sent::Kept) => self.watch_path(id, EventFlags::OUT),
            Err(error) => self.broken(id, error),
            Ok(_) => {}
        }
    }

    fn broken(&mut self, id: PathId, error: Errno) {
        self.broker.broken(clock::now(), id, &std::io::Error::from(error).to_string());
    }

    fn watch_path(&self, id: PathId, flags: EventFlags) {
        if let Some(outgoing) = self.paths.get(&id) {
            let data = EventData::new_u64(PATH | u64::from(id.0));
            // a path that is not registered any more is about to be removed
            let _ = epoll::modify(&self.epoll, outgoing, data, flags);
        }
    }

    /// Handles a destination that takes more, or is gone.
    pub(super) fn path(&mut self, id: PathId, flags: EventFlags) {
        let Some(outgoing) = self.paths.get_mut(&id) else { return };
        if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            let error = outgoing.error();
            if outgoing.is_connection() {
                self.broken(id, error.unwrap_or(Errno::PIPE));
                return;
            }
        }
        if flags.contains(EventFlags::OUT) {
            match outgoing.flush() {
                Ok(Flushed::All) => {
                    self.watch_path(id, EventFlags::empty());
                    self.broker.drained(clock::now(), id);
                }
                Ok(Flushed::Part) => self.broker.progressed(clock::now(), id),
                Ok(Flushed::Nothing) => {}
                Err(error) => self.broken(id, error),
            }
        }
    }
}
