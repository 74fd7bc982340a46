//! The middleware: one process that serves the event channel to programs, by deadline and by share.
//!
//! ```text
//!   program --Client--\                +---------------------------------------+ --> consumers (programs)
//!   program --Client---+ transports -> | Broker: EventChannel, credit, limits  |
//!   program --Client--/  frames        +---------------------------------------+ --> paths (UDP, TCP)
//! ```
//! [`Broker`] is a state machine without sockets and without a clock: time is an argument, and the work to do
//! is its result. [`Server`] runs it over [`transport`]s. Programs link [`Client`]. The protocol between
//! them: `PROTOCOL.md`. To read: `frame/mod.rs`, `broker/mod.rs`, `server/mod.rs`, `client/mod.rs`.
//!
//! **Idea.** The channel's core chooses the next event: inside a class by deadline, between classes by share.
//! Each consumer's own queue and policy bound its waiting events, so that a slow or dead program harms no
//! other. On a *path* the broker holds the queue instead of the kernel: it sends no faster than the policy's
//! rate, so that no queue forms behind it, and takes no more from a program than its credit.
//!
//! Programs that share memory exchange events directly if they need only a queue; the broker introduces them
//! to each other (`broker/direct.rs`).
//!
//! **Cost.** One copy from the supplier into the broker and one from there to each consumer; system calls
//! for each batch of frames, not for each frame. No privilege, no change of the host.
//!
//! **When not to use it.** It controls only programs that cooperate. A program with a socket of its own
//! bypasses it, and takes capacity from all others: where programs cannot be changed or trusted, the kernel
//! or the interposed place is right.
//!
//! Reference: Shenoy et al., "Middleware versus Native OS Support", sections 2.2, 2.3.2 and 3.7.
#![forbid(unsafe_code)]
// The models include the files that they check one by one (tests/loom.rs).
#![cfg(not(loom))]

mod account;
mod address;
mod audit;
mod body;
mod broker;
mod buffers;
mod channel_wait;
mod client;
pub mod datagram;
mod destination;
pub mod frame;
pub mod join;
mod limits;
pub mod log;
pub mod memory;
mod mqtt;
mod name;
mod name_owner;
mod notice;
mod outgoing;
mod permissions;
mod ring;
mod server;
mod spec;
mod task;
mod tls;
mod topic_names;
pub mod transport;
mod trial;

pub use account::{ClassStatistics, ConsumerStatistics, LogStatistics, OTHERS, Statistics};
pub use address::{AddressError, BrokerAddress, HOST_SOCKET, TlsAddress, default_socket};
pub use audit::{AuditAction, AuditEntry, AuditError, AuditFile, AuditOutcome, AuditSubject};
pub use body::EventBody;
pub use broker::Broker;
pub use channel_wait::ChannelWait;
pub use client::{
    Client, ClientOptions, Error, EventDraft, HandedIn, PathHandle, PublishedEvent, ReceivedEvent, Reception,
    SubscriptionHandle, TopicHandle,
};
pub use destination::{Destination, PathTransport};
pub use frame::{Bad, Frame, PublishOutcome};
pub use limits::Limits;
pub use name_owner::NameOwner;
pub use notice::NoticeText;
pub use permissions::{ClientGrant, ClientIdentity, Permissions, PermissionsError, Tokens};
pub use ring::{DirectCounts, RingOrder, RingReport};
pub use server::{Exposure, OWNER, ServeError, Server, StatisticsWindow};
pub use spec::{
    Advertisement, AgainSpec, Durability, ExceptSpec, Greeting, InterestSpec, KeptHistory, PartRule,
    PathSpec, RemoteSupplier, ReservedTime, ResumeSpec, SubscriptionSpec, SupplierOrder, TogetherSpec,
    WelcomeTerms, WhenFull, WhenLate,
};
pub use task::{ClientId, Next, PathId, Received, Sent, Task};
pub use tls::{
    CertificateChain, CertifiedFiles, ClientCertificateCheck, TlsCertificates, TlsError, TlsService,
    Uncertified,
};
pub use trial::{TrialError, TrialResult, TrialSpec, trial};
pub use unisono_eventchannel::{FieldSet, FieldValue, NO_DEADLINE, TopicPattern};
/// The clock of deadlines (`CLOCK_MONOTONIC`).
pub use unisono_linux::clock::{Nanos, now};

/// The Rust of the guide, compiled as an example.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/events.md")]
struct EventsGuide;
