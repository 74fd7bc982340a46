//! Packets of clients, of both versions in one form.

use super::connect::{ConnectRequest, connect};
use super::fields::PacketFields;
use super::message::IncomingMessage;
use super::terms::{MqttFault, MqttQos, MqttVersion};
use mqtt_protocol_core::mqtt::packet::{Property, PropertyId};

/// The retained messages that a new subscription gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PastPolicy {
    Send,
    SendIfNew,
    Skip,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FilterRequest {
    pub(crate) filter: String,
    pub(crate) qos: MqttQos,
    /// Whether the client's own messages are left out.
    pub(crate) no_local: bool,
    pub(crate) retain_as_published: bool,
    pub(crate) past: PastPolicy,
}

/// A packet of a client.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum MqttPacket<'a> {
    Connect(Box<ConnectRequest>),
    Publish(IncomingMessage<'a>),
    Acknowledged(u16),
    /// PUBREC; a refusal ends the message's exchange.
    Received {
        id: u16,
        refused: bool,
    },
    Release(u16),
    Complete(u16),
    Subscribe {
        id: u16,
        identifier: Option<u32>,
        filters: Vec<FilterRequest>,
    },
    Unsubscribe {
        id: u16,
        filters: Vec<String>,
    },
    Ping,
    /// `with_will`: the will is published nevertheless. `expiry`: a new expiry of the session, in seconds.
    Disconnect {
        with_will: bool,
        expiry: Option<u32>,
    },
}

/// Splits a packet into its first byte and the body behind the length.
fn split(bytes: &[u8]) -> Result<(u8, &[u8]), MqttFault> {
    let first = *bytes.first().ok_or_else(|| MqttFault::malformed("an empty packet"))?;
    let length = bytes.iter().skip(1).take(4).take_while(|byte| **byte & 0x80 != 0).count() + 2;
    let body = bytes.get(length..).ok_or_else(|| MqttFault::malformed("a packet without a length"))?;
    Ok((first, body))
}

/// Returns the version that a CONNECT asks for, if this broker supports it.
pub(crate) fn version_of_connect(bytes: &[u8]) -> Option<MqttVersion> {
    let (first, body) = split(bytes).ok()?;
    match body.strip_prefix(b"\0\x04MQTT")?.first()? {
        4 if first >> 4 == 1 => Some(MqttVersion::V311),
        5 if first >> 4 == 1 => Some(MqttVersion::V5),
        _ => None,
    }
}

/// Parses a packet; `version` is the version of the client's CONNECT, `None` before it.
///
/// # Errors
/// The bytes are not a valid packet of a client.
pub(crate) fn packet(bytes: &[u8], version: Option<MqttVersion>) -> Result<MqttPacket<'_>, MqttFault> {
    let (first, body) = split(bytes)?;
    let (kind, flags) = (first >> 4, first & 0x0F);
    let expected = if matches!(kind, 6 | 8 | 10) { 2 } else { 0 };
    if kind != 3 && flags != expected {
        return Err(MqttFault::malformed("reserved bits of a packet's first byte are set"));
    }
    let Some(version) = version else {
        if kind != 1 {
            return Err(MqttFault::new(0x82, "the first packet has to be CONNECT"));
        }
        return connect(body).map(|request| MqttPacket::Connect(Box::new(request)));
    };
    let v5 = version == MqttVersion::V5;
    let fields = PacketFields(body);
    Ok(match kind {
        1 => return Err(MqttFault::new(0x82, "a second CONNECT")),
        3 => MqttPacket::Publish(IncomingMessage::read(flags, body, version)?),
        4 => MqttPacket::Acknowledged(acknowledgement(fields, version, &RECEIVED_CODES)?.0),
        5 => {
            let (id, code) = acknowledgement(fields, version, &RECEIVED_CODES)?;
            MqttPacket::Received { id, refused: code >= 0x80 }
        }
        6 => MqttPacket::Release(acknowledgement(fields, version, &RELEASED_CODES)?.0),
        7 => MqttPacket::Complete(acknowledgement(fields, version, &RELEASED_CODES)?.0),
        8 => subscribe(fields, version)?,
        10 => unsubscribe(fields, version)?,
        12 => {
            fields.end()?;
            MqttPacket::Ping
        }
        14 if v5 => disconnect(fields)?,
        14 => {
            fields.end()?;
            MqttPacket::Disconnect { with_will: false, expiry: None }
        }
        15 if v5 => return Err(MqttFault::new(0x8C, "enhanced authentication, which this broker has not")),
        _ => return Err(MqttFault::malformed("a packet that no client sends")),
    })
}

/// Reason codes of PUBACK and PUBREC (MQTT 5.0, table 2-6).
const RECEIVED_CODES: [u8; 9] = [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
/// Reason codes of PUBREL and PUBCOMP (MQTT 5.0, table 2-6).
const RELEASED_CODES: [u8; 2] = [0x00, 0x92];
/// Reason codes of a client's DISCONNECT.
const DISCONNECT_CODES: [u8; 14] =
    [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99];

/// Reads the reason code at the end of an answer; a missing code counts as 0.
fn reason(fields: &mut PacketFields<'_>, codes: &[u8]) -> Result<u8, MqttFault> {
    match fields.0 {
        [] => Ok(0),
        _ => match fields.byte()? {
            code if codes.contains(&code) => Ok(code),
            code => {
                Err(MqttFault::malformed(&format!("the reason code {code:#04x} in a packet that has none")))
            }
        },
    }
}

/// Reads a PUBACK, PUBREC, PUBREL or PUBCOMP: the packet identifier and the reason code.
fn acknowledgement(
    mut fields: PacketFields<'_>,
    version: MqttVersion,
    codes: &[u8],
) -> Result<(u16, u8), MqttFault> {
    let id = fields.identifier()?;
    let mut code = 0;
    if version == MqttVersion::V5 {
        code = reason(&mut fields, codes)?;
        if !fields.0.is_empty() {
            fields.properties(&[PropertyId::ReasonString, PropertyId::UserProperty])?;
        }
    }
    fields.end()?;
    Ok((id, code))
}

fn subscribe(mut fields: PacketFields<'_>, version: MqttVersion) -> Result<MqttPacket<'static>, MqttFault> {
    let id = fields.identifier()?;
    let mut identifier = None;
    if version == MqttVersion::V5 {
        let allowed = [PropertyId::SubscriptionIdentifier, PropertyId::UserProperty];
        identifier = fields.properties(&allowed)?.iter().find_map(|property| match property {
            Property::SubscriptionIdentifier(identifier) => Some(identifier.val()),
            _ => None,
        });
    }
    let mut filters = Vec::new();
    while filters.is_empty() || !fields.0.is_empty() {
        let filter = fields.text()?;
        filters.push(FilterRequest::new(filter, fields.byte()?, version)?);
    }
    Ok(MqttPacket::Subscribe { id, identifier, filters })
}

fn unsubscribe(mut fields: PacketFields<'_>, version: MqttVersion) -> Result<MqttPacket<'static>, MqttFault> {
    let id = fields.identifier()?;
    if version == MqttVersion::V5 {
        fields.properties(&[PropertyId::UserProperty])?;
    }
    let mut filters = Vec::new();
    while filters.is_empty() || !fields.0.is_empty() {
        filters.push(fields.text()?.to_owned());
    }
    Ok(MqttPacket::Unsubscribe { id, filters })
}

/// Reads a DISCONNECT of MQTT 5.
fn disconnect(mut fields: PacketFields<'_>) -> Result<MqttPacket<'static>, MqttFault> {
    let with_will = reason(&mut fields, &DISCONNECT_CODES)? != 0;
    let mut expiry = None;
    if !fields.0.is_empty() {
        let allowed = [PropertyId::SessionExpiryInterval, PropertyId::ReasonString, PropertyId::UserProperty];
        expiry = fields.properties(&allowed)?.iter().find_map(|property| match property {
            Property::SessionExpiryInterval(expiry) => Some(expiry.val()),
            _ => None,
        });
    }
    fields.end()?;
    Ok(MqttPacket::Disconnect { with_will, expiry })
}

/// The prefix of a shared subscription's filter.
pub(crate) const SHARE: &str = "$share/";

/// Returns the name of a group and the filter, from the part behind [`SHARE`].
pub(crate) fn split_share(shared: &str) -> Option<(&str, &str)> {
    let (name, filter) = shared.split_once('/')?;
    (!name.is_empty() && !name.contains(['+', '#']) && !filter.is_empty()).then_some((name, filter))
}

impl FilterRequest {
    /// Parses a filter and its byte of options.
    fn new(filter: &str, options: u8, version: MqttVersion) -> Result<Self, MqttFault> {
        let reserved = if version == MqttVersion::V5 { 0xC0 } else { 0xFC };
        if options & reserved != 0 {
            return Err(MqttFault::malformed("reserved bits of a subscription's options are set"));
        }
        let no_local = options & 4 != 0;
        if let Some(shared) = filter.strip_prefix(SHARE)
            && version == MqttVersion::V5
        {
            split_share(shared).ok_or_else(|| MqttFault::malformed("no $share/NAME/FILTER"))?;
            if no_local {
                // MQTT 5.0, section 3.8.3.1
                return Err(MqttFault::new(0x82, "a shared subscription without the client's own messages"));
            }
        }
        Ok(Self {
            filter: filter.to_owned(),
            qos: MqttQos::from_bits(options)?,
            no_local,
            retain_as_published: options & 8 != 0,
            past: match options >> 4 {
                0 => PastPolicy::Send,
                1 => PastPolicy::SendIfNew,
                2 => PastPolicy::Skip,
                _ => return Err(MqttFault::new(0x82, "a retain handling of 3")),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault_of(bytes: &[u8], version: MqttVersion) -> Option<u8> {
        packet(bytes, Some(version)).err().map(|fault| fault.code)
    }

    /// Makes a packet of 5 or 3.1.1, with the length of its body.
    fn sent(first: u8, body: &[u8]) -> Vec<u8> {
        [&[first, body.len() as u8], body].concat()
    }

    #[test]
    fn bytes_behind_the_end_of_a_packet_are_malformed() {
        let whole: [(u8, &[u8]); 6] = [
            (0x40, &[0, 1, 0, 0]),
            (0x50, &[0, 1, 0, 0]),
            (0x62, &[0, 1, 0, 0]),
            (0x70, &[0, 1, 0, 0]),
            (0xC0, &[]),
            (0xE0, &[0, 0]),
        ];
        for (first, body) in whole {
            assert_eq!(fault_of(&sent(first, body), MqttVersion::V5), None, "{first:#x}");
            let longer = sent(first, &[body, &[9]].concat());
            assert_eq!(fault_of(&longer, MqttVersion::V5), Some(0x81), "{first:#x}");
            let short = &body[..body.len().min(2)];
            let of_311 = if first == 0xE0 { &[][..] } else { short };
            assert_eq!(fault_of(&sent(first, of_311), MqttVersion::V311), None, "{first:#x}");
            let longer = sent(first, &[of_311, &[0]].concat());
            assert_eq!(fault_of(&longer, MqttVersion::V311), Some(0x81), "{first:#x}");
        }
    }

    #[test]
    fn reserved_options_reserved_codes_and_a_nul_are_malformed() {
        let filter = |options: u8, name: &[u8]| {
            sent(0x82, &[&[0, 1, 0, 0, name.len() as u8], name, &[options]].concat())
        };
        let of_311 = |options: u8| sent(0x82, &[0, 1, 0, 1, b't', options]);
        assert_eq!(fault_of(&filter(0x2E, b"t"), MqttVersion::V5), None);
        for (options, code) in [(3, 0x81), (0x30, 0x82), (0x40, 0x81), (0x80, 0x81)] {
            assert_eq!(fault_of(&filter(options, b"t"), MqttVersion::V5), Some(code), "{options:#x}");
        }
        assert_eq!(fault_of(&of_311(2), MqttVersion::V311), None);
        for options in [3, 4, 8, 0x10] {
            assert_eq!(fault_of(&of_311(options), MqttVersion::V311), Some(0x81), "{options:#x}");
        }
        assert_eq!(fault_of(&filter(4, b"$share/g/t"), MqttVersion::V5), Some(0x82));
        assert_eq!(fault_of(&filter(0, b"a\0b"), MqttVersion::V5), Some(0x81));
        assert_eq!(fault_of(&sent(0xA2, &[0, 1, 0, 0, 1, 0]), MqttVersion::V5), Some(0x81));
        let twice = sent(0x82, &[0, 1, 4, 0x0B, 1, 0x0B, 2, 0, 1, b't', 0]);
        assert_eq!(fault_of(&twice, MqttVersion::V5), Some(0x82));
        assert_eq!(fault_of(&sent(0x40, &[0, 1, 0x55]), MqttVersion::V5), Some(0x81));
        assert_eq!(fault_of(&sent(0xE0, &[0x55]), MqttVersion::V5), Some(0x81));
        assert_eq!(fault_of(&sent(0x82, &[0, 1, 0]), MqttVersion::V5), Some(0x81), "no filter");
    }
}
