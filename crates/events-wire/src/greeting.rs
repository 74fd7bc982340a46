//! The first two frames of a connection: a program's greeting, and the broker's answer. Both are transmitted
//! as JSON.

use serde::{Deserialize, Serialize};

/// The first frame of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Greeting {
    /// The program's name in messages to people.
    pub name: String,
    /// The lease: a program that is silent for this long counts as dead. An `alive` frame renews the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ns: Option<u64>,
    /// The secret that identifies a program that connects over TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Whether the program understands direct rings.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rings: bool,
    /// Whether the broker sends the program the types of topics.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub types: bool,
}

/// The answer to a greeting.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WelcomeTerms {
    pub version: u32,
    /// Bytes of the largest payload.
    pub largest: u32,
    /// Bytes of the largest payload of an event on a path.
    pub path_largest: u32,
    /// Whether times in frames are readings of the monotonic clock, which both ends then share. If not, they
    /// are durations from the moment of sending.
    pub same_clock: bool,
    /// A random number that identifies this run of the broker, drawn when it begins to serve. Supplier
    /// numbers are valid in one run only. 0: the broker does not send one.
    #[serde(default)]
    pub run: u64,
    /// The topic on which this program expects answers. The program may subscribe to it, and every client
    /// that knows the name may publish on it, whatever the permissions say. The name cannot be guessed.
    /// Empty: an older broker sends none.
    #[serde(default)]
    pub reply: String,
    /// The time after which each end considers the other one gone if its host does not answer. 0: an older
    /// broker sends none, and there is no limit.
    #[serde(default)]
    pub peer_timeout_ns: u64,
    /// Whether the broker takes reports of events that were dropped because they came too late. An older
    /// broker does not.
    #[serde(default)]
    pub late_reports: bool,
    /// Whether the broker takes reports of events that the program's own library has refused. An older broker
    /// does not.
    #[serde(default)]
    pub refusal_reports: bool,
    /// Whether the broker introduces this program to others for direct links over TCP. The program reports
    /// whether it makes them. An older broker does not introduce it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub links: bool,
}
