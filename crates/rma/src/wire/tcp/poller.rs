//! How a rank sleeps: at one epoll instance with all its connections, a bell for the transport, and a bell
//! for each thread that only listens.
//!
//! A sleeper that was woken by its bell resets (silences) the bell. With one bell for all threads, the first
//! thread to wake would silence it for the others, so each thread has its own bell. Bytes on a connection
//! wake each listener, too. But if another thread has read these bytes before a listener checks, the listener
//! finds none and would sleep on, although these bytes may have been for it. So a read rings the listeners'
//! bells. Cost: three descriptors a job, one more for each thread that listens at the same time, and a lock
//! for each read. When not to use: bytes on any connection wake a listener until the transport has read them,
//! so a woken listener should make the transport read instead of listening on. Reference: epoll(7),
//! eventfd(2).

use super::poll_budget::AdaptivePollBudget;
use super::socket::Socket;
use crate::wire::Bell;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::{Errno, read, write};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration as StdDuration;
use unisono_linux::clock::{Duration, Instant, now};
use unisono_linux::poll::readable;

/// The epoll data of the transport's bell; other values are peers.
const BELL_TOKEN: u64 = u64::MAX;
/// The time for which a listener without a bell sleeps before it checks again. It has no bell only if the
/// process has run out of descriptors.
const RECHECK_INTERVAL: Duration = Duration::from_millis(1);
const EVENTS: usize = 32;

#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    /// The transport's bell, an eventfd.
    inner: OwnedFd,
    listeners: Mutex<Listeners>,
    /// Counts rings and reads, the events for which threads listen.
    events: AtomicU32,
    /// The poll budget of one listener. A second listener, such as the agent, does not poll.
    budget: Mutex<AdaptivePollBudget>,
}

/// The bells of listening threads, those in use and those to reuse.
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

fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Resets a bell that was rung.
fn silence(bell: &OwnedFd) {
    // an empty eventfd is an error here, and means that the bell is silent already
    let _ = read(bell, &mut [0; 8]);
}

impl Poller {
    /// Creates the poller of a member with `here` members on this host, itself included.
    pub(super) fn new(here: usize) -> io::Result<Self> {
        let (epoll, inner) = (epoll::create(CreateFlags::CLOEXEC)?, bell()?);
        epoll::add(&epoll, &inner, EventData::new_u64(BELL_TOKEN), EventFlags::IN)?;
        let listeners = Listeners { asleep: Vec::new(), spare: vec![Arc::new(bell()?)] };
        Ok(Self {
            epoll,
            inner,
            listeners: Mutex::new(listeners),
            events: AtomicU32::new(0),
            budget: Mutex::new(AdaptivePollBudget::new(here)),
        })
    }

    /// Watches a peer's connection for incoming bytes.
    pub(super) fn add(&self, socket: &Socket, peer: usize) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(peer as u64), EventFlags::IN)?)
    }

    /// Watches a connection for incoming bytes and, with `wants_room`, for room to send.
    pub(super) fn modify(&self, socket: &Socket, peer: usize, wants_room: bool) -> io::Result<()> {
        let flags = if wants_room { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(peer as u64), flags)?)
    }

    pub(super) fn remove(&self, socket: &Socket) {
        // closing the socket would do the same
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Appends the connections that are ready to `ready`, and waits for them for at most `timeout`. Returns
    /// whether there was any event.
    pub(super) fn poll(&self, timeout: Duration, ready: &mut Vec<Ready>) -> io::Result<bool> {
        let mut happened = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        let timeout = Timespec::try_from(StdDuration::from(timeout)).map_err(io::Error::other)?;
        let happened = match epoll::wait(&self.epoll, &mut happened, Some(&timeout)) {
            Ok((happened, _)) => happened,
            Err(Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        for event in &*happened {
            let (flags, data) = (event.flags, event.data.u64());
            if data == BELL_TOKEN {
                silence(&self.inner);
                continue;
            }
            // a read finds the error or the end of a connection
            let readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
            let writable = flags.contains(EventFlags::OUT);
            ready.push(Ready { peer: data as usize, readable, writable });
        }
        Ok(!happened.is_empty())
    }
}

impl Poller {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        // Nothing panics with the lock held.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes listeners check again, because another thread may have read the bytes for which they wait. The
    /// lock orders this with [`sleep`](Self::sleep): a listener that is not in the list yet finds the count
    /// changed.
    pub(super) fn notify_listeners(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
        for bell in &self.listeners().asleep {
            // the write fails only on a full counter, which rings already
            let _ = write(bell, &1_u64.to_ne_bytes());
        }
    }

    /// Sleeps until a connection is ready or the transport's bell is rung.
    pub(crate) fn wait_ready(&self) {
        // the caller checks again, whether it was woken or failed
        let _ = readable([self.epoll.as_fd()], None);
    }

    fn is_ready(&self) -> bool {
        // after an error the caller checks again
        !matches!(readable([self.epoll.as_fd()], Some(StdDuration::ZERO)), Ok([false]))
    }

    fn sleep(&self, last_events: u32, until: Option<Instant>) {
        let mut listeners = self.listeners();
        // A listener without a bell of its own checks again soon.
        let own = listeners.spare.pop().or_else(|| bell().ok().map(Arc::new));
        listeners.asleep.extend(own.clone());
        drop(listeners);
        if self.events() == last_events {
            let recheck = own.is_none().then(|| now() + RECHECK_INTERVAL);
            let until = until.into_iter().chain(recheck).min();
            let budget = until.map(|until| (until - now()).into());
            // the caller checks again, whether it was woken or failed
            let _ = match &own {
                Some(own) => readable([self.epoll.as_fd(), own.as_fd()], budget).map(drop),
                None => readable([self.epoll.as_fd()], budget).map(drop),
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

impl Bell for Poller {
    fn ring(&self) {
        // the write fails only on a full counter, which rings already
        let _ = write(&self.inner, &1_u64.to_ne_bytes());
        self.notify_listeners();
    }

    fn events(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }

    fn listen(&self, last_events: u32, until: Option<Instant>) -> Duration {
        let mut budget = self.budget.try_lock().ok();
        if let Some(budget) = &mut budget {
            budget.start_wait();
            while budget.is_left() && until.is_none_or(|until| now() < until) {
                if self.events() != last_events || self.is_ready() {
                    budget.poll_succeeded();
                    return Duration::ZERO;
                }
            }
        }
        let before = now();
        self.sleep(last_events, until);
        if let Some(budget) = &mut budget {
            budget.slept();
        }
        now() - before
    }
}
