//! The applications with which Shenoy et al. compared middleware with the operating system (section 3). Each
//! is written once over a [`Conversation`], so that only the communication differs.
//!
//! ```text
//!   server process  ---- conversation 0, 1, ... : TCP, UDP, or an event channel ----  client process
//! ```
//! | application | the server | the client | measured |
//! |---|---|---|---|
//! | null RPC | answers each request | sends a request as soon as it has an answer | response time |
//! | requests | sends a file, or computes on it first | several clients, each as in null RPC | response time |
//! | events | sends small events at a steady rate | receives | one-way delay |
//! | download | sends a file in blocks | receives | bytes over time |
//! | control | actuator: acknowledges commands; monitor: gets a sensor's updates | console, sensor | response time, jitter |
//! | streaming | sends each client's frames of a round in the next round | receives | delivery time of a round, late rounds |
//!
//! Both processes are on one host, possibly in two network namespaces, and share its monotonic clock. One-way
//! delays are therefore exact.
//!
//! This module does not start the processes or the network (the driver does), and does not judge.

mod asking;
mod channel;
mod control;
mod conversation;
mod download;
mod events;
mod frames;
mod meeting;
mod null_rpc;
mod reply;
mod requests;
mod serving;
mod socket;
mod streaming;
mod tcp;
mod udp;
mod video;

pub use conversation::{Conversation, NextMessage, ReplySender};
pub use meeting::ServiceMeeting;
pub(super) use tcp::TcpConversation;

use crate::workload::Error;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use unisono_broker::{AddressError, BrokerAddress, ChannelWait};
use unisono_linux::clock::Nanos;
use unisono_linux::resource_limit::raise_open_files;
use unisono_measure::record::{Distribution, Figure};

/// An application of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Application {
    NullRpc,
    Requests,
    Events,
    Download,
    Control,
    Streaming,
}

/// The carrier of the conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceCarrier {
    Tcp,
    Udp,
    /// The event channel: the server reaches the broker by a Unix socket; so does a client on the same host,
    /// others by TCP.
    Channel,
    /// The event channel; both ends reach the broker by TCP.
    ChannelTcp,
    /// The event channel; both ends reach the broker over shared memory, so both are on one host.
    ChannelShm,
    /// The event channel over UDP, best effort. If the client is on another host, the server reaches the
    /// broker as in [`Self::Channel`].
    ChannelUdp,
    /// The channel's request and reply: one server answers all clients, and reaches the broker as in
    /// [`Self::Channel`].
    Reply,
}

impl ServiceCarrier {
    /// Whether it needs a broker.
    #[must_use]
    pub fn is_channel(self) -> bool {
        !matches!(self, Self::Tcp | Self::Udp)
    }
}

/// How the server of null RPC and of web requests serves them.
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
pub enum ServiceEnd {
    Server,
    Client,
}

impl ServiceEnd {
    /// Both ends, with name and description on the command line.
    pub const ALL: [(Self, &str, &str); 2] =
        [(Self::Server, "server", "Answer"), (Self::Client, "client", "Ask")];
}

/// The description of one run, which both processes read from one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceScene {
    pub application: Application,
    pub carrier: ServiceCarrier,
    pub serving: Serving,
    /// The server's address.
    pub server: IpAddr,
    /// The broker's addresses, if the carrier needs one.
    pub broker: Option<BrokerAddresses>,
    /// The port of TCP connections; over UDP, conversation `n` uses port `port + n`.
    pub port: u16,
    /// The congestion control of TCP connections. `None`: the host's default.
    pub congestion: Option<String>,
    /// Start of measuring on the monotonic clock; with a meeting, relative to its moment.
    pub from: Nanos,
    /// End of measuring, in the same way. A download ends with the file.
    pub until: Nanos,
    /// The ends' agreement on the start. `None`: `from` is the start, even if an end is late.
    pub meeting: Option<ServiceMeeting>,
    /// The other end must appear, and must answer the opening of a conversation, within this time.
    #[serde(rename = "patience")]
    pub timeout: Duration,
    /// Bytes of an event or of a block of the download.
    pub message_bytes: usize,
    pub events_per_s: f64,
    /// Bytes of the file to download.
    pub file_bytes: u64,
    /// Viewers of the stream, or clients that send requests.
    pub clients: u16,
    /// The encoded video that is streamed. `None`: frames come from a generator.
    pub video: Option<PathBuf>,
    /// Number of times that the server reads the whole file before it answers a request with it.
    pub passes: u32,
    /// Length of a streaming round.
    pub round: Nanos,
    /// Whether a sensor reports beside the console.
    pub sensor: bool,
    pub seed: u64,
    /// How the ends wait for the event channel.
    pub wait: ChannelWait,
}

/// The listening addresses of a run's broker, in the form of `unisono events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerAddresses {
    pub for_server: String,
    pub for_client: String,
}

/// This many conversations fit the usual limit of 1,024 open files.
const MAX_UNRAISED_CONVERSATIONS: u16 = 100;

impl ServiceScene {
    /// Number of conversations of an end.
    fn conversations(&self, end: ServiceEnd) -> u16 {
        if self.carrier == ServiceCarrier::Reply && end == ServiceEnd::Server {
            return 1;
        }
        match self.application {
            Application::Streaming | Application::Requests => self.clients,
            Application::Control => 1 + u16::from(self.sensor),
            Application::NullRpc | Application::Events | Application::Download => 1,
        }
    }

    /// Opens all conversations of one end: the server waits for the client, and the client for the server.
    fn open(&self, end: ServiceEnd) -> Result<Vec<Box<dyn Conversation>>, Error> {
        let broker = || -> Result<BrokerAddress, Error> {
            let addresses = self.broker.as_ref();
            let addresses =
                addresses.ok_or_else(|| Error::Options("an event channel needs a broker".to_owned()))?;
            let address = match end {
                ServiceEnd::Server => &addresses.for_server,
                ServiceEnd::Client => &addresses.for_client,
            };
            address.parse().map_err(|error: AddressError| Error::Options(error.to_string()))
        };
        let conversations = self.conversations(end);
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
            ServiceCarrier::Tcp => tcp::tcp(self, end, conversations),
            ServiceCarrier::Udp => all.map(|number| udp::udp(self, end, number)).collect(),
            ServiceCarrier::Reply => all.map(|_| reply::reply(self, &broker()?, end)).collect(),
            ServiceCarrier::Channel
            | ServiceCarrier::ChannelTcp
            | ServiceCarrier::ChannelShm
            | ServiceCarrier::ChannelUdp => {
                all.map(|number| channel::channel(self, &broker()?, end, number)).collect()
            }
        }
    }

    /// Does one process's part.
    ///
    /// # Errors
    /// The other end does not appear within the scene's patience, or the communication breaks.
    pub fn run(&self, end: ServiceEnd) -> Result<Vec<Figure>, Error> {
        let conversations = self.open(end)?;
        let Some(meeting) = &self.meeting else { return self.measure(end, conversations) };
        // the other end may still have to open hundreds of conversations
        let longest = self.timeout * (u32::from(self.clients) / u32::from(MAX_UNRAISED_CONVERSATIONS) + 2);
        let moment = meeting.wait(end, longest)?;
        let begun = Self { from: self.from.after(moment), until: self.until.after(moment), ..self.clone() };
        begun.measure(end, conversations)
    }

    fn measure(
        &self,
        end: ServiceEnd,
        conversations: Vec<Box<dyn Conversation>>,
    ) -> Result<Vec<Figure>, Error> {
        let done = match (self.application, end) {
            (Application::NullRpc, ServiceEnd::Server) => null_rpc::serve(self, conversations),
            (Application::NullRpc, ServiceEnd::Client) => null_rpc::call(self, conversations),
            (Application::Requests, ServiceEnd::Server) => requests::serve(self, conversations),
            (Application::Requests, ServiceEnd::Client) => requests::ask(self, conversations),
            (Application::Events, ServiceEnd::Server) => events::supply(self, conversations),
            (Application::Events, ServiceEnd::Client) => events::consume(self, conversations),
            (Application::Download, ServiceEnd::Server) => download::serve(self, conversations),
            (Application::Download, ServiceEnd::Client) => download::fetch(self, conversations),
            (Application::Control, ServiceEnd::Server) => control::serve(self, conversations),
            (Application::Control, ServiceEnd::Client) => control::command(self, conversations),
            (Application::Streaming, ServiceEnd::Server) => streaming::serve(self, conversations),
            (Application::Streaming, ServiceEnd::Client) => streaming::watch(self, conversations),
        };
        done.map_err(|error| {
            Error::Exchange(format!("{:?} over {:?}: {error}", self.application, self.carrier))
        })
    }
}

/// A figure with its distribution; `None` if no value was counted.
fn distributed(name: &str, distribution: Option<Distribution>, unit: &str) -> Option<Figure> {
    distribution.map(|distribution| Figure::from_distribution(name, unit, distribution))
}

#[cfg(test)]
mod tests;
