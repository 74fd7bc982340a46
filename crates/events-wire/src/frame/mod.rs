//! The frames between programs and the broker. Per-event data is binary; rare data is JSON.
//!
//! ```text
//!   byte 0    1       2             3          4..8     8..
//!   kind      flags   criticality   repeated   number   by kind
//! ```
//! Numbers are little-endian. A frame is read completely or refused: each length is compared with the
//! received bytes before its use, leftover bytes are an error, and bytes that a kind of frame does not use
//! must be zero. The payload of an event is the last part of its frame, so that a transport can carry it
//! separately.
//!
//! Reference: `PROTOCOL.md`, with the meaning of each frame.

pub mod fields;
pub mod reader;
mod times;

pub use reader::Bad;
pub use times::{DeliverTimes, PublishDeadline};

use crate::greeting::{Greeting, WelcomeTerms};
use crate::notice::NoticeText;
use crate::reload::ReloadReport;
use crate::ring::{RingOrder, RingReport};
use crate::spec::{Advertisement, PathSpec, SubscriptionSpec};
use crate::take_over::{TakeOverReport, TakeOverStep};
use reader::FrameReader;
use unisono_eventchannel::FieldSet;

/// The first bytes of a greeting, which name the protocol and its version.
pub const MAGIC: [u8; 4] = *b"UEC1";
/// The protocol's version.
pub const VERSION: u32 = 1;

/// The number in a TOPIC that clears all names: no topic has it.
pub const ALL_TOPICS: u32 = 0;

/// Maximum length of an event's key in bytes. A key is the name of a thing, such as a sensor or a file, and
/// the broker keeps one for each kept value. Chosen, not measured.
pub const MAX_KEY: usize = 1024;

/// Bytes in front of the payload of a delivery, without key and fields.
pub const DELIVER_HEAD: usize = DELIVER_FRONT + 4;
/// Bytes of a delivery in front of the lengths of key and fields.
const DELIVER_FRONT: usize = 48;

/// A supplier's options for a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PublishFlags {
    /// Send an answer, whatever the outcome.
    pub answer: bool,
    /// Refuse the event if it would have to wait for a consumer.
    pub at_once: bool,
}

/// Properties of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeliverFlags {
    /// The deadline had passed.
    pub late: bool,
    /// The event was published before the consumer subscribed.
    pub retained: bool,
    /// A part of a correlation; the last part does not have this flag.
    pub part: bool,
    /// The event is delivered again unless it is acknowledged.
    pub acknowledge: bool,
}

/// An event from a supplier, without its payload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PublishHead<'a> {
    pub flags: PublishFlags,
    pub criticality: u8,
    /// The program's number of the topic or the path.
    pub topic: u32,
    pub deadline: PublishDeadline,
    /// The program's number of the publication, for answers.
    pub token: u32,
    /// The writer's own number of the event. `None`: the broker assigns one.
    pub sequence: Option<u64>,
    pub key: &'a str,
    pub fields: FieldSet,
}

/// An event for a consumer, without its payload.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeliverHead<'a> {
    pub flags: DeliverFlags,
    pub criticality: u8,
    /// The number of earlier deliveries without an acknowledgement; 255 means 255 or more.
    pub repeated: u8,
    /// The program's number of the consumer.
    pub consumer: u32,
    pub topic: u32,
    pub supplier: u32,
    pub sequence: u64,
    pub times: DeliverTimes,
    /// With the flag `acknowledge`, the number to acknowledge. Without it, the count of deliveries of this
    /// supplier and topic that may be lost in transit. 0: neither of them.
    pub delivery: u64,
    pub key: &'a str,
    pub fields: FieldSet,
}

/// The outcome of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishOutcome {
    /// The event is in the inboxes of this many consumers and groups.
    Taken(u32),
    /// The same as `Taken`, and the event is in the broker's log: it survives the end of the broker.
    Written(u32),
    /// The same as `Written`, and the event is on the disk: it survives a power failure.
    Synced(u32),
    /// Another supplier owns the exclusive topic: a stronger one, or an equally strong one with an earlier
    /// offer.
    Standby,
    /// An event with this number has been published before.
    Duplicate,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Frame<'a> {
    /// Program: the first frame.
    Hello(Greeting),
    /// Program: announces that it will publish on a topic, under a number that the program chooses.
    Advertise { number: u32, spec: Advertisement },
    /// Program: an event; its payload is `payload`, or comes separately.
    Publish { head: PublishHead<'a>, payload: &'a [u8] },
    /// Program: subscribes a consumer, under a number that the program chooses.
    Subscribe { number: u32, spec: Box<SubscriptionSpec> },
    /// Program: acknowledges a delivery.
    Acknowledge { consumer: u32, delivery: u64 },
    /// Program: ends a consumer.
    Unsubscribe { number: u32 },
    /// Program: opens a path, under a number that the program chooses; messages published on that number are
    /// forwarded.
    Open { number: u32, path: PathSpec },
    /// Program: ends a topic or a path; messages already sent are still delivered.
    Close { number: u32 },
    /// Program: asks for all credit back once all messages on this path have left.
    Flush { number: u32 },
    /// Program: asks for the broker's statistics.
    Ask,
    /// Program: asks the broker to read its files again.
    Reload,
    /// Program: a step of the process that serves after the broker.
    TakeOver { step: TakeOverStep },
    /// Program: renews its lease.
    Alive,
    /// Program: a report on a direct ring. The number belongs to its topic or its consumer.
    RingReport { number: u32, report: RingReport },
    /// Broker: the answer to [`Frame::Hello`].
    Welcome(WelcomeTerms),
    /// Broker: a topic or a consumer is set up.
    Accepted { number: u32 },
    /// Broker: a topic or a consumer is refused, with the reason.
    Refused { number: u32, reason: &'a str },
    /// Broker: the outcome of a publication.
    Published { topic: u32, token: u32, sequence: u64, outcome: PublishOutcome },
    /// Broker: a publication was refused, with the reason.
    Rejected { topic: u32, token: u32, reason: &'a str },
    /// Broker: the name of a topic, before the first delivery or notice with its number.
    Topic { number: u32, name: &'a str },
    /// Broker: the type of a topic, to a program that asked for types.
    TopicType { number: u32, event_type: Option<&'a str> },
    /// Broker: an event.
    Deliver { head: DeliverHead<'a>, payload: &'a [u8] },
    /// Broker: a notice to a consumer.
    Notice { consumer: u32, notice: NoticeText },
    /// Broker: `count` deliveries of a supplier and topic that may be lost in transit were sent so far. The
    /// last one had the supplier's sequence number `last`.
    Sent { consumer: u32, topic: u32, supplier: u32, count: u64, last: u64 },
    /// Broker: the path is open.
    Opened {
        number: u32,
        /// The maximum number of bytes in transit.
        credit: u32,
    },
    /// Broker: the path is refused or has ended.
    Closed { number: u32, reason: &'a str },
    /// Broker: this many bytes have left or were dropped; the program may send as many more.
    Credit { number: u32, bytes: u32 },
    /// Broker: the answer to [`Frame::Ask`], in JSON.
    Statistics { json: &'a str },
    /// Broker: the answer to [`Frame::Reload`].
    Reloaded(ReloadReport),
    /// Broker: the answer to [`Frame::TakeOver`].
    TakenOver(TakeOverReport),
    /// Broker: an order for a direct ring. The number is the program's own number for its topic or its
    /// consumer.
    Ring { number: u32, order: RingOrder },
    /// Broker: ends the connection.
    Bye { reason: &'a str },
}

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const ADVERTISE: u8 = 2;
    pub(super) const PUBLISH: u8 = 3;
    pub(super) const SUBSCRIBE: u8 = 4;
    pub(super) const ACKNOWLEDGE: u8 = 5;
    pub(super) const UNSUBSCRIBE: u8 = 6;
    pub(super) const OPEN: u8 = 7;
    pub(super) const CLOSE: u8 = 8;
    pub(super) const FLUSH: u8 = 9;
    pub(super) const ASK: u8 = 10;
    pub(super) const ALIVE: u8 = 11;
    pub(super) const RING_REPORT: u8 = 12;
    pub(super) const RELOAD: u8 = 13;
    pub(super) const TAKE_OVER: u8 = 14;
    pub(super) const WELCOME: u8 = 129;
    pub(super) const ACCEPTED: u8 = 130;
    pub(super) const REFUSED: u8 = 131;
    pub(super) const PUBLISHED: u8 = 132;
    pub(super) const REJECTED: u8 = 133;
    pub(super) const TOPIC: u8 = 134;
    pub(super) const DELIVER: u8 = 135;
    pub(super) const NOTICE: u8 = 136;
    pub(super) const OPENED: u8 = 137;
    pub(super) const CLOSED: u8 = 138;
    pub(super) const CREDIT: u8 = 139;
    pub(super) const STATISTICS: u8 = 140;
    pub(super) const BYE: u8 = 141;
    pub(super) const RING: u8 = 142;
    pub(super) const SENT: u8 = 143;
    pub(super) const TOPIC_TYPE: u8 = 144;
    pub(super) const RELOADED: u8 = 145;
    pub(super) const TAKEN_OVER: u8 = 146;
}

impl<'a> Frame<'a> {
    /// Reads one frame.
    ///
    /// # Errors
    /// The frame is malformed. The error describes the first defect in it.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Bad> {
        let mut reader = FrameReader::new(bytes);
        let [kind, flags, criticality, repeated] = reader.array()?;
        let number = reader.word()?;
        if !matches!(kind, kind::PUBLISH | kind::DELIVER) && (flags, criticality, repeated) != (0, 0, 0) {
            return Err(reader.bad("the bytes after its kind are not zero"));
        }
        let frame = match kind {
            kind::HELLO if reader.array()? == MAGIC => Self::Hello(reader.json()?),
            kind::HELLO => return Err(reader.bad("a greeting of another protocol, or of another version")),
            kind::ADVERTISE => Self::Advertise { number, spec: reader.json()? },
            kind::PUBLISH => {
                let (head, payload) = PublishHead::read(bytes)?;
                return Ok(Self::Publish { head, payload });
            }
            kind::SUBSCRIBE => Self::Subscribe { number, spec: reader.json()? },
            kind::ACKNOWLEDGE => Self::Acknowledge { consumer: number, delivery: reader.long()? },
            kind::UNSUBSCRIBE => Self::Unsubscribe { number },
            kind::OPEN => Self::Open { number, path: reader.json()? },
            kind::CLOSE => Self::Close { number },
            kind::FLUSH => Self::Flush { number },
            kind::ASK => Self::Ask,
            kind::RELOAD => Self::Reload,
            kind::TAKE_OVER => {
                let step = TakeOverStep::from_number(number);
                Self::TakeOver { step: step.ok_or(reader.bad("an unknown step of a hand-over"))? }
            }
            kind::ALIVE => Self::Alive,
            kind::RING_REPORT => Self::RingReport { number, report: reader.json()? },
            kind::WELCOME => Self::Welcome(reader.json()?),
            kind::ACCEPTED => Self::Accepted { number },
            kind::REFUSED => Self::Refused { number, reason: reader.text()? },
            kind::PUBLISHED => {
                let (token, sequence, inboxes) = (reader.word()?, reader.long()?, reader.word()?);
                let outcome = match (reader.word()?, inboxes) {
                    (0, inboxes) => PublishOutcome::Taken(inboxes),
                    (1, 0) => PublishOutcome::Standby,
                    (2, 0) => PublishOutcome::Duplicate,
                    (3, inboxes) => PublishOutcome::Written(inboxes),
                    (4, inboxes) => PublishOutcome::Synced(inboxes),
                    _ => return Err(reader.bad("an unknown outcome")),
                };
                Self::Published { topic: number, token, sequence, outcome }
            }
            kind::REJECTED => Self::Rejected { topic: number, token: reader.word()?, reason: reader.text()? },
            kind::TOPIC => Self::Topic { number, name: reader.text()? },
            kind::TOPIC_TYPE => {
                let event_type = match reader.array()? {
                    [0] => None,
                    [1] => Some(reader.text()?),
                    _ => return Err(reader.bad("unknown flags")),
                };
                Self::TopicType { number, event_type }
            }
            kind::DELIVER => {
                let (head, payload) = DeliverHead::read(bytes)?;
                return Ok(Self::Deliver { head, payload });
            }
            kind::NOTICE => Self::Notice { consumer: number, notice: reader.json()? },
            kind::SENT => {
                let (topic, supplier) = (reader.word()?, reader.word()?);
                Self::Sent { consumer: number, topic, supplier, count: reader.long()?, last: reader.long()? }
            }
            kind::OPENED => Self::Opened { number, credit: reader.word()? },
            kind::CLOSED => Self::Closed { number, reason: reader.text()? },
            kind::CREDIT => Self::Credit { number, bytes: reader.word()? },
            kind::STATISTICS => Self::Statistics { json: reader.text()? },
            kind::RELOADED => Self::Reloaded(reader.json()?),
            kind::TAKEN_OVER => Self::TakenOver(reader.json()?),
            kind::BYE => Self::Bye { reason: reader.text()? },
            kind::RING => Self::Ring { number, order: reader.json()? },
            _ => return Err(reader.bad("an unknown kind")),
        };
        let is_of_the_connection = matches!(
            kind,
            kind::HELLO
                | kind::ASK
                | kind::RELOAD
                | kind::ALIVE
                | kind::WELCOME
                | kind::STATISTICS
                | kind::RELOADED
                | kind::TAKEN_OVER
                | kind::BYE
        );
        if is_of_the_connection && number != 0 {
            return Err(reader.bad("a number where there is none"));
        }
        reader.end()?;
        Ok(frame)
    }

    /// Appends the frame to `bytes`.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut head = |kind: u8, number: u32| {
            bytes.extend([kind, 0, 0, 0]);
            bytes.extend(number.to_le_bytes());
        };
        match self {
            Self::Hello(greeting) => {
                head(kind::HELLO, 0);
                bytes.extend(MAGIC);
                write_json(bytes, greeting);
            }
            Self::Advertise { number, spec } => {
                head(kind::ADVERTISE, *number);
                write_json(bytes, spec);
            }
            Self::Publish { head, payload } => {
                head.write(bytes);
                bytes.extend(*payload);
            }
            Self::Subscribe { number, spec } => {
                head(kind::SUBSCRIBE, *number);
                write_json(bytes, spec);
            }
            Self::Acknowledge { consumer, delivery } => {
                head(kind::ACKNOWLEDGE, *consumer);
                bytes.extend(delivery.to_le_bytes());
            }
            Self::Unsubscribe { number } => head(kind::UNSUBSCRIBE, *number),
            Self::Open { number, path } => {
                head(kind::OPEN, *number);
                write_json(bytes, path);
            }
            Self::Close { number } => head(kind::CLOSE, *number),
            Self::Flush { number } => head(kind::FLUSH, *number),
            Self::Ask => head(kind::ASK, 0),
            Self::Reload => head(kind::RELOAD, 0),
            Self::TakeOver { step } => head(kind::TAKE_OVER, step.number()),
            Self::Alive => head(kind::ALIVE, 0),
            Self::RingReport { number, report } => {
                head(kind::RING_REPORT, *number);
                write_json(bytes, report);
            }
            Self::Ring { number, order } => {
                head(kind::RING, *number);
                write_json(bytes, order);
            }
            Self::Welcome(terms) => {
                head(kind::WELCOME, 0);
                write_json(bytes, terms);
            }
            Self::Accepted { number } => head(kind::ACCEPTED, *number),
            Self::Refused { number, reason: text } => {
                head(kind::REFUSED, *number);
                bytes.extend(text.as_bytes());
            }
            Self::Published { topic, token, sequence, outcome } => {
                head(kind::PUBLISHED, *topic);
                let (what, inboxes) = match outcome {
                    PublishOutcome::Taken(inboxes) => (0_u32, *inboxes),
                    PublishOutcome::Standby => (1, 0),
                    PublishOutcome::Duplicate => (2, 0),
                    PublishOutcome::Written(inboxes) => (3, *inboxes),
                    PublishOutcome::Synced(inboxes) => (4, *inboxes),
                };
                bytes.extend(token.to_le_bytes());
                bytes.extend(sequence.to_le_bytes());
                bytes.extend(inboxes.to_le_bytes());
                bytes.extend(what.to_le_bytes());
            }
            Self::Rejected { topic, token, reason } => {
                head(kind::REJECTED, *topic);
                bytes.extend(token.to_le_bytes());
                bytes.extend(reason.as_bytes());
            }
            Self::Topic { number, name } => {
                head(kind::TOPIC, *number);
                bytes.extend(name.as_bytes());
            }
            Self::TopicType { number, event_type } => {
                head(kind::TOPIC_TYPE, *number);
                bytes.push(u8::from(event_type.is_some()));
                bytes.extend(event_type.unwrap_or_default().as_bytes());
            }
            Self::Deliver { head, payload } => {
                head.write(bytes);
                bytes.extend(*payload);
            }
            Self::Notice { consumer, notice } => {
                head(kind::NOTICE, *consumer);
                write_json(bytes, notice);
            }
            Self::Sent { consumer, topic, supplier, count, last } => {
                head(kind::SENT, *consumer);
                bytes.extend([*topic, *supplier].iter().flat_map(|word| word.to_le_bytes()));
                bytes.extend([*count, *last].iter().flat_map(|long| long.to_le_bytes()));
            }
            Self::Opened { number, credit } => {
                head(kind::OPENED, *number);
                bytes.extend(credit.to_le_bytes());
            }
            Self::Closed { number, reason } => {
                head(kind::CLOSED, *number);
                bytes.extend(reason.as_bytes());
            }
            Self::Credit { number, bytes: count } => {
                head(kind::CREDIT, *number);
                bytes.extend(count.to_le_bytes());
            }
            Self::Statistics { json } => {
                head(kind::STATISTICS, 0);
                bytes.extend(json.as_bytes());
            }
            Self::Reloaded(report) => {
                head(kind::RELOADED, 0);
                write_json(bytes, report);
            }
            Self::TakenOver(report) => {
                head(kind::TAKEN_OVER, 0);
                write_json(bytes, report);
            }
            Self::Bye { reason } => {
                head(kind::BYE, 0);
                bytes.extend(reason.as_bytes());
            }
        }
    }
}

impl<'a> PublishHead<'a> {
    /// Returns whether the frame of these bytes is a publication, whatever follows its kind.
    #[must_use]
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.first() == Some(&kind::PUBLISH)
    }

    /// Reads a publication; returns its head and its payload. [`Frame::read`] does the same, and returns a
    /// value that has room for all other frames.
    ///
    /// # Errors
    /// The errors of [`Frame::read`], and an error for all other frames.
    pub fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Bad> {
        let mut reader = FrameReader::new(bytes);
        let [kind, flags, criticality, repeated] = reader.array()?;
        let topic = reader.word()?;
        if kind != kind::PUBLISH {
            return Err(reader.bad("no publication"));
        }
        if repeated != 0 {
            return Err(reader.bad("a publication that is repeated"));
        }
        let Some([remaining, answer, at_once, numbered]) = bits(flags) else {
            return Err(reader.bad("unknown flags"));
        };
        let flags = PublishFlags { answer, at_once };
        let deadline = PublishDeadline::read(remaining, reader.long()?);
        let token = reader.word()?;
        let sequence = if numbered { Some(reader.long()?) } else { None };
        let (key, fields) = reader.key_and_fields()?;
        let head = Self { flags, criticality, topic, deadline, token, sequence, key, fields };
        Ok((head, reader.rest()))
    }

    /// Appends the frame without its payload.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let PublishFlags { answer, at_once } = self.flags;
        let flags = byte([self.deadline.is_remaining(), answer, at_once, self.sequence.is_some()]);
        // in one piece: each extension checks the capacity again
        let mut front = [0; 20];
        front[..4].copy_from_slice(&[kind::PUBLISH, flags, self.criticality, 0]);
        front[4..8].copy_from_slice(&self.topic.to_le_bytes());
        front[8..16].copy_from_slice(&self.deadline.as_nanos().to_le_bytes());
        front[16..].copy_from_slice(&self.token.to_le_bytes());
        bytes.extend_from_slice(&front);
        if let Some(sequence) = self.sequence {
            bytes.extend_from_slice(&sequence.to_le_bytes());
        }
        fields::write(bytes, self.key, &self.fields);
    }
}

impl<'a> DeliverHead<'a> {
    /// Returns whether the frame of these bytes is a delivery, whatever follows its kind.
    #[must_use]
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.first() == Some(&kind::DELIVER)
    }

    /// Reads a delivery; returns its head and its payload, as [`PublishHead::read`] does.
    ///
    /// # Errors
    /// The errors of [`Frame::read`], and an error for all other frames.
    pub fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Bad> {
        let mut reader = FrameReader::new(bytes);
        let [kind, flags, criticality, repeated] = reader.array()?;
        let consumer = reader.word()?;
        if kind != kind::DELIVER {
            return Err(reader.bad("no delivery"));
        }
        let Some([relative, late, retained, part, acknowledge]) = bits(flags) else {
            return Err(reader.bad("unknown flags"));
        };
        let head = Self {
            flags: DeliverFlags { late, retained, part, acknowledge },
            criticality,
            repeated,
            consumer,
            topic: reader.word()?,
            supplier: reader.word()?,
            sequence: reader.long()?,
            times: DeliverTimes::read(relative, [reader.long()?, reader.long()?]),
            delivery: reader.long()?,
            ..Self::default()
        };
        let (key, fields) = reader.key_and_fields()?;
        Ok((Self { key, fields, ..head }, reader.rest()))
    }

    /// Appends the frame without its payload.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let DeliverFlags { late, retained, part, acknowledge } = self.flags;
        let flags = byte([self.times.is_relative(), late, retained, part, acknowledge]);
        // in one piece, as in a publication
        let mut front = [0; DELIVER_FRONT];
        front[..4].copy_from_slice(&[kind::DELIVER, flags, self.criticality, self.repeated]);
        let words = [self.consumer, self.topic, self.supplier];
        for (place, word) in front[4..16].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let [first, second] = self.times.as_nanos();
        let longs = [self.sequence, first, second, self.delivery];
        for (place, long) in front[16..].chunks_exact_mut(8).zip(longs) {
            place.copy_from_slice(&long.to_le_bytes());
        }
        bytes.extend_from_slice(&front);
        fields::write(bytes, self.key, &self.fields);
    }
}

fn write_json(bytes: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(bytes, value)
        .expect("has a text because it is numbers and texts, written to memory");
}

/// Packs flags into a byte, the first one in the lowest bit.
fn byte<const N: usize>(flags: [bool; N]) -> u8 {
    flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag))
}

/// Unpacks the flags of a byte; `None` if other bits are set.
fn bits<const N: usize>(byte: u8) -> Option<[bool; N]> {
    (u32::from(byte) >> N == 0).then(|| std::array::from_fn(|at| byte >> at & 1 == 1))
}

#[cfg(test)]
mod tests;
