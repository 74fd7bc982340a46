//! What programs link: a connection to a broker, channels, sending with credit.
//!
//! ```no_run
//! use unisono_broker::{Client, Destination, NO_DEADLINE};
//! # fn main() -> Result<(), unisono_broker::Error> {
//! let mut broker = Client::connect("/run/unisono/broker".as_ref())?;
//! let video = broker.open("video", Destination::udp("192.0.2.7:5004".parse().expect("an address")))?;
//! broker.send(video, b"a frame", NO_DEADLINE)?; // waits while the class has more than its share on the way
//! # Ok(())
//! # }
//! ```
//! [`Client::send`] blocks until there is credit: who is too fast waits here, and not in a queue. It answers
//! when the broker has the message, not when it has left ([`Client::flush`] waits for that).

use crate::account::Statistics;
use crate::destination::Destination;
use crate::frame::Frame;
use crate::limits::Limits;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Why a broker could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody is there.
    #[error("no broker at {}: {source}; start one: unisono queue broker POLICY --listen {}", path.display(), path.display())]
    Nobody { path: PathBuf, source: std::io::Error },
    /// The channel was refused, or its destination is gone.
    #[error("the channel is closed: {0}")]
    Closed(String),
    /// The broker does not want this program.
    #[error("the broker ended the connection: {0}")]
    SentAway(String),
    /// The payload is too long.
    #[error("a payload of {length} bytes is too long: the broker takes {most}")]
    TooLong { length: usize, most: usize },
    /// The connection broke.
    #[error("the broker is gone ({0}), and with it what it had taken and not sent yet; connect again")]
    Broken(std::io::Error),
    /// What came is no answer of a broker.
    #[error("what answers is no broker of this version: {0}")]
    Strange(String),
}

impl From<Errno> for Error {
    fn from(error: Errno) -> Self {
        Self::Broken(error.into())
    }
}

/// A channel, of one client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Channel(u32);

#[derive(Debug)]
enum ClientChannel {
    /// No answer yet.
    Asked,
    Open {
        credit: u32,
        all: u32,
    },
    Closed(String),
}

/// A connection to a broker. For one thread; others open their own.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    largest: usize,
    channels: BTreeMap<u32, ClientChannel>,
    next: u32,
    statistics: Option<Statistics>,
    frame: Vec<u8>,
    buffer: Vec<u8>,
}

/// The longest frame that a broker sends.
const LONGEST: usize = 128 << 10;

impl Client {
    /// Connects to the broker that listens at `path`.
    ///
    /// # Errors
    /// Nobody is there, or something else is.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let nobody = |source: Errno| Error::Nobody { path: path.to_owned(), source: source.into() };
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let address = SocketAddrUnix::new(path).map_err(nobody)?;
        connect(&socket, &address).map_err(nobody)?;
        let mut client = Self {
            socket,
            largest: 0,
            channels: BTreeMap::new(),
            next: 0,
            statistics: None,
            frame: Vec::new(),
            buffer: vec![0; LONGEST],
        };
        client.tell(&Frame::Hello)?;
        while client.largest == 0 {
            client.hear(AnswerWait::Wait)?;
        }
        Ok(client)
    }

    /// Opens a channel in a class (empty: the policy's default) and waits until it is there. A connection may
    /// still be on its way: if nobody takes it, sending fails.
    ///
    /// # Errors
    /// The broker's reason.
    pub fn open(&mut self, class: &str, destination: Destination) -> Result<Channel, Error> {
        let number = self.next;
        self.next += 1;
        self.channels.insert(number, ClientChannel::Asked);
        self.tell(&Frame::Open { channel: number, destination, class })?;
        loop {
            match self.channels.get(&number) {
                Some(ClientChannel::Asked) => self.hear(AnswerWait::Wait)?,
                Some(ClientChannel::Open { .. }) => return Ok(Channel(number)),
                Some(ClientChannel::Closed(reason)) => {
                    let reason = reason.clone();
                    self.channels.remove(&number); // the broker never knew it
                    return Err(Error::Closed(reason));
                }
                None => return Err(Error::Strange("it forgot a channel".to_owned())),
            }
        }
    }

    /// The longest payload that the broker takes.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Hands a message over; waits for credit.
    ///
    /// # Errors
    /// The payload is too long, the channel is closed, or the broker is gone.
    pub fn send(&mut self, channel: Channel, payload: &[u8], deadline: u64) -> Result<(), Error> {
        while !self.try_send(channel, payload, deadline)? {
            self.hear(AnswerWait::Wait)?;
        }
        Ok(())
    }

    /// Hands a message over if there is credit for it; whether it did.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn try_send(&mut self, channel: Channel, payload: &[u8], deadline: u64) -> Result<bool, Error> {
        if payload.len() > self.largest {
            return Err(Error::TooLong { length: payload.len(), most: self.largest });
        }
        let cost = Limits::cost(payload.len());
        if self.credit(channel)? < cost {
            while self.hear_now()? {}
        }
        match self.channels.get_mut(&channel.0) {
            Some(ClientChannel::Open { credit, .. }) if *credit >= cost => {
                *credit -= cost;
                self.tell(&Frame::Message { channel: channel.0, deadline, payload })?;
                Ok(true)
            }
            _ => {
                self.credit(channel)?;
                Ok(false)
            }
        }
    }

    /// What may be handed over without waiting: the payload's bytes and 128 for each message.
    ///
    /// # Errors
    /// The channel is closed.
    pub fn credit(&self, channel: Channel) -> Result<u32, Error> {
        match self.channels.get(&channel.0) {
            Some(ClientChannel::Open { credit, .. }) => Ok(*credit),
            Some(ClientChannel::Closed(reason)) => Err(Error::Closed(reason.clone())),
            Some(ClientChannel::Asked) | None => Err(Error::Closed("it is not open".to_owned())),
        }
    }

    /// Waits until all that was handed over on a channel has left.
    ///
    /// # Errors
    /// The channel is closed, or the broker is gone.
    pub fn flush(&mut self, channel: Channel) -> Result<(), Error> {
        self.credit(channel)?;
        self.tell(&Frame::Flush { channel: channel.0 })?;
        loop {
            self.credit(channel)?;
            match self.channels.get(&channel.0) {
                Some(ClientChannel::Open { credit, all }) if credit < all => self.hear(AnswerWait::Wait)?,
                _ => return Ok(()),
            }
        }
    }

    /// Closes a channel; what was handed over is still sent.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn close(&mut self, channel: Channel) -> Result<(), Error> {
        if self.channels.remove(&channel.0).is_some() {
            self.tell(&Frame::Close { channel: channel.0 })?;
        }
        Ok(())
    }

    /// What the broker has done, for all programs.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn statistics(&mut self) -> Result<Statistics, Error> {
        self.tell(&Frame::Ask)?;
        loop {
            if let Some(statistics) = self.statistics.take() {
                return Ok(statistics);
            }
            self.hear(AnswerWait::Wait)?;
        }
    }

    fn tell(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        self.frame.clear();
        frame.write(&mut self.frame);
        match send(&self.socket, &self.frame, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(()),
            // its last words may say why
            Err(Errno::PIPE | Errno::CONNRESET) => loop {
                self.hear(AnswerWait::Wait)?;
            },
            Err(error) => Err(error.into()),
        }
    }

    fn hear_now(&mut self) -> Result<bool, Error> {
        match self.hear(AnswerWait::Look) {
            Ok(()) => Ok(true),
            Err(Error::Broken(error)) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes one frame.
    fn hear(&mut self, patience: AnswerWait) -> Result<(), Error> {
        let flags = match patience {
            AnswerWait::Wait => RecvFlags::empty(),
            AnswerWait::Look => RecvFlags::DONTWAIT,
        };
        let (_, length) = loop {
            match recv(&self.socket, &mut self.buffer[..], flags | RecvFlags::TRUNC) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        if length == 0 {
            return Err(Error::Broken(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let strange = |what: &str| Error::Strange(what.to_owned());
        let bytes = self.buffer.get(..length).ok_or_else(|| strange("its frame is too long"))?;
        match Frame::read(bytes).map_err(|bad| Error::Strange(bad.to_string()))? {
            Frame::Welcome { largest } if largest > 0 => self.largest = largest as usize,
            Frame::Opened { channel, credit } => {
                if let Some(state) = self.channels.get_mut(&channel) {
                    *state = ClientChannel::Open { credit, all: credit };
                }
            }
            Frame::Credit { channel, bytes } => {
                if let Some(ClientChannel::Open { credit, .. }) = self.channels.get_mut(&channel) {
                    *credit = credit.saturating_add(bytes);
                }
            }
            Frame::Closed { channel, reason } => {
                if let Some(state) = self.channels.get_mut(&channel) {
                    *state = ClientChannel::Closed(reason.to_owned());
                }
            }
            Frame::Statistics { json } => {
                let read = serde_json::from_str(json).map_err(|error| Error::Strange(error.to_string()))?;
                self.statistics = Some(read);
            }
            Frame::Bye { reason } => return Err(Error::SentAway(reason.to_owned())),
            _ => return Err(strange("it sent a program's frame")),
        }
        Ok(())
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[derive(Clone, Copy)]
enum AnswerWait {
    Wait,
    Look,
}
