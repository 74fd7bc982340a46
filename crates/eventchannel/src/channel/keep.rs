//! Adds kept events to a topic: by a publication, or when they are restored after a restart.

use super::{EventChannel, Topic};
use crate::error::ChannelError;
use crate::event::{ChannelEvent, EventPayload, Retention};
use crate::ids::TopicId;
use crate::kept::{KeepingTerms, KeptCharge, NameCharge};
use crate::kept_memory::KeptMemory;
use std::sync::Arc;

impl<P> Topic<P> {
    /// Returns the number of copies of an event that are kept: one in the history, and one as the retained
    /// event.
    pub(super) fn copies(&self, retention: Retention) -> usize {
        usize::from(self.history.keeps()) + usize::from(retention == Retention::Retain)
    }

    /// Returns the charges that are released when an event with this key is kept.
    pub(super) fn freed(&self, key: Option<&Arc<str>>, retention: Retention) -> Vec<KeptCharge> {
        let former = self.retained.as_ref().filter(|_| retention != Retention::AsTopic).map(|it| it.1);
        former.into_iter().chain(self.history.displaced(key)).collect()
    }

    pub(super) fn keep(
        &mut self,
        kept: &mut KeptMemory<P>,
        event: &Arc<ChannelEvent<P>>,
        (retention, charge): (Retention, KeptCharge),
    ) {
        if self.history.keeps() {
            self.history.displaced(event.key.as_ref()).into_iter().for_each(|it| kept.release(it));
            self.history.push(event, charge);
            kept.charge(charge, event);
        }
        let former = match retention {
            Retention::AsTopic => None,
            Retention::Retain => self.retained.replace((Arc::clone(event), charge.retained())),
            Retention::Remove => self.retained.take(),
        };
        former.into_iter().for_each(|(_, former)| kept.release(former));
        if retention == Retention::Retain {
            kept.charge(charge.retained(), event);
        }
    }
}

impl<P: EventPayload> EventChannel<P> {
    /// Charges the bytes that the caller itself keeps for a topic until the topic is retired. The charge
    /// replaces the former one. [`take_retired`](Self::take_retired) then names the retired topic.
    ///
    /// # Errors
    /// The topic does not exist, or the charge would exceed the bound of an account; the former charge stays.
    pub fn keep_beside(
        &mut self,
        topic: TopicId,
        keeping: &KeepingTerms,
        bytes: usize,
    ) -> Result<(), ChannelError> {
        let unknown = ChannelError::Unknown { what: "topic", number: topic.0 };
        let topic = self.topics.get_mut(&topic).ok_or(unknown)?;
        let charge = NameCharge { bytes, accounts: Some((keeping.client.0, keeping.user.0)) };
        let replaced = self.kept.replace_name(keeping, (topic.beside, charge));
        replaced.map_err(|(whose, most)| ChannelError::NamesFull { whose, most })?;
        topic.beside = charge;
        Ok(())
    }

    /// Returns the topics that were retired since the last call and for which the caller keeps bytes of its
    /// own ([`keep_beside`](Self::keep_beside)).
    pub fn take_retired(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.retired)
    }

    /// Restores an event that was kept for later subscribers before a restart. No consumer gets it now.
    /// Returns whether the topic exists and has room for the event.
    pub fn keep_again(
        &mut self,
        event: ChannelEvent<P>,
        retention: Retention,
        keeping: &KeepingTerms,
    ) -> bool {
        let Some(at) = self.topics.get_mut(&event.topic) else { return false };
        let (each, freed) = (event.memory(), at.freed(event.key.as_ref(), retention));
        let bytes = at.copies(retention).saturating_mul(each);
        if self.kept.check(keeping, self.limits.kept, bytes, &freed).is_err() {
            return false;
        }
        let charge = KeptCharge::new(keeping, each, self.kept.next_count());
        at.keep(&mut self.kept, &Arc::new(event), (retention, charge));
        true
    }
}
