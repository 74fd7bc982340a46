//! Messages on their way to MQTT clients.

use super::super::Broker;
use super::MqttSessionId;
use super::session::{InFlightStep, SentMessage};
use crate::body::EventBody;
use crate::mqtt::{MqttQos, MqttReason, published};
use crate::task::{ClientId, Task};
use std::sync::Arc;
use unisono_eventchannel::{ConsumerId, Delivery};
use unisono_linux::clock::Nanos;

impl Broker {
    /// Makes a PUBLISH of a delivery, or drops it because the client cannot or may not have it.
    pub(in crate::broker) fn mqtt_deliver(
        &mut self,
        now: Nanos,
        id: MqttSessionId,
        delivery: Delivery<EventBody>,
    ) {
        let Some(delivered) = delivery.event else { return };
        let (consumer, acknowledgement) = (delivery.consumer, delivered.acknowledgement);
        let sent = self.mqtt_message(now, id, &delivered).and_then(|message| {
            let session = self.mqtt.sessions.get_mut(&id)?;
            let client = session.client?;
            let number = match message.qos {
                MqttQos::AtMostOnce => None,
                _ => Some(session.free_id()?),
            };
            let head = message.packet(now, session.version, number);
            let body = message.event.payload.clone();
            let bytes = head.len() + body.as_payload().length();
            if bytes > session.largest.min(self.limits.largest_frame()) {
                self.mqtt_too_large += 1;
                return None;
            }
            if let Some(number) = number {
                session.keep(number, (consumer, acknowledgement), message);
            }
            self.tasks.push_back(Task::Answer { client, head, body: Some(body) });
            number
        });
        match sent {
            Some(_) if self.mqtt.sessions.get(&id).is_some_and(|session| session.is_full()) => {
                self.mqtt_place(id);
            }
            Some(_) => {}
            None => self.mqtt_confirm(consumer, acknowledgement),
        }
    }

    /// What the client is to get; `None`: nothing.
    fn mqtt_message(
        &self,
        now: Nanos,
        id: MqttSessionId,
        delivered: &unisono_eventchannel::DeliveredEvent<EventBody>,
    ) -> Option<SentMessage> {
        let session = self.mqtt.sessions.get(&id)?;
        let event = &delivered.event;
        let topic = Arc::clone(&self.channel.topic_spec(event.topic)?.name);
        // of a group, or of a subscription that has just been replaced, the number may be another one's
        let known =
            session.filters.get(&delivered.subscription).and_then(|filter| session.subscriptions.get(filter));
        let by_name =
            || session.subscriptions.values().find(|subscription| subscription.pattern.matches(&topic));
        let subscription = known.or_else(by_name)?;
        if subscription.request.no_local && session.supplier == Some(event.supplier) {
            return None;
        }
        // a retained message waits in an inbox without a deadline
        if event.deadline < now {
            return None;
        }
        let identifiers = match (subscription.identifier, subscription.shared) {
            (None, _) => Vec::new(),
            (Some(identifier), Some(_)) => vec![identifier],
            (Some(_), None) => session.identifiers(&topic, subscription.request.qos),
        };
        Some(SentMessage {
            topic,
            event: Arc::clone(event),
            qos: subscription.request.qos.min(event.payload.origin.qos),
            retain: delivered.retained
                || subscription.request.retain_as_published && event.payload.origin.retain,
            identifiers,
        })
    }

    /// The client has a message of QoS 1, or will not be sent one of QoS 2 again.
    pub(super) fn mqtt_done(&mut self, id: MqttSessionId, number: u16) {
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        let was_full = session.is_full();
        let Some(flight) = session.in_flight.remove(&number) else { return };
        self.mqtt_confirm(flight.consumer, flight.acknowledgement);
        if was_full {
            self.mqtt_place(id);
        }
    }

    /// The client has a message of QoS 2.
    pub(super) fn mqtt_arrived(&mut self, client: ClientId, id: MqttSessionId, number: u16, refused: bool) {
        if refused {
            return self.mqtt_done(id, number);
        }
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        let reason = match session.in_flight.get_mut(&number) {
            Some(flight) => {
                flight.step = InFlightStep::Released;
                MqttReason::Success
            }
            None => MqttReason::UnknownId,
        };
        let version = session.version;
        self.mqtt_answer(client, published(version, 6, number, (reason, None)));
    }

    fn mqtt_confirm(&mut self, consumer: ConsumerId, acknowledgement: Option<u64>) {
        if let Some(number) = acknowledgement {
            // one that came too late belongs to another member of the group
            let _ = self.channel.acknowledge(consumer, number);
        }
    }
}
