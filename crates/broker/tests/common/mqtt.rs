//! An MQTT client for tests: it writes and reads packets byte by byte, so that it can send packets that
//! libraries forbid.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const V311: u8 = 4;
pub(crate) const V5: u8 = 5;

/// A connection.
#[derive(Debug)]
pub(crate) struct Raw {
    socket: TcpStream,
    version: u8,
    pub(crate) session_present: bool,
}

/// A received PUBLISH.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
    pub(crate) duplicate: bool,
    pub(crate) id: [u8; 2],
    /// Message expiry in seconds.
    pub(crate) expiry: Option<u32>,
    pub(crate) identifiers: Vec<u8>,
    pub(crate) content_type: Option<String>,
    /// The payload format indicator.
    pub(crate) is_utf_8: bool,
    user: Vec<(String, String)>,
}

impl Message {
    pub(crate) fn user(&self, name: &str) -> Option<String> {
        self.user.iter().find(|(other, _)| other == name).map(|(_, text)| text.clone())
    }
}

fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("it is short").to_be_bytes();
    [&length[..], text.as_bytes()].concat()
}

fn length(mut length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while length > 0x7F {
        bytes.push((length & 0x7F) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes
}

fn with_length(properties: &[u8]) -> Vec<u8> {
    [&length(properties.len())[..], properties].concat()
}

impl Raw {
    /// Opens a connection and sends no CONNECT.
    pub(crate) fn open(at: SocketAddr, version: u8) -> Self {
        let socket = TcpStream::connect(at).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        socket.set_nodelay(true).expect("a connection");
        Self { socket, version, session_present: false }
    }

    /// Connects a client with a clean session that ends with its connection.
    pub(crate) fn connect(at: SocketAddr, version: u8, name: &str) -> Self {
        Self::open(at, version).connected((name, 2), 0, &[], &[])
    }

    /// MQTT 5: connects with a session that outlives the connection by `seconds`.
    pub(crate) fn with_session(self, name: &str, seconds: u32) -> Self {
        let expiry = [&[0x11][..], &seconds.to_be_bytes()].concat();
        self.connected((name, 0), 0, &expiry, &[])
    }

    /// MQTT 5: connects with a limit on the packet size.
    pub(crate) fn with_largest(self, name: &str, bytes: u32) -> Self {
        let largest = [&[0x27][..], &bytes.to_be_bytes()].concat();
        self.connected((name, 2), 0, &largest, &[])
    }

    /// MQTT 5: connects with a session that outlives the connection, and a limit on concurrent messages of
    /// QoS 1 and 2.
    pub(crate) fn with_session_and_maximum(self, name: &str, maximum: u16) -> Self {
        let properties = [&[0x11, 0, 0, 0, 60, 0x21][..], &maximum.to_be_bytes()].concat();
        self.connected((name, 0), 0, &properties, &[])
    }

    /// MQTT 5: connects with a session that outlives the connection, and a limit on the packet size.
    pub(crate) fn with_session_and_largest(self, name: &str, bytes: u32) -> Self {
        let properties = [&[0x11, 0, 0, 0, 60, 0x27][..], &bytes.to_be_bytes()].concat();
        self.connected((name, 0), 0, &properties, &[])
    }

    /// MQTT 5: connects and asks the broker to send no reason texts.
    pub(crate) fn without_reasons(self, name: &str) -> Self {
        self.connected((name, 2), 0, &[0x17, 0], &[])
    }

    /// MQTT 5: connects and leaves the client identifier to the broker. Returns the broker's choice, too.
    pub(crate) fn with_chosen_name(mut self) -> (Self, String) {
        self.send_connect(("", 2), 0, &[], &[]);
        let (kind, body) = self.packet();
        assert_eq!((kind, body[1]), (0x20, 0));
        // after the maximum packet size (5 bytes) and the topic alias maximum (3 bytes)
        let name = body[3..].strip_prefix(&[0x27]).map(|rest| &rest[4 + 3..]).expect("the largest packet");
        assert_eq!(name[0], 0x12, "{body:?}");
        let name = take_text(&mut &name[1..]);
        (self, name)
    }

    pub(crate) fn with_keep_alive(self, name: &str, seconds: u16) -> Self {
        self.connected((name, 2), seconds, &[], &[])
    }

    pub(crate) fn with_will(self, name: &str, topic: &str, delay: u32) -> Self {
        let mut will = Vec::new();
        let mut properties = Vec::new();
        if self.version == V5 {
            will = with_length(&[&[0x18][..], &delay.to_be_bytes()].concat());
            properties = [&[0x11][..], &60_u32.to_be_bytes()].concat();
        }
        will.extend(text(topic));
        will.extend(text("gone"));
        self.connected((name, 0x06), 0, &properties, &will)
    }

    /// MQTT 5: connects with a will that expires after `seconds`.
    pub(crate) fn with_will_expiry(self, name: &str, topic: &str, seconds: u32) -> Self {
        let mut will = with_length(&[&[0x02][..], &seconds.to_be_bytes()].concat());
        will.extend(text(topic));
        will.extend(text("gone"));
        self.connected((name, 0x06), 0, &[], &will)
    }

    /// Connects with a user name and a password; returns the code of CONNACK.
    pub(crate) fn log_in(mut self, name: &str, user: &str, password: &str) -> (Self, u8) {
        let rest = [text(user), text(password)].concat();
        self.send_connect((name, 0xC2), 0, &[], &rest);
        let (kind, body) = self.packet();
        assert_eq!(kind, 0x20);
        (self, body[1])
    }

    fn send_connect(&mut self, (name, flags): (&str, u8), keep_alive: u16, properties: &[u8], rest: &[u8]) {
        let mut body = [&text("MQTT")[..], &[self.version, flags], &keep_alive.to_be_bytes()].concat();
        if self.version == V5 {
            body.extend(with_length(properties));
        }
        body.extend(text(name));
        body.extend(rest);
        self.send(&[&[0x10][..], &with_length(&body)].concat());
    }

    fn connected(mut self, name: (&str, u8), keep_alive: u16, properties: &[u8], rest: &[u8]) -> Self {
        self.send_connect(name, keep_alive, properties, rest);
        let (kind, body) = self.packet();
        assert_eq!((kind, body[1]), (0x20, 0), "{body:?}");
        self.session_present = body[0] == 1;
        self
    }

    /// Waits until the kernel of the broker's host has all bytes: a connection that is closed with unread
    /// answers loses those that had not left.
    pub(crate) fn wait_until_sent(&self) {
        let waits = || {
            let state = unisono_linux::tcp::silence(&self.socket).expect("a TCP socket");
            state.unacknowledged > 0 || state.unsent.is_some_and(|bytes| bytes > 0)
        };
        while waits() {
            std::thread::sleep(Duration::from_millis(1)); // under the watchdog
        }
    }

    /// Sends bytes; a connection closed by the broker is no failure here.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.try_send(bytes);
    }

    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Returns the next packet: its first byte, and the body behind its length.
    pub(crate) fn packet(&mut self) -> (u8, Vec<u8>) {
        self.try_packet().expect("the connection goes on")
    }

    fn try_packet(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let mut byte = [0];
        self.socket.read_exact(&mut byte)?;
        let (first, mut length, mut shift) = (byte[0], 0, 0);
        loop {
            self.socket.read_exact(&mut byte)?;
            length |= usize::from(byte[0] & 0x7F) << shift;
            shift += 7;
            if byte[0] & 0x80 == 0 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.socket.read_exact(&mut body)?;
        Ok((first, body))
    }

    /// Waits until the broker closes the connection, possibly after further packets. Returns whether it does
    /// so before the timeout.
    pub(crate) fn ends(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// Returns whether the broker closes the connection next, without a packet.
    pub(crate) fn ends_silently(&mut self) -> bool {
        let mut byte = [0];
        match self.socket.read(&mut byte) {
            Ok(length) => length == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// MQTT 5: returns whether the broker sends DISCONNECT and closes the connection.
    pub(crate) fn ends_after_disconnect(&mut self) -> bool {
        matches!(self.try_packet(), Ok((0xE0, _))) && self.ends()
    }

    pub(crate) fn subscribe(&mut self, id: u8, filter: &str, options: u8) {
        let code = self.subscribe_code(id, filter, options);
        assert_eq!(code, options & 3, "granted");
    }

    pub(crate) fn subscribe_code(&mut self, id: u8, filter: &str, options: u8) -> u8 {
        self.subscribe_with(id, filter, options, &[])
    }

    pub(crate) fn subscribe_identified(&mut self, id: u8, filter: &str, options: u8, identifier: u8) {
        assert_eq!(self.subscribe_with(id, filter, options, &[0x0B, identifier]), options & 3);
    }

    fn subscribe_with(&mut self, id: u8, filter: &str, options: u8, properties: &[u8]) -> u8 {
        self.send_subscribe_with(id, filter, options, properties);
        let (kind, body) = self.packet();
        assert_eq!((kind, body[1]), (0x90, id));
        *body.last().expect("a code")
    }

    pub(crate) fn send_subscribe(&mut self, id: u8, filter: &str, options: u8) {
        self.send_subscribe_with(id, filter, options, &[]);
    }

    pub(crate) fn send_subscribe_identified(&mut self, id: u8, filter: &str, identifier: u8) {
        self.send_subscribe_with(id, filter, 0, &[0x0B, identifier]);
    }

    fn send_subscribe_with(&mut self, id: u8, filter: &str, options: u8, properties: &[u8]) {
        let mut body = vec![0, id];
        if self.version == V5 {
            body.extend(with_length(properties));
        }
        body.extend(text(filter));
        body.push(options);
        self.send(&[&[0x82][..], &with_length(&body)].concat());
    }

    pub(crate) fn unsubscribe(&mut self, id: u8, filter: &str) {
        let mut body = vec![0, id];
        if self.version == V5 {
            body.push(0);
        }
        body.extend(text(filter));
        self.send(&[&[0xA2][..], &with_length(&body)].concat());
        assert_eq!(self.packet().0, 0xB0);
    }

    /// Publishes. With QoS 1 or 2, waits until the broker has confirmed the message.
    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8], qos: u8, retain: bool) {
        self.publish_full(topic, payload, qos, retain, None, &[]);
    }

    pub(crate) fn publish_with(&mut self, topic: &str, payload: &[u8], qos: u8, user: &[(&str, &str)]) {
        self.publish_full(topic, payload, qos, false, None, user);
    }

    pub(crate) fn publish_full(
        &mut self,
        topic: &str,
        payload: &[u8],
        qos: u8,
        retain: bool,
        expiry: Option<u32>,
        user: &[(&str, &str)],
    ) {
        self.send_publish((topic, payload), qos, retain, expiry, user);
        match qos {
            0 => {}
            1 => assert!(matches!(self.packet(), (0x40, body) if body[..2] == [0, 3])),
            _ => {
                assert_eq!(self.packet().0, 0x50);
                self.send(&[0x62, 2, 0, 3]);
                assert_eq!(self.packet().0, 0x70);
            }
        }
    }

    /// MQTT 5: publishes with QoS 0, a payload format indicator and, if given, a content type.
    pub(crate) fn publish_typed(&mut self, topic: &str, content_type: Option<&str>, is_utf_8: bool) {
        let mut properties = vec![0x01, u8::from(is_utf_8)];
        if let Some(content_type) = content_type {
            properties.push(0x03);
            properties.extend(text(content_type));
        }
        let body = [text(topic), with_length(&properties), b"x".to_vec()].concat();
        self.send(&[&[0x30][..], &with_length(&body)].concat());
    }

    /// Publishes without waiting for an answer.
    pub(crate) fn send_message(&mut self, topic: &str, payload: &[u8], qos: u8) {
        self.send_publish((topic, payload), qos, false, None, &[]);
    }

    /// Publishes with QoS 1 or 2. Returns the code of the answer.
    pub(crate) fn publish_code(&mut self, topic: &str, payload: &[u8], qos: u8) -> u8 {
        self.send_publish((topic, payload), qos, false, None, &[]);
        self.packet().1.get(2).copied().unwrap_or(0)
    }

    fn send_publish(
        &mut self,
        (topic, payload): (&str, &[u8]),
        qos: u8,
        retain: bool,
        expiry: Option<u32>,
        user: &[(&str, &str)],
    ) {
        let mut body = text(topic);
        if qos > 0 {
            body.extend([0, 3]);
        }
        if self.version == V5 {
            let mut properties = Vec::new();
            if let Some(seconds) = expiry {
                properties.push(2);
                properties.extend(seconds.to_be_bytes());
            }
            for (name, value) in user {
                properties.push(0x26);
                properties.extend(text(name));
                properties.extend(text(value));
            }
            body.extend(with_length(&properties));
        }
        body.extend(payload);
        let first = 0x30 | qos << 1 | u8::from(retain);
        self.send(&[&[first][..], &with_length(&body)].concat());
    }

    /// Returns the next packet, which has to be a PUBLISH.
    pub(crate) fn message(&mut self) -> Message {
        let (first, body) = self.packet();
        assert_eq!(first >> 4, 3, "{first:#x} {body:?}");
        let mut message = Message {
            qos: first >> 1 & 3,
            retain: first & 1 != 0,
            duplicate: first & 8 != 0,
            ..Message::default()
        };
        let mut rest = &body[..];
        message.topic = take_text(&mut rest);
        if message.qos > 0 {
            message.id = [rest[0], rest[1]];
            rest = &rest[2..];
        }
        if self.version == V5 {
            let length = take_length(&mut rest);
            let (mut properties, payload) = rest.split_at(length);
            rest = payload;
            while let Some((number, after)) = properties.split_first() {
                properties = after;
                match number {
                    0x02 => {
                        let (seconds, after) = properties.split_first_chunk().expect("four bytes");
                        message.expiry = Some(u32::from_be_bytes(*seconds));
                        properties = after;
                    }
                    0x01 => (message.is_utf_8, properties) = (properties[0] == 1, &properties[1..]),
                    0x03 => message.content_type = Some(take_text(&mut properties)),
                    0x0B => message.identifiers.push(take_length(&mut properties) as u8),
                    0x26 => {
                        let name = take_text(&mut properties);
                        message.user.push((name, take_text(&mut properties)));
                    }
                    other => panic!("the property {other:#x}"),
                }
            }
        }
        message.payload = rest.to_vec();
        message
    }

    /// Sends the confirmations that the QoS of a received message requires.
    pub(crate) fn confirm(&mut self, message: &Message) {
        let [high, low] = message.id;
        match message.qos {
            0 => {}
            1 => self.send(&[0x40, 2, high, low]),
            _ => {
                self.send(&[0x50, 2, high, low]);
                assert_eq!(self.packet(), (0x62, message.id.to_vec()));
                self.send(&[0x70, 2, high, low]);
            }
        }
    }

    /// Checks that no packet has come, and that none comes before the answer to a ping.
    pub(crate) fn is_quiet(&mut self) {
        std::thread::sleep(Duration::from_millis(50));
        self.send(&[0xC0, 0]);
        assert_eq!(self.packet(), (0xD0, Vec::new()));
    }
}

fn take_text(rest: &mut &[u8]) -> String {
    let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
    let text = String::from_utf8(rest[2..2 + length].to_vec()).expect("UTF-8");
    *rest = &rest[2 + length..];
    text
}

fn take_length(rest: &mut &[u8]) -> usize {
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = rest[0];
        *rest = &rest[1..];
        length |= usize::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return length;
        }
    }
}
