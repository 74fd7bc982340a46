//! What a rank sleeps on: one epoll instance with all its connections, and a bell for each of the two
//! that may sleep there (the transport, and a thread that only listens).
//!
//! Two bells, because a bell falls silent when its sleeper has heard it; with one for both, the first to
//! wake would take the other's ring. Cost: three descriptors a job. When not to use: a listener is woken by
//! bytes on any connection until the transport has read them; it should fetch them rather than listen on.
//! Reference: epoll(7), eventfd(2).

use super::patience::Patience;
use super::socket::Socket;
use crate::transport::{Bell, Heard};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use unisono_linux::clock::{Nanos, now};

/// What the bell is called among the peers.
const BELL: u64 = u64::MAX;
/// Events taken at once.
const EVENTS: usize = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct Door {
    epoll: OwnedFd,
    /// Wakes the transport.
    inner: OwnedFd,
    /// Wakes the listener.
    outer: OwnedFd,
    /// The listener's; a second one, such as the agent, does not poll.
    patience: Mutex<Patience>,
}

/// What a connection is ready for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) peer: usize,
    pub(super) readable: bool,
    pub(super) writable: bool,
}

fn timespec(length: Nanos) -> Timespec {
    Timespec {
        tv_sec: (length.0 / 1_000_000_000).cast_signed(),
        tv_nsec: (length.0 % 1_000_000_000).cast_signed(),
    }
}

/// Until the bell is rung again.
fn silence(bell: &OwnedFd) {
    // nothing to read means that it is silent
    let _ = read(bell, &mut [0; 8]);
}

impl Door {
    /// For one of so many members that are known to be on this host.
    pub(super) fn new(here: usize) -> io::Result<Self> {
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (epoll, inner, outer) = (epoll::create(CreateFlags::CLOEXEC)?, bell()?, bell()?);
        epoll::add(&epoll, &inner, EventData::new_u64(BELL), EventFlags::IN)?;
        Ok(Self { epoll, inner, outer, patience: Mutex::new(Patience::new(here)) })
    }

    /// Watches a peer's connection for what it sends.
    pub(super) fn watch(&self, socket: &Socket, peer: usize) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(peer as u64), EventFlags::IN)?)
    }

    /// With or without room to send.
    pub(super) fn change(&self, socket: &Socket, peer: usize, wants_room: bool) -> io::Result<()> {
        let flags = if wants_room { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(peer as u64), flags)?)
    }

    /// Watches it no longer.
    pub(super) fn forget(&self, socket: &Socket) {
        // closing the socket would do the same
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// What connections are ready for, waiting for it at most so long; whether anything happened.
    pub(super) fn events(&self, timeout: Nanos, ready: &mut Vec<Ready>) -> io::Result<bool> {
        let mut happened = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        let happened = match epoll::wait(&self.epoll, &mut happened, Some(&timespec(timeout))) {
            Ok((happened, _)) => happened,
            Err(Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        for event in &*happened {
            let (flags, data) = (event.flags, event.data.u64());
            if data == BELL {
                silence(&self.inner);
                continue;
            }
            // an error or the end of a connection is found by reading it
            let readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
            let writable = flags.contains(EventFlags::OUT);
            ready.push(Ready { peer: data as usize, readable, writable });
        }
        Ok(!happened.is_empty())
    }
}

impl Door {
    /// Whether there is something for a listener, after waiting for it at most so long.
    fn is_ready(&self, timeout: Option<Nanos>) -> bool {
        let mut sources = [PollFd::new(&self.epoll, PollFlags::IN), PollFd::new(&self.outer, PollFlags::IN)];
        // whatever ends it, the caller looks again
        let ready = poll(&mut sources, timeout.map(timespec).as_ref()) != Ok(0);
        if ready {
            silence(&self.outer);
        }
        ready
    }
}

impl Bell for Door {
    fn ring(&self) {
        for bell in [&self.inner, &self.outer] {
            // a full counter rings already
            let _ = write(bell, &1_u64.to_ne_bytes());
        }
    }

    fn listen(&self, seen: u32, until: Option<Nanos>) -> Heard {
        let mut patience = self.patience.try_lock().ok();
        if let Some(patience) = &mut patience {
            patience.begin();
            while patience.polls() && until.is_none_or(|until| now() < until) {
                if self.is_ready(Some(Nanos::ZERO)) {
                    patience.paid();
                    return Heard { seen: seen.wrapping_add(1), asleep: Nanos::ZERO };
                }
            }
        }
        let heard = Heard::after_sleep(|| {
            self.is_ready(until.map(|until| until.since(now())));
            seen.wrapping_add(1)
        });
        if let Some(patience) = &mut patience {
            patience.ended();
        }
        heard
    }
}
