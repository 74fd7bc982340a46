//! MQTT over WebSocket: the handshake and its bounds, the frames, and the pages that may connect.

use crate::common::{broker, event, with_server};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use unisono_broker::{Exposure, WebEncryption};
use unisono_events_client::{Advertisement, Client, EventDraft, SubscriptionSpec};

/// CONNECT of MQTT 3.1.1 from the client `web`, and the answer to it.
const CONNECT: &[u8] = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x00\x00\x03web";
const CONNACK: &[u8] = b"\x20\x02\x00\x00";
const BINARY: u8 = 2;

/// A page's end of a WebSocket.
struct Page(TcpStream);

impl Page {
    fn open(at: SocketAddr) -> Self {
        let socket = TcpStream::connect(at).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        Self(socket)
    }

    /// Sends a request with these headers beside those that it must have; returns the answer's head.
    fn ask(&mut self, headers: &str) -> String {
        let request = format!(
            "GET /mqtt HTTP/1.1\r\nHost: plant\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        self.0.write_all(request.as_bytes()).expect("it leaves");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("an answer");
            head.push(byte[0]);
        }
        String::from_utf8(head).expect("a text")
    }

    fn connected(at: SocketAddr) -> Self {
        let mut page = Self::open(at);
        let head = page.ask("Sec-WebSocket-Protocol: other, mqtt\r\nOrigin: http://localhost:8080\r\n");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.to_lowercase().contains("sec-websocket-protocol: mqtt\r\n"), "{head}");
        // RFC 6455, section 1.3
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        page
    }

    /// Sends a frame, masked.
    fn send(&mut self, first: u8, payload: &[u8]) {
        let mask = [7, 0, 99, 200];
        let mut frame = vec![first];
        match u16::try_from(payload.len()) {
            Ok(short) if short < 126 => frame.push(0x80 | short as u8),
            Ok(middle) => {
                frame.push(0x80 | 126);
                frame.extend(middle.to_be_bytes());
            }
            Err(_) => {
                frame.push(0x80 | 127);
                frame.extend((payload.len() as u64).to_be_bytes());
            }
        }
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.0.write_all(&frame).expect("it leaves");
    }

    /// Returns the next frame: its first byte and its payload.
    fn frame(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).expect("a frame");
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).expect("a length");
                u16::from_be_bytes(length) as usize
            }
            127 => {
                let mut length = [0; 8];
                self.0.read_exact(&mut length).expect("a length");
                usize::try_from(u64::from_be_bytes(length)).expect("it fits")
            }
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).expect("a payload");
        (head[0], payload)
    }

    /// Returns the bytes of binary messages, until there are as many.
    fn stream(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let (first, payload) = self.frame();
            assert_eq!(first, 0x80 | BINARY, "a whole binary message");
            bytes.extend(payload);
        }
        bytes
    }

    /// Returns whether the broker ends the connection, whatever else it still sends.
    fn ends(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

fn with_websockets(
    origins: &'static [&'static str],
    test: impl FnOnce(SocketAddr, SocketAddr) + Send + 'static,
) {
    let listen = move |server: &mut unisono_broker::Server| {
        let any = "127.0.0.1:0".parse().expect("an address");
        let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
        let web = server.listen_mqtt_websocket(any, Exposure::Loopback, (WebEncryption::None, origins));
        vec![web.expect("it listens"), server.listen_tcp(any, Exposure::Loopback).expect("it listens")]
    };
    with_server(broker(), listen, |at| test(at[0], at[1]));
}

#[test]
fn packets_come_in_any_pieces_and_messages_of_any_length_pass_both_ways() {
    with_websockets(&[], |web, tcp| {
        let mut page = Page::connected(web);
        // one packet in several messages, in the fragments of one, byte by byte, with a ping between
        page.send(0x80 | BINARY, &CONNECT[..3]);
        page.send(BINARY, &CONNECT[3..4]);
        page.send(0x89, b"are you there");
        page.send(0, &[]);
        page.send(0x80, &CONNECT[4..]);
        assert_eq!(page.frame(), (0x8A, b"are you there".to_vec()), "a pong");
        assert_eq!(page.stream(CONNACK.len()), CONNACK);
        page.send(0x80 | BINARY, b"\x82\x06\x00\x01\x00\x01t\x00");
        assert_eq!(page.stream(5), b"\x90\x03\x00\x01\x00");
        let mut program = Client::connect_tcp(tcp).expect("it listens");
        program.subscribe(&SubscriptionSpec::new("up")).expect("it fits");
        let topic = program.advertise(&Advertisement::new("t")).expect("a topic");
        for length in [1_usize, 117, 118, 119, 5000, 65_000, 70_000, 1 << 20] {
            let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            program.publish(topic, &EventDraft::new(&payload)).expect("it leaves");
            let mut packet = vec![0x30];
            let mut rest = 3 + length;
            while rest > 0x7F {
                packet.push((rest & 0x7F) as u8 | 0x80);
                rest >>= 7;
            }
            packet.push(rest as u8);
            packet.extend(b"\x00\x01t");
            packet.extend(&payload);
            assert_eq!(page.stream(packet.len()), packet, "{length}");
            // the same packet, to another topic, back in one message
            let place = packet.len() - length - 3;
            let mut back = vec![0x30];
            let mut rest = 4 + length;
            while rest > 0x7F {
                back.push((rest & 0x7F) as u8 | 0x80);
                rest >>= 7;
            }
            back.push(rest as u8);
            back.extend(b"\x00\x02up");
            back.extend(&packet[place + 3..]);
            page.send(0x80 | BINARY, &back);
            assert_eq!(*event(&mut program).payload.bytes(), payload[..], "{length}");
        }
        page.send(0x88, &1000_u16.to_be_bytes());
        assert_eq!(page.frame().0, 0x88, "close is answered");
        assert!(page.ends());
        program.statistics().expect("others go on");
    });
}

#[test]
fn a_page_of_another_host_is_refused_unless_the_operator_names_it() {
    with_websockets(&["https://plant.example"], |web, _| {
        for (origin, status) in [
            ("Origin: https://evil.example\r\n", "403"),
            ("Origin: null\r\n", "403"),
            ("Origin: http://localhost.evil.example\r\n", "403"),
            ("Origin: https://plant.example.evil.example\r\n", "403"),
            ("Origin: http://127.0.0.1:3000\r\nOrigin: https://evil.example\r\n", "403"),
            ("Origin: https://plant.example\r\n", "101"),
            ("Origin: http://[::1]:80\r\n", "101"),
            ("", "101"),
        ] {
            let mut page = Page::open(web);
            let head = page.ask(&format!("Sec-WebSocket-Protocol: mqtt\r\n{origin}"));
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{origin}: {head}");
            assert!(status == "101" || page.ends());
        }
    });
}

#[test]
fn requests_and_frames_that_are_wrong_end_their_connection_alone() {
    with_websockets(&[], |web, _| {
        let mut other = Page::connected(web);
        let mut page = Page::open(web);
        assert!(page.ask("").starts_with("HTTP/1.1 400 "), "without a sub-protocol");
        let mut page = Page::open(web);
        assert!(page.ask(&format!("X: {}\r\n", "x".repeat(8192))).starts_with("HTTP/1.1 431 "));
        let mut page = Page::open(web);
        page.0.write_all(b"\x16\x03\x01\x00\x05hello there, this is TLS").expect("it leaves");
        assert!(page.ends(), "no HTTP");
        for (first, payload, what) in [
            (0x81, &b"text"[..], "a text"),
            (0x80, b"rest", "the rest of no message"),
            (0xC2, b"x", "a reserved bit"),
            (0x83, b"x", "an unknown kind"),
            (0x09, b"x", "a ping in pieces"),
            (0x89, &[0; 126], "a long ping"),
        ] {
            let mut page = Page::connected(web);
            page.send(first, payload);
            assert!(page.ends(), "{what}");
        }
        let mut page = Page::connected(web);
        page.0.write_all(&[0x82, 1, 0]).expect("it leaves");
        assert!(page.ends(), "a frame without a mask");
        let mut page = Page::connected(web);
        let flood = [0x82, 0x80, 0, 0, 0, 0].repeat(500_000);
        // fails once the broker has ended the connection
        let _ = page.0.write_all(&flood);
        assert!(page.ends(), "a flood of empty frames");
        other.send(0x80 | BINARY, CONNECT);
        assert_eq!(other.stream(CONNACK.len()), CONNACK, "others go on");
    });
}
