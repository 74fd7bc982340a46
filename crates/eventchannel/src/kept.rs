//! What topics keep for consumers that come late, counted in bytes, and who pays for it.
//!
//! ```text
//!   try_publish --> would the topic keep the event? --> KeepingTerms of the supplier's client and user
//!                                                        | enough: charged to both, and to all
//!                                                        | not:    the supplier is refused
//!   replaced, removed, topic retired -----------------> the charge is released
//! ```
//! The last value of a key, the last events of a topic and retained events outlive their supplier. So the
//! caller numbers the accounts: that of a client may be its name, which is the same when the client comes
//! again. A publication carries the [`KeepingTerms`] under which it may be kept, because what else the
//! account pays for (queues) is known to the caller alone.
//!
//! The names of topics outlive their suppliers, too, until a topic is retired, and are charged in the same
//! way.
//!
//! Cost: three additions for an event that is kept; nothing for others.

/// What an event costs that is kept, beside its bytes, so that empty ones cost something too.
pub const KEPT_ENTRY: usize = 256;

/// Who pays for what is kept, by the caller's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct KeepingAccount(pub u32);

/// Who pays if a topic keeps an event, and how many bytes each may have kept then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepingTerms {
    pub client: (KeepingAccount, usize),
    pub user: (KeepingAccount, usize),
    /// Of all accounts together.
    pub all: usize,
}

impl Default for KeepingTerms {
    /// Account 0, without a bound of its own.
    fn default() -> Self {
        let unbounded = (KeepingAccount(0), usize::MAX);
        Self { client: unbounded, user: unbounded, all: usize::MAX }
    }
}

/// As what a topic keeps an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum KeptRole {
    History,
    Retained,
}

/// Where an event stands among all that are kept, by when they came. One event may be kept in both roles.
pub(crate) type KeptPlace = (u64, KeptRole);

/// What one kept event costs, and whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptCharge {
    pub(crate) bytes: usize,
    pub(crate) client: KeepingAccount,
    pub(crate) user: KeepingAccount,
    pub(crate) place: KeptPlace,
}

impl KeptCharge {
    /// For an event that came as the `count`th that is kept.
    pub(crate) fn of(terms: &KeepingTerms, bytes: usize, count: u64) -> Self {
        Self { bytes, client: terms.client.0, user: terms.user.0, place: (count, KeptRole::History) }
    }

    pub(crate) fn retained(self) -> Self {
        Self { place: (self.place.0, KeptRole::Retained), ..self }
    }
}

/// Bytes that a topic's name costs whoever declared it, beside the name and the type: the structures of a
/// topic without history.
const TOPIC_ENTRY: usize = 768;

/// What the name of a topic costs, and whom; nobody pays for topics of no tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NameCharge {
    pub(crate) bytes: usize,
    pub(crate) accounts: Option<(KeepingAccount, KeepingAccount)>,
}

impl NameCharge {
    pub(crate) fn of(terms: Option<&KeepingTerms>, name: &str, event_type: Option<&str>) -> Self {
        let bytes = TOPIC_ENTRY + name.len() + event_type.map_or(0, str::len);
        Self { bytes, accounts: terms.map(|terms| (terms.client.0, terms.user.0)) }
    }
}

/// What an event costs that is kept.
pub(crate) fn cost(payload: usize, key: Option<&str>, fields: usize) -> usize {
    KEPT_ENTRY.saturating_add(payload).saturating_add(key.map_or(0, str::len)).saturating_add(fields)
}
