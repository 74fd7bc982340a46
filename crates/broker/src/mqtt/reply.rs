//! What the broker answers, of both versions.

use super::terms::{MqttFault, MqttVersion};

/// What becomes of a request: MQTT 5's reason code, and what 3.1.1 has in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum MqttReason {
    Success = 0x00,
    /// Nobody subscribed to it.
    NoSubscribers = 0x10,
    /// There is no such subscription.
    NoSubscription = 0x11,
    Refused = 0x83,
    NotAllowed = 0x87,
    KeepAliveOver = 0x8D,
    TakenOver = 0x8E,
    BadFilter = 0x8F,
    BadTopic = 0x90,
    UnknownId = 0x92,
    BadAlias = 0x94,
    TooLarge = 0x95,
    TooMuch = 0x97,
}

impl MqttReason {
    pub(crate) fn is_error(self) -> bool {
        self as u8 >= 0x80
    }
}

/// A length, a quantity or an identifier as MQTT's variable byte integer.
pub(super) fn push_length(bytes: &mut Vec<u8>, mut length: usize) {
    loop {
        let more = length > 0x7F;
        bytes.push((length & 0x7F) as u8 | u8::from(more) << 7);
        length >>= 7;
        if !more {
            return;
        }
    }
}

/// A text after its length; cut at 65,535 bytes, which no text here reaches.
pub(super) fn push_text(bytes: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    bytes.extend(length.to_be_bytes());
    bytes.extend(&text.as_bytes()[..length.into()]);
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 2);
    bytes.push(first);
    push_length(&mut bytes, body.len());
    bytes.extend_from_slice(body);
    bytes
}

/// Properties after their length; a reason is cut to 1 KiB, so that a client with small packets gets it.
fn push_reason(body: &mut Vec<u8>, more: &[u8], reason: Option<&str>) {
    let mut properties = more.to_vec();
    if let Some(reason) = reason {
        let end = (0..=reason.len().min(1024)).rev().find(|at| reason.is_char_boundary(*at));
        properties.push(0x1F);
        push_text(&mut properties, &reason[..end.unwrap_or(0)]);
    }
    push_length(body, properties.len());
    body.extend(properties);
}

/// What a CONNACK says to a client that may stay.
#[derive(Clone, Debug)]
pub(crate) struct Connected<'a> {
    pub(crate) session_present: bool,
    /// The identifier, if the broker chose it.
    pub(crate) assigned: Option<&'a str>,
    /// Bytes of the largest packet that the broker takes.
    pub(crate) largest: u32,
    /// The largest topic alias.
    pub(crate) aliases: u16,
    /// Seconds that the session outlives the connection, if that is less than was asked for.
    pub(crate) expiry: Option<u32>,
}

pub(crate) fn connected(version: MqttVersion, terms: &Connected<'_>) -> Vec<u8> {
    let mut body = vec![u8::from(terms.session_present), 0];
    if version == MqttVersion::V5 {
        let mut properties = vec![0x27];
        properties.extend(terms.largest.to_be_bytes());
        properties.push(0x22);
        properties.extend(terms.aliases.to_be_bytes());
        if let Some(name) = terms.assigned {
            properties.push(0x12);
            push_text(&mut properties, name);
        }
        if let Some(expiry) = terms.expiry {
            properties.push(0x11);
            properties.extend(expiry.to_be_bytes());
        }
        push_reason(&mut body, &properties, None);
    }
    packet(0x20, &body)
}

/// A CONNACK that refuses. A client of an unknown version gets that of 3.1.1.
pub(crate) fn connect_refused(version: Option<MqttVersion>, fault: &MqttFault) -> Vec<u8> {
    let mut body = vec![0, fault.code];
    match version {
        Some(MqttVersion::V5) => push_reason(&mut body, &[], Some(&fault.text)),
        _ => {
            body[1] = match fault.code {
                0x84 => 1,
                0x85 => 2,
                0x86 => 4,
                0x87 => 5,
                _ => 3,
            }
        }
    }
    packet(0x20, &body)
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP: `kind` is the packet's number.
pub(crate) fn published(
    version: MqttVersion,
    kind: u8,
    id: u16,
    (reason, text): (MqttReason, Option<&str>),
) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if version == MqttVersion::V5 && reason != MqttReason::Success {
        body.push(reason as u8);
        if text.is_some() {
            push_reason(&mut body, &[], text);
        }
    }
    packet(kind << 4 | if kind == 6 { 2 } else { 0 }, &body)
}

/// SUBACK: for each filter the QoS that is granted, or why not.
pub(crate) fn subscribed(version: MqttVersion, id: u16, codes: &[u8], reason: Option<&str>) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    match version {
        MqttVersion::V5 => {
            push_reason(&mut body, &[], reason);
            body.extend(codes);
        }
        MqttVersion::V311 => body.extend(codes.iter().map(|code| (*code).min(0x80))),
    }
    packet(0x90, &body)
}

pub(crate) fn unsubscribed(version: MqttVersion, id: u16, codes: &[MqttReason]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if version == MqttVersion::V5 {
        push_reason(&mut body, &[], None);
        body.extend(codes.iter().map(|code| *code as u8));
    }
    packet(0xB0, &body)
}

pub(crate) fn ping_answer() -> Vec<u8> {
    vec![0xD0, 0]
}

/// The broker's last word, which 3.1.1 does not have.
pub(crate) fn disconnect(version: MqttVersion, fault: &MqttFault) -> Option<Vec<u8>> {
    (version == MqttVersion::V5).then(|| {
        let mut body = vec![fault.code];
        push_reason(&mut body, &[], Some(&fault.text));
        packet(0xE0, &body)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt_protocol_core::mqtt::packet::{v3_1_1, v5_0};

    /// What follows the two bytes in front of a short packet.
    fn body(bytes: &[u8]) -> &[u8] {
        assert_eq!(usize::from(bytes[1]), bytes.len() - 2);
        &bytes[2..]
    }

    #[test]
    fn answers_are_read_by_another_codec() {
        let terms = Connected {
            session_present: true,
            assigned: Some("c1"),
            largest: 70_000,
            aliases: 3,
            expiry: Some(9),
        };
        let bytes = connected(MqttVersion::V5, &terms);
        let (packet, _) = v5_0::Connack::parse(body(&bytes)).expect("a packet");
        assert!(packet.session_present() && packet.props().len() == 4);
        let (packet, _) =
            v3_1_1::Connack::parse(body(&connected(MqttVersion::V311, &terms))).expect("a packet");
        assert!(packet.session_present());

        let fault = MqttFault::new(0x87, "not allowed");
        let bytes = connect_refused(Some(MqttVersion::V5), &fault);
        assert_eq!(v5_0::Connack::parse(body(&bytes)).expect("a packet").0.reason_code() as u8, 0x87);
        let bytes = connect_refused(Some(MqttVersion::V311), &fault);
        assert_eq!(v3_1_1::Connack::parse(body(&bytes)).expect("a packet").0.return_code() as u8, 5);

        for (reason, text) in [(MqttReason::Success, None), (MqttReason::TooMuch, Some("no"))] {
            let bytes = published(MqttVersion::V5, 4, 7, (reason, text));
            let (packet, _) = v5_0::Puback::parse(body(&bytes)).expect("a packet");
            assert_eq!(packet.packet_id(), 7);
            assert_eq!(packet.reason_code().map_or(0, |code| code as u8), reason as u8);
        }
        let bytes = published(MqttVersion::V311, 6, 7, (MqttReason::Success, None));
        assert_eq!(
            (bytes[0], v3_1_1::Pubrel::parse(body(&bytes)).expect("a packet").0.packet_id()),
            (0x62, 7)
        );

        let bytes = subscribed(MqttVersion::V5, 8, &[1, 0x87], Some("no"));
        let (packet, _) = v5_0::Suback::parse(body(&bytes)).expect("a packet");
        assert_eq!(packet.reason_codes().iter().map(|code| *code as u8).collect::<Vec<_>>(), [1, 0x87]);
        let bytes = subscribed(MqttVersion::V311, 8, &[1, 0x87], None);
        let (packet, _) = v3_1_1::Suback::parse(body(&bytes)).expect("a packet");
        assert_eq!(packet.return_codes().iter().map(|code| *code as u8).collect::<Vec<_>>(), [1, 0x80]);

        let bytes = unsubscribed(MqttVersion::V5, 9, &[MqttReason::NoSubscription]);
        assert_eq!(v5_0::Unsuback::parse(body(&bytes)).expect("a packet").0.packet_id(), 9);
        let bytes = disconnect(MqttVersion::V5, &fault).expect("5 has it");
        let reason = v5_0::Disconnect::parse(body(&bytes)).expect("a packet").0.reason_code();
        assert_eq!(reason.map(|code| code as u8), Some(0x87));
    }
}
