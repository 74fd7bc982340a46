//! An event in an inbox, with the other events of a correlation that it completes.

use crate::event::{ChannelEvent, EventPayload};
use crate::ids::SubscriptionId;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Parcel<P> {
    pub(crate) event: Arc<ChannelEvent<P>>,
    pub(crate) subscription: SubscriptionId,
    /// Whether the event was published before the consumer subscribed.
    pub(crate) retained: bool,
    /// The other events of a correlation.
    pub(crate) with: Vec<Arc<ChannelEvent<P>>>,
    /// The number of deliveries so far.
    pub(crate) repeated: u32,
}

impl<P: EventPayload> Parcel<P> {
    pub(crate) fn new(event: Arc<ChannelEvent<P>>, subscription: SubscriptionId) -> Self {
        Self { event, subscription, retained: false, with: Vec::new(), repeated: 0 }
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Arc<ChannelEvent<P>>> {
        self.with.iter().chain([&self.event])
    }

    /// Returns the approximate bytes of memory of all its events.
    pub(crate) fn memory(&self) -> usize {
        self.events().map(|event| event.memory()).fold(0, usize::saturating_add)
    }

    /// Returns the bytes that the parcel counts in a queue.
    pub(crate) fn weight(&self) -> usize {
        self.events().map(|event| event.weight()).fold(0, usize::saturating_add)
    }

    /// Returns the bytes of payload of all its events.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |event: &Arc<ChannelEvent<P>>| event.payload.length();
        self.with.iter().map(bytes).fold(bytes(&self.event), usize::saturating_add)
    }
}
