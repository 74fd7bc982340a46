//! The middleware: one process that serves the event channel to programs, by deadline and by share.
//!
//! ```text
//!   program --Client--\                +---------------------------------------+ --> consumers (programs)
//!   program --Client---+ transports -> | Broker: EventChannel, credit, limits  |
//!   program --Client--/  frames        +---------------------------------------+ --> paths (UDP, TCP)
//! ```
//! [`Broker`] is a state machine without sockets and without a clock: time is an argument, and the work to do
//! is its result. [`Server`] runs it over transports. Programs link `unisono-events-client`. The protocol
//! between them: `events-wire/PROTOCOL.md`. To read: `broker/mod.rs`, `server/mod.rs`.
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
//! bypasses it, and takes capacity from all others: where programs cannot be changed or trusted, enforce the
//! shares in the kernel, or in a process that all frames of a device pass through (`enforce`).
//!
//! Reference: Shenoy et al., "Middleware versus Native OS Support", sections 2.2, 2.3.2 and 3.7.
#![forbid(unsafe_code)]

mod account;
mod audit;
mod body;
mod broker;
pub mod join;
mod limits;
pub mod log;
mod mqtt;
mod name_owner;
mod outgoing;
mod permissions;
mod server;
mod sorted_map;
mod task;
mod topic_names;
mod trial;

pub use audit::{AuditAction, AuditEntry, AuditError, AuditFile, AuditOutcome, AuditSubject};
pub use body::EventBody;
pub use broker::{Broker, BrokerSettings, CheckedSettings, ReloadAsker, ReloadedFiles};
pub use limits::{LimitLine, Limits};
pub use name_owner::NameOwner;
pub use permissions::{ClientGrant, ClientIdentity, Permissions, PermissionsError, Tokens};
pub use server::{
    Exposure, OWNER, ReloadTrigger, ServeEnd, ServeError, Server, SettingsReader, SocketOrigin,
    StatisticsWindow, WebEncryption,
};
pub use task::{ClientId, Next, PathId, Received, Sent, Task};
pub use trial::{TrialError, TrialResult, TrialSpec, trial};
/// The certificates of a server.
pub use unisono_events_wire::{TlsCertificates, TlsService, Uncertified};
