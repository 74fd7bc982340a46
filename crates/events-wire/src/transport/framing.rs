//! Where a frame of a stream ends.

use super::TransportError;

/// The bytes of the length that precedes a frame.
pub(super) const LENGTH: usize = 4;

/// The rule for finding the end of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// Each frame follows its length in four bytes, which do not count themselves.
    #[default]
    Length,
    /// Each frame is an MQTT packet, which contains its own length.
    Mqtt,
}

impl Framing {
    /// Returns the begin and end of the front frame, once its length has arrived.
    pub(super) fn span(self, bytes: &[u8]) -> Result<Option<(usize, usize)>, TransportError> {
        match self {
            Self::Length => {
                let length = bytes.first_chunk::<LENGTH>();
                Ok(length.map(|length| (LENGTH, LENGTH + u32::from_le_bytes(*length) as usize)))
            }
            Self::Mqtt => match mqtt_packet_length(bytes) {
                Ok(length) => Ok(length.map(|length| (0, length))),
                Err(what) => Err(TransportError::Broken(what.to_owned())),
            },
        }
    }
}

/// Returns the length of the MQTT packet at the start of `bytes`, or `None` if its header is incomplete.
///
/// # Errors
/// The length is not valid in MQTT.
pub fn mqtt_packet_length(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let mut length = 0;
    for (place, byte) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(Some(2 + place + length));
        }
    }
    if bytes.len() >= 5 { Err("a length of more than four bytes") } else { Ok(None) }
}
