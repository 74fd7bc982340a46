use super::{LinkSent, LinkSupply, is_elsewhere};
use rustix::io::Errno;
use std::os::unix::net::UnixStream;
use std::time::{Duration as StdDuration, Instant as StdInstant};
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
