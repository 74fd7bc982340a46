//! Conversations over TCP, with a length before each message.

use super::socket::{MAX_MESSAGE_BYTES, POLL_INTERVAL, address, any, connect, failed, outcome};
use super::{Conversation, ConversationEnd, ConversationScene, Conversations, NextMessage};
use crate::Error;
use crate::retry::retry;
use rustix::net::sockopt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use unisono_linux::clock::{self, Instant};

/// Bytes of a message's length field.
const LENGTH: usize = 4;

/// Opens conversations over TCP, all at one port, one after the other.
pub(super) fn tcp(
    scene: &ConversationScene,
    end: ConversationEnd,
    conversations: u16,
) -> Result<Conversations, Error> {
    let address = address(scene, 0);
    let congestion = scene.congestion.as_deref();
    let open = || -> io::Result<Conversations> {
        let mut next: Box<dyn FnMut() -> io::Result<TcpStream>> = match end {
            ConversationEnd::Client => Box::new(|| connect(address, congestion)),
            ConversationEnd::Server => {
                let listener = TcpListener::bind(any(scene.server, address.port()))?;
                if let Some(name) = congestion {
                    sockopt::set_tcp_congestion(&listener, name)?;
                }
                sockopt::set_socket_timeout(&listener, sockopt::Timeout::Recv, Some(scene.timeout))?;
                Box::new(move || listener.accept().map(|(stream, _)| stream))
            }
        };
        let mut open = || -> io::Result<Box<dyn Conversation>> {
            let stream = retry(scene.timeout, &mut next)?;
            let mut conversation = TcpConversation::over(stream)?;
            // the client opens the next connection only after this one is accepted; otherwise a lost packet
            // could swap two
            match end {
                ConversationEnd::Server => conversation.send(&[])?,
                ConversationEnd::Client => {
                    let by = clock::now() + scene.timeout.into();
                    if conversation.receive(&mut Vec::new(), by)? != NextMessage::Message {
                        return Err(io::Error::new(ErrorKind::TimedOut, "the server does not accept"));
                    }
                }
            }
            Ok(Box::new(conversation))
        };
        (0..conversations).map(|_| open()).collect()
    };
    open().map_err(|error| failed(address, &error))
}

pub struct TcpConversation {
    stream: TcpStream,
    /// Received bytes; `buffer[from..to]` is not yet taken.
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl TcpConversation {
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        Ok(Self { stream, buffer: vec![0; 64 << 10], from: 0, to: 0 })
    }

    /// Takes the next message, if all of it has been received.
    fn take_message(&mut self, message: &mut Vec<u8>) -> io::Result<bool> {
        let read = &self.buffer[self.from..self.to];
        let Some((length, rest)) = read.split_first_chunk::<LENGTH>() else { return Ok(false) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_MESSAGE_BYTES {
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

    /// Makes room after the received bytes.
    fn compact_buffer(&mut self) {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.to == self.buffer.len() {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
    }
}

impl Conversation for TcpConversation {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_le_bytes();
        let sent = self.stream.write_vectored(&[IoSlice::new(&length), IoSlice::new(message)])?;
        if sent < LENGTH {
            self.stream.write_all(&length[sent..])?;
        }
        self.stream.write_all(&message[sent.saturating_sub(LENGTH)..])
    }

    fn receive(&mut self, message: &mut Vec<u8>, until: Instant) -> io::Result<NextMessage> {
        loop {
            if self.take_message(message)? {
                return Ok(NextMessage::Message);
            }
            self.compact_buffer();
            match self.stream.read(&mut self.buffer[self.to..]) {
                Ok(0) => return Ok(NextMessage::Gone),
                Ok(read) => self.to += read,
                Err(error) => match outcome(error)? {
                    NextMessage::Nothing if clock::now() < until => {}
                    heard => return Ok(heard),
                },
            }
        }
    }
}
