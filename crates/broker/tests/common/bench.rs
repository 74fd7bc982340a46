//! A broker without sockets and clock: the clients' frames go in, the broker's answers come out.

use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use unisono_broker::log::{EventLog, LogBounds};
use unisono_broker::{
    Broker, BrokerSettings, ClientId, Limits, Next, Permissions, ReloadAsker, ReloadedFiles, Task, Tokens,
};
use unisono_events_client::{
    Advertisement, Duration, Greeting, Instant, NoticeText, PublishOutcome, SubscriptionSpec,
};
use unisono_events_wire::frame::{PublishFlags, PublishHead};
use unisono_events_wire::transport::TransportPeer;
use unisono_events_wire::{Frame, ReloadReport};
use unisono_fairqueue::{ClassSpec, Hierarchy};

/// The way in which a client connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Comes {
    /// By a Unix socket, as this user.
    User(u32),
    /// From this host over TCP, with the token of this name.
    Token(&'static str),
    /// From this host over TCP, without credentials.
    Anonymous,
}

/// A client's connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct BenchClient(ClientId);

/// An event that a client got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BenchEvent {
    pub(crate) consumer: u32,
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) delivery: Option<u64>,
}

/// Answers to a client that the test has not taken yet.
#[derive(Debug, Default)]
struct Heard {
    /// Answers to requests, by number: accepted, or refused with the reason.
    answers: BTreeMap<u32, Result<(), String>>,
    published: Vec<Result<PublishOutcome, String>>,
    events: Vec<BenchEvent>,
    notices: Vec<NoticeText>,
    statistics: Option<String>,
    bye: Option<String>,
    reloaded: Option<ReloadReport>,
    /// The reply topic of the program.
    reply: String,
    topics: HashMap<u32, String>,
    packets: Vec<(Vec<u8>, Vec<u8>)>,
}

pub(crate) struct BrokerBench {
    pub(crate) broker: Broker,
    pub(crate) now: Instant,
    heard: BTreeMap<ClientId, Heard>,
    pub(crate) notes: Vec<String>,
    last: u32,
    mqtt: Vec<ClientId>,
    ended: Vec<ClientId>,
    /// Programs that asked for a reload.
    pub(crate) asked: Vec<ClientId>,
    /// The last answer to a CONNECT.
    connack: Vec<u8>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// Makes tokens of these names; `NAME-secret` is the token of NAME.
pub(crate) fn tokens(names: &[&str]) -> Tokens {
    let mut text = String::new();
    for name in names {
        let hash = Sha256::digest(format!("{name}-secret"));
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = write!(text, "[[token]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n");
    }
    Tokens::parse(&text, Instant::ZERO, 0).expect("it is sound")
}

impl BrokerBench {
    pub(crate) fn new(broker: Broker) -> Self {
        Self {
            broker,
            now: Instant::from_secs(1),
            heard: BTreeMap::new(),
            notes: Vec::new(),
            last: 0,
            mqtt: Vec::new(),
            ended: Vec::new(),
            asked: Vec::new(),
            connack: Vec::new(),
        }
    }

    /// Makes a broker without permissions and tokens.
    pub(crate) fn open() -> Self {
        let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
        Self::new(Broker::new(tree.expect("it is sound"), Limits::default()))
    }

    /// Makes a broker with these rules, and a token for each of these names.
    pub(crate) fn with_rules(rules: &str, names: &[&str]) -> Self {
        let mut bench = Self::open();
        let permissions = Permissions::parse(rules, &|_| None).expect("it is sound");
        bench.broker = bench.broker.with_permissions(permissions).with_tokens(tokens(names));
        bench
    }

    pub(crate) fn with_log(mut self, directory: &std::path::Path, bytes: u64) -> Self {
        let bounds = LogBounds { bytes, ..LogBounds::default() };
        let log = EventLog::open(directory, bounds).expect("it is sound");
        self.broker.add_log(log, Duration::ZERO, Vec::new());
        self.broker.keep_again(self.now).expect("it is read");
        self
    }

    pub(crate) fn connect(&mut self, comes: Comes, mqtt: bool) -> BenchClient {
        self.last += 1;
        let client = ClientId(self.last);
        let peer = match comes {
            Comes::User(user) => TransportPeer::User(user),
            _ => TransportPeer::Address("127.0.0.1".parse().expect("an address")),
        };
        let may = match mqtt {
            true => self.broker.connected_by_mqtt(self.now, client, peer),
            false => self.broker.connected(self.now, client, peer),
        };
        assert!(may, "there is a place");
        self.heard.insert(client, Heard::default());
        if mqtt {
            self.mqtt.push(client);
        }
        BenchClient(client)
    }

    /// Connects a program and sends its greeting.
    pub(crate) fn program(&mut self, comes: Comes, name: &str) -> BenchClient {
        let client = self.connect(comes, false);
        let token = match comes {
            Comes::Token(name) => Some(format!("{name}-secret")),
            _ => None,
        };
        self.say(client, &Frame::Hello(Greeting { name: name.to_owned(), token, ..Greeting::default() }));
        assert_eq!(self.heard[&client.0].bye, None);
        client
    }

    pub(crate) fn say(&mut self, client: BenchClient, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let _ = self.broker.received(self.now, client.0, &bytes, None);
        self.work();
    }

    /// Runs everything that is due in the broker.
    pub(crate) fn work(&mut self) {
        loop {
            while let Some(task) = self.broker.task() {
                self.take(task);
            }
            if !matches!(self.broker.next(self.now), Next::Delivered) {
                break;
            }
        }
        while let Some(task) = self.broker.task() {
            self.take(task);
        }
    }

    fn take(&mut self, task: Task) {
        let (client, head, body) = match task {
            Task::Answer { client, head, body } => (client, head, body),
            Task::Note { text } => return self.notes.push(text),
            Task::SendAway { client, .. } => return self.ended.push(client),
            Task::Reload { client } => return self.asked.push(client),
            _ => return,
        };
        let body = body.map_or_else(Vec::new, |body| body.payload.bytes().to_vec());
        let Some(heard) = self.heard.get_mut(&client) else { return };
        if self.mqtt.contains(&client) {
            return heard.packets.push((head, body));
        }
        match Frame::read(&head).expect("a broker writes frames") {
            Frame::Accepted { number } => drop(heard.answers.insert(number, Ok(()))),
            Frame::Refused { number, reason } => {
                heard.answers.insert(number, Err(reason.to_owned()));
            }
            Frame::Published { outcome, .. } => heard.published.push(Ok(outcome)),
            Frame::Rejected { reason, .. } => heard.published.push(Err(reason.to_owned())),
            Frame::Topic { number, name } => drop(heard.topics.insert(number, name.to_owned())),
            Frame::Deliver { head, .. } => heard.events.push(BenchEvent {
                consumer: head.consumer,
                topic: heard.topics.get(&head.topic).cloned().unwrap_or_default(),
                payload: body,
                delivery: head.flags.acknowledge.then_some(head.delivery),
            }),
            Frame::Notice { notice, .. } => heard.notices.push(notice),
            Frame::Statistics { json } => heard.statistics = Some(json.to_owned()),
            Frame::Welcome(terms) => heard.reply = terms.reply,
            Frame::Reloaded(report) => heard.reloaded = Some(report),
            Frame::Bye { reason } => heard.bye = Some(reason.to_owned()),
            _ => {}
        }
    }

    fn heard(&mut self, client: BenchClient) -> &mut Heard {
        self.heard.get_mut(&client.0).expect("it connected")
    }

    pub(crate) fn subscribe(
        &mut self,
        client: BenchClient,
        number: u32,
        spec: SubscriptionSpec,
    ) -> Result<(), String> {
        self.say(client, &Frame::Subscribe { number, spec: Box::new(spec) });
        self.heard(client).answers.remove(&number).expect("an answer")
    }

    pub(crate) fn close(&mut self, client: BenchClient, number: u32) {
        self.say(client, &Frame::Close { number });
    }

    pub(crate) fn unsubscribe(&mut self, client: BenchClient, number: u32) {
        self.say(client, &Frame::Unsubscribe { number });
    }

    pub(crate) fn advertise(
        &mut self,
        client: BenchClient,
        number: u32,
        spec: Advertisement,
    ) -> Result<(), String> {
        self.say(client, &Frame::Advertise { number, spec });
        self.heard(client).answers.remove(&number).expect("an answer")
    }

    /// Publishes. Returns the outcome, or `None` if there is none because the broker reads no more from the
    /// program for now.
    pub(crate) fn publish(
        &mut self,
        client: BenchClient,
        topic: u32,
        payload: &[u8],
        sequence: Option<u64>,
    ) -> Option<Result<PublishOutcome, String>> {
        let flags = PublishFlags { answer: true, ..PublishFlags::default() };
        let head = PublishHead { flags, topic, sequence, ..PublishHead::default() };
        self.say(client, &Frame::Publish { head, payload });
        self.heard(client).published.pop()
    }

    /// Returns the events since the last call.
    pub(crate) fn events(&mut self, client: BenchClient) -> Vec<BenchEvent> {
        std::mem::take(&mut self.heard(client).events)
    }

    pub(crate) fn notices(&mut self, client: BenchClient) -> Vec<NoticeText> {
        std::mem::take(&mut self.heard(client).notices)
    }

    pub(crate) fn acknowledge(&mut self, client: BenchClient, event: &BenchEvent) {
        if let Some(delivery) = event.delivery {
            self.say(client, &Frame::Acknowledge { consumer: event.consumer, delivery });
        }
    }

    /// Returns the statistics that the broker sends to a client.
    pub(crate) fn ask(&mut self, client: BenchClient) -> String {
        self.say(client, &Frame::Ask);
        self.heard(client).statistics.take().expect("an answer")
    }

    pub(crate) fn reply_topic(&mut self, client: BenchClient) -> String {
        self.heard(client).reply.clone()
    }

    pub(crate) fn bye(&mut self, client: BenchClient) -> Option<String> {
        self.heard(client).bye.take()
    }

    /// Returns the answer to RELOAD.
    pub(crate) fn reloaded(&mut self, client: BenchClient) -> Option<ReloadReport> {
        self.heard(client).reloaded.take()
    }

    pub(crate) fn gone(&mut self, client: BenchClient) {
        self.broker.gone(self.now, client.0);
        self.work();
    }

    /// Makes the broker change to these rules, and to tokens of these names.
    pub(crate) fn reload(&mut self, rules: &str, names: &[&str]) -> ReloadReport {
        let permissions = Some(Permissions::parse(rules, &|_| None).expect("it is sound"));
        self.reload_settings(BrokerSettings { permissions, tokens: Some(tokens(names)), policy: None })
    }

    pub(crate) fn reload_settings(&mut self, settings: BrokerSettings) -> ReloadReport {
        let checked = self.broker.check_settings(settings).expect("they fit");
        let asker = ReloadAsker::Signal { user: Some(0) };
        let report = self.broker.reload(self.now, asker, checked, ReloadedFiles::default());
        self.work();
        report
    }

    /// Sends QoS 1 PUBLISH; returns the reason code of PUBACK.
    pub(crate) fn mqtt_publish(&mut self, client: BenchClient, topic: &str) -> u8 {
        let body = [text(topic), vec![0, 9, 0]].concat();
        let (answer, _) = self.packet(client, 0x32, &body).expect("PUBACK");
        assert_eq!(answer[0], 0x40);
        answer.get(4).copied().unwrap_or(0)
    }

    /// Advances the time.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
        self.work();
    }

    /// Sends CONNECT from an MQTT 5 client; returns the code of CONNACK, and whether it found a session.
    pub(crate) fn mqtt(
        &mut self,
        comes: Comes,
        name: &str,
        clean: bool,
        expiry: u32,
    ) -> (BenchClient, u8, bool) {
        let mut rest = vec![5, 0x11];
        rest.extend(expiry.to_be_bytes());
        rest.extend(text(name));
        let mut flags = u8::from(clean) << 1;
        if let Comes::Token(user) = comes {
            flags |= 0xC0;
            rest.extend([text(user), text(&format!("{user}-secret"))].concat());
        }
        self.connect_packet(comes, (5, flags), &rest)
    }

    /// Connects a client of MQTT 5 with a token and a will, in a session that ends with its connection.
    pub(crate) fn mqtt_with_will(&mut self, token: &'static str, name: &str, topic: &str) -> BenchClient {
        let will = [vec![0], text(topic), text("gone")].concat();
        let login = [text(token), text(&format!("{token}-secret"))].concat();
        let rest = [vec![0], text(name), will, login].concat();
        self.connect_packet(Comes::Token(token), (5, 0xC6), &rest).0
    }

    /// Connects a user's client of MQTT 5 whose session outlives the connection for a minute, and whose will
    /// waits for `delay` seconds. The payload of the will is its topic.
    pub(crate) fn mqtt_with_delayed_will(&mut self, name: &str, topic: &str, delay: u32) -> BenchClient {
        let expiry = [&[5, 0x11][..], &60_u32.to_be_bytes()].concat();
        let will = [&[5, 0x18][..], &delay.to_be_bytes(), &text(topic), &text(topic)].concat();
        self.connect_packet(Comes::User(0), (5, 0x06), &[expiry, text(name), will].concat()).0
    }

    /// Connects with the token as a password, and without a user.
    pub(crate) fn mqtt_with_token(&mut self, token: &'static str, name: &str) -> (BenchClient, u8, bool) {
        let rest = [vec![0], text(name), text(&format!("{token}-secret"))].concat();
        self.connect_packet(Comes::Token(token), (5, 0x40), &rest)
    }

    /// Connects with MQTT 3.1.1; returns the code of CONNACK.
    pub(crate) fn mqtt_311(&mut self, comes: Comes, name: &str, clean: bool) -> u8 {
        self.connect_packet(comes, (4, u8::from(clean) << 1), &text(name)).1
    }

    fn connect_packet(
        &mut self,
        comes: Comes,
        (version, flags): (u8, u8),
        rest: &[u8],
    ) -> (BenchClient, u8, bool) {
        let client = self.connect(comes, true);
        let body = [&text("MQTT")[..], &[version, flags, 0, 0], rest].concat();
        let answer = self.packet(client, 0x10, &body).expect("CONNACK").0;
        assert_eq!(answer[0], 0x20);
        // behind the remaining length
        let length = answer[1..].iter().position(|byte| byte & 0x80 == 0).expect("a length") + 2;
        let (code, found) = (answer[length + 1], answer[length] == 1);
        self.connack = answer;
        (client, code, found)
    }

    /// Returns the session expiry in the last CONNACK of MQTT 5, if it had one.
    pub(crate) fn expiry_told(&self) -> Option<u32> {
        // the session expiry follows the maximum packet size and the topic alias maximum
        let properties = &self.connack[5..];
        let at = properties.windows(5).position(|five| five[0] == 0x11)?;
        Some(u32::from_be_bytes(std::array::from_fn(|byte| properties[at + 1 + byte])))
    }

    /// Returns the payloads, as numbers, of one consumer's events since the last call; they stay in the list.
    pub(crate) fn peek(&mut self, client: BenchClient, consumer: u32) -> Vec<u64> {
        let events = self.heard(client).events.iter().filter(|event| event.consumer == consumer);
        events.map(|event| u64::from_le_bytes(event.payload[..].try_into().expect("eight bytes"))).collect()
    }

    /// Returns whether the connection still exists.
    pub(crate) fn is_connected(&self, client: BenchClient) -> bool {
        !self.ended.contains(&client.0)
    }

    pub(crate) fn id(&self, client: BenchClient) -> ClientId {
        client.0
    }

    /// Sends a packet; returns the first packet of the answer.
    pub(crate) fn packet(
        &mut self,
        client: BenchClient,
        kind: u8,
        body: &[u8],
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        assert!(body.len() < 128, "a length of one byte");
        let packet = [&[kind, body.len() as u8], body].concat();
        let _ = self.broker.received(self.now, client.0, &packet, None);
        self.work();
        let packets = &mut self.heard(client).packets;
        (!packets.is_empty()).then(|| packets.remove(0))
    }

    /// Sends SUBSCRIBE; returns the reason code.
    pub(crate) fn mqtt_subscribe(&mut self, client: BenchClient, filter: &str, qos: u8) -> u8 {
        let length = (filter.len() as u16).to_be_bytes();
        let body = [&[0, 1, 0][..], &length, filter.as_bytes(), &[qos]].concat();
        let (answer, _) = self.packet(client, 0x82, &body).expect("SUBACK");
        *answer.last().expect("a code")
    }

    /// Returns the packets since the last call, each as its head and its payload.
    pub(crate) fn packets(&mut self, client: BenchClient) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.heard(client).packets)
    }

    /// Returns the payloads of the messages since the last call.
    pub(crate) fn messages(&mut self, client: BenchClient) -> Vec<Vec<u8>> {
        self.packets(client).into_iter().filter(|(head, _)| head[0] >> 4 == 3).map(|(_, body)| body).collect()
    }
}
