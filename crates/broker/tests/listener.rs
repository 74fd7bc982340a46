//! Admission by a listener; and a connection that failed before it was accepted does not end the broker.

use crate::common::broker;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration as StdDuration;
use unisono_broker::{Broker, ClientId, Limits, OWNER, ServeError, Server, SocketOrigin, Task};
use unisono_events_client::{ChannelWait, Client, Duration, Greeting, Instant};
use unisono_events_wire::Frame;
use unisono_events_wire::transport::{
    AcceptedTransport, StreamListener, TransportError, TransportListener, TransportPeer,
};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_linux::poll::readable;

/// A listener whose `accept` fails once with each of these errors, and then accepts the waiting connection.
#[derive(Debug)]
struct Failing {
    errors: Vec<Errno>,
    listener: StreamListener,
}

impl TransportListener for Failing {
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError> {
        match self.errors.pop() {
            Some(error) => Err(TransportError::Failed(error.into())),
            None => self.listener.accept(),
        }
    }
}

impl AsFd for Failing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[test]
fn errors_that_the_network_left_on_a_connection_end_no_broker() {
    use Errno as E;
    let errors = vec![
        E::PROTO,
        E::HOSTUNREACH,
        E::HOSTDOWN,
        E::NETDOWN,
        E::NONET,
        E::NOPROTOOPT,
        E::OPNOTSUPP,
        E::NETUNREACH,
        E::TIMEDOUT,
        E::CONNABORTED,
        E::CONNRESET,
        E::PERM,
    ];
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("bound");
    crate::common::with_server(
        broker(),
        move |server| {
            let listener = StreamListener::new(socket.into(), 1 << 20).expect("a listener");
            server.add(Box::new(Failing { errors, listener })).expect("it can be waited for");
            vec![address]
        },
        |addresses| {
            Client::connect_tcp(addresses[0]).expect("it serves").statistics().expect("it goes on");
        },
    );
}

#[test]
fn a_socket_that_cannot_accept_ends_the_broker() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let _program = TcpStream::connect(socket.local_addr().expect("bound")).expect("it listens");
    let listener = StreamListener::new(socket.into(), 1 << 20).expect("a listener");
    let mut server = Server::new(broker(), ChannelWait::Sleep).expect("descriptors are left");
    server.add(Box::new(Failing { errors: vec![Errno::INVAL], listener })).expect("it can be waited for");
    assert!(matches!(server.serve(&|| false), Err(ServeError::Transport(_))));
}

#[test]
fn a_server_that_ends_removes_its_own_socket_and_not_the_one_of_another_server() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = directory.path().join("events");
    let serving = || {
        let mut server = Server::new(broker(), ChannelWait::Sleep).expect("descriptors are left");
        server.listen_unix(&path, OWNER).expect("it listens");
        server
    };
    let first = serving();
    std::fs::remove_file(&path).expect("it is there");
    let second = serving();
    drop(first);
    UnixStream::connect(&path).expect("the second server listens");
    drop(second);
    assert!(!path.exists());
}

#[test]
fn a_socket_of_systemd_that_does_not_listen_is_refused() {
    let mut server = Server::new(broker(), ChannelWait::Sleep).expect("descriptors are left");
    let datagrams = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
    server.inherit([datagrams], SocketOrigin::ServiceManager);
    assert!(matches!(server.listen_at_inherited(), Err(ServeError::NoListener)));
}

#[test]
fn one_that_resets_its_connection_before_it_is_accepted_is_no_program_of_this_host() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut program = TcpStream::connect(socket.local_addr().expect("bound")).expect("it listens");
    program.write_all(b"what it says without a token").expect("there is room");
    sockopt::set_socket_linger(&program, Some(StdDuration::ZERO)).expect("an option of sockets");
    drop(program); // by a reset
    let mut listener = StreamListener::new(socket.into(), 1 << 20).expect("a listener");
    assert!(readable([listener.as_fd()], Some(StdDuration::from_secs(20))).expect("poll")[0]);
    assert!(listener.accept().expect("it goes on").is_none());
}

fn small() -> Broker {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let limits = Limits { clients: 4, clients_of_user: 3, ..Limits::default() };
    Broker::new(tree.expect("it is sound"), limits)
}

fn at(address: &str) -> TransportPeer {
    TransportPeer::Address(address.parse().expect("an address"))
}

#[test]
fn those_who_say_nothing_keep_nobody_out_for_long() {
    let mut broker = small();
    let mut hello = Vec::new();
    Frame::Hello(Greeting::default()).write(&mut hello);
    let (one, other) = (at("192.0.2.1"), at("192.0.2.2"));
    assert!((0..3).all(|client| broker.connected(
        Instant::from_nanos(u64::from(client)),
        ClientId(client),
        one
    )));
    let _ = broker.received(Instant::from_nanos(5), ClientId(0), &hello, None);
    assert!(!broker.connected(Instant::from_nanos(6), ClientId(3), one), "its peer has three places");
    assert!(broker.connected(Instant::from_nanos(6), ClientId(4), other));
    assert!(!broker.connected(Instant::from_nanos(7), ClientId(5), other), "all places are taken");
    let later = Instant::from_secs(3);
    assert!(broker.connected(later + Duration::from_nanos(1), ClientId(6), one), "1 has not greeted");
    assert!(broker.connected(later + Duration::from_nanos(2), ClientId(7), other), "neither has 2");
    assert!(broker.connected(later + Duration::from_nanos(6), ClientId(8), one), "nor 4");
    let gone = |broker: &mut Broker| {
        std::iter::from_fn(|| broker.task())
            .filter_map(|task| match task {
                Task::SendAway { client, .. } => Some(client.0),
                _ => None,
            })
            .collect::<Vec<u32>>()
    };
    assert_eq!(gone(&mut broker), [1, 2, 4]);
    assert!(
        !broker.connected(later + Duration::from_nanos(6), ClientId(9), other),
        "0 has greeted, the others are new"
    );
}

#[test]
fn addresses_that_one_party_has_count_together() {
    for addresses in [
        ["127.0.0.1", "127.0.0.2", "::1", "127.9.9.9"],
        ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:0:ffff::1"],
    ] {
        let mut broker = small();
        let may: Vec<bool> = (0..)
            .zip(addresses)
            .map(|(id, it)| broker.connected(Instant::from_nanos(1), ClientId(id), at(it)))
            .collect();
        assert_eq!(may, [true, true, true, false], "{addresses:?}");
        assert!(
            broker.connected(Instant::from_nanos(1), ClientId(9), at("2001:db8:0:1::1")),
            "another network"
        );
    }
}
