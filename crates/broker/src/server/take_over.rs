//! The hand-over to another process, which serves at the same sockets afterwards.
//!
//! ```text
//!   serves --sockets passed--> serves --log asked for--> waits --"it serves"--> ends, leaves all names
//!     ^                                                    |
//!     +---------- the other process has failed ------------+
//! ```
//! The sockets live on, so that a client that connects meanwhile waits in their queues. While the broker
//! waits, it receives and sends nothing. A frame that has come meanwhile is read if the broker serves on; if
//! it ends, the frame is lost with the connection, unanswered, and its client sends it again.

use super::{DISK, ServeError, Server};
use crate::task::ClientId;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::os::fd::{AsFd as _, OwnedFd};
use unisono_events_wire::transport::{FrameTransport, TransportError, wait};
use unisono_events_wire::{Frame, TakeOverStep};
use unisono_linux::clock;

/// The reason why a server has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServeEnd {
    /// Its caller has stopped it.
    Stopped,
    /// Another process serves at its sockets, or is about to.
    TakenOver,
}

/// The state of a hand-over.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    /// Sockets that are passed beside the listeners' sockets.
    others: Vec<OwnedFd>,
    /// The program that has got the sockets.
    successor: Option<ClientId>,
    /// Whether the successor has asked for the log.
    is_due: bool,
}

/// The result of waiting for the successor.
enum SuccessorState {
    Serves,
    Failed,
    /// The caller has stopped this server meanwhile.
    Stopped,
}

impl Server {
    /// Hands over this socket too, beside the listeners' sockets.
    pub fn hand_over_too(&mut self, socket: OwnedFd) {
        self.hand_over.others.push(socket);
    }

    /// Handles a step of the process that is to serve after this one.
    pub(super) fn take_over(&mut self, id: ClientId, step: TakeOverStep) {
        let refused = match step {
            // the log goes to the process that has asked for it, which no other may replace now
            TakeOverStep::Sockets if self.hand_over.is_due => {
                "another process has asked for the log and takes over now; start again".to_owned()
            }
            TakeOverStep::Sockets => match self.pass_sockets(id) {
                Ok(sockets) => {
                    self.hand_over.successor = Some(id);
                    return self.broker.taken_over(id, sockets);
                }
                Err(error) => {
                    format!("the sockets could not be passed: {error}; connect by the socket's path")
                }
            },
            TakeOverStep::Log if self.hand_over.successor == Some(id) => {
                self.hand_over.is_due = true;
                return;
            }
            _ => "another process has asked for the sockets since; start again".to_owned(),
        };
        self.broker.take_over_refused(id, refused);
    }

    fn pass_sockets(&mut self, id: ClientId) -> Result<usize, TransportError> {
        let Some(client) = self.clients.get_mut(&id) else { return Err(TransportError::Closed) };
        let listeners = self.listeners.iter().map(|listener| listener.as_fd());
        let sockets = listeners.chain(self.hand_over.others.iter().map(|socket| socket.as_fd()));
        let mut passed = 0;
        for socket in sockets {
            client.transport.pass(socket)?;
            passed += 1;
        }
        Ok(passed)
    }

    /// Hands over to the successor, if it has asked for that. Returns the reason for the server's end, or
    /// none if it serves on.
    pub(super) fn hand_over(&mut self, stop: &dyn Fn() -> bool) -> Result<Option<ServeEnd>, ServeError> {
        let successor = self.hand_over.successor;
        let Some(id) = successor.filter(|_| std::mem::take(&mut self.hand_over.is_due)) else {
            return Ok(None);
        };
        self.finish_syncs();
        self.work();
        self.flush();
        if let Err(error) = self.broker.unlock_log() {
            self.broker.take_over_refused(id, error.to_string());
            self.start_disk()?;
            return Ok(None);
        }
        self.broker.taken_over(id, 0);
        self.work();
        self.flush();
        let state = match self.clients.get_mut(&id) {
            Some(client) => wait_for_successor(&mut *client.transport, stop),
            None => SuccessorState::Failed,
        };
        match state {
            SuccessorState::Serves => {
                (self.note)("another process has taken over: it serves at the same addresses");
                self.names.clear();
                Ok(Some(ServeEnd::TakenOver))
            }
            // the successor may have the log already, and needs the names if it goes on
            SuccessorState::Stopped => {
                self.names.clear();
                Ok(Some(ServeEnd::TakenOver))
            }
            SuccessorState::Failed => {
                self.broker.lock_log_again()?;
                (self.note)("the process that was to take over has failed: this broker serves on");
                self.hand_over.successor = None;
                self.drop_client(id);
                self.start_disk()?;
                Ok(None)
            }
        }
    }

    /// Waits until the disk has all events of the log, and answers the programs that wait for that.
    fn finish_syncs(&mut self) {
        for (job, result) in self.disk.take().into_iter().flat_map(super::disk::DiskThread::finish) {
            self.broker.synced(clock::now(), &job, result);
        }
        while let Some(job) = self.broker.sync() {
            let result = job.run().map_err(|error| error.to_string());
            self.broker.synced(clock::now(), &job, result);
        }
    }

    /// Starts the thread that waits for the disk, if the broker keeps a log.
    pub(super) fn start_disk(&mut self) -> Result<(), ServeError> {
        if self.disk.is_none() && self.broker.keeps_log() {
            let disk = self.disk.insert(super::disk::DiskThread::start()?);
            epoll::add(&self.epoll, &*disk, EventData::new_u64(DISK), EventFlags::IN)?;
        }
        Ok(())
    }
}

fn wait_for_successor(transport: &mut dyn FrameTransport, stop: &dyn Fn() -> bool) -> SuccessorState {
    loop {
        if stop() {
            return SuccessorState::Stopped;
        }
        let next = transport.flush().and_then(|_| transport.receive());
        match next {
            Ok(Some(frame)) => {
                return match Frame::read(frame.bytes) {
                    Ok(Frame::TakeOver { step: TakeOverStep::Serving }) => SuccessorState::Serves,
                    _ => SuccessorState::Failed,
                };
            }
            Ok(None) => {}
            Err(_) => return SuccessorState::Failed,
        }
        if wait(transport, Some(super::STOP_POLL_INTERVAL.into())).is_err() {
            return SuccessorState::Failed;
        }
    }
}
