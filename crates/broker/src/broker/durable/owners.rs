//! The owners of names that the log keeps.

use crate::broker::Broker;
use crate::log::OwnedKind;
use crate::name_owner::NameOwner;
use unisono_eventchannel::{ConsumerId, SupplierId, TopicPattern};

impl Broker {
    pub(in crate::broker) fn name_owner(&self, kind: OwnedKind, name: &str) -> Option<NameOwner> {
        self.durable.as_ref()?.log.owner_of(kind, name).cloned()
    }

    /// Returns the key in the log of a consumer that resumes.
    pub(in crate::broker) fn resumed_name(&self, consumer: ConsumerId) -> Option<&str> {
        Some(&self.durable.as_ref()?.followers.get(&consumer)?.name)
    }

    /// Returns the patterns of a consumer that resumes.
    pub(in crate::broker) fn resumed_patterns(
        &self,
        consumer: ConsumerId,
    ) -> impl Iterator<Item = &TopicPattern> {
        let follower = self.durable.as_ref().and_then(|durable| durable.followers.get(&consumer));
        follower.into_iter().flat_map(|follower| &follower.interests).map(|interest| &interest.pattern)
    }

    /// Returns the key in the log of a supplier's writer.
    pub(in crate::broker) fn writer_name(&self, supplier: SupplierId) -> Option<&str> {
        let writer = &self.durable.as_ref()?.offers.get(&supplier)?.writer;
        (!writer.is_empty()).then_some(writer)
    }

    /// Returns the number of names of a kind that an owner has.
    pub(in crate::broker) fn names_of(&self, kind: OwnedKind, owner: &NameOwner) -> usize {
        self.durable.as_ref().map_or(0, |durable| durable.log.owned_by(kind, owner))
    }

    /// Gives a name to an owner. Returns the kind of the name, in words, if the log knew it without an owner.
    pub(in crate::broker) fn assign_name(
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
        durable.log.assign_name(kind, name, owner).map_err(|error| error.to_string())?;
        Ok(known)
    }

    /// Frees an owner's writer names that have no event in the log and that no supplier uses.
    pub(in crate::broker) fn free_writers(&mut self, owner: &NameOwner) {
        if let Some(durable) = &mut self.durable {
            let offers = &durable.offers;
            let in_use = |name: &str| offers.values().any(|offer| &*offer.writer == name);
            durable.log.free_writers(owner, in_use);
        }
    }
}
