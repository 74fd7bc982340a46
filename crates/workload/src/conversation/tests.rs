//! Null RPC between a server and a client of this process, over each carrier.

use super::*;
use std::thread;
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

/// Runs a scene with a broker that listens at its own socket, which its clients reach by shared memory.
fn run_with_broker(scene: impl Fn(BrokerAddresses) -> ConversationScene) -> Vec<Figure> {
    use std::sync::atomic::{AtomicBool, Ordering};
    use unisono_broker::{Broker, Limits, OWNER, Server};
    use unisono_fairqueue::{ClassSpec, Hierarchy};
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let broker = Broker::new(tree.expect("it is sound"), Limits::default());
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("broker");
    let mut server = Server::new(broker, ChannelWait::Sleep).expect("descriptors");
    server.listen_unix(&path, OWNER).expect("it listens");
    let address = path.display().to_string();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&|| stop.load(Ordering::Relaxed)));
        let figures = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&scene(BrokerAddresses { for_server: address.clone(), for_client: address.clone() }))
        }));
        stop.store(true, Ordering::Relaxed);
        serving.join().expect("no panic").expect("it serves");
        figures.expect("measured")
    })
}

#[test]
fn a_null_rpc_is_answered_over_shared_memory() {
    let figures = run_with_broker(|addresses| ConversationScene {
        broker: Some(addresses),
        ..scene(ConversationCarrier::ChannelShm, ports())
    });
    assert!(value(&figures, "calls_per_s") > 4.0, "{figures:?}");
}
