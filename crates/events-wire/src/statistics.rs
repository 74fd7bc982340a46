//! Counters of the broker, its classes, its consumers and its log.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Totals since the broker began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// Time of the reading, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Number of connected programs.
    pub clients: u64,
    /// Number of paths that are open or still draining.
    pub paths: u64,
    /// Number of direct links from a supplier to a consumer, which do not pass through the broker.
    pub direct: u64,
    /// The number of bytes that queues and the credit of paths can hold at most.
    pub granted_bytes: u64,
    /// Bytes that topics keep for late subscribers.
    pub kept_bytes: u64,
    /// Bytes of topics' names.
    pub named_bytes: u64,
    /// Bytes of all other memory that is used for programs: filters, sessions, buffers of connections.
    pub held_bytes: u64,
    /// Refusals of all kinds: the sum of `refusals`.
    pub refused: u64,
    /// Number of programs that the broker disconnected because of the data that they sent.
    pub sent_away: u64,
    /// Refusals by reason: `admission` (a deadline that cannot be guaranteed), `offered` (the offered quality
    /// does not meet the requested one), `publish` and `subscribe` (permissions), and so on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refusals: BTreeMap<String, u64>,
    /// Entries of the audit that could not be written.
    pub audit_lost: u64,
    /// The leaf classes of the policy, in its order, with their traffic on paths.
    pub classes: Vec<ClassStatistics>,
    /// Consumers of programs; a group counts as one consumer.
    pub consumers: Vec<ConsumerStatistics>,
    /// Number of consumers that do not fit into this answer.
    pub left_out: u64,
    /// Totals of all consumers that have disconnected.
    pub departed: ConsumerStatistics,
    /// Missed deadlines by topic, of connected and disconnected consumers; the topics with the most, and the
    /// sum of the others under [`OTHERS`].
    pub missed_by_topic: BTreeMap<String, u64>,
    /// Events that the broker has taken, by topic: the topics with the most, and the sum of the others under
    /// [`OTHERS`]. A topic counts since it was declared.
    pub published_by_topic: BTreeMap<String, u64>,
    /// The state of the log. `None`: the broker keeps no log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogStatistics>,
}

impl Statistics {
    /// Returns the same counts without the names of consumers, programs and topics: all consumers are summed
    /// up as one, called [`OTHERS`].
    #[must_use]
    pub fn without_names(mut self) -> Self {
        let name = |consumer: &mut ConsumerStatistics| {
            OTHERS.clone_into(&mut consumer.name);
            consumer.programs = None;
            consumer.missed_by_topic = sum_of_all(&consumer.missed_by_topic);
        };
        self.consumers.iter_mut().chain([&mut self.departed]).for_each(name);
        self.missed_by_topic = sum_of_all(&self.missed_by_topic);
        self.published_by_topic = sum_of_all(&self.published_by_topic);
        if let Some(log) = &mut self.log {
            log.consumers.clear();
        }
        self
    }
}

/// Sums up all counters of a map in one entry, [`OTHERS`].
fn sum_of_all(counters: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let sum = counters.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
    (!counters.is_empty()).then(|| (OTHERS.to_owned(), sum)).into_iter().collect()
}

/// State of a broker's log, and totals since the broker began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogStatistics {
    pub bytes: u64,
    /// Position of the oldest event.
    pub first: u64,
    /// Position of the next event.
    pub next: u64,
    /// Position of the first event that is not synced.
    pub synced: u64,
    pub written: u64,
    /// Number of events that could not be written.
    pub failed: u64,
    /// Number of waits for the disk.
    pub syncs: u64,
    /// Number of places with bytes that are not valid events.
    pub damaged: u64,
    /// Bytes that were cut off after the last complete event.
    pub torn: u64,
    /// The connected resuming consumers by name, each with its acknowledged position.
    pub consumers: BTreeMap<String, u64>,
}

/// Totals of a consumer or of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumerStatistics {
    /// The name of the program or of the group.
    pub name: String,
    /// The names of a group's programs, at most 16. `None`: a single consumer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<Vec<String>>,
    /// The consumer's class in the policy.
    pub class: String,
    /// Number of consumers in the group; 1 without a group.
    pub members: u64,
    /// Number of matching events.
    pub matched: u64,
    pub delivered: u64,
    /// Events dropped because the queue was full.
    pub dropped_full: u64,
    /// Events dropped because their deadline had passed.
    pub dropped_late: u64,
    /// Events dropped because they exceeded the reservation's largest payload.
    pub dropped_large: u64,
    /// Events given up after the last delivery attempt without an acknowledgement.
    pub given_up: u64,
    /// Sum of the four preceding counters: the matching events that will never be delivered.
    pub lost: u64,
    /// Deadlines that passed before or during the delivery.
    pub missed: u64,
    /// Missed deadlines by topic: the topics with the most, and the sum of the others under [`OTHERS`].
    pub missed_by_topic: BTreeMap<String, u64>,
    /// Deliveries repeated for lack of an acknowledgement.
    pub repeated: u64,
    /// Publications refused to a supplier because this queue was full.
    pub blocked: u64,
    /// Number of waiting events.
    pub waiting: u64,
    /// Whether the program reads no events at present.
    pub paused: bool,
}

/// The name for all topics, or all consumers, that are not listed by their own names.
pub const OTHERS: &str = "(others)";

/// Totals of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassStatistics {
    pub name: String,
    /// The fraction of the link that the class gets while every class wants more than its share.
    pub share: f64,
    pub messages: u64,
    /// Bytes that the messages took on the link.
    pub bytes: u64,
    /// Events that could not be delivered: the destination refused, or the connection broke.
    pub lost: u64,
    /// Events sent after their deadline.
    pub late: u64,
    /// Number of waiting events.
    pub waiting: u64,
    /// The distribution of the time from arrival to sending, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<DelayDistribution>,
}

/// The distribution of a class's delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayDistribution {
    pub n: u64,
    pub min: f64,
    pub p25: f64,
    pub median: f64,
    pub p75: f64,
    pub p99: f64,
    pub max: f64,
}
