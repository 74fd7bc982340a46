//! PUBLISH: its contents, and the conversion between events and PUBLISH packets.
//!
//! | MQTT | event |
//! |---|---|
//! | message expiry interval, in seconds; user property `deadline_us` | the deadline; the sooner one counts |
//! | response topic; correlation data that is UTF-8 | the fields `reply_to` and `request` |
//! | content type | the field `content_type`; without one, a payload format of 1 is [`UTF_8`] |
//! | other user properties | fields of that name: numbers, truth values, texts |
//! | QoS, RETAIN, payload format | carried along for other MQTT clients |

use super::fields::PacketFields;
use super::reply::{push_length, push_text};
use super::terms::{MqttFault, MqttQos, MqttVersion};
use mqtt_protocol_core::mqtt::packet::{Properties, Property, PropertyId};
use std::sync::Arc;
use unisono_eventchannel::{FieldSet, FieldValue};
use unisono_events_wire::CONTENT_TYPE;
use unisono_linux::clock::Duration;

/// The user property that holds the time to the deadline, in microseconds.
const DEADLINE: &str = "deadline_us";
/// The fields that a request and its reply use.
const REPLY_TO: &str = "reply_to";
const REQUEST: &str = "request";
/// The content type of a payload of which MQTT says only that it is UTF-8.
const UTF_8: &str = "text/plain; charset=utf-8";

/// MQTT 5.0, table 2-4: the properties of a client's PUBLISH.
const PROPERTIES: [PropertyId; 7] = [
    PropertyId::PayloadFormatIndicator,
    PropertyId::MessageExpiryInterval,
    PropertyId::ContentType,
    PropertyId::ResponseTopic,
    PropertyId::CorrelationData,
    PropertyId::TopicAlias,
    PropertyId::UserProperty,
];

/// Maximum bytes of the fields made from one message's properties (user properties, response topic,
/// correlation data, content type): half of the bytes that a frame may have without its payload, so that a
/// frame to a program stays below its largest size. Further properties reach MQTT clients only.
const MAX_FIELD_BYTES: usize = 128 << 10;
/// The longest name of a field, in bytes: a frame has one byte for the length.
const MAX_FIELD_NAME: usize = 255;

/// A PUBLISH from a client.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct IncomingMessage<'a> {
    /// Empty if the packet has an alias instead.
    pub(crate) topic: &'a str,
    pub(crate) alias: Option<u16>,
    /// `None` for QoS 0.
    pub(crate) id: Option<u16>,
    pub(crate) retain: bool,
    /// The time left to the deadline.
    pub(crate) due_in: Option<Duration>,
    pub(crate) fields: FieldSet,
    pub(crate) origin: MessageOrigin,
    pub(crate) payload: &'a [u8],
}

/// The parts of the original PUBLISH that an event keeps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct MessageOrigin {
    pub(crate) qos: MqttQos,
    pub(crate) retain: bool,
    pub(crate) deadline: DeadlineUnit,
    /// The key of the client's session. `None`: the event came from another program.
    pub(crate) publisher: Option<Arc<str>>,
    /// The properties that other clients get unchanged, encoded. `None`: they are made from the fields.
    pub(crate) properties: Option<Arc<[u8]>>,
}

/// The unit of a deadline in the packet, for passing it on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum DeadlineUnit {
    /// As message expiry interval and as user property.
    #[default]
    Microseconds,
    /// As message expiry interval alone.
    Seconds,
}

impl<'a> IncomingMessage<'a> {
    /// Parses the part of a PUBLISH that follows its length.
    pub(super) fn read(flags: u8, body: &'a [u8], version: MqttVersion) -> Result<Self, MqttFault> {
        let qos = MqttQos::from_bits(flags >> 1)?;
        let mut fields = PacketFields(body);
        // the topic name is validated at its first use
        let topic = std::str::from_utf8(fields.binary()?)
            .map_err(|_| MqttFault::malformed("a topic that is no UTF-8"))?;
        let id = match qos {
            MqttQos::AtMostOnce => None,
            _ => Some(fields.identifier()?),
        };
        let retain = flags & 1 != 0;
        let mut message = Self {
            topic,
            alias: None,
            id,
            retain,
            due_in: None,
            fields: FieldSet::new(),
            origin: MessageOrigin {
                qos,
                retain,
                deadline: DeadlineUnit::Seconds,
                ..MessageOrigin::default()
            },
            payload: fields.0,
        };
        if version == MqttVersion::V5 {
            // most messages have no properties
            if let Some((0, payload)) = fields.0.split_first() {
                message.payload = payload;
            } else {
                let properties = fields.properties(&PROPERTIES)?;
                message.payload = fields.0;
                message.take(&properties)?;
            }
        }
        Ok(message)
    }

    /// Adds the properties of a PUBLISH or of a will to the message.
    pub(crate) fn take(&mut self, properties: &Properties) -> Result<(), MqttFault> {
        let (mut forwarded, mut fields) = (Vec::new(), Vec::new());
        let sooner = |due: Option<Duration>, other: Duration| Some(due.map_or(other, |due| due.min(other)));
        let mut room = MAX_FIELD_BYTES;
        let (mut has_type, mut is_utf_8) = (false, false);
        for property in properties {
            match property {
                Property::MessageExpiryInterval(interval) => {
                    self.due_in = sooner(self.due_in, Duration::from_secs(interval.val().into()));
                    continue;
                }
                Property::TopicAlias(alias) => {
                    self.alias = Some(alias.val());
                    continue;
                }
                Property::WillDelayInterval(_) => continue,
                Property::UserProperty(user) if user.key() == DEADLINE => {
                    let text = user.val();
                    let micros: u64 = text.parse().map_err(|_| {
                        MqttFault::new(
                            0x99,
                            format!("`{text}` for {DEADLINE}; write a whole number of microseconds"),
                        )
                    })?;
                    self.due_in = sooner(self.due_in, Duration::from_micros(micros));
                    self.origin.deadline = DeadlineUnit::Microseconds;
                    continue;
                }
                Property::UserProperty(user) => take_field(&mut fields, &mut room, user.key(), user.val()),
                Property::ResponseTopic(topic) => take_field(&mut fields, &mut room, REPLY_TO, topic.val()),
                Property::CorrelationData(data) => {
                    if let Ok(text) = std::str::from_utf8(data.val()) {
                        take_field(&mut fields, &mut room, REQUEST, text);
                    }
                }
                Property::ContentType(content) => {
                    has_type = true;
                    take_field(&mut fields, &mut room, CONTENT_TYPE, content.val());
                }
                Property::PayloadFormatIndicator(format) => is_utf_8 = format.val() == 1,
                _ => {}
            }
            forwarded.extend(property.to_continuous_buffer());
        }
        if is_utf_8 && !has_type {
            take_field(&mut fields, &mut room, CONTENT_TYPE, UTF_8);
        }
        self.fields = fields.into_iter().collect();
        self.origin.properties = (!forwarded.is_empty()).then(|| forwarded.into());
        Ok(())
    }
}

/// Appends a property as a field, if its name is short enough for a field and there is room for it.
fn take_field(fields: &mut Vec<(Arc<str>, FieldValue)>, room: &mut usize, name: &str, text: &str) {
    let bytes = name.len() + text.len();
    if name.len() <= MAX_FIELD_NAME && bytes <= *room {
        *room -= bytes;
        fields.push((name.into(), value(text)));
    }
}

/// Returns whether payloads of this content type are UTF-8: JSON always is (RFC 8259), other types are if
/// their `charset` says so.
fn is_utf_8(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(|part| part.trim().to_ascii_lowercase());
    let kind = parts.next().unwrap_or_default();
    kind == "application/json"
        || kind.ends_with("+json")
        || parts.any(|part| matches!(&*part, "charset=utf-8" | "charset=\"utf-8\""))
}

/// Converts a text to a field's value: a number or a truth value if that prints as the same text, otherwise
/// the text.
fn value(text: &str) -> FieldValue {
    if let Ok(whole) = text.parse::<i64>()
        && whole.to_string() == text
    {
        return whole.into();
    }
    if let Ok(decimal) = text.parse::<f64>()
        && decimal.is_finite()
        && decimal.to_string() == text
    {
        return decimal.into();
    }
    match text {
        "true" => true.into(),
        "false" => false.into(),
        _ => text.into(),
    }
}

fn text_of(value: &FieldValue) -> String {
    match value {
        FieldValue::Number(number) => number.to_string(),
        FieldValue::Bool(value) => value.to_string(),
        FieldValue::Text(text) => text.to_string(),
    }
}

/// A PUBLISH to a client, without its payload.
#[derive(Debug)]
pub(crate) struct OutgoingMessage<'a> {
    pub(crate) version: MqttVersion,
    pub(crate) topic: &'a str,
    /// `None` for QoS 0.
    pub(crate) id: Option<u16>,
    pub(crate) qos: MqttQos,
    pub(crate) retain: bool,
    /// The time left to the deadline.
    pub(crate) due_in: Option<Duration>,
    pub(crate) origin: &'a MessageOrigin,
    pub(crate) fields: &'a FieldSet,
    /// Identifiers of the subscriptions that the message matched.
    pub(crate) identifiers: &'a [u32],
    /// Bytes of the payload.
    pub(crate) payload: usize,
}

/// Makes the bytes of a PUBLISH in front of its payload.
pub(crate) fn publish_packet(message: &OutgoingMessage<'_>) -> Vec<u8> {
    let mut properties = Vec::new();
    if message.version == MqttVersion::V5 {
        push_properties(message, &mut properties);
    }
    let id = if message.id.is_some() { 2 } else { 0 };
    let mut rest = 2 + message.topic.len() + id + properties.len() + message.payload;
    let mut length_of_properties = Vec::new();
    if message.version == MqttVersion::V5 {
        push_length(&mut length_of_properties, properties.len());
        rest += length_of_properties.len();
    }
    let mut bytes = Vec::with_capacity(5 + rest - message.payload);
    bytes.push(0x30 | (message.qos as u8) << 1 | u8::from(message.retain));
    push_length(&mut bytes, rest);
    push_text(&mut bytes, message.topic);
    bytes.extend(message.id.into_iter().flat_map(u16::to_be_bytes));
    bytes.extend(length_of_properties);
    bytes.extend(properties);
    bytes
}

fn push_properties(message: &OutgoingMessage<'_>, bytes: &mut Vec<u8>) {
    if let Some(nanos) = message.due_in {
        // the client learns the remaining time; a fraction of a second counts as a whole one, so that it is
        // never 0
        let seconds = u32::try_from(nanos.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u32::MAX).max(1);
        bytes.push(0x02);
        bytes.extend(seconds.to_be_bytes());
        if message.origin.deadline == DeadlineUnit::Microseconds {
            push_user(bytes, DEADLINE, &(nanos.as_nanos() / 1000).to_string());
        }
    }
    for identifier in message.identifiers {
        bytes.push(0x0B);
        push_length(bytes, *identifier as usize);
    }
    if let Some(properties) = &message.origin.properties {
        bytes.extend_from_slice(properties);
        return;
    }
    for (name, value) in message.fields.iter() {
        let text = text_of(value);
        match &**name {
            REPLY_TO if text.len() <= usize::from(u16::MAX) => {
                bytes.push(0x08);
                push_text(bytes, &text);
            }
            REQUEST if text.len() <= usize::from(u16::MAX) => {
                bytes.push(0x09);
                push_text(bytes, &text);
            }
            CONTENT_TYPE if text.len() <= usize::from(u16::MAX) => {
                if is_utf_8(&text) {
                    bytes.extend([0x01, 1]);
                }
                bytes.push(0x03);
                push_text(bytes, &text);
            }
            name => push_user(bytes, name, &text),
        }
    }
}

/// Appends a user property; a name or text too long for MQTT is left out.
fn push_user(bytes: &mut Vec<u8>, name: &str, text: &str) {
    if name.len().max(text.len()) <= usize::from(u16::MAX) {
        bytes.push(0x26);
        push_text(bytes, name);
        push_text(bytes, text);
    }
}

/// Marks a PUBLISH as a repeated one.
pub(crate) fn with_duplicate_flag(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(first) = bytes.first_mut() {
        *first |= 8;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt_protocol_core::mqtt::packet::{
        CorrelationData, MessageExpiryInterval, ResponseTopic, UserProperty, v5_0,
    };
    use proptest::prelude::*;

    fn with(properties: Vec<Property>) -> Vec<u8> {
        let builder =
            v5_0::Publish::builder().topic_name("plant/1").expect("a name").payload(b"hot".to_vec());
        builder.props(properties).build().expect("a packet").to_continuous_buffer()
    }

    fn user(name: &str, text: &str) -> Property {
        UserProperty::new(name, text).expect("it is short").into()
    }

    fn read(bytes: &[u8]) -> Result<IncomingMessage<'_>, MqttFault> {
        match super::super::packet(bytes, Some(MqttVersion::V5))? {
            super::super::MqttPacket::Publish(message) => Ok(message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_sooner_of_expiry_and_deadline_counts_and_user_properties_become_fields() {
        let expiry = MessageExpiryInterval::new(2).expect("it fits").into();
        let reply = ResponseTopic::new("answers").expect("a name").into();
        let request = CorrelationData::new(b"17".to_vec()).expect("it is short").into();
        let bytes = with(vec![
            expiry,
            user(DEADLINE, "1500"),
            user("celsius", "81.5"),
            user("1.0", "1.0"),
            reply,
            request,
        ]);
        let message = read(&bytes).expect("a packet");
        assert_eq!(
            (message.topic, message.payload, message.due_in),
            ("plant/1", &b"hot"[..], Some(Duration::from_micros(1500)))
        );
        let fields = FieldSet::new().with("celsius", 81.5).with("1.0", "1.0");
        assert_eq!(message.fields, fields.with(REPLY_TO, "answers").with(REQUEST, 17));
        let bytes = with(vec![user(DEADLINE, "soon")]);
        assert!(read(&bytes).expect_err("no number").text.contains("`soon` for deadline_us"));
    }

    proptest! {
        /// Another implementation decodes the same values from the packets that are written here.
        #[test]
        fn what_is_sent_says_the_same_to_another_codec(
            qos in 0..3_u8, id in 1..u16::MAX, retain: bool, due_in: Option<u64>,
            payload in prop::collection::vec(0..255_u8, 0..300), number: i64, text in "[a-z]{0,200}",
        ) {
            let qos = [MqttQos::AtMostOnce, MqttQos::AtLeastOnce, MqttQos::ExactlyOnce][usize::from(qos)];
            let fields = FieldSet::new().with("number", number).with("text", text.as_str()).with(REPLY_TO, "r");
            let message = OutgoingMessage {
                version: MqttVersion::V5, topic: "a/b", id: (qos != MqttQos::AtMostOnce).then_some(id), qos, retain,
                due_in: due_in.map(Duration::from_nanos), origin: &MessageOrigin::default(), fields: &fields, identifiers: &[300],
                payload: payload.len(),
            };
            let mut bytes = publish_packet(&message);
            bytes.extend(&payload);
            let header = unisono_events_wire::transport::mqtt_packet_length(&bytes).expect("a length");
            prop_assert_eq!(header, Some(bytes.len()));
            let body: Vec<u8> = bytes[bytes.len() - rest(&bytes)..].to_vec();
            let (packet, _) = v5_0::Publish::parse(bytes[0] & 15, body.into()).expect("a packet");
            prop_assert_eq!((packet.topic_name(), packet.retain(), packet.packet_id()), ("a/b", retain, message.id));
            prop_assert_eq!(packet.qos() as u8, qos as u8);
            prop_assert_eq!(packet.payload().as_slice(), &payload[..]);
            let number = number.to_string();
            prop_assert!(packet.props().contains(&user("number", &number)));
            prop_assert!(packet.props().contains(&user("text", &text)));
            prop_assert!(packet.props().contains(&ResponseTopic::new("r").expect("a name").into()));
            let expiry = packet.props().iter().find_map(|property| match property {
                Property::MessageExpiryInterval(interval) => Some(u64::from(interval.val())),
                _ => None,
            });
            let seconds = due_in.map(|due| (due.div_ceil(1_000_000_000)).clamp(1, u32::MAX.into()));
            prop_assert_eq!(expiry, seconds);
        }
    }

    fn rest(bytes: &[u8]) -> usize {
        bytes.len() - 1 - bytes[1..].iter().take_while(|byte| **byte & 0x80 != 0).count() - 1
    }
}
