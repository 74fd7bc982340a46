//! The terms of a consumer's inbox, which the consumers of a group all state.

use super::{BetweenSuppliers, FullInbox, LateEvents};
use crate::admission::{ExecutionTime, Reservation};
use crate::quality::{BlockedSuppliers, HeardOrigins, QualityRequest};
use std::sync::Arc;
use unisono_linux::clock::Nanos;

/// How much may wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InboxCapacity {
    /// At least one.
    pub events: usize,
    /// Bytes of payload, and of keys and fields beyond [`EVENT_ENTRY`] of an event. A larger event than that
    /// waits alone.
    pub bytes: usize,
}

/// An inbox to be; the consumers of a group state the same.
#[derive(Clone, PartialEq, Debug)]
pub struct InboxSpec {
    /// The class of the policy that its deliveries belong to. None: the default class.
    pub class: Option<Arc<str>>,
    pub capacity: InboxCapacity,
    pub full: FullInbox,
    /// Which suppliers [`FullInbox::BlockSupplier`] makes wait.
    pub blocks: BlockedSuppliers,
    pub late: LateEvents,
    pub execution: ExecutionTime,
    /// None: its events wait until no event of its class with a reservation does.
    pub reservation: Option<Reservation>,
    pub request: QualityRequest,
    /// None: what has been delivered is done with.
    pub redelivery: Option<Redelivery>,
    /// How long the inbox of a group outlives its last consumer; one that joins the group in time goes on
    /// with what waits. Zero: not at all.
    pub linger: Nanos,
    pub hears: HeardOrigins,
    pub between: BetweenSuppliers,
}

/// Delivery at least once: until it is acknowledged an event is kept, and delivered again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Redelivery {
    /// How long a consumer has to acknowledge.
    pub after: Nanos,
    /// Deliveries of one event, at most; at least one. Then it is given up, which is told as a gap.
    pub attempts: u32,
    /// Deliveries to one consumer that are not acknowledged, at most; at least one. Their bytes have the
    /// bound of the queue, too.
    pub window: usize,
}

impl Default for InboxSpec {
    /// Of the default class, 1024 events or 16 MiB, dropping the oldest, delivering what is late, 1 us an
    /// event, without a reservation.
    fn default() -> Self {
        Self {
            class: None,
            capacity: InboxCapacity { events: 1024, bytes: 16 << 20 },
            full: FullInbox::DropOldest,
            blocks: BlockedSuppliers::All,
            late: LateEvents::Deliver,
            execution: ExecutionTime::constant(Nanos(1000)),
            reservation: None,
            request: QualityRequest::default(),
            redelivery: None,
            linger: Nanos::ZERO,
            hears: HeardOrigins::All,
            between: BetweenSuppliers::Deadlines,
        }
    }
}

impl InboxSpec {
    /// What another one states otherwise, with both values, for people.
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
                ("execution", format!("{} ns, {} ns a KiB", event.0, kibibyte.0)),
                (
                    "reservation",
                    spec.reservation.map_or_else(none, |reservation| {
                        let Reservation { period, deadline, largest } = reservation;
                        format!("{largest} bytes each {} ns, done in {} ns", period.0, deadline.0)
                    }),
                ),
                ("history", history.to_string()),
                ("reliability", reliability.to_string()),
                ("deadline", deadline.map_or_else(none, |deadline| format!("{} ns", deadline.0))),
                ("share", share.map_or_else(none, |share| share.to_string())),
                (
                    "redelivery",
                    spec.redelivery.map_or_else(none, |redelivery| {
                        let Redelivery { after, attempts, window } = redelivery;
                        format!("after {} ns, {attempts} times, {window} at once", after.0)
                    }),
                ),
                ("lingers", format!("{} ns", spec.linger.0)),
                ("between suppliers", in_words(spec.between)),
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

/// `DropOldest` as "drop oldest".
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
