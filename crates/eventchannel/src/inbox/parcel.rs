//! An event in an inbox, with the others that it completes.

use crate::event::{ChannelEvent, EventPayload};
use crate::ids::SubscriptionId;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Parcel<P> {
    pub(crate) event: Arc<ChannelEvent<P>>,
    pub(crate) subscription: SubscriptionId,
    /// Whether it is history.
    pub(crate) retained: bool,
    /// The other events of a correlation.
    pub(crate) with: Vec<Arc<ChannelEvent<P>>>,
    /// Deliveries so far.
    pub(crate) repeated: u32,
}

impl<P: EventPayload> Parcel<P> {
    pub(crate) fn new(event: Arc<ChannelEvent<P>>, subscription: SubscriptionId) -> Self {
        Self { event, subscription, retained: false, with: Vec::new(), repeated: 0 }
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Arc<ChannelEvent<P>>> {
        self.with.iter().chain([&self.event])
    }

    /// Approximate bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.events().map(|event| event.memory()).fold(0, usize::saturating_add)
    }

    /// Bytes that the parcel counts in a queue.
    pub(crate) fn weight(&self) -> usize {
        self.events().map(|event| event.weight()).fold(0, usize::saturating_add)
    }

    /// Bytes of payload.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |event: &Arc<ChannelEvent<P>>| event.payload.length();
        self.with.iter().map(bytes).fold(bytes(&self.event), usize::saturating_add)
    }
}
