//! Followers: consumers that are given what the log has, event by event, as far as they have room.

use super::{Broker, TURN};
use crate::body::EventBody;
use crate::broker::{Addressee, answer};
use crate::frame::Frame;
use crate::log::{AcknowledgedFile, LogCursor, LogEntry, LoggedEvent};
use crate::notice::NoticeText;
use crate::spec::{AgainSpec, SubscriptionSpec, SupplierOrder, WhenFull, WhenLate};
use crate::task::ClientId;
use std::collections::{BTreeMap, HashMap};
use unisono_eventchannel::{
    Acknowledged, ChannelEvent, ConsumerId, EventPayload, InboxCapacity, Interest, TenantId,
};
use unisono_linux::clock::Nanos;

/// A consumer that is given what the log has.
#[derive(Debug)]
pub(super) struct LogFollower {
    pub(super) name: String,
    pub(super) interests: Vec<Interest>,
    pub(super) cursor: LogCursor,
    /// Events before this position were there before the consumer.
    pub(super) new_from: u64,
    /// Handed to its inbox and not acknowledged.
    pub(super) pending: BTreeMap<u64, PendingEvent>,
    pub(super) pending_bytes: usize,
    /// For each pending event, the channel's number of its last delivery.
    pub(super) deliveries: HashMap<u64, u64>,
    /// Of events and of bytes.
    pub(super) capacity: (usize, usize),
    pub(super) file: AcknowledgedFile,
}

/// An event on its way to a follower.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingEvent {
    bytes: usize,
    /// Numbers of names of the log, which are kept as long.
    pub(super) topic: u32,
    pub(super) writer: u32,
}

impl LogFollower {
    fn pend(&mut self, position: u64, event: &ChannelEvent<EventBody>) {
        let bytes = event.payload.length();
        let (topic, writer) = (event.topic.0, event.supplier.0);
        self.pending.insert(position, PendingEvent { bytes, topic, writer });
        self.pending_bytes += bytes;
    }

    pub(super) fn floor(&self) -> u64 {
        let first = self.pending.first_key_value().map_or(self.cursor.position(), |(first, _)| *first);
        first - 1
    }

    /// The last event may exceed the bytes: how large it is, is known when it has been read.
    pub(super) fn has_room(&self) -> bool {
        let (events, bytes) = self.capacity;
        self.pending.len() < events && self.pending_bytes < bytes.max(1)
    }
}

impl Broker {
    /// Makes a consumer that is given what the log has.
    pub(in crate::broker) fn follow(
        &mut self,
        now: Nanos,
        (client, lease, name): (ClientId, Option<Nanos>, &str),
        spec: &SubscriptionSpec,
    ) -> Result<ConsumerId, String> {
        let Some(resume) = &spec.resume else { return Err("it does not resume".to_owned()) };
        let Some(durable) = &mut self.durable else {
            return Err("this broker keeps no log; start it with --log DIRECTORY".to_owned());
        };
        let timers = spec.every_ns.is_some() || spec.silence_ns.is_some();
        let odd = [
            (spec.group.is_some(), "be of a group"),
            (spec.together.is_some(), "ask for events together"),
            (spec.reserve.is_some(), "reserve time"),
            (spec.between != SupplierOrder::Deadlines, "share its time out among suppliers"),
            (spec.late != WhenLate::Deliver, "drop what is late"),
            (
                spec.full != WhenFull::DropOldest,
                "say what a full queue does: what does not fit waits in the log",
            ),
            (timers, "have timers"),
            (spec.local_only, "be local only: the log does not say where events come from"),
        ];
        if let Some((_, what)) = odd.into_iter().find(|(is, _)| *is) {
            return Err(format!("a consumer that resumes cannot {what}"));
        }
        let connected = durable.followers.values().any(|follower| follower.name == resume.name);
        if connected {
            return Err(format!("the consumer `{}` is connected already; choose another name", resume.name));
        }
        let file = durable.log.acknowledged(&resume.name).map_err(|error| error.to_string())?;
        let next = durable.log.next();
        let after = resume.after.or(file.position()).unwrap_or(next - 1).min(next - 1);
        let interests = spec.interests().map_err(|error| self.access.refuse(&error))?;
        // repeated until it is acknowledged: only an acknowledgement raises the floor
        let again = spec.again.unwrap_or(AgainSpec { after_ns: 30_000_000_000, attempts: 0, window: 256 });
        let again = AgainSpec { attempts: u32::MAX, ..again };
        let mut consumer = SubscriptionSpec { again: Some(again), ..spec.clone() }.consumer();
        consumer.lease = lease;
        consumer.tenant = self.clients.get(&client).map_or(TenantId::NONE, |client| client.tenant);
        // the broker hands over no more than fits
        consumer.inbox.capacity = InboxCapacity { events: usize::MAX, bytes: usize::MAX };
        if consumer.name.is_empty() {
            consumer.name = if name.is_empty() { resume.name.as_str() } else { name }.into();
        }
        let id = self.channel.connect(now, consumer).map_err(|error| self.access.refuse(&error))?;
        let follower = LogFollower {
            name: resume.name.clone(),
            interests,
            cursor: LogCursor::at(after + 1),
            new_from: next,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            deliveries: HashMap::new(),
            capacity: (spec.queue_events.max(1), spec.queue_bytes),
            file,
        };
        durable.followers.insert(id, follower);
        durable.hungry.insert(id);
        // a name that has never acknowledged begins here also after a restart
        durable.unsaved.insert(id);
        Ok(id)
    }

    pub(in crate::broker) fn unfollow(&mut self, consumer: ConsumerId) {
        if let Some(durable) = &mut self.durable {
            durable.leave(consumer);
        }
    }

    /// Hands followers what the log has for them, as far as they have room. Whether there is more to hand.
    pub(in crate::broker) fn feed(&mut self, now: Nanos) -> bool {
        let Some(durable) = &mut self.durable else { return false };
        let mut handed = 0;
        while let Some(id) = durable.hungry.pop_first() {
            loop {
                if handed >= TURN {
                    durable.hungry.insert(id);
                    return true;
                }
                let Some(follower) = durable.followers.get_mut(&id) else { break };
                if !follower.has_room() {
                    break;
                }
                handed += 1;
                let entry = match durable.log.read(&mut follower.cursor) {
                    Ok(Some(entry)) => entry,
                    // what cannot be read now is tried again when something is published
                    Ok(None) | Err(_) => break,
                };
                let notice = match entry {
                    LogEntry::Lost { first, last } => Some((first, last)),
                    LogEntry::Event { position } => {
                        let body = follower.cursor.body().to_vec();
                        match LoggedEvent::read(&body) {
                            Ok(event) => {
                                let asked = |interest: &Interest| {
                                    interest.matches(event.topic, event.event_type, &event.fields)
                                };
                                if follower.interests.iter().any(asked) {
                                    let retained = position < follower.new_from;
                                    if let Some(event) = durable.event(now, &body, position) {
                                        if let Some(follower) = durable.followers.get_mut(&id) {
                                            follower.pend(position, &event);
                                        }
                                        if !self.channel.hand(now, id, event, retained) {
                                            durable.leave(id); // its lease has run out
                                        }
                                    }
                                } else {
                                    durable.unsaved.insert(id);
                                }
                                None
                            }
                            Err(_) => Some((position, position)),
                        }
                    }
                };
                if let Some((first, last)) = notice
                    && let Some(Addressee::Program { client, number }) = self.addressees.get(&id)
                {
                    let notice = NoticeText::Lost { first, last };
                    let frame = Frame::Notice { consumer: *number, notice };
                    answer(&mut self.tasks, *client, &frame);
                }
            }
        }
        false
    }

    /// The number by which a delivery is acknowledged: for a follower, its position in the log.
    pub(in crate::broker) fn delivered(&mut self, consumer: ConsumerId, position: u64, delivery: u64) -> u64 {
        let follower = self.durable.as_mut().and_then(|durable| durable.followers.get_mut(&consumer));
        let Some(follower) = follower else { return delivery };
        follower.deliveries.insert(position, delivery);
        position
    }

    /// A follower is done with an event. False: the consumer follows no log.
    pub(in crate::broker) fn acknowledge_position(&mut self, consumer: ConsumerId, position: u64) -> bool {
        let Some(durable) = &mut self.durable else { return false };
        let Some(follower) = durable.followers.get_mut(&consumer) else { return false };
        let delivery = follower.deliveries.get(&position).copied();
        // one that was too late is delivered again, which the program learns by that
        if let Some(delivery) = delivery
            && self.channel.acknowledge(consumer, delivery) == Acknowledged::Done
        {
            follower.deliveries.remove(&position);
            follower.pending_bytes -= follower.pending.remove(&position).map_or(0, |event| event.bytes);
            durable.hungry.insert(consumer);
            durable.unsaved.insert(consumer);
        }
        true
    }
}
