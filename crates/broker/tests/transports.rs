//! The transports, each under the conformance suite, and what only a stream can do wrong.

mod conformance;

#[path = "common/authority.rs"]
mod authority;

use authority::Authority;
use conformance::{End, LARGEST};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::net::{TcpListener, TcpStream};
use unisono_broker::memory::MemoryTransport;
use unisono_broker::transport::{StreamListener, StreamTransport, TransportError, TransportListener as _};
use unisono_broker::{TlsAddress, TlsService, Uncertified};

fn unix() -> (End, End) {
    let (one, other) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("two sockets");
    let end = |socket| -> End { Box::new(StreamTransport::new(socket, LARGEST).expect("a transport")) };
    (end(one), end(other))
}

fn memory() -> (End, End) {
    let (one, other) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("two sockets");
    let one = MemoryTransport::new(one, LARGEST).expect("a transport");
    (Box::new(one), Box::new(MemoryTransport::join(other).expect("a transport")))
}

fn tcp() -> (End, End) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let one = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (other, _) = listener.accept().expect("it connects");
    let end = |socket: TcpStream| -> End {
        Box::new(StreamTransport::new(socket.into(), LARGEST).expect("a transport"))
    };
    (end(one), end(other))
}

fn tls() -> (End, End) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let authority = Authority::new(directory.path(), "authority");
    let service = TlsService { own: authority.certify("broker", &["127.0.0.1"]), client_authority: None };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = TlsAddress {
        host: "127.0.0.1".to_owned(),
        address: listener.local_addr().expect("bound"),
        authority: Some(authority.file),
        own: None,
    };
    let certificates = service.read(Uncertified::Refused).expect("they are sound");
    let listener = StreamListener::new(listener.into(), 64 << 20).expect("a listener");
    let mut listener = listener.encrypted(certificates);
    let program = std::thread::spawn(move || address.open().expect("it listens"));
    let mut broker = loop {
        if let Some((transport, _)) = listener.accept().expect("it listens") {
            break transport;
        }
    };
    while !program.is_finished() || broker.peer_names().is_none() {
        assert!(broker.receive().expect("the other end is there").is_none());
    }
    (Box::new(program.join().expect("it does not panic")), broker)
}

conforms!(tls_stream, crate::tls);
conforms!(unix_stream, crate::unix);
conforms!(tcp_stream, crate::tcp);
conforms!(shared_memory, crate::memory);

#[test]
fn a_length_beyond_the_largest_breaks_the_stream_and_half_a_frame_reaches_nobody() {
    let raw = || {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("two sockets");
        (one, Box::new(StreamTransport::new(other, 1000).expect("a transport")) as End)
    };
    let (socket, mut end) = raw();
    send(&socket, &1001_u32.to_le_bytes(), SendFlags::NOSIGNAL).expect("sent");
    let refused = end.receive().expect_err("too long").to_string();
    assert_eq!(refused, "the other end breaks the protocol: a frame of 1001 bytes; the largest has 1000");
    let (socket, mut end) = raw();
    send(&socket, &[4, 0, 0, 0, 1, 2], SendFlags::NOSIGNAL).expect("sent");
    assert!(end.receive().expect("it may come yet").is_none());
    drop(socket);
    assert!(matches!(end.receive(), Err(TransportError::Closed)));
}
