//! The parameters of a consumer's inbox; all consumers of a group state the same.

use super::{BetweenSuppliers, FullInbox, LateEvents};
use crate::admission::{ExecutionTime, Reservation};
use crate::quality::{AcceptedOrigins, BlockedSuppliers, DispatchOrder, QualityRequest};
use std::sync::Arc;
use unisono_time::Duration;

/// The maximum size of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InboxCapacity {
    /// Maximum number of events; at least one.
    pub events: usize,
    /// The maximum number of bytes of the events: of their payloads, and of each event's other bytes beyond
    /// the first [`EVENT_ENTRY`](crate::EVENT_ENTRY). A larger event waits alone.
    pub bytes: usize,
}

/// The parameters of a new inbox; the consumers of a group state the same ones.
#[derive(Clone, PartialEq, Debug)]
pub struct InboxSpec {
    /// The class of the inbox's deliveries. `None`: the default class.
    pub class: Option<Arc<str>>,
    pub capacity: InboxCapacity,
    pub full: FullInbox,
    /// The suppliers that [`FullInbox::BlockSupplier`] blocks.
    pub blocks: BlockedSuppliers,
    pub late: LateEvents,
    pub execution: ExecutionTime,
    /// The reservation. `None`: the inbox's events wait while an event with a reservation waits in the same
    /// class.
    pub reservation: Option<Reservation>,
    pub request: QualityRequest,
    /// How events are redelivered. `None`: delivered events need no acknowledgement.
    pub redelivery: Option<Redelivery>,
    /// The time for which the inbox of a group outlives its last consumer; a consumer that joins the group in
    /// time continues with the waiting events. Zero: the inbox is removed at once.
    pub linger: Duration,
    pub origins: AcceptedOrigins,
    pub between: BetweenSuppliers,
    pub order: DispatchOrder,
}

/// Delivery at least once: an event is kept until it is acknowledged, and redelivered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Redelivery {
    /// The time within which a delivery has to be acknowledged.
    pub after: Duration,
    /// Maximum number of deliveries of one event; at least one. After the last one the event is given up and
    /// reported as a gap.
    pub attempts: u32,
    /// Maximum number of unacknowledged deliveries to one consumer; at least one. The capacity of the queue
    /// bounds their bytes, too.
    pub window: usize,
}

impl Default for InboxSpec {
    /// The default inbox: the default class, a capacity of 1024 events or 16 MiB, the oldest event is
    /// dropped, late events are delivered, an execution time of 1 us per event, no reservation.
    fn default() -> Self {
        Self {
            class: None,
            capacity: InboxCapacity { events: 1024, bytes: 16 << 20 },
            full: FullInbox::DropOldest,
            blocks: BlockedSuppliers::All,
            late: LateEvents::Deliver,
            execution: ExecutionTime::constant(Duration::from_nanos(1000)),
            reservation: None,
            request: QualityRequest::default(),
            redelivery: None,
            linger: Duration::ZERO,
            origins: AcceptedOrigins::All,
            between: BetweenSuppliers::Deadlines,
            order: DispatchOrder::Deadlines,
        }
    }
}

impl InboxSpec {
    /// Returns the execution time of the longest event that the inbox may deliver, if the channel takes
    /// payloads up to `payload` bytes.
    pub(crate) fn longest(&self, payload: usize) -> Duration {
        let largest = self.reservation.map_or(payload, |reservation| reservation.largest);
        self.execution.for_bytes(largest.min(payload))
    }

    /// Describes the parameters that differ in `asked`, with both values, for people.
    pub(crate) fn differences(&self, asked: &Self) -> String {
        let stated = |spec: &Self| {
            let InboxCapacity { events, bytes } = spec.capacity;
            let ExecutionTime { event, kibibyte } = spec.execution;
            let QualityRequest { history, reliability, deadline, share } = spec.request;
            [
                ("class", spec.class.as_deref().unwrap_or("the default").to_owned()),
                ("queue", format!("{events} events, {bytes} bytes")),
                ("when full", in_words(spec.full)),
                (
                    "blocks",
                    match spec.blocks {
                        BlockedSuppliers::All => "all suppliers".to_owned(),
                        BlockedSuppliers::Of(_) => "suppliers of one owner".to_owned(),
                    },
                ),
                ("what is late", in_words(spec.late)),
                ("execution", format!("{} ns, {} ns a KiB", event.as_nanos(), kibibyte.as_nanos())),
                (
                    "reservation",
                    spec.reservation.map_or_else(none, |reservation| {
                        let Reservation { period, deadline, largest } = reservation;
                        format!(
                            "{largest} bytes each {} ns, done in {} ns",
                            period.as_nanos(),
                            deadline.as_nanos()
                        )
                    }),
                ),
                ("history", history.to_string()),
                ("reliability", reliability.to_string()),
                ("deadline", deadline.map_or_else(none, |deadline| format!("{} ns", deadline.as_nanos()))),
                ("share", share.map_or_else(none, |share| share.to_string())),
                (
                    "redelivery",
                    spec.redelivery.map_or_else(none, |redelivery| {
                        let Redelivery { after, attempts, window } = redelivery;
                        format!("after {} ns, {attempts} times, {window} at once", after.as_nanos())
                    }),
                ),
                ("lingers", format!("{} ns", spec.linger.as_nanos())),
                ("between suppliers", in_words(spec.between)),
                ("order", in_words(spec.order)),
            ]
        };
        let pairs = stated(self).into_iter().zip(stated(asked)).filter(|(ours, theirs)| ours != theirs);
        let words: Vec<String> = pairs
            .map(|((what, ours), (_, theirs))| format!("{what}: declared {ours}, asked {theirs}"))
            .collect();
        words.join("; ")
    }
}

fn none() -> String {
    "none".to_owned()
}

/// Writes a name such as `DropOldest` as "drop oldest".
fn in_words(choice: impl std::fmt::Debug) -> String {
    let mut words = String::new();
    for letter in format!("{choice:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}
