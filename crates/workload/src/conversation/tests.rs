//! Null RPC between a server and a client of this process, over each carrier.

use super::*;
use std::thread;
use unisono_events_client::Client;
use unisono_linux::clock;
use unisono_measure::record::Figure;

pub(super) fn scene(carrier: ConversationCarrier, port: u16) -> ConversationScene {
    let from = clock::now() + clock::Duration::from_millis(200);
    ConversationScene {
        carrier,
        serving: Serving::OneThread,
        server: "127.0.0.1".parse().expect("an address"),
        broker: None,
        port,
        congestion: None,
        from,
        until: from + clock::Duration::from_millis(700),
        rendezvous: None,
        timeout: Duration::from_secs(60),
        conversations: 1,
        message_bytes: 0,
        wait: ChannelWait::Sleep,
    }
}

/// Returns the first of four consecutive ports for one test. Tests run in parallel, so the number depends on
/// the process and on a count of calls; whether the ports are free is not checked.
fn ports() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    31_000 + (std::process::id() % 220) as u16 * 64 + NEXT.fetch_add(4, Ordering::Relaxed) % 64
}

fn run(scene: &ConversationScene) -> Vec<Figure> {
    thread::scope(|scope| {
        let server = scope.spawn(|| null_rpc::run(scene, ConversationEnd::Server).expect("it serves"));
        let mut figures = null_rpc::run(scene, ConversationEnd::Client).expect("it measures");
        figures.extend(server.join().expect("no panic"));
        figures
    })
}

fn value(figures: &[Figure], name: &str) -> f64 {
    figures.iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("{name} in {figures:?}")).value
}

#[test]
fn a_null_rpc_is_answered_over_each_carrier_and_by_each_server() {
    for carrier in [ConversationCarrier::Tcp, ConversationCarrier::Udp] {
        for serving in [Serving::OneThread, Serving::ThreadPerRequest] {
            let figures = run(&ConversationScene { serving, ..scene(carrier, ports()) });
            assert!(
                value(&figures, "response_us") > 0.5 && value(&figures, "calls_per_s") > 10.0,
                "{figures:?}"
            );
        }
    }
}

#[test]
fn a_server_that_does_not_come_is_said_with_its_address() {
    let scene =
        ConversationScene { timeout: Duration::from_millis(100), ..scene(ConversationCarrier::Tcp, ports()) };
    let message = null_rpc::run(&scene, ConversationEnd::Client).expect_err("nobody listens").to_string();
    assert!(message.contains(&scene.port.to_string()), "{message}");
}

/// Runs a test beside a broker. The test gets the broker's socket, which clients reach by shared memory, and
/// its address over TCP, where it `introduces` its clients to each other, or does not.
fn with_broker<T>(introduces: bool, test: impl FnOnce([BrokerAddresses; 2]) -> T) -> T {
    use std::sync::atomic::{AtomicBool, Ordering};
    use unisono_broker::{Broker, Exposure, Limits, OWNER, Server};
    use unisono_fairqueue::{ClassSpec, Hierarchy};
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let broker = Broker::new(tree.expect("it is sound"), Limits::default());
    let broker = if introduces { broker.with_direct_tcp() } else { broker };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("broker");
    let mut server = Server::new(broker, ChannelWait::Sleep).expect("descriptors");
    server.listen_unix(&path, OWNER).expect("it listens");
    let tcp = server.listen_tcp("127.0.0.1:0".parse().expect("an address"), Exposure::Loopback);
    let tcp = format!("tcp:{}", tcp.expect("it listens"));
    let addresses = [path.display().to_string(), tcp]
        .map(|address| BrokerAddresses { for_server: address.clone(), for_client: address });
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&|| stop.load(Ordering::Relaxed)));
        let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(addresses)));
        stop.store(true, Ordering::Relaxed);
        serving.join().expect("no panic").expect("it serves");
        tested.expect("measured")
    })
}

#[test]
fn a_null_rpc_is_answered_over_shared_memory() {
    let figures = with_broker(false, |[memory, _]| {
        run(&ConversationScene { broker: Some(memory), ..scene(ConversationCarrier::ChannelShm, ports()) })
    });
    assert!(value(&figures, "calls_per_s") > 4.0, "{figures:?}");
}

#[test]
fn a_null_rpc_over_a_direct_link_passes_the_broker_only_until_the_link_stands() {
    let (figures, published) = with_broker(true, |[_, tcp]| {
        let address = tcp.for_client.parse::<BrokerAddress>().expect("an address");
        let mut operator = Client::at(&address).expect("it listens");
        let scene = scene(ConversationCarrier::ChannelLink, ports());
        let figures = run(&ConversationScene { broker: Some(tcp), ..scene });
        let published = operator.statistics().expect("it answers").published_by_topic;
        (figures, published.values().sum::<u64>())
    });
    let calls = value(&figures, "calls_per_s") * 0.7;
    assert!(calls > 4.0 && (published as f64) < 2.0 * calls, "{published} passed it; {figures:?}");
}

#[test]
fn a_broker_that_makes_no_direct_links_is_said() {
    let (server, client) = with_broker(false, |[_, tcp]| {
        let scene = ConversationScene {
            broker: Some(tcp),
            timeout: Duration::from_secs(3),
            ..scene(ConversationCarrier::ChannelLink, ports())
        };
        let end = |end| null_rpc::run(&scene, end).expect_err("no link").to_string();
        thread::scope(|scope| {
            let server = scope.spawn(|| end(ConversationEnd::Server));
            let client = end(ConversationEnd::Client);
            (server.join().expect("no panic"), client)
        })
    });
    for said in [&server, &client] {
        assert!(said.contains("no direct link"), "{server}; {client}");
    }
}
