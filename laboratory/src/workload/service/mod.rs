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
//! This module does not start the processes or the network, which the driver does, and does not interpret the
//! results.

mod control;
mod download;
mod events;
mod frames;
mod requests;
mod streaming;
mod video;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use unisono_linux::clock::Duration;
use unisono_measure::record::{Distribution, Figure};
use unisono_workload::Error;
use unisono_workload::conversation::{Conversation, ConversationEnd, ConversationScene, null_rpc};

/// The application's class in the policy of its link.
pub const CLASS: &str = "service";

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

impl Application {
    /// Returns the number of conversations of a client.
    #[must_use]
    pub fn conversations(self, clients: u16, sensor: bool) -> u16 {
        match self {
            Self::Streaming | Self::Requests => clients,
            Self::Control => 1 + u16::from(sensor),
            Self::NullRpc | Self::Events | Self::Download => 1,
        }
    }
}

/// The description of one run, which both processes read from one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceScene {
    pub application: Application,
    /// The conversations. A download ends with the file, and not with the end of measuring.
    #[serde(flatten)]
    pub ends: ConversationScene,
    pub events_per_s: f64,
    /// The number of bytes of the file to download.
    pub file_bytes: u64,
    /// The number of viewers of the stream, or of clients that send requests.
    pub clients: u16,
    /// The encoded video that is streamed. `None`: frames come from a generator.
    pub video: Option<PathBuf>,
    /// The bit rate of every second viewer's video, as a part of the others'. 1: all have one bit rate.
    pub slow_part: f64,
    /// The guard that gives each viewer's socket a weight by the bit rate of its video. `None`: no socket has
    /// a weight of its own.
    pub guard: Option<PathBuf>,
    /// The number of times that the server reads the whole file before it answers a request with it.
    pub passes: u32,
    /// The length of a streaming round.
    pub round: Duration,
    /// Whether a sensor reports in addition to the console.
    pub sensor: bool,
    pub seed: u64,
}

impl ServiceScene {
    /// Runs the part of one process.
    ///
    /// # Errors
    /// The other end does not appear within the scene's timeout, or the communication breaks.
    pub fn run(&self, end: ConversationEnd) -> Result<Vec<Figure>, Error> {
        let conversations = self.ends.open(end)?;
        if let (Some(guard), ConversationEnd::Server) = (&self.guard, end) {
            streaming::weigh(self.slow_part, guard, &conversations)?;
        }
        Self { ends: self.ends.begin(end)?, ..self.clone() }.measure(end, conversations)
    }

    fn measure(
        &self,
        end: ConversationEnd,
        conversations: Vec<Box<dyn Conversation>>,
    ) -> Result<Vec<Figure>, Error> {
        let done = match (self.application, end) {
            (Application::NullRpc, ConversationEnd::Server) => null_rpc::serve(&self.ends, conversations),
            (Application::NullRpc, ConversationEnd::Client) => null_rpc::call(&self.ends, conversations),
            (Application::Requests, ConversationEnd::Server) => requests::serve(self, conversations),
            (Application::Requests, ConversationEnd::Client) => requests::ask(self, conversations),
            (Application::Events, ConversationEnd::Server) => events::supply(self, conversations),
            (Application::Events, ConversationEnd::Client) => events::consume(self, conversations),
            (Application::Download, ConversationEnd::Server) => download::serve(self, conversations),
            (Application::Download, ConversationEnd::Client) => download::fetch(self, conversations),
            (Application::Control, ConversationEnd::Server) => control::serve(self, conversations),
            (Application::Control, ConversationEnd::Client) => control::command(self, conversations),
            (Application::Streaming, ConversationEnd::Server) => streaming::serve(self, conversations),
            (Application::Streaming, ConversationEnd::Client) => streaming::watch(self, conversations),
        };
        done.map_err(|error| {
            Error::Exchange(format!("{:?} over {:?}: {error}", self.application, self.ends.carrier))
        })
    }
}

/// Makes a figure from a distribution, or returns `None` if no value was counted.
fn distributed(name: &str, distribution: Option<Distribution>, unit: &str) -> Option<Figure> {
    distribution.map(|distribution| Figure::from_distribution(name, unit, distribution))
}

#[cfg(test)]
mod tests;
