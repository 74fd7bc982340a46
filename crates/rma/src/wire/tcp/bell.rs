//! What a rank sleeps on: one epoll instance with all its connections, a bell for the transport, and one for
//! each thread that only listens.
//!
//! A bell falls silent when its sleeper has heard it; with one for all, the first to wake would take the
//! others' ring. Bytes wake every listener too, but who looks after another thread has read them finds none
//! and would sleep on, though they were for it: so reading rings the listeners' bells. Cost: three
//! descriptors a job, one more for each thread that listens at the same time; a lock a read. When not to use:
//! a listener is woken by bytes on any connection until the transport has read them; it should fetch them
//! rather than listen on. Reference: epoll(7), eventfd(2).

use super::patience::LearntPatience;
use super::socket::Socket;
use crate::wire::Bell;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use unisono_linux::clock::{Nanos, now};

/// What the bell is called among the peers.
const BELL: u64 = u64::MAX;
/// How long one sleeps that has no bell.
const SOON: Nanos = Nanos(1_000_000);
const EVENTS: usize = 32;

#[derive(Debug)]
pub(crate) struct Door {
    epoll: OwnedFd,
    /// Wakes the transport.
    inner: OwnedFd,
    listeners: Mutex<Listeners>,
    /// Counts rings and reads: what one listens for.
    events: AtomicU32,
    /// The listener's; a second one, such as the agent, does not poll.
    patience: Mutex<LearntPatience>,
}

/// Bells of threads that listen.
#[derive(Debug, Default)]
struct Listeners {
    asleep: Vec<Arc<OwnedFd>>,
    spare: Vec<Arc<OwnedFd>>,
}

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

fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Until the bell is rung again.
fn silence(bell: &OwnedFd) {
    // nothing to read means that it is silent
    let _ = read(bell, &mut [0; 8]);
}

impl Door {
    /// For one of so many members that are known to be on this host.
    pub(super) fn new(here: usize) -> io::Result<Self> {
        let (epoll, inner) = (epoll::create(CreateFlags::CLOEXEC)?, bell()?);
        epoll::add(&epoll, &inner, EventData::new_u64(BELL), EventFlags::IN)?;
        let listeners = Listeners { asleep: Vec::new(), spare: vec![Arc::new(bell()?)] };
        Ok(Self {
            epoll,
            inner,
            listeners: Mutex::new(listeners),
            events: AtomicU32::new(0),
            patience: Mutex::new(LearntPatience::new(here)),
        })
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

    pub(super) fn forget(&self, socket: &Socket) {
        // closing the socket would do the same
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// What connections are ready for, waiting for it at most so long; whether anything happened.
    pub(super) fn attend(&self, timeout: Nanos, ready: &mut Vec<Ready>) -> io::Result<bool> {
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
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        // Nothing panics with the lock held.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells listeners to look: what they listen for may have been read. Their lock orders this with
    /// [`sleep`](Self::sleep): who is not among them yet finds the count changed.
    pub(super) fn announce(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
        for bell in &self.listeners().asleep {
            // a full counter rings already
            let _ = write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// Sleeps until a connection is ready or the transport's bell is rung.
    pub(crate) fn await_ready(&self) {
        // whatever ends it, the caller looks again
        let _ = poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], None);
    }

    fn is_ready(&self) -> bool {
        let mut sources = [PollFd::new(&self.epoll, PollFlags::IN)];
        // whatever it says, the caller looks again
        poll(&mut sources, Some(&timespec(Nanos::ZERO))) != Ok(0)
    }

    fn sleep(&self, seen: u32, until: Option<Nanos>) {
        let mut listeners = self.listeners();
        // Without a bell of its own it looks around soon.
        let own = listeners.spare.pop().or_else(|| bell().ok().map(Arc::new));
        listeners.asleep.extend(own.clone());
        drop(listeners);
        if self.events() == seen {
            let soon = own.is_none().then(|| SOON.after(now()));
            let until = until.into_iter().chain(soon).min().map(|until| timespec(until.since(now())));
            let epoll = PollFd::new(&self.epoll, PollFlags::IN);
            // whatever ends it, the caller looks again
            let _ = match &own {
                Some(own) => poll(&mut [epoll, PollFd::new(own, PollFlags::IN)], until.as_ref()),
                None => poll(&mut [epoll], until.as_ref()),
            };
        }
        if let Some(own) = own {
            let mut listeners = self.listeners();
            listeners.asleep.retain(|bell| !Arc::ptr_eq(bell, &own));
            silence(&own);
            listeners.spare.push(own);
        }
    }
}

impl Bell for Door {
    fn ring(&self) {
        // a full counter rings already
        let _ = write(&self.inner, &1_u64.to_ne_bytes());
        self.announce();
    }

    fn events(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }

    fn listen(&self, seen: u32, until: Option<Nanos>) -> Nanos {
        let mut patience = self.patience.try_lock().ok();
        if let Some(patience) = &mut patience {
            patience.begin();
            while patience.polls() && until.is_none_or(|until| now() < until) {
                if self.events() != seen || self.is_ready() {
                    patience.paid();
                    return Nanos::ZERO;
                }
            }
        }
        let before = now();
        self.sleep(seen, until);
        if let Some(patience) = &mut patience {
            patience.ended();
        }
        now().since(before)
    }
}
