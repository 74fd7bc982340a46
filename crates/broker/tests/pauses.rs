//! A broker that is paused, as by SIGSTOP or with its host: silence in the pause is no fault of its clients.

use crate::common::broker;
use crate::common::mqtt::{Raw, V5, V311};
use crate::common::watchdog::{while_pausing, within_a_minute};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unisono_broker::{Exposure, OWNER, Server};
use unisono_events_client::{
    Advertisement, BrokerAddress, ChannelWait, ClientOptions, EventDraft, SubscriptionSpec,
};

const LEASE: Duration = Duration::from_secs(1);
/// Longer than the lease, and than one and a half times the keep-alive of a second.
const PAUSE: Duration = Duration::from_secs(3);

#[test]
fn clients_that_speak_while_the_broker_is_paused_are_not_taken_for_silent() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let unix = directory.path().join("events");
        let mut server = Server::new(broker(), ChannelWait::Sleep).expect("descriptors are left");
        server.listen_unix(&unix, OWNER).expect("it listens");
        let any = "127.0.0.1:0".parse().expect("an address");
        let tcp = server.listen_tcp(any, Exposure::Loopback).expect("it listens");
        let mqtt = server.listen_mqtt(any, Exposure::Loopback).expect("it listens");
        let [paused, is_paused] = [const { AtomicBool::new(false) }; 2];
        let pause = || {
            while paused.load(Ordering::Acquire) {
                is_paused.store(true, Ordering::Release);
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        while_pausing(&mut server, &pause, || {
            let addresses = [
                BrokerAddress::Unix(unix.clone()),
                BrokerAddress::Shared(unix.clone()),
                BrokerAddress::Tcp(tcp),
            ];
            let mut programs = addresses.map(|address| {
                let mut program = ClientOptions::new().leased(LEASE).connect(&address).expect("it listens");
                program.subscribe(&SubscriptionSpec::new("quiet")).expect("it fits");
                let topic = program.advertise(&Advertisement::new("t")).expect("a topic");
                (program, topic)
            });
            let mut mqtt_clients = [(V311, "old"), (V5, "new")]
                .map(|(version, name)| Raw::open(mqtt, version).with_keep_alive(name, 1));
            paused.store(true, Ordering::Release);
            while !is_paused.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let until = Instant::now() + PAUSE;
            while Instant::now() < until {
                for (program, topic) in &mut programs {
                    program.publish(*topic, &EventDraft::new(b"alive")).expect("the broker is there");
                }
                mqtt_clients.iter_mut().for_each(|client| client.send(&[0xC0, 0]));
                std::thread::sleep(Duration::from_millis(100));
            }
            paused.store(false, Ordering::Release);
            for client in &mut mqtt_clients {
                assert_eq!(client.packet(), (0xD0, vec![]), "PINGRESP");
            }
            for (program, topic) in &mut programs {
                program.try_publish(*topic, &EventDraft::new(b"alive")).expect("its lease has not run out");
            }
        });
    });
}
