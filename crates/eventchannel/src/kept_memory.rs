//! The bytes of kept events by account, and all kept events in one common order, so that later consumers can
//! get them piece by piece (`channel/past.rs`).
//!
//! Cost: a logarithm for an event that is kept.

use crate::error::{KeptBy, PublishError};
use crate::event::ChannelEvent;
use crate::kept::{KeepingAccount, KeepingTerms, KeptCharge, KeptPlace, NameCharge};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct KeptMemory<P> {
    /// Bytes of all events that are kept.
    all: usize,
    /// Bytes of the names of topics.
    names: usize,
    /// Bytes of events and names, by client and by user; an entry that becomes 0 is removed.
    accounts: HashMap<(KeptBy, KeepingAccount), usize>,
    /// All kept events, in order of arrival.
    order: BTreeMap<KeptPlace, Arc<ChannelEvent<P>>>,
    /// Number of events kept so far.
    count: u64,
}

impl<P> Default for KeptMemory<P> {
    fn default() -> Self {
        Self { all: 0, names: 0, accounts: HashMap::new(), order: BTreeMap::new(), count: 0 }
    }
}

impl<P> KeptMemory<P> {
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// Returns the bytes of topics' names.
    pub(crate) fn names(&self) -> usize {
        self.names
    }

    /// Returns the count for the next kept event.
    pub(crate) fn next_count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Returns the count of the last kept event.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the events after a place, up to and including the event with the count `until`.
    pub(crate) fn after(
        &self,
        place: KeptPlace,
        until: u64,
    ) -> impl Iterator<Item = (KeptPlace, &Arc<ChannelEvent<P>>)> {
        let range = (Bound::Excluded(place), Bound::Unbounded);
        let later = self.order.range(range).map(|(place, event)| (*place, event));
        later.take_while(move |((count, _), _)| *count <= until)
    }

    pub(crate) fn is_there(&self, place: KeptPlace) -> bool {
        self.order.contains_key(&place)
    }

    pub(crate) fn used_by(&self, whose: KeptBy, account: KeepingAccount) -> usize {
        match whose {
            KeptBy::All => self.all,
            whose => self.accounts.get(&(whose, account)).copied().unwrap_or(0),
        }
    }

    /// Checks that `bytes` more bytes may be kept after `freed` is released. A change that does not increase
    /// the kept bytes is never refused.
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
            let after = (self.used_by(whose, account) - less).saturating_add(bytes);
            // the accounts of clients and users include the names of topics, but `all` does not
            let beside_names = whose == KeptBy::All && after.saturating_add(self.names) > all;
            if bytes > less && (after > most || beside_names) {
                return Err(PublishError::KeptFull { whose, most });
            }
        }
        Ok(())
    }

    /// Checks that one more topic name may be kept.
    ///
    /// # Errors
    /// Returns the account that would exceed its bound, and the bound.
    pub(crate) fn check_name(&self, terms: &KeepingTerms, charge: NameCharge) -> Result<(), (KeptBy, usize)> {
        if charge.accounts.is_none() {
            return Ok(());
        }
        let KeepingTerms { client, user, all } = *terms;
        for (whose, account, most) in [(KeptBy::Client, client.0, client.1), (KeptBy::User, user.0, user.1)] {
            if self.used_by(whose, account).saturating_add(charge.bytes) > most {
                return Err((whose, most));
            }
        }
        match self.all.saturating_add(self.names).saturating_add(charge.bytes) > all {
            true => Err((KeptBy::All, all)),
            false => Ok(()),
        }
    }

    pub(crate) fn charge(&mut self, charge: KeptCharge, event: &Arc<ChannelEvent<P>>) {
        self.all += charge.bytes;
        self.order.insert(charge.place, Arc::clone(event));
        self.book((charge.client, charge.user), charge.bytes);
    }

    pub(crate) fn release(&mut self, charge: KeptCharge) {
        self.all -= charge.bytes;
        self.order.remove(&charge.place);
        self.unbook((charge.client, charge.user), charge.bytes);
    }

    pub(crate) fn charge_name(&mut self, charge: NameCharge) {
        self.names += charge.bytes;
        if let Some(accounts) = charge.accounts {
            self.book(accounts, charge.bytes);
        }
    }

    pub(crate) fn release_name(&mut self, charge: NameCharge) {
        self.names -= charge.bytes;
        if let Some(accounts) = charge.accounts {
            self.unbook(accounts, charge.bytes);
        }
    }

    /// Replaces a former charge by the charge for a name. If the name may not be kept, the former charge
    /// stays.
    ///
    /// # Errors
    /// The errors of [`check_name`](Self::check_name).
    pub(crate) fn replace_name(
        &mut self,
        terms: &KeepingTerms,
        (former, charge): (NameCharge, NameCharge),
    ) -> Result<(), (KeptBy, usize)> {
        self.release_name(former);
        let checked = self.check_name(terms, charge);
        self.charge_name(if checked.is_ok() { charge } else { former });
        checked
    }

    fn book(&mut self, (client, user): (KeepingAccount, KeepingAccount), bytes: usize) {
        for account in [(KeptBy::Client, client), (KeptBy::User, user)] {
            *self.accounts.entry(account).or_default() += bytes;
        }
    }

    fn unbook(&mut self, (client, user): (KeepingAccount, KeepingAccount), bytes: usize) {
        for account in [(KeptBy::Client, client), (KeptBy::User, user)] {
            if let Some(used) = self.accounts.get_mut(&account) {
                *used -= bytes;
                if *used == 0 {
                    self.accounts.remove(&account);
                }
            }
        }
    }
}
