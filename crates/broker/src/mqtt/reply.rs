//! Packets of the broker to clients, of both versions.

use super::terms::{MqttFault, MqttVersion};

/// The result of a request: MQTT 5's reason code, and the corresponding code of 3.1.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum MqttReason {
    Success = 0x00,
    /// The topic has no matching subscription.
    NoSubscribers = 0x10,
    /// The client has no such subscription.
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

/// The limits of answers to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AnswerTerms {
    pub(crate) version: MqttVersion,
    /// Maximum bytes of a packet that the client accepts.
    pub(crate) largest: usize,
    /// Whether the client accepts reason texts, where MQTT lets it choose.
    pub(crate) wants_reasons: bool,
}

impl AnswerTerms {
    /// Makes the terms of a client that has not stated any, or whose CONNECT is not valid.
    pub(crate) fn new(version: MqttVersion) -> Self {
        Self { version, largest: usize::MAX, wants_reasons: true }
    }
}

/// Appends a length, a quantity or an identifier as MQTT's variable byte integer.
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

/// Appends a text after its length; cut at 65,535 bytes, which no text here reaches.
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

/// Makes a packet with properties and a reason in its middle. The reason is left out if the packet would be
/// too large for the client.
fn packet_with_reason(
    first: u8,
    (front, end): (&[u8], &[u8]),
    properties: &[u8],
    (reason, largest): (Option<&str>, usize),
) -> Vec<u8> {
    let mut body = front.to_vec();
    push_reason(&mut body, properties, reason);
    body.extend(end);
    let whole = packet(first, &body);
    match reason {
        Some(_) if whole.len() > largest => {
            packet_with_reason(first, (front, end), properties, (None, largest))
        }
        _ => whole,
    }
}

/// Appends properties after their length; a reason is cut to 1 KiB.
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

/// The parameters of a successful CONNACK.
#[derive(Clone, Debug)]
pub(crate) struct Connected<'a> {
    pub(crate) session_present: bool,
    /// The client identifier, if the broker chose it.
    pub(crate) assigned: Option<&'a str>,
    /// Maximum bytes of a packet that the broker accepts.
    pub(crate) largest: u32,
    /// The highest topic alias.
    pub(crate) aliases: u16,
    /// Session expiry in seconds, if less than requested.
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

/// Makes a CONNACK that refuses a connection. Returns `None` if the connection ends without a CONNACK: MQTT
/// 3.1.1 requires that after a CONNECT that breaks the protocol (section 3.1.4); a client that accepts no
/// packet so large gets none, either.
///
/// A client of an unknown version gets the CONNACK of 3.1.1.
pub(crate) fn connect_refused(terms: Option<AnswerTerms>, fault: &MqttFault) -> Option<Vec<u8>> {
    let old = |code| packet(0x20, &[0, code]);
    match (terms, fault.code) {
        (Some(AnswerTerms { version: MqttVersion::V5, largest, .. }), code) => {
            let front = [0, code];
            let whole = packet_with_reason(0x20, (&front, &[]), &[], (Some(&fault.text), largest));
            (whole.len() <= largest).then_some(whole)
        }
        (_, 0x84) => Some(old(1)),
        (_, 0x85) => Some(old(2)),
        (_, 0x86) => Some(old(4)),
        (_, 0x87) => Some(old(5)),
        (Some(_), 0x81 | 0x82 | 0x90) => None,
        _ => Some(old(3)),
    }
}

/// Makes a PUBACK, PUBREC, PUBREL or PUBCOMP; `kind` is the packet's number.
pub(crate) fn published(
    terms: AnswerTerms,
    kind: u8,
    id: u16,
    (reason, text): (MqttReason, Option<&str>),
) -> Vec<u8> {
    let first = kind << 4 | if kind == 6 { 2 } else { 0 };
    let mut body = id.to_be_bytes().to_vec();
    if terms.version == MqttVersion::V5 && reason != MqttReason::Success {
        body.push(reason as u8);
        if text.is_some() && terms.wants_reasons {
            return packet_with_reason(first, (&body, &[]), &[], (text, terms.largest));
        }
    }
    packet(first, &body)
}

/// Makes a SUBACK: for each filter the granted QoS, or the reason of the refusal.
pub(crate) fn subscribed(terms: AnswerTerms, id: u16, codes: &[u8], reason: Option<&str>) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    match terms.version {
        MqttVersion::V5 => {
            let reason = reason.filter(|_| terms.wants_reasons);
            packet_with_reason(0x90, (&body, codes), &[], (reason, terms.largest))
        }
        MqttVersion::V311 => {
            body.extend(codes.iter().map(|code| (*code).min(0x80)));
            packet(0x90, &body)
        }
    }
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

/// Makes the broker's DISCONNECT. Returns `None` for MQTT 3.1.1, which has no such packet, and if the client
/// accepts no packet so large.
pub(crate) fn disconnect(terms: AnswerTerms, fault: &MqttFault) -> Option<Vec<u8>> {
    let whole = packet_with_reason(0xE0, (&[fault.code], &[]), &[], (Some(&fault.text), terms.largest));
    (terms.version == MqttVersion::V5 && whole.len() <= terms.largest).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt_protocol_core::mqtt::packet::{v3_1_1, v5_0};

    /// Returns the body behind the two bytes in front of a short packet.
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
        let (v5, v311) = (AnswerTerms::new(MqttVersion::V5), AnswerTerms::new(MqttVersion::V311));
        let bytes = connect_refused(Some(v5), &fault).expect("it is told");
        assert_eq!(v5_0::Connack::parse(body(&bytes)).expect("a packet").0.reason_code() as u8, 0x87);
        let bytes = connect_refused(Some(v311), &fault).expect("it is told");
        assert_eq!(v3_1_1::Connack::parse(body(&bytes)).expect("a packet").0.return_code() as u8, 5);

        for (reason, text) in [(MqttReason::Success, None), (MqttReason::TooMuch, Some("no"))] {
            let bytes = published(v5, 4, 7, (reason, text));
            let (packet, _) = v5_0::Puback::parse(body(&bytes)).expect("a packet");
            assert_eq!(packet.packet_id(), 7);
            assert_eq!(packet.reason_code().map_or(0, |code| code as u8), reason as u8);
        }
        let bytes = published(v311, 6, 7, (MqttReason::Success, None));
        assert_eq!(
            (bytes[0], v3_1_1::Pubrel::parse(body(&bytes)).expect("a packet").0.packet_id()),
            (0x62, 7)
        );

        let bytes = subscribed(v5, 8, &[1, 0x87], Some("no"));
        let (packet, _) = v5_0::Suback::parse(body(&bytes)).expect("a packet");
        assert_eq!(packet.reason_codes().iter().map(|code| *code as u8).collect::<Vec<_>>(), [1, 0x87]);
        let bytes = subscribed(v311, 8, &[1, 0x87], None);
        let (packet, _) = v3_1_1::Suback::parse(body(&bytes)).expect("a packet");
        assert_eq!(packet.return_codes().iter().map(|code| *code as u8).collect::<Vec<_>>(), [1, 0x80]);

        let bytes = unsubscribed(MqttVersion::V5, 9, &[MqttReason::NoSubscription]);
        assert_eq!(v5_0::Unsuback::parse(body(&bytes)).expect("a packet").0.packet_id(), 9);
        let bytes = disconnect(v5, &fault).expect("5 has it");
        let reason = v5_0::Disconnect::parse(body(&bytes)).expect("a packet").0.reason_code();
        assert_eq!(reason.map(|code| code as u8), Some(0x87));
    }

    #[test]
    fn a_reason_in_words_is_left_out_if_the_client_does_not_take_it() {
        let text = Some("because the topic is none");
        let refused = (MqttReason::BadTopic, text);
        let small = AnswerTerms { largest: 20, ..AnswerTerms::new(MqttVersion::V5) };
        let curt = AnswerTerms { wants_reasons: false, ..AnswerTerms::new(MqttVersion::V5) };
        assert_eq!(published(small, 4, 7, refused), [0x40, 4, 0, 7, 0x90, 0]);
        assert_eq!(published(curt, 4, 7, refused), [0x40, 3, 0, 7, 0x90]);
        for terms in [small, curt] {
            assert_eq!(subscribed(terms, 7, &[0x8F], text), [0x90, 4, 0, 7, 0, 0x8F]);
        }
        let fault = MqttFault::new(0x82, "a reason that is too long for it");
        assert_eq!(disconnect(small, &fault).expect("it fits"), [0xE0, 2, 0x82, 0]);
        assert_eq!(connect_refused(Some(small), &fault).expect("it fits"), [0x20, 3, 0, 0x82, 0]);
        // MQTT 5.0, section 3.1.2.11.7: these two packets have a reason nevertheless
        assert!(disconnect(curt, &fault).expect("it fits").len() > 20);
        let tiny = AnswerTerms { largest: 3, ..small };
        assert_eq!((disconnect(tiny, &fault), connect_refused(Some(tiny), &fault)), (None, None));
    }

    #[test]
    fn a_connect_of_3_1_1_that_breaks_the_protocol_is_not_answered() {
        let terms = AnswerTerms::new(MqttVersion::V311);
        assert_eq!(connect_refused(Some(terms), &MqttFault::malformed("a reserved flag")), None);
        let full = MqttFault::new(0x97, "there are as many sessions as may be");
        assert_eq!(connect_refused(Some(terms), &full), Some(vec![0x20, 2, 0, 3]));
    }
}
