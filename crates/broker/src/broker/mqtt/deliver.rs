//! Messages on their way to MQTT clients.

use super::super::Broker;
use super::MqttSessionId;
use super::session::{InFlightStep, MqttSubscription, SentIdentifiers, SentMessage};
use crate::body::EventBody;
use crate::log::SessionLine;
use crate::mqtt::{MqttQos, MqttReason, published};
use crate::task::{ClientId, Task};
use std::sync::Arc;
use unisono_eventchannel::{ConsumerId, Delivery};
use unisono_linux::clock::Instant;

/// Maximum number of messages resent to a session in one call. Their heads take memory until they are sent,
/// up to 64 KiB each.
const MAX_SENT_AGAIN: usize = 64;

impl Broker {
    /// Makes a PUBLISH from a delivery, or drops the delivery if the client cannot or may not have it.
    pub(in crate::broker) fn mqtt_deliver(
        &mut self,
        now: Instant,
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
            let head = session.packet(now, &message, number);
            let body = message.event.payload.clone();
            let bytes = head.len() + body.as_payload().length();
            if bytes > session.terms.largest.min(self.limits.largest_frame()) {
                return None;
            }
            if let Some(number) = number {
                let acknowledgement = acknowledgement.map(|expected| (consumer, expected));
                session.keep(number, acknowledgement, InFlightStep::Sent(message));
            }
            self.tasks.push_back(Task::Answer { client, head, body: Some(body) });
            number
        });
        self.mqtt.note_delivery(id, (consumer, delivered.event.payload.position), sent);
        if self.channel.waiting(consumer) == 0 {
            self.mqtt.note_emptied(id, consumer);
        }
        match sent {
            Some(_) if self.mqtt.sessions.get(&id).is_some_and(|session| session.is_full()) => {
                self.mqtt_place(id);
            }
            Some(_) => {}
            None => self.mqtt_confirm(acknowledgement.map(|expected| (consumer, expected))),
        }
    }

    /// Returns the message for the client, or `None` if the delivery is dropped.
    fn mqtt_message(
        &self,
        now: Instant,
        id: MqttSessionId,
        delivered: &unisono_eventchannel::DeliveredEvent<EventBody>,
    ) -> Option<SentMessage> {
        let session = self.mqtt.sessions.get(&id)?;
        let event = &delivered.event;
        let topic = Arc::clone(&self.channel.topic_spec(event.topic)?.name);
        // in a group, or after a subscription was replaced, the number may belong to another subscription
        let known =
            session.filters.get(&delivered.subscription).and_then(|filter| session.subscriptions.get(filter));
        let by_name =
            || session.subscriptions.values().find(|subscription| subscription.pattern.matches(&topic));
        let mut subscription = known.or_else(by_name)?;
        let is_own = event.payload.origin.publisher.as_deref() == Some(&*session.key);
        let is_barred = |other: &MqttSubscription| is_own && other.request.no_local;
        if is_barred(subscription) {
            // another subscription may want the client's own messages
            let qos = subscription.request.qos;
            let mut others = session.matching(&topic, qos).filter(|_| !delivered.retained);
            subscription = others.find(|other| !is_barred(other))?;
        }
        // a retained message waits in an inbox without a deadline
        if event.deadline < now {
            return None;
        }
        let identifiers = match subscription.shared {
            Some(_) => SentIdentifiers::Of(subscription.identifier),
            None if delivered.retained => SentIdentifiers::Of(subscription.identifier),
            None => SentIdentifiers::Matching { subscribed: subscription.request.qos, is_own },
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

    /// Ends the exchange of a message that the client has confirmed (QoS 1), completed (QoS 2) or refused.
    pub(super) fn mqtt_done(&mut self, now: Instant, id: MqttSessionId, number: u16) {
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        let was_full = session.is_full();
        let Some(flight) = session.finish(number) else { return };
        self.mqtt.note(id, &SessionLine::Done { id: number });
        self.mqtt_confirm(flight.acknowledgement);
        self.mqtt_send_again(now, id);
        if was_full {
            self.mqtt_place(id);
        }
    }

    /// Handles a PUBREC: records that the client has a message of QoS 2, or ends the exchange if the client
    /// refuses the message.
    pub(super) fn mqtt_arrived(
        &mut self,
        now: Instant,
        (client, id): (ClientId, MqttSessionId),
        number: u16,
        refused: bool,
    ) {
        if refused {
            return self.mqtt_done(now, id, number);
        }
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        let reason = match session.in_flight.get_mut(&number) {
            Some(flight) => {
                flight.step = InFlightStep::Released;
                MqttReason::Success
            }
            None => MqttReason::UnknownId,
        };
        let terms = session.terms;
        if reason == MqttReason::Success {
            self.mqtt.note(id, &SessionLine::Received { id: number });
        }
        self.mqtt_answer(client, published(terms, 6, number, (reason, None)));
    }

    /// Resends to the next session with messages to resend; returns whether there was one.
    pub(in crate::broker) fn mqtt_resend(&mut self, now: Instant) -> bool {
        let session = self.mqtt.resending.pop_first();
        session.inspect(|session| self.mqtt_send_again(now, *session)).is_some()
    }

    /// Resends unconfirmed messages, in the order of sending, and no more at once than the client takes. A
    /// call sends at most [`MAX_SENT_AGAIN`]; [`next`](Self::next) sends the rest.
    pub(super) fn mqtt_send_again(&mut self, now: Instant, id: MqttSessionId) {
        let most = self.limits.largest_frame();
        let mut left = MAX_SENT_AGAIN;
        while let Some(session) = self.mqtt.sessions.get_mut(&id)
            && let Some(client) = session.client
            && !session.stalled
            && let Some((number, step)) = session.next_unsent()
        {
            left -= 1;
            let (head, body) = match step {
                InFlightStep::Sent(message) => {
                    let head = session.packet_again(now, &message, number);
                    let body = message.event.payload.clone();
                    // the client's largest packet may be smaller than on its former connection
                    if head.len() + body.as_payload().length() > session.terms.largest.min(most) {
                        if let Some(flight) = session.finish(number) {
                            self.mqtt.note(id, &SessionLine::Done { id: number });
                            self.mqtt_confirm(flight.acknowledgement);
                        }
                        continue;
                    }
                    (head, Some(body))
                }
                InFlightStep::Released => {
                    (published(session.terms, 6, number, (MqttReason::Success, None)), None)
                }
            };
            self.tasks.push_back(Task::Answer { client, head, body });
            if left == 0 {
                self.mqtt.resending.insert(id);
                break;
            }
        }
    }

    fn mqtt_confirm(&mut self, acknowledgement: Option<(ConsumerId, u64)>) {
        if let Some((consumer, number)) = acknowledgement {
            // a message confirmed too late belongs to another member of the group
            let _ = self.channel.acknowledge(consumer, number);
        }
    }
}
