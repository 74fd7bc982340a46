//! rumqttc as a client of the broker: `rumqttc_check HOST:PORT`. Each printed line names a check that passed.
//! A failed check panics.
//!
//! rumqttc sends and answers only while its connection is polled for events. So a publisher here polls until
//! the broker has confirmed, and a reader polls until the expected message has come.

use rumqttc::v5::mqttbytes::v5::{LastWill, PublishProperties};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A timeout that is reached only if the event never comes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A received message.
#[derive(Debug, PartialEq, Eq)]
struct ReadMessage {
    payload: Vec<u8>,
    qos: u8,
    retain: bool,
    /// Seconds; only in MQTT 5.
    expiry: Option<u32>,
}

/// Clients of one of rumqttc's two modules; their types have the same names.
macro_rules! clients {
    ($version:ident, $types:path, $packets:path, $expiry:expr) => {
        mod $version {
            use super::{TIMEOUT, ReadMessage};
            use rumqttc::Outgoing;
            use std::time::{Duration, Instant};
            use $packets::{Packet, Publish, QoS};
            use $types::{Client, Connection, Event, MqttOptions};

            pub(super) struct Talker {
                pub(super) client: Client,
                connection: Connection,
                pub(super) session_present: bool,
            }

            fn qos(level: u8) -> QoS {
                [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][usize::from(level)]
            }

            impl Talker {
                pub(super) fn open(options: MqttOptions) -> Self {
                    let (client, connection) = Client::new(options, 200);
                    let mut talker = Self { client, connection, session_present: false };
                    talker.session_present = talker.wait(|event| match event {
                        Event::Incoming(Packet::ConnAck(answer)) => Some(answer.session_present),
                        _ => None,
                    });
                    talker
                }

                /// Polls for events for at most this long; returns the first event that `pick` accepts.
                fn poll_until<T>(
                    &mut self,
                    time: Duration,
                    mut pick: impl FnMut(&Event) -> Option<T>,
                ) -> Option<T> {
                    let start = Instant::now();
                    while start.elapsed() < time {
                        match self.connection.recv_timeout(Duration::from_millis(50)) {
                            Ok(Ok(event)) => {
                                if let Some(found) = pick(&event) {
                                    return Some(found);
                                }
                            }
                            Ok(Err(error)) => panic!("the connection ended: {error}"),
                            Err(_) => {}
                        }
                    }
                    None
                }

                fn wait<T>(&mut self, pick: impl FnMut(&Event) -> Option<T>) -> T {
                    self.poll_until(TIMEOUT, pick).unwrap_or_else(|| panic!("it did not come within {TIMEOUT:?}"))
                }

                pub(super) fn subscribe(&mut self, filter: &str, level: u8) {
                    self.client.subscribe(filter, qos(level)).expect("it is asked");
                    self.wait(|event| matches!(event, Event::Incoming(Packet::SubAck(_))).then_some(()));
                }

                /// Publishes, and waits until the broker has the message (QoS 0: until it has left).
                pub(super) fn publish(&mut self, topic: &str, payload: &[u8], level: u8, retain: bool) {
                    self.client.publish(topic, qos(level), retain, payload.to_vec()).expect("it is asked");
                    self.published(level);
                }

                pub(super) fn published(&mut self, level: u8) {
                    self.wait(|event| {
                        let done = match level {
                            0 => matches!(event, Event::Outgoing(Outgoing::Publish(_))),
                            1 => matches!(event, Event::Incoming(Packet::PubAck(_))),
                            _ => matches!(event, Event::Incoming(Packet::PubComp(_))),
                        };
                        done.then_some(())
                    });
                }

                pub(super) fn message(&mut self) -> ReadMessage {
                    self.try_message(TIMEOUT).expect("it comes")
                }

                pub(super) fn try_message(&mut self, time: Duration) -> Option<ReadMessage> {
                    self.poll_until(time, |event| match event {
                        Event::Incoming(Packet::Publish(message)) => Some(came(message)),
                        _ => None,
                    })
                }

                /// Disconnects, and waits until the connection has ended.
                pub(super) fn leave(mut self) {
                    self.client.disconnect().expect("it is asked");
                    let start = Instant::now();
                    while start.elapsed() < TIMEOUT {
                        if matches!(self.connection.recv_timeout(Duration::from_millis(50)), Ok(Err(_))) {
                            return;
                        }
                    }
                    panic!("the connection did not end");
                }
            }

            fn came(message: &Publish) -> ReadMessage {
                let expiry: fn(&Publish) -> Option<u32> = $expiry;
                ReadMessage {
                    payload: message.payload.to_vec(),
                    qos: message.qos as u8,
                    retain: message.retain,
                    expiry: expiry(message),
                }
            }

            /// Checks every quality of service, and a session that resumes.
            pub(super) fn check(options: impl Fn(&str, bool) -> MqttOptions) {
                let (mut reader, mut writer) =
                    (Talker::open(options("reader", true)), Talker::open(options("writer", true)));
                for (published, subscribed) in
                    [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
                {
                    let topic = format!("qos/{published}/{subscribed}");
                    reader.subscribe(&topic, subscribed);
                    for number in 0..20 {
                        writer.publish(&topic, &[number], published, false);
                        let came = reader.message();
                        let qos = published.min(subscribed);
                        assert_eq!(
                            came,
                            ReadMessage { payload: vec![number], qos, retain: false, expiry: None }
                        );
                    }
                }
                let mut away = Talker::open(options("away", false));
                assert!(!away.session_present);
                away.subscribe("session", 2);
                away.leave();
                for number in 0..40 {
                    writer.publish("session", &[number], 1 + number % 2, false);
                }
                let mut back = Talker::open(options("away", false));
                assert!(back.session_present, "the session goes on");
                // messages of one QoS keep their order
                let came: Vec<u8> = (0..40).map(|_| back.message().payload[0]).collect();
                for parity in [0, 1] {
                    let of_one: Vec<u8> =
                        came.iter().copied().filter(|number| number % 2 == parity).collect();
                    assert_eq!(of_one, (0..40).filter(|number| number % 2 == parity).collect::<Vec<_>>());
                }
                drop(Talker::open(options("away", true)));
            }
        }
    };
}

clients!(v311, rumqttc, rumqttc, |_| None);
clients!(v5, rumqttc::v5, crate::new_packets, |message| {
    message.properties.as_ref().and_then(|properties| properties.message_expiry_interval)
});

/// The types of MQTT 5 under the names of the other module.
mod new_packets {
    pub(crate) use rumqttc::v5::mqttbytes::QoS;
    pub(crate) use rumqttc::v5::mqttbytes::v5::{Packet, Publish};
}

fn main() {
    let address = std::env::args().nth(1).expect("rumqttc_check HOST:PORT");
    let (host, port) = address.rsplit_once(':').expect("HOST:PORT");
    let port: u16 = port.parse().expect("a port");
    v311::check(|name, clean| {
        let mut options = rumqttc::MqttOptions::new(name, host, port);
        options.set_clean_session(clean);
        options
    });
    println!("MQTT 3.1.1: every quality of service; a session goes on");
    let options = |name: &str, clean: bool| {
        let mut options = rumqttc::v5::MqttOptions::new(name, host, port);
        options.set_clean_start(clean).set_session_expiry_interval((!clean).then_some(60));
        options
    };
    v5::check(options);
    println!("MQTT 5: every quality of service; a session goes on");
    let open = |name: &str| v5::Talker::open(options(name, true));
    retained(open);
    println!("MQTT 5: the expiry of a retained message is counted down, and it goes when it is over");
    shared(open);
    println!("MQTT 5: the members of a group share its messages");
    wills(open, options);
    println!("MQTT 5: a will is published when its client is gone without a word, and not otherwise");
}

fn retained(open: impl Fn(&str) -> v5::Talker) {
    let mut writer = open("writer");
    for (topic, seconds) in [("kept/short", 1), ("kept/long", 60)] {
        let expiry = PublishProperties { message_expiry_interval: Some(seconds), ..Default::default() };
        let qos = rumqttc::v5::mqttbytes::QoS::AtLeastOnce;
        writer.client.publish_with_properties(topic, qos, true, topic, expiry).expect("it is asked");
        writer.published(1);
    }
    std::thread::sleep(Duration::from_millis(2500));
    let mut late = open("late");
    late.subscribe("kept/+", 1);
    let came = late.message();
    assert_eq!((&came.payload[..], came.retain), (&b"kept/long"[..], true));
    assert!(came.expiry.is_some_and(|left| (1..60).contains(&left)), "{came:?}");
    assert_eq!(late.try_message(Duration::from_millis(300)), None);
}

fn shared(open: impl Fn(&str) -> v5::Talker) {
    let mut members = [open("one"), open("two")];
    members.iter_mut().for_each(|member| member.subscribe("$share/group/work", 1));
    let mut writer = open("writer");
    (0..100).for_each(|number| writer.publish("work", &[number], 1, false));
    let (mut came, mut of) = (BTreeSet::new(), [0, 0]);
    let start = Instant::now();
    while came.len() < 100 && start.elapsed() < TIMEOUT {
        for (member, of) in members.iter_mut().zip(&mut of) {
            while let Some(message) = member.try_message(Duration::from_millis(60)) {
                assert!(came.insert(message.payload[0]), "each message goes to one member");
                *of += 1;
            }
        }
    }
    assert!(came.len() == 100 && of.iter().all(|of| *of > 0), "{of:?}");
}

fn wills(open: impl Fn(&str) -> v5::Talker, options: impl Fn(&str, bool) -> rumqttc::v5::MqttOptions) {
    let mut watcher = open("watcher");
    watcher.subscribe("will", 1);
    let mortal = |name: &str| {
        let mut options = options(name, true);
        let qos = rumqttc::v5::mqttbytes::QoS::AtLeastOnce;
        options.set_last_will(LastWill::new("will", name, qos, false, None));
        v5::Talker::open(options)
    };
    mortal("polite").leave();
    drop(mortal("sudden"));
    assert_eq!(watcher.message().payload, b"sudden");
}
