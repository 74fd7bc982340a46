//! One program as the server sees it: its transport, and its frames that wait.

use super::turn::ClientTurn;
use crate::body::EventBody;
use crate::broker::Broker;
use crate::task::{ClientId, Received};
use rustix::event::epoll::EventFlags;
use std::collections::VecDeque;
use std::io::ErrorKind;
use unisono_events_wire::tls;
use unisono_events_wire::transport::{
    Awaited, BufferShare, Drained, FrameTransport, MayWait, PayloadRef, PollFor, SharedPayload, Taken,
    TransportError,
};
use unisono_linux::clock;

/// Maximum bytes of answers kept for a program that does not read. Its events stay in its inboxes, so only
/// answers to its requests are kept here. A program that reads one answer before its next request has fewer.
const MAX_KEPT: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct ServedClient {
    pub(super) transport: Box<dyn FrameTransport>,
    /// Frames that the transport did not take.
    kept: VecDeque<(Vec<u8>, Option<EventBody>)>,
    kept_bytes: usize,
    /// An event that waits for room in an inbox.
    waiting: Option<(Vec<u8>, Option<SharedPayload>)>,
    /// The events that epoll waits for.
    pub(super) watched: EventFlags,
    /// Whether the first frame has come.
    has_spoken: bool,
    /// Whether the program has sent its greeting, so that it may send frames up to its rule's limit.
    has_greeted: bool,
    /// Maximum bytes of the greeting.
    greeting: usize,
    /// The account of the kept answers' memory.
    share: BufferShare,
    /// Orders about rings since the beginning.
    orders: u32,
    /// Whether the program waits for the next turn of its tenant.
    pub(super) is_deferred: bool,
    /// `None`: the connection goes on.
    ended: Option<ReadingOut>,
}

/// A connection whose other end is gone. Frames that had come are still read; no frame is sent.
#[derive(Debug, Default)]
struct ReadingOut {
    /// The number of consecutive readings that found neither a frame nor the end.
    empty_readings: u32,
}

/// Readings without a frame after which an ended connection has no more. The first one may only show that the
/// kernel gave fewer bytes than there was room for.
const MAX_EMPTY_READINGS: u32 = 3;

/// The result of reading from a program.
#[derive(Debug)]
pub(super) enum ClientReceived {
    All,
    /// More frames may have come.
    Part,
    /// An event of the program waits for room.
    Blocked,
    Gone(TransportError),
}

impl ServedClient {
    /// Makes the state of a program that has just connected, with a greeting of at most `greeting` bytes.
    pub(super) fn new(mut transport: Box<dyn FrameTransport>, greeting: usize, share: BufferShare) -> Self {
        transport.limit_incoming(greeting);
        transport.charge_to(share.beside());
        Self {
            transport,
            kept: VecDeque::new(),
            kept_bytes: 0,
            waiting: None,
            watched: EventFlags::IN,
            has_spoken: false,
            has_greeted: false,
            greeting,
            share,
            orders: 0,
            is_deferred: false,
            ended: None,
        }
    }

    /// Notes that the other end is gone, and drops the frames that wait for it. Returns whether that is new.
    pub(super) fn end(&mut self) -> bool {
        self.kept.clear();
        self.kept_bytes = 0;
        // giving back never fails
        let _ = self.share.resize(0);
        self.ended.replace(ReadingOut::default()).is_none()
    }

    /// Returns whether the other end is gone.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns whether an ended connection has no more frames, after a turn that has read all there were.
    pub(super) fn is_read_out(&mut self, turn: &ClientTurn) -> bool {
        self.ended.as_mut().is_some_and(|ended| {
            ended.empty_readings = if turn.has_received() { 0 } else { ended.empty_readings + 1 };
            ended.empty_readings >= MAX_EMPTY_READINGS
        })
    }

    /// Sends a frame to the program, or keeps it if the transport has no room.
    ///
    /// # Errors
    /// The program is gone, or has not read its answers for too long.
    pub(super) fn send(
        &mut self,
        broker: &mut Broker,
        id: ClientId,
        (head, body): (Vec<u8>, Option<EventBody>),
    ) -> Result<(), TransportError> {
        if self.has_ended() {
            return Ok(());
        }
        if self.kept.is_empty() {
            let payload = body.as_ref().map_or(PayloadRef::Bytes(&[]), EventBody::as_payload);
            if self.transport.send(&head, payload)? == Taken::Taken {
                broker.recycle_head(head);
                return Ok(());
            }
        }
        broker.paused(id);
        self.kept_bytes += head.len();
        self.kept.push_back((head, body));
        if self.kept_bytes > MAX_KEPT || !self.share.resize(self.kept_bytes) {
            return Err(TransportError::Failed(ErrorKind::OutOfMemory.into()));
        }
        Ok(())
    }

    /// Sends an order about a ring to the program, or keeps it if the transport has no room. The program
    /// learns at once that an order exists.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) fn order(
        &mut self,
        broker: &mut Broker,
        id: ClientId,
        head: Vec<u8>,
    ) -> Result<(), TransportError> {
        self.orders = self.orders.wrapping_add(1);
        self.transport.announce_orders(self.orders);
        self.send(broker, id, (head, None))
    }

    /// Sends kept frames. While some stay here, the program is paused. Returns whether the program was
    /// resumed.
    ///
    /// # Errors
    /// The program is gone.
    pub(super) fn send_on(&mut self, broker: &mut Broker, id: ClientId) -> Result<bool, TransportError> {
        if self.has_ended() {
            return Ok(false);
        }
        loop {
            if self.transport.flush()? == Drained::Part {
                broker.paused(id);
                return Ok(false);
            }
            let Some((head, body)) = self.kept.front() else { return Ok(broker.resumed(id)) };
            let payload = body.as_ref().map_or(PayloadRef::Bytes(&[]), EventBody::as_payload);
            if self.transport.send(head, payload)? == Taken::Full {
                broker.paused(id);
                return Ok(false);
            }
            self.kept_bytes -= head.len();
            self.kept.pop_front();
            // giving back never fails
            let _ = self.share.resize(self.kept_bytes);
        }
    }

    /// Returns the events that epoll has to wait for.
    pub(super) fn interest(&self) -> EventFlags {
        let frames = if self.waiting.is_none() { EventFlags::IN } else { EventFlags::empty() };
        match self.transport.poll_for() {
            PollFor::Frames => frames,
            PollFor::FramesAndRoom => frames | EventFlags::OUT,
            PollFor::Rings | PollFor::Anything => EventFlags::IN,
        }
    }

    /// Returns whether the broker may sleep until the program's descriptor is ready.
    pub(super) fn may_wait(&mut self) -> bool {
        let awaited = if self.waiting.is_none() { Awaited::FramesAndRoom } else { Awaited::Room };
        !matches!(self.transport.prepare_to_wait(awaited), Ok(MayWait::No))
    }

    /// Returns whether frames wait here that the transport did not take.
    pub(super) fn keeps_frames(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Returns whether the other end's kernel has acknowledged all frames.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.kept.is_empty() && self.transport.is_acknowledged()
    }

    /// Replaces the transport by the one for the protocol that the other end has shown.
    pub(super) fn settle(&mut self, mut settled: Box<dyn FrameTransport>) {
        settled.limit_incoming(self.greeting);
        settled.charge_to(self.share.beside());
        self.transport = settled;
    }

    /// Raises the limit on frames to the rule's, once the program has greeted.
    #[inline]
    fn notice_greeting(&mut self, broker: &Broker, id: ClientId) {
        if !self.has_greeted
            && let Some(most) = broker.largest_of(id)
        {
            self.has_greeted = true;
            self.transport.limit_incoming(most);
        }
    }

    /// Renews the limit on frames after the program's rule has changed.
    pub(super) fn limit_frames(&mut self, broker: &Broker, id: ClientId) {
        self.has_greeted = false;
        self.notice_greeting(broker, id);
    }

    /// Passes frames to the broker while the program's turn lasts.
    pub(super) fn receive_frames(
        &mut self,
        broker: &mut Broker,
        id: ClientId,
        turn: &mut ClientTurn,
    ) -> ClientReceived {
        if self.waiting.is_some() {
            return ClientReceived::Blocked;
        }
        if broker.is_ahead(turn.now, id) {
            return ClientReceived::Part;
        }
        while turn.goes_on(clock::now) {
            let now = turn.now;
            match self.transport.receive() {
                Ok(None) => {
                    if !self.transport.stopped_early() {
                        return ClientReceived::All;
                    }
                    turn.end_by_bytes();
                    return ClientReceived::Part;
                }
                Ok(Some(frame)) if !self.has_spoken => {
                    self.has_spoken = true;
                    let (bytes, shared) = (frame.bytes.to_vec(), frame.shared_payload);
                    if let Some(chain) = self.transport.peer_certificates() {
                        let names = chain.first().map(|own| tls::names(own));
                        broker.secured(id, names.unwrap_or_default());
                    }
                    // a greeting never blocks
                    let _ = broker.received(now, id, &bytes, shared);
                    turn.spend(bytes.len(), broker.take_work());
                    self.notice_greeting(broker, id);
                }
                Ok(Some(frame)) => {
                    let again = frame.shared_payload.clone();
                    let received = broker.received(now, id, frame.bytes, frame.shared_payload);
                    turn.spend(frame.bytes.len(), broker.take_work());
                    match received {
                        Received::Done => self.notice_greeting(broker, id),
                        Received::Ahead => return ClientReceived::Part,
                        Received::Blocked => {
                            self.waiting = Some((frame.bytes.to_vec(), again));
                            return ClientReceived::Blocked;
                        }
                    }
                }
                Err(TransportError::Broken(what)) => {
                    broker.send_away(clock::now(), id, &what);
                    return ClientReceived::All;
                }
                Err(TransportError::Oversized { bytes, most }) => {
                    broker.send_away_oversized(clock::now(), id, (bytes, most));
                    return ClientReceived::All;
                }
                Err(TransportError::NoTls) => {
                    broker.count_tls_failure();
                    let what = "this address speaks TLS; connect to tls:HOST:PORT with --authority FILE";
                    broker.send_away(clock::now(), id, what);
                    return ClientReceived::All;
                }
                Err(error) => return ClientReceived::Gone(error),
            }
        }
        ClientReceived::Part
    }

    /// Passes the blocked frame to the broker again; returns whether it was taken.
    pub(super) fn try_again(&mut self, broker: &mut Broker, id: ClientId) -> bool {
        if let Some((bytes, shared)) = &self.waiting
            && broker.received(clock::now(), id, bytes, shared.clone()) == Received::Blocked
        {
            return false;
        }
        self.waiting = None;
        true
    }
}
