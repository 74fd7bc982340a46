//! The on-disk format of one event in the log.
//!
//! ```text
//!   4 magic  4 length of the body  8 position  4 checksum of these and the salt  4 checksum of the body
//!   body: 8 published  8 due after  8 sequence  4 supplier  1 criticality  1 flags
//!         2 + 2 + 2 lengths of topic, type, writer, then these; key and fields as in frames;
//!         of a message of MQTT 1 QoS  1 unit of its deadline  4 + 4 lengths of publisher and properties,
//!         then these; the payload
//! ```
//! The flags: 1 it has a type, 2 it is a retained message of MQTT, 4 its supplier was promised that it is
//! durable, 8 it is a message of MQTT. Numbers are little-endian. Both checksums (CRC-32) begin with the
//! segment's salt, a random number: in a damaged segment, bytes that a program put into a payload are not
//! mistaken for a record when the reader searches for the next complete one.

use super::WallTime;
use unisono_eventchannel::FieldSet;
use unisono_events_wire::frame::fields;
use unisono_events_wire::frame::reader::{Bad, FrameReader};
use unisono_linux::clock::Duration;

/// Bytes in front of a record's body.
pub(crate) const RECORD_HEAD: usize = 24;
/// Maximum length of a body; a head with a larger length is damaged. No frame of a client is longer
/// (`MAX_FRAME_BYTES`), so that every event that arrives fits.
pub(crate) const MAX_BODY: usize = 64 << 20;
pub(crate) const RECORD_MAGIC: [u8; 4] = *b"\xb5uEv";

/// An event in the log.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LoggedEvent<'a> {
    pub topic: &'a str,
    pub event_type: Option<&'a str>,
    /// The supplier's name, the same in all its connections; empty: it has no name.
    pub writer: &'a str,
    /// The broker's number of the supplier at publication.
    pub supplier: u32,
    pub sequence: u64,
    pub criticality: u8,
    /// Whether the event is the retained message of its topic; an empty payload deletes the retained message.
    pub retained: bool,
    /// Whether its supplier was promised that the event is durable.
    pub acknowledged: bool,
    pub published: WallTime,
    /// The time from `published` to the deadline; [`Duration::MAX`]: no deadline.
    pub due_after: Duration,
    pub key: &'a str,
    pub fields: FieldSet,
    /// The parts of an MQTT message that an event does not have.
    pub message: Option<LoggedMessage<'a>>,
    pub payload: &'a [u8],
}

/// The parts of an MQTT message that an event does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoggedMessage<'a> {
    pub qos: u8,
    /// Whether its deadline came in whole seconds.
    pub in_seconds: bool,
    /// The key of the session that published it.
    pub publisher: &'a str,
    /// The properties that other clients get unchanged, encoded.
    pub properties: &'a [u8],
}

impl<'a> LoggedMessage<'a> {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend([self.qos, u8::from(self.in_seconds)]);
        for part in [self.publisher.as_bytes(), self.properties] {
            bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
        }
        bytes.extend(self.publisher.as_bytes());
        bytes.extend(self.properties);
    }

    fn read(reader: &mut FrameReader<'a>) -> Result<Self, Bad> {
        let [qos, unit] = reader.array()?;
        if qos > 2 || unit > 1 {
            return Err(reader.bad("an unknown QoS or unit of a message"));
        }
        let (publisher, properties) = (reader.word()? as usize, reader.word()? as usize);
        let publisher = reader.text_of(publisher)?;
        Ok(Self { qos, in_seconds: unit == 1, publisher, properties: reader.take(properties)? })
    }
}

impl<'a> LoggedEvent<'a> {
    /// Appends the body to `bytes`.
    fn write(&self, bytes: &mut Vec<u8>) {
        let short = |text: &str| u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes();
        for long in [self.published.0, self.due_after.as_nanos(), self.sequence] {
            bytes.extend(long.to_le_bytes());
        }
        bytes.extend(self.supplier.to_le_bytes());
        let flags = u8::from(self.event_type.is_some())
            | u8::from(self.retained) << 1
            | u8::from(self.acknowledged) << 2
            | u8::from(self.message.is_some()) << 3;
        bytes.extend([self.criticality, flags]);
        let event_type = self.event_type.unwrap_or_default();
        for text in [self.topic, event_type, self.writer] {
            bytes.extend(short(text));
        }
        for text in [self.topic, event_type, self.writer] {
            bytes.extend(text.as_bytes());
        }
        fields::write(bytes, self.key, &self.fields);
        if let Some(message) = &self.message {
            message.write(bytes);
        }
        bytes.extend(self.payload);
    }

    /// Reads a body.
    ///
    /// # Errors
    /// The first error in the body.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Bad> {
        let mut reader = FrameReader::new(bytes);
        let (published, due_after) = (WallTime(reader.long()?), Duration::from_nanos(reader.long()?));
        let sequence = reader.long()?;
        let supplier = reader.word()?;
        let [criticality, flags] = reader.array()?;
        if flags > 15 {
            return Err(reader.bad("unknown flags"));
        }
        let (typed, retained, acknowledged) = (flags & 1, flags & 2 != 0, flags & 4 != 0);
        let lengths = [reader.short()?, reader.short()?, reader.short()?];
        let [topic, event_type, writer] = lengths.map(usize::from);
        let topic = reader.text_of(topic)?;
        let event_type = reader.text_of(event_type)?;
        let writer = reader.text_of(writer)?;
        let (key, fields) = reader.key_and_fields()?;
        let event_type = (typed == 1).then_some(event_type);
        let message = match flags & 8 {
            0 => None,
            _ => Some(LoggedMessage::read(&mut reader)?),
        };
        let payload = reader.rest();
        Ok(Self {
            topic,
            event_type,
            writer,
            supplier,
            sequence,
            criticality,
            retained,
            acknowledged,
            published,
            due_after,
            key,
            fields,
            message,
            payload,
        })
    }
}

/// Appends a record to `bytes`; returns its length.
pub(crate) fn write_record(bytes: &mut Vec<u8>, salt: u64, position: u64, event: &LoggedEvent<'_>) -> usize {
    let start = bytes.len();
    bytes.extend([0; RECORD_HEAD]);
    event.write(bytes);
    let (head, body) = bytes[start..].split_at_mut(RECORD_HEAD);
    head[..4].copy_from_slice(&RECORD_MAGIC);
    head[4..8].copy_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    head[8..16].copy_from_slice(&position.to_le_bytes());
    let sum = checksum(salt, &[&head[..16]]);
    head[16..20].copy_from_slice(&sum.to_le_bytes());
    let sum = checksum(salt, &[&position.to_le_bytes(), body]);
    head[20..24].copy_from_slice(&sum.to_le_bytes());
    bytes.len() - start
}

/// The fields in front of a record's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHead {
    pub(crate) length: usize,
    pub(crate) position: u64,
    sum: u32,
}

impl RecordHead {
    /// Reads the head of a record. `None`: these bytes are not the head of a record in the segment with this
    /// salt.
    pub(crate) fn read(salt: u64, bytes: &[u8]) -> Option<Self> {
        let head: &[u8; RECORD_HEAD] = bytes.get(..RECORD_HEAD)?.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if head[..4] != RECORD_MAGIC || word(16) != checksum(salt, &[&head[..16]]) {
            return None;
        }
        let position = u64::from(word(8)) | u64::from(word(12)) << 32;
        let length = word(4) as usize;
        (length <= MAX_BODY).then_some(Self { length, position, sum: word(20) })
    }

    /// Returns whether these bytes are the body that belongs to this head.
    pub(crate) fn fits(&self, salt: u64, body: &[u8]) -> bool {
        self.sum == checksum(salt, &[&self.position.to_le_bytes(), body])
    }
}

/// Returns the CRC-32 of the salt and of these pieces.
pub(crate) fn checksum(salt: u64, pieces: &[&[u8]]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&salt.to_le_bytes());
    pieces.iter().for_each(|piece| sum.update(piece));
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_as_it_was_written() {
        let event = LoggedEvent {
            topic: "plant/1/heat",
            event_type: Some(""),
            writer: "boiler",
            supplier: 7,
            sequence: 9,
            criticality: 3,
            retained: true,
            acknowledged: true,
            published: WallTime(5),
            due_after: Duration::from_nanos(6),
            key: "roof",
            fields: FieldSet::new().with("celsius", 81.5),
            message: Some(LoggedMessage { qos: 2, in_seconds: true, publisher: "p\0c", properties: b"12" }),
            payload: b"hot",
        };
        let mut bytes = Vec::new();
        assert_eq!(write_record(&mut bytes, 11, 4, &event), bytes.len());
        let head = RecordHead::read(11, &bytes).expect("a head");
        let body = &bytes[RECORD_HEAD..];
        assert_eq!((head.length, head.position), (body.len(), 4));
        assert!(head.fits(11, body));
        assert_eq!(LoggedEvent::read(body), Ok(event));
        assert_eq!(RecordHead::read(12, &bytes), None, "of another segment");
    }

    #[test]
    fn one_wrong_bit_anywhere_is_noticed() {
        let mut bytes = Vec::new();
        write_record(
            &mut bytes,
            1,
            1,
            &LoggedEvent { topic: "t", payload: b"abc", ..LoggedEvent::default() },
        );
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let whole = RecordHead::read(1, &bytes).is_some_and(|head| head.fits(1, &bytes[RECORD_HEAD..]));
            assert!(!whole, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
