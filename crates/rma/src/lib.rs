#![doc = include_str!("../README.md")]
//! # Reading the crate
//!
//! ```text
//!   job       Job: joins the members, makes windows
//!    |
//!   window    Window: put get accumulate | fence, post start complete wait, lock unlock flush
//!    |
//!   path      mapped: stores, flags, lock words         message: packets, as in the paper
//!    |                                                        |
//!   wire       |                                        Transport: loopback, ring, TCP, hybrid
//!    |                                                        |
//!   host      the members of one host: their processes, detection of deaths, waiting
//!    |
//!   memory    copying and combining bytes of a window
//!    |
//!   model     ranks, errors, layouts, elements, epochs, statistics: no memory, no messages
//! ```
//! A module uses only those below it. To read the crate, begin with `model/epochs.rs`, the standard's rules
//! for the order of calls. Then `window/mod.rs` and `window/issue.rs`: a call and its checks. Then
//! `path/mod.rs`, the interface of both paths; `path/mapped/mod.rs` for shared memory; and
//! `path/message/mod.rs` with `wire/mod.rs`, the contract of transports, for messages. `PROTOCOL.md` explains
//! both protocols: the writers of each word, the counters of packets, and why no member proceeds too early.
//!
//! [`Job`] describes how members join a job and make windows. [`Window`] has the operations and the
//! synchronization calls, and states their guarantees. [`TreeBarrierMember`] needs no window: a barrier along
//! a tree that the caller has chosen, over connections between neighbors alone. [`Layout`] describes data
//! that is not contiguous. [`Error::class`] returns the standard's error class.

// The models in tests/loom.rs compile the files that they check, one by one.
#![cfg(not(loom))]

mod host;
mod job;
mod memory;
mod model;
mod path;
mod tree_barrier;
mod window;
pub mod wire;

pub use job::Job;
pub use model::{
    Amount, Assert, Bootstrap, Completion, Element, Error, ErrorClass, JobMembership, Key, Layout, Lock,
    Locks, MAX_RANKS, Medium, Operation, Placement, Plain, Rank, Run, STATS, Sink, Source, Spec, Stats,
    StatsTable, Style, Target, Traffic, Verb, WindowStats, environment,
};
pub use path::hook::HookOutcome;
pub use path::message::PacketServer;
pub use tree_barrier::{AnsweringMember, FastBarrier, ReleasedBy, TreeBarrierMember};
pub use window::{Flavor, Mapped, Pending, Request, Window};
