//! Recognizes servers of other protocols by the first bytes that they send.

/// Returns the kind of server that sends these first bytes, or `None` if they are of no known protocol. The
/// length of a frame in their place would mostly be larger than any frame.
#[must_use]
pub fn foreign_service(first: &[u8]) -> Option<&'static str> {
    match first {
        [b'H', b'T', b'T', b'P', ..] => Some("an HTTP server"),
        [b'S', b'S', b'H', b'-', ..] => Some("an SSH server"),
        // CONNACK: its length, and then the flag that a session is present
        [0x20, 2..=127, 0 | 1, ..] => Some("an MQTT broker"),
        // an alert or a handshake of TLS
        [0x15 | 0x16, 3, ..] => Some("a server of TLS"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_protocols_are_recognized_and_a_frame_of_a_broker_is_none() {
        for (first, service) in [
            (b"HTTP/1.1 400 Bad Request\r\n".as_slice(), Some("an HTTP server")),
            (b"SSH-2.0-OpenSSH_10.0\r\n", Some("an SSH server")),
            (b"\x20\x02\x00\x01", Some("an MQTT broker")),
            (b"\x20\x03\x00\x84\x00", Some("an MQTT broker")),
            (b"\x15\x03\x03\x00\x02\x02\x28", Some("a server of TLS")),
            (b"\x91\x00\x00\x00\x01{", None),
            (b"-ERR", None),
            (b"HT", None),
            (b"", None),
        ] {
            assert_eq!(foreign_service(first), service, "{first:?}");
        }
    }
}
