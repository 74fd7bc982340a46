//! The broker as a state machine: who is connected, what may be handed over, what goes on the link next.
//!
//! ```text
//!   connected, received, gone  --->  Broker  --->  Task  (answer, open a socket, close one)
//!   opened, transmitted, drained, broken ->  --->  Next  (send this now; wait until then; nothing to do)
//! ```
//! No socket, no clock: the caller says what happened and when. Times never decrease.
//!
//! A message's way: it costs its channel credit, waits in its class, is chosen by start-time fair queuing
//! when the link is free, is sent, and its credit comes back. Where a destination takes nothing more (a
//! connection whose window is full), the channel *stalls*: what is chosen meanwhile is kept at its socket,
//! what arrives is held before the scheduler, and nobody else waits for it. Both are part of the credit, so
//! that memory has a bound.

mod abandoned;
mod statistics;

use crate::account::Account;
use crate::destination::Destination;
use crate::frame::Frame;
use crate::limits::Limits;
use crate::pace::Pace;
use crate::task::{ChannelId, ClientId, Next, Sent, Task};
use std::collections::{BTreeMap, HashMap, VecDeque};
use unisono_fairqueue::{ClassId, Discipline, Hierarchy, Packet, Scheduler};

/// A message between hand-over and sending.
#[derive(Debug)]
struct WaitingMessage {
    channel: ChannelId,
    came: u64,
    payload: Vec<u8>,
}

/// The one in service.
#[derive(Debug)]
struct InService {
    channel: ChannelId,
    class: ClassId,
    came: u64,
    deadline: u64,
    length: u32,
    cost: u32,
}

#[derive(Debug, Default)]
struct ConnectedClient {
    user: u32,
    /// When it connected.
    since: u64,
    greeted: bool,
    /// By the program's own numbers.
    channels: BTreeMap<u32, ChannelId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChannelState {
    /// Its socket is being made.
    Opening,
    Open,
    /// No more messages come; those that are there are sent.
    Draining,
    /// Its destination is gone; the program has been told.
    Broken,
}

#[derive(Debug)]
struct OpenChannel {
    /// Nobody once its program has gone.
    client: Option<ClientId>,
    /// Whose program that is, or was.
    user: u32,
    /// When its program left it, or its destination last took something since.
    alone_since: u64,
    number: u32,
    class: ClassId,
    destination: Destination,
    state: ChannelState,
    /// Credit that messages here have cost.
    outstanding: u32,
    /// Credit that is free again and has not been given back.
    owed: u32,
    /// Whether its program waits for all of it.
    flushing: bool,
    stalled: bool,
    /// The cost of what is kept at the socket.
    kept: u32,
    held: VecDeque<Packet<WaitingMessage>>,
}

#[derive(Debug)]
pub struct Broker {
    limits: Limits,
    scheduler: Scheduler<WaitingMessage>,
    pace: Pace,
    accounts: BTreeMap<ClassId, Account>,
    clients: HashMap<ClientId, ConnectedClient>,
    channels: HashMap<ChannelId, OpenChannel>,
    next_channel: u32,
    sent_away: u64,
    /// When to look for programs and destinations that do nothing.
    next_look: u64,
    /// What was dequeued last, until the link is free.
    busy: bool,
    in_service: Option<InService>,
    tasks: VecDeque<Task>,
}

impl Broker {
    /// A broker of a policy's classes and its rate.
    #[must_use]
    pub fn new(hierarchy: Hierarchy, pace: Pace, mut limits: Limits) -> Self {
        // half of the credit has to be enough for a message: the other half may not have been given back yet
        limits.credit = limits.credit.max(2 * Limits::cost(limits.largest as usize));
        let leaves = hierarchy.classes().filter(|(id, _)| hierarchy.is_leaf(*id));
        let accounts = leaves.map(|(id, _)| (id, Account::default())).collect();
        Self {
            limits,
            scheduler: Scheduler::new(hierarchy),
            pace,
            accounts,
            clients: HashMap::new(),
            channels: HashMap::new(),
            next_channel: 0,
            sent_away: 0,
            next_look: 0,
            busy: false,
            in_service: None,
            tasks: VecDeque::new(),
        }
    }

    /// How much it takes on.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What is to be done, in order, until there is nothing.
    pub fn task(&mut self) -> Option<Task> {
        self.tasks.pop_front()
    }

    /// A program of this user has connected; whether it may stay.
    pub fn connected(&mut self, now: u64, client: ClientId, user: u32) -> bool {
        self.advance(now);
        let theirs = self.clients.values().filter(|client| client.user == user).count();
        let may = self.clients.len() < self.limits.clients && theirs < self.limits.clients_of_user;
        if may {
            self.clients.insert(client, ConnectedClient { user, since: now, ..ConnectedClient::default() });
        }
        may
    }

    /// A program has sent a frame.
    pub fn received(&mut self, now: u64, client: ClientId, bytes: &[u8]) {
        self.advance(now);
        let Some(greeted) = self.clients.get(&client).map(|client| client.greeted) else { return };
        let done = match Frame::read(bytes) {
            Err(bad) => Err(bad.to_string()),
            Ok(Frame::Hello) if !greeted => {
                self.clients.entry(client).or_default().greeted = true;
                self.answer(client, &Frame::Welcome { largest: self.limits.largest });
                Ok(())
            }
            Ok(_) if !greeted => Err("the first frame has to be a greeting".to_owned()),
            Ok(Frame::Open { channel, destination, class }) => self.open(client, channel, destination, class),
            Ok(Frame::Message { channel, deadline, payload }) => {
                self.message(now, client, channel, deadline, payload)
            }
            Ok(Frame::Close { channel }) => self.close(now, client, channel),
            Ok(Frame::Flush { channel }) => self.flush(client, channel),
            Ok(Frame::Ask) => {
                let json = self.statistics_as_json(now);
                self.answer(client, &Frame::Statistics { json: &json });
                Ok(())
            }
            Ok(_) => Err("a frame that only a broker sends, or a second greeting".to_owned()),
        };
        if let Err(reason) = done {
            self.send_away(now, client, &reason);
        }
    }

    /// A program has gone, or does not read what it is sent. What it has handed over is still sent.
    pub fn gone(&mut self, now: u64, client: ClientId) {
        self.advance(now);
        let Some(client) = self.clients.remove(&client) else { return };
        for id in client.channels.into_values() {
            self.leave(now, id);
        }
    }

    /// The same, because of what it did.
    pub fn send_away(&mut self, now: u64, client: ClientId, reason: &str) {
        if self.clients.contains_key(&client) {
            self.sent_away += 1;
            self.answer(client, &Frame::Bye { reason });
            self.tasks.push_back(Task::SendAway { client });
            self.gone(now, client);
        }
    }

    fn open(
        &mut self,
        client: ClientId,
        number: u32,
        destination: Destination,
        class: &str,
    ) -> Result<(), String> {
        let ConnectedClient { user, channels: theirs, .. } = self.clients.get(&client).ok_or("it is gone")?;
        let user = *user;
        if theirs.contains_key(&number) {
            return Err(format!("the channel {number} is open already; close it first"));
        }
        let hierarchy = self.scheduler.hierarchy();
        let found = if class.is_empty() { hierarchy.default_class() } else { hierarchy.find(class) };
        let credit = u64::from(self.limits.credit);
        let reserved = self.channels.len() as u64 * credit;
        let of_user = self.channels.values().filter(|channel| channel.user == user).count() as u64 * credit;
        let refused = match found {
            None if class.is_empty() => Some("the policy has no default class; name one".to_owned()),
            None => Some(format!("the policy has no class `{class}`")),
            Some(id) if !hierarchy.is_leaf(id) => {
                Some(format!("the class `{class}` has children; name one of its leaves"))
            }
            Some(_) if theirs.len() >= self.limits.channels => {
                Some(format!("a program may have {} channels; close one", self.limits.channels))
            }
            Some(_) if reserved + credit > self.limits.memory => Some(format!(
                "the broker has given all credit it may ({} bytes); try later",
                self.limits.memory
            )),
            Some(_) if of_user + credit > self.limits.memory_of_user => Some(format!(
                "the programs of user {user} have all credit that one user may have ({} bytes); close a channel",
                self.limits.memory_of_user
            )),
            Some(_) => None,
        };
        let (Some(class), None) = (found, &refused) else {
            let reason = refused.as_deref().unwrap_or_default();
            self.answer(client, &Frame::Closed { channel: number, reason });
            return Ok(());
        };
        while self.channels.contains_key(&ChannelId(self.next_channel)) {
            self.next_channel = self.next_channel.wrapping_add(1);
        }
        let id = ChannelId(self.next_channel);
        self.next_channel = self.next_channel.wrapping_add(1);
        let channel = OpenChannel {
            client: Some(client),
            user,
            alone_since: 0,
            number,
            class,
            destination: destination.clone(),
            state: ChannelState::Opening,
            outstanding: 0,
            owed: 0,
            flushing: false,
            stalled: false,
            kept: 0,
            held: VecDeque::new(),
        };
        self.channels.insert(id, channel);
        self.clients.entry(client).or_default().channels.insert(number, id);
        self.tasks.push_back(Task::Open { channel: id, destination });
        Ok(())
    }

    /// A channel's socket is there; `stalled` if it takes nothing yet.
    pub fn opened(&mut self, id: ChannelId, stalled: bool) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        channel.stalled = stalled;
        if channel.state == ChannelState::Opening {
            channel.state = ChannelState::Open;
            if let Some(client) = channel.client {
                let frame = Frame::Opened { channel: channel.number, credit: self.limits.credit };
                answer(&mut self.tasks, client, &frame);
            }
        }
    }

    fn message(
        &mut self,
        now: u64,
        client: ClientId,
        number: u32,
        deadline: u64,
        payload: &[u8],
    ) -> Result<(), String> {
        let largest = self.limits.largest as usize;
        if payload.len() > largest {
            return Err(format!("a payload of {} bytes; the longest has {largest}", payload.len()));
        }
        let known = self.clients.get(&client).and_then(|client| client.channels.get(&number)).copied();
        let id = known.ok_or_else(|| format!("a message on channel {number}, which was never opened"))?;
        let channel = self.channels.get_mut(&id).ok_or("its channel is gone")?;
        match channel.state {
            ChannelState::Open => {}
            ChannelState::Broken => return Ok(()), // sent before it could know
            ChannelState::Opening => {
                return Err(format!("a message on channel {number} before it was opened"));
            }
            ChannelState::Draining => {
                return Err(format!("a message on channel {number} after it was closed"));
            }
        }
        let cost = Limits::cost(payload.len());
        let used = channel.outstanding.saturating_add(channel.owed).saturating_add(cost);
        if used > self.limits.credit {
            return Err(format!("more on channel {number} than its credit of {} bytes", self.limits.credit));
        }
        channel.outstanding += cost;
        let packet = Packet {
            length: channel.destination.wire_length(payload.len()),
            flow: id.0,
            deadline,
            item: WaitingMessage { channel: id, came: now, payload: payload.to_vec() },
        };
        if channel.stalled {
            channel.held.push_back(packet);
        } else {
            let class = channel.class;
            self.enqueue(now, class, packet);
        }
        Ok(())
    }

    fn enqueue(&mut self, now: u64, class: ClassId, packet: Packet<WaitingMessage>) {
        let (channel, cost) = (packet.item.channel, Limits::cost(packet.item.payload.len()));
        if self.scheduler.enqueue(now, class, packet).is_err() {
            // a leaf, and a length that was checked: cannot be, but would have to give its credit back
            self.lose(class);
            self.give_back(channel, cost);
        }
        while let Some((class, packet)) = self.scheduler.dropped() {
            self.accounts.entry(class).or_default().dropped += 1;
            self.give_back(packet.item.channel, Limits::cost(packet.item.payload.len()));
        }
    }

    fn close(&mut self, now: u64, client: ClientId, number: u32) -> Result<(), String> {
        let theirs = &mut self.clients.get_mut(&client).ok_or("it is gone")?.channels;
        let known = theirs.remove(&number);
        let id = known.ok_or_else(|| format!("channel {number} cannot be closed: it was never opened"))?;
        self.leave(now, id);
        Ok(())
    }

    /// No more messages come on a channel, which has no program any more.
    fn leave(&mut self, now: u64, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        (channel.client, channel.alone_since) = (None, now);
        if channel.state != ChannelState::Broken {
            channel.state = ChannelState::Draining;
        }
        self.forget_if_empty(id);
    }

    /// Forgets a channel that no program knows and no message is on.
    fn forget_if_empty(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get(&id) else { return };
        if channel.client.is_none() && channel.outstanding == 0 {
            if channel.state == ChannelState::Draining {
                self.tasks.push_back(Task::Release { channel: id });
            }
            self.channels.remove(&id);
        }
    }

    /// Messages that cost so much have left a channel, one way or another.
    fn give_back(&mut self, id: ChannelId, cost: u32) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        channel.outstanding -= cost.min(channel.outstanding);
        channel.owed += cost;
        self.pay(id);
        self.forget_if_empty(id);
    }

    /// Gives credit back in halves, so that a program that does not look for it has few answers waiting; all
    /// of it when its program waits for that.
    fn pay(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let is_empty = channel.flushing && channel.outstanding == 0;
        let is_due = is_empty || channel.owed >= self.limits.credit / 2;
        if is_due
            && channel.state != ChannelState::Broken
            && let Some(client) = channel.client
        {
            channel.flushing &= !is_empty;
            let frame = Frame::Credit { channel: channel.number, bytes: std::mem::take(&mut channel.owed) };
            answer(&mut self.tasks, client, &frame);
        }
    }

    fn flush(&mut self, client: ClientId, number: u32) -> Result<(), String> {
        let known = self.clients.get(&client).and_then(|client| client.channels.get(&number)).copied();
        let id = known.ok_or_else(|| format!("channel {number} cannot be flushed: it was never opened"))?;
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.flushing = true;
        }
        self.pay(id);
        Ok(())
    }

    fn lose(&mut self, class: ClassId) {
        self.accounts.entry(class).or_default().lost += 1;
    }

    /// Time has passed: what was in service may have been served.
    fn advance(&mut self, now: u64) {
        self.look(now);
        if self.busy && now >= self.pace.free_at() {
            self.busy = false;
            self.scheduler.finish(now);
        }
    }

    /// What to send now.
    pub fn next(&mut self, now: u64) -> Next {
        self.advance(now);
        if now < self.pace.free_at() {
            return if self.busy || self.scheduler.backlog().packets > 0 {
                Next::Wait(self.pace.free_at())
            } else {
                Next::Idle
            };
        }
        loop {
            let Some((class, packet)) = self.scheduler.dequeue(now) else { return Next::Idle };
            let Packet { length, deadline, item: WaitingMessage { channel, came, payload }, .. } = packet;
            let cost = Limits::cost(payload.len());
            if self.channels.get(&channel).is_none_or(|channel| channel.state == ChannelState::Broken) {
                self.lose(class);
                self.give_back(channel, cost);
                continue; // nothing of it goes on the link
            }
            self.pace.take(now, length);
            self.busy = true;
            self.in_service = Some(InService { channel, class, came, deadline, length, cost });
            return Next::Transmit { channel, payload };
        }
    }

    /// How sending went of what [`next`](Self::next) chose.
    pub fn transmitted(&mut self, now: u64, sent: Sent) {
        let Some(InService { channel: id, class, came, deadline, length, cost }) = self.in_service.take()
        else {
            return;
        };
        if sent == Sent::Lost {
            self.lose(class);
        } else {
            self.accounts.entry(class).or_default().sent(now, came, deadline, length);
        }
        match self.channels.get_mut(&id) {
            Some(channel) if sent == Sent::Kept => {
                channel.kept += cost;
                channel.stalled = true;
            }
            _ => self.give_back(id, cost),
        }
    }

    /// What was kept at a channel's socket has left, and it takes more.
    pub fn drained(&mut self, now: u64, id: ChannelId) {
        self.advance(now);
        let Some(channel) = self.channels.get_mut(&id) else { return };
        (channel.stalled, channel.alone_since) = (false, now);
        let (class, held) = (channel.class, std::mem::take(&mut channel.held));
        let kept = std::mem::take(&mut channel.kept);
        if kept > 0 {
            self.give_back(id, kept);
        }
        for packet in held {
            self.enqueue(now, class, packet);
        }
    }

    fn answer(&mut self, client: ClientId, frame: &Frame<'_>) {
        answer(&mut self.tasks, client, frame);
    }

    /// Whether everything that was handed over has left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.values().all(|channel| channel.outstanding == 0)
    }
}

fn answer(tasks: &mut VecDeque<Task>, client: ClientId, frame: &Frame<'_>) {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    tasks.push_back(Task::Answer { client, frame: bytes });
}
