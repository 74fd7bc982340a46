//! Events kept for later consumers: their cost in bytes, and the accounts that pay for them.
//!
//! ```text
//!   try_publish --> would the topic keep the event? --> KeepingTerms of the supplier's client and user
//!                                                        | enough: charged to both, and to all
//!                                                        | not:    the supplier is refused
//!   replaced, removed, topic retired -----------------> the charge is released
//! ```
//! The last value of a key, the last events of a topic and retained events outlive their supplier. So the
//! caller numbers the accounts: the account of a client may belong to its name, which is the same when the
//! client reconnects. A publication carries the [`KeepingTerms`] under which it may be kept, because only the
//! caller knows the other costs of the account (queues).
//!
//! The names of topics outlive their suppliers, too, until a topic is retired, and are charged in the same
//! way.
//!
//! Cost: three additions for an event that is kept; nothing for other events.

use crate::index::TopicRoute;

/// The cost of a kept event in addition to its bytes, so that empty events cost something, too.
pub const KEPT_ENTRY: usize = 256;

/// The account that pays for kept events, as a number that the caller chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KeepingAccount(pub u32);

/// The accounts that pay if a topic keeps an event, each with the maximum bytes that it may then have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepingTerms {
    pub client: (KeepingAccount, usize),
    pub user: (KeepingAccount, usize),
    /// Maximum bytes of all accounts together.
    pub all: usize,
}

impl Default for KeepingTerms {
    /// The default terms: account 0 pays, without a bound.
    fn default() -> Self {
        let unbounded = (KeepingAccount(0), usize::MAX);
        Self { client: unbounded, user: unbounded, all: usize::MAX }
    }
}

/// The role of a kept event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum KeptRole {
    History,
    Retained,
}

/// The place of an event in the order of all kept events. One event may be kept in both roles.
pub(crate) type KeptPlace = (u64, KeptRole);

/// The cost of one kept event, and the accounts that pay for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptCharge {
    pub(crate) bytes: usize,
    pub(crate) client: KeepingAccount,
    pub(crate) user: KeepingAccount,
    pub(crate) place: KeptPlace,
}

impl KeptCharge {
    /// Makes the charge for the `count`th kept event.
    pub(crate) fn new(terms: &KeepingTerms, bytes: usize, count: u64) -> Self {
        Self { bytes, client: terms.client.0, user: terms.user.0, place: (count, KeptRole::History) }
    }

    pub(crate) fn retained(self) -> Self {
        Self { place: (self.place.0, KeptRole::Retained), ..self }
    }
}

/// Bytes charged for a topic in addition to the texts of its name and its type: the structures of a topic
/// without history, and its route.
const TOPIC_ENTRY: usize = 768 + TopicRoute::MAX_BYTES;

/// The cost of a topic's name, and the accounts that pay for it. Topics without a tenant cost nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NameCharge {
    pub(crate) bytes: usize,
    pub(crate) accounts: Option<(KeepingAccount, KeepingAccount)>,
}

impl NameCharge {
    pub(crate) fn new(terms: Option<&KeepingTerms>, name: &str, event_type: Option<&str>) -> Self {
        let bytes = TOPIC_ENTRY + name.len() + event_type.map_or(0, str::len);
        Self { bytes, accounts: terms.map(|terms| (terms.client.0, terms.user.0)) }
    }
}

/// Returns the cost of a kept event.
pub(crate) fn cost(payload: usize, key: Option<&str>, fields: usize) -> usize {
    KEPT_ENTRY.saturating_add(payload).saturating_add(key.map_or(0, str::len)).saturating_add(fields)
}
