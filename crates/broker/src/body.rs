//! Payloads of events in the broker: in its memory, or in that of a transport. Never copied inside.

use crate::mqtt::MessageOrigin;
use crate::transport::{PayloadRef, SharedPayload};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use unisono_eventchannel::{EventPayload, NO_DEADLINE};
use unisono_linux::clock::Nanos;

/// The payload of an event; clones are handles of the same bytes.
#[derive(Clone, Debug)]
pub struct EventBody {
    bytes: BodyBytes,
    /// The deadline of an event on a path, whose class may not order by it.
    pub(crate) due: Nanos,
    /// What it keeps of the MQTT message that it came as.
    pub(crate) origin: MessageOrigin,
    /// Its position in the log. 0: it is not there.
    pub(crate) position: u64,
}

#[derive(Clone, Debug)]
enum BodyBytes {
    Heap(Arc<[u8]>),
    Shared(SharedPayload),
}

impl EventBody {
    /// What came apart from its head, or else the bytes behind the head.
    pub(crate) fn new(bytes: &[u8], apart: Option<SharedPayload>) -> Self {
        let bytes = apart.map_or_else(|| BodyBytes::Heap(bytes.into()), BodyBytes::Shared);
        Self { bytes, due: NO_DEADLINE, origin: MessageOrigin::default(), position: 0 }
    }

    #[must_use]
    pub fn as_payload(&self) -> PayloadRef<'_> {
        match &self.bytes {
            BodyBytes::Heap(bytes) => PayloadRef::Bytes(bytes),
            BodyBytes::Shared(shared) => PayloadRef::Shared(shared),
        }
    }

    /// The bytes; copied if another process can change them.
    #[must_use]
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.bytes {
            BodyBytes::Heap(bytes) => Cow::Borrowed(bytes),
            BodyBytes::Shared(shared) => Cow::Owned(shared.to_vec()),
        }
    }

    /// The bytes where they lie in memory that another process can change. None: they lie in this process's
    /// own, or cannot be read in place.
    #[must_use]
    pub fn in_place(&self) -> Option<&[AtomicU8]> {
        match &self.bytes {
            BodyBytes::Heap(_) => None,
            BodyBytes::Shared(shared) => shared.0.in_place(),
        }
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
