//! Changes the classes while events wait: new weights, or other classes.
//!
//! Classes are matched by their names. A consumer whose class no longer exists moves to the new default
//! class, with its waiting events. Guarantees that were given remain valid: a change that would break one is
//! refused.
//!
//! Cost: a check of all reservations, and a step for each inbox.

use super::EventChannel;
use crate::admission::{AdmissionControl, AdmissionError};
use crate::event::EventPayload;
use crate::ids::{ConsumerId, SupplierId, TopicId};
use crate::inbox::FullInbox;
use crate::pattern::TopicPattern;
use crate::quality::{BlockedSuppliers, Mismatch, Offer};
use std::sync::Arc;
use unisono_fairqueue::{ClassId, Hierarchy};
use unisono_time::Instant;

/// Why the classes cannot be changed. A refused change has no effect.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassChangeError {
    #[error(
        "the class `{class}` is in use, and the new policy has neither a leaf of this name nor a default class; \
         add one of the two"
    )]
    InUse { class: String },
    #[error("a guarantee to a connected consumer would not hold: {0}; end the consumer, or keep the share")]
    Admission(AdmissionError),
    #[error(
        "the consumer `{consumer}` of class `{class}` asked for a share: {mismatch}; end it, or keep the share"
    )]
    Share { consumer: Arc<str>, class: String, mismatch: Mismatch },
}

/// A change of classes that has been checked, for [`EventChannel::change_classes`].
#[derive(Debug)]
pub struct ClassChange {
    hierarchy: Hierarchy,
    homes: Vec<Option<ClassId>>,
    admission: AdmissionControl,
}

impl ClassChange {
    /// Returns the new class for the consumers of the class `before`, or `None` if no new class can take
    /// them.
    #[must_use]
    pub fn home(&self, before: ClassId) -> Option<ClassId> {
        self.homes.get(before.index()).copied().flatten()
    }

    /// Returns the new classes.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }
}

impl<P: EventPayload> EventChannel<P> {
    /// Checks whether the channel can change to these classes now.
    ///
    /// # Errors
    /// A consumer would have no class, or a guarantee would not hold.
    pub fn check_classes(&self, hierarchy: Hierarchy) -> Result<ClassChange, ClassChangeError> {
        let leaf = |name: &str| hierarchy.find(name).filter(|class| hierarchy.is_leaf(*class));
        let home = |name: &str| leaf(name).or(hierarchy.default_class());
        let homes: Vec<_> = self.hierarchy().classes().map(|(_, class)| home(&class.name)).collect();
        let name = |class: ClassId| self.hierarchy().class(class).name.clone();
        for receiver in self.receivers.values() {
            let Some(class) = homes[receiver.class.index()] else {
                return Err(ClassChangeError::InUse { class: name(receiver.class) });
            };
            receiver.inbox.spec.request.meets_share(hierarchy.share(class)).map_err(|mismatch| {
                let (consumer, class) = (Arc::clone(&receiver.name), name(receiver.class));
                ClassChangeError::Share { consumer, class, mismatch }
            })?;
        }
        let admission = self.admission.in_classes(&hierarchy, &homes).map_err(ClassChangeError::Admission)?;
        Ok(ClassChange { hierarchy, homes, admission })
    }

    /// Changes to other classes. The delivery in service is ended and charged its worst-case execution time.
    /// No event is lost, and the order within each class stays the same.
    pub fn change_classes(&mut self, now: Instant, change: ClassChange) {
        self.finish(now, None);
        self.admission = change.admission;
        for receiver in self.receivers.values_mut() {
            receiver.class = change.homes[receiver.class.index()].unwrap_or(receiver.class);
        }
        self.dispatcher.change_classes(change.hierarchy, &change.homes);
    }

    /// Returns the topic patterns to which a consumer has subscribed.
    pub fn patterns_of(&self, consumer: ConsumerId) -> impl Iterator<Item = &TopicPattern> {
        let all =
            self.receiver(consumer).map(|receiver| receiver.subscriptions.as_slice()).into_iter().flatten();
        let own = all.filter(move |id| self.subscriptions.get(id).is_some_and(|it| it.by == consumer));
        own.filter_map(|id| Some(&self.index.interest(*id)?.pattern))
    }

    /// Returns the suppliers that a full inbox of this consumer blocks, or `None` if it drops events.
    #[must_use]
    pub fn blocked_by(&self, consumer: ConsumerId) -> Option<BlockedSuppliers> {
        let spec = &self.receiver(consumer)?.inbox.spec;
        (spec.full == FullInbox::BlockSupplier).then_some(spec.blocks)
    }

    /// Returns a supplier's offer on a topic.
    #[must_use]
    pub fn offer_of(&self, supplier: SupplierId, topic: TopicId) -> Option<&Offer> {
        self.suppliers.get(&supplier)?.offers.get(&topic).map(|state| &state.offer)
    }
}
