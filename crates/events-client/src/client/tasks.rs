//! A client for tasks: its waits let other tasks run, on any runtime that can watch a descriptor.
//!
//! ```text
//!   runtime  --watches-->  one epoll descriptor, the same for the client's whole life
//!                            |-- the client's descriptor, which changes with each reconnection
//!                            `-- a timer: attempts to publish, renewals of the lease
//! ```
//! The program states once how its runtime watches a descriptor; this module depends on no runtime and starts
//! no thread. The drop of a future of this client cancels a wait and loses no event.
//!
//! Cost: two system calls for each wait, in addition to the runtime's. Calls that wait for an answer of the
//! broker ([`Client::advertise`], [`Client::subscribe`], [`Client::try_publish`]) and [`Client::request`]
//! still block their thread; they are made through [`AsyncClient::client`]. A program should use a separate
//! client for requests.

use super::{Client, Error, EventDraft, PublishProgress, Reception, TopicHandle};
use futures_core::Stream;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The time between two attempts to publish to a consumer that has no room, because a ring has no descriptor
/// that reports room. 500 attempts per second are little work. Chosen, not measured.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The number of receptions in a row after which other tasks have a turn: as many as the broker sends to a
/// client in a turn.
const MAX_IN_A_ROW: u32 = 64;

/// A [`Client`] for one task. It is a [`Stream`] of receptions, which ends after an error.
///
/// `R` asks the runtime whether the descriptor has become readable, and if not, makes the runtime wake the
/// task once it has. The example uses async-io; tokio's `AsyncFd` has `poll_read_ready(context).map_ok(|mut
/// ready| ready.clear_ready())`.
///
/// ```
/// # mod serving { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/serving.rs")); }
/// use std::os::fd::OwnedFd;
/// use std::task::Context;
/// use unisono_events_client::{Advertisement, AsyncClient, Client, EventDraft, Reception, SubscriptionSpec};
///
/// # let broker = serving::ServedBroker::start();
/// # let address = broker.address();
/// # async_io::block_on(async {
/// let mut client = AsyncClient::new(Client::at(&address)?, |descriptor: OwnedFd| {
///     let watched = async_io::Async::new(descriptor)?;
///     Ok(move |context: &mut Context<'_>| watched.poll_readable(context))
/// })?;
/// let heat = client.client().advertise(&Advertisement::new("plant/1/heat"))?;
/// client.client().subscribe(&SubscriptionSpec::new("plant/+/heat"))?;
/// client.publish(heat, &EventDraft::new(b"81.5")).await?;
/// let Reception::Event(event) = client.receive().await? else { panic!("no event") };
/// assert_eq!(&*event.payload.bytes(), b"81.5");
/// # Ok::<(), unisono_events_client::Error>(())
/// # })?;
/// # Ok::<(), unisono_events_client::Error>(())
/// ```
pub struct AsyncClient<R> {
    client: Client,
    poll_ready: R,
    ready: OwnedFd,
    timer: OwnedFd,
    /// The duplicate of the client's descriptor that `ready` watches, with the number of the connection and
    /// the number of the original descriptor.
    watched: Option<((u32, RawFd), OwnedFd)>,
    in_a_row: u32,
    has_failed: bool,
}

impl<R> fmt::Debug for AsyncClient<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncClient").field("client", &self.client).finish_non_exhaustive()
    }
}

impl<R: FnMut(&mut Context<'_>) -> Poll<io::Result<()>>> AsyncClient<R> {
    /// Makes the runtime watch the client: `watch` gets the descriptor to watch for reading.
    ///
    /// # Errors
    /// No descriptor is left, or the runtime refuses to watch one.
    pub fn new(client: Client, watch: impl FnOnce(OwnedFd) -> io::Result<R>) -> Result<Self, Error> {
        let ready = epoll::create(CreateFlags::CLOEXEC).map_err(Error::from_errno)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(Error::from_errno)?;
        epoll::add(&ready, &timer, EventData::new_u64(0), EventFlags::IN).map_err(Error::from_errno)?;
        let poll_ready = watch(ready.try_clone().map_err(failed)?).map_err(failed)?;
        Ok(Self { client, poll_ready, ready, timer, watched: None, in_a_row: 0, has_failed: false })
    }

    /// Returns the client itself, to advertise, subscribe and acknowledge.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Waits for the next event or notice.
    ///
    /// # Errors
    /// The errors of [`Client::receive`].
    pub async fn receive(&mut self) -> Result<Reception, Error> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// Publishes an event as [`Client::publish`] does. Other tasks run while a consumer whose policy blocks
    /// suppliers has no room.
    ///
    /// # Errors
    /// The errors of [`Client::publish`].
    pub async fn publish(&mut self, topic: TopicHandle, event: &EventDraft<'_>) -> Result<(), Error> {
        loop {
            match self.client.publish_within(topic, event, Duration::ZERO)? {
                PublishProgress::Left => return Ok(()),
                PublishProgress::Leaving => return self.flush().await,
                PublishProgress::NotTaken => self.wait_for_room().await?,
            }
        }
    }

    /// Sends all buffered events, and waits until they have left.
    ///
    /// # Errors
    /// The errors of [`Client::flush`].
    pub async fn flush(&mut self) -> Result<(), Error> {
        while !self.client.flush_within(Duration::ZERO)? {
            self.wait_for_room().await?;
        }
        Ok(())
    }

    async fn wait_for_room(&mut self) -> Result<(), Error> {
        self.arm(ROOM_POLL_INTERVAL)?;
        poll_fn(|context| {
            loop {
                // the descriptor may be ready for another reason than the timer, which does not matter here
                if rustix::io::read(&self.timer, &mut [0; 8]).is_ok() {
                    return Poll::Ready(Ok(()));
                }
                ready!((self.poll_ready)(context)).map_err(failed)?;
            }
        })
        .await
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<Reception, Error>> {
        if self.in_a_row == MAX_IN_A_ROW {
            self.in_a_row = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            if let Some(reception) = self.client.receive(Some(Duration::ZERO))? {
                self.in_a_row += 1;
                return Poll::Ready(Ok(reception));
            }
            self.watch_client()?;
            let renewal = self.client.lease.as_ref().map(|lease| lease.period / 3);
            self.arm(renewal.map_or(Duration::ZERO, Duration::from))?;
            let Poll::Ready(is_ready) = (self.poll_ready)(context) else {
                self.in_a_row = 0;
                return Poll::Pending;
            };
            is_ready.map_err(failed)?;
        }
    }

    /// Makes the timer wake the task after this time. Zero disarms the timer.
    fn arm(&self, time: Duration) -> Result<(), Error> {
        let it_value = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).map_err(Error::from_errno)?;
        Ok(())
    }

    /// Makes `ready` watch the client's present descriptor. If `ready` already watches it, the kernel checks
    /// the descriptor again, so that a runtime that waits only for changes misses nothing.
    fn watch_client(&mut self) -> Result<(), Error> {
        let descriptor = self.client.as_fd();
        let of = (self.client.connection, descriptor.as_raw_fd());
        if let Some((_, former)) = self.watched.take_if(|(known, _)| *known != of) {
            epoll::delete(&self.ready, former).map_err(Error::from_errno)?;
        }
        let data = EventData::new_u64(1);
        if let Some((_, copy)) = &self.watched {
            return epoll::modify(&self.ready, copy, data, EventFlags::IN).map_err(Error::from_errno);
        }
        let copy = descriptor.try_clone_to_owned().map_err(failed)?;
        epoll::add(&self.ready, &copy, data, EventFlags::IN).map_err(Error::from_errno)?;
        self.watched = Some((of, copy));
        Ok(())
    }
}

fn failed(error: io::Error) -> Error {
    Error::Broken(error.into())
}

impl<R: FnMut(&mut Context<'_>) -> Poll<io::Result<()>> + Unpin> Stream for AsyncClient<R> {
    type Item = Result<Reception, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_failed {
            return Poll::Ready(None);
        }
        let received = ready!(self.poll_receive(context));
        self.has_failed = received.is_err();
        Poll::Ready(Some(received))
    }
}
