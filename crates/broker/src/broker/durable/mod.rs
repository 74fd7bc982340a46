//! Events that the log keeps, and consumers that read from the log.
//!
//! ```text
//!   PUBLISH -> checks of the channel -> log: written -> inboxes -> PUBLISHED written
//!                                        |     +--> sync (another thread) --> PUBLISHED synced
//!                                        v
//!                         followers: read, matched, handed to their inboxes, acknowledged by position
//! ```
//! A *follower* is a consumer with a name. All its events come from the log, never from publications, so that
//! missed and new events form one sequence. Its inbox is filled as far as its own queue allows; further
//! events wait in the log, and none is dropped.
//!
//! Every event up to a follower's *floor* is acknowledged, or does not match its interests. The floor is
//! saved when the broker has no event to deliver. After a crash the saved floor may be too low, but never too
//! high; the events above it are delivered again.
//!
//! Cost: one write for an event in the log; for each follower a read from the page cache.

mod followers;
mod messages;
mod names;
mod owners;
mod restore;
mod sessions;
mod take_over;

use self::followers::LogFollower;
use self::names::LogNames;
use super::Broker;
use super::mqtt::MqttSessionId;
use crate::body::EventBody;
use crate::log::{EventLog, KeptTopic, LogDamage, LogError, LoggedEvent, LoggedMessage, SyncJob, WallTime};
use crate::mqtt::{DeadlineUnit, MessageOrigin, MqttQos};
use crate::name_owner::NameOwner;
use crate::permissions::RefusalKind;
use crate::task::{ClientId, Received};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use unisono_eventchannel::{
    ChannelEvent, ConsumerId, Criticality, DispatchOrder, EventOrigin, FIRST_FOREIGN, NO_DEADLINE,
    Publication, PublishError, Published, Retention, SupplierId, TopicId, TopicPattern,
};
use unisono_events_wire::LogStatistics;
use unisono_events_wire::frame::{Frame, PublishHead, PublishOutcome};
use unisono_events_wire::{Advertisement, Durability};
use unisono_linux::clock::{Duration, Instant};

/// Maximum number of steps that the broker takes for followers before it serves others. An event takes one
/// step, or more if the follower has many interests. More steps would delay programs; fewer would need more
/// rounds. Chosen by this argument, not measured.
const TURN: usize = 256;
/// Numbers of the log's topics and writers in deliveries begin here; the channel's own numbers are below.
const LOGGED: u32 = FIRST_FOREIGN;

/// The properties of a supplier whose events are in the log.
#[derive(Debug)]
struct KeptOffer {
    topic: Arc<str>,
    event_type: Option<Arc<str>>,
    writer: Arc<str>,
    durability: Durability,
    owner: NameOwner,
}

/// An answer to a supplier that waits for a sync.
#[derive(Debug)]
struct UnsyncedAnswer {
    /// The log position of the event.
    position: u64,
    /// The number of the first sync that covers a session's change that the answer confirms; 0: it confirms
    /// none.
    sync: u64,
    client: ClientId,
    what: SyncedAnswer,
}

/// The answer to a supplier once its event is synced.
#[derive(Debug)]
enum SyncedAnswer {
    Published {
        topic: u32,
        token: u32,
        sequence: u64,
        outcome: PublishOutcome,
    },
    /// PUBACK or PUBREC.
    Message {
        session: MqttSessionId,
        /// The packet identifier of a message of QoS 2.
        exactly_once: Option<u16>,
        packet: Vec<u8>,
    },
}

/// Maximum number of answers that wait for a sync. With more, further events that ask for a sync are held
/// back, or refused if the supplier does not wait, so that a disk that hangs takes no more memory. Chosen as
/// the longest queue of a ring, not measured.
const MAX_UNSYNCED: usize = 16_384;

/// The log and its followers.
#[derive(Debug)]
pub(super) struct DurableEvents {
    log: EventLog,
    /// The lead of the log's time over the monotonic clock.
    time_ahead: Duration,
    /// Topics whose events are kept without a supplier's request.
    kept: Vec<TopicPattern>,
    /// The durability at which MQTT messages of QoS 1 and 2 to these topics are confirmed.
    messages: Durability,
    offers: HashMap<SupplierId, KeptOffer>,
    unsynced: VecDeque<UnsyncedAnswer>,
    /// Whether a sync is in progress.
    syncing: bool,
    followers: HashMap<ConsumerId, LogFollower>,
    /// Followers that may have events to read and room for them.
    readable: BTreeSet<ConsumerId>,
    /// Followers whose floor has risen.
    unsaved: BTreeSet<ConsumerId>,
    names: LogNames,
}

/// Writes an event of the channel to the log.
fn append(
    (log, owner, time_ahead, now): (&mut EventLog, &NameOwner, Duration, Instant),
    (topic, event_type, writer): (&str, Option<&str>, &str),
    event: &mut ChannelEvent<EventBody>,
    (retention, acknowledged): (Retention, bool),
) -> Result<u64, LogError> {
    let bytes = event.payload.payload.bytes();
    let origin = &event.payload.origin;
    let logged = LoggedEvent {
        topic,
        event_type,
        writer,
        supplier: event.supplier.0,
        sequence: event.sequence,
        criticality: event.criticality.0,
        retained: retention != Retention::AsTopic,
        acknowledged,
        published: WallTime::at(now, time_ahead),
        due_after: match event.deadline {
            NO_DEADLINE => Duration::MAX,
            deadline => deadline - now,
        },
        key: event.key.as_deref().unwrap_or_default(),
        fields: event.fields.clone(),
        message: origin.publisher.as_deref().map(|publisher| LoggedMessage {
            qos: origin.qos as u8,
            in_seconds: origin.deadline == DeadlineUnit::Seconds,
            publisher,
            properties: origin.properties.as_deref().unwrap_or_default(),
        }),
        payload: &bytes,
    };
    let position = log.append_of(owner, &logged)?;
    drop(bytes);
    event.payload.position = position;
    Ok(position)
}

/// Returns the parts of an MQTT message that the log stores in addition to the event.
fn origin_of(message: &LoggedMessage<'_>, retain: bool) -> MessageOrigin {
    let properties = message.properties;
    MessageOrigin {
        qos: MqttQos::from_bits(message.qos).unwrap_or_default(),
        retain,
        deadline: if message.in_seconds { DeadlineUnit::Seconds } else { DeadlineUnit::Microseconds },
        publisher: Some(message.publisher.into()),
        properties: (!properties.is_empty()).then(|| properties.into()),
    }
}

impl DurableEvents {
    /// Returns the name of a topic by its number, for numbers of the log.
    pub(super) fn name(&self, topic: TopicId) -> Option<&Arc<str>> {
        self.names.name(topic.0)
    }

    /// Returns the type of a topic by its number, for numbers of the log.
    pub(super) fn type_of(&self, topic: TopicId) -> Option<&Arc<str>> {
        self.names.event_type(topic.0)
    }

    /// Converts an event of the log to an event of the channel.
    fn event(&mut self, now: Instant, body: &[u8], position: u64) -> Option<ChannelEvent<EventBody>> {
        let event = LoggedEvent::read(body).ok()?;
        if self.names.is_full() {
            let pending = self.followers.values().flat_map(|follower| follower.pending.values());
            self.names.forget_but(&pending.flat_map(|event| [event.topic, event.writer]).collect());
        }
        let age = WallTime::at(now, self.time_ahead) - event.published;
        let published = now - age;
        let supplier = match event.writer {
            "" => event.supplier,
            writer => self.names.number(writer, None),
        };
        let mut payload = EventBody::new(event.payload, None);
        payload.position = position;
        if let Some(message) = event.message {
            payload.origin = origin_of(&message, event.retained);
        }
        Some(ChannelEvent {
            topic: TopicId(self.names.number(event.topic, event.event_type)),
            key: (!event.key.is_empty()).then(|| event.key.into()),
            fields: event.fields,
            payload,
            supplier: SupplierId(supplier),
            share: 1,
            order: DispatchOrder::Arrival,
            origin: EventOrigin::Local, // unknown: consumers of local events alone cannot resume
            sequence: event.sequence,
            published,
            deadline: published + event.due_after,
            criticality: Criticality(event.criticality),
        })
    }

    /// Saves the positions that followers have acknowledged.
    pub(super) fn save(&mut self) {
        for id in std::mem::take(&mut self.unsaved) {
            if let Some(follower) = self.followers.get_mut(&id) {
                let floor = follower.floor();
                // on a full disk the former floor stays: more events are delivered again after a restart
                let _ = follower.file.save(floor);
            }
        }
    }

    fn leave(&mut self, consumer: ConsumerId) -> Option<LogFollower> {
        self.save();
        self.readable.remove(&consumer);
        self.followers.remove(&consumer)
    }
}

impl Broker {
    /// Adds a log. `time_ahead` is the lead of its time over the monotonic clock. The log also keeps
    /// the events of topics that match `kept`, without a supplier's request.
    #[must_use]
    pub fn with_log(mut self, log: EventLog, time_ahead: Duration, kept: Vec<TopicPattern>) -> Self {
        self.add_log(log, time_ahead, kept);
        self
    }

    /// As [`with_log`](Self::with_log), for a broker that belongs to a server.
    pub fn add_log(&mut self, log: EventLog, time_ahead: Duration, kept: Vec<TopicPattern>) {
        self.durable = Some(DurableEvents {
            log,
            time_ahead,
            kept,
            messages: Durability::Written,
            offers: HashMap::new(),
            unsynced: VecDeque::new(),
            syncing: false,
            followers: HashMap::new(),
            readable: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            names: LogNames::new(),
        });
    }

    /// Returns the damage found when the log was opened.
    pub fn log_damage(&self) -> &[LogDamage] {
        self.durable.as_ref().map_or(&[], |durable| durable.log.damage())
    }

    /// Returns whether the broker keeps a log; if so, [`sync`](Self::sync) must be called.
    pub fn keeps_log(&self) -> bool {
        self.durable.is_some()
    }

    /// Refuses an advertisement that needs a log if the broker keeps none.
    pub(super) fn refuses_durability(&self, spec: &Advertisement) -> Option<String> {
        let asks = spec.asks_for_log();
        (asks && self.durable.is_none())
            .then(|| "this broker keeps no log; start it with --log DIRECTORY".to_owned())
    }

    /// Refuses a supplier that asks for the log if the log takes no events of its owner.
    pub(super) fn check_log_owner(&mut self, owner: &NameOwner, spec: &Advertisement) -> Result<(), String> {
        let asks = spec.asks_for_log();
        let Some(durable) = self.durable.as_ref().filter(|_| asks) else { return Ok(()) };
        let checked = durable.log.has_chain_for(owner).map_err(|error| error.to_string());
        checked.inspect_err(|_| self.access.count(RefusalKind::Log))
    }

    /// Registers a supplier whose events may have to be in the log; `writer` is the key of its writer's name.
    ///
    /// # Errors
    /// The supplier asks for the log, and there is no room for the declaration of its topic.
    pub(super) fn offer_kept(
        &mut self,
        client: ClientId,
        (supplier, topic): (SupplierId, TopicId),
        owner: &NameOwner,
        (spec, writer): (&Advertisement, Option<&str>),
    ) -> Result<(), String> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let asked = spec.asks_for_log();
        if !asked && !durable.kept.iter().any(|pattern| pattern.matches(&spec.topic)) {
            return Ok(());
        }
        let declared = KeptTopic {
            topic: spec.topic.clone(),
            event_type: spec.event_type.clone(),
            history: spec.history,
            exclusive: spec.exclusive,
            owner: Some(owner.clone()),
        };
        let noted = self.note_topic(client, topic, declared);
        if asked {
            noted?;
        }
        let Some(durable) = &mut self.durable else { return Ok(()) };
        let offer = KeptOffer {
            topic: spec.topic.as_str().into(),
            event_type: spec.event_type.as_deref().map(Arc::from),
            writer: writer.unwrap_or_default().into(),
            durability: if asked { spec.durability.max(Durability::Written) } else { Durability::Received },
            owner: owner.clone(),
        };
        durable.offers.insert(supplier, offer);
        Ok(())
    }

    /// Records the declaration of a topic in the log, and charges the program.
    fn note_topic(&mut self, client: ClientId, topic: TopicId, declared: KeptTopic) -> Result<(), String> {
        let keeping = self.terms_of_names(client);
        if self.durable.as_ref().is_none_or(|durable| durable.log.has_declared(&declared)) {
            return Ok(());
        }
        let mut charged = self.channel.keep_beside(topic, &keeping, declared.memory());
        if charged.is_err() && self.retire_for_room() {
            charged = self.channel.keep_beside(topic, &keeping, declared.memory());
        }
        charged.map_err(|error| self.access.refuse(&error))?;
        let mut noted = self.declare_in_log(&declared);
        if noted.is_err() && self.retire_for_room() {
            noted = self.declare_in_log(&declared);
        }
        noted.inspect_err(|_| self.access.count(RefusalKind::Limit))
    }

    fn declare_in_log(&mut self, declared: &KeptTopic) -> Result<(), String> {
        let Some(durable) = &mut self.durable else { return Ok(()) };
        match durable.log.declared(declared.clone()) {
            Err(error @ LogError::TooManyTopics { .. }) => Err(error.to_string()),
            // on a full disk the former declaration stays, and applies again after a restart
            _ => Ok(()),
        }
    }

    /// Forgets the declarations of topics that the channel has retired.
    pub(super) fn forget_retired(&mut self) {
        let retired = self.channel.take_retired();
        if let Some(durable) = &mut self.durable
            && !retired.is_empty()
        {
            // on a full disk they apply again after a restart
            let _ = durable.log.forget_topics(retired.iter().map(|topic| &**topic));
        }
    }

    pub(super) fn forget_offer(&mut self, supplier: SupplierId) {
        if let Some(durable) = &mut self.durable {
            durable.offers.remove(&supplier);
        }
    }

    /// Returns whether a supplier's events go to the log.
    pub(super) fn is_kept(&self, supplier: SupplierId) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.offers.contains_key(&supplier))
    }

    /// Publishes an event and writes it to the log before any consumer gets it.
    pub(super) fn publish_kept(
        &mut self,
        now: Instant,
        (client, supplier, topic_id): (ClientId, SupplierId, TopicId),
        head: &PublishHead<'_>,
        publication: Publication<EventBody>,
    ) -> Result<Received, String> {
        let (topic, token) = (head.topic, head.token);
        let Some(durable) = &mut self.durable else { return Ok(Received::Done) };
        let DurableEvents { log, offers, time_ahead, followers, readable, unsynced, .. } = durable;
        let mut waiters = Vec::new();
        let Some(offer) = offers.get(&supplier) else { return Ok(Received::Done) };
        if offer.durability == Durability::Synced && head.flags.answer && unsynced.len() >= MAX_UNSYNCED {
            if !head.flags.at_once {
                return Ok(Received::Blocked);
            }
            self.access.count(RefusalKind::Log);
            let reason = "the disk is behind with what was published before; try again";
            self.answer(client, &Frame::Rejected { topic, token, reason });
            return Ok(Received::Done);
        }
        let last = log.last_of(&offer.topic, &offer.writer).filter(|_| !offer.writer.is_empty());
        let (sequence, outcome, position) = match (head.sequence, last) {
            (Some(sequence), Some(last)) if sequence <= last => {
                (last, PublishOutcome::Duplicate, log.next() - 1)
            }
            _ => {
                let mut position = None;
                let published =
                    self.channel.try_publish_kept(now, supplier, topic_id, publication, |event, found| {
                        waiters = self.mqtt.waiters_of(found);
                        let of = (&*offer.topic, offer.event_type.as_deref(), &*offer.writer);
                        match append(
                            (&mut *log, &offer.owner, *time_ahead, now),
                            of,
                            event,
                            (Retention::AsTopic, offer.durability > Durability::Received),
                        ) {
                            Ok(at) => {
                                position = Some(at);
                                Ok(())
                            }
                            Err(error) if offer.durability > Durability::Received => Err(error.to_string()),
                            // the supplier was not promised that the event is in the log; the log has counted
                            // the failure
                            Err(_) => Ok(()),
                        }
                    });
                let inboxes = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
                match (published, position) {
                    (Err(PublishError::Full { .. }), _) if !head.flags.at_once => {
                        return Ok(Received::Blocked);
                    }
                    (Err(error), _) => {
                        let reason = self.access.refuse(&error);
                        self.answer(client, &Frame::Rejected { topic, token, reason: &reason });
                        return Ok(Received::Done);
                    }
                    (Ok(Published::Taken { sequence, inboxes: count }), Some(position)) => {
                        self.mqtt.note_waiting(waiters, position);
                        readable.extend(followers.keys());
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
        if offer.durability == Durability::Synced && position >= log.synced() {
            // after a failed sync only a repeated event comes here, and no later sync would confirm that it
            // is on the disk
            if let Err(error) = log.usable() {
                self.access.count(RefusalKind::Log);
                let reason = error.to_string();
                self.answer(client, &Frame::Rejected { topic, token, reason: &reason });
                return Ok(Received::Done);
            }
            let what = SyncedAnswer::Published { topic, token, sequence, outcome };
            unsynced.push_back(UnsyncedAnswer { position, sync: 0, client, what });
        } else {
            self.answer(client, &Frame::Published { topic, token, sequence, outcome });
        }
        Ok(Received::Done)
    }

    /// Returns the next sync for suppliers that wait, if there are any, no sync is in progress and none has
    /// failed. Report its end with [`synced`](Self::synced).
    pub fn sync(&mut self) -> Option<SyncJob> {
        let durable = self.durable.as_mut()?;
        if durable.syncing || durable.unsynced.is_empty() {
            return None;
        }
        let job = durable.log.sync();
        durable.syncing = job.is_some();
        job
    }

    /// Answers the suppliers whose sync has ended.
    pub fn synced(&mut self, now: Instant, job: &SyncJob, result: Result<(), String>) {
        let Some(durable) = &mut self.durable else { return };
        let mut told = Vec::new();
        durable.syncing = false;
        durable.log.synced_by(job, result.clone());
        let (before, number) = match result {
            Ok(()) => (durable.log.synced(), job.number),
            Err(_) => (u64::MAX, u64::MAX),
        };
        // positions ascend, except that the answer to a session's change has position 0 and waits for `sync`
        // alone
        while durable.unsynced.front().is_some_and(|answer| answer.position < before && answer.sync <= number)
        {
            let Some(answer) = durable.unsynced.pop_front() else { break };
            let UnsyncedAnswer { client, what, .. } = answer;
            let (topic, token, sequence, outcome) = match what {
                SyncedAnswer::Published { topic, token, sequence, outcome } => {
                    (topic, token, sequence, outcome)
                }
                SyncedAnswer::Message { session, exactly_once, packet } => {
                    told.push((client, session, exactly_once, packet));
                    continue;
                }
            };
            match &result {
                Ok(()) => {
                    let frame = Frame::Published { topic, token, sequence, outcome };
                    self.tasks.answer(client, &frame);
                }
                Err(reason) => {
                    let reason = format!("it was delivered, but the log could not be synced: {reason}");
                    let frame = Frame::Rejected { topic, token, reason: &reason };
                    self.tasks.answer(client, &frame);
                }
            }
        }
        for (client, session, exactly_once, packet) in told {
            self.message_synced(now, client, (session, exactly_once), packet, &result);
        }
    }

    /// Saves the floors that have risen: when no event is due, and at the end of the broker.
    pub fn set_idle(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.save();
        }
    }

    /// Removes events older than the log's bound from the log.
    pub(super) fn expire(&mut self, now: Instant) {
        if let Some(durable) = &mut self.durable {
            // on a full disk they stay a little longer
            let _ = durable.log.expire(WallTime::at(now, durable.time_ahead));
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
