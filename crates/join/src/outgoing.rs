//! Passes events from the broker of this host to the network.
//!
//! Events that zenoh does not accept yet wait in the subscription's queue at the broker; the subscription's
//! policy decides which of them are dropped.

use crate::network::ClassNetwork;
use crate::sight::Sight;
use std::time::Duration;
use unisono_broker::join::JoinSender;
use unisono_events_client::{Client, Error, Reception, now};
use zenoh::Wait;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(sight: &Sight, class: usize, network: &ClassNetwork) {
    let mut sender = JoinSender::new(class);
    while !sight.stops() {
        let Some(mut client) = sight.connect() else { continue };
        sender.connected(client.broker_run());
        let spec = sight.settings.subscription(class).expect("the settings have it because it runs");
        match client.subscribe(&spec) {
            Ok(_) => sight.set_subscribed(class, true),
            Err(Error::Refused(reason)) => return sight.report(class, &format!("the broker refuses: {reason}")),
            Err(error) => {
                sight.broke(&error);
                continue;
            }
        }
        if let Err(error) = serve(sight, (class, network), &mut sender, &mut client) {
            sight.broke(&error);
        }
        sight.set_subscribed(class, false);
    }
}

fn serve(
    sight: &Sight,
    (class, network): (usize, &ClassNetwork),
    sender: &mut JoinSender,
    client: &mut Client,
) -> Result<(), Error> {
    while !sight.stops() {
        let bytes = match client.receive(Some(POLL_INTERVAL))? {
            Some(Reception::Event(event)) => sender.event(now(), &event, &sight.settings),
            Some(Reception::Notice { topic, notice, .. }) => sender.notice(topic.as_ref(), &notice),
            _ => continue,
        };
        let taken = bytes.map(|bytes| network.publisher.put(bytes).wait().is_ok());
        let mut counters = sight.counters(class);
        counters.sent = sender.counters;
        match taken {
            Some(false) => counters.unsent += 1,
            Some(true) if counters.hosts.is_empty() => counters.unheard += 1,
            _ => {}
        }
    }
    Ok(())
}
