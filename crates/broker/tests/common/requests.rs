//! Each kind of request with the largest arguments, from clients of one user, to a broker without sockets.

use unisono_broker::{Broker, ClientId, Next};
use unisono_events_client::{
    Advertisement, Durability, Duration, ExceptSpec, FieldSet, Greeting, Instant, InterestSpec, KeptHistory,
    PartRule, ResumeSpec, SubscriptionSpec, TogetherSpec,
};
use unisono_events_wire::Frame;
use unisono_events_wire::frame::{PublishFlags, PublishHead};
use unisono_events_wire::transport::TransportPeer;

const USER: TransportPeer = TransportPeer::User(1000);
/// The longest name of a topic, but for some bytes that tell names apart.
const LONG: usize = 65_000;

/// Clients of one user, and the broker that they ask.
pub(crate) struct Asker<'a> {
    broker: &'a mut Broker,
    now: Instant,
    /// The clients so far; the last one asks.
    clients: u32,
}

/// A kind of request: asks for as much as it can.
pub(crate) type Ask = fn(&mut Asker<'_>);

pub(crate) const KINDS: [(&str, Ask); 20] = [
    ("topics with long names", |asker| {
        asker.greet();
        for number in 0..400 {
            asker.advertise(number, Advertisement::new(&long(number)));
        }
    }),
    ("topics with long types", |asker| {
        asker.greet();
        for number in 0..400 {
            let event_type = Some("t".repeat(200_000));
            asker.advertise(number, Advertisement { event_type, ..Advertisement::new(&number.to_string()) });
        }
    }),
    ("subscriptions to long patterns", |asker| {
        asker.greet();
        for number in 0..400 {
            let topics =
                (0..1 + number % 3).map(|at| format!("{}/{at}", &long(number)[..LONG >> (number % 5)]));
            let interests = topics.map(|topics| InterestSpec { topics, ..InterestSpec::default() }).collect();
            asker.subscribe(number, SubscriptionSpec { interests, ..small() });
        }
    }),
    ("filters", |asker| {
        asker.greet();
        for number in 0..100 {
            let filter = |at: u32| Some(format!("{number}.{at} > x {}", "+ x ".repeat(3000 >> (number % 8))));
            let interest = |at| InterestSpec { topics: "#".into(), filter: filter(at), ..Default::default() };
            asker.subscribe(
                number,
                SubscriptionSpec {
                    interests: (0..12_u32 >> (number % 4)).map(interest).collect(),
                    ..small()
                },
            );
        }
    }),
    ("topics that are left out", |asker| {
        asker.greet();
        for number in 0..400 {
            let but =
                (0..900 >> (number % 4)).map(|at| format!("{}/{number}/{at}", "b".repeat(200))).collect();
            let except = vec![ExceptSpec { topics: "a/#".to_owned(), but }];
            let interest = InterestSpec { topics: "#".into(), except, ..InterestSpec::default() };
            asker.subscribe(number, SubscriptionSpec { interests: vec![interest], ..small() });
        }
    }),
    ("groups that linger", |asker| {
        for number in 0..60 {
            asker.greet();
            let group = Some(format!("{}{number}", "g".repeat(200_000)));
            let spec = SubscriptionSpec { group, linger_ns: 5_000_000_000, ..small() };
            asker.subscribe(0, SubscriptionSpec { interests: small_of("a").interests, ..spec });
            asker.go();
        }
    }),
    ("events that wait for others", |asker| {
        asker.greet();
        for at in 0..4 {
            let topics = (0..31).map(|part| format!("{at}/{part}")).chain(["never".to_owned()]);
            let interests = topics.map(|topics| InterestSpec { topics, ..InterestSpec::default() }).collect();
            let together = Some(TogetherSpec { rule: PartRule::All, within_ns: 1 << 62, report: false });
            asker.subscribe(at, SubscriptionSpec { interests, together, ..small() });
            for part in 0..31 {
                let number = at * 31 + part;
                asker.advertise(number, Advertisement::new(&format!("{at}/{part}")));
                asker.publish(number, &FieldSet::new(), &vec![7; 4 << 20]);
            }
        }
    }),
    ("events with many fields in a queue", |asker| {
        asker.greet();
        let queue =
            SubscriptionSpec { queue_events: 1000, queue_bytes: 256 << 10, ..SubscriptionSpec::new("t") };
        asker.subscribe(1, queue);
        asker.pause();
        asker.advertise(1, Advertisement::new("t"));
        let fields = (0..200).map(|at| (format!("{at:03}").into(), "f".repeat(500).as_str().into()));
        let fields: FieldSet = fields.collect();
        for _ in 0..1000 {
            asker.publish(1, &fields, b"");
        }
    }),
    ("what topics keep", |asker| {
        asker.greet();
        for number in 0..2000 {
            let history = KeptHistory::Last(100);
            asker.advertise(number, Advertisement { history, ..Advertisement::new(&number.to_string()) });
            asker.publish(number, &FieldSet::new(), &[7; 10_000]);
            asker.close(number);
        }
    }),
    ("topics of the log with long names", |asker| {
        asker.greet();
        for number in 0..200 {
            asker.advertise(number, logged(&long(number), KeptHistory::Last(1 + number as usize % 5)));
            asker.close(number);
        }
    }),
    ("events of the log with long names for a consumer that takes none", |asker| {
        asker.greet();
        let resume = Some(ResumeSpec { name: "reader".to_owned(), ..ResumeSpec::default() });
        asker.subscribe(1, SubscriptionSpec { resume, queue_bytes: 1 << 20, ..SubscriptionSpec::new("#") });
        asker.greet();
        for number in 0..400 {
            asker.advertise(number, logged(&long(number), KeptHistory::None));
            asker.publish(number, &FieldSet::new(), b"x");
            asker.close(number);
        }
    }),
    ("gaps and missed deadlines of many topics", |asker| {
        for _ in 0..2 {
            asker.greet();
            (0..120).for_each(|number| asker.subscribe(number, small_of("#")));
            asker.pause();
        }
        asker.greet();
        for number in 0..1000 {
            asker.advertise(number, Advertisement::new(&number.to_string()));
            (0..2).for_each(|_| asker.publish(number, &FieldSet::new(), b"x"));
        }
    }),
    ("subscriptions to patterns of many levels", |asker| {
        for client in 0..4 {
            asker.greet();
            for number in 0..500 {
                let topics = format!("{client}.{number}{}", "/a".repeat(127));
                let interests = vec![InterestSpec { topics, ..InterestSpec::default() }];
                asker.subscribe(number, SubscriptionSpec { interests, ..small() });
            }
        }
    }),
    ("messages in flight with many subscription identifiers", |asker| {
        for client in 0..2 {
            asker.connect_mqtt(&client.to_string(), None);
            for number in 0..520_u32 {
                let level = |bit: u32| if number >> bit & 1 == 1 { "+" } else { "a" };
                let filter = (0..10).map(level).collect::<Vec<_>>().join("/");
                asker.packet(0x82, &[&[0, 1, 2, 0x0B, 1][..], &text(&filter), &[1]].concat());
            }
        }
        asker.connect_mqtt("writer", None);
        for _ in 0..4200 {
            asker.packet(0x32, &[&text("a/a/a/a/a/a/a/a/a/a"), &[0, 1, 0][..]].concat());
        }
    }),
    ("sessions with wills", |asker| {
        for number in 0..300 {
            asker.connect_mqtt(&long(number), Some(&[7; 60_000]));
            asker.go();
        }
    }),
    ("MQTT subscriptions to long filters", |asker| {
        asker.connect_mqtt("c", None);
        for number in 0..1024_u32 {
            let filter = long(number);
            let body = [&[0, 1, 0][..], &text(&filter), &[0]].concat();
            asker.packet(0x82, &body);
        }
    }),
    ("MQTT messages to topics with long names", |asker| {
        asker.connect_mqtt("c", None);
        for number in 0..200 {
            asker.packet(0x30, &[&text(&long(number)), &[0][..], b"x"].concat());
        }
    }),
    ("tiny retained messages", |asker| {
        asker.connect_mqtt("c", None);
        for number in 0..6000 {
            asker.packet(0x31, &[&text(&format!("t/{number}")), &[0][..], b"x"].concat());
        }
    }),
    ("topic aliases", |asker| {
        asker.connect_mqtt("c", None);
        for alias in 1..=64_u8 {
            asker.packet(0x30, &[&text(&long(alias.into())), &[3, 0x23, 0, alias][..], b"x"].concat());
        }
    }),
    ("messages that are not released", |asker| {
        asker.connect_mqtt("c", None);
        for number in 1..20_000_u16 {
            asker.packet(0x34, &[&text("t"), &number.to_be_bytes()[..], &[0], b"x"].concat());
        }
    }),
];

fn long(number: u32) -> String {
    format!("{number}/{}", "x".repeat(LONG))
}

fn logged(topic: &str, history: KeptHistory) -> Advertisement {
    Advertisement { durability: Durability::Written, history, ..Advertisement::new(topic) }
}

fn small_of(topics: &str) -> SubscriptionSpec {
    SubscriptionSpec { interests: SubscriptionSpec::new(topics).interests, ..small() }
}

fn small() -> SubscriptionSpec {
    SubscriptionSpec { queue_events: 1, queue_bytes: 1, ..SubscriptionSpec::default() }
}

/// Returns a text of MQTT after its length.
fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("it is short").to_be_bytes();
    [&length[..], text.as_bytes()].concat()
}

impl<'a> Asker<'a> {
    pub(crate) fn new(broker: &'a mut Broker) -> Self {
        Self { broker, now: Instant::from_nanos(1), clients: 0 }
    }

    /// Returns the bytes in the ledger.
    pub(crate) fn ledger(&self) -> u64 {
        let statistics = self.broker.statistics(self.now);
        statistics.granted_bytes + statistics.kept_bytes + statistics.named_bytes + statistics.held_bytes
    }

    /// Ends all clients, and lets what outlives them expire. Returns the bytes of the events that topics
    /// still keep, and of names.
    pub(crate) fn leave(&mut self) -> u64 {
        for client in 1..=self.clients {
            self.broker.gone(self.now, ClientId(client));
        }
        self.now += Duration::from_secs(60);
        self.settle();
        let statistics = self.broker.statistics(self.now);
        statistics.kept_bytes + statistics.named_bytes
    }

    fn client(&self) -> ClientId {
        ClientId(self.clients)
    }

    /// Takes all tasks and deliveries of the broker, as a connection that accepts everything would.
    fn settle(&mut self) {
        loop {
            while self.broker.task().is_some() {}
            self.broker.take_work();
            if !matches!(self.broker.next(self.now), Next::Delivered) {
                return;
            }
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        let client = self.client();
        let _ = self.broker.received(self.now, client, bytes, None);
        self.settle();
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.say(&bytes);
    }

    fn greet(&mut self) {
        self.clients += 1;
        let client = self.client();
        assert!(self.broker.connected(self.now, client, USER));
        self.frame(&Frame::Hello(Greeting::default()));
    }

    fn go(&mut self) {
        let client = self.client();
        self.broker.gone(self.now, client);
        self.settle();
    }

    fn pause(&mut self) {
        let client = self.client();
        self.broker.paused(client);
    }

    fn advertise(&mut self, number: u32, spec: Advertisement) {
        self.frame(&Frame::Advertise { number, spec });
    }

    fn close(&mut self, number: u32) {
        self.frame(&Frame::Close { number });
    }

    fn subscribe(&mut self, number: u32, spec: SubscriptionSpec) {
        self.frame(&Frame::Subscribe { number, spec: Box::new(spec) });
    }

    fn publish(&mut self, topic: u32, fields: &FieldSet, payload: &[u8]) {
        let flags = PublishFlags { answer: true, at_once: true };
        let fields = fields.clone();
        let head = PublishHead { flags, topic, fields, ..PublishHead::default() };
        self.frame(&Frame::Publish { head, payload });
    }

    fn packet(&mut self, first: u8, body: &[u8]) {
        let mut bytes = vec![first];
        let mut length = body.len();
        while length > 0x7F {
            bytes.push((length & 0x7F) as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(body);
        self.say(&bytes);
    }

    fn connect_mqtt(&mut self, client: &str, will: Option<&[u8]>) {
        self.clients += 1;
        let connection = self.client();
        assert!(self.broker.connected_by_mqtt(self.now, connection, USER));
        let flags = if will.is_some() { 0x06 } else { 0x02 };
        // the session outlives its connection by 30 s, and the will waits as long
        let mut body = [b"\0\x04MQTT\x05", &[flags, 0, 60, 5, 0x11, 0, 0, 0, 30][..], &text(client)].concat();
        if let Some(will) = will {
            body.extend([5, 0x18, 0, 0, 0, 30]);
            body.extend(text("will"));
            body.extend((will.len() as u16).to_be_bytes());
            body.extend(will);
        }
        self.packet(0x10, &body);
    }
}
