//! Conversations over the kernel's sockets: TCP with a length before each message, UDP in datagrams that
//! carry a part of a message each.

use super::{Conversation, NextMessage, PATIENCE, ServiceEnd, ServiceScene};
use crate::workload::Error;
use crate::workload::patience::patiently;
use crate::workload::traffic::connect;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;
use unisono_linux::timer;

/// A socket that has nothing to read is asked again after this time, so that the end of waiting is noticed.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes of a TCP message's length.
const LENGTH: usize = 4;

/// Largest message that is believed.
const LONGEST: usize = 16 << 20;

fn address(scene: &ServiceScene, number: u16) -> SocketAddr {
    SocketAddr::new(scene.server, scene.port + number)
}

fn any(of: IpAddr, port: u16) -> SocketAddr {
    let any: IpAddr = if of.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, port)
}

fn failed(address: SocketAddr, error: &io::Error) -> Error {
    Error::Exchange(format!("{address}: {error}"))
}

/// Opens conversation `number` over TCP.
pub(super) fn tcp(
    scene: &ServiceScene,
    end: ServiceEnd,
    number: u16,
) -> Result<Box<dyn Conversation>, Error> {
    let address = address(scene, number);
    let open = || -> io::Result<TcpStream> {
        let stream = match end {
            ServiceEnd::Client => patiently(PATIENCE, || connect(address, scene.congestion.as_deref()))?,
            ServiceEnd::Server => {
                let listener = TcpListener::bind(any(scene.server, address.port()))?;
                if let Some(name) = &scene.congestion {
                    rustix::net::sockopt::set_tcp_congestion(&listener, name)?;
                }
                listener.set_nonblocking(true)?;
                let (stream, _) = patiently(PATIENCE, || listener.accept())?;
                stream.set_nonblocking(false)?;
                stream
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        Ok(stream)
    };
    let stream = open().map_err(|error| failed(address, &error))?;
    Ok(Box::new(TcpConversation { stream, buffer: vec![0; 64 << 10], from: 0, to: 0 }))
}

struct TcpConversation {
    stream: TcpStream,
    /// What was read: `buffer[from..to]` is not yet taken.
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl TcpConversation {
    /// The next message, if all of it has been read.
    fn take(&mut self, message: &mut Vec<u8>) -> io::Result<bool> {
        let read = &self.buffer[self.from..self.to];
        let Some((length, rest)) = read.split_first_chunk::<LENGTH>() else { return Ok(false) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LONGEST {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes")));
        }
        let Some(body) = rest.get(..length) else {
            if self.buffer.len() < LENGTH + length {
                self.buffer.resize(LENGTH + length, 0);
            }
            return Ok(false);
        };
        message.clear();
        message.extend_from_slice(body);
        self.from += LENGTH + length;
        Ok(true)
    }

    /// Makes room behind what was read.
    fn make_room(&mut self) {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.to == self.buffer.len() {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
    }
}

impl Conversation for TcpConversation {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_le_bytes();
        let sent = self.stream.write_vectored(&[IoSlice::new(&length), IoSlice::new(message)])?;
        if sent < LENGTH {
            self.stream.write_all(&length[sent..])?;
        }
        self.stream.write_all(&message[sent.saturating_sub(LENGTH)..])
    }

    fn receive(&mut self, message: &mut Vec<u8>, until: u64) -> io::Result<NextMessage> {
        loop {
            if self.take(message)? {
                return Ok(NextMessage::Message);
            }
            self.make_room();
            match self.stream.read(&mut self.buffer[self.to..]) {
                Ok(0) => return Ok(NextMessage::Gone),
                Ok(read) => self.to += read,
                Err(error) => match outcome(error)? {
                    NextMessage::Nothing if timer::now() < until => {}
                    heard => return Ok(heard),
                },
            }
        }
    }
}

/// What a failed read means: nothing yet, the other end has gone, or an error.
fn outcome(error: io::Error) -> io::Result<NextMessage> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(NextMessage::Nothing),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused | ErrorKind::BrokenPipe => {
            Ok(NextMessage::Gone)
        }
        _ => Err(error),
    }
}

/// Bytes of a message that one datagram carries: with its head and UDP's and IP's it fits an Ethernet frame.
const PART: usize = 1400;

/// What begins each datagram: the message's number, its length, and where this part stands in it.
const PART_HEAD: usize = 12;

/// A datagram without a message: the client says where it is, and the server that it has heard so.
const HELLO: u32 = u32::MAX;

/// Opens conversation `number` over UDP. The first datagrams tell the server where its client is.
pub(super) fn udp(
    scene: &ServiceScene,
    end: ServiceEnd,
    number: u16,
) -> Result<Box<dyn Conversation>, Error> {
    let address = address(scene, number);
    let open = || -> io::Result<UdpSocket> {
        let mut hello = [0; PART_HEAD];
        hello[..4].copy_from_slice(&HELLO.to_le_bytes());
        let socket = UdpSocket::bind(match end {
            ServiceEnd::Server => any(scene.server, address.port()),
            ServiceEnd::Client => any(scene.server, 0),
        })?;
        socket.set_read_timeout(Some(LOOK))?;
        patiently(PATIENCE, || match end {
            ServiceEnd::Server => {
                let (_, client) = socket.recv_from(&mut [0; PART_HEAD])?;
                socket.connect(client)?;
                socket.send(&hello).map(drop)
            }
            ServiceEnd::Client => {
                socket.connect(address)?;
                socket.send(&hello)?;
                socket.recv(&mut [0; PART_HEAD]).map(drop)
            }
        })?;
        Ok(socket)
    };
    let socket = open().map_err(|error| failed(address, &error))?;
    Ok(Box::new(UdpConversation { socket, next: 0, partial: Partial::default() }))
}

struct UdpConversation {
    socket: UdpSocket,
    next: u32,
    partial: Partial,
}

/// The message whose parts are arriving. A part of a newer message ends it: what is missing then is lost.
#[derive(Debug, Default)]
struct Partial {
    number: Option<u32>,
    bytes: Vec<u8>,
    missing: usize,
}

impl Partial {
    /// Adds a datagram; whether the message is complete.
    fn add(&mut self, datagram: &[u8]) -> bool {
        let Some((head, body)) = datagram.split_first_chunk::<PART_HEAD>() else { return false };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (number, length, at) = (word(0), word(4) as usize, word(8) as usize);
        if number == HELLO || length > LONGEST {
            return false;
        }
        if self.number != Some(number) {
            self.number = Some(number);
            self.bytes.clear();
            self.bytes.resize(length, 0);
            self.missing = length.div_ceil(PART).max(1);
        }
        let Some(place) = self.bytes.get_mut(at..at + body.len()) else { return false };
        place.copy_from_slice(body);
        self.missing = self.missing.saturating_sub(1);
        self.missing == 0
    }
}

impl Conversation for UdpConversation {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let number = self.next;
        self.next = (self.next + 1) % HELLO;
        let length = u32::try_from(message.len()).unwrap_or(HELLO);
        let mut datagram = Vec::with_capacity(PART_HEAD + PART);
        for at in (0..message.len().max(1)).step_by(PART) {
            let body = &message[at..message.len().min(at + PART)];
            datagram.clear();
            for word in [number, length, at as u32] {
                datagram.extend_from_slice(&word.to_le_bytes());
            }
            datagram.extend_from_slice(body);
            // nobody may listen any more; the client's end is by time
            if let Err(error) = self.socket.send(&datagram)
                && outcome(error)? == NextMessage::Gone
            {
                return Ok(());
            }
        }
        Ok(())
    }

    fn receive(&mut self, message: &mut Vec<u8>, until: u64) -> io::Result<NextMessage> {
        let mut datagram = [0; PART_HEAD + PART];
        loop {
            match self.socket.recv(&mut datagram) {
                Ok(read) if self.partial.add(&datagram[..read]) => {
                    std::mem::swap(message, &mut self.partial.bytes);
                    self.partial.number = None;
                    return Ok(NextMessage::Message);
                }
                Ok(_) => {}
                Err(error) => match outcome(error)? {
                    NextMessage::Nothing if timer::now() < until => {}
                    heard => return Ok(heard),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_complete_with_its_last_part_and_a_newer_one_ends_an_incomplete_one() {
        let part = |number: u32, length: u32, at: u32, body: usize| {
            let mut datagram = [number, length, at].map(u32::to_le_bytes).concat();
            datagram.resize(PART_HEAD + body, 7);
            datagram
        };
        let mut partial = Partial::default();
        assert!(partial.add(&part(0, 3, 0, 3)) && partial.bytes == [7; 3]);
        assert!(!partial.add(&part(1, 1500, 0, PART)));
        assert!(!partial.add(&part(2, 1500, 0, PART)), "message 1 is lost");
        assert!(!partial.add(&part(2, 1500, 1490, 100)), "past its end");
        assert!(partial.add(&part(2, 1500, 1400, 100)));
        assert!(!partial.add(&[1, 2]) && !partial.add(&part(HELLO, 0, 0, 0)));
    }
}
