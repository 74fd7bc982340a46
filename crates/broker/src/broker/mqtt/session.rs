//! The session of an MQTT client, connected or not.

use super::record::SessionRecord;
use crate::body::EventBody;
use crate::mqtt::{
    AnswerTerms, FilterRequest, LastWill, MqttQos, MqttVersion, OutgoingMessage, publish_packet,
    with_duplicate_flag,
};
use crate::name_owner::NameOwner;
use crate::permissions::{ClientGrant, ClientIdentity};
use crate::task::ClientId;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use unisono_eventchannel::{
    ChannelEvent, ConsumerId, NO_DEADLINE, SubscriptionId, SupplierId, TopicId, TopicPattern,
};
use unisono_events_wire::EVENT_COST;
use unisono_events_wire::transport::TransportPeer;
use unisono_linux::clock::{Duration, Instant};

/// A session's number in the broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::broker) struct MqttSessionId(pub(super) u32);

#[derive(Debug)]
pub(super) struct MqttSession {
    /// The client's identifier.
    pub(super) name: Arc<str>,
    /// The key of the session: its owner and its name.
    pub(super) key: Arc<str>,
    pub(super) name_owner: NameOwner,
    pub(super) peer: TransportPeer,
    /// The identity that made the session, for messages.
    pub(super) owner: ClientIdentity,
    pub(super) grant: Arc<ClientGrant>,
    /// The protocol terms for answers to the client.
    pub(super) terms: AnswerTerms,
    /// The session's connection. `None`: it has none for now.
    pub(super) client: Option<ClientId>,
    /// Whether the connection takes no packets for now.
    pub(super) stalled: bool,
    /// The number of seconds for which the session outlives its connection.
    pub(super) expiry: u32,
    /// When the session ends unless it has a connection by then.
    pub(super) ends: Instant,
    pub(super) will: Option<LastWill>,
    /// Bytes charged for the will when it came.
    pub(super) will_cost: u64,
    /// Bytes charged for the session in all, without its queues.
    pub(super) held: u64,
    /// Bytes of each of its queues.
    pub(super) queue: usize,
    /// The part of `held` for topic aliases.
    pub(super) alias_cost: u64,
    /// When the will is published unless the session has a connection by then.
    pub(super) will_at: Instant,
    /// The silence after which the client counts as dead; 0: never.
    pub(super) keep_alive: Duration,
    /// When the last packet came.
    pub(super) last_packet: Instant,
    pub(super) receive_maximum: usize,
    /// Topics that alias numbers stand for, on this connection.
    pub(super) aliases: HashMap<u16, Arc<str>>,

    pub(super) supplier: Option<SupplierId>,
    pub(super) offered: HashSet<TopicId>,
    /// The client's QoS 2 messages that it has not released; a repeated one is not published again.
    pub(super) unreleased: HashSet<u16>,
    /// The number of unreleased messages whose memory was charged.
    pub(super) unreleased_paid: usize,
    /// The client's messages that wait for the disk before they are confirmed.
    pub(super) unconfirmed: usize,

    /// The consumers of the client's subscriptions, by QoS. A message that matches several subscriptions of
    /// one QoS comes once.
    pub(super) consumers: [Option<ConsumerId>; 3],
    pub(super) subscriptions: BTreeMap<String, MqttSubscription>,
    /// The number of subscriptions with an identifier.
    pub(super) identified: usize,
    /// Filters of its subscriptions.
    pub(super) filters: HashMap<SubscriptionId, String>,
    pub(super) in_flight: BTreeMap<u16, InFlight>,
    /// Messages of `in_flight` not yet sent on this connection, because the client takes no more at once.
    pub(super) unsent: VecDeque<u16>,
    /// The logged part of the session. `None`: the session does not outlive the broker.
    pub(super) record: Option<Box<SessionRecord>>,
    /// The last packet identifier that was used.
    last_id: u16,
    /// The number of messages sent with an identifier.
    sent: u64,
}

#[derive(Clone, Debug)]
pub(super) struct MqttSubscription {
    pub(super) request: FilterRequest,
    /// The filter without the name of its group.
    pub(super) pattern: TopicPattern,
    pub(super) identifier: Option<u32>,
    pub(super) subscription: SubscriptionId,
    /// The member of a group, if the subscription is shared.
    pub(super) shared: Option<ConsumerId>,
}

/// A message of QoS 1 or 2 in flight to the client. It ends when the client acknowledges it, never because
/// its deadline passes: the client may have it already, and refer to its identifier.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    /// The place in the order of sending.
    order: u64,
    /// The consumer, and the acknowledgement that the channel expects when the message has arrived.
    pub(super) acknowledgement: Option<(ConsumerId, u64)>,
    pub(super) step: InFlightStep,
}

#[derive(Clone, Debug)]
pub(super) enum InFlightStep {
    /// PUBLISH was sent.
    Sent(SentMessage),
    /// PUBREL was sent (QoS 2).
    Released,
}

/// The parts of a PUBLISH, for sending and for resending.
#[derive(Clone, Debug)]
pub(super) struct SentMessage {
    pub(super) topic: Arc<str>,
    pub(super) event: Arc<ChannelEvent<EventBody>>,
    pub(super) qos: MqttQos,
    pub(super) retain: bool,
    pub(super) identifiers: SentIdentifiers,
}

/// The identifiers of the subscriptions that a message is sent for. A client may have a thousand
/// subscriptions that match each message in flight, so their identifiers are found again for each sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SentIdentifiers {
    /// One subscription alone: the group's, or the new subscription that a retained message is sent for.
    Of(Option<u32>),
    /// All of the QoS that match the topic, without subscriptions that want no messages of the client's own.
    Matching { subscribed: MqttQos, is_own: bool },
}

/// Returns the number of bytes granted to a queue: waiting messages, and as much again of messages that the
/// client has not confirmed.
pub(super) fn queue_grant(queue: usize, acknowledges: bool) -> u64 {
    let queue = queue as u64;
    if acknowledges { 2 * queue } else { queue }
}

impl MqttSession {
    pub(super) fn new(
        (name, key): (Arc<str>, Arc<str>),
        (peer, owner, grant): (TransportPeer, ClientIdentity, Arc<ClientGrant>),
        (version, queue): (MqttVersion, usize),
    ) -> Self {
        Self {
            name,
            key,
            name_owner: NameOwner::from(&owner),
            peer,
            owner,
            grant,
            terms: AnswerTerms::new(version),
            queue,
            client: None,
            stalled: false,
            expiry: 0,
            ends: Instant::NEVER,
            will: None,
            will_cost: 0,
            held: 0,
            alias_cost: 0,
            will_at: Instant::NEVER,
            keep_alive: Duration::ZERO,
            last_packet: Instant::ZERO,
            receive_maximum: usize::from(u16::MAX),
            aliases: HashMap::new(),
            supplier: None,
            offered: HashSet::new(),
            unreleased: HashSet::new(),
            unreleased_paid: 64,
            unconfirmed: 0,
            consumers: [None; 3],
            subscriptions: BTreeMap::new(),
            identified: 0,
            filters: HashMap::new(),
            in_flight: BTreeMap::new(),
            unsent: VecDeque::new(),
            record: None,
            last_id: 0,
            sent: 0,
        }
    }

    /// Returns all consumers of the session; the flag is true if the consumer waits for acknowledgements.
    pub(super) fn all_consumers(&self) -> impl Iterator<Item = (ConsumerId, bool)> {
        let own = self.consumers.iter().enumerate();
        let own = own.filter_map(|(qos, consumer)| Some(((*consumer)?, qos > 0)));
        own.chain(self.subscriptions.values().filter_map(|subscription| Some((subscription.shared?, true))))
    }

    /// Returns the maximum number of messages in each of its queues: as many as fit into the queue's bytes if
    /// each costs only [`EVENT_COST`].
    pub(super) fn queue_events(&self) -> usize {
        (self.queue / EVENT_COST as usize).max(1)
    }

    /// Returns the number of bytes granted to all queues of the session.
    pub(super) fn granted(&self) -> u64 {
        self.all_consumers().map(|(_, acknowledges)| queue_grant(self.queue, acknowledges)).sum()
    }

    /// Returns whether as many messages of QoS 1 and 2 are in flight as the client accepts.
    pub(super) fn is_full(&self) -> bool {
        self.in_flight.len() >= self.receive_maximum
    }

    /// Returns a packet identifier that is not in use, or `None` if all are in use.
    pub(super) fn free_id(&mut self) -> Option<u16> {
        for _ in 0..u16::MAX {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self.in_flight.contains_key(&self.last_id) {
                return Some(self.last_id);
            }
        }
        None
    }

    pub(super) fn keep(&mut self, id: u16, acknowledgement: Option<(ConsumerId, u64)>, step: InFlightStep) {
        self.sent += 1;
        self.in_flight.insert(id, InFlight { order: self.sent, acknowledgement, step });
    }

    /// Returns all messages in flight, in the order of sending.
    pub(super) fn in_order(&self) -> Vec<(u16, &InFlight)> {
        let mut all: Vec<_> = self.in_flight.iter().map(|(id, flight)| (*id, flight)).collect();
        all.sort_unstable_by_key(|(_, flight)| flight.order);
        all
    }

    /// Marks all messages in flight as unsent on a new connection.
    pub(super) fn begin_anew(&mut self) {
        self.unsent = self.in_order().into_iter().map(|(id, _)| id).collect();
    }

    /// Returns the next unsent message, if the client takes it now.
    pub(super) fn next_unsent(&mut self) -> Option<(u16, InFlightStep)> {
        let outstanding = self.in_flight.len() - self.unsent.len();
        let flight = self.in_flight.get(self.unsent.front()?)?;
        // a PUBREL does not count against the receive maximum
        if outstanding >= self.receive_maximum && matches!(flight.step, InFlightStep::Sent(_)) {
            return None;
        }
        Some((self.unsent.pop_front()?, flight.step.clone()))
    }

    /// Removes a message whose exchange has ended.
    pub(super) fn finish(&mut self, id: u16) -> Option<InFlight> {
        let flight = self.in_flight.remove(&id)?;
        self.unsent.retain(|unsent| *unsent != id);
        Some(flight)
    }

    /// Returns the subscriptions of one QoS, without subscriptions of groups, that a message of this topic
    /// matches.
    pub(super) fn matching<'a, 'b>(
        &'a self,
        topic: &'b str,
        qos: MqttQos,
    ) -> impl Iterator<Item = &'a MqttSubscription> + use<'a, 'b> {
        let own =
            self.subscriptions.values().filter(move |own| own.shared.is_none() && own.request.qos == qos);
        own.filter(|own| own.pattern.matches(topic))
    }

    /// Returns the identifiers of a message's subscriptions.
    fn identifiers(&self, message: &SentMessage) -> Vec<u32> {
        match message.identifiers {
            SentIdentifiers::Of(identifier) => identifier.into_iter().collect(),
            SentIdentifiers::Matching { .. } if self.identified == 0 => Vec::new(),
            SentIdentifiers::Matching { subscribed, is_own } => {
                let matching = self.matching(&message.topic, subscribed);
                let wanted = matching.filter(|other| !(is_own && other.request.no_local));
                wanted.filter_map(|other| other.identifier).collect()
            }
        }
    }

    /// Returns the bytes of a message in front of the payload, with the remaining time as of now.
    pub(super) fn packet(&self, now: Instant, message: &SentMessage, id: Option<u16>) -> Vec<u8> {
        message.packet(now, (self.terms.version, id), &self.identifiers(message))
    }

    pub(super) fn packet_again(&self, now: Instant, message: &SentMessage, id: u16) -> Vec<u8> {
        with_duplicate_flag(self.packet(now, message, Some(id)))
    }
}

impl SentMessage {
    fn packet(
        &self,
        now: Instant,
        (version, id): (MqttVersion, Option<u16>),
        identifiers: &[u32],
    ) -> Vec<u8> {
        let deadline = self.event.deadline;
        publish_packet(&OutgoingMessage {
            version,
            topic: &self.topic,
            id,
            qos: self.qos,
            retain: self.retain,
            due_in: (deadline != NO_DEADLINE).then(|| deadline - now),
            origin: &self.event.payload.origin,
            fields: &self.event.fields,
            identifiers,
            payload: self.event.payload.as_payload().length(),
        })
    }
}
