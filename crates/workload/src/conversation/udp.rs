//! Conversations over UDP; each datagram carries a part of a message.

use super::socket::{MAX_MESSAGE_BYTES, POLL_INTERVAL, address, any, failed, outcome};
use super::{Conversation, ConversationEnd, ConversationScene, NextMessage};
use crate::Error;
use crate::retry::retry;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use unisono_linux::clock::{self, Instant};

/// Bytes of a message in one datagram: with the part's header and the headers of UDP and IP, the message fits
/// an Ethernet frame.
const PART: usize = 1400;

/// Bytes of each datagram's header: the message's number, its length, and the offset of this part.
const PART_HEAD: usize = 12;

/// The number of a datagram without a message: the client announces its address, and the server acknowledges
/// it.
const HELLO: u32 = u32::MAX;

/// Opens conversation `number` over UDP. The first datagrams tell the server its client's address.
pub(super) fn udp(
    scene: &ConversationScene,
    end: ConversationEnd,
    number: u16,
) -> Result<Box<dyn Conversation>, Error> {
    let address = address(scene, number);
    let open = || -> io::Result<UdpSocket> {
        let mut hello = [0; PART_HEAD];
        hello[..4].copy_from_slice(&HELLO.to_le_bytes());
        let socket = UdpSocket::bind(match end {
            ConversationEnd::Server => any(scene.server, address.port()),
            ConversationEnd::Client => any(scene.server, 0),
        })?;
        socket.set_read_timeout(Some(POLL_INTERVAL))?;
        retry(scene.timeout, || match end {
            ConversationEnd::Server => {
                let (_, client) = socket.recv_from(&mut [0; PART_HEAD])?;
                socket.connect(client)?;
                socket.send(&hello).map(drop)
            }
            ConversationEnd::Client => {
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

/// The message whose parts are arriving. A part of a newer message ends it: parts still missing then are
/// lost.
#[derive(Debug, Default)]
struct Partial {
    number: Option<u32>,
    bytes: Vec<u8>,
    missing: usize,
}

impl Partial {
    /// Adds a datagram; returns whether the message is complete.
    fn add(&mut self, datagram: &[u8]) -> bool {
        let Some((head, body)) = datagram.split_first_chunk::<PART_HEAD>() else { return false };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (number, length, at) = (word(0), word(4) as usize, word(8) as usize);
        if number == HELLO || length > MAX_MESSAGE_BYTES {
            return false;
        }
        if self.number != Some(number) {
            self.number = Some(number);
            self.bytes.clear();
            self.bytes.resize(length, 0);
            self.missing = length.div_ceil(PART).max(1);
        }
        let Some(address) = self.bytes.get_mut(at..at + body.len()) else { return false };
        address.copy_from_slice(body);
        self.missing = self.missing.saturating_sub(1);
        self.missing == 0
    }
}

impl Conversation for UdpConversation {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

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
            // the other end may have stopped listening; the client ends by time
            if let Err(error) = self.socket.send(&datagram)
                && outcome(error)? == NextMessage::Gone
            {
                return Ok(());
            }
        }
        Ok(())
    }

    fn receive(&mut self, message: &mut Vec<u8>, until: Instant) -> io::Result<NextMessage> {
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
                    NextMessage::Nothing if clock::now() < until => {}
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
