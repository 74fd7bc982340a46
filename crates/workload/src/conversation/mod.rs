//! Conversations between two processes: a server and a client exchange whole messages in order. Each program
//! over them is written once, so that only the communication differs.
//!
//! ```text
//!   server process  ---- conversation 0, 1, ... : TCP, UDP, or an event channel ----  client process
//! ```
//! [`null_rpc`] is the program over a conversation that `unisono` itself has; the laboratory has more. Both
//! processes are on one host, possibly in two network namespaces, and share its monotonic clock.
//!
//! This module does not start the processes or the network (the driver does), and does not judge the results.

mod channel;
pub mod null_rpc;
mod rendezvous;
mod reply;
pub mod requests;
pub mod serving;
pub mod socket;
mod tcp;
mod udp;

pub use rendezvous::StartRendezvous;
pub use tcp::TcpConversation;

use super::Error;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use unisono_events_client::{AddressError, BrokerAddress, ChannelWait};
use unisono_linux::clock::Instant;
use unisono_linux::resource_limit::raise_open_files;

/// The result of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextMessage {
    Message,
    /// No message arrived in time.
    Nothing,
    /// The other end has gone.
    Gone,
}

/// The answer to one request, sent from another thread.
pub trait ReplySender: Send {
    /// # Errors
    /// The communication is broken.
    fn send(&mut self, answer: &[u8]) -> io::Result<()>;
}

/// One end of a conversation.
pub trait Conversation: Send {
    /// Returns an object with which another thread answers the request received last, while this end receives
    /// the next one. `None` if the conversation has one request at a time.
    fn reply_sender(&mut self) -> Option<Box<dyn ReplySender>> {
        None
    }

    /// Returns the socket of this end, or `None` if the carrier has none for each conversation.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Sends one message. A carrier without reliability may lose it.
    ///
    /// # Errors
    /// The communication is broken.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Sends a message that is due when the monotonic clock shows `deadline`. A carrier without deadlines
    /// ignores the deadline.
    ///
    /// # Errors
    /// The communication is broken.
    fn send_by(&mut self, message: &[u8], deadline: Instant) -> io::Result<()> {
        let _unknown_to_the_carrier = deadline;
        self.send(message)
    }

    /// Stores the next message in `message`; waits for it until the monotonic clock shows `until`.
    ///
    /// # Errors
    /// The communication is broken.
    fn receive(&mut self, message: &mut Vec<u8>, until: Instant) -> io::Result<NextMessage>;
}

/// One end of all conversations of a scene.
pub type Conversations = Vec<Box<dyn Conversation>>;

/// The carrier of the conversations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConversationCarrier {
    #[default]
    Tcp,
    Udp,
    /// The event channel: the server reaches the broker by a Unix socket; so does a client on the same host,
    /// others by TCP.
    Channel,
    /// The event channel; both ends reach the broker by TCP.
    ChannelTcp,
    /// The event channel; the broker introduces the two ends to each other, and their messages go over TCP
    /// connections of their own.
    ChannelLink,
    /// The event channel; both ends reach the broker over shared memory, so both are on one host.
    ChannelShm,
    /// The event channel over UDP, best effort. If the client is on another host, the server reaches the
    /// broker as in [`Self::Channel`].
    ChannelUdp,
    /// The channel's request and reply: one server answers all clients, and reaches the broker as in
    /// [`Self::Channel`].
    Reply,
}

impl ConversationCarrier {
    /// Whether the carrier needs a broker.
    #[must_use]
    pub fn is_channel(self) -> bool {
        !matches!(self, Self::Tcp | Self::Udp)
    }
}

/// How the server serves its conversations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Serving {
    /// The thread that owns the conversation answers.
    #[default]
    OneThread,
    /// A new thread answers each request, as in the paper.
    ThreadPerRequest,
}

/// The role of a process in its conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationEnd {
    Server,
    Client,
}

impl ConversationEnd {
    /// Both ends, with name and description on the command line.
    pub const ALL: [(Self, &str, &str); 2] =
        [(Self::Server, "server", "Answer"), (Self::Client, "client", "Ask")];
}

/// The description of one run's conversations, which both processes read from one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationScene {
    pub carrier: ConversationCarrier,
    pub serving: Serving,
    /// The server's address.
    pub server: IpAddr,
    /// The broker's addresses, if the carrier needs one.
    pub broker: Option<BrokerAddresses>,
    /// The port of TCP connections; over UDP, conversation `n` uses port `port + n`.
    pub port: u16,
    /// The congestion control of TCP connections; `None` stands for the host's default.
    pub congestion: Option<String>,
    /// Start of measuring on the monotonic clock; with a rendezvous, relative to the moment that the
    /// rendezvous announces.
    pub from: Instant,
    /// End of measuring, in the same way.
    pub until: Instant,
    /// The ends' agreement on the start. With `None`, `from` is the start, even if an end is late.
    pub rendezvous: Option<StartRendezvous>,
    /// The other end must appear, and must answer the opening of a conversation, within this time.
    pub timeout: Duration,
    /// The number of conversations of the client.
    pub conversations: u16,
    /// Bytes of the longest message.
    pub message_bytes: usize,
    /// How the ends wait for the event channel.
    pub wait: ChannelWait,
}

/// The listening addresses of a run's broker, in the form of `unisono events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerAddresses {
    pub for_server: String,
    pub for_client: String,
}

/// This number of conversations fits within the usual limit of 1,024 open files.
const MAX_UNRAISED_CONVERSATIONS: u16 = 100;

impl ConversationScene {
    /// Opens all conversations of one end: the server waits for the client, and the client for the server.
    ///
    /// # Errors
    /// The other end does not appear within the scene's timeout.
    pub fn open(&self, end: ConversationEnd) -> Result<Conversations, Error> {
        let broker = || -> Result<BrokerAddress, Error> {
            let addresses = self.broker.as_ref();
            let addresses =
                addresses.ok_or_else(|| Error::Options("an event channel needs a broker".to_owned()))?;
            let address = match end {
                ConversationEnd::Server => &addresses.for_server,
                ConversationEnd::Client => &addresses.for_client,
            };
            address.parse().map_err(|error: AddressError| Error::Options(error.to_string()))
        };
        let is_one_for_all = self.carrier == ConversationCarrier::Reply && end == ConversationEnd::Server;
        let conversations = if is_one_for_all { 1 } else { self.conversations };
        if conversations > MAX_UNRAISED_CONVERSATIONS {
            // sockets of both ends of a broker, and of a listener
            raise_open_files(u64::from(conversations) * 4 + 256).map_err(|error| {
                Error::Exchange(format!(
                    "cannot raise the limit of open files: {error}; raise it yourself: ulimit -n"
                ))
            })?;
        }
        let all = 0..conversations;
        match self.carrier {
            ConversationCarrier::Tcp => tcp::tcp(self, end, conversations),
            ConversationCarrier::Udp => all.map(|number| udp::udp(self, end, number)).collect(),
            ConversationCarrier::Reply => all.map(|_| reply::reply(self, &broker()?, end)).collect(),
            ConversationCarrier::Channel
            | ConversationCarrier::ChannelTcp
            | ConversationCarrier::ChannelLink
            | ConversationCarrier::ChannelShm
            | ConversationCarrier::ChannelUdp => {
                all.map(|number| channel::channel(self, &broker()?, end, number)).collect()
            }
        }
    }

    /// Returns the scene with absolute times. With a rendezvous, waits until both ends have opened their
    /// conversations.
    ///
    /// # Errors
    /// No start of measuring is announced in time.
    pub fn begin(&self, end: ConversationEnd) -> Result<Self, Error> {
        let Some(rendezvous) = &self.rendezvous else { return Ok(self.clone()) };
        // the other end may still have to open hundreds of conversations
        let longest =
            self.timeout * (u32::from(self.conversations) / u32::from(MAX_UNRAISED_CONVERSATIONS) + 2);
        let moment = rendezvous.wait(end, longest)?;
        Ok(Self {
            from: moment + (self.from - Instant::ZERO),
            until: moment + (self.until - Instant::ZERO),
            ..self.clone()
        })
    }

    /// Returns the length of the measured time.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.until - self.from).as_secs_f64()
    }
}

#[cfg(test)]
mod tests;
