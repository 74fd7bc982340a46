//! The part of a turn in which the server takes frames from programs.

use super::add::LISTENER;
use super::listen::ServeError;
use super::turn::MAX_ALONE_TIME;
use super::{DISK, PATH, STOP_POLL_INTERVAL, Server};
use crate::task::{ClientId, PathId};
use rustix::event::epoll::{Event, EventFlags};
use std::collections::VecDeque;
use unisono_linux::clock;

/// Whether a turn has heard all programs that are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReceivePhase {
    Done,
    Stopped,
}

impl Server {
    /// Takes what has come, first from the programs that were deferred. Once that has taken as long as a
    /// person notices, it asks before each program whether to stop.
    pub(super) fn receive_frames(
        &mut self,
        ready: &[Event],
        stop: &dyn Fn() -> bool,
    ) -> Result<ReceivePhase, ServeError> {
        let began = clock::now();
        // a shorter turn receives from all programs: their last frames may have come before the signal
        let ends = || clock::now() - began > STOP_POLL_INTERVAL && stop();
        let unfinished = std::mem::take(&mut self.unfinished);
        for id in self.take_deferred() {
            if ends() {
                return Ok(ReceivePhase::Stopped);
            }
            self.client(id, EventFlags::IN);
        }
        for event in ready {
            if ends() {
                return Ok(ReceivePhase::Stopped);
            }
            let (about, flags) = (event.data.u64(), event.flags);
            match about >> 32 << 32 {
                LISTENER => self.accept(about as u32 as usize)?,
                DISK => self.disk_ended(),
                PATH => self.path(PathId(about as u32), flags),
                _ => self.wake(ClientId(about as u32), flags),
            }
        }
        for id in unfinished {
            if ends() {
                return Ok(ReceivePhase::Stopped);
            }
            self.client(id, EventFlags::IN);
        }
        self.receive_deferred(&ends);
        Ok(ReceivePhase::Done)
    }

    /// The deferred programs, the longest deferred first.
    fn take_deferred(&mut self) -> VecDeque<ClientId> {
        let deferred = std::mem::take(&mut self.deferred);
        for id in &deferred {
            if let Some(client) = self.clients.get_mut(id) {
                client.is_deferred = false;
            }
        }
        deferred
    }

    /// Serves the programs that were deferred in this turn, unless another tenant waits for the turn to end.
    fn receive_deferred(&mut self, ends: &dyn Fn() -> bool) {
        if self.deferred.is_empty() || !self.slices.may_renew() {
            return;
        }
        let until = clock::now() + MAX_ALONE_TIME;
        for id in self.take_deferred() {
            if ends() {
                return;
            }
            if clock::now() < until {
                self.slices.renew();
            }
            self.client(id, EventFlags::IN);
        }
    }
}
