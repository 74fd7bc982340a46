//! The memory of delivered events, which the next events use.
//!
//! A server takes many events before it delivers them. glibc's allocator keeps only seven free pieces of a
//! size at hand for a thread; for each further event it would split a free block, and merge it again.
//!
//! Cost: a push and a pop for each event.

use super::EventChannel;
use crate::event::{ChannelEvent, EventPayload};
use crate::value::FieldSet;
use std::sync::Arc;

/// The maximum number of spare events, which take about 25 KiB: twice the number of events that the broker
/// takes from one program in a turn.
const MAX_SPARE: usize = 128;

/// Delivered events to which nobody refers, without payload, key and fields.
#[derive(Debug)]
pub(super) struct SpareEvents<P>(Vec<Arc<ChannelEvent<P>>>);

impl<P> SpareEvents<P> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Puts an event into the memory of a spare one, or into new memory.
    pub(super) fn hold(&mut self, event: ChannelEvent<P>) -> Arc<ChannelEvent<P>> {
        if let Some(mut spare) = self.0.pop()
            && let Some(place) = Arc::get_mut(&mut spare)
        {
            *place = event;
            return spare;
        }
        Arc::new(event)
    }
}

impl<P: EventPayload + Clone + Default> EventChannel<P> {
    /// Takes the payload out of a delivered event, whose memory the channel then uses for another event. If
    /// somebody else refers to the event, returns a clone.
    pub fn take_payload(&mut self, mut event: Arc<ChannelEvent<P>>) -> P {
        let Some(own) = Arc::get_mut(&mut event) else { return event.payload.clone() };
        let payload = std::mem::take(&mut own.payload);
        (own.key, own.fields) = (None, FieldSet::new());
        if self.spare_events.0.len() < MAX_SPARE {
            self.spare_events.0.push(event);
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ConsumerSpec;
    use crate::channel::tests::channel_of_one_supplier;
    use crate::event::Publication;
    use crate::index::Interest;
    use unisono_time::Instant;

    #[test]
    fn an_event_gets_the_memory_of_a_delivered_one_to_which_nobody_refers() {
        let (mut channel, topic, supplier) = channel_of_one_supplier();
        let consumer = channel.connect(Instant::ZERO, ConsumerSpec::new("c")).expect("admitted");
        let interest = Interest::in_topics("t".parse().expect("a pattern"));
        channel.subscribe(Instant::ZERO, consumer, interest).expect("it fits");
        let deliver = |channel: &mut EventChannel<Vec<u8>>, payload: u8| {
            let publication = Publication::new(vec![payload]).keyed("key");
            channel.try_publish(Instant::ZERO, supplier, topic, publication).expect("room");
            channel.next(Instant::ZERO).and_then(|delivery| delivery.event).expect("an event").event
        };
        let first = deliver(&mut channel, 1);
        let reader = Arc::clone(&first);
        assert_eq!(channel.take_payload(first), [1]);
        assert_eq!((&*reader.payload, channel.spare_events.0.len()), (&[1][..], 0), "somebody reads it");
        let second = deliver(&mut channel, 2);
        let place = Arc::as_ptr(&second);
        assert_eq!(channel.take_payload(second), [2]);
        let spare = channel.spare_events.0.first().expect("the second event");
        assert!(spare.payload.is_empty() && spare.key.is_none(), "only its memory stays: {spare:?}");
        let third = deliver(&mut channel, 3);
        assert_eq!((Arc::as_ptr(&third), &*third.payload), (place, &[3][..]));
        let events: Vec<_> = (0..200).map(|_| deliver(&mut channel, 4)).collect();
        events.into_iter().for_each(|event| drop(channel.take_payload(event)));
        assert_eq!(channel.spare_events.0.len(), MAX_SPARE);
    }
}
