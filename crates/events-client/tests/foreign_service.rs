//! The error of a program that connects to a port where no broker listens, but another server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;
use unisono_events_client::{BrokerAddress, Client, ClientOptions, Error};

/// Connects to a server that sends these bytes and ends the connection.
fn connect_to(first: &'static [u8]) -> (SocketAddr, Error) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let server = thread::spawn(move || {
        let (mut program, _) = listener.accept().expect("a program");
        program.write_all(first).expect("the program is there");
        // an unread greeting would make the kernel reset the connection
        let _ = program.read(&mut [0; 4096]).expect("the greeting");
    });
    let error = Client::connect_tcp(address).expect_err("no broker listens there");
    server.join().expect("the server ends");
    (address, error)
}

#[test]
fn a_server_of_another_protocol_is_named_with_its_address() {
    for (first, service) in [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".as_slice(), "an HTTP server"),
        (b"SSH-2.0-OpenSSH_10.0\r\n", "an SSH server"),
        (b"\x20\x02\x00\x01", "an MQTT broker"),
        (b"\x20\x03\x00\x84\x00", "an MQTT broker"),
        (b"-ERR unknown command\r\n", "a server of another protocol"),
    ] {
        let (address, error) = connect_to(first);
        assert!(matches!(error, Error::ForeignService { .. }), "{error:?}");
        let said = error.to_string();
        assert!(
            said.starts_with(&format!("no Unisono broker answers at {address}, but {service}; ")),
            "{said}"
        );
    }
}

#[test]
fn a_connection_that_ends_without_an_answer_names_the_address() {
    let (address, error) = connect_to(b"");
    assert!(matches!(error, Error::NoGreeting { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.starts_with(&format!("no Unisono broker answers at {address}: ")), "{said}");
}

#[test]
fn a_server_that_accepts_and_stays_silent_is_named_with_its_address() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = directory.path().join("silent");
    // the kernel accepts connections to a listener that never takes them
    let local = UnixListener::bind(&path).expect("a scratch directory");
    let network = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = network.local_addr().expect("it is bound");
    for at in [BrokerAddress::Tcp(port), BrokerAddress::Unix(path.clone()), BrokerAddress::Shared(path)] {
        let options = ClientOptions::new().answered_within(Duration::from_millis(20));
        let error = options.connect(&at).expect_err("nobody answers");
        assert!(matches!(error, Error::SilentServer { .. }), "{error:?}");
        let said = error.to_string();
        let begin = format!("no Unisono broker answers at {at}: the server there accepted the connection, ");
        assert!(said.starts_with(&begin) && said.contains(" within 20ms; name the address "), "{said}");
    }
    drop((local, network));
}
