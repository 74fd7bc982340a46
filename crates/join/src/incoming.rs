//! Passes events from the network to the broker of this host.
//!
//! This thread never waits for a consumer: an event that would have to wait is refused, so that a slow
//! consumer on one host does not hold up other hosts. Nor do other hosts wait for this host's broker: the
//! queue of arrivals drops events that the broker does not take in time.

use crate::network::ClassNetwork;
use crate::state::JoinState;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use unisono_broker::join::{JoinArrivals, JoinReceiver, JoinStep, JoinStream, JoinedHost, StreamOrigin};
use unisono_events_client::{Advertisement, Client, Error, EventDraft, PublishReceipt, PublishOutcome, RemoteSupplier, TopicHandle, now};
use zenoh::liveliness::LivelinessToken;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The pause between two attempts to announce this host.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);
/// The number of events that are handed to the broker before their outcomes are awaited.
const BATCH: usize = 64;

/// The state of a class at the broker.
struct AtBroker<'a> {
    state: &'a JoinState,
    class: usize,
    network: &'a ClassNetwork,
    client: Client,
    /// The topic of each stream at the broker, or `None` if the broker refused it.
    topics: HashMap<JoinStream, Option<TopicHandle>>,
    handed: Vec<PublishReceipt>,
    /// The token that announces this host to the other hosts. `None`: this host does not send and receive
    /// yet.
    token: Option<LivelinessToken>,
}

/// The other joins that are present.
type PresentJoins = BTreeSet<JoinedHost>;

pub(crate) fn run(state: &JoinState, class: usize, network: &ClassNetwork) {
    let mut receiver = JoinReceiver::default();
    let mut present = PresentJoins::new();
    while !state.stops() {
        let Some(client) = state.connect() else {
            let arrivals = state.arrivals[class].take(0, Duration::ZERO);
            hosts(state, class, arrivals, (&mut receiver, &mut present));
            continue;
        };
        receiver.connected(client.broker_run());
        let (topics, handed, token) = (HashMap::new(), Vec::new(), None);
        let mut at = AtBroker { state, class, network, client, topics, handed, token };
        if let Err(error) = at.serve(&mut receiver, &mut present) {
            state.broke(&error);
        }
    }
    network.close();
}

/// Handles the hosts that appeared or disappeared since the last call.
fn hosts(
    state: &JoinState,
    class: usize,
    arrivals: JoinArrivals,
    (receiver, present): (&mut JoinReceiver, &mut PresentJoins),
) {
    for (host, there) in arrivals.hosts {
        if receiver.is_own(host.run) {
            continue; // zenoh also reports a session's own tokens to it
        }
        let is_there = |present: &PresentJoins| present.iter().any(|other| other.name == host.name);
        let was = is_there(present);
        match there {
            true => {
                present.insert(host.clone());
                receiver.peer_came(host.run);
            }
            false => {
                present.remove(&host);
                if !present.iter().any(|other| other.run == host.run) {
                    receiver.peer_went(now(), host.run);
                }
            }
        }
        let is = is_there(present);
        if was != is {
            state.report(class, &format!("{} is {}", host.name, if is { "there" } else { "gone" }));
            if is && host.name == state.host {
                let what = format!(
                    "another host is called {}, as this one is; give one of the two another name: unisono-join \
                     --name NAME",
                    host.name
                );
                state.report(class, &what);
            }
        }
        state.counters(class).hosts = present.iter().map(|host| host.name.clone()).collect();
    }
}

impl AtBroker<'_> {
    fn serve(&mut self, receiver: &mut JoinReceiver, present: &mut PresentJoins) -> Result<(), Error> {
        while !self.state.stops() {
            // only detects whether the connection has broken: this client has no subscription, so no events
            // come
            while self.client.receive(Some(Duration::ZERO))?.is_some() {}
            if self.token.is_none() && self.state.is_subscribed(self.class) {
                match self.network.announce(self.client.broker_run()) {
                    Ok(token) => self.token = Some(token),
                    Err(error) => {
                        self.state.report(self.class, &format!("{error:#}"));
                        self.state.pause(ANNOUNCE_INTERVAL);
                    }
                }
            }
            let mut arrivals = self.state.arrivals[self.class].take(BATCH, POLL_INTERVAL);
            let envelopes = std::mem::take(&mut arrivals.envelopes);
            hosts(self.state, self.class, arrivals, (receiver, present));
            for (at, bytes) in &envelopes {
                for step in receiver.arrived(*at, bytes) {
                    self.step(step)?;
                }
            }
            for stream in receiver.forget(now()) {
                self.step(JoinStep::Withdraw(stream))?;
            }
            self.settle()?;
            let mut counters = self.state.counters(self.class);
            counters.received = receiver.counters;
            counters.streams = receiver.streams();
        }
        Ok(())
    }

    fn step(&mut self, step: JoinStep<'_>) -> Result<(), Error> {
        match step {
            JoinStep::Withdraw(stream) => {
                self.settle()?;
                match self.topics.remove(&stream).flatten() {
                    Some(topic) => self.client.withdraw(topic),
                    None => Ok(()),
                }
            }
            JoinStep::Publish { stream, origin, event } => {
                let Some(topic) = self.topic(stream, origin)? else {
                    self.state.counters(self.class).refused += 1;
                    return Ok(());
                };
                let mut draft = EventDraft::new(event.payload)
                    .keyed(event.key)
                    .with_fields(event.fields)
                    .critical(event.criticality);
                if let Some(deadline) = event.deadline {
                    draft = draft.due_at(deadline);
                }
                match self.client.try_publish_with_receipt(topic, &draft, Some(event.sequence)) {
                    Ok(handed) => self.handed.push(handed),
                    Err(Error::TooLong { .. }) => self.state.counters(self.class).refused += 1,
                    Err(error) => return Err(error),
                }
                Ok(())
            }
        }
    }

    /// Returns the topic of a stream at this host's broker, and advertises it there for the first event.
    /// Returns `None` if the broker refuses it.
    fn topic(&mut self, stream: JoinStream, of: StreamOrigin<'_>) -> Result<Option<TopicHandle>, Error> {
        if let Some(known) = self.topics.get(&stream) {
            return Ok(*known);
        }
        let StreamOrigin { run, supplier, topic } = of;
        let from_elsewhere = Some(RemoteSupplier { run, supplier });
        let spec = Advertisement { from_elsewhere, reliable: true, ..Advertisement::new(topic) };
        let made = match self.client.advertise(&spec) {
            Ok(handle) => Some(handle),
            Err(Error::Refused(reason)) => {
                self.state.report(self.class, &format!("the broker refuses the topic {topic}: {reason}"));
                None
            }
            Err(error) => return Err(error),
        };
        self.topics.insert(stream, made);
        Ok(made)
    }

    /// Collects the outcomes of the events that were handed to the broker.
    fn settle(&mut self) -> Result<(), Error> {
        let (mut published, mut refused, mut known) = (0, 0, 0);
        for handed in std::mem::take(&mut self.handed) {
            match self.client.outcome(handed) {
                // another join of this host had published the event already
                Ok(event) if event.outcome == PublishOutcome::Duplicate => known += 1,
                Ok(_) => published += 1,
                Err(Error::Rejected(_)) => refused += 1,
                Err(error) => return Err(error),
            }
        }
        let mut counters = self.state.counters(self.class);
        counters.published += published;
        counters.refused += refused;
        counters.known += known;
        Ok(())
    }
}
