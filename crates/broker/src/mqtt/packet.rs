//! What clients send, of both versions in one form.

use super::message::IncomingMessage;
use super::terms::{MqttFault, MqttQos, MqttVersion};
use mqtt_protocol_core::mqtt::packet::{Properties, Property, RetainHandling, SubEntry, v3_1_1, v5_0};
use mqtt_protocol_core::mqtt::result_code::DisconnectReasonCode;

/// What is published when a connection ends without a DISCONNECT.
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
    pub(crate) version: MqttVersion,
    /// Empty: the broker chooses one.
    pub(crate) client: String,
    /// Whether a session that is there ends first.
    pub(crate) clean: bool,
    /// Seconds; 0: none.
    pub(crate) keep_alive: u16,
    /// Seconds that the session outlives the connection; `u32::MAX`: for ever.
    pub(crate) expiry: u32,
    /// Messages of QoS 1 and 2 that may be unacknowledged.
    pub(crate) receive_maximum: u16,
    /// Bytes of the largest packet that the client takes.
    pub(crate) largest: usize,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) will: Option<LastWill>,
}

/// Which retained messages a subscription is sent.
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
    /// PUBREC; one that refuses ends the message.
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
    /// Whether the will is published all the same; a new expiry of the session, in seconds.
    Disconnect {
        with_will: bool,
        expiry: Option<u32>,
    },
}

/// Splits a packet into its first byte and what follows the length.
fn split(bytes: &[u8]) -> Result<(u8, &[u8]), MqttFault> {
    let first = *bytes.first().ok_or_else(|| MqttFault::malformed("an empty packet"))?;
    let length = bytes.iter().skip(1).take(4).take_while(|byte| **byte & 0x80 != 0).count() + 2;
    let body = bytes.get(length..).ok_or_else(|| MqttFault::malformed("a packet without a length"))?;
    Ok((first, body))
}

/// The packet in these bytes; `version` is that of the client's CONNECT, `None` before it.
///
/// # Errors
/// The bytes are no packet, or none that a client sends.
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
        return connect(body);
    };
    let v5 = version == MqttVersion::V5;
    let nonzero = |id: u16| match id {
        0 => Err(MqttFault::malformed("the packet identifier 0")),
        id => Ok(id),
    };
    Ok(match kind {
        1 => return Err(MqttFault::new(0x82, "a second CONNECT")),
        3 => MqttPacket::Publish(IncomingMessage::read(flags, body, version)?),
        4 => MqttPacket::Acknowledged(match v5 {
            true => v5_0::Puback::parse(body)?.0.packet_id(),
            false => v3_1_1::Puback::parse(body)?.0.packet_id(),
        }),
        5 if v5 => {
            let received = v5_0::Pubrec::parse(body)?.0;
            let refused = received.reason_code().is_some_and(|code| code as u8 >= 0x80);
            MqttPacket::Received { id: received.packet_id(), refused }
        }
        5 => MqttPacket::Received { id: v3_1_1::Pubrec::parse(body)?.0.packet_id(), refused: false },
        6 => MqttPacket::Release(match v5 {
            true => v5_0::Pubrel::parse(body)?.0.packet_id(),
            false => v3_1_1::Pubrel::parse(body)?.0.packet_id(),
        }),
        7 => MqttPacket::Complete(match v5 {
            true => v5_0::Pubcomp::parse(body)?.0.packet_id(),
            false => v3_1_1::Pubcomp::parse(body)?.0.packet_id(),
        }),
        8 if v5 => {
            let subscribe = v5_0::Subscribe::parse(body)?.0;
            let identifier = subscribe.props().iter().find_map(|property| match property {
                Property::SubscriptionIdentifier(identifier) => Some(identifier.val()),
                _ => None,
            });
            let filters = subscribe.entries().iter().map(FilterRequest::from).collect();
            MqttPacket::Subscribe { id: nonzero(subscribe.packet_id())?, identifier, filters }
        }
        8 => {
            let subscribe = v3_1_1::Subscribe::parse(body)?.0;
            let filters = subscribe.entries().iter().map(FilterRequest::from).collect();
            MqttPacket::Subscribe { id: nonzero(subscribe.packet_id())?, identifier: None, filters }
        }
        10 => {
            let (id, filters): (u16, Vec<String>) = match v5 {
                true => {
                    let packet = v5_0::Unsubscribe::parse(body)?.0;
                    let filters = packet.entries().iter().map(|filter| filter.as_str().to_owned());
                    (packet.packet_id(), filters.collect())
                }
                false => {
                    let packet = v3_1_1::Unsubscribe::parse(body)?.0;
                    let filters = packet.entries().iter().map(|filter| filter.as_str().to_owned());
                    (packet.packet_id(), filters.collect())
                }
            };
            MqttPacket::Unsubscribe { id: nonzero(id)?, filters }
        }
        12 => MqttPacket::Ping,
        14 if v5 => {
            let packet = v5_0::Disconnect::parse(body)?.0;
            let with_will =
                packet.reason_code().is_some_and(|code| code != DisconnectReasonCode::NormalDisconnection);
            let expiry = packet.props().as_ref().and_then(|props| {
                props.iter().find_map(|property| match property {
                    Property::SessionExpiryInterval(expiry) => Some(expiry.val()),
                    _ => None,
                })
            });
            MqttPacket::Disconnect { with_will, expiry }
        }
        14 => MqttPacket::Disconnect { with_will: false, expiry: None },
        15 if v5 => return Err(MqttFault::new(0x8C, "enhanced authentication, which this broker has not")),
        _ => return Err(MqttFault::malformed("a packet that no client sends")),
    })
}

impl From<&SubEntry> for FilterRequest {
    fn from(entry: &SubEntry) -> Self {
        let options = entry.sub_opts();
        Self {
            filter: entry.topic_filter().to_owned(),
            qos: options.qos().into(),
            no_local: options.nl(),
            retain_as_published: options.rap(),
            past: match options.rh() {
                RetainHandling::SendRetained => PastPolicy::Send,
                RetainHandling::SendRetainedIfNotExists => PastPolicy::SendIfNew,
                RetainHandling::DoNotSendRetained => PastPolicy::Skip,
            },
        }
    }
}

fn connect(body: &[u8]) -> Result<MqttPacket<'static>, MqttFault> {
    // the level follows the protocol's name, `MQTT` after its length
    let request = match body.get(6) {
        Some(4) => of_v311(&v3_1_1::Connect::parse(body)?.0),
        Some(5) => of_v5(&v5_0::Connect::parse(body)?.0)?,
        Some(level) if body.starts_with(b"\0\x04MQTT") => {
            return Err(MqttFault::new(
                0x84,
                format!("MQTT of level {level}; this broker speaks 4 (3.1.1) and 5"),
            ));
        }
        _ => return Err(MqttFault::new(0x84, "no CONNECT of MQTT 3.1.1 or 5")),
    };
    Ok(MqttPacket::Connect(Box::new(request)))
}

fn of_v311(packet: &v3_1_1::Connect) -> ConnectRequest {
    let will = packet.will_topic().map(|topic| LastWill {
        topic: topic.to_owned(),
        payload: packet.will_payload().unwrap_or_default().to_vec(),
        qos: packet.will_qos().into(),
        retain: packet.will_retain(),
        properties: Properties::new(),
        delay: 0,
    });
    ConnectRequest {
        version: MqttVersion::V311,
        client: packet.client_id().to_owned(),
        clean: packet.clean_session(),
        keep_alive: packet.keep_alive(),
        expiry: if packet.clean_session() { 0 } else { u32::MAX },
        receive_maximum: u16::MAX,
        largest: usize::MAX,
        user: packet.user_name().map(str::to_owned),
        password: packet.password().map(<[u8]>::to_vec),
        will,
    }
}

fn of_v5(packet: &v5_0::Connect) -> Result<ConnectRequest, MqttFault> {
    let (mut expiry, mut receive_maximum, mut largest) = (0, u16::MAX, usize::MAX);
    for property in packet.props() {
        match property {
            Property::SessionExpiryInterval(interval) => expiry = interval.val(),
            Property::ReceiveMaximum(maximum) => receive_maximum = maximum.val(),
            Property::MaximumPacketSize(maximum) => largest = maximum.val() as usize,
            Property::AuthenticationMethod(_) => {
                return Err(MqttFault::new(0x8C, "an authentication method, which this broker has not"));
            }
            _ => {}
        }
    }
    let will = packet.will_topic().map(|topic| {
        let delay = packet.will_props().iter().find_map(|property| match property {
            Property::WillDelayInterval(delay) => Some(delay.val()),
            _ => None,
        });
        LastWill {
            topic: topic.to_owned(),
            payload: packet.will_payload().unwrap_or_default().to_vec(),
            qos: packet.will_qos().into(),
            retain: packet.will_retain(),
            properties: packet.will_props().clone(),
            delay: delay.unwrap_or(0),
        }
    });
    Ok(ConnectRequest {
        version: MqttVersion::V5,
        client: packet.client_id().to_owned(),
        clean: packet.clean_start(),
        keep_alive: packet.keep_alive(),
        expiry,
        receive_maximum: receive_maximum.max(1),
        largest,
        user: packet.user_name().map(str::to_owned),
        password: packet.password().map(<[u8]>::to_vec),
        will,
    })
}
