//! The state of a group that the caller checks before it lets a consumer join: whether the group exists, and
//! whether it still holds deliveries for earlier members.

use super::EventChannel;
use crate::event::EventPayload;
use crate::ids::ConsumerId;

impl<P: EventPayload> EventChannel<P> {
    /// Returns whether a group has consumers, or lingers without consumers.
    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// Returns whether a consumer that joins the group now could get a delivery that earlier members asked
    /// for: a waiting event or notice, an unacknowledged delivery, a part of a correlation. Cost: a check of
    /// each consumer of the group.
    #[must_use]
    pub fn group_owes(&self, group: &str) -> bool {
        let Some(inbox) = self.groups.get(group) else { return false };
        let Some(receiver) = self.receivers.get(inbox) else { return false };
        let unacknowledged = |member: &ConsumerId| self.unacknowledged(*member) > 0;
        receiver.members.as_slice().iter().any(unacknowledged)
            || receiver.inbox.turn().is_some()
            || receiver.has_notices()
            || !receiver.correlations().is_empty()
    }
}
