//! Correlations that consumers ask for. Each part of a correlation is a subscription of its own. An event
//! that matches it goes to the correlation and not to the inbox; the complete correlation goes to the inbox.

use super::{CorrelationState, Destined, EventChannel};
use crate::correlation::{Correlation, Correlator, MOST_PARTS};
use crate::error::ChannelError;
use crate::event::{ChannelEvent, EventPayload, NO_DEADLINE};
use crate::ids::{ConsumerId, CorrelationId, InboxId, SubscriptionId};
use crate::inbox::Parcel;
use std::sync::Arc;
use unisono_linux::clock::Nanos;

impl<P: EventPayload> EventChannel<P> {
    /// A consumer, or its group, asks for events that come together. They begin with the next event: history
    /// is not looked at. If the group has the same correlation already, that one serves this consumer, too.
    ///
    /// A delivery names the event that completed it, under the subscription of the part with the least number
    /// that the event matched; its deadline and criticality count.
    ///
    /// # Errors
    /// The consumer does not exist, there are no parts or too many, or a topic or offer that is there does
    /// not meet its request.
    pub fn correlate(
        &mut self,
        consumer: ConsumerId,
        correlation: Correlation,
    ) -> Result<CorrelationId, ChannelError> {
        let known = self.consumers.get(&consumer);
        let inbox = known.ok_or(ChannelError::Unknown { what: "consumer", number: consumer.0 })?.inbox;
        let parts = correlation.parts.len();
        if !(1..=MOST_PARTS).contains(&parts) {
            return Err(ChannelError::Parts { parts, most: MOST_PARTS });
        }
        if let Some((id, state)) = self.same_correlation(inbox, &correlation) {
            state.by.push(consumer);
            return Ok(id);
        }
        if self.subscriptions.len() + parts > self.limits.subscriptions {
            return Err(ChannelError::TooMany { what: "subscriptions", most: self.limits.subscriptions });
        }
        for interest in &correlation.parts {
            self.past(NO_DEADLINE, inbox, interest)?; // whether what is there meets the request
        }
        let id = CorrelationId(self.number());
        let correlator = Correlator::new(&correlation);
        let mut subscriptions = Vec::new();
        for (part, interest) in correlation.parts.into_iter().enumerate() {
            let subscription = SubscriptionId(self.number());
            self.add(subscription, Destined { inbox, by: consumer, part: Some((id, part)) }, interest);
            subscriptions.push(subscription);
        }
        let incomplete = correlation.incomplete;
        let by = vec![consumer];
        let state = CorrelationState { inbox, by, correlator, parts: subscriptions, incomplete, alarm: None };
        self.correlations.insert(id, state);
        Ok(id)
    }

    /// The correlation of an inbox that is the same: another consumer of the group asked for it. With two of
    /// them the group would get each event twice.
    fn same_correlation(
        &mut self,
        inbox: InboxId,
        wanted: &Correlation,
    ) -> Option<(CorrelationId, &mut CorrelationState<P>)> {
        let Self { correlations, index, .. } = self;
        let of_inbox = correlations.iter_mut().filter(|(_, state)| state.inbox == inbox);
        let mut same = of_inbox.filter(|(_, state)| {
            let parts = state.parts.iter().map(|part| index.interest(*part));
            state.correlator.follows(wanted)
                && state.incomplete == wanted.incomplete
                && parts.eq(wanted.parts.iter().map(Some))
        });
        same.next().map(|(id, state)| (*id, state))
    }

    /// An event matches parts of one correlation, ascending. Whether that completes it.
    pub(super) fn correlate_event(
        &mut self,
        now: Nanos,
        event: &Arc<ChannelEvent<P>>,
        parts: &[(CorrelationId, usize)],
    ) -> bool {
        let Some((id, first)) = parts.first().copied() else { return false };
        let Some(state) = self.correlations.get_mut(&id) else { return false };
        let parts: Vec<usize> = parts.iter().map(|(_, part)| *part).collect();
        let (inbox, subscription) = (state.inbox, state.parts[first]);
        let complete = state.correlator.feed(event, &parts);
        self.watch(now, id);
        let Some(mut with) = complete else { return false };
        with.pop(); // the event itself, which comes last
        let arrival = self.arrival();
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            let parcel = Parcel { with, ..Parcel::new(Arc::clone(event), subscription) };
            receiver.inbox.push(now, arrival, parcel);
        }
        self.place(inbox);
        true
    }
}
