//! A broker's end of a WebSocket (RFC 6455) over a socket or TLS: the payload bytes of its binary messages
//! form the stream, as MQTT requires (MQTT 5.0, section 6).
//!
//! ```text
//!   GET, Upgrade: websocket, protocol mqtt  ->  101  ->  frames: payload bytes go on, pings are answered
//! ```
//! Payloads are unmasked in the caller's buffer, so that this channel collects no whole message. The
//! handshake is bounded in bytes by [`MAX_HANDSHAKE`], and in time by the limit for a program's greeting.
//!
//! A browser lets every page connect to every address, the broker of this host included, and names the page's
//! origin in the header `Origin`. Pages from other hosts are refused unless the operator lists their origins.
//!
//! Cost: in addition to a plain socket, a copy of outgoing bytes and an exclusive-or of incoming ones; 8 KiB
//! for the handshake and for headers.

use super::socket::Intake;
use super::socket_channel::SocketChannel;
use super::{PollFor, TransportError};
use crate::tls::CertificateChain;
use std::io::Cursor;
use std::net::IpAddr;
use std::sync::Arc;
use tungstenite::handshake::machine::TryParse as _;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

/// Maximum bytes of a request: as many as common servers accept for all headers. Chosen, not measured.
const MAX_HANDSHAKE: usize = 8 << 10;
/// Maximum payload bytes of one outgoing frame.
const MAX_OUTGOING_FRAME: usize = 64 << 10;
/// The number of unsent bytes from which on pings are no longer answered.
const MAX_PONGS: usize = 4 << 10;
/// Maximum frames in a row without a byte of a message: a flood of them must not keep the reader from its
/// other connections. An honest client sends only occasional pings. Chosen by this argument, not measured.
const MAX_EMPTY_FRAMES: usize = 1024;
/// Maximum bytes of a control frame's payload (RFC 6455, 5.5).
const MAX_CONTROL: u64 = 125;

/// The origins whose pages may connect, in addition to this host's own origins: `https://plant.example`.
pub type WebOrigins = Arc<[String]>;

#[derive(Debug)]
pub(super) struct WebSocketChannel {
    below: SocketChannel,
    origins: WebOrigins,
    state: WebSocketState,
    /// Received bytes; `arrived[start..end]` is not consumed yet.
    arrived: Box<[u8]>,
    start: usize,
    end: usize,
    /// The frame whose payload is being read.
    frame: Option<IncomingFrameState>,
    /// The payload of a control frame.
    control: Vec<u8>,
    /// Whether more frames of the current message follow.
    in_message: bool,
    /// Bytes for the channel below; the bytes before `sent` have left.
    outgoing: Vec<u8>,
    sent: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WebSocketState {
    Handshake,
    Open,
    /// The handshake was refused, or one end has closed: nothing more is read or written.
    Over,
}

#[derive(Clone, Copy, Debug)]
struct IncomingFrameState {
    kind: OpCode,
    left: u64,
    mask: [u8; 4],
    /// The index of the mask byte for the next payload byte.
    turn: usize,
}

impl IncomingFrameState {
    fn unmask(&mut self, bytes: &mut [u8]) {
        for byte in bytes.iter_mut() {
            *byte ^= self.mask[self.turn % 4];
            self.turn = (self.turn + 1) % 4;
        }
        self.left -= bytes.len() as u64;
    }
}

fn broken(what: &str) -> TransportError {
    TransportError::Broken(format!("WebSocket: {what}"))
}

impl WebSocketChannel {
    pub(super) fn accept(below: SocketChannel, origins: WebOrigins) -> Self {
        Self {
            below,
            origins,
            state: WebSocketState::Handshake,
            arrived: vec![0; MAX_HANDSHAKE].into(),
            start: 0,
            end: 0,
            frame: None,
            control: Vec::new(),
            in_message: false,
            outgoing: Vec::new(),
            sent: 0,
        }
    }

    pub(super) fn poll_for(&self, unsent: bool) -> PollFor {
        self.below.poll_for(unsent || !self.outgoing.is_empty())
    }

    pub(super) fn peer_certificates(&self) -> Option<CertificateChain> {
        self.below.peer_certificates()
    }

    pub(super) fn write(&mut self, pieces: &[&[u8]]) -> Result<usize, TransportError> {
        match self.state {
            WebSocketState::Handshake => return Ok(0),
            WebSocketState::Over => return Ok(pieces.iter().map(|piece| piece.len()).sum()),
            WebSocketState::Open => {}
        }
        let mut taken = 0;
        for piece in pieces {
            for part in piece.chunks(MAX_OUTGOING_FRAME) {
                if !self.push()? {
                    return Ok(taken);
                }
                self.put(OpCode::Data(Data::Binary), part);
                taken += part.len();
            }
        }
        let _ = self.push()?;
        Ok(taken)
    }

    pub(super) fn flush(&mut self) -> Result<bool, TransportError> {
        Ok(self.push()? && self.below.flush()?)
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Intake, TransportError> {
        let mut frames = 0;
        loop {
            if frames > MAX_EMPTY_FRAMES {
                return Err(broken("a flood of frames without data"));
            }
            match (self.state, self.frame) {
                (WebSocketState::Over, _) => return Ok(Intake::Ended),
                (WebSocketState::Handshake, _) => {
                    if !self.shake_hands()? {
                        match self.fill()? {
                            Intake::Bytes { .. } => {}
                            other => return Ok(other),
                        }
                    }
                }
                (WebSocketState::Open, None) => {
                    if !self.begin_frame()? {
                        match self.fill()? {
                            Intake::Bytes { .. } => {}
                            other => return Ok(other),
                        }
                    }
                }
                (WebSocketState::Open, Some(mut frame)) => {
                    let is_data = matches!(frame.kind, OpCode::Data(_));
                    if frame.left == 0 {
                        self.frame = None;
                        frames += 1;
                        if !is_data {
                            self.end_control(frame.kind)?;
                        }
                        continue;
                    }
                    let most = into.len().min(usize::try_from(frame.left).unwrap_or(usize::MAX));
                    if self.start < self.end || !is_data {
                        if self.start == self.end {
                            match self.fill()? {
                                Intake::Bytes { .. } => {}
                                other => return Ok(other),
                            }
                        }
                        let count = most.min(self.end - self.start);
                        let bytes = &mut self.arrived[self.start..self.start + count];
                        frame.unmask(bytes);
                        self.start += count;
                        self.frame = Some(frame);
                        if is_data {
                            into[..count].copy_from_slice(bytes);
                            return Ok(Intake::Bytes { count, all: false });
                        }
                        self.control.extend_from_slice(bytes);
                        continue;
                    }
                    let intake = self.below.read(&mut into[..most])?;
                    if let Intake::Bytes { count, .. } = intake {
                        frame.unmask(&mut into[..count]);
                        self.frame = Some(frame);
                    }
                    return Ok(intake);
                }
            }
        }
    }

    /// Reads more bytes from the channel below, and appends them to the bytes that have arrived.
    fn fill(&mut self) -> Result<Intake, TransportError> {
        self.arrived.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let intake = self.below.read(&mut self.arrived[self.end..])?;
        if let Intake::Bytes { count, .. } = intake {
            self.end += count;
        }
        Ok(intake)
    }

    /// Answers the handshake request once the whole request has arrived. Returns whether it has.
    fn shake_hands(&mut self) -> Result<bool, TransportError> {
        let answer = match Request::try_parse(&self.arrived[..self.end]) {
            Ok(None) if self.end < self.arrived.len() => return Ok(false),
            Ok(None) => {
                Err(("431 Request Header Fields Too Large", "a request of more than 8 KiB".to_owned()))
            }
            Err(error) => Err(("400 Bad Request", error.to_string())),
            Ok(Some((length, request))) => {
                self.start = length;
                self.answer(&request)
            }
        };
        match answer {
            Ok(answer) => {
                self.outgoing.extend(answer);
                self.state = WebSocketState::Open;
                let _ = self.push()?;
                Ok(true)
            }
            Err((status, why)) => {
                let text = format!("{why}\n");
                let length = text.len();
                let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n");
                let rest = format!("Content-Length: {length}\r\nConnection: close\r\n\r\n{text}");
                self.outgoing.extend([head, rest].concat().into_bytes());
                self.state = WebSocketState::Over;
                let _ = self.push();
                Err(broken(&why))
            }
        }
    }

    fn answer(&self, request: &Request) -> Result<Vec<u8>, (&'static str, String)> {
        let bad = |why: String| ("400 Bad Request", why);
        let header = |name: &str| {
            request.headers().get_all(name).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>()
        };
        let mut response = create_response(request).map_err(|error| bad(error.to_string()))?;
        for origin in header("origin") {
            if !is_of_this_host(origin) && !self.origins.iter().any(|known| known == origin) {
                let why = format!("pages of {origin} may not connect; name it with --mqtt-origin {origin}");
                return Err(("403 Forbidden", why));
            }
        }
        let offered = header("sec-websocket-protocol");
        let offered = offered.iter().flat_map(|list| list.split(',')).map(str::trim);
        let protocol = offered.into_iter().find(|protocol| matches!(*protocol, "mqtt" | "mqttv3.1"));
        let protocol = protocol.ok_or_else(|| bad("the sub-protocol `mqtt` is missing".to_owned()))?;
        let protocol = protocol.parse().map_err(|_| bad("a sub-protocol that is no header".to_owned()))?;
        response.headers_mut().insert("Sec-WebSocket-Protocol", protocol);
        let mut bytes = Vec::new();
        write_response(&mut bytes, &response).map_err(|error| bad(error.to_string()))?;
        Ok(bytes)
    }

    /// Consumes the header of the next frame once the whole header has arrived. Returns whether it has.
    fn begin_frame(&mut self) -> Result<bool, TransportError> {
        let mut cursor = Cursor::new(&self.arrived[self.start..self.end]);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|error| broken(&error.to_string()))?;
        let Some((header, left)) = parsed else { return Ok(false) };
        self.start += cursor.position() as usize;
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(broken("an extension that was not agreed on"));
        }
        let mask = header.mask.ok_or_else(|| broken("a frame that is not masked"))?;
        match header.opcode {
            OpCode::Data(Data::Binary) if !self.in_message => self.in_message = !header.is_final,
            OpCode::Data(Data::Continue) if self.in_message => self.in_message = !header.is_final,
            OpCode::Data(Data::Text) => return Err(broken("a text, where MQTT has binary messages")),
            OpCode::Data(_) => return Err(broken("a frame of another message")),
            OpCode::Control(Control::Reserved(_)) => return Err(broken("an unknown control frame")),
            OpCode::Control(_) if left > MAX_CONTROL || !header.is_final => {
                return Err(broken("a control frame that is too long"));
            }
            OpCode::Control(_) => self.control.clear(),
        }
        self.frame = Some(IncomingFrameState { kind: header.opcode, left, mask, turn: 0 });
        Ok(true)
    }

    fn end_control(&mut self, kind: OpCode) -> Result<(), TransportError> {
        match kind {
            OpCode::Control(Control::Ping) if self.outgoing.len() < MAX_PONGS => {
                let payload = std::mem::take(&mut self.control);
                self.put(OpCode::Control(Control::Pong), &payload);
                let _ = self.push()?;
            }
            OpCode::Control(Control::Close) => self.send_close(),
            _ => {}
        }
        Ok(())
    }

    /// Appends a frame.
    fn put(&mut self, kind: OpCode, payload: &[u8]) {
        let header = FrameHeader { opcode: kind, ..FrameHeader::default() };
        header.format(payload.len() as u64, &mut self.outgoing).expect("because memory takes all bytes");
        self.outgoing.extend_from_slice(payload);
    }

    /// Passes waiting bytes to the channel below. Returns whether it has accepted all of them.
    fn push(&mut self) -> Result<bool, TransportError> {
        while self.sent < self.outgoing.len() {
            match self.below.write(&[&self.outgoing[self.sent..]])? {
                0 => return Ok(false),
                count => self.sent += count,
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Tells the other end that no more bytes follow. Bytes that do not leave now are lost.
    pub(super) fn send_close(&mut self) {
        if self.state == WebSocketState::Open {
            self.put(OpCode::Control(Control::Close), &u16::from(CloseCode::Normal).to_be_bytes());
            self.state = WebSocketState::Over;
        }
        let _ = self.push();
    }

    pub(super) fn close(&mut self) {
        self.send_close();
        self.below.close();
    }
}

unisono_linux::as_fd!(WebSocketChannel.below);

/// Returns whether an origin, such as `http://localhost:8080`, is `localhost` or a loopback address.
fn is_of_this_host(origin: &str) -> bool {
    let Some((_, place)) = origin.split_once("://") else { return false };
    let host = match place.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => place.split(':').next(),
    };
    let host = host.unwrap_or_default();
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_host_are_of_this_host() {
        for origin in ["http://localhost", "https://localhost:8080", "http://127.0.0.1:1", "http://[::1]:80"]
        {
            assert!(is_of_this_host(origin), "{origin}");
        }
        for origin in [
            "null",
            "",
            "file://",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "http://10.0.0.1",
        ] {
            assert!(!is_of_this_host(origin), "{origin}");
        }
    }
}
