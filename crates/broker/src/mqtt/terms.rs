//! Shared types of packets, messages and answers: versions, qualities of service, protocol errors.

use mqtt_protocol_core::mqtt::result_code::MqttError;

/// The version that a client speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MqttVersion {
    V311,
    V5,
}

/// Quality of service: how often a message may arrive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[expect(clippy::enum_variant_names, reason = "the standard's names")]
pub(crate) enum MqttQos {
    AtMostOnce = 0,
    AtLeastOnce = 1,
    /// Also the QoS of events from suppliers outside MQTT, so that the subscription alone decides.
    #[default]
    ExactlyOnce = 2,
}

impl MqttQos {
    /// Reads the QoS in the two lowest bits.
    pub(crate) fn from_bits(bits: u8) -> Result<Self, MqttFault> {
        match bits & 3 {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(MqttFault::malformed("a QoS of 3")),
        }
    }
}

/// A protocol error: MQTT's reason code, and a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MqttFault {
    pub(crate) code: u8,
    pub(crate) text: String,
}

impl MqttFault {
    pub(crate) fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn malformed(text: &str) -> Self {
        Self::new(0x81, text)
    }
}

impl From<MqttError> for MqttFault {
    fn from(error: MqttError) -> Self {
        let code = u8::try_from(error as u16).unwrap_or(0x81);
        Self::new(code.max(0x80), format!("no packet of MQTT: {error}"))
    }
}
