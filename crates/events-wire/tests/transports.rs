//! Tests each transport with the conformance suite, and tests errors that only streams can have.

use crate::common::authority::Authority;
use crate::conformance::{End, MAX_EVENT_BYTES};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::io::ErrorKind::ConnectionReset;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_events_wire::memory::{LocalListener, MemoryTransport};
use unisono_events_wire::transport::{
    DatagramListener, Drained, FrameTransport as _, PayloadRef, StreamListener, StreamTransport, Taken,
    TransportError, TransportListener as _,
};
use unisono_events_wire::{TlsAddress, TlsService, Uncertified};
use unisono_linux::poll::readable;

/// The maximum time to wait for a program in these tests.
const TIMEOUT: Duration = Duration::from_secs(20);

fn unix() -> (End, End) {
    let (one, other) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("two sockets");
    let end =
        |socket| -> End { Box::new(StreamTransport::new(socket, MAX_EVENT_BYTES).expect("a transport")) };
    (end(one), end(other))
}

fn memory() -> (End, End) {
    let (one, other) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("two sockets");
    let one = MemoryTransport::new(one, MAX_EVENT_BYTES).expect("a transport");
    (Box::new(one), Box::new(MemoryTransport::join(other, TIMEOUT).expect("a transport")))
}

fn tcp() -> (End, End) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let one = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (other, _) = listener.accept().expect("it connects");
    let end = |socket: TcpStream| -> End {
        Box::new(StreamTransport::new(socket.into(), MAX_EVENT_BYTES).expect("a transport"))
    };
    (end(one), end(other))
}

/// Makes a broker's end that listens with TLS. Returns it with its address and the directory of the
/// certificates. `client_authority` makes the file with the programs' authority in that directory.
fn listening(
    client_authority: impl FnOnce(&Path) -> Option<PathBuf>,
) -> (StreamListener, TlsAddress, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let authority = Authority::new(directory.path(), "authority");
    let own = authority.certify("broker", &["127.0.0.1"]);
    let service = TlsService { own, client_authority: client_authority(directory.path()), revocations: None };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = TlsAddress {
        host: "127.0.0.1".to_owned(),
        address: listener.local_addr().expect("bound"),
        authority: Some(authority.file),
        own: None,
        token: None,
    };
    let certificates = service.read(Uncertified::Heard).expect("they are sound");
    let listener = StreamListener::new(listener.into(), 64 << 20).expect("a listener");
    (listener.encrypted(certificates), address, directory)
}

fn program_by_tls(at: &TlsAddress) -> StreamTransport {
    let tls = at.program("tls").expect("certificates");
    let socket = TcpStream::connect(at.address).expect("it listens");
    StreamTransport::connect_tls(socket.into(), 64 << 20, &tls, TIMEOUT).expect("it listens")
}

fn program_by_udp(at: &TlsAddress) -> StreamTransport {
    let tls = at.program("udp").expect("certificates");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.connect(at.address).expect("an address");
    let socket = (socket.into(), at.address);
    StreamTransport::connect_datagrams(socket, 64 << 20, &tls, TIMEOUT).expect("it listens")
}

fn accept(listener: &mut StreamListener) -> End {
    assert!(readable([listener.as_fd()], Some(TIMEOUT)).expect("poll")[0]);
    listener.accept().expect("it listens").expect("a program connects").0
}

fn tls_with(client_authority: impl FnOnce(&Path) -> Option<PathBuf>) -> (End, End) {
    let (mut listener, address, _directory) = listening(client_authority);
    let program = std::thread::spawn(move || program_by_tls(&address));
    let mut broker = accept(&mut listener);
    while !program.is_finished() || broker.peer_certificates().is_none() {
        assert!(broker.receive().expect("the other end is there").is_none());
    }
    (Box::new(program.join().expect("it does not panic")), broker)
}

fn tls() -> (End, End) {
    tls_with(|_| None)
}

/// Makes a broker's end that listens with UDP. Returns it with its address and the directory of the
/// certificates.
fn listening_by_udp() -> (DatagramListener, TlsAddress, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let authority = Authority::new(directory.path(), "authority");
    let own = authority.certify("broker", &["127.0.0.1"]);
    let certificates = TlsService { own, client_authority: None, revocations: None }.read(Uncertified::Heard);
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener =
        DatagramListener::bind(any, 64 << 20, &certificates.expect("they are sound"), Duration::from_secs(5));
    let listener = listener.expect("a free port");
    let address = TlsAddress {
        host: "127.0.0.1".to_owned(),
        address: listener.address(),
        authority: Some(authority.file),
        own: None,
        token: None,
    };
    (listener, address, directory)
}

fn udp() -> (End, End) {
    let (mut listener, address, _directory) = listening_by_udp();
    let program = std::thread::spawn(move || program_by_udp(&address));
    let mut broker = loop {
        assert!(readable([listener.as_fd()], Some(TIMEOUT)).expect("poll")[0]);
        if let Some((end, _)) = listener.accept().expect("it listens") {
            break end;
        }
    };
    while !program.is_finished() || broker.peer_certificates().is_none() {
        assert!(broker.receive().expect("the other end is there").is_none());
    }
    (Box::new(program.join().expect("it does not panic")), broker)
}

/// Makes a stream on which both ends compress the heads of their frames.
fn compressed() -> (End, End) {
    let (mut one, other) = unix();
    one.compress_heads();
    (one, other)
}

conforms!(datagrams, crate::transports::udp);
conforms!(compressed_stream, crate::transports::compressed);
conforms!(tls_stream, crate::transports::tls);
conforms!(unix_stream, crate::transports::unix);
conforms!(tcp_stream, crate::transports::tcp);
conforms!(shared_memory, crate::transports::memory);

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
    assert_eq!(
        refused,
        "the other end breaks the protocol: a frame of 1001 bytes is too large; the largest has 1000"
    );
    let (socket, mut end) = raw();
    send(&socket, &[4, 0, 0, 0, 1, 2], SendFlags::NOSIGNAL).expect("sent");
    assert!(end.receive().expect("it may come yet").is_none());
    drop(socket);
    assert!(matches!(end.receive(), Err(TransportError::Closed)));
}

#[test]
fn heads_are_compressed_both_ways_once_an_end_that_can_has_begun() {
    let (mut one, mut other) = unix();
    let measured = |from: &mut End, to: &mut End, number: u8| {
        let head = [[9; 40].as_slice(), &[number], &[9; 11]].concat();
        let taken = from.send(&head, PayloadRef::Bytes(&[5; 100])).expect("the other end is there");
        assert_eq!((taken, from.flush().expect("it is there")), (Taken::Taken, Drained::All));
        let bytes = rustix::io::ioctl_fionread(&**to).expect("a socket");
        let frame = to.receive().expect("it is sound").expect("it has come");
        assert_eq!(frame.bytes, [&head[..], &[5; 100]].concat());
        assert!(to.receive().expect("it is sound").is_none());
        bytes - 100
    };
    assert_eq!(measured(&mut one, &mut other, 1), 4 + 52, "nobody has begun");
    assert_eq!(measured(&mut other, &mut one, 2), 4 + 52);
    one.compress_heads();
    assert_eq!(measured(&mut one, &mut other, 3), 4 + 2 + 1 + 52, "the announcement and a whole head");
    assert_eq!(measured(&mut one, &mut other, 4), 1 + 1 + 1);
    assert_eq!(measured(&mut other, &mut one, 5), 4 + 2 + 1 + 52, "the other end has seen it");
    assert_eq!(measured(&mut other, &mut one, 6), 1 + 1 + 1);
}

#[test]
fn compressed_frames_that_are_wrong_break_the_stream() {
    let refused = |bytes: &[u8]| {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("two sockets");
        let mut end = StreamTransport::new(other, 1000).expect("a transport");
        send(&one, &[&[0xff, 0xff, 0xff, 0xfe], bytes].concat(), SendFlags::NOSIGNAL).expect("sent");
        loop {
            match end.receive() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("nothing is wrong with {bytes:?}"),
                Err(error) => break error.to_string(),
            }
        }
    };
    let what = |what: &str| format!("the other end breaks the protocol: {what}");
    assert_eq!(refused(&[0xff; 5]), what("a length that does not end"));
    assert_eq!(refused(&[0xea, 7]), what("a frame of 1001 bytes is too large; the largest has 1000"));
    assert_eq!(refused(&[0]), what("a frame of no bytes"));
    assert_eq!(refused(&[1, 3]), what("changes of a head that was never sent"));
    // the second frame is short enough as it is sent, but not after decompression of its head
    let second = [&[101, 0x80 | 100][..], &[1; 100], &[0xb2, 7, 0], &[1; 945]].concat();
    assert_eq!(refused(&second), what("a frame of 1001 bytes is too large; the largest has 1000"));
}

#[test]
fn a_program_connects_to_a_broker_that_names_many_authorities() {
    // rustls takes 4096 bytes at a time, and these names take more
    let _ = tls_with(|directory| {
        let names = (0..180).map(|number| format!("{number:-<60}"));
        let all: Vec<_> = names
            .map(|name| std::fs::read(Authority::new(directory, &name).file).expect("it was written"))
            .collect();
        let file = directory.join("all.pem");
        std::fs::write(&file, all.concat()).expect("a scratch directory");
        Some(file)
    });
}

#[test]
fn the_descriptor_tells_of_a_frame_that_came_with_the_end_of_a_handshake() {
    let (mut listener, address, _directory) = listening(|_| None);
    let program = std::thread::spawn(move || {
        let mut program = program_by_tls(&address);
        let taken = program.send(b"head", PayloadRef::Bytes(&[])).expect("the broker is there");
        assert_eq!((taken, program.flush().expect("the broker is there")), (Taken::Taken, Drained::All));
        program
    });
    let mut broker = accept(&mut listener);
    assert!(readable([broker.as_fd()], Some(TIMEOUT)).expect("poll")[0]);
    assert!(broker.receive().expect("a handshake").is_none());
    // both the end of the handshake and the frame are in transit
    let _program = program.join().expect("it does not panic");
    let _ = broker.flush().expect("the program is there");
    assert!(readable([broker.as_fd()], Some(TIMEOUT)).expect("poll")[0]);
    assert_eq!(broker.receive().expect("a frame").expect("a frame").bytes, b"head");
}

/// Makes the broker's end of a local connection, before the program has shown how it communicates.
fn unsettled(largest: usize) -> (End, UnixStream) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = directory.path().join("events");
    let listener = UnixListener::bind(&path).expect("a scratch directory");
    let mut listener = LocalListener::new(listener.into(), largest).expect("a listener");
    let program = UnixStream::connect(&path).expect("it listens");
    (listener.accept().expect("a socket that listens").expect("somebody connects").0, program)
}

#[test]
fn a_connection_that_gets_no_rings_ends_alone() {
    // no ring can have frames of this size
    let (mut broker, mut program) = unsettled(usize::MAX);
    program.write_all(&[1; 4]).expect("it is connected");
    let refused = broker.settle().expect_err("no memory is as large");
    assert!(matches!(refused, TransportError::Failed(_)), "{refused}");
    drop(broker);
    let end = program.read(&mut [0; 1]);
    assert!(
        end.as_ref().map_or_else(|error| error.kind() == ConnectionReset, |bytes| *bytes == 0),
        "{end:?}"
    );
}

#[test]
fn a_program_says_by_its_first_bytes_how_it_speaks_and_one_that_does_not_ends_alone() {
    let (mut broker, program) = unsettled(MAX_EVENT_BYTES);
    assert!(broker.settle().expect("it is connected").is_none());
    assert_eq!(broker.send(b"head", PayloadRef::Bytes(&[])).expect("it is connected"), Taken::Full);
    let program = std::thread::spawn(|| MemoryTransport::join(program.into(), TIMEOUT));
    assert!(readable([broker.as_fd()], Some(TIMEOUT)).expect("poll")[0]);
    let mut settled = broker.settle().expect("it is connected").expect("it has said how it speaks");
    let _program = program.join().expect("it does not panic").expect("offers of rings came");
    assert!(settled.passes());
    settled.woken().expect("offers of rings came");
    assert!(settled.receive().expect("rings").is_none());

    // a frame whose length begins like the greeting of the other kind, sent byte by byte
    for first in [&[1_u8][..], &[1, 1, 1]] {
        let (mut broker, mut program) = unsettled(MAX_EVENT_BYTES);
        let frame = [&0x10101_u32.to_le_bytes()[..], &[7; 0x10101]].concat();
        program.write_all(first).expect("it is connected");
        let mut settled = broker.settle().expect("it is connected").expect("it has said how it speaks");
        assert!(!settled.passes());
        let program = std::thread::spawn({
            let rest = frame[first.len()..].to_vec();
            move || program.write_all(&rest).map(|()| program)
        });
        let came = loop {
            if let Some(came) = settled.receive().expect("it is connected") {
                break came.bytes.to_vec();
            }
            assert!(readable([settled.as_fd()], Some(TIMEOUT)).expect("poll")[0]);
        };
        assert_eq!(came, frame[4..]);
        drop(program.join().expect("it does not panic").expect("it is connected"));
    }

    let (mut broker, program) = unsettled(MAX_EVENT_BYTES);
    drop(program);
    assert!(matches!(broker.settle(), Err(TransportError::Closed)));
}
