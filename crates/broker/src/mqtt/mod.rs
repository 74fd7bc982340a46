//! MQTT 5 and 3.1.1, as bytes: the packets to and from clients that know nothing of Unisono.
//!
//! ```text
//!   packet.rs    bytes -> MqttPacket        checked; each kind of packet once, whatever its version
//!   connect.rs   CONNECT
//!   fields.rs    numbers, texts, properties: the parts of packets
//!   reply.rs     answers -> bytes           CONNACK, SUBACK, PUBACK ..., DISCONNECT
//!   message.rs   PUBLISH <-> events         deadlines, fields, properties
//! ```
//! `broker/mqtt/` implements the meaning of packets: sessions, subscriptions, messages in flight.
//!
//! **Idea.** A topic's name is the channel's topic, a topic filter is the channel's pattern,
//! `$share/NAME/FILTER` is a group of consumers. The message expiry interval is a deadline; the user property
//! `deadline_us` is the same in microseconds. Other user properties are the event's fields, so that a
//! consumer's filter sees them.
//!
//! **Cost.** A PUBLISH is parsed in place and its payload is copied once. `mqtt-protocol-core` decodes
//! properties. Whole packets are parsed here, because its parsers accept input that MQTT asks a server to
//! refuse: reserved bits, contradictory flags of CONNECT, NUL in texts, bytes behind a packet's end.
//!
//! **Missing.** No enhanced authentication (AUTH), no topic aliases towards clients.
//!
//! Reference: MQTT 5.0 and MQTT 3.1.1 (OASIS).

mod connect;
mod fields;
mod message;
mod packet;
mod reply;
mod terms;

pub(crate) use connect::{ConnectRequest, LastWill};
pub(crate) use fields::check_topic;
pub(crate) use message::{
    DeadlineUnit, IncomingMessage, MessageOrigin, OutgoingMessage, publish_packet, with_duplicate_flag,
};
pub(crate) use packet::{
    FilterRequest, MqttPacket, PastPolicy, SHARE, packet, split_share, version_of_connect,
};
pub(crate) use reply::{
    AnswerTerms, Connected, MqttReason, connect_refused, connected, disconnect, ping_answer, published,
    subscribed, unsubscribed,
};
pub(crate) use terms::{MqttFault, MqttQos, MqttVersion};

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_events_wire::transport::mqtt_packet_length;

    #[test]
    fn lengths_are_those_of_the_standard() {
        // MQTT 5.0, table 1-1
        let ends = [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (2_097_151, 3), (268_435_455, 4)];
        for (length, bytes) in ends {
            let mut packet = vec![0x30];
            reply::push_length(&mut packet, length);
            assert_eq!(packet.len(), 1 + bytes);
            assert_eq!(mqtt_packet_length(&packet), Ok(Some(1 + bytes + length)));
            assert_eq!(mqtt_packet_length(&packet[..bytes]), Ok(None), "{length}: cut off");
        }
        assert!(mqtt_packet_length(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1]).is_err());
    }
}
