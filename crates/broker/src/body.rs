//! Events' payloads inside the broker.

use crate::mqtt::MessageOrigin;
use unisono_eventchannel::{EventPayload, NO_DEADLINE};
use unisono_events_wire::EventBytes;
use unisono_events_wire::transport::{PayloadRef, SharedPayload};
use unisono_linux::clock::Instant;

/// The payload of an event, and the facts about the event that the channel does not know. Clones share the
/// same bytes.
#[derive(Clone, Debug)]
pub struct EventBody {
    pub payload: EventBytes,
    /// The deadline of an event on a path. The channel does not have it if the path's class does not order
    /// events by deadline.
    pub(crate) due: Instant,
    /// Properties of the MQTT message that carried the payload.
    pub(crate) origin: MessageOrigin,
    /// The event's position in the log; 0: not in the log.
    pub(crate) position: u64,
}

impl Default for EventBody {
    fn default() -> Self {
        let (payload, origin) = (EventBytes::default(), MessageOrigin::default());
        Self { payload, due: NO_DEADLINE, origin, position: 0 }
    }
}

impl EventBody {
    /// Makes a body from the external payload if there is one, and otherwise from the bytes behind the head.
    pub(crate) fn new(bytes: &[u8], shared_payload: Option<SharedPayload>) -> Self {
        Self { payload: EventBytes::new(bytes, shared_payload), ..Self::default() }
    }

    #[must_use]
    pub fn as_payload(&self) -> PayloadRef<'_> {
        self.payload.as_payload()
    }
}

impl EventPayload for EventBody {
    fn length(&self) -> usize {
        self.as_payload().length()
    }

    fn memory(&self) -> usize {
        self.length().saturating_add(self.origin.properties.as_ref().map_or(0, |properties| properties.len()))
    }
}
