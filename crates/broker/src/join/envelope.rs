//! The format of the messages between joins.
//!
//! ```text
//!   byte 0..4   "UJE1": this protocol and its version
//!        4      kind. 1: an event   2: a supplier left
//!        5      criticality of the event; 0 if a supplier left
//!        6..8   length of the topic's name
//!        8..16  run of the broker where the event was published
//!       16..20  number of the supplier at that broker
//!       20..    the topic's name
//!   an event continues:
//!        8 bytes  the event's number, from 1
//!        8 bytes  time from sending to the deadline in nanoseconds; all ones: no deadline
//!        key and fields, as in the frames of the broker (frame/fields.rs)
//!        payload
//! ```
//! Numbers are little-endian. An envelope is read completely or refused, and each value has exactly one
//! encoding. The class is not included: each class has a network of its own.

use unisono_eventchannel::{FieldSet, check_name};
use unisono_events_wire::frame::reader::{Bad, FrameReader};
use unisono_events_wire::frame::{MAX_KEY, fields};
use unisono_linux::clock::Duration;

/// The first bytes of an envelope: the protocol and its version.
pub const ENVELOPE_MAGIC: [u8; 4] = *b"UJE1";

const EVENT: u8 = 1;
const LEFT: u8 = 2;

/// Identifies the events of one supplier on one topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamOrigin<'a> {
    /// The run of the supplier's broker.
    pub run: u64,
    /// The number of the supplier at that broker.
    pub supplier: u32,
    pub topic: &'a str,
}

/// The content of an envelope.
#[derive(Clone, PartialEq, Debug)]
pub enum JoinBody<'a> {
    Event {
        criticality: u8,
        sequence: u64,
        /// Time from sending to the deadline. `None`: no deadline.
        remaining: Option<Duration>,
        key: &'a str,
        fields: FieldSet,
        payload: &'a [u8],
    },
    /// The supplier publishes no more on the topic.
    Left,
}

#[derive(Clone, PartialEq, Debug)]
pub struct JoinEnvelope<'a> {
    pub origin: StreamOrigin<'a>,
    pub body: JoinBody<'a>,
}

impl<'a> JoinEnvelope<'a> {
    /// Reads one envelope.
    ///
    /// # Errors
    /// The first error in the envelope.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Bad> {
        let mut reader = FrameReader::new(bytes);
        if reader.array()? != ENVELOPE_MAGIC {
            return Err(reader.bad("an envelope of another protocol, or of another version"));
        }
        let [kind, criticality] = reader.array()?;
        let length = usize::from(reader.short()?);
        let (run, supplier) = (reader.long()?, reader.word()?);
        let topic = reader.text_of(length)?;
        check_name(topic).map_err(|error| reader.bad(error.to_string()))?;
        if topic.starts_with('$') {
            return Err(reader.bad("a topic of the broker's own"));
        }
        let body = match kind {
            EVENT => {
                let sequence = reader.long()?;
                if sequence == 0 {
                    return Err(reader.bad("an event with the number 0"));
                }
                let remaining = Some(Duration::from_nanos(reader.long()?)).filter(|it| *it != Duration::MAX);
                let (key, fields) = reader.key_and_fields()?;
                JoinBody::Event { criticality, sequence, remaining, key, fields, payload: reader.rest() }
            }
            LEFT if criticality == 0 => JoinBody::Left,
            LEFT => return Err(reader.bad("a supplier that left, with a criticality")),
            _ => return Err(reader.bad("an unknown kind")),
        };
        reader.end()?;
        Ok(Self { origin: StreamOrigin { run, supplier, topic }, body })
    }

    /// Returns the encoded bytes, or `None` if a name or a key is too long for an envelope.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let StreamOrigin { run, supplier, topic } = self.origin;
        let length = u16::try_from(topic.len()).ok()?;
        let mut bytes = Vec::with_capacity(64 + topic.len() + self.payload().len());
        bytes.extend(ENVELOPE_MAGIC);
        match &self.body {
            JoinBody::Event { criticality, .. } => bytes.extend([EVENT, *criticality]),
            JoinBody::Left => bytes.extend([LEFT, 0]),
        }
        bytes.extend(length.to_le_bytes());
        bytes.extend(run.to_le_bytes());
        bytes.extend(supplier.to_le_bytes());
        bytes.extend(topic.as_bytes());
        if let JoinBody::Event { sequence, remaining, key, fields, payload, .. } = &self.body {
            if key.len() > MAX_KEY {
                return None;
            }
            bytes.extend(sequence.to_le_bytes());
            // the largest number means that there is no deadline
            let remaining = remaining.map_or(u64::MAX, |time| time.as_nanos().min(u64::MAX - 1));
            bytes.extend(remaining.to_le_bytes());
            fields::write(&mut bytes, key, fields);
            bytes.extend(*payload);
        }
        Some(bytes)
    }

    fn payload(&self) -> &'a [u8] {
        match self.body {
            JoinBody::Event { payload, .. } => payload,
            JoinBody::Left => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_envelope_is_read_as_it_was_written(
            run in any::<u64>(), supplier in any::<u32>(), topic in "[a-z/]{1,20}", key in "[a-zä]{0,9}",
            criticality in any::<u8>(), sequence in 1_u64.., remaining in proptest::option::of(0..u64::MAX),
            level in any::<i64>(), payload in proptest::collection::vec(any::<u8>(), 0..99), left in any::<bool>(),
        ) {
            let fields = FieldSet::new().with("level", level).with("armed", true);
            let event = JoinBody::Event {
                criticality, sequence, remaining: remaining.map(Duration::from_nanos), key: &key, fields, payload: &payload,
            };
            let body = if left { JoinBody::Left } else { event };
            let envelope = JoinEnvelope { origin: StreamOrigin { run, supplier, topic: &topic }, body };
            let bytes = envelope.to_bytes().expect("it is short");
            prop_assert_eq!(JoinEnvelope::read(&bytes), Ok(envelope.clone()));
            // an event's payload has no length of its own
            let least = bytes.len() - envelope.payload().len();
            for cut in 0..least {
                prop_assert!(JoinEnvelope::read(&bytes[..cut]).is_err(), "cut at {}", cut);
            }
        }

        #[test]
        fn what_is_read_from_any_bytes_is_written_as_the_same_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0_u8..4, length in 0_u8..6,
        ) {
            let mut bytes = bytes;
            if let Some(head) = bytes.get_mut(..8) {
                head.copy_from_slice(&[b'U', b'J', b'E', b'1', kind, 0, length, 0]);
            }
            if let Some(topic) = bytes.get_mut(20..20 + usize::from(length)) {
                topic.fill(b't');
            }
            if let Ok(envelope) = JoinEnvelope::read(&bytes) {
                prop_assert_eq!(envelope.to_bytes(), Some(bytes.clone()));
            }
        }
    }

    #[test]
    fn an_envelope_of_another_version_or_about_a_topic_of_the_broker_is_refused() {
        let of = |topic| JoinEnvelope {
            origin: StreamOrigin { run: 1, supplier: 2, topic },
            body: JoinBody::Left,
        };
        let mut bytes = of("t").to_bytes().expect("short");
        assert!(JoinEnvelope::read(&bytes).is_ok());
        bytes[3] = b'2';
        let said = JoinEnvelope::read(&bytes).expect_err("another version").to_string();
        assert!(said.contains("another version"), "{said}");
        for topic in ["$channel/deaths", "a/+", "a/#", ""] {
            assert!(JoinEnvelope::read(&of(topic).to_bytes().expect("short")).is_err(), "{topic}");
        }
    }
}
