//! What programs ask of the channel, as it travels: advertisements, subscriptions, paths. All in JSON,
//! because they are rare and grow; times in nanoseconds. What is left out has the value of [`Default`].

use crate::destination::Destination;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use unisono_eventchannel::{
    BetweenSuppliers, BlockedSuppliers, ConsumerSpec, Correlation, CorrelationRule, EventOrigin,
    ExceptedTopics, ExecutionTime, FilterError, FullInbox, HeardOrigins, HistoryDepth, InboxCapacity,
    InboxSpec, Incomplete, Interest, LateEvents, NameError, Offer, Ownership, QualityRequest, Redelivery,
    Reliability, Reservation, SupplierOwner, SupplyRate, TenantId, TopicId, TopicSpec,
};
use unisono_linux::clock::Nanos;

/// The shortest time after which a consumer is told something again. The broker does so for each consumer,
/// and serves the others meanwhile: to wake a program costs it some 10 us. Chosen, not measured.
pub(crate) const MIN_PERIOD: Nanos = Nanos(100_000);

/// The first frame of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Greeting {
    /// For messages to people.
    pub name: String,
    /// A program that says nothing for so long counts as dead; `alive` frames say that it lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ns: Option<u64>,
    /// The secret that says who the program is, over TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Whether it understands direct rings.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rings: bool,
    /// Whether it wants to be told the types of topics.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub types: bool,
}

/// The answer to a greeting.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WelcomeTerms {
    pub version: u32,
    /// Bytes of the largest payload.
    pub largest: u32,
    /// The same of an event on a path.
    pub path_largest: u32,
    /// Whether times in frames are of the monotonic clock that both ends read; if not, they are lengths of
    /// time from the moment of sending.
    pub same_clock: bool,
    /// A number of this run of the broker, drawn when it began to serve; its numbers of suppliers mean
    /// nothing in another run. 0: it has none.
    #[serde(default)]
    pub run: u64,
    /// The topic on which this program expects answers: it may subscribe to it, and whoever knows the name
    /// may publish on it, whatever the permissions say. Nobody guesses it. Empty: an older broker has none.
    #[serde(default)]
    pub reply: String,
}

/// What is kept for consumers that come late.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum KeptHistory {
    #[default]
    None,
    /// The last event of each of so many keys.
    LastValue(usize),
    /// So many events.
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

/// How far an event has come when its supplier is told that it was taken; a smaller one promises less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// In the queues of its consumers. What waits there is lost with the broker.
    #[default]
    Received,
    /// In the log, by write(2): it outlives the broker, and not the power.
    Written,
    /// In the log, and fdatasync(2) has returned.
    Synced,
}

impl Durability {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which program of another host published: numbers that mean something to its own broker alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteSupplier {
    /// The run of that broker, [`WelcomeTerms::run`].
    pub run: u64,
    /// Its number there.
    pub supplier: u32,
}

/// A supplier's topic, and what it offers for it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Advertisement {
    pub topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    pub history: KeptHistory,
    /// Whether only the strongest living supplier of the topic is heard.
    pub exclusive: bool,
    pub strength: u32,
    /// How much of the time of consumers that share theirs out its events get; left out: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Whether events may be redelivered until they are acknowledged.
    pub reliable: bool,
    /// When an event is due that has no deadline of its own, after its publication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// Events come at least this far apart, on average over a burst; faster ones are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    pub burst: u32,
    /// From [`Durability::Written`] on, its events are in the log.
    #[serde(skip_serializing_if = "Durability::is_default")]
    pub durability: Durability,
    /// The supplier's name across connections. Events in the log that it numbers itself are then there once,
    /// however often it publishes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
    /// Whose events these are, if they come from another broker's programs. The topic is then what others
    /// declared, or will declare, and consumers that are `local_only` do not get the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_elsewhere: Option<RemoteSupplier>,
}

impl Advertisement {
    /// Of a topic, with nothing promised.
    #[must_use]
    pub fn of(topic: &str) -> Self {
        Self { topic: topic.to_owned(), ..Self::default() }
    }

    pub(crate) fn topic_spec(&self) -> Result<TopicSpec, NameError> {
        let ownership = if self.exclusive { Ownership::Exclusive } else { Ownership::Shared };
        let spec = TopicSpec::new(&self.topic)?.keeping(self.history.into()).owned(ownership);
        Ok(match &self.event_type {
            Some(event_type) => spec.typed(event_type),
            None => spec,
        })
    }

    pub(crate) fn offer(&self, topic: TopicId) -> Offer {
        Offer {
            topic,
            event_type: self.event_type.as_deref().map(Arc::from),
            reliability: if self.reliable { Reliability::AtLeastOnce } else { Reliability::BestEffort },
            deadline: self.deadline_ns.map(Nanos),
            rate: self.period_ns.map(|period| SupplyRate { period: Nanos(period), burst: self.burst.max(1) }),
            strength: self.strength,
            share: self.share.unwrap_or(1).max(1),
            origin: match self.from_elsewhere {
                Some(_) => EventOrigin::Elsewhere,
                None => EventOrigin::Here,
            },
            owner: SupplierOwner::default(),
        }
    }
}

/// Topics of an interest's pattern that it does not ask for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExceptSpec {
    /// A pattern: `+` stands for one level, `#` for all further ones.
    pub topics: String,
    /// Patterns of those that are not left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub but: Vec<String>,
}

/// Events that a subscription asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InterestSpec {
    /// A pattern: `+` stands for one level, `#` for all further ones.
    pub topics: String,
    /// What it does not ask for of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<ExceptSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// Which of several interests make a delivery.
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
    /// From the first event to the last.
    pub within_ns: u64,
    /// Whether a correlation that began and was not completed is reported.
    #[serde(default)]
    pub report: bool,
}

/// What happens to events while an inbox is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    #[default]
    DropOldest,
    DropByDeadline,
    BlockSupplier,
}

/// Which supplier's events a consumer gets first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SupplierOrder {
    /// What is due first, whoever published it.
    #[default]
    Deadlines,
    /// Suppliers have the consumer's time and queue in proportion to their shares.
    Shares,
}

impl SupplierOrder {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What happens to events whose deadline has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenLate {
    #[default]
    Deliver,
    Drop,
    Report,
}

/// What a consumer states to be admitted: it is refused if its class cannot keep this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservedTime {
    pub period_ns: u64,
    /// From the arrival of an event until it has to be delivered.
    pub deadline_ns: u64,
    /// Bytes of the largest payload that this holds for.
    pub largest: usize,
}

/// Delivery at least once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgainSpec {
    pub after_ns: u64,
    pub attempts: u32,
    /// Deliveries that may be unacknowledged at a time.
    pub window: usize,
}

/// A consumer that goes on where it was, over connections and restarts of the broker. It is given what the
/// log has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeSpec {
    /// One consumer at a time has a name. It belongs to the identity that used it first.
    pub name: String,
    /// It goes on after this position of the log, the number of a delivery. None: after the last one that it
    /// acknowledged; where it never did, after what the log has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Whether the name ends with this subscription: when the program unsubscribes, and not when its
    /// connection breaks, the broker forgets the position, and the name is free.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forget: bool,
}

/// A consumer: what it asks for, and on which terms.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubscriptionSpec {
    /// For messages to people.
    pub name: String,
    /// Consumers of one group share the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// A class of the policy; left out: its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    pub interests: Vec<InterestSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<TogetherSpec>,
    pub queue_events: usize,
    pub queue_bytes: usize,
    pub full: WhenFull,
    #[serde(skip_serializing_if = "SupplierOrder::is_default")]
    pub between: SupplierOrder,
    pub late: WhenLate,
    /// Worst-case time for an event, and in addition for each KiB of its payload.
    pub execution_ns: u64,
    pub execution_per_kib_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<ReservedTime>,
    pub history: KeptHistory,
    /// Whether suppliers have to offer redelivery.
    pub reliable: bool,
    /// Suppliers have to offer this deadline, or a sooner one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// The class has to be sure of this part of the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<AgainSpec>,
    /// How long the inbox of a group outlives its last consumer.
    pub linger_ns: u64,
    /// A notice each period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_ns: Option<u64>,
    /// A notice when nothing came for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumeSpec>,
    /// Whether its events may come straight from suppliers through shared memory, where they can.
    /// `docs/events.md` says what the consumer gives up for that. Left out: they may.
    #[serde(skip_serializing_if = "bool::clone")]
    pub direct: bool,
    /// Whether it is given no events that come from another broker's programs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub local_only: bool,
    /// Whether its events may be lost between broker and program, where the connection can lose some (UDP).
    /// None of them waits for one that was lost; each loss is told as a gap.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub best_effort: bool,
}

impl Default for SubscriptionSpec {
    /// 1024 events or 4 MiB, dropping the oldest, delivering what is late, 1 us an event, straight from
    /// suppliers where that can be.
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

/// Why an interest is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InterestError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the filter `{filter}`: {error}")]
    Filter { filter: String, error: FilterError },
}

impl InterestSpec {
    /// Patterns that it has to be compared with.
    pub(crate) fn patterns(&self) -> usize {
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
    /// All events of the topics of a pattern, with the default queue.
    #[must_use]
    pub fn of(topics: &str) -> Self {
        let interest = InterestSpec { topics: topics.to_owned(), ..InterestSpec::default() };
        Self { interests: vec![interest], ..Self::default() }
    }

    pub(crate) fn consumer(&self) -> ConsumerSpec {
        let reservation = self.reserve.map(|reserve| Reservation {
            period: Nanos(reserve.period_ns),
            deadline: Nanos(reserve.deadline_ns),
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
                event: Nanos(self.execution_ns),
                kibibyte: Nanos(self.execution_per_kib_ns),
            },
            reservation,
            request: QualityRequest {
                history: self.history.into(),
                reliability: if self.reliable { Reliability::AtLeastOnce } else { Reliability::BestEffort },
                deadline: self.deadline_ns.map(Nanos),
                share: self.share,
            },
            redelivery: self.again.map(|again| Redelivery {
                after: Nanos(again.after_ns),
                attempts: again.attempts,
                window: again.window,
            }),
            linger: Nanos(self.linger_ns),
            between: match self.between {
                SupplierOrder::Deadlines => BetweenSuppliers::Deadlines,
                SupplierOrder::Shares => BetweenSuppliers::Shares,
            },
            hears: if self.local_only { HeardOrigins::Here } else { HeardOrigins::All },
        };
        let group = self.group.as_deref().map(Arc::from);
        ConsumerSpec { name: self.name.as_str().into(), group, inbox, lease: None, tenant: TenantId::NONE }
    }

    /// A time after which the broker would act again and again, and that is too short for it.
    pub(crate) fn too_short(&self) -> Option<(&'static str, u64)> {
        let times = [
            ("a period", self.every_ns),
            ("a time of silence", self.silence_ns),
            ("a time until an event comes again", self.again.map(|again| again.after_ns)),
        ];
        let short =
            |(what, ns): (&'static str, Option<u64>)| Some((what, ns.filter(|ns| Nanos(*ns) < MIN_PERIOD)?));
        times.into_iter().find_map(short)
    }

    /// What it asks for that cannot be had if events may be lost on the way.
    pub(crate) fn contradicts_best_effort(&self) -> Option<&'static str> {
        let odd = [
            (self.reliable, "ask for reliable suppliers"),
            (self.again.is_some(), "have events delivered again"),
            (self.together.is_some(), "ask for events together"),
            (self.resume.is_some(), "resume"),
        ];
        odd.into_iter().find(|(is, _)| self.best_effort && *is).map(|(_, what)| what)
    }

    pub(crate) fn interests(&self) -> Result<Vec<Interest>, InterestError> {
        self.interests.iter().map(InterestSpec::interest).collect()
    }
}

impl TogetherSpec {
    pub(crate) fn correlation(self, parts: Vec<Interest>) -> Correlation {
        Correlation {
            parts,
            rule: match self.rule {
                PartRule::Any => CorrelationRule::Any,
                PartRule::All => CorrelationRule::All,
                PartRule::Sequence => CorrelationRule::Sequence,
            },
            within: Nanos(self.within_ns),
            incomplete: if self.report { Incomplete::Report } else { Incomplete::Forget },
        }
    }
}

/// A path: where the broker sends events on to, at the policy's rate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// A class of the policy; empty: its default.
    pub class: String,
    pub destination: Destination,
}
