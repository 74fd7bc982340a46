//! Paths over real sockets, on the loopback device: each message arrives once and in order, whatever happens
//! to others. Every test ends under a watchdog.

use crate::common::watchdog::{while_serving, within_a_minute};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket,
};
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unisono_broker::{Broker, Limits, OWNER, ServeError, Server};
use unisono_events_client::{ChannelWait, Client, Destination, Error, Greeting, NO_DEADLINE};
use unisono_events_wire::Frame;
use unisono_fairqueue::{ClassSpec, Hierarchy, LinkPace, Rate};

/// Returns the link of the paths.
fn link(bits_per_second: u64) -> LinkPace {
    LinkPace::new(Rate::new(bits_per_second).expect("a positive rate"), Limits::MAX_LATENESS)
}

fn listening(path: &Path, mode: u32, broker: Broker) -> Result<Server, ServeError> {
    let mut server = Server::new(broker, ChannelWait::Sleep)?;
    server.listen_unix(path, mode)?;
    Ok(server)
}

/// Runs a test with a broker of two classes, 3 to 1, at 80 Mbit/s; fails after a minute.
fn with_broker(test: impl FnOnce(&Path) + Send + 'static) {
    within_a_minute(move || {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("broker");
        let leaf =
            |name: &str, weight: &str| ClassSpec::new(name).weighing(weight.parse().expect("a weight"));
        let tree = ClassSpec::new("link").with([leaf("video", "3"), leaf("web", "1")]);
        let tree = Hierarchy::new(tree).and_then(|tree| tree.with_default("web")).expect("it is sound");
        let broker = Broker::new(tree, Limits::default()).with_paths(link(80_000_000));
        let mut server = listening(&path, OWNER, broker).expect("it listens");
        while_serving(&mut server, || test(&path));
        drop(server);
        assert!(!path.exists(), "the socket is left behind");
    });
}

fn receiver() -> (UdpSocket, Destination) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time limit");
    let destination = Destination::udp(socket.local_addr().expect("bound"));
    (socket, destination)
}

#[test]
fn datagrams_arrive_as_they_were_handed_over_and_in_order() {
    with_broker(|path| {
        let (socket, destination) = receiver();
        let mut client = Client::connect_unix(path).expect("it listens");
        let channel = client.open("video", destination).expect("a channel");
        for number in 0..50_u32 {
            client.send(channel, &number.to_le_bytes(), NO_DEADLINE).expect("taken");
        }
        let mut bytes = [0; 16];
        for number in 0..50_u32 {
            let length = socket.recv(&mut bytes).expect("a datagram");
            assert_eq!(bytes[..length], number.to_le_bytes());
        }
        client.flush_path(channel).expect("all has left");
        let statistics = client.statistics().expect("an answer");
        let video = &statistics.classes[0];
        assert_eq!((video.name.as_str(), video.messages, video.lost), ("video", 50, 0));
        assert_eq!(video.delay_us.expect("delays").n, 50);
    });
}

#[test]
fn a_connection_carries_messages_with_their_lengths_and_a_client_that_dies_leaves_nothing_unsent() {
    with_broker(|path| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let destination = Destination::tcp(listener.local_addr().expect("bound"));
        let mut client = Client::connect_unix(path).expect("it listens");
        let channel = client.open("", destination).expect("the default class");
        let payload = vec![7; 9000];
        for _ in 0..30 {
            client.send(channel, &payload, NO_DEADLINE).expect("taken");
        }
        drop(client); // more than its credit has passed; the rest is the broker's
        let (mut stream, _) = listener.accept().expect("the broker connects");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("it ends when all is sent");
        assert_eq!(all.len(), 30 * 9004);
        for message in all.chunks(9004) {
            assert_eq!(message[..4], 9000_u32.to_be_bytes());
            assert!(message[4..].iter().all(|byte| *byte == 7));
        }
    });
}

#[test]
fn a_connection_that_is_not_read_holds_up_nobody() {
    with_broker(|path| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (socket, datagrams) = receiver();
        let mut client = Client::connect_unix(path).expect("it listens");
        let stuck =
            client.open("video", Destination::tcp(listener.local_addr().expect("bound"))).expect("a channel");
        let mut taken = 0_u64;
        let payload = vec![0; 16_000];
        // sends until the connection's buffers and the credit have been full for a while
        let mut refused = 0;
        while refused < 50 {
            if client.try_send(stuck, &payload, NO_DEADLINE).expect("open") {
                (taken, refused) = (taken + 1, 0);
            } else {
                refused += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(taken > 5);
        let other = client.open("video", datagrams).expect("a channel");
        client.send(other, b"through", NO_DEADLINE).expect("taken");
        let mut bytes = [0; 16];
        assert_eq!(socket.recv(&mut bytes).expect("a datagram"), 7);
        let (mut stream, _) = listener.accept().expect("the broker connects");
        client.close(stuck).expect("told");
        let mut left = Vec::new();
        stream.read_to_end(&mut left).expect("it ends");
        assert_eq!(left.len() as u64, taken * 16_004, "what was taken arrives");
    });
}

#[test]
fn nobody_at_a_destination_is_told_and_the_connection_to_the_broker_goes_on() {
    with_broker(|path| {
        let gone = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
        let mut client = Client::connect_unix(path).expect("it listens");
        let told = client.open("web", Destination::tcp(gone)).and_then(|channel| {
            loop {
                client.send(channel, b"hello?", NO_DEADLINE)?;
                client.flush_path(channel)?;
            }
        });
        let Err::<(), _>(Error::Closed(reason)) = told else { panic!("{told:?}") };
        assert!(reason.contains("refused") && reason.contains(&gone.to_string()), "{reason}");
        let unknown = client.open("nobody", Destination::udp(gone)).expect_err("no such class").to_string();
        assert_eq!(
            unknown,
            "the path is closed: the policy has no class `nobody`; name one that the broker's policy file has"
        );
        let bad = Destination { congestion: Some("no-such-thing".into()), ..Destination::tcp(gone) };
        assert!(matches!(client.open("web", bad), Err(Error::Closed(_))));
        assert_eq!(client.statistics().expect("an answer").clients, 1);
    });
}

fn raw(path: &Path) -> rustix::fd::OwnedFd {
    let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    connect(&socket, &SocketAddrUnix::new(path).expect("short")).expect("it listens");
    socket
}

/// Returns a frame preceded by its length, as in a stream.
fn framed(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    frame.write(&mut bytes);
    let length = u32::try_from(bytes.len() - 4).expect("short").to_le_bytes();
    bytes[..4].copy_from_slice(&length);
    bytes
}

#[test]
fn bad_frames_are_answered_once_and_end_that_connection_alone() {
    with_broker(|path| {
        let mut good = Client::connect_unix(path).expect("it listens");
        let mut hello = framed(&Frame::Hello(Greeting::default()));
        hello[0] += 1;
        hello.push(0);
        for bad in [[&[40, 0, 0, 0][..], &[9; 40]].concat(), framed(&Frame::Ask), vec![0xff; 60_000], hello] {
            let socket = raw(path);
            send(&socket, &bad, SendFlags::NOSIGNAL).expect("sent");
            let mut answer = Vec::new();
            let mut stream = std::os::unix::net::UnixStream::from(socket);
            // the server closes with unread input, so a reset may follow the answer
            let _ = stream.read_to_end(&mut answer);
            let Ok(Frame::Bye { reason }) = Frame::read(&answer[4..]) else { panic!("{bad:?}: {answer:?}") };
            assert!(!reason.is_empty());
        }
        let statistics = good.statistics().expect("it goes on");
        assert_eq!((statistics.clients, statistics.sent_away), (1, 4));
    });
}

#[test]
fn who_asks_and_never_reads_the_answers_is_dropped() {
    with_broker(|path| {
        let socket = raw(path);
        send(&socket, &framed(&Frame::Hello(Greeting::default())), SendFlags::NOSIGNAL).expect("sent");
        let ask = framed(&Frame::Ask);
        while send(&socket, &ask, SendFlags::NOSIGNAL).is_ok() {}
        let mut good = Client::connect_unix(path).expect("it listens");
        assert_eq!(good.statistics().expect("it goes on").clients, 1);
    });
}

#[test]
fn a_program_that_never_waits_for_credit_is_not_flooded_with_it() {
    with_broker(|path| {
        let (_socket, destination) = receiver();
        let mut client = Client::connect_unix(path).expect("it listens");
        let channel = client.open("video", destination).expect("a channel");
        // each message has left before the next one comes, and none makes the program poll for answers
        for _ in 0..2000 {
            client.send(channel, b"small", NO_DEADLINE).expect("taken");
            std::thread::sleep(Duration::from_micros(50));
        }
        client.flush_path(channel).expect("all has left");
        client.flush_path(channel).expect("nothing to wait for");
        assert_eq!(client.statistics().expect("an answer").classes[0].messages, 2000);
    });
}

#[test]
fn classes_that_both_want_more_share_by_weight() {
    with_broker(|path| {
        let (socket, destination) = receiver();
        let mut client = Client::connect_unix(path).expect("it listens");
        let channels =
            ["video", "web"].map(|class| client.open(class, destination.clone()).expect("a channel"));
        drop(socket); // the receiver does not matter
        let payload = [0; 1000];
        let full = channels.map(|channel| client.credit(channel).expect("open"));
        // A trial is valid if messages always wait on both paths, so that neither gets back all of its
        // credit. On a busy machine this process may sleep too long for that; such a trial is left out. If
        // the broker's answers are late, the test may not notice that; so two of three trials decide.
        let mut trial = || {
            let mut ran_dry = false;
            let before = client.statistics().expect("an answer").classes;
            for round in 0..40 {
                for (channel, full) in channels.into_iter().zip(full) {
                    ran_dry |= round > 0 && client.credit(channel).expect("open") >= full;
                    while client.try_send(channel, &payload, NO_DEADLINE).expect("open") {}
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            let after = client.statistics().expect("an answer").classes;
            ran_dry |=
                channels.into_iter().zip(full).any(|(at, full)| client.credit(at).expect("open") >= full);
            let [video, web] = [0, 1].map(|class| (after[class].bytes - before[class].bytes) as f64);
            (!ran_dry).then_some(video / web)
        };
        let ratios: Vec<f64> = (0..50).filter_map(|_| trial()).take(3).collect();
        assert_eq!(ratios.len(), 3, "this process never got a processor for 80 ms as often as it needs it");
        // one message more or less at either end
        let by_weight = ratios.iter().filter(|ratio| (**ratio - 3.0).abs() < 0.2).count();
        assert!(by_weight >= 2, "{ratios:?}");
    });
}

#[test]
fn a_socket_left_by_a_killed_broker_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path: PathBuf = directory.path().join("broker");
    let broker = || {
        let tree = Hierarchy::new(ClassSpec::new("link")).expect("one class");
        Broker::new(tree, Limits::default()).with_paths(link(1_000_000))
    };
    let left = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&left, &SocketAddrUnix::new(&path).expect("short")).expect("bound");
    drop(left);
    let first = listening(&path, OWNER, broker()).expect("it is replaced");
    assert!(matches!(listening(&path, OWNER, broker()), Err(ServeError::Taken { .. })));
    drop(first);
    std::fs::write(&path, "text").expect("written");
    assert!(matches!(listening(&path, OWNER, broker()), Err(ServeError::NoSocket { .. })));
}

/// Makes a broker of one class without connections.
fn server(path: &Path, mode: u32) -> Server {
    let tree = Hierarchy::new(ClassSpec::new("link")).expect("one class");
    listening(path, mode, Broker::new(tree, Limits::default()).with_paths(link(1_000_000)))
        .expect("it listens")
}

#[test]
fn nobody_else_may_connect_unless_the_mode_says_so() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = directory.path().join("broker");
    for mode in [OWNER, 0o660, 0o666] {
        let _server = server(&path, mode);
        assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o777, mode);
    }
}

#[test]
fn a_program_that_cannot_be_waited_for_is_closed_and_the_broker_serves_on() {
    use unisono_linux::seccomp::{ArgumentTest, CallRule, Filter, SystemCall};
    /// `EPOLL_CTL_ADD`, and the kernel's error when a user has reached the limit of watched descriptors.
    const ADD: u64 = 1;
    const ENOSPC: i32 = 28;
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = directory.path().join("broker");
    let mut server = server(&path, OWNER);
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let stops = std::sync::Arc::clone(&stop);
    let serving = std::thread::spawn(move || {
        Filter::refusing(&[CallRule(SystemCall::EPOLL_CTL, &[ArgumentTest::Is(1, ADD)])], ENOSPC)
            .install()?;
        Ok::<_, std::io::Error>(server.serve(&|| stops.load(Ordering::Relaxed)))
    });
    for _ in 0..3 {
        if serving.is_finished() {
            break; // no filters here
        }
        let socket = raw(&path);
        let answer = recv(&socket, &mut [0; 8][..], RecvFlags::empty());
        assert_eq!(answer.expect("it is closed").1, 0);
    }
    stop.store(true, Ordering::Relaxed);
    match serving.join().expect("it does not panic") {
        Ok(served) => {
            served.expect("one program's trouble is not the broker's");
        }
        Err(error) => eprintln!("skipped: no filters here: {error}"),
    }
}
