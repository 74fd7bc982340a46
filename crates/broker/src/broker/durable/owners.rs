//! The owners of names that the log keeps.

use crate::broker::Broker;
use crate::log::OwnedKind;
use crate::name_owner::NameOwner;

impl Broker {
    pub(in crate::broker) fn name_owner(&self, kind: OwnedKind, name: &str) -> Option<NameOwner> {
        self.durable.as_ref()?.log.owner_of(kind, name).cloned()
    }

    /// The number of names of a kind that an owner has.
    pub(in crate::broker) fn names_of(&self, kind: OwnedKind, owner: &NameOwner) -> usize {
        self.durable.as_ref().map_or(0, |durable| durable.log.owned_by(kind, owner))
    }

    /// Gives a name to an owner. Returns the kind of the name, in words, if the log knew it without an owner.
    pub(in crate::broker) fn give_name(
        &mut self,
        kind: OwnedKind,
        name: &str,
        owner: &NameOwner,
    ) -> Result<Option<&'static str>, String> {
        let Some(durable) = &mut self.durable else { return Ok(None) };
        let known = match kind {
            OwnedKind::Consumer => durable.log.has_consumer(name).then_some("consumer"),
            OwnedKind::Writer => durable.log.has_writer(name).then_some("writer"),
            OwnedKind::Chain => None,
        };
        durable.log.give_name(kind, name, owner).map_err(|error| error.to_string())?;
        Ok(known)
    }

    /// Frees the writer names of an owner without events in the log.
    pub(in crate::broker) fn free_writers(&mut self, owner: &NameOwner) {
        if let Some(durable) = &mut self.durable {
            let offers = &durable.offers;
            let in_use = |name: &str| offers.values().any(|offer| &*offer.writer == name);
            durable.log.free_writers(owner, in_use);
        }
    }
}
