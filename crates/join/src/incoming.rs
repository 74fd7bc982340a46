//! From the network to the broker of this host.
//!
//! Nothing here waits for a consumer: an event that would have to is refused, so that one host's slow
//! consumer does not hold up other hosts.

use crate::network::{ClassNetwork, FromNetwork};
use crate::sight::Sight;
use std::collections::{BTreeSet, HashMap};
use std::sync::PoisonError;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use unisono_broker::join::{JoinReceiver, JoinStep, JoinStream, StreamOrigin};
use unisono_broker::{
    Advertisement, Client, Error, EventDraft, HandedIn, PublishOutcome, RemoteSupplier, TopicHandle, now,
};
use zenoh::liveliness::LivelinessToken;

const GLANCE: Duration = Duration::from_millis(100);
/// From one attempt to announce this host to the next.
const AGAIN: Duration = Duration::from_secs(1);
/// Events that are handed to the broker before their outcomes are awaited.
const BATCH: usize = 64;

/// What of this class is at the broker.
struct AtBroker<'a> {
    sight: &'a Sight,
    class: usize,
    network: &'a ClassNetwork,
    client: Client,
    /// None: the broker refused the topic.
    topics: HashMap<JoinStream, Option<TopicHandle>>,
    handed: Vec<HandedIn>,
    /// Says to other hosts that this one is there, once it sends and receives.
    token: Option<LivelinessToken>,
}

pub(crate) fn run(sight: &Sight, class: usize, network: &ClassNetwork) {
    let came = network.came.lock().unwrap_or_else(PoisonError::into_inner);
    let mut receiver = JoinReceiver::default();
    let mut runs = BTreeSet::new();
    while !sight.stops() {
        let Some(client) = sight.connect() else {
            // zenoh and those who send must not wait for a broker that is away
            for it in came.try_iter().collect::<Vec<_>>() {
                match it {
                    FromNetwork::Envelope { .. } => sight.counters(class).no_broker += 1,
                    FromNetwork::Host { .. } => host(sight, class, &it, (&mut receiver, &mut runs)),
                }
            }
            continue;
        };
        receiver.connected(client.broker_run());
        let (topics, handed, token) = (HashMap::new(), Vec::new(), None);
        let mut at = AtBroker { sight, class, network, client, topics, handed, token };
        if let Err(error) = at.serve(&came, &mut receiver, &mut runs) {
            sight.broke(&error);
        }
    }
    network.close();
}

/// A host came or went.
fn host(
    sight: &Sight,
    class: usize,
    came: &FromNetwork,
    (receiver, runs): (&mut JoinReceiver, &mut BTreeSet<(String, u64)>),
) {
    let FromNetwork::Host { name, run, there } = came else { return };
    if receiver.is_own(*run) {
        return; // zenoh tells a session of its own tokens, too
    }
    let was = runs.iter().any(|(other, _)| other == name);
    match there {
        true => {
            runs.insert((name.clone(), *run));
            receiver.peer_came(*run);
        }
        false => {
            runs.remove(&(name.clone(), *run));
            // a host may have several joins
            if !runs.iter().any(|(_, other)| other == run) {
                receiver.peer_went(now(), *run);
            }
        }
    }
    let is = runs.iter().any(|(other, _)| other == name);
    if was != is {
        sight.say(class, &format!("{name} is {}", if is { "there" } else { "gone" }));
    }
    sight.counters(class).hosts = runs.iter().map(|(name, _)| name.clone()).collect();
}

impl AtBroker<'_> {
    fn serve(
        &mut self,
        came: &Receiver<FromNetwork>,
        receiver: &mut JoinReceiver,
        runs: &mut BTreeSet<(String, u64)>,
    ) -> Result<(), Error> {
        while !self.sight.stops() {
            // finds out whether the broker is still there; nothing was asked for
            while self.client.receive(Some(Duration::ZERO))?.is_some() {}
            if self.token.is_none() && self.sight.is_subscribed(self.class) {
                match self.network.announce(self.client.broker_run()) {
                    Ok(token) => self.token = Some(token),
                    Err(error) => {
                        self.sight.say(self.class, &format!("{error:#}"));
                        self.sight.pause(AGAIN);
                    }
                }
            }
            let first = came.recv_timeout(GLANCE).ok();
            for it in first.into_iter().chain(came.try_iter().take(BATCH)) {
                match &it {
                    FromNetwork::Envelope { at, bytes } => {
                        for step in receiver.arrived(*at, bytes) {
                            self.step(step)?;
                        }
                    }
                    FromNetwork::Host { .. } => host(self.sight, self.class, &it, (receiver, runs)),
                }
            }
            for stream in receiver.forget(now()) {
                self.step(JoinStep::Withdraw(stream))?;
            }
            self.settle()?;
            let mut counters = self.sight.counters(self.class);
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
                    self.sight.counters(self.class).refused += 1;
                    return Ok(());
                };
                let mut draft = EventDraft::new(event.payload)
                    .keyed(event.key)
                    .with_fields(event.fields)
                    .critical(event.criticality);
                if let Some(deadline) = event.deadline {
                    draft = draft.due_at(deadline);
                }
                match self.client.hand_in_at_once(topic, &draft, Some(event.sequence)) {
                    Ok(handed) => self.handed.push(handed),
                    Err(Error::TooLong { .. }) => self.sight.counters(self.class).refused += 1,
                    Err(error) => return Err(error),
                }
                Ok(())
            }
        }
    }

    /// The supplier that stands for a stream.
    fn topic(&mut self, stream: JoinStream, of: StreamOrigin<'_>) -> Result<Option<TopicHandle>, Error> {
        if let Some(known) = self.topics.get(&stream) {
            return Ok(*known);
        }
        let StreamOrigin { run, supplier, topic } = of;
        let from_elsewhere = Some(RemoteSupplier { run, supplier });
        let spec = Advertisement { from_elsewhere, reliable: true, ..Advertisement::of(topic) };
        let made = match self.client.advertise(&spec) {
            Ok(handle) => Some(handle),
            Err(Error::Refused(reason)) => {
                self.sight.say(self.class, &format!("the broker refuses the topic {topic}: {reason}"));
                None
            }
            Err(error) => return Err(error),
        };
        self.topics.insert(stream, made);
        Ok(made)
    }

    /// Asks what became of the events that were handed in.
    fn settle(&mut self) -> Result<(), Error> {
        let (mut published, mut refused) = (0, 0);
        for handed in std::mem::take(&mut self.handed) {
            match self.client.outcome(handed) {
                Ok(event) if event.outcome == PublishOutcome::Duplicate => refused += 1,
                Ok(_) => published += 1,
                Err(Error::Rejected(_)) => refused += 1,
                Err(error) => return Err(error),
            }
        }
        let mut counters = self.sight.counters(self.class);
        counters.published += published;
        counters.refused += refused;
        Ok(())
    }
}
