//! Followers: consumers that read the log, event by event, as far as they have room.

use super::{Broker, TURN};
use crate::body::EventBody;
use crate::broker::Addressee;
use crate::broker::names::NameUser;
use crate::log::{AcknowledgedFile, LogCursor, LogEntry, LoggedEvent, OwnedKind};
use crate::permissions::RefusalKind;
use crate::task::{ClientId, Task};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use unisono_eventchannel::{
    Acknowledged, ChannelEvent, ConsumerId, DispatchOrder, EVENT_ENTRY, InboxCapacity, Interest, TenantId,
};
use unisono_events_wire::NoticeText;
use unisono_events_wire::frame::Frame;
use unisono_events_wire::{AgainSpec, SubscriptionSpec, SupplierOrder, WhenFull, WhenLate};
use unisono_linux::clock::{Duration, Instant};

/// A consumer that reads from the log.
#[derive(Debug)]
pub(super) struct LogFollower {
    /// The key of its name in the log.
    pub(super) name: String,
    /// Whether the name is freed when the program unsubscribes.
    forget: bool,
    pub(super) interests: Vec<Interest>,
    /// The tenant that the interests count against.
    tenant: TenantId,
    /// The steps (see [`TURN`]) that an event takes: one for reading it, and more for comparing it with many
    /// interests.
    steps: usize,
    pub(super) cursor: LogCursor,
    /// Events before this position are older than the consumer.
    pub(super) new_from: u64,
    /// Events in its inbox, not acknowledged yet.
    pub(super) pending: BTreeMap<u64, PendingEvent>,
    pub(super) pending_bytes: usize,
    /// For each pending event, the channel's number of its last delivery.
    pub(super) deliveries: HashMap<u64, u64>,
    /// The range of lost positions that have not been reported to the follower. The notice waits for the
    /// follower's next event, or until the follower has read the log to its end. Otherwise a log with a gap
    /// after each event of other topics would cause a notice for each gap.
    lost: Option<(u64, u64)>,
    /// The capacity in events and in bytes.
    pub(super) capacity: (usize, usize),
    pub(super) file: AcknowledgedFile,
}

/// An event on its way to a follower.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingEvent {
    bytes: usize,
    /// The numbers of its topic and its writer (`names.rs`), which stay valid as long as the event is
    /// pending.
    pub(super) topic: u32,
    pub(super) writer: u32,
}

/// Comparing an event with this many interests takes about as long as reading the event. Chosen, not
/// measured.
const COMPARISONS: usize = 16;

/// Removes duplicates of interests without a filter. Interests with a filter may repeat: the limit on a
/// tenant's filter operations bounds them.
fn each_once(mut interests: Vec<Interest>) -> Vec<Interest> {
    let mut seen = HashSet::new();
    interests.retain(|interest| {
        let Interest { pattern, except, event_type, filter } = interest;
        filter.is_some() || seen.insert((pattern.clone(), Arc::clone(except), event_type.clone()))
    });
    interests
}

impl LogFollower {
    /// Counts an event's bytes as its queue does, and adds the bytes of its `names` beyond the first
    /// [`EVENT_ENTRY`].
    fn pend(&mut self, position: u64, event: &ChannelEvent<EventBody>, names: usize) {
        let bytes = event.weight().saturating_add(names.saturating_sub(EVENT_ENTRY));
        let (topic, writer) = (event.topic.0, event.supplier.0);
        self.pending.insert(position, PendingEvent { bytes, topic, writer });
        self.pending_bytes += bytes;
    }

    pub(super) fn floor(&self) -> u64 {
        let first = self.pending.first_key_value().map_or(self.cursor.position(), |(first, _)| *first);
        first - 1
    }

    fn miss(&mut self, first: u64, last: u64) {
        self.lost = Some((self.lost.map_or(first, |(first, _)| first), last));
    }

    /// Returns whether the follower may get another event. The last event may exceed the capacity in bytes,
    /// because an event's size is known only once it was read.
    pub(super) fn has_room(&self) -> bool {
        let (events, bytes) = self.capacity;
        self.pending.len() < events && self.pending_bytes < bytes.max(1)
    }
}

impl Broker {
    /// Makes a consumer that reads from the log.
    pub(in crate::broker) fn follow(
        &mut self,
        now: Instant,
        (client, user, lease, name): (ClientId, &NameUser, Option<Duration>, &str),
        spec: &SubscriptionSpec,
    ) -> Result<ConsumerId, String> {
        let Some(resume) = &spec.resume else { return Err("it does not resume".to_owned()) };
        if self.durable.is_none() {
            self.access.count(RefusalKind::Log);
            return Err("this broker keeps no log; start it with --log DIRECTORY".to_owned());
        }
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
        let key = self.check_consumer_name(user, &resume.name)?;
        let mut followers = self.durable.iter().flat_map(|durable| durable.followers.values());
        if followers.any(|follower| follower.name == key) {
            return Err(format!("the consumer `{}` is connected already; choose another name", resume.name));
        }
        let interests = each_once(spec.interests().map_err(|error| self.access.refuse(&error))?);
        // no limit on repeated deliveries: only an acknowledgement raises the floor, the position up to which
        // all events are acknowledged
        let again = spec.again.unwrap_or(AgainSpec { after_ns: 30_000_000_000, attempts: 0, window: 256 });
        let again = AgainSpec { attempts: u32::MAX, ..again };
        let mut consumer = SubscriptionSpec { again: Some(again), ..spec.clone() }.consumer();
        consumer.lease = lease;
        let tenant = self.clients.get(&client).map_or(TenantId::NONE, |client| client.tenant);
        consumer.tenant = tenant;
        // the broker itself puts no more into the inbox than fits
        consumer.inbox.capacity = InboxCapacity { events: usize::MAX, bytes: usize::MAX };
        consumer.inbox.order = DispatchOrder::Arrival;
        if consumer.name.is_empty() {
            consumer.name = if name.is_empty() { resume.name.as_str() } else { name }.into();
        }
        let taken = self.channel.take_interests(tenant, &interests);
        let id = taken.and_then(|()| {
            let connected = self.channel.connect(now, consumer);
            connected.inspect_err(|_| self.channel.release_interests(tenant, &interests))
        });
        let id = id.map_err(|error| self.access.refuse(&error))?;
        // the name's owner is saved before the name's file is made: if the broker ends in between, there is
        // no file of a name without an owner
        let file = self.take_name(OwnedKind::Consumer, &key, user).and_then(|()| {
            let log = self.durable.as_ref().map(|durable| &durable.log).ok_or("it keeps no log")?;
            log.acknowledged(&key).map_err(|error| error.to_string())
        });
        let (file, durable) = match (file, &mut self.durable) {
            (Ok(file), Some(durable)) => (file, durable),
            (file, _) => {
                self.channel.release_interests(tenant, &interests);
                self.channel.disconnect_unseen(now, id);
                return Err(file.err().unwrap_or_default());
            }
        };
        let next = durable.log.next();
        let after = resume.after.or(file.position()).unwrap_or(next - 1).min(next - 1);
        let follower = LogFollower {
            name: key,
            forget: resume.forget,
            steps: 1 + interests.iter().map(Interest::comparisons).sum::<usize>() / COMPARISONS,
            interests,
            tenant,
            cursor: LogCursor::at(after + 1),
            new_from: next,
            lost: None,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            deliveries: HashMap::new(),
            capacity: (spec.queue_events.max(1), spec.queue_bytes),
            file,
        };
        durable.followers.insert(id, follower);
        durable.readable.insert(id);
        // saves the present position, so that a consumer that acknowledges nothing begins here after a
        // restart, too
        durable.unsaved.insert(id);
        Ok(id)
    }

    pub(in crate::broker) fn unfollow(&mut self, consumer: ConsumerId) {
        let left = self.durable.as_mut().and_then(|durable| durable.leave(consumer));
        if let Some(LogFollower { tenant, interests, .. }) = left {
            self.channel.release_interests(tenant, &interests);
        }
    }

    /// Ends a follower whose program unsubscribes; frees the name if the program asked for that.
    pub(in crate::broker) fn unsubscribe_follower(&mut self, consumer: ConsumerId) {
        let follower = self.durable.as_ref().and_then(|durable| durable.followers.get(&consumer));
        let forgotten = follower.filter(|follower| follower.forget);
        let name = forgotten.map(|follower| follower.name.clone());
        self.unfollow(consumer);
        if let Some((name, durable)) = name.zip(self.durable.as_mut())
            && let Err(error) = durable.log.forget_consumer(&name)
        {
            let text = format!("the consumer `{name}` is still in the log: {error}");
            self.tasks.push_back(Task::Note { text });
        }
    }

    /// Returns whether no follower has events to read and room for them.
    pub(in crate::broker) fn log_is_read(&self) -> bool {
        self.durable.as_ref().is_none_or(|durable| durable.readable.is_empty())
    }

    /// Gives followers their next events of the log, as far as they have room, in at most about [`TURN`]
    /// steps. Returns whether more are due.
    pub(in crate::broker) fn fill_from_log(&mut self, now: Instant) -> bool {
        let Some(mut durable) = self.durable.as_mut() else { return false };
        let mut handed = 0;
        while let Some(id) = durable.readable.pop_first() {
            loop {
                if handed >= TURN {
                    durable.readable.insert(id);
                    return true;
                }
                let Some(follower) = durable.followers.get_mut(&id) else { break };
                if !follower.has_room() {
                    break;
                }
                handed += follower.steps;
                let position = match durable.log.read(&mut follower.cursor) {
                    Ok(Some(LogEntry::Event { position })) => position,
                    Ok(Some(LogEntry::Lost { first, last })) => {
                        follower.miss(first, last);
                        continue;
                    }
                    // at the end of the log, or after a read error, the follower is tried again at the next
                    // publication or acknowledgement
                    Ok(None) | Err(_) => {
                        let lost = follower.lost.take();
                        self.send_lost(id, lost);
                        let Some(known) = &mut self.durable else { return false };
                        durable = known;
                        break;
                    }
                };
                let body = follower.cursor.body().to_vec();
                let Ok(event) = LoggedEvent::read(&body) else {
                    follower.miss(position, position);
                    continue;
                };
                let asked = |it: &Interest| it.matches(event.topic, event.event_type, &event.fields);
                if !follower.interests.iter().any(asked) {
                    durable.unsaved.insert(id);
                    continue;
                }
                let (retained, lost) = (position < follower.new_from, follower.lost.take());
                let names = event.topic.len() + event.writer.len() + event.event_type.map_or(0, str::len);
                let Some(event) = durable.event(now, &body, position) else { continue };
                if let Some(follower) = durable.followers.get_mut(&id) {
                    follower.pend(position, &event, names);
                }
                if !self.channel.enqueue(now, id, event, retained) {
                    self.unfollow(id); // its lease has run out
                }
                self.send_lost(id, lost);
                let Some(known) = &mut self.durable else { return false };
                durable = known;
            }
        }
        false
    }

    /// Tells a follower the range of lost positions.
    fn send_lost(&mut self, id: ConsumerId, lost: Option<(u64, u64)>) {
        if let Some((first, last)) = lost
            && let Some(Addressee::Program { client, number }) = self.addressees.by_consumer.get(&id)
        {
            let frame = Frame::Notice { consumer: *number, notice: NoticeText::Lost { first, last } };
            self.tasks.answer(*client, &frame);
        }
    }

    /// Returns the number by which a delivery is acknowledged: for a follower, its position in the log.
    pub(in crate::broker) fn delivered(&mut self, consumer: ConsumerId, position: u64, delivery: u64) -> u64 {
        let follower = self.durable.as_mut().and_then(|durable| durable.followers.get_mut(&consumer));
        let Some(follower) = follower else { return delivery };
        follower.deliveries.insert(position, delivery);
        position
    }

    /// Records that a follower has acknowledged an event. Returns false if the consumer is no follower.
    pub(in crate::broker) fn acknowledge_position(&mut self, consumer: ConsumerId, position: u64) -> bool {
        let Some(durable) = &mut self.durable else { return false };
        let Some(follower) = durable.followers.get_mut(&consumer) else { return false };
        let delivery = follower.deliveries.get(&position).copied();
        // an acknowledgement that came too late has no effect: the program learns that from the second
        // delivery of the event
        if let Some(delivery) = delivery
            && self.channel.acknowledge(consumer, delivery) == Acknowledged::Done
        {
            follower.deliveries.remove(&position);
            follower.pending_bytes -= follower.pending.remove(&position).map_or(0, |event| event.bytes);
            durable.readable.insert(consumer);
            durable.unsaved.insert(consumer);
        }
        true
    }
}
