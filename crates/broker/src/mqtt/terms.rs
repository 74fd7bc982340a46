//! Words of MQTT that packets, messages and answers share: versions, how often a message may arrive, and what
//! is wrong with bytes.

use mqtt_protocol_core::mqtt::result_code::MqttError;

/// The version that a client speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MqttVersion {
    V311,
    V5,
}

/// How often a message may arrive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[expect(clippy::enum_variant_names, reason = "the standard's names")]
pub(crate) enum MqttQos {
    AtMostOnce = 0,
    AtLeastOnce = 1,
    /// Also what events of suppliers that know no MQTT count as: the subscription alone decides.
    #[default]
    ExactlyOnce = 2,
}

impl MqttQos {
    /// That in the two lowest bits.
    pub(super) fn from_bits(bits: u8) -> Result<Self, MqttFault> {
        match bits & 3 {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(MqttFault::malformed("a QoS of 3")),
        }
    }
}

/// Why bytes are no packet, or one that may not come: MQTT's reason code, and words for it.
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
