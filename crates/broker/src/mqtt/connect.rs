//! The CONNECT packet, of both versions.

use super::fields::{PacketFields, check_topic};
use super::reply::AnswerTerms;
use super::terms::{MqttFault, MqttQos, MqttVersion};
use mqtt_protocol_core::mqtt::packet::{Properties, Property, PropertyId};

/// The message to publish when a connection ends without a DISCONNECT, or with a DISCONNECT that asks for the
/// will.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LastWill {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: MqttQos,
    pub(crate) retain: bool,
    pub(crate) properties: Properties,
    pub(crate) delay: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConnectRequest {
    /// The limits of answers to the client.
    pub(crate) terms: AnswerTerms,
    /// The client identifier; empty: the broker chooses one.
    pub(crate) client: String,
    /// Whether an existing session ends first.
    pub(crate) clean: bool,
    /// Keep-alive in seconds; 0: none.
    pub(crate) keep_alive: u16,
    /// Session expiry in seconds after the connection; `u32::MAX`: never.
    pub(crate) expiry: u32,
    /// Maximum number of unacknowledged messages of QoS 1 and 2.
    pub(crate) receive_maximum: u16,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) will: Option<LastWill>,
}

/// MQTT 5.0, table 2-4: the properties of CONNECT and of a will.
const PROPERTIES: [PropertyId; 9] = [
    PropertyId::SessionExpiryInterval,
    PropertyId::AuthenticationMethod,
    PropertyId::AuthenticationData,
    PropertyId::RequestProblemInformation,
    PropertyId::RequestResponseInformation,
    PropertyId::ReceiveMaximum,
    PropertyId::TopicAliasMaximum,
    PropertyId::UserProperty,
    PropertyId::MaximumPacketSize,
];
const WILL_PROPERTIES: [PropertyId; 7] = [
    PropertyId::PayloadFormatIndicator,
    PropertyId::MessageExpiryInterval,
    PropertyId::ContentType,
    PropertyId::ResponseTopic,
    PropertyId::CorrelationData,
    PropertyId::WillDelayInterval,
    PropertyId::UserProperty,
];

/// Parses the part of a CONNECT behind its length.
pub(super) fn connect(body: &[u8]) -> Result<ConnectRequest, MqttFault> {
    let Some(fields) = body.strip_prefix(b"\0\x04MQTT") else {
        return Err(MqttFault::new(0x84, "no CONNECT of MQTT 3.1.1 or 5"));
    };
    let mut fields = PacketFields(fields);
    let version = match fields.byte()? {
        4 => MqttVersion::V311,
        5 => MqttVersion::V5,
        level => {
            let text = format!("MQTT of level {level}; this broker speaks 4 (3.1.1) and 5");
            return Err(MqttFault::new(0x84, text));
        }
    };
    let v5 = version == MqttVersion::V5;
    let flags = fields.byte()?;
    let is_set = |bit: u8| flags >> bit & 1 != 0;
    let (clean, has_will, retain, has_password, has_user) =
        (is_set(1), is_set(2), is_set(5), is_set(6), is_set(7));
    let qos = MqttQos::from_bits(flags >> 3)?;
    if is_set(0) {
        return Err(MqttFault::malformed("the reserved flag of CONNECT is set"));
    }
    if !has_will && (qos != MqttQos::AtMostOnce || retain) {
        return Err(MqttFault::malformed("flags of a will, and no will"));
    }
    if has_password && !has_user && !v5 {
        return Err(MqttFault::malformed("a password without a user's name, which only MQTT 5 has"));
    }
    let keep_alive = fields.number()?;
    let mut request = ConnectRequest {
        terms: AnswerTerms::new(version),
        client: String::new(),
        clean,
        keep_alive,
        expiry: if v5 || clean { 0 } else { u32::MAX },
        receive_maximum: u16::MAX,
        user: None,
        password: None,
        will: None,
    };
    if v5 {
        request.take(&fields.properties(&PROPERTIES)?)?;
    }
    request.client = fields.text()?.to_owned();
    if has_will {
        request.will = Some(will(&mut fields, version, (qos, retain))?);
    }
    if has_user {
        request.user = Some(fields.text()?.to_owned());
    }
    if has_password {
        request.password = Some(fields.binary()?.to_vec());
    }
    fields.end()?;
    Ok(request)
}

impl ConnectRequest {
    fn take(&mut self, properties: &Properties) -> Result<(), MqttFault> {
        let (mut has_method, mut has_data) = (false, false);
        for property in properties {
            match property {
                Property::SessionExpiryInterval(interval) => self.expiry = interval.val(),
                Property::ReceiveMaximum(maximum) => self.receive_maximum = maximum.val(),
                Property::MaximumPacketSize(maximum) => self.terms.largest = maximum.val() as usize,
                Property::RequestProblemInformation(wanted) => self.terms.wants_reasons = wanted.val() != 0,
                Property::AuthenticationMethod(_) => has_method = true,
                Property::AuthenticationData(_) => has_data = true,
                _ => {}
            }
        }
        match (has_method, has_data) {
            (true, _) => Err(MqttFault::new(0x8C, "an authentication method, which this broker has not")),
            (false, true) => Err(MqttFault::new(0x82, "authentication data without a method")),
            (false, false) => Ok(()),
        }
    }
}

fn will(
    fields: &mut PacketFields<'_>,
    version: MqttVersion,
    (qos, retain): (MqttQos, bool),
) -> Result<LastWill, MqttFault> {
    let properties = match version {
        MqttVersion::V5 => fields.properties(&WILL_PROPERTIES)?,
        MqttVersion::V311 => Properties::new(),
    };
    let topic = fields.text()?;
    check_topic(topic)?;
    let delay = properties.iter().find_map(|property| match property {
        Property::WillDelayInterval(delay) => Some(delay.val()),
        _ => None,
    });
    let payload = fields.binary()?.to_vec();
    Ok(LastWill { topic: topic.to_owned(), payload, qos, retain, properties, delay: delay.unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses a CONNECT of the client `c` that has these fields, from the protocol level on.
    fn request(level: u8, flags: u8, properties: &[u8], rest: &[u8]) -> Result<ConnectRequest, MqttFault> {
        let mut body = [b"\0\x04MQTT", &[level, flags, 0, 60][..]].concat();
        if level == 5 {
            body.push(properties.len() as u8);
            body.extend(properties);
        }
        body.extend(b"\0\x01c");
        body.extend(rest);
        connect(&body)
    }

    #[test]
    fn flags_that_contradict_each_other_are_malformed() {
        for level in [4, 5] {
            let will: &[u8] = if level == 5 { b"\0\0\x01t\0\x01x" } else { b"\0\x01t\0\x01x" };
            assert!(request(level, 0x02, &[], &[]).is_ok());
            assert!(request(level, 0x2E, &[], will).is_ok());
            for (flags, rest) in [(0x03, &[][..]), (0x0A, &[]), (0x22, &[]), (0x1E, will), (0x02, b"more")] {
                let fault = request(level, flags, &[], rest).expect_err("it is malformed");
                assert_eq!(fault.code, 0x81, "level {level}, flags {flags:#x}");
            }
        }
    }

    #[test]
    fn only_mqtt_5_has_a_password_without_a_user() {
        let request_of_5 = request(5, 0x42, &[], b"\0\x03tok").expect("it is allowed");
        assert_eq!((request_of_5.user, request_of_5.password), (None, Some(b"tok".to_vec())));
        assert!(request(4, 0x42, &[], b"\0\x03tok").is_err());
    }

    #[test]
    fn a_will_has_a_topic_that_a_message_can_have() {
        for (topic, code) in [("t/#", 0x90), ("+", 0x90), ("", 0x82), ("t\0", 0x81)] {
            let rest = [&[0, 0, topic.len() as u8], topic.as_bytes(), b"\0\x01x"].concat();
            assert_eq!(request(5, 0x06, &[], &rest).expect_err("no topic").code, code, "`{topic}`");
        }
    }

    #[test]
    fn properties_of_connect_come_once_and_belong_to_it() {
        let request_of_5 = request(5, 0x02, &[0x17, 0, 0x21, 0, 3, 0x11, 0, 0, 0, 9], &[]).expect("they do");
        assert!(!request_of_5.terms.wants_reasons);
        assert_eq!((request_of_5.receive_maximum, request_of_5.expiry), (3, 9));
        let wrong: [(&[u8], u8); 5] = [
            (&[0x21, 0, 3, 0x21, 0, 3], 0x82),
            (&[0x23, 0, 1], 0x82),
            (&[0x16, 0, 1, b'x'], 0x82),
            (&[0x15, 0, 1, b'x'], 0x8C),
            (&[0x26, 0, 1, 0, 0, 1, b'x'], 0x81),
        ];
        for (properties, code) in wrong {
            assert_eq!(request(5, 0x02, properties, &[]).expect_err("wrong").code, code, "{properties:?}");
        }
    }

    proptest! {
        /// No bytes cause a panic, and a truncated CONNECT is refused.
        #[test]
        fn every_beginning_of_a_connect_is_malformed(
            client in "[a-z]{0,20}", user in proptest::option::of("[a-z]{0,9}"), level in 4..6_u8, cut in 0..40_usize,
        ) {
            let mut body = [b"\0\x04MQTT", &[level, if user.is_some() { 0x82 } else { 0x02 }, 0, 60][..]].concat();
            body.extend((level == 5).then_some(0));
            for text in std::iter::once(&client).chain(&user) {
                body.extend([0, text.len() as u8]);
                body.extend(text.as_bytes());
            }
            let whole = connect(&body).expect("a CONNECT");
            prop_assert_eq!((&whole.client, &whole.user), (&client, &user));
            if cut < body.len() {
                prop_assert!(connect(&body[..cut]).is_err());
            }
        }
    }
}
