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
//! Cost: three additions for an event that is kept; nothing for others.

use crate::error::{KeptBy, PublishError};
use std::collections::HashMap;

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

/// What one kept event costs, and whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptCharge {
    bytes: usize,
    client: KeepingAccount,
    user: KeepingAccount,
}

impl KeptCharge {
    pub(crate) fn of(terms: &KeepingTerms, bytes: usize) -> Self {
        Self { bytes, client: terms.client.0, user: terms.user.0 }
    }
}

/// What an event costs that is kept.
pub(crate) fn cost(payload: usize, key: Option<&str>, fields: usize) -> usize {
    KEPT_ENTRY.saturating_add(payload).saturating_add(key.map_or(0, str::len)).saturating_add(fields)
}

/// All that topics keep.
#[derive(Debug, Default)]
pub(crate) struct KeptMemory {
    all: usize,
    /// Of clients and users; none is 0.
    accounts: HashMap<(KeptBy, KeepingAccount), usize>,
}

impl KeptMemory {
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    pub(crate) fn of(&self, whose: KeptBy, account: KeepingAccount) -> usize {
        match whose {
            KeptBy::All => self.all,
            whose => self.accounts.get(&(whose, account)).copied().unwrap_or(0),
        }
    }

    /// Whether `bytes` more may be kept once `freed` is not any more. What does not grow is never refused.
    pub(crate) fn check(
        &self,
        terms: &KeepingTerms,
        limit: usize,
        bytes: usize,
        freed: &[KeptCharge],
    ) -> Result<(), PublishError> {
        let KeepingTerms { client, user, all } = *terms;
        let parties = [
            (KeptBy::Client, client.0, client.1),
            (KeptBy::User, user.0, user.1),
            (KeptBy::All, KeepingAccount::default(), all.min(limit)),
        ];
        for (whose, account, most) in parties {
            let theirs = |charge: &&KeptCharge| match whose {
                KeptBy::Client => charge.client == account,
                KeptBy::User => charge.user == account,
                KeptBy::All => true,
            };
            let less: usize = freed.iter().filter(theirs).map(|charge| charge.bytes).sum();
            let after = (self.of(whose, account) - less).saturating_add(bytes);
            if bytes > less && after > most {
                return Err(PublishError::KeptFull { whose, most });
            }
        }
        Ok(())
    }

    pub(crate) fn charge(&mut self, charge: KeptCharge) {
        self.all += charge.bytes;
        for account in [(KeptBy::Client, charge.client), (KeptBy::User, charge.user)] {
            *self.accounts.entry(account).or_default() += charge.bytes;
        }
    }

    pub(crate) fn release(&mut self, charge: KeptCharge) {
        self.all -= charge.bytes;
        for account in [(KeptBy::Client, charge.client), (KeptBy::User, charge.user)] {
            if let Some(used) = self.accounts.get_mut(&account) {
                *used -= charge.bytes;
                if *used == 0 {
                    self.accounts.remove(&account);
                }
            }
        }
    }
}
