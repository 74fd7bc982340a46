//! Events that are kept in the log, and consumers that are given what it has.
//!
//! ```text
//!   PUBLISH -> checks of the channel -> log: written -> inboxes -> PUBLISHED written
//!                                        |     +--> sync (another thread) --> PUBLISHED synced
//!                                        v
//!                         followers: read, matched, handed to their inboxes, acknowledged by position
//! ```
//! A *follower* is a consumer with a name. All its events come from the log, never from publications, so that
//! what it missed and what is new are one sequence. Its inbox is filled as far as its own queue allows; what
//! does not fit waits in the log, and nothing of it is dropped.
//!
//! Everything up to a follower's *floor* is acknowledged, or none of its business. The floor is saved when
//! the broker has nothing to deliver. After a crash it is too low at most, and what lies between is delivered
//! again.
//!
//! Cost: one write for an event in the log; for each follower a read from the page cache.

use super::{Addressee, Broker};
use crate::account::LogStatistics;
use crate::body::EventBody;
use crate::frame::{Frame, PublishHead, PublishOutcome};
use crate::log::{AcknowledgedFile, EventLog, LogCursor, LogDamage, LogEntry, LoggedEvent, SyncJob};
use crate::notice::NoticeText;
use crate::spec::{Advertisement, AgainSpec, Durability, SubscriptionSpec, WhenFull, WhenLate};
use crate::task::{ClientId, Received};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use unisono_eventchannel::{
    Acknowledged, ChannelEvent, ConsumerId, Criticality, InboxCapacity, Interest, NO_DEADLINE, Publication,
    PublishError, Published, SupplierId, TopicId, TopicPattern,
};
use unisono_linux::clock::Nanos;

/// Events handed to followers before the broker looks after others.
const TURN: usize = 256;
/// Numbers of topics and writers of the log in deliveries begin here; the channel's own are below.
const LOGGED: u32 = 1 << 31;

/// What a supplier's events in the log need to say.
#[derive(Debug)]
struct KeptOffer {
    topic: Arc<str>,
    event_type: Option<Arc<str>>,
    writer: Arc<str>,
    durability: Durability,
}

/// A supplier that waits for the disk.
#[derive(Debug)]
struct UnsyncedAnswer {
    /// The position of its event.
    position: u64,
    client: ClientId,
    topic: u32,
    token: u32,
    sequence: u64,
    outcome: PublishOutcome,
}

/// A consumer that is given what the log has.
#[derive(Debug)]
struct LogFollower {
    name: String,
    interests: Vec<Interest>,
    cursor: LogCursor,
    /// Events before this position were there before the consumer.
    new_from: u64,
    /// Handed to its inbox and not acknowledged, with their bytes.
    pending: BTreeMap<u64, usize>,
    pending_bytes: usize,
    /// The number of the last delivery of each of those, by the channel's count.
    deliveries: HashMap<u64, u64>,
    /// Of events and of bytes.
    capacity: (usize, usize),
    file: AcknowledgedFile,
}

impl LogFollower {
    fn floor(&self) -> u64 {
        let first = self.pending.first_key_value().map_or(self.cursor.position(), |(first, _)| *first);
        first - 1
    }

    /// The last event may exceed the bytes: how large it is, is known when it has been read.
    fn has_room(&self) -> bool {
        let (events, bytes) = self.capacity;
        self.pending.len() < events && self.pending_bytes < bytes.max(1)
    }
}

/// The log, and all that has to do with it.
#[derive(Debug)]
pub(super) struct DurableEvents {
    log: EventLog,
    /// Time since 1970 when the monotonic clock was 0.
    epoch: Nanos,
    /// Topics whose events are kept though no supplier asks for it.
    kept: Vec<TopicPattern>,
    offers: HashMap<SupplierId, KeptOffer>,
    unsynced: VecDeque<UnsyncedAnswer>,
    /// Whether a sync is under way.
    syncing: bool,
    followers: HashMap<ConsumerId, LogFollower>,
    /// Followers that may have something to read and room for it.
    hungry: BTreeSet<ConsumerId>,
    /// Followers whose floor has risen.
    unsaved: BTreeSet<ConsumerId>,
    /// Numbers of the topics and writers of the log.
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl DurableEvents {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let (name, number) = (Arc::<str>::from(name), LOGGED | self.names.len() as u32);
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        number
    }

    /// The name of a topic by its number, if that is one of the log's.
    pub(super) fn name(&self, topic: TopicId) -> Option<&Arc<str>> {
        self.names.get(topic.0.checked_sub(LOGGED)? as usize)
    }

    /// An event of the log as the channel has it.
    fn event(&mut self, now: Nanos, body: &[u8], position: u64) -> Option<ChannelEvent<EventBody>> {
        let event = LoggedEvent::read(body).ok()?;
        let age = self.epoch.after(now).since(event.published);
        let published = now.since(age);
        let supplier = match event.writer {
            "" => event.supplier,
            writer => self.number(writer),
        };
        let mut payload = EventBody::new(event.payload, None);
        payload.position = position;
        Some(ChannelEvent {
            topic: TopicId(self.number(event.topic)),
            key: (!event.key.is_empty()).then(|| event.key.into()),
            fields: event.fields,
            payload,
            supplier: SupplierId(supplier),
            sequence: event.sequence,
            published,
            deadline: match event.due_after {
                Nanos::NEVER => NO_DEADLINE,
                after => after.after(published),
            },
            criticality: Criticality(event.criticality),
        })
    }

    /// Writes down what followers have acknowledged.
    pub(super) fn save(&mut self) {
        for id in std::mem::take(&mut self.unsaved) {
            if let Some(follower) = self.followers.get_mut(&id) {
                let floor = follower.floor();
                // on a full disk the former floor stays: more is delivered again after a restart
                let _ = follower.file.save(floor);
            }
        }
    }

    fn leave(&mut self, consumer: ConsumerId) {
        self.save();
        self.followers.remove(&consumer);
        self.hungry.remove(&consumer);
    }
}

impl Broker {
    /// The same with a log. `epoch` is in nanoseconds since 1970: when the monotonic clock was 0. The events
    /// of topics that match `kept` are in the log though no supplier asks for it.
    #[must_use]
    pub fn with_log(mut self, log: EventLog, epoch: Nanos, kept: Vec<TopicPattern>) -> Self {
        self.durable = Some(DurableEvents {
            log,
            epoch,
            kept,
            offers: HashMap::new(),
            unsynced: VecDeque::new(),
            syncing: false,
            followers: HashMap::new(),
            hungry: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            numbers: HashMap::new(),
            names: Vec::new(),
        });
        self
    }

    /// Damage that was found when its log was opened.
    #[must_use]
    pub fn log_damage(&self) -> &[LogDamage] {
        self.durable.as_ref().map_or(&[], |durable| durable.log.damage())
    }

    /// Whether it keeps a log, and [`sync`](Self::sync) has to be asked.
    #[must_use]
    pub fn keeps_log(&self) -> bool {
        self.durable.is_some()
    }

    /// Refuses an advertisement that asks for a log where there is none.
    pub(super) fn refuses_durability(&self, spec: &Advertisement) -> Option<String> {
        let asks = spec.durability > Durability::Received || spec.writer.is_some();
        (asks && self.durable.is_none())
            .then(|| "this broker keeps no log; start it with --log DIRECTORY".to_owned())
    }

    /// A supplier has come, whose events may have to be in the log.
    pub(super) fn offer_kept(&mut self, supplier: SupplierId, spec: &Advertisement) {
        let Some(durable) = &mut self.durable else { return };
        let asked = spec.durability > Durability::Received || spec.writer.is_some();
        if !asked && !durable.kept.iter().any(|pattern| pattern.matches(&spec.topic)) {
            return;
        }
        let offer = KeptOffer {
            topic: spec.topic.as_str().into(),
            event_type: spec.event_type.as_deref().map(Arc::from),
            writer: spec.writer.as_deref().unwrap_or_default().into(),
            durability: if asked { spec.durability.max(Durability::Written) } else { Durability::Received },
        };
        durable.offers.insert(supplier, offer);
    }

    pub(super) fn forget_offer(&mut self, supplier: SupplierId) {
        if let Some(durable) = &mut self.durable {
            durable.offers.remove(&supplier);
        }
    }

    /// Whether a supplier's events go to the log.
    pub(super) fn is_kept(&self, supplier: SupplierId) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.offers.contains_key(&supplier))
    }

    /// Publishes an event and writes it to the log before anybody gets it.
    pub(super) fn publish_kept(
        &mut self,
        now: Nanos,
        (client, supplier, topic_id): (ClientId, SupplierId, TopicId),
        head: &PublishHead<'_>,
        publication: Publication<EventBody>,
    ) -> Result<Received, String> {
        let (topic, token) = (head.topic, head.token);
        let Some(durable) = &mut self.durable else { return Ok(Received::Done) };
        let DurableEvents { log, offers, epoch, followers, hungry, unsynced, .. } = durable;
        let Some(offer) = offers.get(&supplier) else { return Ok(Received::Done) };
        let last = log.last_of(&offer.topic, &offer.writer).filter(|_| !offer.writer.is_empty());
        let (sequence, outcome, position) = match (head.sequence, last) {
            (Some(sequence), Some(last)) if sequence <= last => {
                (last, PublishOutcome::Duplicate, log.next() - 1)
            }
            _ => {
                let mut position = None;
                let published =
                    self.channel.try_publish_kept(now, supplier, topic_id, publication, |event| {
                        let bytes = event.payload.bytes();
                        let logged = LoggedEvent {
                            topic: &offer.topic,
                            event_type: offer.event_type.as_deref(),
                            writer: &offer.writer,
                            supplier: supplier.0,
                            sequence: event.sequence,
                            criticality: event.criticality.0,
                            published: epoch.after(now),
                            due_after: match event.deadline {
                                NO_DEADLINE => Nanos::NEVER,
                                deadline => deadline.since(now),
                            },
                            key: event.key.as_deref().unwrap_or_default(),
                            fields: event.fields.clone(),
                            payload: &bytes,
                        };
                        match log.append(&logged) {
                            Ok(at) => {
                                drop(bytes);
                                (event.payload.position, position) = (at, Some(at));
                                Ok(())
                            }
                            Err(error) if offer.durability > Durability::Received => Err(error.to_string()),
                            // nobody was promised that it is kept; the log has counted it
                            Err(_) => Ok(()),
                        }
                    });
                let inboxes = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
                match (published, position) {
                    (Err(PublishError::Full { .. }), _) if !head.flags.at_once => {
                        return Ok(Received::Blocked);
                    }
                    (Err(error), _) => {
                        self.refused += 1;
                        let reason = error.to_string();
                        self.answer(client, &Frame::Rejected { topic, token, reason: &reason });
                        return Ok(Received::Done);
                    }
                    (Ok(Published::Taken { sequence, inboxes: count }), Some(position)) => {
                        hungry.extend(followers.keys());
                        let synced = offer.durability == Durability::Synced;
                        let outcome = if synced { PublishOutcome::Synced } else { PublishOutcome::Written };
                        (sequence, outcome(inboxes(count)), position)
                    }
                    (Ok(Published::Taken { sequence, inboxes: count }), None) => {
                        (sequence, PublishOutcome::Taken(inboxes(count)), 0)
                    }
                    (Ok(Published::Duplicate { last }), _) => {
                        (last, PublishOutcome::Duplicate, log.next() - 1)
                    }
                    (Ok(Published::Standby { sequence }), _) => (sequence, PublishOutcome::Standby, 0),
                    (Ok(_), _) => (0, PublishOutcome::Standby, 0),
                }
            }
        };
        if !head.flags.answer {
            return Ok(Received::Done);
        }
        let answer = UnsyncedAnswer { position, client, topic, token, sequence, outcome };
        if offer.durability == Durability::Synced && position >= log.synced() {
            unsynced.push_back(answer);
        } else {
            self.answer(client, &Frame::Published { topic, token, sequence, outcome });
        }
        Ok(Received::Done)
    }

    /// What has to be synced for suppliers that wait. Report the end by [`synced`](Self::synced).
    pub fn sync(&mut self) -> Option<SyncJob> {
        let durable = self.durable.as_mut()?;
        if durable.syncing || durable.unsynced.is_empty() {
            return None;
        }
        let job = durable.log.sync();
        durable.syncing = job.is_some();
        job
    }

    /// A sync has ended: those who waited for it are told.
    pub fn synced(&mut self, job: &SyncJob, result: Result<(), String>) {
        let Some(durable) = &mut self.durable else { return };
        durable.syncing = false;
        durable.log.synced_by(job, result.clone());
        let before = match result {
            Ok(()) => durable.log.synced(),
            Err(_) => u64::MAX,
        };
        // positions ascend, but for those of duplicates, which are told with the next
        while durable.unsynced.front().is_some_and(|answer| answer.position < before) {
            let Some(answer) = durable.unsynced.pop_front() else { break };
            let UnsyncedAnswer { client, topic, token, sequence, outcome, .. } = answer;
            match &result {
                Ok(()) => {
                    let frame = Frame::Published { topic, token, sequence, outcome };
                    super::answer(&mut self.tasks, client, &frame);
                }
                Err(reason) => {
                    let reason = format!("it was delivered, but the log could not be synced: {reason}");
                    let frame = Frame::Rejected { topic, token, reason: &reason };
                    super::answer(&mut self.tasks, client, &frame);
                }
            }
        }
    }

    /// Makes a consumer that is given what the log has.
    pub(super) fn follow(
        &mut self,
        now: Nanos,
        (lease, name): (Option<Nanos>, &str),
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
            (spec.late != WhenLate::Deliver, "drop what is late"),
            (
                spec.full != WhenFull::DropOldest,
                "say what a full queue does: what does not fit waits in the log",
            ),
            (timers, "have timers"),
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
        let interests = spec.interests().map_err(|error| error.to_string())?;
        // repeated until it is acknowledged: only an acknowledgement raises the floor
        let again = spec.again.unwrap_or(AgainSpec { after_ns: 30_000_000_000, attempts: 0, window: 256 });
        let again = AgainSpec { attempts: u32::MAX, ..again };
        let mut consumer = SubscriptionSpec { again: Some(again), ..spec.clone() }.consumer();
        consumer.lease = lease;
        // the broker hands over no more than fits
        consumer.inbox.capacity = InboxCapacity { events: usize::MAX, bytes: usize::MAX };
        if consumer.name.is_empty() {
            consumer.name = if name.is_empty() { resume.name.as_str() } else { name }.into();
        }
        let id = self.channel.connect(now, consumer).map_err(|error| error.to_string())?;
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

    pub(super) fn unfollow(&mut self, consumer: ConsumerId) {
        if let Some(durable) = &mut self.durable {
            durable.leave(consumer);
        }
    }

    /// Hands followers what the log has for them, as far as they have room. Whether there is more to hand.
    pub(super) fn feed(&mut self, now: Nanos) -> bool {
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
                                    let bytes = event.payload.len();
                                    follower.pending.insert(position, bytes);
                                    follower.pending_bytes += bytes;
                                    let retained = position < follower.new_from;
                                    if let Some(event) = durable.event(now, &body, position)
                                        && !self.channel.hand(now, id, event, retained)
                                    {
                                        durable.leave(id); // its lease has run out
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
                    super::answer(&mut self.tasks, *client, &frame);
                }
            }
        }
        false
    }

    /// The number by which a delivery is acknowledged: for a follower, its position in the log.
    pub(super) fn delivered(&mut self, consumer: ConsumerId, position: u64, delivery: u64) -> u64 {
        let follower = self.durable.as_mut().and_then(|durable| durable.followers.get_mut(&consumer));
        let Some(follower) = follower else { return delivery };
        follower.deliveries.insert(position, delivery);
        position
    }

    /// A follower is done with an event. False: the consumer follows no log.
    pub(super) fn acknowledge_position(&mut self, consumer: ConsumerId, position: u64) -> bool {
        let Some(durable) = &mut self.durable else { return false };
        let Some(follower) = durable.followers.get_mut(&consumer) else { return false };
        let delivery = follower.deliveries.get(&position).copied();
        // one that was too late is delivered again, which the program learns by that
        if let Some(delivery) = delivery
            && self.channel.acknowledge(consumer, delivery) == Acknowledged::Done
        {
            follower.deliveries.remove(&position);
            follower.pending_bytes -= follower.pending.remove(&position).unwrap_or_default();
            durable.hungry.insert(consumer);
            durable.unsaved.insert(consumer);
        }
        true
    }

    /// What has to be done when nothing is to be delivered, and at the end.
    pub fn rest(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.save();
        }
    }

    /// Removes events from the log that are too old.
    pub(super) fn expire(&mut self, now: Nanos) {
        if let Some(durable) = &mut self.durable {
            // on a full disk they stay a little longer
            let _ = durable.log.expire(durable.epoch.after(now));
        }
    }

    pub(super) fn log_statistics(&self) -> Option<LogStatistics> {
        let DurableEvents { log, followers, .. } = self.durable.as_ref()?;
        let counters = log.counters();
        Some(LogStatistics {
            bytes: log.bytes(),
            first: log.first(),
            next: log.next(),
            synced: log.synced(),
            written: counters.written,
            failed: counters.failed,
            syncs: counters.syncs,
            damaged: log.damage().len() as u64,
            torn: counters.torn,
            consumers: followers.values().map(|follower| (follower.name.clone(), follower.floor())).collect(),
        })
    }
}
