//! The fields of a packet, read one after the other.
//!
//! The checks are the ones that MQTT requires of a server: whole fields, UTF-8 without NUL, properties that
//! belong to the packet and come once. `mqtt-protocol-core` decodes the properties.

use super::terms::MqttFault;
use mqtt_protocol_core::mqtt::packet::{Properties, PropertiesParse, Property, PropertyId};

/// The unread rest of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketFields<'a>(pub(super) &'a [u8]);

impl<'a> PacketFields<'a> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], MqttFault> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, MqttFault> {
        self.bytes().map(|[byte]| byte)
    }

    pub(super) fn number(&mut self) -> Result<u16, MqttFault> {
        self.bytes().map(u16::from_be_bytes)
    }

    /// Reads a packet identifier, which is never 0.
    pub(super) fn identifier(&mut self) -> Result<u16, MqttFault> {
        match self.number()? {
            0 => Err(MqttFault::malformed("the packet identifier 0")),
            number => Ok(number),
        }
    }

    /// Reads binary data: a two-byte length, then the bytes (MQTT 5.0, section 1.5.6).
    pub(super) fn binary(&mut self) -> Result<&'a [u8], MqttFault> {
        let length = self.number()?.into();
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(cut_off)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, MqttFault> {
        let text = std::str::from_utf8(self.binary()?)
            .map_err(|_| MqttFault::malformed("a text that is no UTF-8"))?;
        check_text(text)?;
        Ok(text)
    }

    /// Reads the properties of a packet. Each must be in `allowed`.
    pub(super) fn properties(&mut self, allowed: &[PropertyId]) -> Result<Properties, MqttFault> {
        check_count(self.0)?;
        let (properties, length) = Properties::parse(self.0)?;
        self.0 = self.0.get(length..).ok_or_else(cut_off)?;
        let mut seen = 0_u64;
        for property in &properties {
            let (id, number) = (property.id(), property.id().as_u8());
            if !allowed.contains(&id) {
                return Err(MqttFault::new(0x82, format!("the property {number} in a packet that has none")));
            }
            if id != PropertyId::UserProperty && seen & 1 << number != 0 {
                return Err(MqttFault::new(0x82, format!("the property {number} twice")));
            }
            seen |= 1 << number;
            match property {
                Property::UserProperty(user) => check_text(user.key()).and(check_text(user.val()))?,
                Property::ContentType(text) => check_text(text.val())?,
                Property::ReasonString(text) => check_text(text.val())?,
                Property::ResponseTopic(topic) => check_topic(topic.val())?,
                _ => {}
            }
        }
        Ok(properties)
    }

    /// Checks that no bytes are left.
    pub(super) fn end(self) -> Result<(), MqttFault> {
        match self.0 {
            [] => Ok(()),
            more => Err(MqttFault::malformed(&format!("{} bytes behind the end of a packet", more.len()))),
        }
    }
}

/// Maximum number of properties of a packet: an event has up to 256 fields, and each property is decoded and
/// checked before any other part of the packet is known.
const MAX_PROPERTIES: usize = 1024;

/// Checks the number of properties without decoding them. Malformed properties are found later, by the
/// decoder.
fn check_count(bytes: &[u8]) -> Result<(), MqttFault> {
    let Some((mut left, _)) = variable(bytes).and_then(|(length, rest)| rest.split_at_checked(length)) else {
        return Ok(());
    };
    let mut count = 0_usize;
    while let Some(rest) = skip_property(left) {
        left = rest;
        count += 1;
    }
    if count > MAX_PROPERTIES {
        let text = format!("a packet of {count} properties; at most {MAX_PROPERTIES}");
        return Err(MqttFault::new(0x97, text));
    }
    Ok(())
}

/// Reads a variable byte integer. Returns it, and the bytes after it.
fn variable(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = bytes.iter().take(4).position(|byte| byte & 0x80 == 0)? + 1;
    let (number, rest) = bytes.split_at(end);
    let number = number.iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7F));
    Some((number, rest))
}

/// Returns the bytes after the first property (MQTT 5.0, table 2-4), or `None` if the bytes do not begin with
/// a property.
fn skip_property(bytes: &[u8]) -> Option<&[u8]> {
    let text = |bytes: &'_ [u8]| -> Option<usize> {
        let (length, _) = bytes.split_first_chunk()?;
        Some(2 + usize::from(u16::from_be_bytes(*length)))
    };
    let (id, rest) = bytes.split_first()?;
    let length = match id {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => 1,
        0x13 | 0x21 | 0x22 | 0x23 => 2,
        0x02 | 0x11 | 0x18 | 0x27 => 4,
        0x0B => rest.len() - variable(rest)?.1.len(),
        0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1A | 0x1C | 0x1F => text(rest)?,
        0x26 => {
            let name = text(rest)?;
            name + text(rest.get(name..)?)?
        }
        _ => return None,
    };
    rest.get(length..)
}

fn cut_off() -> MqttFault {
    MqttFault::malformed("a packet that is cut off")
}

/// Checks that a text has no NUL (MQTT 5.0, section 1.5.4).
fn check_text(text: &str) -> Result<(), MqttFault> {
    match text.contains('\0') {
        true => Err(MqttFault::malformed("a text with a NUL character")),
        false => Ok(()),
    }
}

/// Checks that a message can have this topic, in any broker.
///
/// # Errors
/// The topic is empty, is a filter, or has a NUL.
pub(crate) fn check_topic(topic: &str) -> Result<(), MqttFault> {
    if topic.is_empty() {
        return Err(MqttFault::new(0x82, "an empty topic"));
    }
    if topic.contains(['+', '#']) {
        return Err(MqttFault::new(0x90, format!("the topic `{topic}`: `+` and `#` are for subscriptions")));
    }
    check_text(topic)
}
