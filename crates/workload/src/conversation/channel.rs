//! Conversations over the event channel: each end publishes on its own topic and subscribes to the other's.

use super::{Conversation, ConversationCarrier, ConversationEnd, ConversationScene, NextMessage};
use crate::Error;
use crate::retry::retry;
use std::io;
use std::time::Duration;
use unisono_events_client::{
    Advertisement, BrokerAddress, Client, EventDraft, NoticeText, Reception, SubscriptionSpec, TopicHandle,
    WhenFull,
};
use unisono_linux::clock::{self, Instant};

/// An end announces itself and then listens for this time, repeatedly.
const HELLO_INTERVAL: Duration = Duration::from_millis(20);
/// The time between two announcements of ends that have met, until they have a direct link.
const HELLO_PAUSE: Duration = Duration::from_millis(1);
/// The key of an announcement; announcements are no messages.
const HELLO: &str = "hello";
/// Bytes that may wait at the broker for one end: as many as the kernel lets wait at a TCP connection.
const QUEUE: usize = 4 << 20;

struct ChannelConversation {
    client: Client,
    topic: TopicHandle,
    /// The other end's first message, if it came before this end knew of their links.
    early: Option<Vec<u8>>,
}

/// Opens conversation `number` through the broker at `address`.
pub(super) fn channel(
    scene: &ConversationScene,
    address: &BrokerAddress,
    end: ConversationEnd,
    number: u16,
) -> Result<Box<dyn Conversation>, Error> {
    let failed = |error: unisono_events_client::Error| Error::Exchange(error.to_string());
    let until = clock::now() + scene.timeout.into();
    let mut client = retry(scene.timeout, || Client::at(address)).map_err(failed)?;
    client.set_wait(scene.wait);
    let (own, other) = match end {
        ConversationEnd::Server => ("server", "client"),
        ConversationEnd::Client => ("client", "server"),
    };
    let topic = |of: &str| format!("service/{number}/{of}");
    let listening = SubscriptionSpec {
        full: WhenFull::BlockSupplier,
        queue_bytes: QUEUE.max(4 * scene.message_bytes),
        best_effort: scene.carrier == ConversationCarrier::ChannelUdp,
        ..SubscriptionSpec::new(&topic(other))
    };
    let outlet = client.advertise(&Advertisement::new(&topic(own))).map_err(failed)?;
    client.subscribe(&listening).map_err(failed)?;
    // an end that says hello has subscribed before, so it gets all events published after its hello
    loop {
        let hello = EventDraft::new(&[]).keyed(HELLO);
        client.publish(outlet, &hello).map_err(failed)?;
        match client.receive(Some(HELLO_INTERVAL)).map_err(failed)? {
            Some(Reception::Event(_)) => {
                client.publish(outlet, &hello).map_err(failed)?;
                // one link in each direction; the conversations are opened one after the other
                let links = 2 * (u64::from(number) + 1);
                let early = match scene.carrier {
                    ConversationCarrier::ChannelLink => until_linked(&mut client, outlet, links, until)?,
                    _ => None,
                };
                return Ok(Box::new(ChannelConversation { client, topic: outlet, early }));
            }
            _ if clock::now() < until => {}
            _ => return Err(Error::Exchange(format!("nobody at the other end of {}", topic(other)))),
        }
    }
}

/// Says hello until the broker counts `links` direct links; a conversation that went through the broker would
/// be measured as another one. Returns the other end's first message, if it comes meanwhile: that end has
/// found the links before.
fn until_linked(
    client: &mut Client,
    outlet: TopicHandle,
    links: u64,
    until: Instant,
) -> Result<Option<Vec<u8>>, Error> {
    let failed = |error: unisono_events_client::Error| Error::Exchange(error.to_string());
    while client.statistics().map_err(failed)?.direct < links {
        if clock::now() >= until {
            return Err(Error::Exchange(
                "the broker made no direct link between the two ends; its log says why".to_owned(),
            ));
        }
        client.publish(outlet, &EventDraft::new(&[]).keyed(HELLO)).map_err(failed)?;
        if let Some(Reception::Event(event)) = client.receive(Some(HELLO_INTERVAL)).map_err(failed)?
            && event.key.as_deref() != Some(HELLO)
        {
            return Ok(Some(event.payload.bytes().into_owned()));
        }
        // the other end says hello as often, and each of them is received at once
        std::thread::sleep(HELLO_PAUSE);
    }
    Ok(None)
}

impl Conversation for ChannelConversation {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.send_by(message, Instant::NEVER)
    }

    fn send_by(&mut self, message: &[u8], deadline: Instant) -> io::Result<()> {
        self.client.publish(self.topic, &EventDraft::new(message).due_at(deadline)).map_err(io::Error::other)
    }

    fn receive(&mut self, message: &mut Vec<u8>, until: Instant) -> io::Result<NextMessage> {
        if let Some(early) = self.early.take() {
            *message = early;
            return Ok(NextMessage::Message);
        }
        loop {
            let left = until - clock::now();
            match self.client.receive(Some(left.into())).map_err(io::Error::other)? {
                Some(Reception::Event(event)) if event.key.as_deref() == Some(HELLO) => {}
                Some(Reception::Event(event)) => {
                    message.clear();
                    message.extend_from_slice(&event.payload.bytes());
                    return Ok(NextMessage::Message);
                }
                // the other end has left
                Some(Reception::Notice { notice: NoticeText::Gone { .. }, .. }) => {
                    return Ok(NextMessage::Gone);
                }
                Some(_) => {}
                None => return Ok(NextMessage::Nothing),
            }
        }
    }
}
