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
    /// Publications, topics and subscriptions that were refused.
    pub refused: u64,
    /// Programs that were sent away because of what they sent.
    pub sent_away: u64,
    /// What clients were refused because they may not have it, by kind.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub refusals: std::collections::BTreeMap<String, u64>,
    /// Leaves of the policy, in its order: what left on paths.
    pub classes: Vec<ClassStatistics>,
    /// Consumers of programs.
    #[serde(default)]
    pub consumers: Vec<ConsumerStatistics>,
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
pub struct ConsumerStatistics {
    /// The name of its program.
    pub name: String,
    /// Events that matched.
    pub matched: u64,
    pub delivered: u64,
    /// Dropped because its queue was full.
    pub dropped_full: u64,
    /// Not delivered because their deadline had passed.
    pub dropped_late: u64,
    /// Deadlines that passed before or while the event was delivered.
    pub missed: u64,
    /// The same by topic; those of topics that are gone under the empty name.
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
