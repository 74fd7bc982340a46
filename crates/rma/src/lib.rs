//! One-sided communication whose synchronization costs next to nothing.
//!
//! The members of a [`Job`] make a [`Window`] together: memory of each member that the others read and write.
//! Such memory needs synchronization, and the synchronization costs most of the time. This crate follows
//! Thakur, Gropp and Toonen, "Minimizing Synchronization Overhead in the Implementation of MPI One-Sided
//! Communication" (EuroPVM/MPI 2004): the call that begins an epoch does almost nothing, operations are
//! queued, and the call that ends the epoch does all the work. Where members share memory the crate goes
//! further: an operation whose target is known to be in its epoch is a store, a fence that ends an epoch is
//! one barrier episode, and a lock is one word.
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
//! both protocols: the writers of each word, the counters of packets, and why no member goes on too early.
//!
//! ```toml
//! [dependencies]
//! unisono-rma = { path = "unisono/crates/rma" }   # in a checkout of the repository
//! ```
//!
//! In the example each of four members puts its rank into the window of the next member, and reads the rank
//! that the previous member has put:
//!
//! ```
//! use unisono_rma::{Assert, Error, Job, Rank, Spec};
//!
//! fn passes_on(mut job: Job) -> Result<u32, Error> {
//!     let next = Rank((job.rank().0 + 1) % job.size() as u32);
//!     let mut window = job.allocate(4, Spec::new())?;
//!     window.fence(Assert::NO_PRECEDE)?;
//!     window.put(&[job.rank().0], next, 0)?;
//!     window.fence(Assert::NO_SUCCEED)?;
//!     let mut came = [0];
//!     window.load(0, &mut came)?;
//!     window.free()?;
//!     job.finalize()?;
//!     Ok(came[0])
//! }
//!
//! // Threads, so that the example runs by itself; processes begin with `Job::join`.
//! let members: Vec<_> =
//!     Job::threads(4).into_iter().map(|job| std::thread::spawn(move || passes_on(job))).collect();
//! let came: Result<Vec<u32>, Error> =
//!     members.into_iter().map(|member| member.join().expect("no member panics")).collect();
//! assert_eq!(came?, [3, 0, 1, 2]);
//! # Ok::<(), Error>(())
//! ```
//!
//! [`Job`] describes how members come together and make windows. [`Window`] has the operations and the
//! synchronization calls, and states their guarantees. [`Layout`] describes data that is not contiguous.
//!
//! Windows follow MPI-4.0 chapter 12 and use its words; [`Error::class`] returns the standard's error class.
//! The crate does *not* know MPI (`abi/mpi` and `abi/c` are the bindings), does not start processes
//! (`unisono run` does), and offers no point-to-point messages.

// The models in tests/loom.rs compile the files that they check, one by one.
#![cfg(not(loom))]

mod host;
mod job;
mod memory;
mod model;
mod path;
mod window;
pub mod wire;

pub use job::Job;
pub use model::{
    Amount, Assert, Bootstrap, Completion, Element, Error, ErrorClass, JobMembership, Key, Layout, Lock,
    Locks, MAX_RANKS, Medium, Operation, Placement, Plain, Rank, Run, STATS, Sink, Source, Spec, Stats,
    StatsTable, Style, Target, Traffic, Verb, WindowStats, environment,
};
pub use path::hook::HookOutcome;
pub use window::{Flavor, Mapped, Pending, Request, Window};
