//! Correlations of consumers. Each part of a correlation is a subscription of its own. An event that matches
//! a part goes to the correlation and not to the inbox; the complete correlation goes to the inbox.

use super::{CorrelationState, Destined, EventChannel};
use crate::correlation::{Correlation, Correlator, Incomplete, MAX_PARTS};
use crate::delivery::ChannelNotice;
use crate::error::ChannelError;
use crate::event::{ChannelEvent, EventPayload, NO_DEADLINE};
use crate::ids::{ConsumerId, CorrelationId, InboxId, SubscriptionId};
use crate::inbox::Parcel;
use std::sync::Arc;
use unisono_time::Instant;

impl<P: EventPayload> EventChannel<P> {
    /// Adds a correlation for a consumer or its group. The correlation begins with the next event; it does
    /// not use kept events. If the group has the same correlation already, the consumer shares it.
    ///
    /// The capacity of the queue in bytes also bounds the events of incomplete correlations: beyond it, the
    /// oldest chain of events is given up.
    ///
    /// The delivery of a correlation is the delivery of the event that completed it, with this event's
    /// deadline and criticality. Its subscription is the subscription of the lowest part that the event
    /// matched.
    ///
    /// # Errors
    /// The consumer does not exist, there are no parts or too many, or an existing topic or offer does not
    /// meet the consumer's request.
    pub fn correlate(
        &mut self,
        consumer: ConsumerId,
        correlation: Correlation,
    ) -> Result<CorrelationId, ChannelError> {
        let (inbox, tenant) = self.attachment(consumer)?;
        let parts = correlation.parts.len();
        if !(1..=MAX_PARTS).contains(&parts) {
            return Err(ChannelError::Parts { parts, most: MAX_PARTS });
        }
        if let Some((id, state)) = self.same_correlation(inbox, &correlation) {
            state.by.push(consumer);
            return Ok(id);
        }
        self.check_subscriptions(tenant, &correlation.parts)?;
        self.check_request(inbox, &correlation.parts)?;
        let id = CorrelationId(self.number());
        let correlator = Correlator::new(&correlation);
        let mut subscriptions = Vec::new();
        for (part, interest) in correlation.parts.into_iter().enumerate() {
            let subscription = SubscriptionId(self.number());
            self.parts.insert(subscription, (id, part));
            self.add(subscription, Destined { inbox, by: consumer, tenant, asked: 0 }, interest);
            subscriptions.push(subscription);
        }
        let incomplete = correlation.incomplete;
        let by = vec![consumer];
        let state = CorrelationState { inbox, by, correlator, parts: subscriptions, incomplete, alarm: None };
        self.correlations.insert(id, state);
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            receiver.rare_mut().correlations.push(id);
        }
        Ok(id)
    }

    /// Finds an equal correlation of the inbox that another consumer of the group has made. With two equal
    /// correlations the group would get each event twice.
    fn same_correlation(
        &mut self,
        inbox: InboxId,
        wanted: &Correlation,
    ) -> Option<(CorrelationId, &mut CorrelationState<P>)> {
        let Self { correlations, index, receivers, .. } = self;
        let same = receivers.get(&inbox)?.correlations().iter().find(|id| {
            correlations.get(id).is_some_and(|state| {
                let parts = state.parts.iter().map(|part| index.interest(*part));
                state.correlator.follows(wanted)
                    && state.incomplete == wanted.incomplete
                    && parts.eq(wanted.parts.iter().map(Some))
            })
        });
        let id = *same?;
        correlations.get_mut(&id).map(|state| (id, state))
    }

    /// Returns the approximate bytes of the events in incomplete correlations of a consumer or its group.
    #[must_use]
    pub fn correlating_bytes(&self, consumer: ConsumerId) -> usize {
        let correlations = self.receiver(consumer).into_iter().flat_map(|receiver| receiver.correlations());
        let states = correlations.filter_map(|id| self.correlations.get(id));
        states.map(|state| state.correlator.weight()).fold(0, usize::saturating_add)
    }

    /// Passes an event to one correlation; `parts` are the matching parts, ascending. Returns whether the
    /// event completes it.
    pub(super) fn correlate_event(
        &mut self,
        now: Instant,
        event: &Arc<ChannelEvent<P>>,
        parts: &[(CorrelationId, usize)],
    ) -> bool {
        let Some((id, first)) = parts.first().copied() else { return false };
        let Some(state) = self.correlations.get_mut(&id) else { return false };
        let parts: Vec<usize> = parts.iter().map(|(_, part)| *part).collect();
        let (inbox, subscription) = (state.inbox, state.parts[first]);
        let complete = state.correlator.feed(event, &parts);
        let most = self.receivers.get(&inbox).map_or(0, |receiver| receiver.inbox.spec.capacity.bytes);
        let dropped = state.correlator.drop_beyond(most) && state.incomplete == Incomplete::Report;
        if dropped {
            self.notify(inbox, NO_DEADLINE, ChannelNotice::Incomplete { correlation: id });
        }
        self.watch(now, id);
        let Some(mut with) = complete else { return false };
        with.pop(); // removes the event itself, which is last
        let arrival = self.arrival();
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            let parcel = Parcel { with, ..Parcel::new(Arc::clone(event), subscription) };
            receiver.inbox.push(now, arrival, parcel);
        }
        self.place(inbox);
        true
    }
}
