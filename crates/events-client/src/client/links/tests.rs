use super::{ClientLinks, ExpectedLink, KEY_TIMEOUT, LinkSent, LinkSupply, is_elsewhere};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration as StdDuration, Instant as StdInstant};
use unisono_events_wire::LinkKeys;
use unisono_events_wire::interrupt::InterruptPoll;
use unisono_events_wire::transport::{PayloadRef, StreamTransport};

/// A link to a consumer that blocks it, and whose buffers are full.
fn full() -> (LinkSupply, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("a socket");
    loop {
        match rustix::io::write(&ours, &[0; 4096]) {
            Ok(_) => {}
            Err(error) => break assert_eq!(error, Errno::AGAIN),
        }
    }
    let transport = Box::new(StreamTransport::new(ours.into(), 1 << 24).expect("a transport"));
    (LinkSupply { transport, blocks: true, events: 0, last: None }, theirs)
}

fn send(link: &mut LinkSupply, payload: &[u8], terms: (Option<StdInstant>, bool)) -> LinkSent {
    link.send((b"head", PayloadRef::Bytes(payload)), terms, &mut InterruptPoll::default())
}

#[test]
fn a_supplier_leaves_a_link_for_good_only_if_its_consumer_was_waited_for() {
    let soon = Some(StdInstant::now() + StdDuration::from_millis(1));
    for (terms, for_good) in [((None, true), false), ((soon, false), false), ((None, false), true)] {
        let (mut link, _theirs) = full();
        assert_eq!(send(&mut link, b"x", terms), LinkSent::Stalled { for_good });
    }
    let (mut link, _theirs) = full();
    link.blocks = false;
    assert_eq!(send(&mut link, b"x", (None, false)), LinkSent::Stalled { for_good: true });
}

#[test]
fn a_consumer_that_takes_an_event_in_small_pieces_does_not_hold_its_supplier() {
    let (mut link, theirs) = full();
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 65_536];
        while matches!(rustix::io::read(&theirs, &mut piece), Ok(1..)) {
            std::thread::sleep(StdDuration::from_millis(20));
        }
    });
    // the rest would take more than 5 s
    let sent = send(&mut link, &vec![0; 16_000_000], (None, false));
    assert_eq!(sent, LinkSent::Stalled { for_good: true });
    drop(link);
    reader.join().expect("it ends");
}

#[test]
fn only_a_broker_on_this_host_names_addresses_of_this_host() {
    for (address, broker, may) in [
        ("127.0.0.1:1", Some("192.0.2.1:2"), false),
        ("[::ffff:127.0.0.1]:1", Some("192.0.2.1:2"), false),
        ("0.0.0.0:1", None, false),
        ("127.0.0.1:1", Some("[::1]:2"), true),
        ("192.0.2.3:1", Some("192.0.2.1:2"), true),
    ] {
        let at = |text: &str| text.parse().expect("an address");
        assert_eq!(is_elsewhere(at(address), broker.map(at)), may, "{address} {broker:?}");
    }
}

#[test]
fn copies_of_descriptors_in_a_forked_child_wake_nobody_after_their_end() {
    let broker = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let broker = TcpStream::connect(broker.local_addr().expect("bound")).expect("it listens");
    let ready = epoll::create(CreateFlags::CLOEXEC).expect("a descriptor");
    let mut links = ClientLinks::default();
    let port = links.listener(broker.as_fd(), ready.as_fd()).expect("a free port");
    let keys = LinkKeys { supplier: String::new(), consumer: String::new() };
    let until = StdInstant::now() + KEY_TIMEOUT;
    links.expected.insert(9, ExpectedLink { number: 1, keys, until });
    let stranger = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    links.accept(ready.as_fd(), 1 << 16, StdDuration::ZERO);
    let incoming = links.incoming[0].transport.as_fd().try_clone_to_owned().expect("a descriptor");
    let listener = links.listener.as_ref().map(|it| it.as_fd().try_clone_to_owned());
    drop(stranger);
    while !links.incoming.is_empty() {
        links.accept(ready.as_fd(), 1 << 16, StdDuration::ZERO);
    }
    links.expected.clear();
    links.accept(ready.as_fd(), 1 << 16, StdDuration::ZERO);
    assert!(links.listener.is_none());
    let late = TcpStream::connect(("127.0.0.1", port)).expect("the copy listens");
    let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 4];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(epoll::wait(&ready, &mut events[..], Some(&at_once)), Ok(0));
    drop((incoming, listener, late));
}
