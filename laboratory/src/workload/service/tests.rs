//! Tests each application between a server and a client in this process.

use super::*;
use std::thread;
use unisono_events_client::ChannelWait;
use unisono_linux::clock;
use unisono_workload::conversation::{BrokerAddresses, ConversationCarrier, Serving};

pub(super) fn scene(application: Application, carrier: ConversationCarrier, port: u16) -> ServiceScene {
    let from = clock::now() + Duration::from_millis(200);
    let ends = ConversationScene {
        carrier,
        serving: Serving::OneThread,
        server: "127.0.0.1".parse().expect("an address"),
        broker: None,
        port,
        congestion: None,
        from,
        until: from + Duration::from_millis(700),
        rendezvous: None,
        timeout: std::time::Duration::from_secs(60),
        conversations: application.conversations(2, true),
        message_bytes: 1024,
        wait: ChannelWait::Sleep,
    };
    ServiceScene {
        application,
        ends,
        events_per_s: 200.0,
        file_bytes: 300_001,
        clients: 2,
        video: None,
        slow_part: 1.0,
        guard: None,
        passes: 1,
        round: Duration::from_millis(200),
        sensor: true,
        seed: 3,
    }
}

/// Returns the first of several consecutive ports that are free now. Tests run in parallel, so each gets
/// other ports.
fn ports() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    17_000 + (std::process::id() % 220) as u16 * 64 + NEXT.fetch_add(4, Ordering::Relaxed) % 64
}

fn run(scene: &ServiceScene) -> Vec<Figure> {
    thread::scope(|scope| {
        let server = scope.spawn(|| scene.run(ConversationEnd::Server).expect("it serves"));
        let mut figures = scene.run(ConversationEnd::Client).expect("it measures");
        figures.extend(server.join().expect("no panic"));
        figures
    })
}

fn value(figures: &[Figure], name: &str) -> f64 {
    figures.iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("{name} in {figures:?}")).value
}

#[test]
fn every_event_of_a_run_arrives_over_tcp() {
    let figures = run(&scene(Application::Events, ConversationCarrier::Tcp, ports()));
    assert_eq!(value(&figures, "events"), 140.0);
}

#[test]
fn a_file_arrives_whole_and_its_curve_rises() {
    let figures = run(&scene(Application::Download, ConversationCarrier::Tcp, ports()));
    let times: Vec<f64> =
        [25, 50, 75, 100].iter().map(|part| value(&figures, &format!("seconds_to_{part}_percent"))).collect();
    assert!(times.is_sorted() && times[0] > 0.0, "{times:?}");
    let received = figures.iter().find(|figure| figure.name == "received_mb").expect("the curve");
    let points = &received.curve.as_ref().expect("a curve").points;
    assert!(points.len() > 20 && points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 < b.1), "{points:?}");
    assert!((points[points.len() - 1].1 - 0.300_001).abs() < 1e-9, "{points:?}");
}

#[test]
fn the_console_is_acknowledged_and_the_monitor_hears_the_sensor() {
    for carrier in [ConversationCarrier::Tcp, ConversationCarrier::Udp] {
        let figures = run(&scene(Application::Control, carrier, ports()));
        assert!(value(&figures, "response_us") > 0.5);
        assert!(value(&figures, "sensor_received_updates") >= 15.0, "{figures:?}");
    }
}

#[test]
fn the_viewers_see_every_frame_of_every_round() {
    // two viewers, three rounds of six frames
    const FRAMES: f64 = 2.0 * 3.0 * 6.0;
    for carrier in [ConversationCarrier::Tcp, ConversationCarrier::Udp] {
        // a viewer leaves one round after the last one; frames that a busy machine delivers even later count
        // as lost, so the test tries another run
        let without_loss = (0..10).any(|_| {
            let figures = run(&scene(Application::Streaming, carrier, ports()));
            let frame = figures.iter().find(|figure| figure.name == "frame_ms").expect("frames");
            let seen = frame.distribution.expect("frames").n as f64;
            let lost = value(&figures, "lost_frames_percent");
            let arrivals = figures.iter().find(|figure| figure.name == "arrivals_percent").expect("frames");
            let bins = &arrivals.curve.as_ref().expect("a histogram").points;
            let came: f64 = bins.iter().map(|(_, percent)| percent).sum();
            assert!((came + lost - 100.0).abs() < 1e-6, "{came} % are in bins, {lost} % are lost");
            assert!((seen + FRAMES * lost / 100.0 - FRAMES).abs() < 1e-6, "{seen} came, {lost} % are lost");
            lost == 0.0
        });
        assert!(without_loss, "{carrier:?}");
    }
}

#[test]
fn the_frames_of_an_encoded_video_are_streamed_and_one_without_pictures_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let video = directory.path().join("video");
    // two pictures, each with a slice
    std::fs::write(&video, [[0, 0, 1, 0, 0, 0, 1, 1].as_slice(), &[7; 900]].concat().repeat(2))
        .expect("written");
    let scene = |video: &std::path::Path| ServiceScene {
        video: Some(video.to_owned()),
        ..scene(Application::Streaming, ConversationCarrier::Tcp, ports())
    };
    let figures = run(&scene(&video));
    assert!(value(&figures, "round_ms") > 0.0, "{figures:?}");
    std::fs::write(&video, [7; 900]).expect("written");
    assert!(
        streaming::encoded_sizes(&video).expect_err("nothing to show").to_string().contains("no picture")
    );
    assert_eq!(
        streaming::encoded_sizes(&directory.path().join("none")).expect_err("none").kind(),
        std::io::ErrorKind::Other
    );
}

#[test]
fn every_client_gets_the_whole_file_from_one_thread_or_from_one_for_each_request() {
    for serving in [Serving::OneThread, Serving::ThreadPerRequest] {
        let asked = scene(Application::Requests, ConversationCarrier::Tcp, ports());
        let figures = run(&ServiceScene {
            ends: ConversationScene { serving, message_bytes: 70_000, ..asked.ends.clone() },
            ..asked
        });
        assert!(value(&figures, "requests_per_s") > 4.0, "{figures:?}");
    }
}

/// Runs a scene with a broker that listens at a socket of its own.
fn run_with_broker(scene: impl Fn(BrokerAddresses) -> ServiceScene) -> Vec<Figure> {
    use std::sync::atomic::{AtomicBool, Ordering};
    use unisono_broker::{Broker, Limits, OWNER, Server};
    use unisono_fairqueue::{ClassSpec, Hierarchy};
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let broker = Broker::new(tree.expect("it is sound"), Limits::default());
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("broker");
    let mut server = Server::new(broker, ChannelWait::Sleep).expect("descriptors");
    server.listen_unix(&path, OWNER).expect("it listens");
    let address = format!("unix:{}", path.display());
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
fn one_server_answers_all_clients_by_request_and_reply() {
    for serving in [Serving::OneThread, Serving::ThreadPerRequest] {
        let figures = run_with_broker(|addresses| {
            let asked = scene(Application::Requests, ConversationCarrier::Reply, ports());
            let broker = Some(addresses);
            let ends = ConversationScene { broker, message_bytes: 20_000, serving, ..asked.ends };
            ServiceScene { ends, ..asked }
        });
        assert!(value(&figures, "requests_per_s") > 4.0, "{serving:?}: {figures:?}");
    }
}
