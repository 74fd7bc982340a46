//! Passes events from the broker of this host to the network.
//!
//! Events that zenoh does not accept yet wait in the subscription's queue at the broker; the subscription's
//! policy decides which of them are dropped.

use crate::network::ClassNetwork;
use crate::state::JoinState;
use std::time::Duration;
use unisono_broker::join::JoinSender;
use unisono_events_client::{Client, Error, Reception, now};
use zenoh::Wait;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(state: &JoinState, class: usize, network: &ClassNetwork) {
    let mut sender = JoinSender::new(class);
    while !state.stops() {
        let Some(mut client) = state.connect() else { continue };
        sender.connected(client.broker_run());
        let spec = state.settings.subscription(class).expect("the settings have it because it runs");
        match client.subscribe(&spec) {
            Ok(_) => state.set_subscribed(class, true),
            Err(Error::Refused(reason)) => return state.report(class, &format!("the broker refuses: {reason}")),
            Err(error) => {
                state.broke(&error);
                continue;
            }
        }
        if let Err(error) = serve(state, (class, network), &mut sender, &mut client) {
            state.broke(&error);
        }
        state.set_subscribed(class, false);
    }
}

fn serve(
    state: &JoinState,
    (class, network): (usize, &ClassNetwork),
    sender: &mut JoinSender,
    client: &mut Client,
) -> Result<(), Error> {
    while !state.stops() {
        let bytes = match client.receive(Some(POLL_INTERVAL))? {
            Some(Reception::Event(event)) => sender.event(now(), &event, &state.settings),
            Some(Reception::Notice { topic, notice, .. }) => sender.notice(topic.as_ref(), &notice),
            _ => continue,
        };
        let taken = bytes.map(|bytes| network.publisher.put(bytes).wait().is_ok());
        let mut counters = state.counters(class);
        counters.sent = sender.counters;
        match taken {
            Some(false) => counters.unsent += 1,
            Some(true) if counters.hosts.is_empty() => counters.unheard += 1,
            _ => {}
        }
    }
    Ok(())
}
