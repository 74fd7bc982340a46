//! The terms that programs send to the channel: advertisements, subscriptions and paths. All are transmitted
//! as JSON, because they are rare and new versions add fields. Times are in nanoseconds. A field that is left
//! out has its [`Default`].

use crate::content::PayloadForm;
use crate::destination::Destination;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use unisono_eventchannel::{
    AcceptedOrigins, BetweenSuppliers, BlockedSuppliers, ConsumerSpec, Correlation, CorrelationRule,
    DispatchOrder, EventOrigin, ExceptedTopics, ExecutionTime, FilterError, FullInbox, HistoryDepth,
    InboxCapacity, InboxSpec, Incomplete, Interest, LateEvents, NameError, Offer, OfferStanding, Ownership,
    QualityRequest, Redelivery, Reliability, Reservation, SupplierOwner, SupplyRate, TopicId, TopicSpec,
};
use unisono_linux::clock::Duration;

/// The shortest period of the broker's repeated actions for one consumer (periodic notices, notices of
/// silence, redelivery). The broker acts for all consumers and has to serve the others in between, and each
/// wake-up of a program costs it about 10 us. Chosen, not measured.
pub const MIN_PERIOD: Duration = Duration::from_micros(100);

/// The events that are kept for consumers that subscribe later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum KeptHistory {
    #[default]
    None,
    /// The last event of each key, for at most this many keys.
    LastValue(usize),
    /// At most this many events.
    Last(usize),
}

impl From<KeptHistory> for HistoryDepth {
    fn from(kept: KeptHistory) -> Self {
        match kept {
            KeptHistory::None => Self::None,
            KeptHistory::LastValue(keys) => Self::LastValue { keys },
            KeptHistory::Last(events) => Self::Last { events },
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The stage that an event has reached when the broker confirms it to its supplier. A smaller value promises
/// less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// The event is in the queues of its consumers. Events that wait there are lost when the broker ends.
    #[default]
    Received,
    /// The event is in the log, by write(2): it survives the end of the broker, but not a power failure.
    Written,
    /// The event is in the log, and fdatasync(2) has returned: it survives a power failure, too.
    Synced,
}

/// A supplier on another host. Its number is valid only for its own broker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteSupplier {
    /// The run of that broker, [`WelcomeTerms::run`](crate::WelcomeTerms::run).
    pub run: u64,
    /// The supplier's number at that broker.
    pub supplier: u32,
}

/// A topic on which a supplier publishes, and the qualities that the supplier offers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Advertisement {
    pub topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The library gives each event these fields; the frame has none of them.
    #[serde(skip_serializing_if = "PayloadForm::is_empty")]
    pub content: PayloadForm,
    pub history: KeptHistory,
    /// Whether the topic is exclusive: only the events of its strongest live supplier are delivered.
    pub exclusive: bool,
    pub strength: u32,
    /// The weight of the supplier's events at consumers that divide their time by shares. Left out: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Whether events may be redelivered until they are acknowledged.
    pub reliable: bool,
    /// The deadline of events that carry none, in nanoseconds after publication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// The minimum mean time between events, in nanoseconds, averaged over a burst. Events above this rate
    /// are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    pub burst: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub order: EventOrder,
    /// From [`Durability::Written`] on, the supplier's events are in the log.
    #[serde(skip_serializing_if = "is_default")]
    pub durability: Durability,
    /// The supplier's name as a writer of the log, which stays the same across connections. An event that the
    /// writer numbers itself is in the log once, even if it is published several times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
    /// The remote supplier of these events, if they come from another broker. In this case this advertisement
    /// does not declare the topic (other suppliers do), and `local_only` consumers do not get the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_elsewhere: Option<RemoteSupplier>,
}

impl Advertisement {
    /// Makes an advertisement of a topic that promises nothing.
    #[must_use]
    pub fn new(topic: &str) -> Self {
        Self { topic: topic.to_owned(), ..Self::default() }
    }

    /// Returns whether the supplier's events have to be in the log.
    pub fn asks_for_log(&self) -> bool {
        self.durability > Durability::Received || self.writer.is_some()
    }

    pub fn topic_spec(&self) -> Result<TopicSpec, NameError> {
        let ownership = if self.exclusive { Ownership::Exclusive } else { Ownership::Shared };
        let spec = TopicSpec::new(&self.topic)?.keeping(self.history.into()).owned(ownership);
        Ok(match &self.event_type {
            Some(event_type) => spec.typed(event_type),
            None => spec,
        })
    }

    pub fn offer(&self, topic: TopicId) -> Offer {
        Offer {
            topic,
            event_type: self.event_type.as_deref().map(Arc::from),
            reliability: if self.reliable { Reliability::AtLeastOnce } else { Reliability::BestEffort },
            deadline: self.deadline_ns.map(Duration::from_nanos),
            rate: self
                .period_ns
                .map(|period| SupplyRate { period: Duration::from_nanos(period), burst: self.burst.max(1) }),
            strength: self.strength,
            share: self.share.unwrap_or(1).max(1),
            order: self.order.into(),
            origin: match self.from_elsewhere {
                Some(_) => EventOrigin::Remote,
                None => EventOrigin::Local,
            },
            owner: SupplierOwner::default(),
            standing: match self.from_elsewhere {
                Some(_) => OfferStanding::Conforms,
                None => OfferStanding::Declares,
            },
        }
    }
}

/// Topics of an interest's pattern that the interest excludes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExceptSpec {
    /// A pattern: `+` stands for one level, `#` for all further ones.
    pub topics: String,
    /// Patterns of topics that are delivered nevertheless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub but: Vec<String>,
}

/// The events that a subscription asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InterestSpec {
    /// A pattern: `+` stands for one level, `#` for all further ones.
    pub topics: String,
    /// Topics of the pattern that the interest excludes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<ExceptSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// The rule by which several interests make one delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartRule {
    Any,
    All,
    Sequence,
}

/// Events that are delivered together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TogetherSpec {
    pub rule: PartRule,
    /// The maximum time from the first event to the last, in nanoseconds.
    pub within_ns: u64,
    /// Whether a correlation that began and was not completed is reported.
    #[serde(default)]
    pub report: bool,
}

/// The policy of an inbox that is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    #[default]
    DropOldest,
    DropByDeadline,
    BlockSupplier,
}

/// The order of a consumer's events from several suppliers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SupplierOrder {
    /// The event with the earliest deadline first, from any supplier.
    #[default]
    Deadlines,
    /// Suppliers get the consumer's time and queue in proportion to their shares.
    Shares,
}

/// The order of one supplier's events on one topic. The order of publication applies if the supplier or the
/// consumer asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventOrder {
    /// The event with the earliest deadline first.
    #[default]
    Deadlines,
    /// No event overtakes an earlier one, whatever its deadline.
    Publication,
}

impl From<EventOrder> for DispatchOrder {
    fn from(order: EventOrder) -> Self {
        match order {
            EventOrder::Deadlines => Self::Deadlines,
            EventOrder::Publication => Self::Publication,
        }
    }
}

/// The policy for events whose deadline has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenLate {
    #[default]
    Deliver,
    Drop,
    Report,
}

/// The load that a consumer states for admission. The consumer is refused if its class cannot guarantee the
/// deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservedTime {
    pub period_ns: u64,
    /// Nanoseconds from the arrival of an event until its delivery.
    pub deadline_ns: u64,
    /// Bytes of the largest payload that the reservation covers.
    pub largest: usize,
}

/// Redelivery: an event is delivered at least once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgainSpec {
    pub after_ns: u64,
    pub attempts: u32,
    /// The maximum number of unacknowledged deliveries at a time.
    pub window: usize,
}

/// The terms of a consumer that gets events from the log and continues at its last position, across
/// connections and restarts of the broker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeSpec {
    /// The consumer's name. Only one consumer at a time may use it, and it belongs to the identity that used
    /// it first.
    pub name: String,
    /// The log position (the number of a delivery) after which to continue. `None`: after the last position
    /// that the consumer acknowledged, or at the end of the log if it has acknowledged none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Whether the name ends with this subscription. When the program unsubscribes (but not when its
    /// connection breaks), the broker forgets the position and frees the name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forget: bool,
}

/// A consumer: the events that it asks for, and its terms.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubscriptionSpec {
    /// The consumer's name in messages to people.
    pub name: String,
    /// Consumers of one group share the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// A class of the policy. Left out: the policy's default class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    pub interests: Vec<InterestSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<TogetherSpec>,
    pub queue_events: usize,
    pub queue_bytes: usize,
    pub full: WhenFull,
    #[serde(skip_serializing_if = "is_default")]
    pub between: SupplierOrder,
    #[serde(skip_serializing_if = "is_default")]
    pub order: EventOrder,
    pub late: WhenLate,
    /// The worst-case execution time of an event without payload, in nanoseconds.
    pub execution_ns: u64,
    /// The additional worst-case execution time for each KiB of an event's payload, in nanoseconds.
    pub execution_per_kib_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<ReservedTime>,
    pub history: KeptHistory,
    /// Whether suppliers have to offer redelivery.
    pub reliable: bool,
    /// Suppliers have to offer this deadline or an earlier one, in nanoseconds after publication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// The consumer's class must be guaranteed at least this fraction of the whole capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<AgainSpec>,
    /// The time for which the inbox of a group outlives its last consumer, in nanoseconds.
    pub linger_ns: u64,
    /// The interval of periodic notices, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_ns: Option<u64>,
    /// The consumer gets a notice after this many nanoseconds without an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumeSpec>,
    /// Whether events may come directly from suppliers through shared memory, where that is possible.
    /// `docs/events.md` lists the features that the consumer lacks in this case. Left out: events may come
    /// directly.
    #[serde(skip_serializing_if = "bool::clone")]
    pub direct: bool,
    /// Whether the consumer gets no events from programs of other brokers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub local_only: bool,
    /// Whether events may be lost between broker and program, on connections that can lose datagrams (UDP).
    /// No event waits for a lost one, and each loss is reported to the consumer as a gap.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub best_effort: bool,
}

impl Default for SubscriptionSpec {
    /// The default terms: a queue of 1024 events or 4 MiB that drops the oldest event when it is full, late
    /// events delivered, an execution time of 1 us per event, and direct rings from suppliers where possible.
    fn default() -> Self {
        Self {
            name: String::new(),
            group: None,
            class: None,
            interests: Vec::new(),
            together: None,
            queue_events: 1024,
            queue_bytes: 4 << 20,
            full: WhenFull::default(),
            between: SupplierOrder::default(),
            order: EventOrder::default(),
            late: WhenLate::default(),
            execution_ns: 1000,
            execution_per_kib_ns: 0,
            reserve: None,
            history: KeptHistory::None,
            reliable: false,
            deadline_ns: None,
            share: None,
            again: None,
            linger_ns: 0,
            every_ns: None,
            silence_ns: None,
            resume: None,
            direct: true,
            local_only: false,
            best_effort: false,
        }
    }
}

/// The reason why an interest is invalid.
#[derive(Debug, thiserror::Error)]
pub enum InterestError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the filter `{filter}`: {error}")]
    Filter { filter: String, error: FilterError },
}

impl InterestSpec {
    /// Makes an interest in all events of topics that match a pattern.
    #[must_use]
    pub fn new(topics: &str) -> Self {
        Self { topics: topics.to_owned(), ..Self::default() }
    }

    /// Returns the number of patterns with which a topic is compared.
    pub fn patterns(&self) -> usize {
        self.except.iter().fold(1, |patterns, except| patterns + 1 + except.but.len())
    }

    fn interest(&self) -> Result<Interest, InterestError> {
        let excepted = |except: &ExceptSpec| {
            let but = except.but.iter().map(|but| but.parse()).collect::<Result<_, NameError>>()?;
            Ok(ExceptedTopics { pattern: except.topics.parse()?, but })
        };
        let except = self.except.iter().map(excepted).collect::<Result<_, NameError>>()?;
        let mut interest = Interest::in_topics(self.topics.parse()?).leaving_out(except);
        if let Some(event_type) = &self.event_type {
            interest = interest.typed(event_type);
        }
        if let Some(filter) = &self.filter {
            let error = |error| InterestError::Filter { filter: filter.clone(), error };
            interest = interest.filtered(filter.parse().map_err(error)?);
        }
        Ok(interest)
    }
}

impl SubscriptionSpec {
    /// Makes a subscription to all events on the topics of a pattern, with the default queue.
    #[must_use]
    pub fn new(topics: &str) -> Self {
        let interest = InterestSpec { topics: topics.to_owned(), ..InterestSpec::default() };
        Self { interests: vec![interest], ..Self::default() }
    }

    pub fn consumer(&self) -> ConsumerSpec {
        let reservation = self.reserve.map(|reserve| Reservation {
            period: Duration::from_nanos(reserve.period_ns),
            deadline: Duration::from_nanos(reserve.deadline_ns),
            largest: reserve.largest,
        });
        let inbox = InboxSpec {
            class: self.class.as_deref().map(Arc::from),
            capacity: InboxCapacity { events: self.queue_events, bytes: self.queue_bytes },
            full: match self.full {
                WhenFull::DropOldest => FullInbox::DropOldest,
                WhenFull::DropByDeadline => FullInbox::DropByDeadline,
                WhenFull::BlockSupplier => FullInbox::BlockSupplier,
            },
            blocks: BlockedSuppliers::All,
            late: match self.late {
                WhenLate::Deliver => LateEvents::Deliver,
                WhenLate::Drop => LateEvents::Drop,
                WhenLate::Report => LateEvents::Report,
            },
            execution: ExecutionTime {
                event: Duration::from_nanos(self.execution_ns),
                kibibyte: Duration::from_nanos(self.execution_per_kib_ns),
            },
            reservation,
            request: QualityRequest {
                history: self.history.into(),
                reliability: if self.reliable { Reliability::AtLeastOnce } else { Reliability::BestEffort },
                deadline: self.deadline_ns.map(Duration::from_nanos),
                share: self.share,
            },
            redelivery: self.again.map(|again| Redelivery {
                after: Duration::from_nanos(again.after_ns),
                attempts: again.attempts,
                window: again.window,
            }),
            linger: Duration::from_nanos(self.linger_ns),
            between: match self.between {
                SupplierOrder::Deadlines => BetweenSuppliers::Deadlines,
                SupplierOrder::Shares => BetweenSuppliers::Shares,
            },
            order: self.order.into(),
            origins: if self.local_only { AcceptedOrigins::Local } else { AcceptedOrigins::All },
        };
        let group = self.group.as_deref().map(Arc::from);
        ConsumerSpec { group, ..ConsumerSpec::new(&self.name).with(inbox) }
    }

    /// Returns the first repeating interval that is shorter than [`MIN_PERIOD`], with its name in messages.
    pub fn too_short(&self) -> Option<(&'static str, u64)> {
        let times = [
            ("a period", self.every_ns),
            ("a time of silence", self.silence_ns),
            ("a time until an event comes again", self.again.map(|again| again.after_ns)),
        ];
        let short = |(what, ns): (&'static str, Option<u64>)| {
            Some((what, ns.filter(|ns| Duration::from_nanos(*ns) < MIN_PERIOD)?))
        };
        times.into_iter().find_map(short)
    }

    /// Returns a term of the subscription that needs lossless delivery, and so contradicts best effort, if
    /// any.
    pub fn contradicts_best_effort(&self) -> Option<&'static str> {
        let odd = [
            (self.reliable, "ask for reliable suppliers"),
            (self.again.is_some(), "have events delivered again"),
            (self.together.is_some(), "ask for events together"),
            (self.resume.is_some(), "resume"),
        ];
        odd.into_iter().find(|(is, _)| self.best_effort && *is).map(|(_, what)| what)
    }

    pub fn interests(&self) -> Result<Vec<Interest>, InterestError> {
        self.interests.iter().map(InterestSpec::interest).collect()
    }
}

impl TogetherSpec {
    pub fn correlation(self, parts: Vec<Interest>) -> Correlation {
        Correlation {
            parts,
            rule: match self.rule {
                PartRule::Any => CorrelationRule::Any,
                PartRule::All => CorrelationRule::All,
                PartRule::Sequence => CorrelationRule::Sequence,
            },
            within: Duration::from_nanos(self.within_ns),
            incomplete: if self.report { Incomplete::Report } else { Incomplete::Forget },
        }
    }
}

/// A path: a destination to which the broker sends events at the rate that the policy sets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// A class of the policy. Empty: the policy's default class.
    pub class: String,
    pub destination: Destination,
}
