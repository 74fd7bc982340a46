//! Identities, names and permissions: random programs of three identities against the broker, beside a model
//! of the events that each may see, the names it may use, and the connections and names it may end.
//!
//! The model is a few maps and decides each request by the documentation, not by the broker's methods. After
//! each step every delivered event is compared with the rule of the identity that got it, and every
//! connection still exists unless its own program has ended it. At the end each consumer that resumes gets
//! all its events.

use crate::common::bench::{BenchClient, BrokerBench};
use crate::common::identity_steps::{
    ANONYMOUS, CONSUMERS, GROUPS, IDENTITIES, LISTED, Mode, PATTERNS, PROGRAMS, RULES, Step, TOPICS, WRITERS,
    matches, may_see, steps,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use unisono_broker::Permissions;
use unisono_events_client::{
    Advertisement, Durability, Duration, Instant, PublishOutcome, ResumeSpec, SubscriptionSpec,
};
use unisono_events_wire::Frame;

/// The model's record of a consumer of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Consumer {
    Alone,
    Group(&'static str),
    Resume(&'static str),
}

#[derive(Clone, Debug)]
struct Connection {
    client: BenchClient,
    identity: usize,
    /// The client identifier (MQTT).
    identifier: Option<usize>,
    consumers: BTreeMap<u32, Consumer>,
    last: u32,
}

/// A member of a group: a consumer of a program, or a session's filter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Member {
    Program(BenchClient, u32),
    Session(usize, usize),
}

#[derive(Debug)]
struct Group {
    members: BTreeMap<Member, (usize, &'static str)>,
    /// Patterns of departed members, since a member last came to a group without waiting events.
    departed: BTreeSet<&'static str>,
    /// Without members: the group's end time, its remaining patterns, and whether events wait.
    lingers: Option<(Instant, BTreeSet<&'static str>, bool)>,
}

#[derive(Debug)]
struct Durable {
    /// The patterns of the session while it is connected.
    asks: Option<&'static str>,
    /// Events that came while the session was not connected.
    missed: Vec<u64>,
}

struct World {
    directory: tempfile::TempDir,
    bench: BrokerBench,
    connections: Vec<Connection>,
    /// By name and owner.
    groups: BTreeMap<(String, Option<usize>), Group>,
    /// By name and owner.
    durable: BTreeMap<(&'static str, Option<usize>), Durable>,
    /// The last number of each writer, by name and owner.
    writers: BTreeMap<(&'static str, Option<usize>), u64>,
    /// By identity and client identifier: whether the session outlives its connection.
    sessions: BTreeMap<(usize, usize), bool>,
    /// The topic of each event, whose payload is its place here.
    published: Vec<&'static str>,
}

fn start(directory: &Path) -> BrokerBench {
    let mut bench = BrokerBench::open();
    bench.broker = bench.broker.with_permissions(Permissions::parse(RULES, &|_| None).expect("it is sound"));
    bench.with_log(directory, 64 << 20)
}

/// Returns the owner in the key of a name: none, if rules list the name.
fn owner_of(identity: usize, name: &str) -> Option<usize> {
    (!LISTED.contains(&name)).then_some(identity)
}

fn may_use(identity: usize, name: &str) -> bool {
    !LISTED.contains(&name) || identity != ANONYMOUS
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload.try_into().expect("the number of an event"))
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let bench = start(directory.path());
        Self {
            directory,
            bench,
            connections: Vec::new(),
            groups: BTreeMap::new(),
            durable: BTreeMap::new(),
            writers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            published: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let programs = |world: &Self, mqtt: bool, which: usize| {
            let all = world.connections.iter().enumerate();
            let of_kind: Vec<usize> =
                all.filter(|(_, it)| it.identifier.is_some() == mqtt).map(|(at, _)| at).collect();
            (!of_kind.is_empty()).then(|| of_kind[which % of_kind.len()])
        };
        match step {
            Step::Come(identity) if self.connections.len() < 10 => drop(self.come(identity)),
            Step::Come(_) => {}
            Step::Go(which) if !self.connections.is_empty() => self.go(which % self.connections.len()),
            Step::Go(_) => {}
            Step::Subscribe(which, pattern, mode) => {
                if let Some(at) = programs(self, false, which) {
                    self.subscribe(at, PATTERNS[pattern], mode);
                }
            }
            Step::Unsubscribe(which) => {
                let at = programs(self, false, which);
                let last = at.and_then(|at| Some((at, *self.connections[at].consumers.last_key_value()?.0)));
                if let Some((at, number)) = last {
                    self.bench.unsubscribe(self.connections[at].client, number);
                    self.left(at, number);
                }
            }
            Step::Publish(which, topic, writer) => {
                if let Some(at) = programs(self, false, which) {
                    self.publish(at, TOPICS[topic], writer.map(|writer| WRITERS[writer]));
                }
            }
            Step::Mqtt { identity, client, clean, lasts } => self.mqtt(identity, client, clean, lasts),
            Step::MqttSubscribe(which, pattern, group) => {
                if let Some(at) = programs(self, true, which) {
                    self.mqtt_subscribe(at, PATTERNS[pattern], group.map(|group| GROUPS[group].0));
                }
            }
            Step::Handover(pattern, topic) => {
                self.hand_over(PATTERNS[pattern], topic.map(|topic| TOPICS[topic]));
            }
            Step::Ask(which) => {
                if let Some(at) = programs(self, false, which) {
                    self.ask(at);
                }
            }
            Step::Wait(seconds) => {
                self.bench.wait(Duration::SECOND * seconds);
                let now = self.bench.now;
                self.groups.retain(|_, group| group.lingers.as_ref().is_none_or(|(until, ..)| *until > now));
            }
            Step::Restart => self.restart(),
        }
        self.check();
    }

    fn come(&mut self, identity: usize) -> usize {
        let client = self.bench.program(IDENTITIES[identity], PROGRAMS[identity]);
        let connection =
            Connection { client, identity, identifier: None, consumers: BTreeMap::new(), last: 0 };
        self.connections.push(connection);
        self.connections.len() - 1
    }

    fn go(&mut self, at: usize) {
        self.bench.gone(self.connections[at].client);
        self.gone(at);
    }

    /// Records that a connection has ended.
    fn gone(&mut self, at: usize) {
        for number in self.connections[at].consumers.keys().copied().collect::<Vec<_>>() {
            self.left(at, number);
        }
        let connection = self.connections.remove(at);
        if let Some(identifier) = connection.identifier
            && !self.sessions[&(connection.identity, identifier)]
        {
            self.end_session(connection.identity, identifier);
        }
    }

    fn end_session(&mut self, identity: usize, identifier: usize) {
        self.sessions.remove(&(identity, identifier));
        for group in self.groups.values_mut() {
            group.members.remove(&Member::Session(identity, identifier));
        }
        self.groups.retain(|_, group| !group.members.is_empty() || group.lingers.is_some());
    }

    /// Records that a consumer of a program has ended.
    fn left(&mut self, at: usize, number: u32) {
        let Connection { client, identity, .. } = self.connections[at];
        match self.connections[at].consumers.remove(&number) {
            Some(Consumer::Group(name)) => {
                let linger = GROUPS.iter().find(|(group, _)| *group == name).map_or(0, |(_, linger)| *linger);
                let key = (name.to_owned(), owner_of(identity, name));
                let Some(group) = self.groups.get_mut(&key) else { return };
                let Some((_, pattern)) = group.members.remove(&Member::Program(client, number)) else {
                    return;
                };
                if !group.members.values().any(|(_, other)| *other == pattern) {
                    group.departed.insert(pattern);
                }
                if group.members.is_empty() {
                    group.lingers = (linger > 0).then(|| {
                        (self.bench.now + Duration::from_nanos(linger), BTreeSet::from([pattern]), false)
                    });
                    if linger == 0 {
                        self.groups.remove(&key);
                    }
                }
            }
            Some(Consumer::Resume(name)) => {
                let key = (name, owner_of(identity, name));
                self.durable.get_mut(&key).expect("it was there").asks = None;
            }
            _ => {}
        }
    }

    fn may_join(&self, identity: usize, name: &str, pattern: &str) -> bool {
        if !may_see(identity, pattern) || !may_use(identity, name) {
            return false;
        }
        let group = self.groups.get(&(name.to_owned(), owner_of(identity, name)));
        let Some(group) = group else { return true };
        let owes = group.lingers.as_ref().is_some_and(|(.., owes)| *owes);
        let mut asked = group.members.values().map(|(_, asked)| *asked);
        asked.all(|asked| may_see(identity, asked))
            && (!owes || group.departed.iter().all(|asked| may_see(identity, asked)))
            && group.members.values().all(|(member, _)| may_see(*member, pattern))
    }

    fn join(&mut self, key: (String, Option<usize>), member: Member, identity: usize, pattern: &'static str) {
        let group = self.groups.entry(key).or_insert_with(|| Group {
            members: BTreeMap::new(),
            departed: BTreeSet::new(),
            lingers: None,
        });
        if !group.lingers.take().is_some_and(|(.., owes)| owes) {
            group.departed.clear();
        }
        group.departed.remove(pattern);
        group.members.insert(member, (identity, pattern));
    }

    fn subscribe(&mut self, at: usize, pattern: &'static str, mode: Mode) {
        let Connection { client, identity, last, .. } = self.connections[at];
        let number = last + 1;
        self.connections[at].last = number;
        let spec = SubscriptionSpec::new(pattern);
        let (spec, expected, consumer) = match mode {
            Mode::Alone => (spec, may_see(identity, pattern), Consumer::Alone),
            Mode::Group(group) => {
                let (name, linger_ns) = GROUPS[group];
                let may = (linger_ns == 0 || identity != ANONYMOUS) && self.may_join(identity, name, pattern);
                let spec = SubscriptionSpec { group: Some(name.to_owned()), linger_ns, ..spec };
                (spec, may, Consumer::Group(name))
            }
            Mode::Resume(which) => {
                let name = CONSUMERS[which];
                let known = self.durable.get(&(name, owner_of(identity, name)));
                let is_free = known.is_none_or(|durable| durable.asks.is_none());
                let may =
                    identity != ANONYMOUS && is_free && may_see(identity, pattern) && may_use(identity, name);
                let resume = Some(ResumeSpec { name: name.to_owned(), ..ResumeSpec::default() });
                (SubscriptionSpec { resume, ..spec }, may, Consumer::Resume(name))
            }
        };
        let outcome = self.bench.subscribe(client, number, spec);
        assert_eq!(outcome.is_ok(), expected, "{} {pattern} {mode:?}: {outcome:?}", PROGRAMS[identity]);
        if !expected {
            return;
        }
        self.connections[at].consumers.insert(number, consumer.clone());
        match consumer {
            Consumer::Group(name) => {
                let key = (name.to_owned(), owner_of(identity, name));
                self.join(key, Member::Program(client, number), identity, pattern);
            }
            Consumer::Resume(name) => {
                let key = (name, owner_of(identity, name));
                let known = self.durable.entry(key).or_insert(Durable { asks: None, missed: Vec::new() });
                known.asks = Some(pattern);
                let missed = std::mem::take(&mut known.missed);
                let topic = |event: &u64| self.published[*event as usize];
                let expected: Vec<u64> =
                    missed.into_iter().filter(|event| matches(pattern, topic(event))).collect();
                assert_eq!(self.take_events(at, number), expected, "what `{name}` missed");
            }
            Consumer::Alone => {}
        }
    }

    /// Takes the events that a consumer got, and acknowledges them. Each event of its program must be visible
    /// to its identity.
    fn take_events(&mut self, at: usize, consumer: u32) -> Vec<u64> {
        let Connection { client, identity, .. } = self.connections[at];
        let mut numbers = Vec::new();
        loop {
            let events = self.bench.events(client);
            if events.is_empty() {
                return numbers;
            }
            for event in &events {
                assert!(may_see(identity, &event.topic), "{} was given {event:?}", PROGRAMS[identity]);
                assert_eq!(self.published[number(&event.payload) as usize], event.topic);
                self.bench.acknowledge(client, event);
                if event.consumer == consumer {
                    numbers.push(number(&event.payload));
                }
            }
        }
    }

    fn publish(&mut self, at: usize, topic: &'static str, writer: Option<&'static str>) {
        let Connection { client, identity, last, .. } = self.connections[at];
        let outlet = last + 1;
        self.connections[at].last = outlet;
        let may_write = writer.is_none_or(|writer| identity != ANONYMOUS && may_use(identity, writer));
        let spec = Advertisement {
            durability: Durability::Written,
            writer: writer.map(str::to_owned),
            ..Advertisement::new(topic)
        };
        let outcome = self.bench.advertise(client, outlet, spec);
        assert_eq!(outcome.is_ok(), may_write && may_see(identity, topic), "{topic} {writer:?}: {outcome:?}");
        if outcome.is_err() {
            return;
        }
        // a writer's events are numbered from 1; a supplier without a writer's name states a number that
        // would make each of the writer's later events a duplicate
        let sequence = match writer {
            None => u64::MAX / 2,
            Some(writer) => {
                let last = self.writers.entry((writer, owner_of(identity, writer))).or_default();
                *last += 1;
                *last
            }
        };
        let event = self.published.len() as u64;
        let outcome = self.bench.publish(client, outlet, &event.to_le_bytes(), Some(sequence));
        assert!(matches!(outcome, Some(Ok(PublishOutcome::Written(_)))), "{writer:?}: {outcome:?}");
        self.bench.say(client, &Frame::Close { number: outlet });
        self.published.push(topic);
        for group in self.groups.values_mut() {
            if let Some((_, asked, owes)) = &mut group.lingers {
                *owes |= asked.iter().any(|pattern| matches(pattern, topic));
            }
        }
        for ((name, owner), durable) in &mut self.durable {
            let Some(pattern) = durable.asks else {
                durable.missed.push(event);
                continue;
            };
            let of_owner = |it: &Connection| owner.is_none_or(|owner| owner == it.identity);
            let mut theirs = self.connections.iter().enumerate().filter(|(_, it)| of_owner(it));
            let here = theirs.find_map(|(at, connection)| {
                let (number, _) =
                    connection.consumers.iter().find(|(_, it)| **it == Consumer::Resume(name))?;
                Some((at, *number))
            });
            let (at, number) = here.expect("it is connected");
            let expected: &[u64] = if matches(pattern, topic) { &[event] } else { &[] };
            let client = self.connections[at].client;
            let events = self.bench.peek(client, number);
            assert_eq!(events, expected, "`{name}`");
        }
    }

    fn mqtt(&mut self, identity: usize, identifier: usize, clean: bool, lasts: bool) {
        let same = |it: &Connection| (it.identity, it.identifier) == (identity, Some(identifier));
        let taken_over = self.connections.iter().position(same);
        if taken_over.is_none() && self.connections.len() >= 10 {
            return;
        }
        let name = ["plc-1", "plc-2"][identifier];
        let expiry = if lasts { u32::MAX } else { 0 };
        let (client, code, present) = self.bench.mqtt(IDENTITIES[identity], name, clean, expiry);
        if let Some(at) = taken_over {
            self.gone(at);
        }
        if clean {
            self.end_session(identity, identifier);
        }
        let expected = self.sessions.contains_key(&(identity, identifier));
        assert_eq!((code, present), (0, expected), "{} as {name}", PROGRAMS[identity]);
        self.sessions.insert((identity, identifier), lasts && identity != ANONYMOUS);
        let (identifier, consumers) = (Some(identifier), BTreeMap::new());
        self.connections.push(Connection { client, identity, identifier, consumers, last: 0 });
    }

    fn mqtt_subscribe(&mut self, at: usize, pattern: &'static str, group: Option<&str>) {
        let Connection { client, identity, identifier, .. } = self.connections[at];
        let identifier = identifier.expect("it speaks MQTT");
        // earlier events are checked before the answer
        self.check();
        let Some(group) = group else {
            let code = self.bench.mqtt_subscribe(client, pattern, 0);
            return assert_eq!(code, if may_see(identity, pattern) { 0 } else { 0x87 }, "{pattern}");
        };
        let filter = format!("$share/{group}/{pattern}");
        let member = Member::Session(identity, identifier);
        let key = (filter.clone(), owner_of(identity, group));
        let may = may_see(identity, pattern) && may_use(identity, group);
        let code = self.bench.mqtt_subscribe(client, &filter, 1);
        assert_eq!(code, if may { 1 } else { 0x87 }, "{filter} of {}", PROGRAMS[identity]);
        if may {
            self.join(key, member, identity, pattern);
        }
    }

    fn hand_over(&mut self, pattern: &'static str, topic: Option<&'static str>) {
        let ada = self.come(0);
        let stays = Mode::Group(GROUPS.len() - 1);
        self.subscribe(ada, pattern, stays);
        self.check();
        let number = self.connections[ada].last;
        if self.connections[ada].consumers.contains_key(&number) {
            self.bench.unsubscribe(self.connections[ada].client, number);
            self.left(ada, number);
        }
        if let Some(topic) = topic {
            self.publish(ada, topic, None);
        }
        self.go(ada);
        let bob = self.come(1);
        self.subscribe(bob, "public/#", stays);
        self.check();
        self.go(bob);
    }

    fn ask(&mut self, at: usize) {
        let Connection { client, identity, .. } = self.connections[at];
        let told = self.bench.ask(client);
        let names = self.durable.iter().filter(|(_, durable)| durable.asks.is_some()).map(|(key, _)| *key);
        let is_seen = |name: &str, owner: Option<usize>| match owner {
            Some(owner) => owner == identity,
            None => may_use(identity, name),
        };
        let seen: BTreeSet<&str> =
            names.clone().filter(|(name, owner)| is_seen(name, *owner)).map(|(name, _)| name).collect();
        let hidden = names.map(|(name, _)| name).filter(|name| !seen.contains(name));
        let others = PROGRAMS.into_iter().enumerate().filter(|(other, _)| *other != identity);
        // a member of a shared group learns the other members
        let shares = LISTED.iter().any(|name| {
            let group = self.groups.get(&((*name).to_owned(), None));
            group.is_some_and(|group| group.members.len() > 1)
        });
        let others = others.map(|(_, name)| name).filter(|_| !shares);
        for name in hidden.chain(others) {
            assert!(
                !told.contains(&format!("\"{name}\"")),
                "{} is told of {name}: {told}",
                PROGRAMS[identity]
            );
        }
    }

    fn restart(&mut self) {
        while !self.connections.is_empty() {
            self.go(0);
        }
        let now = self.bench.now;
        // the log has one writer
        self.bench = BrokerBench::open();
        self.bench = start(self.directory.path());
        self.bench.now = now;
        // sessions that outlive their connections are there again, and members of the same groups
        for group in self.groups.values_mut() {
            group.members.retain(|member, _| matches!(member, Member::Session(..)));
            group.departed.clear();
            group.lingers = None;
        }
        self.groups.retain(|_, group| !group.members.is_empty());
    }

    /// Checks that no identity was given an event that it may not see, and that none ended another one's
    /// connection.
    fn check(&mut self) {
        for at in 0..self.connections.len() {
            let Connection { client, identity, identifier, .. } = self.connections[at];
            match identifier {
                None => drop(self.take_events(at, 0)),
                Some(_) => {
                    for payload in self.bench.messages(client) {
                        let topic = self.published[number(&payload) as usize];
                        assert!(may_see(identity, topic), "{} was given {topic}", PROGRAMS[identity]);
                    }
                }
            }
            assert_eq!(self.bench.bye(client), None);
            assert!(self.bench.is_connected(client), "{} is gone", PROGRAMS[identity]);
        }
    }

    /// Checks that each consumer that resumes still gets all events that came while it was away.
    fn finish(&mut self) {
        self.restart();
        let owners: Vec<(&'static str, Option<usize>)> = self.durable.keys().copied().collect();
        for (name, owner) in owners {
            let at = self.come(owner.unwrap_or_default());
            let which = CONSUMERS.iter().position(|other| *other == name).expect("one of them");
            self.subscribe(at, "public/#", Mode::Resume(which));
        }
    }
}

proptest! {
    #[test]
    fn identities_see_use_and_end_what_the_rules_and_owners_say_and_nothing_else(steps in steps()) {
        let mut world = World::new();
        for identity in 0..IDENTITIES.len() {
            world.come(identity);
        }
        for step in steps {
            world.step(step);
        }
        world.finish();
    }
}
