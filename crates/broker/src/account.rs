//! What classes have got, as far as the broker can see.

use serde::{Deserialize, Serialize};
use unisono_linux::clock::Nanos;
use unisono_measure::histogram::Histogram;
use unisono_measure::record::Distribution;

/// What a broker has done since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Programs that are connected.
    pub clients: u64,
    /// Paths that are open or still drain.
    pub paths: u64,
    /// Ways from a supplier to a consumer that do not lead through the broker.
    #[serde(default)]
    pub direct: u64,
    /// Bytes that queues and the credit of paths may come to hold.
    #[serde(default)]
    pub granted_bytes: u64,
    /// Bytes that topics keep for consumers that come late.
    #[serde(default)]
    pub kept_bytes: u64,
    /// Bytes of topics' names.
    #[serde(default)]
    pub named_bytes: u64,
    /// Bytes of all else that was made for programs: filters, sessions, buffers of connections.
    #[serde(default)]
    pub held_bytes: u64,
    /// Publications, topics and subscriptions that were refused.
    pub refused: u64,
    /// Programs that were sent away because of what they sent.
    pub sent_away: u64,
    /// What was refused, by the reason: `admission` (a deadline that cannot be kept), `offered` (offered
    /// against requested), `publish` and `subscribe` (permissions), and so on.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub refusals: std::collections::BTreeMap<String, u64>,
    /// Entries of the audit that could not be written.
    #[serde(default)]
    pub audit_lost: u64,
    /// Leaves of the policy, in its order: what left on paths.
    pub classes: Vec<ClassStatistics>,
    /// Consumers of programs; a group is one of them.
    #[serde(default)]
    pub consumers: Vec<ConsumerStatistics>,
    /// Consumers that do not fit into this answer.
    #[serde(default)]
    pub left_out: u64,
    /// All consumers together that have gone.
    #[serde(default)]
    pub departed: ConsumerStatistics,
    /// Of all consumers, also those that have gone: deadlines missed by topic; the topics with the most.
    #[serde(default)]
    pub missed_by_topic: std::collections::BTreeMap<String, u64>,
    /// None: it keeps no log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogStatistics>,
}

/// What a broker's log holds, and what it did since the broker began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogStatistics {
    pub bytes: u64,
    /// The position of the oldest event.
    pub first: u64,
    /// The position that the next event gets.
    pub next: u64,
    /// The position of the first event that is not synced.
    pub synced: u64,
    pub written: u64,
    /// Events that could not be written.
    pub failed: u64,
    /// Times that the disk was waited for.
    pub syncs: u64,
    /// Places where bytes were found that are no events.
    pub damaged: u64,
    /// Bytes that were cut off behind the last whole event.
    pub torn: u64,
    /// Named consumers that are connected, with the position up to which they have acknowledged.
    pub consumers: std::collections::BTreeMap<String, u64>,
}

/// What a consumer, or its group, has got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumerStatistics {
    /// The name of its program, or of the group.
    pub name: String,
    /// The names of a group's programs, at most 16. None: it is alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<Vec<String>>,
    /// The class of the policy.
    pub class: String,
    /// Consumers in the group; 1 without one.
    pub members: u64,
    /// Events that matched.
    pub matched: u64,
    pub delivered: u64,
    /// Dropped because its queue was full.
    pub dropped_full: u64,
    /// Not delivered because their deadline had passed.
    pub dropped_late: u64,
    /// Not delivered because they were larger than its reservation holds for.
    pub dropped_large: u64,
    /// Given up after the last attempt, because nobody acknowledged them.
    pub given_up: u64,
    /// All that matched and will never be delivered: the sum of those four.
    pub lost: u64,
    /// Deadlines that passed before or while the event was delivered.
    pub missed: u64,
    /// The same by topic; the topics with the most, the others under [`OTHERS`].
    pub missed_by_topic: std::collections::BTreeMap<String, u64>,
    /// Deliveries repeated because nobody acknowledged them.
    pub repeated: u64,
    /// Publications that a supplier was refused because its queue was full.
    pub blocked: u64,
    /// Events that wait.
    pub waiting: u64,
    /// Whether its program reads nothing for now.
    pub paused: bool,
}

/// Stands for all that have no place of their own.
pub const OTHERS: &str = "(others)";

/// What a class has got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassStatistics {
    pub name: String,
    /// Its part of the link while every class wants more than its own.
    pub share: f64,
    pub messages: u64,
    /// What they took on the link.
    pub bytes: u64,
    /// Events that could not be delivered: a destination that refuses, a connection that broke.
    pub lost: u64,
    /// Events sent after their deadline.
    pub late: u64,
    /// Events that wait.
    pub waiting: u64,
    /// Microseconds from arrival to sending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_us: Option<Distribution>,
}

/// One leaf's account.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    pub(crate) delay: Histogram,
}

impl Account {
    pub(crate) fn sent(&mut self, now: Nanos, came: Nanos, deadline: Nanos, bytes: u32) {
        self.messages += 1;
        self.bytes += u64::from(bytes);
        self.late += u64::from(now > deadline);
        self.delay.record_nanos(now.since(came).0);
    }
}
