//! Shared by the tests of the served broker: a broker that listens on every transport, under a watchdog.
#![allow(dead_code, reason = "each test uses some of it")]

pub(crate) mod bench;
pub(crate) mod identity_steps;
pub(crate) mod mqtt;

#[path = "../../../events-wire/tests/common/authority.rs"]
pub(crate) mod authority;
#[path = "../watchdog/mod.rs"]
pub(crate) mod watchdog;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use unisono_broker::{Broker, Exposure, Limits, OWNER, Server};
use unisono_events_client::{ChannelWait, Client, NoticeText, ReceivedEvent, Reception};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use watchdog::{while_serving, within_a_minute};

/// The addresses of a broker.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    pub(crate) unix: PathBuf,
    pub(crate) tcp: SocketAddr,
    pub(crate) mqtt: SocketAddr,
}

impl Addresses {
    pub(crate) fn client(&self) -> Client {
        Client::connect_unix(&self.unix).expect("it listens")
    }

    pub(crate) fn local(&self) -> [Client; 2] {
        [self.client(), Client::connect_shared(&self.unix).expect("it listens")]
    }

    pub(crate) fn clients(&self) -> [Client; 3] {
        let [unix, shared] = self.local();
        [unix, shared, Client::connect_tcp(self.tcp).expect("it listens")]
    }
}

pub(crate) fn broker() -> Broker {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    Broker::new(tree.expect("it is sound"), Limits::default())
}

/// Runs a test with a broker; fails after a minute.
pub(crate) fn with_broker(test: impl FnOnce(&Addresses) + Send + 'static) {
    with_this_broker(broker(), test);
}

/// Does the same as [`with_broker`], with a given broker.
pub(crate) fn with_this_broker(broker: Broker, test: impl FnOnce(&Addresses) + Send + 'static) {
    within_a_minute(move || {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let unix = directory.path().join("events");
        let mut server = Server::new(broker, ChannelWait::Sleep).expect("descriptors are left");
        server.listen_unix(&unix, OWNER).expect("it listens");
        let any = "127.0.0.1:0".parse().expect("an address");
        let tcp = server.listen_tcp(any, Exposure::Loopback).expect("it listens");
        let mqtt = server.listen_mqtt(any, Exposure::Loopback).expect("it listens");
        let addresses = Addresses { unix, tcp, mqtt };
        while_serving(&mut server, || test(&addresses));
    });
}

/// Runs a test with a server whose listeners the test sets up; fails after a minute.
pub(crate) fn with_server(
    broker: Broker,
    listen: impl FnOnce(&mut Server) -> Vec<SocketAddr> + Send + 'static,
    test: impl FnOnce(&[SocketAddr]) + Send + 'static,
) {
    within_a_minute(move || {
        let mut server = Server::new(broker, ChannelWait::Sleep).expect("descriptors are left");
        let addresses = listen(&mut server);
        while_serving(&mut server, || test(&addresses));
    });
}

pub(crate) fn event(client: &mut Client) -> ReceivedEvent {
    match client.receive(Some(Duration::from_secs(20))).expect("it goes on") {
        Some(Reception::Event(event)) => event,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn notice(client: &mut Client) -> NoticeText {
    match client.receive(Some(Duration::from_secs(20))).expect("it goes on") {
        Some(Reception::Notice { notice, .. }) => notice,
        other => panic!("{other:?}"),
    }
}
